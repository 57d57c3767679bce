"""A dataset as a package that a peer's own loader takes: ``envgen export ds/ --format verifiers --out pkg/``.

A package holds the dataset and a few lines over envgen's adapter; no peer has a rule of its own.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import NamedTuple

from envgen.core.errors import ConfigError, StoreError
from envgen.core.types import SPLITS
from envgen.core.version import VERSION
from envgen.integrations.harbor import write_harbor
from envgen.integrations.nemo_export import write_nemo
from envgen.integrations.sessions import Episodes
from envgen.store.dataset import Dataset

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "$version"
description = "$about"
requires-python = ">=3.11"
dependencies = [$needs]
$more
[tool.setuptools]
packages = [$packages]

[tool.setuptools.package-data]
$module = ["dataset/**/*"]
"""
VERIFIERS = '''\
"""$about: a taskset of verifiers 0.4."""

from pathlib import Path

from envgen.integrations.verifiers import EnvgenEnv, EnvgenTaskset


class Tasks(EnvgenTaskset):
    """The dataset in this package."""

    DATASET = Path(__file__).parent / "dataset"


__all__ = ["EnvgenEnv", "Tasks"]
'''
TRL = '''\
"""$about, for TRL's GRPOTrainer."""

from functools import partial
from pathlib import Path

from envgen.integrations import trl

load = partial(trl.load, Path(__file__).parent / "dataset")
"""``GRPOTrainer(model=..., **load(split="train", episodes=1000)._asdict())``"""
'''
INSPECT = '''\
"""$about, for Inspect."""

from pathlib import Path

from inspect_ai import Task, task

from envgen.integrations.inspect import make_task


@task
def $module(split: str | None = None, min_level: int = 1, episodes: int | None = None) -> Task:
    """Episodes of the dataset in this package."""
    place = Path(__file__).parent / "dataset"
    return make_task(place, split=split, min_level=min_level, episodes=episodes)
'''
VERL = '''\
"""$about, for verl."""

from pathlib import Path

from envgen.integrations.verl import EnvgenAgentLoop


class AgentLoop(EnvgenAgentLoop):
    """The dataset in this package."""

    DATASET = Path(__file__).parent / "dataset"
'''
VERL_LOOPS = """\
- name: envgen
  _target_: $module.AgentLoop
"""
VERL_ARGUMENTS = (
    "data.train_files=data/train.parquet data.val_files=data/validation.parquet",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=agent_loops.yaml",
    "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=16",
)
OPENENV_APP = '''\
"""$about: an OpenEnv server."""

import os
from pathlib import Path

from envgen.integrations.server import make_app, serve_app

DATASET = Path(__file__).parents[1] / "dataset"
app = make_app(
    DATASET,
    key=os.environ.get("ENV_SERVER_KEY"),
    allow_hosts=("*",),
    max_sessions=int(os.environ.get("MAX_CONCURRENT_ENVS", "64")),
)


def main() -> None:
    """Serve on the port that OpenEnv expects."""
    serve_app(app, port=int(os.environ.get("PORT", "8000")))


if __name__ == "__main__":
    main()
'''
OPENENV_CLIENT = '''\
"""The client: messages are plain dictionaries."""

from openenv import GenericEnvClient as $client

__all__ = ["$client"]
'''
OPENENV_YAML = """\
spec_version: 1
name: $module
version: "$version"
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: [0.0, 1.0]
    oracle_tolerance: 0.0
    floor_margin: 0.5
  resources:
    cpu: 1
    memory_mb: 2048
    disk_mb: 1024
    episode_timeout_s: 600
  capabilities:
    task_api: true
    verifier:
      kind: reward_channel
  types:
    tags: [envgen, tool-use]
"""
DOCKERFILE = """\
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
COPY . /app/$module
RUN pip install --no-cache-dir /app/$module
EXPOSE 8000
CMD ["server"]
"""


class Package(NamedTuple):
    """A peer's form."""

    about: str
    """What it is, in the words of its README."""
    files: Mapping[str, str]
    """Path -> template; ``$module`` in paths, too."""
    needs: tuple[str, ...]
    lines: str
    """What its user types."""
    prefix: str = ""
    """Of the distribution's name."""
    more: str = ""
    """Of pyproject.toml."""
    packages: tuple[str, ...] = ("$module",)


PACKAGES: dict[str, Package] = {
    "verifiers": Package(
        "a taskset of verifiers 0.4, for vf-eval and prime-rl",
        {"$module/__init__.py": VERIFIERS},
        ("envgen-gym[env-server]", "verifiers>=0.4"),
        "pip install -e .\nvf-eval $distribution -m MODEL --client.base-url URL --no-push",
    ),
    "trl": Package(
        "train_dataset, environment_factory and reward_funcs for TRL's GRPOTrainer",
        {"$module/__init__.py": TRL},
        ("envgen-gym", "trl>=1.16"),
        "pip install -e .\npython -c 'from $module import load; print(load(split=\"train\"))'",
    ),
    "verl": Package(
        "Parquet files and an agent loop for verl's trainers",
        {"$module/__init__.py": VERL, "agent_loops.yaml": VERL_LOOPS},
        ("envgen-gym", "verl>=0.9"),
        "pip install -e .\npython -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
        "actor_rollout_ref.model.path=MODEL \\\n    " + " \\\n    ".join(VERL_ARGUMENTS),
    ),
    "inspect": Package(
        "a task of Inspect (inspect_ai), scored by our verifiers",
        {"$module/__init__.py": "", "$module/tasks.py": INSPECT},
        ("envgen-gym", "inspect_ai>=0.3"),
        "pip install -e .\ninspect eval $module/$module --model PROVIDER/MODEL -T split=test",
        more='\n[project.entry-points.inspect_ai]\n$module = "$module.tasks"\n',
    ),
    "openenv": Package(
        "an OpenEnv environment: server, client, Dockerfile, openenv.yaml",
        {
            "$module/__init__.py": "",
            "$module/server/__init__.py": "",
            "$module/server/app.py": OPENENV_APP,
            "$module/client.py": OPENENV_CLIENT,
            "$module/openenv.yaml": OPENENV_YAML,
            "Dockerfile": DOCKERFILE,
        },
        ("envgen-gym[env-server]",),
        "pip install -e . && server\npython -c 'from openenv import GenericEnvClient; "
        'print(GenericEnvClient("http://127.0.0.1:8000").sync().reset(seed=0))\'',
        prefix="openenv-",
        more='\n[project.scripts]\nserver = "$module.server.app:main"\n',
        packages=("$module", "$module.server"),
    ),
}


FORMATS = (*PACKAGES, "harbor", "nemo")
NEED_A_SUBMIT_TOOL = ("trl", "harbor")
"""Peers that read no answer but a tool's."""


def write_package(
    dataset: Dataset,
    out: str | Path,
    format: str,
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write a package with the dataset inside.

    Args:
        dataset: what is exported.
        out: a new folder.
        format: one of ``FORMATS``.
        progress: called with (done, total, what).

    Returns:
        The number of tasks.

    Raises:
        ConfigError: if the form is unknown, or can't hold these tasks.
        StoreError: if the folder is there already, or can't be written.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}", f"one of {', '.join(FORMATS)}")
    out = Path(out)
    if out.exists():
        raise StoreError(f"{str(out)!r} exists already", "choose another folder with --out")
    episodes = Episodes(dataset)
    if format in NEED_A_SUBMIT_TOOL:
        _require_submit_tools(episodes, format)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            folder = Path(scratch) / "package"
            if format == "harbor":
                write_harbor(dataset, episodes, folder, progress)
            elif format == "nemo":
                write_nemo(dataset, episodes, folder, _names(dataset))
            else:
                _write_package(dataset, folder, format, len(episodes))
                if format == "verl":
                    _write_parquet(dataset, episodes, folder / "data")
            folder.rename(out)
    except OSError as error:
        raise StoreError(
            f"can't write {str(out)!r}: {error.strerror}", "choose another folder"
        ) from error
    if progress:
        progress(len(episodes), len(episodes), "")
    return len(episodes)


def _write_package(dataset: Dataset, folder: Path, format: str, tasks: int) -> None:
    package = PACKAGES[format]
    names = _package_names(dataset, package)
    shutil.copytree(dataset.path, folder / names["module"] / "dataset")
    for path, text in {**package.files, "pyproject.toml": PYPROJECT}.items():
        _write(folder / _filled(path, names), _filled(text, names))
    _write(folder / "README.md", _readme(format, package, names, tasks))


def _write_parquet(dataset: Dataset, episodes: Episodes, folder: Path) -> None:
    """Verl's rows, a file for each split; its loop asks the episode for tools and reward."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: dict[str, list[dict[str, object]]] = {}
    for task_id in episodes.task_ids:
        facts = dataset.facts(task_id)
        some = rows.setdefault(facts.split, [])
        some.append(
            {
                "data_source": dataset.manifest.name,
                "agent_name": "envgen",
                "prompt": episodes.messages(task_id),
                "ability": facts.family,
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {
                    "split": facts.split, "index": len(some), "task_id": task_id, "level": facts.level,
                },
            }
        )  # fmt: skip
    folder.mkdir()
    for split in SPLITS:  # a trainer must be given two files, whatever splits there are
        found = rows.get(split) or next(iter(rows.values()))
        pq.write_table(pa.Table.from_pylist(found), folder / f"{split}.parquet")


def _names(dataset: Dataset) -> dict[str, str]:
    """The values that every template may use."""
    name = re.sub(r"[^a-z0-9]+", "-", dataset.manifest.name.lower()).strip("-") or "tasks"
    if not name[0].isalpha():
        name = f"tasks-{name}"
    n = len(dataset.tasks)
    return {
        "module": f"{name.replace('-', '_')}_env",
        "about": f"{n} proven task{'s' * (n != 1)} of the envgen dataset {dataset.manifest.name}",
        "client": "".join(word.capitalize() for word in name.split("-")) + "Env",
    }


def _package_names(dataset: Dataset, package: Package) -> dict[str, str]:
    """What the templates of a Python package are filled with."""
    names = _names(dataset)
    names |= {
        "distribution": f"{package.prefix}{names['module'].replace('_', '-')}",
        "version": "0.1.0",
        "needs": ", ".join(json.dumps(one) for one in package.needs),
    }
    names["packages"] = ", ".join(json.dumps(_filled(one, names)) for one in package.packages)
    names["more"] = _filled(package.more, names)
    return names


def _filled(text: str, names: Mapping[str, str]) -> str:
    return Template(text).substitute(names)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _readme(format: str, package: Package, names: Mapping[str, str], tasks: int) -> str:
    lines = _filled(package.lines, names)
    front = ""
    if format == "openenv":  # what a Space of the Hub reads
        front = (
            f"---\ntitle: {names['client']}\nsdk: docker\napp_port: 8000\n"
            "tags:\n  - openenv\n---\n\n"
        )
    return (
        f"{front}# {names['distribution']}\n\n{names['about']}, as {package.about}. "
        f"Made by envgen {VERSION}.\n\n```text\n{lines}\n```\n\n"
        "The dataset in here holds solutions and verifiers: it belongs on the machine that serves or loads "
        "the tasks, and not where an agent has a shell.\n"
    )


def _require_submit_tools(episodes: Episodes, format: str) -> None:
    for task_id in episodes.task_ids:
        if episodes.toolbox(task_id).submit is None:
            raise ConfigError(
                f"task {task_id!r} takes plain text for an answer, which {format} never sees",
                "leave it out with `envgen filter`, or take another format",
            )
