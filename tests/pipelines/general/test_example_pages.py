"""The pages in ``examples/pages``, which ``docs/domains.md`` teaches from: each level passes every gate."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from cli_runs import ROOT

from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.perturb import perturbed
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts

PAGES = {
    path.stem: path
    for path in sorted((ROOT / "examples/pages").glob("*.toml"))
    if not path.name.endswith(".lexicon.toml")
}
TAUGHT = [pytest.param("greenhouse", n, marks=pytest.mark.slow) for n in range(1, 6)]
"""`make readme` proves these too, from the page on domains."""
LEVELS = [*TAUGHT, ("seedbank", 7), ("seedbank", 8)]


def test_there_are_pages() -> None:
    assert list(PAGES) == ["greenhouse", "seedbank", "warehouse"]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_every_level_of_a_page_is_proven(name: str, level: int) -> None:
    domain = page_file(PAGES[name])
    assert tasks_from(domain.text).domain == domain
    author = ProceduralAuthor()
    request = DraftRequest(domain=domain.id, page=domain.text, level=level)
    reasons = []
    with Hosts(trusted=True) as hosts:
        for seed in range(3):  # the gates may refuse a draft; generation then tries the next
            draft = author.draft(request, seed)
            assert isinstance(draft, Draft), draft
            proof = prove(draft, hosts, author=author)
            if proof.passed:
                return
            reasons.append(failure(proof.evidence))
    pytest.fail(f"no draft of level {level} was proven: {reasons}")


@pytest.mark.parametrize("page", [PAGES[name] for name in ("greenhouse", "seedbank", "warehouse")])
def test_rows_are_perturbed_within_their_types(page: Path) -> None:
    """Of each level: a number at the bound of a rule belongs in no column of references or texts."""
    tasks, kinds = tasks_from(page_file(page).text), {"int": int, "minutes": int, "bool": bool}
    for task in tasks.rehearsed():
        for seed in range(20):
            tables = perturbed(task.problem, task.tables, Random(seed))
            for relation in task.problem.relations:
                for row in tables[relation.name].values():
                    for column in relation.columns:
                        assert type(row[column.name]) is kinds.get(column.type, str)
