"""The evaluator against the oracle, rule by rule and expression by expression."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from random import Random
from typing import Any

import oracle
import pytest
from generated import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from random_problems import random_problem
from random_problems import tables as random_tables
from sample_problems import SAMPLES
from wild_problems import wild_problem

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import (
    Cmp,
    Const,
    Count,
    New,
    Param,
    Problem,
    Query,
    Reachable,
    Slot,
    SlotRef,
)
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate, rule_ids, rules_of
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.layout import fill_layout, match_layout
from envgen.pipelines.general.semantics.slot_values import NotEnumerableError
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.density import count, density
from envgen.pipelines.general.space.model import build_model
from envgen.pipelines.general.space.near_misses import near_misses
from envgen.pipelines.general.space.solve import solve

READ_ONLY = [name for name, sample in SAMPLES.items() if sample.problem.shape != "C"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("name", READ_ONLY)
def test_sample_verdicts(name: str) -> None:
    sample = SAMPLES[name]
    for answer in sample.accepted:
        assert all(evaluate(sample.problem, sample.tables, answer).values())
    for answer in sample.rejected:
        assert not accepted(sample.problem, sample.tables, answer)


@pytest.mark.parametrize("name", list(SAMPLES))
@settings(max_examples=30, deadline=None)
@given(answer=JSON)
def test_total_on_any_json(name: str, answer: JsonValue) -> None:
    sample = SAMPLES[name]
    held = evaluate(sample.problem, sample.tables, answer)
    assert tuple(held) == rule_ids(sample.problem)
    assert not all(held.values())
    assert held == oracle.evaluate(sample.problem, sample.tables, answer)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, i))
    yield path


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: _replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [_replaced(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]


@pytest.mark.parametrize("name", READ_ONLY)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_total_with_one_part_replaced(name: str, data: st.DataObject) -> None:
    sample = SAMPLES[name]
    answer = sample.accepted[0]
    path = data.draw(st.sampled_from(list(_leaves(answer))))
    changed = _replaced(answer, path, data.draw(JSON))
    held = evaluate(sample.problem, sample.tables, changed)
    assert set(map(type, held.values())) == {bool}
    assert held == oracle.evaluate(sample.problem, sample.tables, changed)


def test_true_is_not_one() -> None:
    sample = SAMPLES["a_stay"]
    answer = {**sample.accepted[0], "nights": True}
    assert not any(evaluate(sample.problem, sample.tables, answer).values())


def test_one_broken_clause_is_named() -> None:
    sample = SAMPLES["a_stay"]
    held = evaluate(sample.problem, sample.tables, {**sample.accepted[0], "nights": 3})
    assert [rule for rule, ok in held.items() if not ok] == ["short_if_good"]


# --- random problems -------------------------------------------------------------------------

LAWS = settings(max_examples=150, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10**6)


def some_answers(problem: Problem, tables: Tables, rng: Random, most: int) -> list[JsonValue]:
    """Answers of the right types, and as many with a hostile value for a slot."""
    model = build_model(problem, tables, clauses=False)
    fitting = [[rng.choice(domain) for domain in model.domains] for _ in range(most)]
    answers = [model.answer(values) for values in fitting]
    for answer in answers[:]:
        values = match_layout(problem.layout, answer)
        assert values is not None
        spoilt = {**values, rng.choice(list(values)): rng.choice(HOSTILE)}
        answers.append(fill_layout(problem.layout, spoilt))
    return answers


@LAWS
@given(seed=SEEDS)
def test_the_evaluator_judges_as_the_oracle(seed: int) -> None:
    problem, tables = wild_problem(seed)
    final = wild_problem(seed + 1)[1]
    for answer in some_answers(problem, tables, Random(seed), 12):
        assert evaluate(problem, tables, answer) == oracle.evaluate(problem, tables, answer)
        held = evaluate(problem, tables, answer, final)
        assert held == oracle.evaluate(problem, tables, answer, final)


@LAWS
@given(seed=SEEDS, bound=st.booleans())
def test_each_way_to_compile_means_the_same(seed: int, bound: bool) -> None:
    """Folded over rows or not, parameters bound or free and then others than the problem's."""
    problem, tables = wild_problem(seed)
    compiler = Compiler(problem, tables if bound else None, params="free")
    exprs = [e for c in problem.clauses for e in (c.expr, c.guard) if e is not None]
    runs = [compiler.compile(expr) for expr in exprs]
    for params in ({"p": 1, "q": 2}, problem.params, {"p": None, "q": 0}):
        other = problem.model_copy(update={"params": params})
        fixed = [Compiler(other, tables).compile(expr) for expr in exprs]
        model = build_model(other, tables, clauses=False)
        for values in islice(product(*model.domains), 0, 4_000, 97):
            frame = compiler.frame(tables)
            frame.params, frame.slots[:] = params, values
            named = match_layout(problem.layout, model.answer(values))
            assert named is not None
            for expr, run, folded in zip(exprs, runs, fixed, strict=True):
                meant = oracle.interpret(expr, oracle.Scope(other, tables, tables, named))
                assert run(frame) is meant
                assert folded(frame) is meant


NUMBERS: tuple[ir.Expr, ...] = tuple(Const(value=v) for v in (None, -3, 0, 2, True, "2", "b"))
LISTS: tuple[Any, ...] = (Query(var="x", relation="people"), SlotRef(slot="group"))


def edges() -> Iterator[ir.Expr]:
    """Expressions at the borders: unknown, negative, empty, of types that don't go together."""
    for left, right in product(NUMBERS, NUMBERS):
        for fn in ("+", "-", "*", "//", "convert"):
            yield ir.Arith(fn=fn, left=left, right=right)
        for test in ("=", "!=", "<", "<=", ">", ">="):
            yield Cmp(fn=test, left=left, right=right)
        yield Cmp(fn="in", left=left, right=Const(value=(1, None, "2")))
        yield ir.Days(left=left, right=Const(value="2025-02-30"))
        yield ir.And(items=(left, right))
        yield ir.Or(items=(left, right))
        yield ir.If(test=left, then=right, other=left)
        yield ir.AllDifferent(items=(left, right))
        yield Count(var="x", over=ir.Range(low=left, high=right), body=Const(value=True))
        yield ir.Before(left=left, right=SlotRef(slot="slot"), lag=right)
        yield ir.NoOverlap(intervals=(left, SlotRef(slot="call")), resources=(right, left))
    for item, over in product(NUMBERS, LISTS):
        yield ir.Not(item=item)
        yield ir.Start(interval=item)
        yield ir.Get(relation="people", entity=item, column="age")
        yield Cmp(fn="in", left=item, right=over)
        for fold in (ir.Sum, Count, ir.All, ir.Any):
            yield fold(var="x", over=over, body=item)
    for agg, column in product(("none", "count", "sum", "min", "max", "mean"), ("age", "joined")):
        for where, limit in product((True, None), (None, 1, 2)):
            value = ir.Get(relation="people", entity=ir.Var(name="x"), column=column)
            query = Query(var="x", relation="people", where=Const(value=where), select=value)
            order = (ir.Order(by=value, descending=limit == 2),)
            yield query.model_copy(update={"agg": agg, "limit": limit, "order": order})


@pytest.mark.parametrize("seed", range(3))
def test_the_evaluator_means_the_same_at_the_borders(seed: int) -> None:
    rng = Random(seed)
    problem, rows = random_problem(rng), random_tables(rng)
    values: dict[str, Any] = {"group": ["p1", "p5"], "boss": "p2", "team": "t1", "n": 0}
    values |= {
        "mood": "calm",
        "slot": {"start": 540, "end": 600},
        "call": {"start": 600, "end": 630},
    }
    rules = rules_of(problem)
    frame = rules.frame(rows, values, rows)
    assert frame is not None
    for expr in edges():
        meant = oracle.interpret(expr, oracle.Scope(problem, rows, rows, values))
        found = rules.value(expr, frame)
        assert (list(found) if isinstance(found, tuple) else found) == meant, expr
        assert type(found) is not int or type(meant) is int, expr


# --- what is reachable -----------------------------------------------------------------------


def reached(start: str | None, state: Tables, **columns: str) -> tuple[str, ...]:
    node = Reachable(start=Const(value=start), relation="people", **columns)
    problem = random_problem(Random(0))
    found: tuple[str, ...] = Compiler(problem).compile(node)(Compiler(problem).frame(state))
    return found


def test_reachable_takes_one_step_or_more_and_ends_on_cycles() -> None:
    bosses = {"a": "b", "b": "c", "c": "b", "d": None, "e": "d"}
    state: Tables = {"people": {k: {"id": k, "boss": boss} for k, boss in bosses.items()}}
    up, down = {"source": "id", "target": "boss"}, {"source": "boss", "target": "id"}
    assert reached("a", state, **up) == ("b", "c")
    assert reached("b", state, **up) == ("b", "c")  # on a cycle, so it reaches itself
    assert reached("b", state, **down) == ("a", "b", "c")
    assert reached("d", state, **down) == ("e",)
    assert reached("d", state, **up) == reached("nobody", state, **up) == ()
    assert reached(None, state, **up) == ()


def test_what_is_reached_can_be_read_in_the_final_state() -> None:
    rng = Random(4)
    problem, before, after = random_problem(rng), random_tables(rng), random_tables(rng)
    over = Reachable(start=SlotRef(slot="boss"), relation="people", source="id", target="boss")
    size = Count(var="x", over=over, body=Const(value=True))
    compiler = Compiler(problem, before)
    old, new = compiler.compile(size), compiler.compile(New(item=size))
    seen = set()
    for boss in before["people"]:
        frame = compiler.frame(new=after)
        frame.reads, frame.slots[1] = set(), boss
        scope = oracle.Scope(problem, before, after, {"boss": boss})
        assert old(frame) == oracle.interpret(size, scope)
        assert new(frame) == oracle.interpret(New(item=size), scope)
        assert frame.reads == {("people", None)}  # the initial rows never change
        seen.add(old(frame) == new(frame))
    assert False in seen


def with_rule(expr: ir.Expr) -> Problem:
    clause = ir.Clause(id="rule", family="random", expr=expr, text_key="random")
    return random_problem(Random(0)).model_copy(update={"clauses": (clause,)})


def test_what_a_compiler_cannot_do_it_refuses_by_name() -> None:
    boss = SlotRef(slot="boss")
    over = Reachable(start=boss, relation="people", source="id", target="boss")
    above = with_rule(Cmp(fn="in", left=Param(name="who"), right=over))
    assert "WITH RECURSIVE" in verifier_source(above)
    assert "reached(" in solution_source(above)
    for compiler in (verifier_source, solution_source):
        with pytest.raises(PipelineError, match="is a list, not one value"):
            compiler(with_rule(Cmp(fn="=", left=boss, right=over)))
    single = with_rule(ir.All(var="x", over=boss, body=Const(value=True)))
    with pytest.raises(PipelineError, match="can't run over the entity slot 'boss'"):
        evaluate(single, random_tables(Random(0)), {})


# --- arguments and reads ---------------------------------------------------------------------


def test_a_frame_notes_the_rows_that_were_read() -> None:
    sample = SAMPLES["c_refund"]
    refund = next(a for a in sample.problem.access if a.tool == "refund_item")
    rules = rules_of(sample.problem)
    frame = rules.compiler.frame(sample.tables)
    frame.args, frame.reads = {"item_id": "i1", "method": "card"}, set()
    for pre in refund.pre:
        scope = oracle.Scope(sample.problem, sample.tables, sample.tables, args=frame.args)
        assert rules.value(pre.expr, frame) == oracle.interpret(pre.expr, scope)
    assert ("items", "i1") in frame.reads
    assert ("items", "i2") not in frame.reads


# --- what can't be listed --------------------------------------------------------------------


def listing(slot: Slot) -> Problem:
    layout = {slot.name: {"$slot": slot.name}}
    return wild_problem(3)[0].model_copy(
        update={"slots": (slot,), "layout": layout, "clauses": (), "goal": ir.Satisfy()}
    )


SPOTS = Query(var="r", relation="spots")
DIGITS = ir.IntRange(low=0, high=9)
UNLISTED = {
    "has no length": Slot(name="tour", kind="sequence", domain=SPOTS),
    "more than 20000 values": Slot(name="tour", kind="sequence", domain=DIGITS, length=5),
    "map slot 'tour' has more": Slot(
        name="tour", kind="map", domain=ir.IntRange(low=0, high=30_000), key_domain=SPOTS
    ),
    "set slot 'tour' has more": Slot(name="tour", kind="set", domain=ir.IntRange(low=0, high=99)),
    "is an aggregate": Slot(
        name="tour", kind="value", domain=SPOTS.model_copy(update={"agg": "count"})
    ),
}


@pytest.mark.parametrize(("reason", "slot"), UNLISTED.items(), ids=lambda part: str(part)[:9])
def test_slots_that_cannot_be_listed_are_refused_by_name(reason: str, slot: Slot) -> None:
    problem, tables = listing(slot), wild_problem(3)[1]
    for ask in (
        lambda: next(solve(problem, tables, Random(0))),
        lambda: count(problem, tables),
        lambda: density(problem, tables, Random(0)),
        lambda: next(near_misses(problem, tables, {"tour": []}, Random(0))),
    ):
        with pytest.raises(NotEnumerableError, match=reason) as refusal:
            ask()
        assert "'tour'" in str(refusal.value)
        assert refusal.value.hint
