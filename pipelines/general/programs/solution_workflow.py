"""Solutions that act: read everything first, then make the write calls that the effects ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Clause, Node, Problem, Reach
from envgen.pipelines.general.programs.emit import comment
from envgen.pipelines.general.programs.python_text import python_lines
from envgen.pipelines.general.programs.solution_expressions import (
    AND,
    Context,
    Py,
    answer_text,
    emit,
    rows_of,
    value_text,
)
from envgen.pipelines.general.programs.solution_steps import LateArguments, written_by
from envgen.pipelines.general.semantics.rewrite import TRUE, reads_final, told
from envgen.pipelines.general.words.lexicon import outline


class _Cell(NamedTuple):
    """``column`` of the row ``entity`` of ``relation`` must become ``value``."""

    relation: str
    entity: Node
    column: str
    value: Node


class _Branch(NamedTuple):
    """Cells to set where all conditions hold: expressions, and what each must be."""

    conditions: tuple[tuple[Node, bool], ...] = ()
    cells: tuple[_Cell, ...] = ()


class _Call(NamedTuple):
    """A tool, the expressions of its arguments, and the cells that it sets."""

    tool: str
    arguments: Mapping[str, Node]
    cells: tuple[_Cell, ...]


class _Step(NamedTuple):
    """The calls of one tool."""

    tool: str
    reads: frozenset[tuple[str, str]]
    """The columns of which they read new values."""
    lines: list[str]


def workflow_lines(goal: Reach, scope: Context) -> list[str]:
    """``solve`` of a workflow: escalate where that is due, else collect the calls, then make them.

    Raises:
        PipelineError: if an effect is no assignment of cells, or no tool sets them.
    """
    lines = ["def solve():", '    """The outcome, None if it can\'t be reached."""', *_told(scope)]
    if goal.escalate_when is not None:
        lines += _escalation(goal.escalate_when, scope)
    later: dict[str, _Step] = {}
    for effect in goal.effects:
        text = outline(scope.p.lexicon, effect)
        lines += comment(text, 4) if text else []
        for over, case in _cases_of(effect):
            for call in _find_calls(case.cells, scope.p, effect.id):
                target = scope.names.local(f"{call.tool}_calls", later)
                found, later[target] = _calls(call, over, case, scope, target)
                lines += found
    acts = [line for step in _in_order(later, scope.p) for line in step.lines]
    return [*lines, *acts, *_outcome(scope, "done", 4)]


def _in_order(steps: Mapping[str, _Step], p: Problem) -> Iterator[_Step]:
    """The steps as they are stated, but each after those that write what it reads.

    Raises:
        PipelineError: if steps wait for one another.
    """
    left = list(steps.values())
    while left:
        for step in left:
            others = {cell for one in left if one is not step for cell in written_by(p, one.tool)}
            if not step.reads & others:
                break
        else:
            tools = ", ".join(step.tool for step in left)
            raise PipelineError(f"each of these steps reads what another one writes: {tools}")
        left.remove(step)
        yield step


def _told(scope: Context) -> list[str]:
    """The values of the other slots: what their rules say of the rows before anything is changed.

    Raises:
        PipelineError: if no rule tells what a slot must be.
    """
    p, lines, left = scope.p, list[str](), {s.name for s in scope.p.slots} - {"outcome"}
    for clause in p.clauses:
        found = None if clause.guard else told(clause.expr)
        if found is None or found[0] not in left:
            continue
        left.remove(found[0])
        text = outline(p.lexicon, clause)
        value, name = emit(found[1], scope), scope.names.local(found[0])
        lines += [*(comment(text, 4) if text else []), *python_lines(value.text, 4, f"{name} = ")]
        lines += [f"    if {name} is None:", "        return None"] if value.nullable else []
    if left:
        raise PipelineError(f"a workflow's solution can't find the slots {sorted(left)}")
    return lines


def _outcome(scope: Context, outcome: str, indent: int) -> list[str]:
    def value(slot: str) -> str:
        return f'"{outcome}"' if slot == "outcome" else scope.names.local(slot)

    return python_lines(answer_text(scope.p, value, scope.names), indent, "return ")


def _escalation(due: Node, scope: Context) -> list[str]:
    yes = emit(due, scope, True)
    lines = [*python_lines(yes.text, 4, "if ", ":"), *_outcome(scope, "escalated", 8)]
    if yes.nullable:
        no = emit(due, scope, False)
        lines += [*python_lines(no.text, 4, "if not (", "):"), "        return None"]
    return lines


# --- what the effects ask for --------------------------------------------------------------


def _cases_of(effect: Clause) -> Iterator[tuple[ir.Query | None, _Branch]]:
    """What ``effect`` asks for: for each row of a query, or once (None), by case."""
    guard = _Branch(((effect.guard, True),) if effect.guard is not None else ())
    once: list[Node] = []
    for part in _conjuncts(effect.expr):
        if not isinstance(part, ir.All):
            once.append(part)
            continue
        if not isinstance(part.over, ir.Query):
            raise PipelineError(f"effect {effect.id!r} must run over a query")
        if part.over.var != part.var or part.over.select is not None:
            raise PipelineError(f"effect {effect.id!r} must name the rows that it runs over")
        for case in _together([guard], _cases(part.body)):
            yield part.over, case
    for case in _together([guard], *map(_cases, once)):
        if case.cells:
            yield None, case


def _conjuncts(expr: Node) -> Iterator[Node]:
    if isinstance(expr, ir.And):
        for item in expr.items:
            yield from _conjuncts(item)
    else:
        yield expr


def _together(*parts: list[_Branch]) -> list[_Branch]:
    """All ways to take one case of each part."""
    return [
        _Branch(sum((c.conditions for c in cases), ()), sum((c.cells for c in cases), ()))
        for cases in product(*parts)
    ]


def _cases(body: Node) -> list[_Branch]:
    """The cells that ``body`` asks for, by case."""
    if isinstance(body, ir.And):
        return _together(*map(_cases, body.items))
    if isinstance(body, ir.If):
        ways = ((True, body.then), (False, body.other))
        return [
            case
            for held, way in ways
            for case in _together([_Branch(((body.test, held),))], _cases(way))
        ]
    if isinstance(body, ir.Or):
        asking = [item for item in body.items if reads_final(item)]
        if len(asking) == 1:  # "not P, or set": where P holds, set
            escapes = tuple((item, False) for item in body.items if item not in asking)
            return _together([_Branch(escapes)], _cases(asking[0]))
    return [_Branch()] if body == TRUE else [_Branch((), (_cell(body),))]


def _cell(node: Node) -> _Cell:
    """An assignment: a cell of the final state equals a value, or is true, or is not."""
    sides: list[tuple[Node, Node]] = [(node, TRUE)]
    if isinstance(node, ir.Not):
        sides = [(node.item, ir.Const(value=False))]
    elif isinstance(node, ir.Cmp) and node.fn == "=":
        sides = [(node.left, node.right), (node.right, node.left)]
    for cell, value in sides:
        if isinstance(cell, ir.New) and isinstance(cell.item, ir.Get):
            return _Cell(cell.item.relation, cell.item.entity, cell.item.column, value)
    raise PipelineError(f"a solution can't bring about {type(node).__name__}: {node!r:.200}")


# --- which tools do it ---------------------------------------------------------------------


def _find_calls(cells: tuple[_Cell, ...], p: Problem, effect: str) -> Iterator[_Call]:
    """Tools that set all ``cells``: always the one that sets most of them and least else."""
    left = list(cells)
    while left:
        writing = [item for item in p.access if item.mode == "write"]
        found = [(call, item) for item in writing if (call := _match(item, left)) is not None]
        if not found:
            what = ", ".join(sorted({f"{cell.relation}.{cell.column}" for cell in left}))
            raise PipelineError(f"effect {effect!r}: no tool sets {what} as asked")
        best, _ = max(found, key=lambda pair: (len(pair[0].cells), -_side_effects(*pair)))
        yield best
        left = [cell for cell in left if cell not in best.cells]


def _side_effects(call: _Call, item: Access) -> int:
    return sum(len(effect.set) or 1 for effect in item.effects) - len(call.cells)


def _match(item: Access, cells: list[_Cell]) -> _Call | None:
    """The call of ``item`` that sets some of ``cells`` to their values, if there is one."""
    touched = [
        (effect, cell)
        for effect in item.effects
        for cell in cells
        if cell.relation == effect.relation and cell.column in effect.set
    ]
    arguments: dict[str, Node] = {}
    done: list[_Cell] = []
    for effect, cell in touched:
        bound = dict(arguments)
        value = effect.set[cell.column]
        if _unify(effect.key, cell.entity, bound) and _unify(value, cell.value, bound):
            arguments = bound
            done.append(cell)
    if not done or set(arguments) != set(item.args):
        return None
    for effect, cell in touched:  # nothing that is asked for may be set to something else
        if cell not in done and _unify(effect.key, cell.entity, dict(arguments)):
            return None
    return _Call(item.tool, arguments, tuple(done))


def _unify(pattern: Node, target: Node, arguments: dict[str, Node]) -> bool:
    """Whether ``pattern`` becomes ``target`` for some arguments; they are added to ``arguments``."""
    if isinstance(pattern, ir.Arg):
        return arguments.setdefault(pattern.name, target) == target
    if isinstance(pattern, ir.Const):
        return isinstance(target, ir.Const) and target.value == pattern.value
    own, other = (
        [type(node), *(x for x in vars(node).values() if not isinstance(x, Node | tuple))]
        for node in (pattern, target)
    )
    parts, wanted = list(pattern.children()), list(target.children())
    if own != other or len(parts) != len(wanted):
        return False
    return all(_unify(a, b, arguments) for a, b in zip(parts, wanted, strict=True))


# --- source --------------------------------------------------------------------------------


def _calls(
    call: _Call, over: ir.Query | None, case: _Branch, scope: Context, target: str
) -> tuple[list[str], _Step]:
    """Statements that gather in ``target`` what is known of the calls at the start; the calls."""
    arguments = LateArguments(scope.p, call.arguments)
    names, loops, before = arguments.names(scope), tuple[str, ...](), scope
    tests: list[Py] = []
    if over is not None:
        rows = rows_of(over, scope, [*arguments.known, *(node for node, _ in case.conditions)])
        loops, before, tests = rows.loops, rows.scope, list(rows.tests)
    tests += [emit(node, before, wanted) for node, wanted in case.conditions]
    parts = [value_text(value, before) for value in arguments.known]
    value = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    test = " and ".join(test.at(AND) for test in tests)
    if over is not None:
        text = f"[{' '.join([value, *loops, *([f'if {test}'] if test else [])])}]"
    else:
        text = f"[{value}] if {test} else []" if test else f"[{value}]"
    texts = arguments.texts(names, before, scope)
    pairs = [f"{name}={text}" for name, text in zip(call.arguments, texts, strict=True)]
    lines = [
        f"    for {', '.join(names.values())} in {target}:",
        *python_lines(f"{call.tool}({', '.join(pairs)})", 8, "done = "),
        '        if "error" in done:',
        "            return None",
    ]
    return python_lines(text, 4, f"{target} = "), _Step(call.tool, arguments.reads, lines)
