"""A dataset as a resources server of NeMo Gym: ``envgen export ds/ --format nemo --out gym/``.

The folder is a working directory of NeMo Gym's, whose commands find ``resources_servers`` in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from envgen.core.version import VERSION
from envgen.integrations.sessions import Episodes
from envgen.store.dataset import Dataset

SPLITS = {"train": "train", "validation": "validation", "test": "validation"}
"""Our splits -> NeMo Gym's dataset types."""
LICENCES = {
    "Apache-2.0": "Apache 2.0",
    "MIT": "MIT",
    "CC-BY-4.0": "Creative Commons Attribution 4.0 International",
    "CC-BY-SA-4.0": "Creative Commons Attribution-ShareAlike 4.0 International",
}
"""The ones that they know and ours name; any other is TBD to them, and stands in the dataset's card."""
EXAMPLES = 5
"""Rows of ``example.jsonl``, which their checks want."""
APP = '''\
"""$about: a resources server of NeMo Gym."""

from pathlib import Path

from envgen.integrations.nemo import EnvgenResourcesServer


class Server(EnvgenResourcesServer):
    """The dataset in this folder."""

    DATASET = Path(__file__).parent / "dataset"


if __name__ == "__main__":
    Server.run_webserver()
'''
CONFIG = """\
${module}_resources_server:
  resources_servers:
    $module:
      entrypoint: app.py
      domain: agent
      verified: false
      description: $about
${module}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: $turns
      resources_server:
        type: resources_servers
        name: ${module}_resources_server
      model_server:
        type: responses_api_models
        name: policy_model
      datasets:
$datasets"""
DATA = """\
      - name: {name}
        type: {name}
        jsonl_fpath: resources_servers/{module}/data/{name}.jsonl
        license: {licence}
"""
REQUIREMENTS = """\
nemo-gym
envgen-gym==$envgen
"""
README = """\
# {module}

{about}, as a resources server of NeMo Gym. Made by envgen {version}. In this folder:

```text
gym eval run --resources-server {module} --model-type vllm_model --model MODEL --model-url URL \\
    --model-api-key KEY --agent {module}_simple_agent --split train --output rollouts.jsonl --limit 10
```

The dataset in here holds solutions and verifiers: it belongs on the machine that serves the tasks, and not
where an agent has a shell.
"""


def write_nemo(
    dataset: Dataset, episodes: Episodes, folder: Path, names: Mapping[str, str]
) -> None:
    """Write the working directory.

    Args:
        dataset: what is exported; copied into it.
        episodes: its tasks.
        folder: made.
        names: what templates are filled with: ``module``, ``about``.
    """
    module = names["module"]
    server = folder / "resources_servers" / module
    for name in ("configs", "data"):
        (server / name).mkdir(parents=True)
    shutil.copytree(dataset.path, server / "dataset")
    rows: dict[str, list[str]] = {}
    for task_id in episodes.task_ids:
        row = json.dumps(_row(episodes, task_id, module))
        rows.setdefault(SPLITS[dataset.facts(task_id).split], []).append(row)
    rows["example"] = [row for kind in list(rows.values()) for row in kind][:EXAMPLES]
    for name, some in rows.items():
        (server / "data" / f"{name}.jsonl").write_text("\n".join(some) + "\n", encoding="utf-8")
    ours = tuple(dataset.manifest.licences)
    licence = LICENCES.get(ours[0], "TBD") if len(ours) == 1 else "TBD"
    values = {
        **names,
        "envgen": VERSION,
        "about": json.dumps(names["about"]),
        "turns": str(max(dataset.tasks[one].limits.turns for one in episodes.task_ids)),
        "datasets": "".join(
            DATA.format(name=name, module=module, licence=licence) for name in rows
        ),
    }
    for path, template in {
        "app.py": APP.replace("$about", names["about"]),
        "requirements.txt": REQUIREMENTS,
        f"configs/{module}.yaml": CONFIG,
    }.items():
        (server / path).write_text(Template(template).substitute(values), encoding="utf-8")
    readme = README.format(module=module, about=names["about"], version=VERSION)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def _row(episodes: Episodes, task_id: str, module: str) -> dict[str, Any]:
    """A task as a row of theirs: prompt and tools in the form of OpenAI's Responses."""
    facts = episodes.dataset.facts(task_id)
    tools: list[Any] = list(episodes.toolbox(task_id).openai())
    return {
        "responses_create_params": {
            "input": episodes.messages(task_id),
            "tools": [{"type": "function", "strict": False, **one["function"]} for one in tools],
            "parallel_tool_calls": True,
        },
        "task_id": task_id,
        "family": facts.family,
        "level": facts.level,
        "agent_ref": {"type": "responses_api_agents", "name": f"{module}_simple_agent"},
    }
