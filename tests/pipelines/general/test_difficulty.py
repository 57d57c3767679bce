"""Shortcuts, facts and calls, against the reference semantics and against pages that are easy on purpose."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from desks import DESK, FILTERS, SUMS
from drafts import attempted
from ladders import ladder

from envgen.core.ir import Equals, Reach
from envgen.core.seeding import rng
from envgen.core.types import GoldRun, Shortcuts
from envgen.environments.runner import run_gold
from envgen.pipelines.general.audit import AuditConfig, AuditReport, TaskToAudit, _measured, audit
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.authoring.tasks import Tasks, tasks_from
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.difficulty.facts import branch_depth, facts, fewest_calls
from envgen.pipelines.general.difficulty.measure import FITTED, shortcuts
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.domains import DOMAINS
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.semantics.evaluate import accepted
from envgen.pipelines.general.semantics.replies import apply_plan
from envgen.pipelines.general.semantics.tables import Tables, write_sqlite
from envgen.pipelines.general.space.answers import solve
from envgen.store.dataset import Dataset


def desk(rules: str) -> Tasks:
    return tasks_from(read_page(DESK + rules).text)


def played(tasks: Tasks, n: int = 32) -> Shortcuts:
    first = next(f for seed in range(40) if (f := tasks.first(rng(seed, "desk"))) is not None)
    found = shortcuts(lambda seed: tasks.reseeded(first.problem, rng(seed, "again")), 0, n)
    assert found is not None
    assert found.n == n
    return found


def test_filters_are_solved_by_every_shortcut_but_the_first_row() -> None:
    """The lightest boxes always do: a recipe finds that out, though it reads no rule."""
    found = played(desk(FILTERS))
    assert min(found.first_fit, found.greedy, found.recipe, found.local_search["200"]) > 0.9
    assert found.first_row < 0.6
    assert found.best > 0.9


def test_a_sum_over_all_slots_stops_what_looks_at_one_at_a_time() -> None:
    found = played(desk(SUMS))
    assert max(found.first_row, found.first_fit) <= 0.2
    assert found.recipe <= 0.7
    assert found.local_search["50"] <= found.local_search["200"] <= found.local_search["1000"]


def test_too_few_re_seeds_are_no_figure() -> None:
    tasks = desk(FILTERS)
    assert shortcuts(lambda seed: None, 0, 4) is None
    first = next(f for seed in range(40) if (f := tasks.first(rng(seed, "desk"))) is not None)
    assert shortcuts(lambda seed: first if seed < FITTED + 3 else None, 0, 4) is None


TASKS = [(domain, level) for domain in DOMAINS if domain != "orders" for level in (1, 3, 5, 7)]


@pytest.mark.parametrize(("domain", "level"), TASKS)
def test_players_are_judged_as_the_semantics_judge(domain: str, level: int) -> None:
    problem, tables = ladder(domain, 11, level)[-1]
    if isinstance(problem.goal, Reach):
        pytest.skip("a workflow")
    game, draws = AnswerGame(problem, tables), Random(level)
    answers = [game._drawn([None] * game.size, range(game.size), draws) for _ in range(300)]
    answers += [found for found in (game.first_row(), game.greedy(), game.first_fit()) if found]
    for values in answers:
        assert game.passes(values) == accepted(problem, tables, game.model.answer(values))


@pytest.mark.parametrize(("domain", "level"), [("orders", 5), ("orders", 6), ("orders", 8)])
def test_plans_are_judged_as_the_semantics_judge(domain: str, level: int) -> None:
    problem, tables = ladder(domain, 11, level)[-1]
    assert isinstance(problem.goal, Reach)
    game, draws = WorkflowGame(problem, tables), Random(level)
    if game.due:
        pytest.skip("to be escalated")
    right, answer = 0, next(solve(problem, tables, Random(level))).answer
    whole = list(next(solve(problem, tables, Random(level))).calls)
    plans: list[Any] = [whole, game.first_fit(), game.greedy(), game.first_row()]
    plans += [draws.sample(whole, draws.randint(0, len(whole))) for _ in range(60)]
    for plan in plans:
        final = apply_plan(problem, tables, plan).final
        right += game.passes(plan)
        assert game.passes(plan) == accepted(problem, tables, answer, final)
    assert right


def gold(draft: Draft, folder: Path) -> GoldRun:
    database = folder / "rows.sqlite"
    write_sqlite(draft.relations, draft.tables, database)
    with Hosts(backend="process", trusted=True) as hosts:
        tools = hosts.tools(draft, database)
        result = run_gold(draft.solution, draft.tools, tools, hosts.solutions(), database=database)
        tools.close()
    assert result.fault is None
    return result.gold


def drafted(domain: str, level: int) -> Draft:
    found = (attempted(domain, level, n) for n in range(9))
    return next(d for d in found if isinstance(d, Draft) and d.problem and d.problem.feasible)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("level", [1, 2, 3, 5, 7])
def test_gold_stays_right_whatever_other_cells_hold(
    domain: str, level: int, tmp_path: Path
) -> None:
    draft = drafted(domain, level)
    problem, run = draft.problem, gold(draft, tmp_path)
    assert problem is not None
    needed = facts(problem, draft.tables, run)
    assert (
        0 < len(needed) < sum(len(row) for rows in draft.tables.values() for row in rows.values())
    )
    calls = [(c.name, c.arguments) for c in run.calls if c.mutates and c.error is None]
    broken = 0
    for seed in range(40):
        rows = scrambled(draft.tables, needed, {r.name: r.key for r in draft.relations}, seed)
        assert accepted(problem, rows, run.answer, apply_plan(problem, rows, calls).final)
        rows = scrambled(draft.tables, set(), {r.name: r.key for r in draft.relations}, seed)
        broken += not accepted(problem, rows, run.answer, apply_plan(problem, rows, calls).final)
    assert broken  # the scrambling itself is no idle one


def scrambled(tables: Tables, keep: set[Any], keys: dict[str, str], seed: int) -> Tables:
    """Every cell but keys and those to keep drawn anew among its column's values."""
    draws, found = Random(seed), {}
    for name, rows in tables.items():
        columns = {c: [row[c] for row in rows.values()] for c in next(iter(rows.values()), {})}
        found[name] = {
            key: {
                c: value if c == keys[name] or (name, key, c) in keep else draws.choice(columns[c])
                for c, value in row.items()
            }
            for key, row in rows.items()
        }
    return found


@pytest.mark.parametrize("domain", DOMAINS)
def test_calls_tell_all_facts_and_are_fewer_than_golds(domain: str, tmp_path: Path) -> None:
    draft = drafted(domain, 7)
    problem, run = draft.problem, gold(draft, tmp_path)
    assert problem is not None
    needed = facts(problem, draft.tables, run)
    few = fewest_calls(problem, draft.tables, run, draft.prompt, needed)
    assert 1 <= few <= len(run.calls)
    # Of a workflow every call of gold may be needed, and of the rooms' facts each.
    assert few < len(run.calls) or domain == "meetings" or isinstance(problem.goal, Reach)
    cell = next(iter(islice(sorted(needed), 1)))
    assert fewest_calls(problem, draft.tables, run, draft.prompt, {cell}) <= few


def test_conditions_inside_conditions_are_counted() -> None:
    flat, nested = ladder("meetings", 1)[0], ladder("trip", 1)[6]
    assert isinstance(flat.problem.goal, Equals)
    assert branch_depth(flat.problem) == 0
    assert branch_depth(nested.problem) >= 2


def test_a_dataset_is_audited(tmp_path: Path) -> None:
    config = GenerateConfig(environments=4, tasks_per_environment=1, max_level=2, seed=4)
    generate(config, tmp_path / "ds", workers=1, backend="process")
    reports = [
        audit(AuditConfig(reseeds=6), tmp_path / "ds", workers=workers) for workers in (1, 2)
    ]
    assert figures(reports[0]) == figures(reports[1])
    report: AuditReport = reports[0]
    assert len(report.tasks) == 4
    assert not any(task.error or task.stored for task in report.tasks)
    assert all(task.difficulty and task.difficulty.shortcuts for task in report.tasks)
    assert {cell["tasks"] for cell in report.cells()} == {1}

    stored = audit(AuditConfig(), tmp_path / "ds", workers=1)
    assert all(task.stored for task in stored.tasks)
    tasks = Dataset.open(tmp_path / "ds").tasks
    assert {task.task_id: task.difficulty for task in stored.tasks} == {
        name: spec.difficulty for name, spec in tasks.items()
    }
    anew = [_measured(job(tmp_path / "ds", name), Dataset.open(tmp_path / "ds")) for name in tasks]
    assert anew == [spec.difficulty for spec in tasks.values()]  # a gate's re-seeds are the same


def figures(report: AuditReport) -> dict[str, Any]:
    return {task.task_id: task.difficulty for task in report.tasks}


def job(path: Path, task_id: str) -> TaskToAudit:
    return TaskToAudit(dataset=str(path), task_id=task_id, reseeds=None, seed=0, unproven=False)


@pytest.mark.parametrize(("domain", "level"), [("timetable", 5), ("trip", 6), ("menu", 4)])
def test_what_a_change_breaks_is_what_the_whole_answer_breaks(domain: str, level: int) -> None:
    """Local search asks again only what reads the slots that it drew anew."""
    draft = attempted(domain, level)
    assert isinstance(draft, Draft)
    assert draft.problem is not None
    game, draws = AnswerGame(draft.problem, draft.tables), Random(1)
    values = game._drawn([None] * game.size, range(game.size), draws)
    broken = game.broken(values)
    for _ in range(200):
        i = draws.randrange(game.size)
        redrawn = (i, *(j for j in range(game.size) if i in game.needs[j]))
        values = game._drawn(values, redrawn, draws)
        broken = game._broken_after(redrawn, values, broken)
        assert broken == game.broken(values)
