"""Solutions that act: read everything first, then make the write calls that the effects ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Clause, Node, Problem, Reach
from envgen.pipelines.general.emit import Block, Doc, call, if_line, layout_text, line_of
from envgen.pipelines.general.names import Names
from envgen.pipelines.general.solution_answer import answer_doc
from envgen.pipelines.general.solution_data import Data
from envgen.pipelines.general.solution_expr import Item, Scope, Want, conjuncts, emit, rows_of


@dataclass(frozen=True)
class _Cell:
    """``column`` of the row ``entity`` of ``relation`` must become ``value``."""

    relation: str
    entity: Node
    column: str
    value: Node


@dataclass(frozen=True)
class _Branch:
    """Cells to set where all conditions hold."""

    conditions: tuple[tuple[Node, Want], ...]
    cells: tuple[_Cell, ...]


@dataclass(frozen=True)
class _Call:
    """A tool and the expressions of its arguments; the cells that it sets."""

    tool: str
    arguments: Mapping[str, Node]
    cells: tuple[_Cell, ...]


def workflow_source(p: Problem, goal: Reach, data: Data, names: Names) -> list[str]:
    """``solve`` of a workflow: escalate where that is due, else collect the calls, then make them.

    Raises:
        PipelineError: if an effect is no assignment of cells, or no tool sets them.
    """
    scope = Scope(p, data, names)
    lines = ["def solve():", '    """The outcome, None if it can\'t be reached."""']
    if goal.escalate_when is not None:
        lines += _escalation(p, goal.escalate_when, scope)
    later: list[str] = []
    for effect in goal.effects:
        for calls in _effect_calls(effect, p):
            lines += _collect(calls, effect, scope, names, later)
    lines += later
    lines.append(line_of("return ", _outcome(p, scope, "done"), 4))
    return ["\n".join(lines)]


def _outcome(p: Problem, scope: Scope, outcome: str) -> Doc:
    others = [slot.name for slot in p.slots if slot.name != "outcome"]
    if others:
        raise PipelineError(f"a workflow's solution can't find the slots {others}")
    slots = {"outcome": Item(f'"{outcome}"')}
    return answer_doc(p, Scope(p, scope.data, scope.names, slots))


def _escalation(p: Problem, due: Node, scope: Scope) -> list[str]:
    answer = _outcome(p, scope, "escalated")
    lines = [if_line(emit(due, scope, "true").doc, 4), line_of("return ", answer, 8)]
    if not emit(due, scope).known:
        no = emit(due, scope, "false").doc
        lines += [
            "    " + layout_text(Block("if not (", (no,), "", "):"), 4),
            "        return None",
        ]
    return lines


# --- what the effects ask for --------------------------------------------------------------


@dataclass(frozen=True)
class _Calls:
    """Calls for each row of ``over`` (or once), where the conditions hold."""

    over: ir.Query | None
    branch: _Branch
    calls: tuple[_Call, ...]


def _effect_calls(effect: Clause, p: Problem) -> Iterator[_Calls]:
    guards: tuple[tuple[Node, Want], ...] = ()
    if effect.guard is not None:
        guards = ((effect.guard, "true"),)
    once: list[_Branch] = [_Branch(guards, ())]
    for part in conjuncts(effect.expr):
        if isinstance(part, ir.All):
            if not isinstance(part.over, ir.Query):
                raise PipelineError(f"effect {effect.id!r} must run over a query")
            if part.over.var != part.var or part.over.select is not None:
                raise PipelineError(f"effect {effect.id!r} must name the rows that it runs over")
            for branch in _branches(part.body):
                whole = _Branch((*guards, *branch.conditions), branch.cells)
                yield _Calls(part.over, whole, _find_calls(whole.cells, p, effect.id))
        else:
            once = [_merge(a, b) for a in once for b in _branches(part)]
    for branch in once:
        if branch.cells:
            yield _Calls(None, branch, _find_calls(branch.cells, p, effect.id))


def _branches(body: Node) -> list[_Branch]:
    """The cells that ``body`` asks for, by case."""
    if isinstance(body, ir.And):
        branches = [_Branch((), ())]
        for item in body.items:
            branches = [_merge(a, b) for a in branches for b in _branches(item)]
        return branches
    if isinstance(body, ir.If):
        then = [
            _Branch(((body.test, "true"), *b.conditions), b.cells) for b in _branches(body.then)
        ]
        other = [
            _Branch(((body.test, "false"), *b.conditions), b.cells) for b in _branches(body.other)
        ]
        return then + other
    if isinstance(body, ir.Or):
        asking = [item for item in body.items if _reads_new(item)]
        if len(asking) == 1:  # "not P, or set": where P holds, set
            escapes: list[tuple[Node, Want]] = [(i, "false") for i in body.items if i not in asking]
            return [_Branch((*escapes, *b.conditions), b.cells) for b in _branches(asking[0])]
    if body == ir.Const(value=True):
        return [_Branch((), ())]
    return [_Branch((), (_cell(body),))]


def _merge(a: _Branch, b: _Branch) -> _Branch:
    return _Branch(a.conditions + b.conditions, a.cells + b.cells)


def _reads_new(node: Node) -> bool:
    return any(isinstance(inner, ir.New) for inner in node.walk())


def _cell(node: Node) -> _Cell:
    if isinstance(node, ir.Cmp) and node.fn == "=":
        for left, right in ((node.left, node.right), (node.right, node.left)):
            if isinstance(left, ir.New) and isinstance(left.item, ir.Get) and not _reads_new(right):
                get = left.item
                return _Cell(get.relation, get.entity, get.column, right)
    inner, value = (node.item, False) if isinstance(node, ir.Not) else (node, True)
    if isinstance(inner, ir.New) and isinstance(inner.item, ir.Get):
        get = inner.item
        return _Cell(get.relation, get.entity, get.column, ir.Const(value=value))
    raise PipelineError(f"a solution can't bring about {type(node).__name__}: {node!r:.200}")


# --- which tools do it ---------------------------------------------------------------------


def _find_calls(cells: tuple[_Cell, ...], p: Problem, effect: str) -> tuple[_Call, ...]:
    """Tools that set all ``cells``: always the one that sets most of them and least else."""
    left, calls = list(cells), []
    while left:
        found = [
            (made, side)
            for item in p.access
            if item.mode == "write" and (made := _match(item, left)) is not None
            for side in [_side_effects(item, made)]
        ]
        if not found:
            what = ", ".join(sorted({f"{cell.relation}.{cell.column}" for cell in left}))
            raise PipelineError(f"effect {effect!r}: no tool sets {what} as asked")
        best = max(found, key=lambda pair: (len(pair[0].cells), -pair[1]))[0]
        calls.append(best)
        left = [cell for cell in left if cell not in best.cells]
    return tuple(calls)


def _side_effects(item: Access, made: _Call) -> int:
    return sum(len(effect.set) or 1 for effect in item.effects) - len(made.cells)


def _match(item: Access, cells: list[_Cell]) -> _Call | None:
    """The call of ``item`` that sets some of ``cells`` to their values, if there is one."""
    arguments: dict[str, Node] = {}
    done: list[_Cell] = []
    for effect in item.effects:
        for cell in cells:
            if cell.relation != effect.relation or cell.column not in effect.set:
                continue
            bound = dict(arguments)
            if _unify(effect.key, cell.entity, bound) and _unify(
                effect.set[cell.column], cell.value, bound
            ):
                arguments = bound
                done.append(cell)
    if not done or set(arguments) != set(item.args):
        return None
    for effect in item.effects:  # nothing that is asked for may be set to something else
        for cell in cells:
            if cell in done or cell.relation != effect.relation or cell.column not in effect.set:
                continue
            if _fill(effect.key, arguments) == cell.entity:
                return None
    return _Call(item.tool, arguments, tuple(done))


def _unify(pattern: Node, target: Node, arguments: dict[str, Node]) -> bool:
    """Whether ``pattern`` becomes ``target`` for some arguments; they are added to ``arguments``."""
    if isinstance(pattern, ir.Arg):
        return arguments.setdefault(pattern.name, target) == target
    if isinstance(pattern, ir.Const):
        return isinstance(target, ir.Const) and target.value == pattern.value
    if type(pattern) is not type(target):
        return False
    for name in type(pattern).model_fields:
        a, b = getattr(pattern, name), getattr(target, name)
        if isinstance(a, Node) and isinstance(b, Node):
            if not _unify(a, b, arguments):
                return False
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                same = _unify(x, y, arguments) if isinstance(x, Node) else x == y
                if not same:
                    return False
        elif a != b:
            return False
    return True


def _fill(pattern: Node, arguments: Mapping[str, Node]) -> Node:
    """``pattern`` with its arguments filled in (only at its top and along ``Get``)."""
    if isinstance(pattern, ir.Arg):
        return arguments[pattern.name]
    if isinstance(pattern, ir.Get):
        return pattern.model_copy(update={"entity": _fill(pattern.entity, arguments)})
    return pattern


# --- source --------------------------------------------------------------------------------


def _collect(
    calls: _Calls, effect: Clause, scope: Scope, names: Names, later: list[str]
) -> list[str]:
    """Statements that gather the arguments; the calls themselves go to ``later``."""
    lines: list[str] = []
    conditions = [node for node, _ in calls.branch.conditions]
    for made in calls.calls:
        values = list(made.arguments.values())
        target = names.new(f"{made.tool}_calls", local=True)
        tests: list[Doc]
        if calls.over is not None:
            rows = rows_of(calls.over, scope, [*values, *conditions])
            inner = rows.scope
            tests = [*rows.conditions]
            loops = rows.loops
        else:
            inner, tests, loops = scope, [], ()
        tests += [emit(node, inner, want).at(4) for node, want in calls.branch.conditions]
        parts = tuple(emit(value, inner).doc for value in values)
        value = parts[0] if len(parts) == 1 else Block("(", parts, ", ", ")", lead=False)
        if loops:
            filters = (Block("if ", (Block("", tuple(tests), " and "),)),) if tests else ()
            gathered: Doc = Block("[", (value, *loops, *filters), " ", "]")
        else:
            gathered = Block("[", (value,), "", "]")
            if tests:
                test = Block("", tuple(tests), " and ")
                gathered = Block("", (gathered, Block("if ", (test,)), "else []"), " ")
        lines.append(line_of(f"{target} = ", gathered, 4))
        later += _perform(made, target, names)
    return lines


def _perform(made: _Call, target: str, names: Names) -> list[str]:
    variables = [names.local(argument) for argument in made.arguments]
    pairs = [f"{a}={v}" for a, v in zip(made.arguments, variables, strict=True)]
    done = layout_text(call(f"done = {made.tool}(", pairs), 8)
    return [
        f"    for {', '.join(variables)} in {target}:",
        f"        {done}",
        '        if "error" in done:',
        "            return None",
    ]
