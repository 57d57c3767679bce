"""Write the API reference, a page for each public module, from docstrings: ``python .ci/api.py [FOLDER]``.

The pages need no network to be made or read. What a module of the list exports is what others may build on.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOMS: dict[str, tuple[str, ...]] = {
    "core": ("types", "ir", "code_types", "errors", "registry", "seeding", "executor", "limits"),
    "store": ("dataset", "writer", "bundles", "subset", "trust"),
    "environments": ("general", "code", "episodes", "hosts", "checker", "runner"),
    "verifiers": ("base", "general", "code", "attacks", "mutants"),
    "verifiers.runners": ("base",),
    "sandboxes": ("base", "check", "tools", "solution", "verifier"),
    "policies": ("base", "registry", "programs", "openai", "tokens_http", "dsa"),
    "rollout": ("run", "episode", "pass_at_k", "filter", "gold"),
    "model": ("config", "modeling", "engine", "tokenizer", "checkpoint"),
    "train": ("sft", "grpo", "evaluate"),
    "pipelines": ("canaries", "quickstart"),
    "pipelines.general": ("generate", "variants", "validate", "author", "draft", "domains"),
    "pipelines.general.authoring": ("page", "tasks", "statement"),
    "pipelines.general.gates": ("prove", "trial"),
    "pipelines.code": ("generate", "validate"),
    "scale": ("ray_executor",),
    "report": ("html", "training"),
}
"""Room -> its public modules."""


def modules() -> list[str]:
    """Names of all modules that have a page."""
    verbs = ["envgen", "envgen.rollout", "envgen.train"]  # two rooms can be called, as functions
    return [*verbs, *(f"envgen.{room}.{name}" for room, names in ROOMS.items() for name in names)]


def main() -> None:
    """Write the pages."""
    import pdoc  # half a second

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/api")
    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc(*modules(), output_directory=folder)
    print(f"{folder}/index.html")


if __name__ == "__main__":
    main()
