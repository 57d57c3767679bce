from __future__ import annotations

from random import Random

import pytest
from pydantic import JsonValue
from sample_problems import SAMPLES, cmp

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Arg, Const, Get, Precondition, Problem, Reach, Write
from envgen.pipelines.general.semantics.calls import IntSpan, Plan, argument_values
from envgen.pipelines.general.semantics.evaluate import domain_values, evaluate
from envgen.pipelines.general.semantics.machine import Diff, Machine
from envgen.pipelines.general.semantics.replies import apply_plan, evaluate_plan
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.space.near_misses import _some_arguments, near_misses
from envgen.pipelines.general.space.walks import _sampled, wilson

NAMES = ["c_refund", "c_escalate", "c_amount"]


def _amounts() -> tuple[Problem, Tables]:
    """c_refund with an amount to be given: a long int argument, and a tool that undoes."""
    problem, tables = SAMPLES["c_refund"][:2]
    item = Arg(name="item_id")
    price = Get(relation="items", entity=item, column="price")
    amount = Arg(name="amount")
    pay = Access(
        tool="pay",
        relation="items",
        mode="write",
        description="Pay an amount for an item.",
        args={"item_id": "items.id", "amount": "int"},
        pre=(
            Precondition(expr=cmp(amount, ">=", Const(value=1)), code="low", text="low"),
            Precondition(expr=cmp(amount, "<=", Const(value=200)), code="high", text="high"),
            Precondition(expr=cmp(amount, "<", price), code="much", text="too much"),
        ),
        effects=(Write(kind="update", relation="items", key=item, set={"price": amount}),),
    )
    wipe = Access(
        tool="wipe",
        relation="items",
        mode="write",
        description="Take a refund back.",
        args={"item_id": "items.id"},
        effects=(
            Write(kind="delete", relation="refunds", key=item),
            Write(
                kind="update",
                relation="items",
                key=item,
                set={"status": Const(value="delivered")},
            ),
        ),
    )
    few = {k: {**row, "price": 150} for k, row in tables["items"].items() if k in ("i1", "i2")}
    tables = {**tables, "items": few}
    goal = problem.goal.model_copy(update={"max_calls": 3})
    access = (*problem.access, pay, wipe)
    return problem.model_copy(update={"access": access, "goal": goal}), tables


def case(name: str) -> tuple[Problem, Tables]:
    return _amounts() if name == "c_amount" else SAMPLES[name][:2]


def random_walk(problem: Problem, tables: Tables, rng: Random) -> Plan:
    """The walk as the brief tells it, on the reference semantics alone."""
    tools = [access for access in problem.access if access.mode == "write"]
    calls = []
    assert isinstance(problem.goal, Reach)
    for _ in range(rng.randint(0, problem.goal.max_calls)):
        access = rng.choice(tools)
        args = {}
        for name in access.args:
            values = argument_values(problem, access, name, tables)
            assert values is not None
            args[name] = (
                rng.randint(values.low, values.high)
                if isinstance(values, IntSpan)
                else rng.choice(values)
            )
        calls.append((access.tool, args))
    return Plan(tuple(calls), {"outcome": rng.choice(["done", "escalated"])})


@pytest.mark.parametrize("name", NAMES)
def test_exact_chance_agrees_with_simulated_walks(name: str) -> None:
    problem, tables = case(name)
    short = problem.goal.model_copy(update={"max_calls": 3})
    problem = problem.model_copy(update={"goal": short})
    measured = density(problem, tables, Random(0))
    assert measured.method == "exact"
    rng, n = Random(7), 2_500
    hits = sum(
        all(evaluate_plan(problem, tables, random_walk(problem, tables, rng)).values())
        for _ in range(n)
    )
    low, high = wilson(hits, n)
    assert low <= measured.value <= high
    assert measured.value > 0


@pytest.mark.parametrize("name", NAMES)
def test_sampled_interval_holds_the_exact_chance(name: str) -> None:
    problem, tables = case(name)
    exact = density(problem, tables, Random(0)).value
    sampled = _sampled(problem, tables, Random(1), 2_000)
    assert sampled.low <= exact <= sampled.high


@pytest.mark.parametrize("name", NAMES)
def test_machine_agrees_with_reference_on_random_walks(name: str) -> None:
    problem, tables = case(name)
    machine, rng = Machine(problem, tables), Random(11)
    tools = {tool.access.tool: tool for tool in machine.tools}
    for _ in range(150):
        plan = random_walk(problem, tables, rng)
        final, replies = apply_plan(problem, tables, plan)
        oks = []
        diff: Diff = ()
        for tool, args in plan.calls:
            writes = machine.call(tools[tool], args, machine.tables(diff))
            oks.append(writes is not None)
            diff = machine.after(diff, writes or {})
        assert machine.tables(diff) == final
        assert oks == [reply == "ok" for reply in replies]


@pytest.mark.parametrize("name", ["c_refund", "c_escalate"])
def test_solved_plans_are_accepted_and_distinct(name: str) -> None:
    problem, tables = case(name)
    plans = list(solve(problem, tables, Random(2)))
    assert plans
    assert len({repr(plan) for plan in plans}) == len(plans)
    for plan in plans:
        assert all(evaluate_plan(problem, tables, plan).values())


def test_permuted_calls_are_alternatives() -> None:
    plans = list(solve(*case("c_refund"), Random(2)))
    assert {tuple(args["item_id"] for _, args in plan.calls) for plan in plans} == {
        ("i1", "i3"),
        ("i3", "i1"),
    }


@pytest.mark.parametrize("name", ["c_refund", "c_escalate"])
def test_sample_plans(name: str) -> None:
    sample = SAMPLES[name]
    for plan in sample.accepted:
        assert all(evaluate_plan(sample.problem, sample.tables, plan).values())
    for plan in sample.rejected:
        assert not all(evaluate_plan(sample.problem, sample.tables, plan).values())


@pytest.mark.parametrize("name", ["c_refund", "c_escalate"])
def test_plan_misses_break_exactly_one_rule(name: str) -> None:
    problem, tables = case(name)
    plan = next(solve(problem, tables, Random(2)))
    found = list(near_misses(problem, tables, plan, Random(2)))
    assert {"goal", "write_set"} <= {rule for _, rule in found}
    for miss, rule in found:
        held = evaluate_plan(problem, tables, miss)
        assert [key for key, ok in held.items() if not ok] == [rule]


def test_every_row_is_tried_wherever_its_key_stands_among_the_arguments() -> None:
    """Files sort the names of arguments: an amount comes before the item it is for."""
    problem, _ = _amounts()
    tables = SAMPLES["c_refund"].tables
    (pay,) = (access for access in problem.access if access.tool == "pay")
    for args in (pay.args, dict(reversed(pay.args.items()))):
        access = pay.model_copy(update={"args": args})
        tried = [
            one["item_id"] for one in _some_arguments(problem, tables, access, set(), Random(0))
        ]
        assert sorted(tried) == sorted(tables["items"])


def test_workflows_are_not_counted() -> None:
    with pytest.raises(PipelineError, match="can't count the answers of the workflow"):
        count(*case("c_refund"))


def test_failed_calls_change_nothing() -> None:
    problem, tables = case("c_refund")
    calls = [
        ("refund_item", {"item_id": "i5", "method": "card"}),
        ("refund_item", {"item_id": "nope", "method": "card"}),
        ("refund_item", {"item_id": "i1", "method": "cash"}),
        ("refund_item", {"item_id": "i1"}),
        ("fly", {}),
    ]
    final, replies = apply_plan(problem, tables, calls)
    assert final == tables
    assert replies == ["wrong_status", "not_found", "bad_method", "bad_argument", "unknown_tool"]


def test_deleting_a_row_needs_its_key_in_the_write_set() -> None:
    problem, tables = case("c_refund")
    goal = problem.goal
    assert isinstance(goal, Reach)
    item = next(w for w in goal.write_set if w.relation == "items")
    fewer = {**tables, "items": {k: r for k, r in tables["items"].items() if k != "i2"}}
    answer: JsonValue = {"outcome": "done"}
    assert not evaluate(problem, tables, answer, fewer)["write_set"]
    wider = item.model_copy(update={"columns": ("status", "id")})
    allowed = tuple(wider if w is item else w for w in goal.write_set)
    loose = goal.model_copy(update={"write_set": allowed})
    held = evaluate(problem.model_copy(update={"goal": loose}), tables, answer, fewer)
    assert held["write_set"]


def test_walk_argument_domains() -> None:
    problem, tables = case("c_refund")
    refund = next(a for a in problem.access if a.tool == "refund_item")
    assert argument_values(problem, refund, "method", tables) == ("card", "credit")
    assert argument_values(problem, refund, "item_id", tables) == ("i1", "i2", "i3", "i4", "i5")
    from envgen.pipelines.general.semantics.evaluator import Compiler

    assert domain_values(problem.slots[0], Compiler(problem, tables)) == ["done", "escalated"]
