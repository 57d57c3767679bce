"""Bounds at the k-th best answer, against every answer there is: both senses, terms that read two slots."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from generated import Tools, database
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.core.errors import ConfigError
from envgen.core.ir import Cmp, Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.analysis import Analysis, OpenTask
from envgen.pipelines.general.authoring.answers import AnswerTuner
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.authoring.tasks import Tasks
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.elimination import nth_least
from envgen.pipelines.general.space.model import StepBudget
from envgen.pipelines.general.space.near_misses import near_misses
from envgen.pipelines.general.space.search import Search

ROOT = Path(__file__).parents[3]
HUDDLES = (ROOT / "tests/data/pages/huddles.toml").read_text("utf-8")
KILNS = """
id = "kilns"
category = "kilns"
title = "Kilns"
description = "A pottery with kilns and pots, with tools to look both up."
start = "place"
max_level = 2
steps = [{ name = "add_pot", levels = [1], grow = true }]
[lists]
kiln_names = "Alder Birch Cedar Elm Fir Hazel Holly Larch"
pot_names = "Amphora Beaker Bowl Crock Ewer Flask Jar Jug"
[tables.kilns]
key = "name"
rows = "5"
[tables.kilns.columns]
name = "str = distinct(kiln_names)"
heat = "int = ints(2, 9)"
price = "int = ints(3, 20)"
[tables.pots]
key = "name"
rows = "4 + n"
[tables.pots.columns]
name = "str = distinct(pot_names)"
heat = "int = ints(2, 5)"
clay = "int = ints(1, 4)"
[tools]
list_kilns = { call = "list_kilns() -> (name, heat, price)", of = "kilns", text = "All kilns." }
list_pots = { call = "list_pots() -> (name, heat, clay)", of = "pots", text = "All pots." }
[params]
pot = "pots"
hours = "edge(share=60)"
total = "edge(best=BEST)"
[phrases.hot]
about = "all"
texts = "The kilns of all {n} pots must be as hot as the pots need."
means = "all(kiln[k].heat >= param.pot[k].heat for k in range(1, n + 1))"
[phrases.apart]
about = "all"
texts = "The {n} pots must be fired in different kilns."
means = "different([kiln[k] for k in range(1, n + 1)])"
[phrases.long]
about = "all"
texts = "The {n} pots may be fired for {param:hours} hours in all, or SENSE_HOURS."
means = "sum(hour[k] * param.pot[k].clay for k in range(1, n + 1)) LESS_HOURS param.hours"
[phrases.price]
about = "all"
texts = "The sum over the {n} pots of the kiln's price times its hours must be {param:total} or SENSE."
means = "TERMS LESS param.total"
[scenes.place]
opening = "Find a kiln and hours (1 to 5) for each of {n} pots: {each: pot {k} is {param:pot_{k}}}."
tables = "kilns pots"
tools = "list_kilns list_pots"
each = "pot"
least = 2
most = 3
slots = { kiln = "kilns", hour = "whole(1, 5)" }
asks = "hot apart long price"
[placeholders]
"kiln_{k}" = "kiln name"
"""
HOURS = "sum(hour[k] * param.pot[k].clay for k in range(1, n + 1))"
TERMS = {
    "product": "sum(kiln[k].price * hour[k] for k in range(1, n + 1))",
    "apart": "sum(kiln[k].price for k in range(1, n + 1)) + sum(hour[k] for k in range(1, n + 1)) + 3",
    "chained": "sum(kiln[k].price * hour[k] for k in range(1, n + 1)) + (4 if hour[1] == hour[2] else 0)",
    "whole": "kiln[1].price * hour[1] * hour[2] + hour[n]",
}


def kilns(
    best: int = 3, less: str = "<=", terms: str = "product", *, window: bool = False
) -> Tasks:
    """The small page: its sum, its sense, how many answers are as good as its bound.

    With a window, the other bound is one of the same sum, from the other side.
    """
    text = KILNS.replace(HOURS, "TERMS") if window else KILNS
    text = text.replace("BEST", str(best)).replace("TERMS", TERMS[terms])
    more = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}[less]  # the other sum pulls the other way
    words = {"<=": "less", "<": "a bit more", ">=": "more", ">": "a bit less"}
    text = text.replace("LESS_HOURS", more[0] + "=").replace("LESS", less)
    text = text.replace("SENSE_HOURS", words[more]).replace("SENSE", words[less])
    return Tasks(read_page(text))


def sums(problem: Problem, tables: Tables) -> list[int]:
    """The value of the measured sum in every answer that keeps all other rules, by brute force."""
    others = problem.model_copy(
        update={"clauses": tuple(c for c in problem.clauses if not c.id.startswith("price"))}
    )
    price = next(c.expr for c in problem.clauses if c.id.startswith("price"))
    assert isinstance(price, Cmp)
    model = build_model(others, tables, clauses=False)
    measure = model.compiler.compile(price.left)
    accepted = build_model(others, tables)
    found = []
    for values in Search(model).run(Random(0), StepBudget(10**9)):
        if accepted.acceptor()(values):
            model.frame.slots[:] = values
            found.append(measure(model.frame))
    return found


def test_the_brute_force_is_the_reference() -> None:
    drawn = kilns().first(rng(1, "kilns"))
    assert drawn is not None
    right = list(solve(*drawn, Random(0)))
    bound = drawn.problem.params["total"]
    assert isinstance(bound, int)
    assert len(right) == sum(value <= bound for value in sums(*drawn))
    assert all(all(evaluate(*drawn, answer).values()) for answer in right)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    best=st.integers(1, 20),
    less=st.sampled_from(["<=", "<", ">=", ">"]),
    terms=st.sampled_from(sorted(TERMS)),
    window=st.booleans(),
)
def test_the_kth_best_answer_meets_the_bound_and_what_comes_behind_a_gap_does_not(
    seed: int, best: int, less: str, terms: str, window: bool
) -> None:
    drawn = kilns(best, less, terms, window=window).first(rng(seed, "kilns"))
    if drawn is None:  # on no rows does each of the rules matter for the k-th best
        return
    bound = drawn.problem.params["total"]
    assert isinstance(bound, int)
    values = sorted(sums(*drawn), reverse=less[0] == ">")
    kth = values[best - 1]
    sign = 1 if less[0] == "<" else -1
    right = sum(sign * value <= sign * kth for value in values)
    for i in range(best - 1, min(best + 2, len(values) - 1)):  # a gap soon behind it is as good
        if sign * (values[i + 1] - values[i]) > 1:
            right = i + 1
            break
    assert best <= right < len(values)
    end = bound - sign * (len(less) == 1)  # the last value that meets it
    assert sign * values[right - 1] <= sign * end < sign * values[right]
    assert count(*drawn, space="unconditioned").low == right
    broken = {rule for _, rule in near_misses(*drawn, next(solve(*drawn, Random(0))), Random(0))}
    assert broken == {clause.id for clause in drawn.problem.clauses}


@pytest.mark.parametrize("terms", ["product", "apart"])
@pytest.mark.parametrize("less", ["<=", ">="])
def test_what_cannot_come_up_to_the_other_bound_of_a_sum_is_not_searched(
    terms: str, less: str
) -> None:
    tasks = kilns(3, less, terms, window=True)
    drawn = filter(None, (tasks.first(rng(i, "kilns")) for i in range(40)))
    analysed = ((Analysis(each.problem, tasks.blueprint), each.tables) for each in drawn)
    tuners = (AnswerTuner(OpenTask(*one, rng(2, "kilns"), {})) for one in analysed)
    tuner = next(one for one in tuners if one.params() is not None)
    ranking, found = tuner.tight.ranking, []
    assert ranking is not None
    for _ in range(2):
        budget = StepBudget(10**6)
        found.append(([answer.total for answer in ranking.best(3, budget)], budget.steps))
        ranking.floors.clear()
    (totals, left), (same, slow) = found
    assert totals == same
    assert left > slow


def drafted(best: int, less: str, terms: str) -> tuple[Problem, Tables]:
    """Three pots on the small page."""
    tasks = kilns(best, less, terms)
    first = tasks.first(rng(3, "kilns"))
    harder = first and tasks.harder(tasks.blueprint.operators(1)[0], first.problem, rng(4, "kilns"))
    assert harder is not None
    return harder


@pytest.mark.parametrize("less", ["<=", ">="])
@pytest.mark.parametrize("terms", ["product", "apart", "chained"])
def test_elimination_finds_the_same_bound(terms: str, less: str) -> None:
    problem, tables = drafted(4, less, terms)
    sign = 1 if less == "<=" else -1
    kept = tuple(c for c in problem.clauses if not c.id.startswith("long"))
    loose = {**problem.params, "total": sign * 10**9}
    problem = problem.model_copy(update={"clauses": kept, "params": loose})
    values = sorted(sign * value for value in sums(problem, tables))
    for k in (1, 2, 5, len(values) // 2):
        model = build_model(problem, tables)
        rest = 10**9 - model.linears[0].bound
        least = nth_least(model, k)
        assert least is not None
        assert least + rest == values[k - 1]
    assert nth_least(build_model(problem, tables), len(values) + 1) is None


def test_what_search_leaves_elimination_tunes(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, (problem, _) = kilns(4, "<=", "apart"), drafted(4, "<=", "apart")
    monkeypatch.setattr("envgen.pipelines.general.authoring.tight._STEPS", 0)
    again = tasks.reseeded(problem, rng(0, "again"))
    assert again is not None
    assert sorted(sums(*again))[3] == again.problem.params["total"]
    broken = {rule for _, rule in near_misses(*again, next(solve(*again, Random(0))), Random(0))}
    assert broken == {clause.id for clause in again.problem.clauses}


def test_rows_on_which_the_best_answers_take_too_long_are_given_up() -> None:
    text = KILNS.replace("BEST", "3").replace("LESS_HOURS", ">=").replace("LESS", "<=")
    product = "kiln[1].price * hour[1] * kiln[2].price * hour[2] * kiln[3].price * hour[3]"
    text = (
        text.replace("TERMS", product)
        .replace("least = 2", "least = 3")
        .replace("(1, 5)", "(1, 40)")
    )
    tasks = Tasks(
        read_page(text.replace("(1 to 5)", "(1 to 40)").replace("max_level = 2", "max_level = 1"))
    )
    structure = tasks.blueprint.begin("place", rng(0, "kilns"))
    analysis = Analysis(tasks.blueprint.problem(structure), tasks.blueprint)
    tables = tasks.blueprint.draw_tables(structure, rng(1, "kilns"))
    assert AnswerTuner(OpenTask(analysis, tables, rng(2, "kilns"), {})).params() is None
    assert analysis.failed["the k-th best answer takes too long to find"] == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("best=3", "best=3, step=10", "can't have step=10"),
        ("best=3", "share=5, best=3", "can't have share=5"),
        ("best=3", "best=0", "an edge has no best=0"),
        ("best=3", "best=21", "an edge has no best=21"),
        ("best=3", "best=True", "an edge has no best=True"),
        ("sum(fee(time[k], room[k]) for k in range(1, n + 1))",
         "start(time[1])", "not about several items"),
        ("<= param.total\"", "<= param.total or n == 9 or time[1] == time[2]\"", "not a whole rule"),
    ],
)  # fmt: skip
def test_a_page_that_asks_for_what_best_is_not_is_refused(old: str, new: str, words: str) -> None:
    assert old in HUDDLES
    with pytest.raises(ConfigError, match=words):
        Tasks(read_page(HUDDLES.replace(old, new)))


def test_bounds_are_set_in_page_order_but_the_best_one_last() -> None:
    text = KILNS.replace('hours = "edge(share=60)"\ntotal = "edge(best=BEST)"',
                         'total = "edge(best=3)"\nhours = "edge(share=60)"')  # fmt: skip
    text = text.replace("TERMS", TERMS["product"]).replace("LESS_HOURS", ">=").replace("LESS", "<=")
    drawn = Tasks(read_page(text)).first(rng(5, "kilns"))
    assert drawn is not None
    total, every = drawn.problem.params["total"], sorted(sums(*drawn))
    assert isinstance(total, int)
    assert every[2] <= total < next(one for one in every if one > total)
    assert sum(one <= total for one in every) <= 6


def test_no_shortcut_solves_a_task_with_such_a_bound() -> None:
    refused = 0
    for seed in range(12):
        tasks = kilns(12, "<=", "apart")
        found = tasks.first(rng(seed, "kilns"))
        refused += sum(times for why, times in tasks._failed().items() if why.endswith("solves it"))
        if found is not None:
            game = AnswerGame(*found)
            players = (game.first_row, game.first_fit, game.greedy)
            assert not any(game.passes(player()) for player in players)
    assert refused  # among so many right answers they find one now and then


def test_the_solution_prunes_by_a_bound_over_two_slots_of_an_item(tmp_path: Path) -> None:
    tasks = Tasks(read_page(HUDDLES))
    first = tasks.first(rng(0, "huddles"))
    harder = first and tasks.harder(
        tasks.blueprint.operators(1)[0], first.problem, rng(1, "huddles")
    )
    assert harder is not None
    source = solution_source(harder.problem)
    assert source.index("BOUNDS = [\n") < source.index("cost at most")
    tools = Tools(
        harder.problem, database(harder.problem, harder.tables, tmp_path / "a"), tmp_path / "b"
    )
    names = {"combinations": combinations, "product": product, **tools.proxies()}
    exec(compile(source, "<solution>", "exec"), names)
    solve_it: Any = names["solve"]
    answer = solve_it()
    tools.close()
    assert all(evaluate(*harder, answer).values())
    assert len(tools.calls) <= len(harder.tables["rooms"]) * 2 + len(harder.tables["people"]) + 10


PRINT = """
from pathlib import Path
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.tasks import Tasks
from envgen.pipelines.general.authoring.page_files import read_page
tasks = Tasks(read_page(Path("tests/data/pages/huddles.toml").read_text("utf-8")))
first = tasks.first(rng(0, "huddles"))
for i in range(3):
    print(tasks.reseeded(first.problem, rng(i, "again")))
"""


def test_the_same_seed_gives_the_same_bounds_whatever_the_hash_seed() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-P", "-c", PRINT],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert b"total" in texts.pop()


def test_rows_on_which_nothing_breaks_a_rule_alone_are_given_up_early() -> None:
    """Where every kiln is hot enough for every pot, no choice of pots breaks the rule about heat."""
    tasks = kilns()
    found = tasks.first(rng(1, "kilns"))
    assert found is not None
    analysis = Analysis(found.problem, tasks.blueprint)
    reason = "nothing breaks the rule 'hot' alone"
    hot = {name: {**row, "heat": 9} for name, row in found.tables["kilns"].items()}
    tables = {**found.tables, "kilns": hot}
    assert AnswerTuner(OpenTask(analysis, tables, rng(2, "kilns"), {})).params() is None
    assert 1 <= analysis.failed[reason] <= 2  # of 40 choices
    assert AnswerTuner(OpenTask(analysis, found.tables, rng(2, "kilns"), {})).params()
