"""From a Problem to ``solution.py``: a readable ``solve()`` that reads through the tools only.

The file is in the restricted language of ``docs/ir.md``. It plans with the tools' signatures and the
rules, never with rows: the same file solves every re-seed, with its own ``PARAMS``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from envgen.core.errors import PipelineError
from envgen.core.ir import (
    Cmp,
    Equals,
    Goal,
    IntRange,
    Node,
    Optimise,
    Problem,
    Reach,
    Slot,
    SlotRef,
    Var,
)
from envgen.pipelines.general.programs.emit import comment, join_lines, params_line
from envgen.pipelines.general.programs.python_text import (
    Names,
    python_lines,
)
from envgen.pipelines.general.programs.solution_expressions import (
    FIRST,
    REACHED,
    Context,
    answer_text,
    emit,
    rows_of,
    truth_text,
    value_text,
)
from envgen.pipelines.general.programs.solution_reads import (
    ALL_PAGES,
    LARGE,
    LISTED,
    REMEMBERED,
    Reads,
)
from envgen.pipelines.general.programs.solution_search import (
    SEARCH,
    SLOT,
    SPANS,
    SUBSETS,
    SearchWriter,
)
from envgen.pipelines.general.programs.solution_workflow import workflow_lines
from envgen.pipelines.general.semantics.rewrite import hidden, truth
from envgen.pipelines.general.words.lexicon import outline

_FIXED = (LARGE, REMEMBERED, LISTED, ALL_PAGES, FIRST, REACHED, SPANS, SUBSETS)
"""Texts that are the same in every solution, each where it is used, in this order."""


def solution_source(p: Problem) -> str:
    """The file ``solution.py`` of ``p``: ``solve()`` gives the answer, None if there is none.

    Raises:
        PipelineError: if the tools don't reach what the rules read, or a shape is not supported.
    """
    fixed = re.findall(r"(?m)^(?:def )?(\w+)", "\n".join([*_FIXED, SLOT, SEARCH]))
    names = Names([*fixed, *(item.tool for item in p.access)])
    scope = Context(p, Reads(p, names), names)
    if isinstance(p.goal, Reach):
        parts = ["\n".join(workflow_lines(p.goal, scope))]
    elif isinstance(p.goal, Equals) and len(p.slots) == 1 and not p.clauses:
        parts = ["\n".join(_question(p.goal, scope))]
    elif len(p.slots) == 1 and not isinstance(p.goal, Optimise) and not p.giving_way:
        parts = ["\n".join(_scan(scope))]
    else:
        parts = _search(scope)
    own = [*scope.reads.source("\n".join(parts)), *parts]
    about = '"""Solve the task with its tools."""'
    known = {name: value for name, value in p.params.items() if name not in hidden(p)}
    return join_lines([f"{about}\n\n{params_line(known)}", *_needed("\n".join(own)), *own])


def _needed(text: str) -> list[str]:
    """The fixed texts that ``text`` uses, and those that they use."""
    found: list[str] = []
    for fixed in reversed(_FIXED):
        called = "|".join(re.findall(r"(?m)^def (\w+)", fixed))
        if re.search(rf"\b({called})\(" if called else r"\bLARGE\b", text):
            found.insert(0, fixed)
            text += fixed
    return found


def _question(goal: Equals, scope: Context) -> list[str]:
    """``solve`` for one value, entity or set: gather, filter, sort, answer."""
    slot, query = scope.p.slots[0], goal.query
    text = outline(scope.p.lexicon, goal)
    lines = ["def solve():", '    """The answer, None if there is none."""']
    lines += comment(text, 4) if text else []
    if slot.kind == "set":
        select = query.select or Var(name=query.var)
        rows = rows_of(query, scope, [select])
        value = f"sorted(set({rows.listed(value_text(select, rows.scope))}))"
        unfit = f"len(found) > {slot.length}" if slot.length is not None else ""
    else:
        if query.agg == "none" and query.limit != 1:
            raise PipelineError("one value was asked for, but the query gives a list")
        found = emit(query, scope)
        value = found.text
        unfit = "found is None" if found.nullable else ""
        if isinstance(slot.domain, IntRange):
            outside = f"not {slot.domain.low} <= found <= {slot.domain.high}"
            unfit = f"{unfit} or {outside}" if unfit else outside
    lines += python_lines(value, 4, "found = ")
    if unfit:
        lines += [f"    if {unfit}:", "        return None"]
    return [
        *lines,
        *python_lines(answer_text(scope.p, lambda _: "found", scope.names), 4, "return "),
    ]


def _wanted(goal: Goal) -> list[Node]:
    """What the goal asks of the answer besides the clauses."""
    if not isinstance(goal, Equals):
        return []
    return [Cmp(fn="=", left=SlotRef(slot=goal.slot), right=goal.query)]


def _scan(scope: Context) -> list[str]:
    """``solve`` for one slot: the first choice that keeps every rule."""
    p, slot = scope.p, scope.p.slots[0]
    choices, _ = SearchWriter(scope, _wanted(p.goal)).choices(slot, [])
    values = choices.removeprefix("lambda: ") if choices.startswith("lambda: ") else f"{choices}()"
    name = scope.names.local(slot.name)
    inner = replace(scope, slots={slot.name: name})
    lines = ["def solve():", '    """The answer, None if there is none."""']
    lines += python_lines(values, 4, f"for {name} in ", ":")
    rules = [(outline(p.lexicon, clause), truth(clause)) for clause in p.clauses]
    for text, expr in [*rules, *(("", node) for node in _wanted(p.goal))]:
        broken = emit(expr, inner, False)
        test = f"not ({truth_text(expr, inner)})" if broken.nullable else broken.text
        lines += [*(comment(text, 8) if text else []), *python_lines(test, 8, "if ", ":")]
        lines.append("            continue")
    answer = answer_text(p, lambda _: _submitted(slot, name), scope.names)
    return [*lines, *python_lines(answer, 8, "return "), "    return None"]


def _search(scope: Context) -> list[str]:
    """Slots, rules, and a ``solve`` that searches."""
    search = SearchWriter(scope, _wanted(scope.p.goal))
    parts = search.source()

    def value(name: str) -> str:
        return _submitted(scope.p.slot(name), f"found[{search.reference(name)}]")

    answer = python_lines(answer_text(scope.p, value, scope.names), 4, "return ")
    steps = _BEST if isinstance(scope.p.goal, Optimise) else _SOLVE
    if scope.p.giving_way:
        steps = _NEAREST
    solve = [*steps.split("\n"), *answer]
    return [SLOT, *parts[:-1], parts[-1] + "\n\n" + SEARCH, "\n".join(solve)]


def _submitted(slot: Slot, text: str) -> str:
    """What is submitted of the value of a slot."""
    if slot.kind == "interval":
        return f'{{"start": {text}[0], "end": {text}[1]}}'
    return f"list({text})" if slot.kind == "set" else text


_BEST = '''def solve():
    """The best answer: each that is found makes the next one be better, until there is none."""
    found, better = None, search([])
    while better is not None:
        found, costs = better, BOUNDS[-1][0]
        BOUNDS[-1] = (costs, spent(COSTS[-1], found) - 1)
        better = search([])
    if found is None:
        return None'''
_NEAREST = '''def solve():
    """An answer that keeps all rules; if there is none, what misses the last bound by least."""
    found, better = search([]), None
    if found is None:
        for known in list(FAILED):
            FAILED.pop(known)
        BOUNDS[-1] = (BOUNDS[-1][0], LARGE)
        better = search([])
    while better is not None:
        found, costs = better, BOUNDS[-1][0]
        BOUNDS[-1] = (costs, spent(COSTS[-1], found) - 1)
        better = search([])
    if found is None:
        return None'''
_SOLVE = '''def solve():
    """The answer, None if there is none."""
    found = search([])
    if found is None:
        return None'''
