"""A bound that gives way where no answer keeps all rules, on a small page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from planted_faults import Fault
from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import NEAREST, Problem
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.authoring.tasks import Tasks, tasks_from
from envgen.pipelines.general.difficulty.facts import facts
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import (
    Draft,
    DraftRequest,
    Proof,
    as_read,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.gates import execution, meaning, soundness
from envgen.pipelines.general.gates.prove import gates_of, prove
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.pipelines.general.semantics.rewrite import hidden, strict
from envgen.pipelines.general.space.answers import count
from envgen.pipelines.general.space.build import bare_model
from envgen.pipelines.general.stored import StoredComparison
from envgen.pipelines.general.words.frames import FRAMES
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

PAGE = page_file(Path(__file__).parents[2] / "data/pages/depot.toml")


@cache
def drafts() -> dict[bool, Draft]:
    """A draft of level 2 in which some answer keeps all rules, and one in which none does."""
    found: dict[bool, Draft] = {}
    for seed in range(60):
        draft = ProceduralAuthor().draft(
            DraftRequest(domain=PAGE.id, page=PAGE.text, level=2), seed
        )
        assert isinstance(draft, Draft)
        assert problem_of(draft).giving_way is not None
        found.setdefault(problem_of(draft).feasible, draft)
        if len(found) == 2:
            return found
    raise AssertionError("60 drafts are all of one kind")


def problem_of(draft: Draft) -> Problem:
    assert draft.problem is not None
    return draft.problem


def every_answer(draft: Draft) -> Iterator[JsonValue]:
    model = bare_model(problem_of(draft), draft.tables)
    return (model.answer(values) for values in product(*model.domains))


def fees(draft: Draft, answer: Any) -> int:
    """What the depot's last rule bounds, added up by hand."""
    own = (draft.tables["bays"][crate["bay"]]["fee"] for crate in answer.values())
    return sum(fee for fee in own if isinstance(fee, int))


def test_where_no_answer_keeps_all_rules_the_nearest_to_the_last_is_right() -> None:
    draft = drafts()[False]
    problem = problem_of(draft)
    others = strict(problem).without("fees")
    kept = [answer for answer in every_answer(draft) if accepted(others, draft.tables, answer)]
    assert kept
    least = min(fees(draft, answer) for answer in kept)
    assert least > int(problem.params["fees"])  # type: ignore[arg-type]
    assert problem.params[NEAREST] == least
    for answer in every_answer(draft):
        right = answer in kept and fees(draft, answer) == least
        assert accepted(problem, draft.tables, answer) is right
    assert count(strict(problem), draft.tables) == (0, 0, True)


def test_where_some_answer_keeps_all_rules_none_may_break_the_last() -> None:
    draft = drafts()[True]
    problem = problem_of(draft)
    right = [answer for answer in every_answer(draft) if accepted(problem, draft.tables, answer)]
    assert right
    for answer in every_answer(draft):
        held = evaluate(strict(problem), draft.tables, answer)
        assert (answer in right) is all(held.values())


def test_tasks_of_both_kinds_look_the_same() -> None:
    """Nothing that an agent, or the solution, is told depends on whether an answer keeps all rules."""
    yes, no = drafts()[True], drafts()[False]
    assert yes.submit_schema == no.submit_schema
    assert FRAMES["way"][0] in yes.prompt
    assert FRAMES["way"][0] in no.prompt
    assert yes.tools == no.tools
    params, others = problem_of(yes).params, problem_of(no).params
    told = {name: others[name] for name in others if name not in hidden(problem_of(no))}
    assert replace_params(yes.solution, told) == no.solution
    assert replace_params(yes.verifier, others) == no.verifier
    text = yes.prompt
    for name, value in params.items():  # the constants of the one in the words of the other
        text = text.replace(str(value), f"<{name}>")
    for name in params:
        text = text.replace(f"<{name}>", str(others[name]))
    assert text == no.prompt


def test_a_share_of_tasks_is_such_and_drawn_anew_with_each_reseed() -> None:
    tasks, start, rand = tasks_from(PAGE.text), drafts()[True], Random(0)
    drawn = [tasks._feasible(problem_of(start), rand) for _ in range(2_000)]
    assert 0.13 <= drawn.count(False) / 2_000 <= 0.17
    kinds = set[bool]()
    for seed in range(12):  # seed 1 draws one in which a rule gives way
        again = tasks.reseeded(problem_of(start), Random(seed))
        assert again is not None
        assert again.problem.feasible is tasks._feasible(problem_of(start), Random(seed))
        assert count(strict(again.problem), again.tables).low > 0 or not again.problem.feasible
        kinds.add(again.problem.feasible)
    assert kinds == {True, False}


# --- gates ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(backend="process", trusted=True) as started:
        yield started


@pytest.fixture
def run(hosts: Hosts, tmp_path: Path) -> Any:
    """Run one gate over one draft."""
    trials: list[Trial] = []

    def gate_result(gate: Any, draft: Draft) -> GateResult:
        folder = tmp_path / str(len(trials))
        folder.mkdir()
        trials.append(Trial(draft, hosts, folder, ProceduralAuthor(), seed=1))
        with closing(trials[-1]) as trial:
            result: GateResult = gate(trial)
            return result

    return gate_result


@cache
def proof_of(feasible: bool) -> Proof:
    with Hosts(backend="process", trusted=True) as started:
        return prove(drafts()[feasible], started, author=ProceduralAuthor())


@pytest.mark.parametrize("feasible", [True, False])
def test_both_kinds_pass_every_gate(feasible: bool) -> None:
    draft, proof = drafts()[feasible], proof_of(feasible)
    assert failure(proof.evidence) is None
    assert [one.gate for one in proof.evidence] == [name for name, _ in gates_of(draft.problem)]
    found = {one.gate: one for one in proof.evidence}
    assert proof.gold is not None
    assert found["certified"].status is GateStatus.PASSED
    assert found["certified"].n == (1 if feasible else 2)
    assert proof.density is not None
    right = [one for one in every_answer(draft) if accepted(problem_of(draft), draft.tables, one)]
    assert proof.density.value == pytest.approx(len(right) / len(list(every_answer(draft))))


def test_what_is_stored_of_the_certificate_is_compared(hosts: Hosts, tmp_path: Path) -> None:
    draft, proof = drafts()[False], proof_of(False)
    writer = DatasetWriter(tmp_path / "ds", name="twins", compiled=True)
    writer.add_environment(environment_bundle(draft))
    writer.add_task(task_bundle(draft, proof))
    writer.finish(funnel={})

    def compared() -> GateResult:
        dataset = Dataset.open(tmp_path / "ds", unproven=True, trust=True)
        stored = draft_of(dataset, draft.task_id)
        assert stored is not None
        return StoredComparison(dataset, stored, proof, hosts, 0, "")._stored()

    assert compared().status is GateStatus.PASSED
    Fault("a lie", "twins", "evidence.json", r'"answers": ?\d+', '"answers":99').plant(
        tmp_path / "ds"
    )
    assert "evidence of certified" in compared().reason


@pytest.mark.parametrize("by", [-1, 1, 10_000])
def test_a_nearest_that_is_none_is_caught(by: int, run: Any) -> None:
    draft = drafts()[False]
    problem = problem_of(draft)
    params = {**problem.params, NEAREST: int(problem.params[NEAREST]) + by}  # type: ignore[arg-type]
    changed = as_read(problem.model_copy(update={"params": params}))
    assert run(meaning.certified, replace(draft, problem=changed)).status is GateStatus.FAILED


def test_a_bound_that_gives_way_though_an_answer_keeps_it_is_caught(run: Any) -> None:
    draft = drafts()[True]
    problem = problem_of(draft)
    params = {**problem.params, NEAREST: int(problem.params["fees"]) + 5}  # type: ignore[arg-type]
    changed = as_read(problem.model_copy(update={"params": params}))
    assert run(meaning.certified, replace(draft, problem=changed)).status is GateStatus.FAILED


def test_a_bound_that_nothing_keeps_and_that_does_not_give_way_is_caught(run: Any) -> None:
    draft = drafts()[False]
    problem = problem_of(draft)
    params = {**problem.params, NEAREST: problem.params["fees"]}
    changed = as_read(problem.model_copy(update={"params": params}))
    result = run(meaning.certified, replace(draft, problem=changed))
    assert result.status is GateStatus.FAILED
    assert "no answer keeps all rules" in result.reason


def test_a_verifier_that_takes_what_misses_the_bound_by_more_is_caught(run: Any) -> None:
    draft = drafts()[False]
    nearest = int(problem_of(draft).params[NEAREST])  # type: ignore[arg-type]
    loose = draft.verifier.replace(f'"{NEAREST}": {nearest}', f'"{NEAREST}": {nearest + 40}')
    assert loose != draft.verifier
    assert run(soundness.near_misses, replace(draft, verifier=loose)).status is GateStatus.FAILED
    assert run(meaning.stated, replace(draft, verifier=loose)).status is GateStatus.FAILED


def test_a_solution_that_knows_the_nearest_is_caught(run: Any) -> None:
    draft = drafts()[False]
    nearest = problem_of(draft).params[NEAREST]
    changed = draft.solution.replace("PARAMS = {", f'PARAMS = {{"{NEAREST}": {nearest}, ', 1)
    result = run(meaning.stated, replace(draft, solution=changed))
    assert result.status is GateStatus.FAILED
    assert f"{NEAREST} of the solution" in result.reason


def test_a_prompt_that_does_not_say_which_rule_gives_way_is_caught(run: Any) -> None:
    draft = drafts()[True]
    broken = replace(draft, prompt=draft.prompt.replace(f"\n{FRAMES['way'][0]}\n", ""))
    assert broken.prompt != draft.prompt
    assert run(meaning.stated, broken).status is GateStatus.FAILED


def test_a_solution_that_gives_up_where_a_rule_must_give_way_is_caught(run: Any) -> None:
    draft = drafts()[False]
    early = draft.solution.replace("BOUNDS[-1] = (BOUNDS[-1][0], LARGE)", "return None", 1)
    assert early != draft.solution
    assert run(execution.gold, replace(draft, solution=early)).status is GateStatus.FAILED


# --- difficulty ----------------------------------------------------------------------------------


def test_that_nothing_is_nearer_rests_on_every_cell_of_what_rules_read(
    hosts: Hosts, tmp_path: Path
) -> None:
    """Whatever the other cells hold, the same answer is right."""
    draft = drafts()[False]
    problem = problem_of(draft)
    with closing(Trial(draft, hosts, tmp_path, None, seed=1)) as trial:
        found, gold = facts(problem, draft.tables, trial.gold), trial.gold.answer
    assert {(name, column) for name, _, column in found} >= {("bays", "fee"), ("bays", "load")}
    assert not any(column == "doors" for _, _, column in found)  # what no rule reads
    rand = Random(1)
    for _ in range(20):
        tables = {
            relation: {
                key: {
                    column: value
                    if (relation, key, column) in found or isinstance(value, str)
                    else (not value if isinstance(value, bool) else rand.randint(0, 99))
                    for column, value in row.items()
                }
                for key, row in rows.items()
            }
            for relation, rows in draft.tables.items()
        }
        assert accepted(problem, tables, gold)


# --- pages ---------------------------------------------------------------------------------------


def _page(old: str, new: str) -> str:
    text = (Path(__file__).parents[2] / "data/pages/depot.toml").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('asks = "rank"', 'asks = "rank"\ntwins = true', "more than rules"),
        ('fees = "edge(best=2)"', 'fees = "edge(share=5)"', "no rule bounds a sum at the k-th best"),
        ("fees", NEAREST, "a rule that gives way"),
    ],
)  # fmt: skip
def test_pages_that_can_let_no_rule_give_way_are_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "depot.toml"
    path.write_text(_page(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Tasks(page_file(path))


def test_without_a_bounded_sum_no_rule_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "depot.toml"
    text = _page('asks = "carries dry apart fees"', 'asks = "carries dry apart"')
    text = text.replace("grow = true }", 'add = "fees" }')
    path.write_text(text, encoding="utf-8")
    page = page_file(path)
    author = ProceduralAuthor()
    kinds = []
    for level in (2, 3):
        draft = author.draft(DraftRequest(domain=page.id, page=page.text, level=level), 0)
        assert isinstance(draft, Draft)
        kinds.append(problem_of(draft).giving_way is not None)
        assert (FRAMES["way"][0] in draft.prompt) is kinds[-1]
    assert kinds == [False, True]
