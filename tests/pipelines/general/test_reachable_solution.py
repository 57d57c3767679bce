"""What is reachable, in solutions: random links, read through whatever tools there are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from generated import database, read, solve, verifier

from envgen.core.ir import (
    Access,
    All,
    Arg,
    Choice,
    Clause,
    Cmp,
    Column,
    Const,
    Count,
    Equals,
    Get,
    IntRange,
    New,
    Param,
    Problem,
    Query,
    Reach,
    Reachable,
    Relation,
    Slot,
    SlotRef,
    Var,
    Write,
    WriteSet,
)
from envgen.environments.checker import check_solution
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.tools_source import tool_specs
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.evaluator import Compiler
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.words.schema import submit_schema

STEPS = Relation(
    name="steps",
    key="step",
    columns=(
        Column(name="step", type="str"),
        Column(name="after", type="str", nullable=True),
        Column(name="done", type="bool"),
    ),
)
LINKS = Relation(
    name="links",
    key="link",
    columns=(
        Column(name="link", type="str"),
        Column(name="near", type="entity:steps", nullable=True),
        Column(name="far", type="str", nullable=True),
    ),
)
ENDS = ("link", "near", "far")


def _tool(tool: str, relation: str, mode: Any, returned: tuple[str, ...], **more: Any) -> Access:
    return Access(
        tool=tool, relation=relation, mode=mode, description=tool, returned_columns=returned, **more
    )


STEP_TOOLS = (
    _tool("list_steps", "steps", "list", ("step",)),
    _tool("get_step", "steps", "info", ("after", "done"), args={"step": "step"}, projection="want"),
    Access(
        tool="finish",
        relation="steps",
        mode="write",
        description="Finish a step.",
        args={"step": "step"},
        effects=(
            Write(
                kind="update",
                relation="steps",
                key=Arg(name="step"),
                set={"done": Const(value=True)},
            ),
        ),
    ),
)
LINK_TOOLS = {
    "from one end": _tool("links_from", "links", "list", ENDS, args={"near": "near"}),
    "all at once": _tool("list_links", "links", "list", ENDS),
    "by pages": _tool("page_links", "links", "page", ENDS, args={"near": "near"}, page_size=2),
}


def _reachable(start: Any, relation: str, source: str, target: str) -> Reachable:
    return Reachable(start=start, relation=relation, source=source, target=target)


def _problem(tools: str, slots: tuple[Slot, ...], **changed: Any) -> Problem:
    layout: dict[str, Any] = {slot.name: {"$slot": slot.name} for slot in slots}
    return Problem(
        id="links",
        shape="A",
        relations=(STEPS, LINKS),
        access=(*STEP_TOOLS, LINK_TOOLS[tools]),
        slots=slots,
        layout=layout,
        params={"start": "s1", "late": "s2"},
        lexicon="none",
        **changed,
    )


def _tables(rng: random.Random) -> Tables:
    """Links at random: to oneself, in circles, to steps that don't exist, and to nothing."""
    steps = [f"s{i}" for i in range(1, 8)]
    ends = [*steps, None, "gone"]
    near = [step for step in ends if step != "gone"]
    links = [f"l{i}" for i in range(rng.randint(0, 20))]
    return {
        "steps": {
            s: {"step": s, "after": rng.choice(ends), "done": rng.random() < 0.3} for s in steps
        },
        "links": {x: {"link": x, "near": rng.choice(near), "far": rng.choice(ends)} for x in links},
    }


def _solved(p: Problem, rows: Tables, folder: Path) -> Any:
    """The generated solution's answer, which all rules accept."""
    source, specs = solution_source(p), tool_specs(p.relations, p.access)
    words = "start late s1 s2"
    assert check_solution(source, specs, words, submit_schema(p, rows)) == []
    initial = database(p, rows, folder / "initial.sqlite")
    answer, tools = solve(p, source, initial, folder / "final.sqlite")
    assert len(tools.calls) == len({str(call) for call in tools.calls})
    if answer is not None:
        assert verifier(p)(answer, str(initial), str(tools.path)) == []
        assert all(evaluate(p, rows, answer, read(p, tools.path)).values())
    return answer


NODES = [
    ("links", "near", "far"),
    ("links", "far", "near"),
    ("steps", "step", "after"),
    ("steps", "after", "step"),
]


@pytest.mark.parametrize("tools", LINK_TOOLS)
@pytest.mark.parametrize("node", NODES, ids=" ".join)
def test_a_solution_reaches_what_the_evaluator_reaches(
    tools: str, node: tuple[str, str, str], tmp_path: Path
) -> None:
    """As a set, by ``in``; as a number, by a fold; both searched for from a slot."""
    rng, sizes = random.Random(f"{tools}{node}"), set()
    for seed in range(10):
        rows, folder = _tables(rng), tmp_path / str(seed)
        folder.mkdir()
        over = _reachable(Param(name="start"), *node)
        inside = Cmp(fn="in", left=Var(name="s"), right=over)
        query = Query(var="s", relation="steps", where=inside)
        slot = Slot(name="step", kind="set", domain=Query(var="s", relation="steps"))
        asked = Equals(slot="step", query=query, text_key="reached")
        found = _solved(_problem(tools, (slot,), goal=asked), rows, folder)
        p = _problem(tools, ())
        expected = Compiler(p).compile(over)(Compiler(p).frame(rows))
        assert found == {"step": [key for key in expected if key in rows["steps"]]}
        (folder / "search").mkdir()
        assert _counted(tools, node, rows, folder / "search")
        sizes.add(len(expected))
    assert len(sizes) > 1


def _counted(tools: str, node: tuple[str, str, str], rows: Tables, folder: Path) -> bool:
    """Whether the search for a start and how many open steps it reaches ends as trying all of them does."""
    start = Slot(name="start", kind="entity", domain=Query(var="s", relation="steps"))
    size = Slot(name="size", kind="value", domain=IntRange(low=0, high=9))
    over = _reachable(SlotRef(slot="start"), *node)
    unfinished = Cmp(
        fn="=",
        left=Get(relation="steps", entity=Var(name="x"), column="done"),
        right=Const(value=False),
    )
    number = Count(var="x", over=over, body=unfinished)
    rule = Clause(
        id="most", family="most", text_key="most",
        expr=Cmp(fn="=", left=SlotRef(slot="size"), right=number),
    )  # fmt: skip
    p = _problem(tools, (start, size), clauses=(rule,))
    pairs: list[Any] = [{"start": key, "size": n} for key in rows["steps"] for n in range(10)]
    feasible = any(all(evaluate(p, rows, pair).values()) for pair in pairs)
    return (_solved(p, rows, folder) is not None) == feasible


@pytest.mark.parametrize("tools", LINK_TOOLS)
def test_a_workflow_acts_on_what_is_reachable(tools: str, tmp_path: Path) -> None:
    rng, calls = random.Random(tools), set()
    over = _reachable(Param(name="start"), "links", "near", "far")
    done = Get(relation="steps", entity=Var(name="s"), column="done")
    due = Cmp(fn="in", left=Var(name="s"), right=over)
    steps = Query(var="s", relation="steps", where=due)
    effect = Clause(
        id="finish_all", family="reach_all", text_key="finish_all",
        expr=All(var="s", over=steps, body=Cmp(fn="=", left=New(item=done), right=Const(value=True))),
    )  # fmt: skip
    outcome = Slot(name="outcome", kind="value", domain=Choice(values=("done", "escalated")))
    goal = Reach(
        effects=(effect,),
        write_set=(WriteSet(relation="steps", rows=steps, columns=("done",)),),
        escalate_when=Cmp(fn="in", left=Param(name="late"), right=over),
        escalate_text_key="escalate",
    )
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        answer = _solved(_problem(tools, (outcome,), goal=goal), _tables(rng), tmp_path / str(seed))
        calls.add(answer["outcome"])
    assert calls == {"done", "escalated"}
