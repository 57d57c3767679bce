"""Environments that language models made, word for word as they made them (``docs/models.md``).

One fresh model a conversation, given its requests and nothing else. ``seeds.json`` says how categories were
drawn, before any reply was seen, and what came of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from said_again import said

from envgen.core.types import GateStatus
from envgen.pipelines.author.config import AuthorConfig
from envgen.pipelines.author.generate import chosen, generate_authored
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.domains import WRITTEN, page
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.generate import GenerateConfig
from envgen.pipelines.general.rehearse import rehearse
from envgen.pipelines.packed.folder import read_folder
from envgen.pipelines.packed.gates import GATES
from envgen.pipelines.packed.pack import proofs
from envgen.store.dataset import Dataset

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "authored"
AGAIN = "food-bank-distribution"
"""The category whose packaged page is exactly the one that its author wrote."""


@pytest.mark.slow
def test_a_recorded_author_gives_its_page_and_its_dataset_again(tmp_path: Path) -> None:
    config = AuthorConfig(
        **{role: said(DATA / AGAIN / f"{role}.jsonl", tmp_path) for role in ("author", "reviewer")}
    )
    making = GenerateConfig(environments=1, tasks_per_environment=1)
    out = tmp_path / "ds"
    found = generate_authored(config, making, chosen(config, (AGAIN,), 0), out, check=False)
    assert (found.kept, found.tasks) == (1, 1)
    written = read_page((tmp_path / "ds.pages" / f"{AGAIN}.toml").read_text("utf-8"))
    assert written == page(AGAIN)
    dataset = Dataset.open(out)
    assert {dataset.facts(name).level for name in dataset.tasks} == {1}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recorded_authors_give_their_environment_in_code_again(tmp_path: Path) -> None:
    """Builder, reader, checker and solver, all gates twice: what is handed in, and what is packed of it."""
    name = "time-bank-exchange"
    roles = {role: f"replay:{DATA / name / role}.jsonl" for role in ("author", "reviewer")}
    config = AuthorConfig(**roles, form="code")
    making = GenerateConfig(environments=1, tasks_per_environment=1)
    out = tmp_path / "ds"
    found = generate_authored(config, making, chosen(config, (name,), 0), out, check=False)
    assert (found.kept, found.tasks) == (1, 1)
    dataset, handed = Dataset.open(out), read_folder(tmp_path / "ds.pages" / name)
    (task,) = dataset.tasks.values()
    assert (task.prompt, [one.id for one in handed.tasks]) == (handed.tasks[0].prompt, [task.id])
    passed = {one.gate for one in task.evidence if one.status is GateStatus.PASSED}
    assert passed >= {"gold", "probes", "attacks", "reseeds", "mutants", "restricted", "tools"}


@pytest.mark.bwrap
def test_the_environment_in_code_that_models_wrote_stands_before_the_gates() -> None:
    """All of them but the faults planted in its verifier and the tools' random calls, which take minutes."""
    folder = read_folder(ROOT / "examples" / "snagging_lists")
    slow = ("mutants", "tools", "reseeds", "attacks")
    found = proofs(folder, only=[name for name in GATES if name not in slow])["main"]
    ran = {one.gate: one.status for one in found if one.gate in GATES}
    assert {name for name, status in ran.items() if status is GateStatus.FAILED} == set()
    passed = {name for name, status in ran.items() if status is GateStatus.PASSED}
    assert passed >= {"restricted", "gold", "empty", "guesses", "probes"}


@pytest.mark.parametrize("name", WRITTEN)
def test_pages_that_models_wrote_are_pages_of_the_package(name: str) -> None:
    assert page(name).max_level >= 5
    assert GenerateConfig(categories=(name.replace("-", "_"),)).sources == [(name, "")]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN[::2])
def test_they_are_proven_as_any_page_is(name: str) -> None:
    assert len(list(rehearse(page(name)))) >= 5
    author, reasons = ProceduralAuthor(), []
    with Hosts(trusted=True) as hosts:
        for seed in range(3):
            draft = author.draft(DraftRequest(domain=name, page="", level=3), seed)
            assert isinstance(draft, Draft), draft
            proof = prove(draft, hosts, author=author)
            if proof.passed:
                return
            reasons.append(failure(proof.evidence))
    pytest.fail(f"no draft was proven: {reasons}")
