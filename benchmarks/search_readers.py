"""How many search questions the players without a model answer, by depth and language.

    python -P benchmarks/search_readers.py [--questions 50] [--seed 1]

Questions about the one entity that fits two clues, over the package's corpus. ``bm25-reader`` was tuned on
seed 0 and never on another.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from envgen import generate
from envgen.core.errors import PipelineError
from envgen.pipelines.search.config import SearchConfig
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout

POLICIES = ("random-valid", "bm25-reader", "gold")
DEPTHS = range(1, 5)
LANGUAGES = ("en", "zh")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    head = ("language", "depth", "questions", *POLICIES)
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for language in LANGUAGES:
            for depth in DEPTHS:
                cells = row(Path(folder) / f"{language}{depth}", language, depth, arguments)
                print("| " + " | ".join(cells) + " |", flush=True)


def row(place: Path, language: str, depth: int, arguments: argparse.Namespace) -> list[str]:
    """One line of the table: a dataset, and each policy's pass@1 on it."""
    config = SearchConfig(
        questions=arguments.questions, depth=str(depth), breadth="2", shapes="one",
        language=language, seed=arguments.seed,
    )  # fmt: skip
    try:
        made = generate(config, place / "qa").tasks
    except PipelineError:  # the corpus has no such questions in this language
        made = 0
    cells = [language, str(depth), str(made)]
    for policy in POLICIES if made else ():
        run = RolloutConfig(
            dataset=str(place / "qa"),
            out=str(place / policy),
            policy=PolicyConfig(spec=policy),
            n=1,
        )
        played = rollout(run)
        cells.append(f"{played.passed / made:.2f}")
    return cells + ["-"] * (len(POLICIES) + 3 - len(cells))


if __name__ == "__main__":
    main()
