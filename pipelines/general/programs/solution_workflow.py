"""Solutions that act: read everything first, then make the write calls that the effects ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Clause, Node, Problem, Reach
from envgen.pipelines.general.programs.emit import comment
from envgen.pipelines.general.programs.python_text import python_lines
from envgen.pipelines.general.programs.solution_expressions import (
    AND,
    Context,
    answer_text,
    emit,
    rows_of,
    value_text,
)
from envgen.pipelines.general.semantics.rewrite import reads_final
from envgen.pipelines.general.words.lexicon import outline


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

    conditions: tuple[tuple[Node, bool], ...]
    cells: tuple[_Cell, ...]


@dataclass(frozen=True)
class _Call:
    """A tool and the expressions of its arguments; the cells that it sets."""

    tool: str
    arguments: Mapping[str, Node]
    cells: tuple[_Cell, ...]


def workflow_lines(goal: Reach, scope: Context) -> list[str]:
    """``solve`` of a workflow: escalate where that is due, else collect the calls, then make them.

    Raises:
        PipelineError: if an effect is no assignment of cells, or no tool sets them.
    """
    others = [slot.name for slot in scope.p.slots if slot.name != "outcome"]
    if others:
        raise PipelineError(f"a workflow's solution can't find the slots {others}")
    lines = ["def solve():", '    """The outcome, None if it can\'t be reached."""']
    if goal.escalate_when is not None:
        lines += _escalation(goal.escalate_when, scope)
    later: dict[str, list[str]] = {}
    for effect in goal.effects:
        text = outline(scope.p.lexicon, effect)
        lines += comment(text, 4) if text else []
        for calls in _effect_calls(effect, scope.p):
            lines += _collect(calls, scope, later)
    made = [line for calls in later.values() for line in calls]
    return [*lines, *made, *_outcome(scope, "done", 4)]


def _outcome(scope: Context, outcome: str, indent: int) -> list[str]:
    answer = answer_text(scope.p, lambda _: f'"{outcome}"', scope.names)
    return python_lines(answer, indent, "return ")


def _escalation(due: Node, scope: Context) -> list[str]:
    yes = emit(due, scope, True)
    lines = [*python_lines(yes.text, 4, "if ", ":"), *_outcome(scope, "escalated", 8)]
    if yes.nullable:
        no = emit(due, scope, False)
        lines += [*python_lines(no.text, 4, "if not (", "):"), "        return None"]
    return lines


# --- what the effects ask for --------------------------------------------------------------


@dataclass(frozen=True)
class _Calls:
    """Calls for each row of ``over`` (or once), where the conditions hold."""

    over: ir.Query | None
    branch: _Branch
    calls: tuple[_Call, ...]


def _effect_calls(effect: Clause, p: Problem) -> Iterator[_Calls]:
    guards: tuple[tuple[Node, bool], ...] = ()
    if effect.guard is not None:
        guards = ((effect.guard, True),)
    once: list[_Branch] = [_Branch(guards, ())]
    for part in _conjuncts(effect.expr):
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


def _conjuncts(expr: Node) -> Iterator[Node]:
    if isinstance(expr, ir.And):
        for item in expr.items:
            yield from _conjuncts(item)
    else:
        yield expr


def _branches(body: Node) -> list[_Branch]:
    """The cells that ``body`` asks for, by case."""
    if isinstance(body, ir.And):
        branches = [_Branch((), ())]
        for item in body.items:
            branches = [_merge(a, b) for a in branches for b in _branches(item)]
        return branches
    if isinstance(body, ir.If):
        then = [_Branch(((body.test, True), *b.conditions), b.cells) for b in _branches(body.then)]
        other = [
            _Branch(((body.test, False), *b.conditions), b.cells) for b in _branches(body.other)
        ]
        return then + other
    if isinstance(body, ir.Or):
        asking = [item for item in body.items if reads_final(item)]
        if len(asking) == 1:  # "not P, or set": where P holds, set
            escapes: list[tuple[Node, bool]] = [(i, False) for i in body.items if i not in asking]
            return [_Branch((*escapes, *b.conditions), b.cells) for b in _branches(asking[0])]
    if body == ir.Const(value=True):
        return [_Branch((), ())]
    return [_Branch((), (_cell(body),))]


def _merge(a: _Branch, b: _Branch) -> _Branch:
    return _Branch(a.conditions + b.conditions, a.cells + b.cells)


def _cell(node: Node) -> _Cell:
    if isinstance(node, ir.Cmp) and node.fn == "=":
        for left, right in ((node.left, node.right), (node.right, node.left)):
            if (
                isinstance(left, ir.New)
                and isinstance(left.item, ir.Get)
                and not reads_final(right)
            ):
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


def _collect(calls: _Calls, scope: Context, later: dict[str, list[str]]) -> list[str]:
    """Statements that gather the arguments; the calls themselves go to ``later``, by target."""
    lines: list[str] = []
    conditions = [node for node, _ in calls.branch.conditions]
    for made in calls.calls:
        values = list(made.arguments.values())
        target = scope.names.local(f"{made.tool}_calls", later)
        loops: tuple[str, ...] = ()
        tests, inner = [], scope
        if calls.over is not None:
            rows = rows_of(calls.over, scope, [*values, *conditions])
            loops, inner, tests = rows.loops, rows.scope, [test.at(AND) for test in rows.tests]
        tests += [emit(node, inner, wanted).at(AND) for node, wanted in calls.branch.conditions]
        parts = [value_text(value, inner) for value in values]
        value = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        test = " and ".join(tests)
        if loops:
            gathered = " ".join([value, *loops, *([f"if {test}"] if test else [])])
            lines += python_lines(f"[{gathered}]", 4, f"{target} = ")
        else:
            lines += python_lines(
                f"[{value}]" + (f" if {test} else []" if test else ""), 4, f"{target} = "
            )
        later[target] = _perform(made, target, scope)
    return lines


def _perform(made: _Call, target: str, scope: Context) -> list[str]:
    variables = [scope.names.local(argument) for argument in made.arguments]
    pairs = [f"{a}={v}" for a, v in zip(made.arguments, variables, strict=True)]
    return [
        f"    for {', '.join(variables)} in {target}:",
        *python_lines(f"{made.tool}({', '.join(pairs)})", 8, "done = "),
        '        if "error" in done:',
        "            return None",
    ]
