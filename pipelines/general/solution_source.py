"""From a Problem to ``solution.py``: a readable ``solve()`` that reads through the tools only.

The file is in the restricted language of ``docs/ir.md``. It plans with the tools' signatures and the
rules, never with rows: the same file solves every re-seed, with its own ``PARAMS``.
"""

from __future__ import annotations

from envgen.core.errors import PipelineError
from envgen.core.ir import Cmp, Equals, IntRange, Problem, Query, Reach, Satisfy, SlotRef, Var
from envgen.pipelines.general.emit import Block, join_lines, layout_text, line_of, params_line
from envgen.pipelines.general.names import Names
from envgen.pipelines.general.solution_answer import answer_doc
from envgen.pipelines.general.solution_data import Data
from envgen.pipelines.general.solution_expr import Item, Scope, emit, ordered_rows, values_of
from envgen.pipelines.general.solution_loaders import data_source
from envgen.pipelines.general.solution_search import Search
from envgen.pipelines.general.solution_workflow import workflow_source


def solution_source(p: Problem) -> str:
    """The file ``solution.py`` of ``p``: ``solve()`` gives the answer, None if there is none.

    Raises:
        PipelineError: if the tools don't reach what the rules read, or a shape is not supported.
    """
    names = Names(item.tool for item in p.access)
    data = Data(p.relations, p.access, names)
    if isinstance(p.goal, Reach):
        body = workflow_source(p, p.goal, data, names)
    elif isinstance(p.goal, Equals) and len(p.slots) == 1 and not p.clauses:
        body = [_question(p, p.goal, data, names)]
    elif isinstance(p.goal, Satisfy):
        body = Search(p, data, names, []).source()
    elif isinstance(p.goal, Equals):
        wanted = Cmp(fn="=", left=SlotRef(slot=p.goal.slot), right=p.goal.query)
        body = Search(p, data, names, [wanted]).source()
    else:
        raise PipelineError(f"no solution for the goal {p.goal.kind!r} yet")
    about = '"""Solve the task with its tools."""'
    return join_lines([about, params_line(p.params), *data_source(data), *body])


def _question(p: Problem, goal: Equals, data: Data, names: Names) -> str:
    """``solve`` for one value, entity or set: gather, filter, sort, answer."""
    scope = Scope(p, data, names)
    lines: list[str] = ["def solve():", '    """The answer, None if there is none."""']
    slot, query = p.slots[0], goal.query
    if slot.kind == "set":
        found = Block("sorted(set(", (values_of(query, scope),), "", "))")
        lines.append(line_of("found = ", found, 4))
        if slot.length is not None:
            lines += [f"    if len(found) > {slot.length}:", "        return None"]
    elif query.agg == "none":
        lines += _first(query, scope)
    else:
        value = emit(query, scope)
        lines.append(line_of("found = ", value.doc, 4))
        if not value.known:
            lines += ["    if found is None:", "        return None"]
        if isinstance(slot.domain, IntRange):
            low, high = slot.domain.low, slot.domain.high
            lines += [f"    if not {low} <= found <= {high}:", "        return None"]
    done = Scope(p, data, names, {slot.name: Item("found")})
    return "\n".join([*lines, line_of("return ", answer_doc(p, done), 4)])


def _first(query: Query, scope: Scope) -> list[str]:
    if query.limit != 1:
        raise PipelineError("one value was asked for, but the query gives a list")
    statements, rows = ordered_rows(query, scope, 4, "found_rows")
    lines = ["    " + layout_text(statement, 4) for statement in statements]
    lines += ["    if not found_rows:", "        return None"]
    first = Item("found_rows[0]", rows.item.relation, rows.item.source)
    select = emit(query.select or Var(name=query.var), scope.bind(query.var, first))
    return [*lines, line_of("found = ", select.doc, 4)]
