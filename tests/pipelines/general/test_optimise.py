"""The best of all answers, from a page to every gate, against every answer there is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from cli_runs import ROOT
from generated import database
from generated import solve as run_solution

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.difficulty.facts import facts
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates import execution, meaning, soundness
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import build_model
from envgen.pipelines.general.space.model import StepBudget
from envgen.pipelines.general.space.search import Search
from envgen.pipelines.general.words.prompt import parse

FIRING = """
id = "firing"
category = "firing"
title = "Firing"
description = "A pottery with kilns and pots, with tools to look both up."
start = "place"
max_level = 2
steps = [{ name = "add_pot", levels = [1], grow = true }]
[lists]
kiln_names = "Alder Birch Cedar Elm Fir Hazel Holly Larch"
pot_names = "Amphora Beaker Bowl Crock Ewer Flask Jar Jug"
[tables.kilns]
key = "name"
rows = "7"
[tables.kilns.columns]
name = "str = distinct(kiln_names)"
heat = "int = ints(2, 9)"
price = "int = ints(3, 40)"
[tables.pots]
key = "name"
rows = "4 + n"
[tables.pots.columns]
name = "str = distinct(pot_names)"
heat = "int = ints(2, 7)"
hours = "int = ints(1, 4)"
[tools]
list_kilns = { call = "list_kilns() -> (name, heat, price)", of = "kilns", text = "All kilns." }
list_pots = { call = "list_pots() -> (name, heat, hours)", of = "pots", text = "All pots." }
[params]
pot = "pots"
[phrases.hot]
about = "all"
texts = "The kilns of all {n} pots must be as hot as the pots need."
means = "all(kiln[k].heat >= param.pot[k].heat for k in range(1, n + 1))"
[phrases.apart]
about = "all"
texts = "The {n} pots must be fired in different kilns."
means = "different([kiln[k] for k in range(1, n + 1)])"
[phrases.cost]
kind = "optimise"
about = "all"
texts = "Of all ways give one with the WORD sum, over the {n} pots, of kiln's price times pot's hours."
means = "SENSE(TERMS)"
[scenes.place]
opening = "Find a kiln for each of {n} pots: {each: pot {k} is {param:pot_{k}}}."
tables = "kilns pots"
tools = "list_kilns list_pots"
each = "pot"
least = 3
most = 4
slots = { kiln = "kilns" }
asks = "hot apart cost"
[placeholders]
"kiln_{k}" = "kiln name"
"""
TERMS = {
    "single": "sum(kiln[k].price * param.pot[k].hours for k in range(1, n + 1))",
    "pairs": "sum(kiln[k].price * kiln[k + 1].heat for k in range(1, n)) + 3",
}


@cache
def page(sense: str = "least", terms: str = "single") -> str:
    text = FIRING.replace("WORD", {"least": "lowest", "most": "highest"}[sense])
    return read_page(text.replace("SENSE", sense).replace("TERMS", TERMS[terms])).text


def value_of(problem: Problem, tables: Tables) -> Callable[[list[object]], int]:
    goal = problem.goal
    assert isinstance(goal, ir.Optimise)
    model = build_model(problem, tables, clauses=False)
    run = model.compiler.compile(goal.expr)

    def value(values: list[object]) -> int:
        model.frame.slots[:] = values
        found: int = run(model.frame)
        return found

    return value


def best_value(problem: Problem, tables: Tables) -> int:
    """The best of every answer that keeps all rules, by listing them."""
    model = build_model(problem.without("goal"), tables)
    found = Search(model).run(Random(0), StepBudget(10**9))
    values = list(map(value_of(problem, tables), found))
    assert isinstance(problem.goal, ir.Optimise)
    return min(values) if problem.goal.sense == "min" else max(values)


@pytest.mark.parametrize("sense", ["least", "most"])
@pytest.mark.parametrize("terms", sorted(TERMS))
def test_the_bound_and_what_the_solution_finds_are_the_best_there_is(
    sense: str, terms: str, tmp_path: Path
) -> None:
    built = tasks_from(page(sense, terms))
    tried = 0
    for seed in range(6):
        task = built.first(rng(seed, "firing"))
        if task is None:
            continue
        tried += 1
        problem, tables = task
        assert problem.shape == "D"
        assert problem.params["optimum"] == best_value(problem, tables)
        source = solution_source(problem)
        assert "optimum" not in source
        path = database(problem, tables, tmp_path / f"{seed}.sqlite")
        answer, _ = run_solution(problem, source, path, tmp_path / f"{seed}-final.sqlite")
        assert all(evaluate(problem, tables, answer).values())
        other = built.reseeded(problem, rng(seed, "again"))
        assert other is None or other.problem.params["optimum"] == best_value(*other)
    assert tried >= 3


def test_the_prompt_states_the_goal_and_not_the_bound() -> None:
    draft = proven()
    assert draft.problem is not None
    built = tasks_from(page())
    parsed = parse(draft.prompt, draft.problem.relations, built.lexicon)
    assert parsed.goal == draft.problem.goal
    assert parsed.params.keys() == draft.problem.params.keys() - {"optimum"}


@cache
def proven() -> Draft:
    with Hosts(backend="process", trusted=True) as hosts:
        return _proven(hosts, page(), 1)


def _proven(hosts: Hosts, text: str, level: int) -> Draft:
    author, reasons = ProceduralAuthor(), []
    for seed in range(4):
        draft = author.draft(DraftRequest(domain="firing", page=text, level=level), seed)
        assert isinstance(draft, Draft), draft
        proof = prove(draft, hosts, author=author)
        if proof.passed:
            (gate,) = (gate for gate in proof.evidence if gate.gate == "certified")
            assert draft.problem is not None
            assert gate.details["optimum"] == draft.problem.params["optimum"]
            return draft
        reasons.append(failure(proof.evidence))
    pytest.fail(f"no draft was proven: {reasons}")


@pytest.mark.parametrize(("sense", "level"), [("least", 2), ("most", 1)])
def test_every_gate_passes(sense: str, level: int) -> None:
    with Hosts(backend="process", trusted=True) as hosts:
        _proven(hosts, page(sense), level)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(backend="process", trusted=True) as started:
        yield started


@pytest.mark.parametrize("by", [-1, 1], ids=["too strict", "too lax"])
def test_a_bound_that_is_not_the_optimum_is_no_certificate(
    by: int, hosts: Hosts, tmp_path: Path
) -> None:
    draft = proven()
    problem = draft.problem
    assert problem is not None
    params = {**problem.params, "optimum": _optimum(problem) + by}
    other = replace(draft, problem=problem.model_copy(update={"params": params}))
    found = gate_result(meaning.certified, other, hosts, tmp_path)
    assert found.status is GateStatus.FAILED
    assert found.reason == ("no answer reaches the bound" if by < 0 else "an answer is better")


@pytest.mark.parametrize("by", [-1, 1], ids=["too strict", "too lax"])
def test_a_verifier_with_another_bound_is_caught(by: int, hosts: Hosts, tmp_path: Path) -> None:
    draft = proven()
    assert draft.problem is not None
    optimum = _optimum(draft.problem)
    verifier, n = re.subn(r'"optimum": \d+', f'"optimum": {optimum + by}', draft.verifier)
    assert n == 1
    other = replace(draft, verifier=verifier)
    assert gate_result(meaning.stated, other, hosts, tmp_path).status is GateStatus.FAILED
    assert gate_result(execution.compiled, other, hosts, tmp_path).status is GateStatus.FAILED


@pytest.mark.parametrize(
    ("edit", "gate"),
    [
        ("<= :param_optimum - 1", execution.gold),
        ("<= :param_optimum * 1000", soundness.near_misses),
    ],
    ids=["too strict", "too lax"],
)
def test_a_verifier_that_compares_otherwise_is_caught_by_judging(
    edit: str, gate: Callable[[Trial], GateResult], hosts: Hosts, tmp_path: Path
) -> None:
    draft = proven()
    assert draft.verifier.count("<= :param_optimum") == 1
    other = replace(draft, verifier=draft.verifier.replace("<= :param_optimum", edit))
    assert gate_result(gate, other, hosts, tmp_path).status is GateStatus.FAILED


def gate_result(
    gate: Callable[[Trial], GateResult], draft: Draft, hosts: Hosts, folder: Path
) -> GateResult:
    with closing(Trial(draft, hosts, folder, ProceduralAuthor(), seed=1)) as trial:
        return gate(trial)


def _optimum(problem: Problem) -> int:
    value = problem.params["optimum"]
    assert isinstance(value, int)
    return value


def test_that_nothing_is_better_rests_on_all_rows(hosts: Hosts, tmp_path: Path) -> None:
    draft = proven()
    assert draft.problem is not None
    with closing(Trial(draft, hosts, tmp_path, ProceduralAuthor(), seed=1)) as trial:
        cells = facts(draft.problem, draft.tables, trial.gold)
    assert {("kilns", key, "price") for key in draft.tables["kilns"]} <= cells


def test_a_sum_over_sets_may_be_best(tmp_path: Path) -> None:
    """The transfers of ``settle.toml``, paid by invoices of the earliest weeks."""
    settle = page_file(ROOT / "tests/data/pages/settle.toml")
    phrase = settle.phrases["early"].model_copy(
        update={
            "kind": "optimise",
            "about": "all",
            "texts": ("Of all ways give one in which the weeks of all {n} add up to the least.",),
            "means": "least(sum(sum(i.week for i in pays[k]) for k in range(1, n + 1)))",
        }
    )
    params = {name: text for name, text in settle.params.items() if name != "early"}
    scene = settle.scenes["match"]
    scenes = {**settle.scenes, "match": scene.model_copy(update={"asks": (*scene.asks, "early")})}
    changed = settle.model_copy(
        update={
            "phrases": {**settle.phrases, "early": phrase}, "params": params, "id": "weeks",
            "scenes": scenes, "steps": (), "max_level": 1, "start": "match",
        }
    )  # fmt: skip
    task = tasks_from(changed.text).first(rng(2, "weeks"))
    assert task is not None
    problem, tables = task
    assert problem.params["optimum"] == best_value(problem, tables)
    path = database(problem, tables, tmp_path / "db.sqlite")
    answer, _ = run_solution(problem, solution_source(problem), path, tmp_path / "final.sqlite")
    assert all(evaluate(problem, tables, answer).values())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[params]\n", '[params]\noptimum = "edge"\n', "is the best value there is"),
        ("SENSE(TERMS)", "TERMS <= 3", "doesn't say what is to be best"),
        ("SENSE(TERMS)", "least(1, TERMS)", "doesn't say what is to be best"),
    ],
)
def test_what_a_page_may_not_say_of_the_best(old: str, new: str, reason: str) -> None:
    text = FIRING.replace(old, new).replace("SENSE", "least").replace("TERMS", TERMS["single"])
    with pytest.raises(ConfigError, match=reason):
        tasks_from(read_page(text).text)
