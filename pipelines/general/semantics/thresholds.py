"""The ints that a long int argument is compared with, anywhere in a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from envgen.core import ir
from envgen.core.ir import Access, Node, Problem
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame, elements
from envgen.pipelines.general.semantics.plans import IntSpan, argument_values
from envgen.pipelines.general.semantics.rewrite import free_names
from envgen.pipelines.general.semantics.tables import Tables

MAX_BINDINGS = 5_000


def int_thresholds(p: Problem, db: Tables, access: Access, name: str) -> set[int]:
    """Values around which the outcome of a call may change with the int argument ``name``.

    They come from comparisons of the argument in ``pre``, and from comparisons in clauses and effects
    with a column that the argument is written to (directly or added to a column of the written row).
    """
    compiler = Compiler(p)
    found: set[int] = set()
    for pre in access.pre:
        for left, right in _comparisons(pre.expr):
            if left == ir.Arg(name=name):
                found |= set(_argument_bindings(p, db, access, right, compiler))
    columns = _written_columns(access, name)
    goal = p.goal
    effects = goal.effects if isinstance(goal, ir.Reach) else ()
    for clause in (*p.clauses, *effects):
        for expr in (clause.guard, clause.expr):
            if expr is not None:
                found |= set(_compared(expr, columns, compiler, compiler.frame(db)))
    return found | {value + 1 for value in found} | {value - 1 for value in found}


def _written_columns(access: Access, name: str) -> set[tuple[str, str]]:
    return {
        (effect.relation, column)
        for effect in access.effects
        for column, expr in effect.set.items()
        if f"arg:{name}" in free_names(expr)
    }


def _comparisons(expr: Node) -> Iterator[tuple[Node, Node]]:
    for node in expr.walk():
        if isinstance(node, ir.Cmp):
            yield node.left, node.right
            yield node.right, node.left


def _argument_bindings(
    p: Problem, db: Tables, access: Access, expr: Node, compiler: Compiler
) -> Iterator[int]:
    """Values of an expression over the other arguments."""
    names = sorted(n[4:] for n in free_names(expr) if n.startswith("arg:"))
    domains = []
    for name in names:
        values = argument_values(p, access, name, db)
        if values is None or isinstance(values, IntSpan):
            return
        domains.append(values)
    run, frame = compiler.compile(expr), compiler.frame(db)
    for choice in islice(product(*domains), MAX_BINDINGS):
        frame.args = dict(zip(names, choice, strict=True))
        value = run(frame)
        if type(value) is int:
            yield value


def _compared(
    expr: Node, columns: set[tuple[str, str]], compiler: Compiler, frame: Frame
) -> Iterator[int]:
    """Values, in the initial state, of what is compared with a new value of one of ``columns``."""
    if isinstance(expr, ir.Cmp):
        for left, right in ((expr.left, expr.right), (expr.right, expr.left)):
            if _reads_new(left, columns):
                value = compiler.compile(right)(frame)
                current = compiler.compile(left)(frame)
                if type(value) is int:
                    yield value
                    if type(current) is int:
                        yield value - current  # an amount that is added
        return
    if isinstance(expr, ir.All | ir.Any | ir.Sum | ir.Count):
        outer = frame.vars
        for element in elements(expr.over, compiler)(frame):
            frame.vars = {**outer, expr.var: element}
            yield from _compared(expr.body, columns, compiler, frame)
        frame.vars = outer
        return
    for child in expr.children():
        yield from _compared(child, columns, compiler, frame)


def _reads_new(expr: Node, columns: set[tuple[str, str]]) -> bool:
    for node in expr.walk():
        if isinstance(node, ir.New):
            gets = (inner for inner in node.walk() if isinstance(inner, ir.Get))
            if any((get.relation, get.column) in columns for get in gets):
                return True
    return False
