"""Workflows whose rules are about several rows together: ranks, a budget, steps that read earlier writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ROOT

from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Reach
from envgen.core.seeding import rng
from envgen.core.types import GateStatus
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.analysis import Analysis
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.authoring.tasks import (
    Hardened,
    Rehearsal,
    Tasks,
    escalates,
    tasks_from,
)
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates import meaning, mutation, soundness
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.semantics.calls import Call
from envgen.pipelines.general.semantics.evaluate import as_told, evaluate, rules_of
from envgen.pipelines.general.semantics.replies import apply_plan
from envgen.pipelines.general.semantics.rewrite import conjuncts
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import solve
from envgen.pipelines.general.space.density import density

Held = Hardened | Rehearsal
PAGE = page_file(ROOT / "examples/pages/warehouse.toml")


@cache
def tasks() -> Tasks:
    return tasks_from(PAGE.text)


@cache
def rehearsed() -> tuple[Rehearsal, ...]:
    """A task of each level, from 1 on."""
    return tuple(tasks().rehearsed())


def level(number: int) -> Rehearsal:
    return rehearsed()[number - 1]


def due(problem: Problem, tables: Tables) -> bool:
    assert isinstance(problem.goal, Reach)
    assert problem.goal.escalate_when is not None
    rules = rules_of(problem)
    return rules.value(problem.goal.escalate_when, rules.compiler.frame(tables, tables)) is True


def stated(task: Held) -> str:
    """The sentences, tools and goal of a task, whatever its rows and numbers."""
    return task.problem.model_copy(update={"params": {}, "id": ""}).model_dump_json()


def plan_of(task: Held) -> tuple[Call, ...]:
    found = next(iter(solve(task.problem, task.tables, rng(0, "plan"))))
    return tuple(found.calls)


def broken(task: Held, plan: tuple[Call, ...]) -> set[str]:
    """The rules that a plan breaks, its outcome being done; calls that a tool refuses do nothing."""
    final = apply_plan(task.problem, task.tables, plan).final
    told = as_told(task.problem, task.tables, {"outcome": "done", "urgent": ""})
    held = evaluate(task.problem, task.tables, told, final)
    return {rule for rule, ok in held.items() if not ok}


def rows_of(task: Held) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of a task, their values untyped."""
    return {
        name: {key: dict(row) for key, row in rows.items()} for name, rows in task.tables.items()
    }


def params_of(task: Held) -> dict[str, Any]:
    return dict(task.problem.params)


def chosen(task: Held) -> list[str]:
    """The lines that the two plain rules allow, worked out by hand."""
    tables, params = rows_of(task), params_of(task)
    rules = {clause.id for clause in task.problem.clauses}
    found = []
    for key, line in tables["lines"].items():
        product = tables["products"][tables["shelves"][line["shelf"]]["product"]]
        allowed = not tables["suppliers"][line["supplier"]]["blocked"]
        if "old" in rules:
            allowed &= line["asked_on"] >= params["day"]
        if "heavy" in rules:
            allowed &= product["weight"] <= params["weight"]
        if allowed and line["batch"] == params["batch"] and line["status"] == "draft":
            found.append(key)
    return found


def test_the_k_best_and_the_budget_mean_what_the_page_says() -> None:
    task = level(8)
    lines, params = rows_of(task)["lines"], params_of(task)
    ranked = sorted(chosen(task), key=lambda key: -lines[key]["urgency"])[: int(params["most"])]
    total, right, beyond = 0, [], 0
    for key in sorted(ranked, key=lambda key: lines[key]["asked_on"]):
        total += lines[key]["estimate"]
        if total > int(params["budget"]):
            beyond = total
            break
        right.append(key)
    plan = plan_of(task)
    assert sorted(args["line"] for _, args in plan) == sorted(right)
    spent = sum(lines[key]["estimate"] for key in right)
    assert spent < int(params["budget"]) < beyond  # no set of lines is found by its sum alone
    shelves = rows_of(task)["shelves"]
    for _, args in plan:
        shelf = shelves[lines[args["line"]]["shelf"]]
        assert args["pieces"] == shelf["target"] - shelf["quantity"]


def test_one_rank_too_many_and_the_next_over_the_budget_break_that_rule_alone() -> None:
    task, six = level(8), level(6)
    lines, shelves = rows_of(six)["lines"], rows_of(six)["shelves"]
    ranked = sorted(chosen(six), key=lambda key: -lines[key]["urgency"])
    more = ranked[int(params_of(six)["most"])]
    call = ("release_line", {"line": more, "pieces": lines[more]["wanted"]})
    assert broken(six, (*plan_of(six), call)) == {"most"}
    lines, shelves = rows_of(task)["lines"], rows_of(task)["shelves"]
    plan = plan_of(task)
    done = {args["line"] for _, args in plan}
    ranked = sorted(chosen(task), key=lambda key: -lines[key]["urgency"])
    within = ranked[: int(params_of(task)["most"])]
    following = min(set(within) - done, key=lambda key: lines[key]["asked_on"])
    shelf = shelves[lines[following]["shelf"]]
    call = ("release_line", {"line": following, "pieces": shelf["target"] - shelf["quantity"]})
    assert broken(task, (*plan, call)) == {"budget"}


def test_a_step_reads_what_the_one_before_wrote_and_a_wrong_order_is_refused() -> None:
    task = level(9)
    plan = plan_of(task)
    first = [call for call in plan if call[0] == "move_stock"]
    later = [call for call in plan if call[0] == "release_line"]
    assert first
    assert later
    assert not broken(task, (*first, *later))
    tables = rows_of(task)
    filled = {tables["transfers"][args["transfer"]]["shelf"] for _, args in first}
    waiting = [c for c in later if tables["lines"][c[1]["line"]]["shelf"] in filled]
    for call in waiting:  # refused, so that the line stays a draft
        rest = [other for other in later if other != call]
        assert "release" in broken(task, (call, *first, *rest))
    call = later[0]
    off = (call[0], {**call[1], "pieces": call[1]["pieces"] + 1})
    assert broken(task, (*first, off, *later[1:])) == {"release"}


@pytest.mark.parametrize("number", [6, 7, 8, 9])
def test_players_that_decide_row_by_row_fail_on_every_instance(number: int) -> None:
    problem = level(number).problem
    for seed in range(4):
        found = tasks().reseeded(problem, rng(seed, "instances", number))
        assert found is not None
        game = WorkflowGame(*found)
        if not game.due:
            for play in (game.first_row, game.greedy, game.first_fit):
                assert not game.passes(play())


@pytest.mark.parametrize("number", [6, 8, 9])
def test_the_density_of_joint_workflows_is_exact(number: int) -> None:
    found = density(level(number).problem, level(number).tables, rng(0, "density"))
    assert found.method == "exact"
    assert 0 < found.value < 1e-4


def test_no_two_rows_of_a_ranking_tie() -> None:
    task = level(6)
    wish = Analysis(task.problem, tasks().blueprint).wishes[0]
    assert wish.joint == ("most",)
    assert all(list(conjuncts(part)) for part in wish.rules["most"])
    for seed in range(12):
        found = tasks().reseeded(task.problem, rng(seed, "ties"))
        assert found is not None
        if not due(*found):
            ranks = [rows_of(found)["lines"][key]["urgency"] for key in chosen(found)]
            assert len(set(ranks)) == len(ranks)


def test_a_rule_that_names_earlier_ones_needs_one() -> None:
    text = PAGE.text.replace('"blocked suppliers"', "null").replace('"heavy products"', "null")
    text = text.replace('"old lines"', "null").replace('"word": null,', "")
    with pytest.raises(ConfigError, match=r"phrase '\w+' names the rules before it"):
        tasks_from(text)


# --- what must be escalated ------------------------------------------------------------------------


def test_a_share_of_drafted_workflow_tasks_must_be_escalated_and_reads_like_the_rest() -> None:
    before, operator = level(4), tasks().blueprint.operators(4)[1]
    drawn = [tasks().harder(operator, before.problem, rng(seed, "base")) for seed in range(200)]
    found = [task for task in drawn if task is not None]
    escalated = [task for task in found if due(*task)]
    assert 0.10 <= len(escalated) / len(found) <= 0.20
    asked, others = set(map(stated, escalated)), set(map(stated, found))
    assert asked == others  # the same sentences, tools and goal: only rows and numbers differ
    assert not any(escalates(level(1).problem, rng(seed)) for seed in range(50))


# --- sabotage --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(backend="process", trusted=True) as started:
        yield started


@cache
def drafted(number: int, *, escalated: bool = False) -> Draft:
    for seed in range(40):
        draft = ProceduralAuthor().draft(
            DraftRequest(domain=PAGE.id, page=PAGE.text, level=number), seed
        )
        if isinstance(draft, Draft) and draft.problem is not None:
            if due(draft.problem, draft.tables) is escalated:
                return draft
    raise AssertionError(f"no such draft of level {number}")


def rejected(draft: Draft, hosts: Hosts, folder: Path) -> bool:
    with closing(Trial(draft, hosts, folder, ProceduralAuthor(), seed=1)) as trial:
        gates = (soundness.near_misses, soundness.evaluation)
        return any(gate(trial).status is GateStatus.FAILED for gate in gates)


@pytest.fixture(scope="module")
def sound(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Draft:
    """A draft of level 8 that those gates let pass."""
    draft = drafted(8)
    assert not rejected(draft, hosts, tmp_path_factory.mktemp("sound"))
    return draft


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (":param_most", ":param_most + 1"),
        (":param_budget", ":param_budget + 100000"),
        ("o.asked_on <= lines_row.asked_on", "o.asked_on >= lines_row.asked_on"),
        ("o.urgency > lines_row.urgency", "o.urgency < lines_row.urgency"),
    ],
    ids=["rank", "cap", "order", "sense"],
)
def test_a_verifier_that_ignores_a_joint_rule_is_caught(
    sound: Draft, hosts: Hosts, tmp_path: Path, whole: str, part: str
) -> None:
    assert whole in sound.verifier
    wrong = replace(sound, verifier=sound.verifier.replace(whole, part))
    assert rejected(wrong, hosts, tmp_path)


def test_the_rules_of_an_escalated_task_are_held_against_a_re_seed(
    hosts: Hosts, tmp_path: Path
) -> None:
    draft = drafted(5, escalated=True)
    with closing(Trial(draft, hosts, tmp_path, ProceduralAuthor(), seed=1)) as trial:
        assert trial.escalated
        assert isinstance(trial.gold.answer, dict)
        assert trial.gold.answer["outcome"] == "escalated"
        assert not trial.gold_plan
        assert meaning.binding(trial).status is GateStatus.PASSED
        assert mutation.mutants_killed(trial).status is GateStatus.PASSED
    (tmp_path / "alone").mkdir()
    with closing(Trial(draft, hosts, tmp_path / "alone", None, seed=1)) as trial:
        assert meaning.binding(trial).status is GateStatus.FAILED  # nobody can re-seed it


def test_the_page_is_read_back() -> None:
    assert read_page((ROOT / "examples/pages/warehouse.toml").read_text()).text == PAGE.text
