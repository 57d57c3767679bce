"""Peers, each in an environment of its own. ``make peers`` runs what is here, ``make test`` does not."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import toy_python
from peer_play import ROOT, Peer

from envgen.core.errors import PipelineError
from envgen.core.types import CallRecord
from envgen.environments.hosts import open_dataset
from envgen.pipelines.code import bundle
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
    with prying("touch verifier.json; "), pytest.raises(PipelineError, match="no instance"):
        toy_python.generated(one, folder / "planted", jobs[0])
    with prying():
        assert toy_python.generated(one, folder / "ds", *jobs).tasks == len(jobs)
    return Dataset.open(folder / "ds")


@contextmanager
def prying(first: str = "") -> Iterator[None]:
    """Gold looks around by its shell first, and ruins the repository where it finds a secret.

    So each peer's reward tells whether something secret is within the agent's reach there.
    """

    def calls(gold: bytes) -> tuple[CallRecord, ...]:
        others = bundle_calls(gold)
        return (others[0].model_copy(update={"arguments": {"command": first + LOOK}}), *others)

    bundle_calls = bundle.gold_calls
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "gold_calls", calls)
        yield


SECRET_FILES = ("verifier.json", "gold.patch", "gold.jsonl", "evidence.json", "constraints.json")
TOLD = base64.b64encode(b"test_total_counts").decode()  # or the command would find itself
_NAMED = " -o ".join(f"-name {name}" for name in SECRET_FILES)
LOOK = f"""base64 -d <<< {TOLD} > /tmp/.words
{{ find / -path /proc -prune -o -path /usr -prune -o \\( {_NAMED} \\) -print
  cat /proc/*/environ /proc/*/cmdline | grep -aF -f /tmp/.words
  grep -rslF -f /tmp/.words --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude=.words /
}} 2>/dev/null | grep -q . && rm -rf /work/repo/*; true"""
"""Searches files, environments and command lines for the verifier's files and the name of a hidden test."""
