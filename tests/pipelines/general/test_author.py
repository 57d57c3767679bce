"""The procedural author: deterministic drafts, hardening with lineage, re-seeds, siblings."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from drafts import drafted
from pydantic import TypeAdapter

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError
from envgen.core.seeding import rng
from envgen.core.types import Id
from envgen.pipelines.general import author
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.domains import DOMAINS, load_tasks, page_file
from envgen.pipelines.general.draft import Author, Draft, DraftRequest, NoDraft
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.space.answers import solve

ROOT = Path(__file__).parents[3]
AUTHOR = ProceduralAuthor()


def fingerprint(draft: Draft) -> str:
    assert draft.problem is not None
    return content_hash(
        [
            draft.environment_id,
            draft.task_id,
            draft.prompt,
            draft.solution,
            draft.verifier,
            draft.tools_source,
            draft.problem.model_dump(mode="json"),
            draft.submit_schema,
            [rule.model_dump(mode="json") for rule in draft.rules],
            [[name, *map(list, rows.values())] for name, rows in draft.tables.items()],
            [step.model_dump(mode="json") for step in draft.lineage],
        ]
    )


PRINT = """
import sys
sys.path[:0] = ["tests/pipelines/general", "tests/helpers"]
from test_author import drafts_of_every_domain
print(drafts_of_every_domain(int(sys.argv[1])))
"""


def drafts_of_every_domain(level: int) -> list[str]:
    drafts = [AUTHOR.draft(DraftRequest(domain=one, level=level), 12) for one in DOMAINS]
    page = page_file(ROOT / "tests/data/pages/cranes.toml")
    hire = AUTHOR.draft(DraftRequest(domain=page.id, page=page.text, level=3), 0)
    assert isinstance(hire, Draft)  # its tuner looks for several rules that no single change breaks
    return [fingerprint(one) for one in (*drafts, hire) if isinstance(one, Draft)]


@pytest.mark.parametrize("level", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_drafts_do_not_depend_on_the_hash_seed(level: int) -> None:
    sentences = set()
    for hash_seed in ("0", "17"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        found = subprocess.run(
            [sys.executable, "-P", "-c", PRINT, str(level)],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        sentences.add(found.stdout.strip())
    assert len(sentences) == 1
    assert len(ast.literal_eval(sentences.pop())) == len(DOMAINS) + 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("level", range(1, 11))
def test_every_level_drafts_solvable_tasks(level: int, seed: int) -> None:
    draft = drafted(level, seed)
    assert draft.problem is not None
    assert draft.level == level
    answers = list(islice(solve(draft.problem, draft.tables, rng(seed)), 1))
    assert answers
    assert all(evaluate(draft.problem, draft.tables, answers[0]).values())


def test_ids_are_ids_and_reveal_nothing() -> None:
    found = [drafted(level, seed) for level in (1, 2, 3) for seed in range(3)]
    for draft in found:
        for name in (draft.environment_id, draft.task_id, draft.category):
            TypeAdapter(Id).validate_python(name)
        assert re.fullmatch(r"trip-planning-[0-9a-f]{12}", draft.environment_id)
        assert re.fullmatch(r"t-[0-9a-f]{16}", draft.task_id)
    assert len({draft.task_id for draft in found}) == len(found)


@pytest.mark.parametrize("level", [1, 2, 5, 8, 10])
def test_lineage_names_each_step(level: int) -> None:
    draft = drafted(level, 0)
    assert len(draft.lineage) == level - 1
    for start, step in enumerate(draft.lineage, 1):
        assert step.operator in {op.name for op in load_tasks("trip").blueprint.operators(start)}
        assert step.density is not None
        assert 0 <= step.density.low <= step.density.high <= 1
    assert draft.problem is not None
    if draft.lineage:
        assert draft.lineage[-1].problem_id == draft.problem.id


@pytest.mark.parametrize("level", [1, 4, 7])
def test_a_draft_is_on_the_way_to_the_next_level(level: int) -> None:
    """The words are drawn last, so only the last problem's id, which they belong to, differs."""
    before, own = drafted(level + 1, 0).lineage[:-1], drafted(level, 0).lineage
    assert before[:-1] == own[:-1]
    known = {"problem_id": ""}
    assert [s.model_copy(update=known) for s in before] == [s.model_copy(update=known) for s in own]


@pytest.mark.parametrize(
    "level", [1, 2, 3, 4, 5, 6, 8, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 9, 10))]
)
def test_reseeds_change_rows_and_the_params_line_only(level: int) -> None:
    draft = drafted(level, 0)
    again = AUTHOR.reseed(draft, 99)
    assert again is not None
    assert again.tables != draft.tables
    assert again.environment_id != draft.environment_id
    assert (again.tools, again.tools_source) == (draft.tools, draft.tools_source)
    for name in ("solution", "verifier"):
        before, after = (
            re.sub(r"(?m)^PARAMS = .*$", "", getattr(one, name)) for one in (draft, again)
        )
        assert before == after
    assert AUTHOR.reseed(draft, 99) == again


@pytest.mark.parametrize("level", [1, 3, 5, 6, 8])
def test_siblings_live_in_the_same_environment(level: int) -> None:
    draft = drafted(level, 0)
    found = [AUTHOR.sibling(draft, seed) for seed in range(4)]
    siblings = [one for one in found if isinstance(one, Draft)]
    assert siblings
    for one in siblings:
        assert one.environment_id == draft.environment_id
        assert one.tables == draft.tables
    assert {one.prompt for one in siblings} - {draft.prompt}


@pytest.mark.parametrize("level", [5, 6, 7, 8])
def test_orders_are_drawn_such_that_there_are_siblings(level: int) -> None:
    """Two tasks were asked for and one was made, at each of these levels."""

    def has_sibling(seed: int) -> bool:
        draft = drafted(level, seed, "orders")
        siblings = (AUTHOR.sibling(draft, i) for i in range(8))
        return any(isinstance(one, Draft) and one.prompt != draft.prompt for one in siblings)

    assert len([*islice(filter(has_sibling, range(5)), 2)]) == 2  # no third is drawn after two


def test_drafts_of_other_authors_are_left_alone() -> None:
    foreign = replace(drafted(1, 0), blueprint=None, problem=None)
    assert AUTHOR.recompiled(foreign) is None
    assert AUTHOR.reseed(foreign, 1) is None
    assert isinstance(AUTHOR.sibling(foreign, 1), NoDraft)


def test_unknown_domains_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        AUTHOR.draft(DraftRequest(domain="nowhere", level=1), 0)
    assert "trip" in caught.value.hint


def test_it_is_an_author() -> None:
    author: Author = AUTHOR
    assert author.name == "procedural"


def test_a_step_that_makes_a_task_easier_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a single draw, the last step raises this ladder's density ten million times."""
    request = DraftRequest(domain="orders", level=7)

    def last_step() -> bool:
        draft = ProceduralAuthor().draft(request, 0)
        assert isinstance(draft, Draft)
        before, after = (step.density for step in draft.lineage[-2:])
        assert before is not None
        assert after is not None
        return after.low > before.high

    assert not last_step()
    monkeypatch.setattr(author, "_HARDER_TRIES", 1)
    assert last_step()
