"""Peers, each in an environment of its own. ``make peers`` runs what is here, ``make test`` does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy_python
from peer_play import ROOT, Peer

from envgen.environments.hosts import open_dataset
from envgen.pipelines.code.prove import Job
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.store.dataset import Dataset

KEPT = ROOT / ".peers"
collect_ignore_glob = [] if os.environ.get("ENVGEN_PEERS") else ["test_*.py"]


@pytest.fixture(scope="session")
def peer() -> Peer:
    """The Python of an environment with these packages, made once."""

    def made(name: str, *packages: str, base: str = sys.executable) -> Path:
        folder, wanted = KEPT / name, "\n".join(packages)
        stamp = folder / "packages.txt"
        python = folder / "bin" / "python"
        if not stamp.is_file() or stamp.read_text() != wanted:
            subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *packages], check=True, timeout=1_200)
            stamp.write_text(wanted)
        return python

    return made


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """One of each family."""
    made = tmp_path_factory.mktemp("general") / "ds"
    generate(
        GenerateConfig(environments=12, tasks_per_environment=2, max_level=3, seed=4),
        made,
        workers=2,
    )
    return {
        "general": Dataset.open(made),
        "search": open_dataset("package:search_questions"),
        "interpreter": open_dataset("package:interpreter_problems"),
        "proof": open_dataset("package:proofs"),
        "code": code_tasks(tmp_path_factory.mktemp("code")),
    }


def code_tasks(folder: Path) -> Dataset:
    """Two tasks of two repositories."""
    one = toy_python.clone(folder / "one")
    notes = {**toy_python.BASE, "NOTES.txt": b"Prices are in cents.\n"}
    two = toy_python.clone(folder / "two", base=notes)
    told = "Cart.total() is wrong as soon as a thing is in the cart more than once."
    names = {"id": "toy__store-8", "repo": "toy/store", "problem_statement": told}
    other = toy_python.instance(two).model_copy(update=names)
    jobs = (Job(toy_python.instance(one), one), Job(other, two))
    assert toy_python.generated(one, folder / "ds", *jobs).tasks == len(jobs)
    return Dataset.open(folder / "ds")
