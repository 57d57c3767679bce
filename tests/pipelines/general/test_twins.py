"""Infeasible twins, on a small page: the claim, the conflict, the gates, and what is made of them."""

from __future__ import annotations

import json
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

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.core.schema import Validator
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.authoring.tasks import Tasks, tasks_from
from envgen.pipelines.general.difficulty.facts import facts
from envgen.pipelines.general.difficulty.measure import shortcuts
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import (
    Draft,
    DraftRequest,
    Proof,
    as_read,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.gates import execution, infeasible, meaning, mutation, soundness
from envgen.pipelines.general.gates.prove import gates_of, prove
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.programs.verifier_source import verifier_params
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.pipelines.general.semantics.layout import CLAIM, is_claim
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.build import bare_model, build_model
from envgen.pipelines.general.space.conflicts import conflict, empty
from envgen.pipelines.general.space.near_misses import near_misses
from envgen.pipelines.general.stored import StoredComparison
from envgen.pipelines.general.words.frames import FRAMES
from envgen.policies.answers import template
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CLAIM_NOTE = FRAMES["claim"][0].replace("{claim}", json.dumps(CLAIM))
PAGE = page_file(Path(__file__).parents[2] / "data/pages/depot.toml")


@cache
def drafts() -> dict[bool, Draft]:
    """A draft of level 2 with an answer, and one without."""
    found: dict[bool, Draft] = {}
    for seed in range(60):
        draft = ProceduralAuthor().draft(
            DraftRequest(domain=PAGE.id, page=PAGE.text, level=2), seed
        )
        assert isinstance(draft, Draft)
        assert problem_of(draft).feasible is not None
        found.setdefault(problem_of(draft).feasible is True, draft)
        if len(found) == 2:
            return found
    raise AssertionError("60 drafts are all of one kind")


def problem_of(draft: Draft) -> Problem:
    assert draft.problem is not None
    return draft.problem


def every_answer(draft: Draft) -> Iterator[JsonValue]:
    model = bare_model(problem_of(draft), draft.tables)
    return (model.answer(values) for values in product(*model.domains))


def test_no_answer_of_a_twin_keeps_all_rules_and_the_claim_is_right() -> None:
    draft = drafts()[False]
    problem = problem_of(draft)
    answers = list(every_answer(draft))
    assert len(answers) > 100
    assert not any(accepted(problem, draft.tables, answer) for answer in answers)
    assert accepted(problem, draft.tables, CLAIM)
    assert list(solve(problem, draft.tables, Random(0))) == [CLAIM]
    assert count(problem, draft.tables) == (0, 0, True)


def test_the_claim_is_wrong_of_a_task_with_answers() -> None:
    draft = drafts()[True]
    problem = problem_of(draft)
    right = [answer for answer in every_answer(draft) if accepted(problem, draft.tables, answer)]
    assert right
    held = evaluate(problem, draft.tables, CLAIM)
    assert [rule for rule, kept in held.items() if not kept] == ["feasible"]
    found = list(near_misses(problem, draft.tables, right[0], Random(0)))
    assert (CLAIM, "feasible") in found


@pytest.mark.parametrize(
    "answer", [{"infeasible": 1}, {"infeasible": False}, {"infeasible": True, "x": 0}, [CLAIM], {}, None]
)  # fmt: skip
def test_what_looks_like_the_claim_is_none(answer: JsonValue) -> None:
    draft = drafts()[False]
    assert not is_claim(answer)
    assert not accepted(problem_of(draft), draft.tables, answer)
    assert Validator(draft.submit_schema).fault(answer) is not None


def test_where_the_claim_is_not_offered_it_is_no_answer() -> None:
    draft = drafts()[False]
    plain = problem_of(draft).model_copy(update={"feasible": None})
    assert not any(evaluate(plain, draft.tables, CLAIM).values())


def test_feasible_and_infeasible_tasks_look_the_same() -> None:
    yes, no = drafts()[True], drafts()[False]
    assert yes.submit_schema == no.submit_schema
    assert CLAIM_NOTE in yes.prompt
    assert CLAIM_NOTE in no.prompt
    assert yes.tools == no.tools
    params, others = problem_of(yes).params, problem_of(no).params
    assert replace_params(yes.solution, others) == no.solution
    assert replace_params(yes.verifier, verifier_params(problem_of(no))) == no.verifier
    text = yes.prompt
    for name, value in params.items():  # the constants of the one in the words of the other
        text = text.replace(str(value), f"<{name}>")
    for name in params:
        text = text.replace(f"<{name}>", str(others[name]))
    assert text == no.prompt


def test_only_the_verifier_knows_whether_there_is_an_answer() -> None:
    """Turning the flag changes the verifier's PARAMS, the ids and the constraints, and no other part."""
    author, draft = ProceduralAuthor(), drafts()[False]
    flipped = as_read(problem_of(draft).model_copy(update={"feasible": True}))
    again = author.recompiled(replace(draft, problem=flipped))
    same = author.recompiled(draft)
    assert again is not None
    assert same is not None
    names = [name for name in vars(same) if getattr(same, name) != getattr(again, name)]
    assert sorted(names) == ["problem", "task_id", "verifier"]
    assert again.verifier == same.verifier.replace('"feasible": False', '"feasible": True')


def test_problems_without_twins_are_stored_as_before() -> None:
    problem = problem_of(drafts()[True]).model_copy(update={"feasible": None})
    assert "feasible" not in problem.model_dump(mode="json")
    assert "feasible" in problem_of(drafts()[True]).model_dump(mode="json")


def test_dropping_any_rule_of_the_conflict_leaves_an_answer() -> None:
    draft = drafts()[False]
    problem = problem_of(draft)
    found = conflict(problem, draft.tables)
    assert found is not None
    assert len(found.rules) >= 3
    for rule, witness in found.witnesses.items():
        without = problem.without(rule).model_copy(update={"feasible": True})
        assert accepted(without, draft.tables, witness)
        held = evaluate(problem, draft.tables, witness)
        assert [name for name, kept in held.items() if not kept] == [rule]
    members = tuple(clause for clause in problem.clauses if clause.id in found.rules)
    alone = problem.model_copy(update={"clauses": members, "feasible": None})
    assert not any(accepted(alone, draft.tables, answer) for answer in every_answer(draft))


def test_a_task_with_answers_has_no_conflict_and_is_not_empty() -> None:
    draft = drafts()[True]
    problem = problem_of(draft)
    assert conflict(problem, draft.tables) is None
    assert not empty(build_model(problem, draft.tables))


def test_a_share_of_tasks_has_no_answer() -> None:
    """Drafts, siblings and re-seeds draw it alike, and get what they draw."""
    tasks, start = tasks_from(PAGE.text), drafts()[True]
    rand = Random(0)
    drawn = [tasks._feasible(problem_of(start), rand) for _ in range(2_000)]
    assert 0.13 <= drawn.count(False) / 2_000 <= 0.17
    for seed in range(12):  # seed 1 draws a task without an answer
        again = tasks.reseeded(problem_of(start), Random(seed))
        assert again is not None
        assert again.problem.feasible is tasks._feasible(problem_of(start), Random(seed))
    siblings = [tasks.sibling(problem_of(start), start.tables, Random(i)) for i in range(40)]
    assert {sibling.feasible for sibling in siblings if sibling is not None} == {True, False}


def test_twins_of_twins_are_drawn_anew() -> None:
    author, parent = ProceduralAuthor(), drafts()[False]
    children = [author.reseed(parent, seed) for seed in range(12)]
    kinds = {problem_of(child).feasible for child in children if child is not None}
    assert True in kinds
    for child in children:
        assert child is not None
        right = problem_of(child).feasible is False
        assert f'"feasible": {not right}' in child.verifier
        assert accepted(problem_of(child), child.tables, CLAIM) is right


def test_simple_policies_fill_the_ordinary_form() -> None:
    blank, leaves = template(drafts()[True].submit_schema)
    assert blank == {"crate_1": {"bay": None}, "crate_2": {"bay": None}}
    assert [leaf.source for leaf in leaves] == ["bays.name", "bays.name"]


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
    assert is_claim(proof.gold.answer) is not feasible
    assert found["infeasible"].status is (
        GateStatus.NOT_APPLICABLE if feasible else GateStatus.PASSED
    )
    if feasible:
        assert "feasible" in dumps(found["near_misses"].details["per_clause"])
        return
    members = found["infeasible"].details["conflict"]
    assert isinstance(members, list)
    assert found["infeasible"].n == 1 + len(members)
    assert found["binding"].n == len(members)
    assert {probe.clause for probe in proof.probes} - {None} == set(members)
    assert proof.density is not None
    size = len(list(every_answer(draft)))
    assert proof.density.value == pytest.approx(1 / (size + 1))
    assert proof.density.space == size + 1


@pytest.mark.parametrize(
    ("file", "pattern", "by", "message"),
    [
        ("evidence.json", r'"conflict": ?\[\s*"\w+",', '"conflict":[', "evidence of infeasible"),
        ("evidence.json", r'"count": ?0', '"count":1', "evidence of infeasible"),
        ("probes.jsonl", r'"clause": ?"fees"', '"clause":"dry"', "probes"),
    ],
)  # fmt: skip
def test_what_is_stored_of_a_twin_is_compared(
    file: str, pattern: str, by: str, message: str, hosts: Hosts, tmp_path: Path
) -> None:
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
    Fault("a lie", "twins", file, pattern, by).plant(tmp_path / "ds")
    result = compared()
    assert result.status is GateStatus.FAILED
    assert message in result.reason


def test_the_gate_infeasible_catches_a_twin_that_has_an_answer(run: Any) -> None:
    draft = drafts()[True]
    flipped = as_read(problem_of(draft).model_copy(update={"feasible": False}))
    result = run(infeasible.infeasible, replace(draft, problem=flipped))
    assert result.status is GateStatus.FAILED
    assert "an answer keeps all rules" in result.reason


def test_the_gate_infeasible_catches_a_conflict_of_one_rule(run: Any) -> None:
    """A bound that nothing can meet whatever the other rules say is no twin of a task with answers."""
    draft = drafts()[False]
    problem = problem_of(draft)
    impossible = problem.model_copy(update={"params": {**problem.params, "fees": 1}})
    result = run(infeasible.infeasible, replace(draft, problem=impossible))
    assert result.status is GateStatus.FAILED


def test_the_gate_infeasible_catches_a_verifier_that_takes_the_witnesses(run: Any) -> None:
    draft = drafts()[False]
    accepts = "def verify(answer, initial, final):\n    return []\n"
    result = run(infeasible.infeasible, replace(draft, verifier=accepts))
    assert result.status is GateStatus.FAILED
    assert "is accepted" in result.reason


def test_a_verifier_that_accepts_the_claim_of_a_task_with_answers_is_caught(run: Any) -> None:
    draft = drafts()[True]
    broken = draft.verifier.replace(
        'return ["feasible"] if PARAMS["feasible"] else []', "return []"
    )
    assert broken != draft.verifier
    assert run(soundness.near_misses, replace(draft, verifier=broken)).status is GateStatus.FAILED
    assert run(soundness.evaluation, replace(draft, verifier=broken)).status is GateStatus.FAILED


def test_a_verifier_that_refuses_the_claim_of_a_twin_is_caught(run: Any) -> None:
    draft = drafts()[False]
    broken = replace(draft, verifier=draft.verifier.replace("if is_claim(answer):", "if False:"))
    assert broken.verifier != draft.verifier
    assert run(execution.gold, broken).status is GateStatus.FAILED
    assert run(soundness.evaluation, broken).status is GateStatus.FAILED


def test_a_verifier_with_the_other_flag_is_caught(run: Any) -> None:
    for draft in drafts().values():
        claim = '"feasible": True' if problem_of(draft).feasible else '"feasible": False'
        other = '"feasible": False' if problem_of(draft).feasible else '"feasible": True'
        broken = replace(draft, verifier=draft.verifier.replace(claim, other))
        assert broken.verifier != draft.verifier
        result = run(meaning.stated, broken)
        assert result.status is GateStatus.FAILED
        assert "feasible of the verifier" in result.reason


def test_a_solution_that_knows_whether_there_is_an_answer_is_caught(run: Any) -> None:
    draft = drafts()[False]
    changed = draft.solution.replace("PARAMS = {", 'PARAMS = {"feasible": False, ', 1)
    assert changed != draft.solution
    result = run(meaning.stated, replace(draft, solution=changed))
    assert result.status is GateStatus.FAILED
    assert "feasible of the solution" in result.reason


def test_a_prompt_that_does_not_offer_the_claim_is_caught(run: Any) -> None:
    draft = drafts()[True]
    broken = replace(draft, prompt=draft.prompt.replace(f"\n{CLAIM_NOTE}", ""))
    assert broken.prompt != draft.prompt
    assert run(meaning.stated, broken).status is GateStatus.FAILED


def test_a_solution_that_gives_up_too_early_is_caught(run: Any) -> None:
    draft = drafts()[True]
    source = 'def solve():\n    return {"infeasible": True}\n'
    assert run(execution.gold, replace(draft, solution=source)).status is GateStatus.FAILED
    twin = drafts()[False]  # right here, and wrong on re-seeds that have answers

    class Lazy(ProceduralAuthor):
        def reseed(self, parent: Draft, seed: int) -> Draft | None:
            child = super().reseed(parent, seed)
            return None if child is None else replace(child, solution=source)

    def reseeds(trial: Trial) -> GateResult:
        trial.author = Lazy()
        return execution.reseeds(trial)

    result = run(reseeds, replace(twin, solution=source))
    assert result.status is GateStatus.FAILED
    assert "the solution none" in result.reason


def test_binding_catches_a_twin_with_a_rule_that_nothing_breaks(run: Any) -> None:
    def without_misses(trial: Trial) -> GateResult:
        assert trial.conflict is not None
        first = trial.conflict.rules[0]
        trial.__dict__["near_misses"] = tuple(m for m in trial.near_misses if m.clause != first)
        return meaning.binding(trial)

    assert run(meaning.binding, drafts()[False]).status is GateStatus.PASSED
    assert run(without_misses, drafts()[False]).status is GateStatus.FAILED


def test_the_flag_is_among_the_mutants(run: Any) -> None:
    result = run(mutation.mutants_killed, drafts()[True])
    assert result.status is GateStatus.PASSED
    assert not any("feasible" in str(name) for name in result.details["survivors"])


# --- difficulty ----------------------------------------------------------------------------------


def test_players_of_shortcuts_play_no_twins() -> None:
    author, parent = ProceduralAuthor(), drafts()[False]
    played: list[bool | None] = []

    def reseed(seed: int) -> Any:
        instance = author.instance(parent, seed)
        played.append(None if instance is None else instance.problem.feasible)
        return instance

    found = shortcuts(reseed, 0, 8)
    assert found is not None
    assert found.n == 8
    assert False in played


def test_facts_of_a_twin_are_cells_that_decide_it(hosts: Hosts, tmp_path: Path) -> None:
    """Whatever the other cells hold, there is no answer."""
    draft = drafts()[False]
    problem = problem_of(draft)
    with closing(Trial(draft, hosts, tmp_path, None, seed=1)) as trial:
        found = facts(problem, draft.tables, trial.gold)
    everything = {
        (relation, key, column)
        for relation, rows in draft.tables.items()
        for key, row in rows.items()
        for column in row
    }
    assert 0 < len(found) < len(everything)
    assert not any(column == "row" for _, _, column in found)  # what no rule reads
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
        rules = problem.model_copy(update={"feasible": None})
        assert count(rules, tables) == (0, 0, True)


# --- pages ---------------------------------------------------------------------------------------


def _page(old: str, new: str) -> str:
    text = (Path(__file__).parents[2] / "data/pages/depot.toml").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('asks = "rank"', 'asks = "rank"\ntwins = true', "more than rules"),
        ('fees = "edge(share=5)"', 'fees = "ints(80, 99)"', "no rule has a bound"),
        ('bay = "bays" }\nasks = "carries', 'infeasible = "bays" }\nasks = "carries', "reserved"),
    ],
)  # fmt: skip
def test_scenes_that_can_have_no_twins_are_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "depot.toml"
    path.write_text(_page(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Tasks(page_file(path))


def test_a_parameter_may_not_be_called_like_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "depot.toml"
    path.write_text(_page("fees", "feasible"))
    with pytest.raises(ConfigError, match="whether there is an answer"):
        Tasks(page_file(path))


def test_tasks_without_a_bound_are_not_offered_the_claim(tmp_path: Path) -> None:
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
        kinds.append(problem_of(draft).feasible is not None)
        assert (CLAIM_NOTE in draft.prompt) is kinds[-1]
    assert kinds == [False, True]
