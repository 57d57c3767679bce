from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from generated import database, draw, read, solve, verifier
from ladders import ladder
from sample_problems import SAMPLES, Sample

from envgen.core.errors import PipelineError
from envgen.core.ir import (
    NEAREST,
    Arith,
    Clause,
    Cmp,
    Const,
    Count,
    Get,
    If,
    Optimise,
    Param,
    Reach,
    SlotRef,
)
from envgen.environments.checker import check_solution
from envgen.pipelines.general.domains import DOMAINS, load_tasks
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.programs.solution_search import SEARCH
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.tools_source import tool_specs
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.layout import fill_layout
from envgen.pipelines.general.semantics.rewrite import strict
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import submit_schema

FACTORS = (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.5, 3)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_solution_of_a_sample_is_accepted(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    initial = database(sample.problem, sample.tables, tmp_path / "initial.sqlite")
    source = solution_source(sample.problem)
    answer, tools = solve(sample.problem, source, initial, tmp_path / "final.sqlite")
    assert verifier(sample.problem)(answer, str(initial), str(tools.path)) == []
    final = read(sample.problem, tools.path)
    assert all(evaluate(sample.problem, sample.tables, answer, final).values())
    assert 0 < len(tools.calls) < 200
    lines = [line for line in source.splitlines() if not line.startswith("PARAMS")]
    assert max(map(len, lines)) <= 100


def _feasible(sample: Sample, rng: random.Random) -> bool:
    """Whether one of many drawn answers is accepted: only a lower bound."""
    p = sample.problem
    for _ in range(300):
        answer = fill_layout(p.layout, {s.name: draw(s, sample.tables, rng) for s in p.slots})
        if all(evaluate(p, sample.tables, answer).values()):
            return True
    return False


@pytest.mark.parametrize(
    "name", [name for name, s in SAMPLES.items() if not isinstance(s.problem.goal, Reach)]
)
def test_other_parameters_are_solved_or_found_infeasible(name: str, tmp_path: Path) -> None:
    sample, rng = SAMPLES[name], random.Random(name)
    initial = database(sample.problem, sample.tables, tmp_path / "initial.sqlite")
    outcomes = set()
    for i in range(12):
        params = {
            key: round(value * rng.choice([0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.5, 3]))
            if type(value) is int
            else value
            for key, value in sample.problem.params.items()
        }
        p = sample.problem.model_copy(update={"params": params})
        retuned = sample._replace(problem=p)
        answer, tools = solve(p, solution_source(p), initial, tmp_path / f"final{i}.sqlite")
        if answer is None:
            assert not _feasible(retuned, rng), params
        else:
            assert verifier(p)(answer, str(initial), str(tools.path)) == [], params
        outcomes.add(answer is None)
    assert False in outcomes


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_level_of_a_domain_is_solved_also_when_re_seeded(domain: str, tmp_path: Path) -> None:
    tasks, rng = load_tasks(domain), random.Random(domain)
    for level, (problem, tables) in enumerate(ladder(domain, 11), start=1):
        source = solution_source(problem)
        rendered = prompt(problem, tasks.lexicon)
        words = f"{rendered.text}\n{rendered.policy_text}"
        specs = tool_specs(problem.relations, problem.access)
        assert check_solution(source, specs, words, submit_schema(problem, tables)) == []
        fresh = tasks.reseeded(problem, rng)
        versions = [(problem, tables)]
        versions += [(problem, fresh.tables), fresh] if fresh is not None else []
        for i, (p, rows) in enumerate(versions):
            initial = database(p, rows, tmp_path / f"{level}-{i}.sqlite")
            final = tmp_path / f"{level}-{i}-final.sqlite"
            answer, tools = solve(p, replace_params(source, dict(p.params)), initial, final)
            assert len(tools.calls) <= 2000
            if answer is not None and not (i == 1 and p.giving_way):
                assert verifier(p)(answer, str(initial), str(final)) == [], (level, i)
            else:
                assert i == 1, level


def test_only_the_params_line_depends_on_the_parameters() -> None:
    problem = SAMPLES["a_trip"].problem
    other = {**problem.params, "budget": 7}
    retuned = solution_source(problem.model_copy(update={"params": other}))
    assert replace_params(solution_source(problem), other) == retuned


def test_a_tight_trip_is_solved_or_refuted_quickly(tmp_path: Path) -> None:
    problem, tables = ladder("trip", 11)[-1]
    initial = database(problem, tables, tmp_path / "initial.sqlite")
    outcomes = []
    for percent in (100, 90, 75, 50, 25):
        budget = problem.params[NEAREST]
        assert isinstance(budget, int)
        params = {**problem.params, "tightest": budget * percent // 100}
        p = strict(problem.model_copy(update={"params": params}))
        started = time.process_time()
        answer, tools = solve(p, solution_source(p), initial, tmp_path / f"{percent}.sqlite")
        assert time.process_time() - started < 3
        outcomes.append(answer is not None)
        if answer is not None:
            assert verifier(p)(answer, str(initial), str(tools.path)) == []
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {True, False}


def test_the_search_is_the_same_text_in_every_solution() -> None:
    searching = [SAMPLES[name].problem for name in ("a_trip", "a_stay", "e_meetings")]
    searching += [problem for problem, _ in ladder("trip", 11)[5:]]
    for problem in searching:
        assert SEARCH in solution_source(problem)
    assert SEARCH not in solution_source(SAMPLES["b_cheapest"].problem)


def test_rules_that_differ_in_numbers_are_one_function() -> None:
    source = solution_source(ladder("office", 11)[9][0])
    for rule in ("free", "seats"):
        assert source.count(f"def {rule}(meeting):") == 1
        for k in (1, 2, 3):
            assert f'{rule}(PARAMS["meeting_{k}"])' in source
    assert source.count("bookings_by_room(room)") == 1


@pytest.mark.parametrize("goal", [False, True])
@pytest.mark.parametrize("cheap", [250, 800, 901])
def test_one_slot_needs_no_search(cheap: int, goal: bool, tmp_path: Path) -> None:
    stay = SAMPLES["a_stay"]
    clause = next(c for c in stay.problem.clauses if c.id == "not_cheap")
    asked = SAMPLES["b_cheapest"].problem.goal
    changed: dict[str, Any] = {
        "slots": stay.problem.slots[:1],
        "clauses": (clause,),
        "layout": {"hotel": {"$slot": "hotel"}},
        "params": {"cheap": cheap, "city": "Brook", "stars": 4},
    }
    p = stay.problem.model_copy(update=changed | ({"goal": asked} if goal else {}))
    source = solution_source(p)
    assert "def search" not in source
    initial = database(p, stay.tables, tmp_path / "initial.sqlite")
    answer, _ = solve(p, source, initial, tmp_path / "final.sqlite")
    assert (answer is None) == (cheap > 900 or (goal and cheap > 800))
    assert answer is None or verifier(p)(answer, str(initial), str(initial)) == []


def test_all_subsets_are_tried_where_their_size_is_free(tmp_path: Path) -> None:
    sample = SAMPLES["a_stay"]
    slots = [s.model_copy(update={"length": None}) if s.kind == "set" else s
             for s in sample.problem.slots]  # fmt: skip
    params = {**sample.problem.params, "meals": 270}  # all three restaurants of the one city
    p = sample.problem.model_copy(update={"slots": tuple(slots), "params": params})
    initial = database(p, sample.tables, tmp_path / "initial.sqlite")
    answer, _ = solve(p, solution_source(p), initial, tmp_path / "final.sqlite")
    assert answer["restaurants"] == ["Alba", "Basil", "Clove"]
    assert verifier(p)(answer, str(initial), str(initial)) == []


@pytest.mark.parametrize(
    ("fn", "bound", "feasible"),
    [
        ("<", 401, True), ("<", 400, False), ("<=", 400, True), ("<=", 399, False),
        (">", 1799, True), (">", 1800, False), (">=", 1800, True), (">=", 1801, False),
    ],
)  # fmt: skip
def test_a_sum_is_bounded_to_the_unit(fn: Any, bound: int, feasible: bool, tmp_path: Path) -> None:
    """Two nights in hotels that cost 200 to 900 each; no constant but the bound is needed."""
    trip = SAMPLES["a_trip"]
    price = [
        Get(relation="hotels", entity=SlotRef(slot=f"hotel_{k}"), column="price") for k in "12"
    ]
    both = Arith(fn="+", left=price[0], right=price[1])
    expr = Cmp(fn=fn, left=both, right=Const(value=bound))
    rule = Clause(id="both", family="sum", expr=expr, text_key="both")
    slots = tuple(slot for slot in trip.problem.slots if slot.name.startswith(("city", "hotel")))
    layout: dict[str, Any] = {slot.name: {"$slot": slot.name} for slot in slots}
    changed = {"slots": slots, "clauses": (rule,), "layout": layout, "params": {}}
    p = trip.problem.model_copy(update=changed)
    source = solution_source(p)
    specs = tool_specs(p.relations, p.access)
    assert check_solution(source, specs, f"{fn} {bound}", {"properties": layout}) == []
    initial = database(p, trip.tables, tmp_path / "initial.sqlite")
    answer, _ = solve(p, source, initial, tmp_path / "final.sqlite")
    assert (answer is not None) == feasible
    assert not feasible or verifier(p)(answer, str(initial), str(initial)) == []


def test_texts_of_two_slots_compare_and_are_no_sum(tmp_path: Path) -> None:
    """Days are texts: a rule that puts those of two slots in order was once written as a sum of both."""
    trip = SAMPLES["a_trip"]
    city = [Get(relation="hotels", entity=SlotRef(slot=f"hotel_{k}"), column="city") for k in "12"]
    rule = Clause(
        id="order", family="order", expr=Cmp(fn=">", left=city[0], right=city[1]), text_key="order"
    )
    slots = tuple(slot for slot in trip.problem.slots if slot.name.startswith("hotel"))
    layout: dict[str, Any] = {slot.name: {"$slot": slot.name} for slot in slots}
    changed = {"slots": slots, "clauses": (rule,), "layout": layout, "params": {}}
    p = trip.problem.model_copy(update=changed)
    initial = database(p, trip.tables, tmp_path / "initial.sqlite")
    answer, _ = solve(p, solution_source(p), initial, tmp_path / "final.sqlite")
    first, second = (trip.tables["hotels"][answer[slot]]["city"] for slot in layout)
    assert first > second
    assert verifier(p)(answer, str(initial), str(initial)) == []


def test_a_best_value_that_no_search_bounds_is_a_clear_error() -> None:
    """What three slots add together, or what may be unknown, can't be summed slot by slot."""
    problem = SAMPLES["a_stay"].problem
    price = Get(relation="hotels", entity=SlotRef(slot="hotel"), column="price")
    few = Cmp(
        fn="<",
        left=Count(var="r", over=SlotRef(slot="tables"), body=Const(value=True)),
        right=Const(value=2),
    )
    parts = If(test=few, then=price, other=SlotRef(slot="nights"))
    goal = Optimise(sense="min", expr=parts, bound=Param(name="optimum"), text_key="least")
    with pytest.raises(PipelineError, match="a part of the sum reads 3 slots"):
        solution_source(problem.model_copy(update={"goal": goal}))


def test_rows_without_tools_are_a_clear_error() -> None:
    problem = SAMPLES["b_cheapest"].problem
    with pytest.raises(PipelineError, match="no tools lead to"):
        solution_source(problem.model_copy(update={"access": problem.access[:1]}))
