"""Mutants of a verifier: small faults planted in its code, each of which some probe should notice.

A mutant that no probe tells from the original is either equivalent to it or shows that the probes
(or the rules) are too weak. Both the Python and the SQL inside string constants are mutated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
SQL_START = re.compile(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
SQL_TOKEN = re.compile(
    r"\bWHEN\s+NOT\b|'(?:[^']|'')*'|\"[^\"]*\"|<=|>=|<>|!=|==|[<>=]|\b\d+\b|\bNOT EXISTS\b|\bEXISTS\b"
    r"|\bNOT IN\b|\bIN\b|\bIS NOT\b|\bAND\b|\bOR\b|\bMIN\b|\bMAX\b|\bSUM\b|\bCOUNT\b|[+-]",
    re.IGNORECASE,
)
SQL_IDLE = re.compile(r"\bSELECT\s+\d+$|\bLIMIT\s+1$", re.IGNORECASE)
SQL_PART = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|[(),]|\b(?:AND|OR|WHERE|ON|HAVING|SELECT|WHEN|THEN|ELSE|END|BETWEEN"
    r"|GROUP\s+BY|ORDER\s+BY|LIMIT|UNION|EXCEPT|INTERSECT|JOIN|LEFT|INNER)\b",
    re.IGNORECASE,
)
SQL_BOUNDS = frozenset(
    "( ) , AND OR WHERE ON HAVING SELECT WHEN THEN ELSE END LIMIT UNION EXCEPT INTERSECT JOIN LEFT "
    "INNER".split()
) | {"GROUP BY", "ORDER BY"}
SQL_SWAPS = {
    "<=": ("<", ">"),
    ">=": (">", "<"),
    "<": ("<=", ">="),
    ">": (">=", "<="),
    "=": ("!=",),
    "==": ("!=",),
    "!=": ("=",),
    "<>": ("=",),
    "AND": ("OR",),
    "OR": ("AND",),
    "EXISTS": ("NOT EXISTS",),
    "NOT EXISTS": ("EXISTS",),
    "NOT IN": ("IN",),
    "IS NOT": ("IS",),
    "MIN": ("MAX",),
    "MAX": ("MIN",),
    "SUM": ("MAX",),
    "+": ("-",),
    "-": ("+",),
}


class Mutant(NamedTuple):
    """A verifier with one planted fault."""

    description: str
    """Line and change, e.g. ``line 12: <= -> <``."""
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every first-order mutant of a ``verifier.py``, each text once, in the order of the source.

    Dropped and negated clauses, flipped comparators, constants off by one, ``and`` for ``or``,
    arithmetic, dropped statements; the same inside SQL. Docstrings, imports and names stay.

    Raises:
        SyntaxError: if the source is no Python.
    """
    tree = ast.parse(source)
    text = _Text(source)
    quiet = _quiet_nodes(tree)
    places = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt) and id(node) not in quiet
    ]
    places.sort(key=lambda node: (node.lineno, node.col_offset))
    seen = {source}
    positions = {
        id(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    for node in places:
        # A position moves up only: in a list of one, the item before the first is the first.
        most = 1 if id(node) in positions else None
        for change in islice(_changes(node, text), most):
            mutated = text.replace(change.node, change.text)
            if mutated not in seen:
                seen.add(mutated)
                yield Mutant(f"line {node.lineno}: {change.what}", mutated)


class _Change(NamedTuple):
    what: str
    node: ast.expr | ast.stmt
    """Whose text is replaced."""
    text: str


class _Text:
    """A source whose nodes' texts can be replaced; columns of nodes count UTF-8 bytes."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._bytes[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> str:
        start, end = self._span(node)
        return (self._bytes[:start] + text.encode() + self._bytes[end:]).decode()


def _quiet_nodes(tree: ast.Module) -> set[int]:
    """Nodes whose change would mean nothing: docstrings, imports, connection texts, f-strings."""
    quiet: set[int] = set()
    loud: set[int] = set()
    """Texts that matter: values of dicts such as PARAMS, sides of comparisons."""
    for node in ast.walk(tree):
        skip: list[ast.AST] = []
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                skip.append(first)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.arguments):
            skip.append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            loud.update(id(value) for value in node.value.values)
        elif isinstance(node, ast.Compare):
            loud.update(id(value) for value in (node.left, *node.comparators))
        elif isinstance(node, ast.JoinedStr):  # before 3.12 their parts have no true places
            skip += node.values
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("connect", "close"):
                skip.append(node)
        elif isinstance(node, ast.Subscript) and "fetchone()" in ast.unparse(node.value)[-10:]:
            skip.append(node.slice)  # a row of one column: its last is its first
        for top in skip:
            quiet.update(id(inner) for inner in ast.walk(top))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in loud and not SQL_START.match(node.value):
                quiet.add(id(node))  # names of rules and keys
    return quiet


def _changes(node: ast.expr | ast.stmt, text: _Text) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        yield from _compare_changes(node)
    elif isinstance(node, ast.BoolOp):
        yield from _bool_changes(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Change("drop not", node, f"({ast.unparse(node.operand)})")
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        other = ARITHMETIC[type(node.op)]
        swapped = ast.BinOp(node.left, other(), node.right)
        what = f"{type(node.op).__name__} -> {other.__name__}"
        yield _Change(what, node, f"({ast.unparse(swapped)})")
    elif isinstance(node, ast.Constant):
        yield from _constant_changes(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = CALLS.get(node.func.id)
        if name is not None:
            yield _Change(f"{node.func.id} -> {name}", node.func, name)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                if isinstance(value.value, str) and SQL_START.match(value.value):
                    yield _Change(f"drop rule {key.value!r}", value, '"SELECT 1"')
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        test = ast.unparse(node.test)
        if not isinstance(node, ast.While):  # a negated loop condition may never end
            yield _Change(f"negate {_short(test)}", node.test, f"(not ({test}))")
        yield _Change(f"never {_short(test)}", node.test, "(False)")
    if _droppable(node, text):
        yield _Change(f"drop {_short(text.of(node))}", node, "pass")


def _droppable(node: ast.expr | ast.stmt, text: _Text) -> bool:
    """Whether a statement can go without leaving a mere NameError or SyntaxError behind."""
    if isinstance(node, ast.Assign):
        return not all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    if isinstance(node, ast.If):
        return not text.of(node).startswith("elif")
    return isinstance(node, ast.For | ast.Expr | ast.AugAssign | ast.Return | ast.Continue)


def _short(text: str) -> str:
    line = text.split("\n")[0]
    return line if len(line) <= 60 else line[:57] + "..."


def _compare_changes(node: ast.Compare) -> Iterator[_Change]:
    for i, op in enumerate(node.ops):
        for other in COMPARE[type(op)]:
            ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
            swapped = ast.Compare(node.left, ops, node.comparators)
            what = f"{type(op).__name__} -> {other.__name__}"
            yield _Change(what, node, f"({ast.unparse(swapped)})")


def _bool_changes(node: ast.BoolOp) -> Iterator[_Change]:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    swapped = ast.BoolOp(other(), node.values)
    what = f"{type(node.op).__name__} -> {other.__name__}"
    yield _Change(what, node, f"({ast.unparse(swapped)})")
    for i, value in enumerate(node.values):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        left = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        what = f"drop operand {_short(ast.unparse(value))}"
        yield _Change(what, node, f"({ast.unparse(left)})")


def _constant_changes(node: ast.Constant) -> Iterator[_Change]:
    value = node.value
    if isinstance(value, bool):
        yield _Change(f"{value} -> {not value}", node, repr(not value))
    elif isinstance(value, int):
        for other in (value + 1, value - 1):
            yield _Change(f"{value} -> {other}", node, f"({other})")
    elif isinstance(value, str) and SQL_START.match(value):
        for what, query in sql_mutants(value):
            yield _Change(f"SQL {what}", node, repr(query))
    elif isinstance(value, str) and value:
        yield _Change(f"{value[:40]!r} -> ''", node, '""')


def sql_mutants(query: str) -> Iterator[tuple[str, str]]:
    """Mutants of one SQL query, as (change, query).

    Left out, because they give the same verdicts: the constant of ``SELECT 1 FROM``, the limit of a
    scalar subquery (its first row counts anyway), and the test after ``WHEN NOT``, which repeats the
    branch before it for the sake of unknown values.
    """
    skip_until = 0
    for match in SQL_TOKEN.finditer(query):
        token = match[0]
        if match.start() < skip_until:
            continue
        if token.upper().split() == ["WHEN", "NOT"]:
            skip_until = _branch_end(query, match.end())
            continue
        others: tuple[str, ...] = SQL_SWAPS.get(" ".join(token.upper().split()), ())
        if token.isdigit() and not SQL_IDLE.search(query[: match.end()]):
            others = (str(int(token) + 1), str(max(0, int(token) - 1)))
        for other in others:
            if other != token:
                changed = query[: match.start()] + other + query[match.end() :]
                yield f"{token} -> {other}", changed
    for start, end in _sql_operands(query):
        yield f"drop {_short(' '.join(query[start:end].split()))}", query[:start] + query[end:]


class _Part(NamedTuple):
    word: str
    start: int
    end: int
    depth: int


def _sql_operands(query: str) -> Iterator[tuple[int, int]]:
    """The spans of ``a AND`` and ``AND b`` for every AND and OR of a query."""
    parts: list[_Part] = []
    depth = 0
    for match in SQL_PART.finditer(query):
        word = " ".join(match[0].upper().split())
        if word == "(":
            depth += 1
        parts.append(_Part(word, match.start(), match.end(), depth))
        if word == ")":
            depth -= 1
    for i, part in enumerate(parts):
        if part.word not in ("AND", "OR"):
            continue
        before = [p for p in parts[:i] if p.depth <= part.depth and p.word in SQL_BOUNDS]
        after = [p for p in parts[i + 1 :] if p.depth <= part.depth and p.word in SQL_BOUNDS]
        between = [p for p in parts[:i] if p.depth == part.depth and p.word in ("BETWEEN", "AND")]
        if between and between[-1].word == "BETWEEN":
            continue
        yield part.start, after[0].start if after else len(query)
        if before:
            yield before[-1].end, part.end


def _branch_end(query: str, start: int) -> int:
    """Where the condition that starts at ``start`` gives way to its THEN (of the same nesting)."""
    depth = 0
    for match in re.finditer(r"[()]|\bCASE\b|\bEND\b|\bTHEN\b", query[start:], re.IGNORECASE):
        word = match.group().upper()
        if word == "THEN" and depth == 0:
            return start + match.start()
        depth += {"(": 1, ")": -1, "CASE": 1, "END": -1}.get(word, 0)
    return len(query)
