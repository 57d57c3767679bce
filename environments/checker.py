"""The restricted language of solutions: an allow-list over the syntax tree (docs/ir.md, section 2).

What is not named here is rejected. A solution that passes can call tools and do logic; the process
that runs it holds nothing but tool proxies, so both would have to fail at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import TypeGuard

from pydantic import JsonValue

from envgen.core.types import Schema, ToolSpec

MAX_SOURCE = 200_000
MAX_TEXT = 200
MAX_INT = 10**12
FREE_INT = 100
"""Integers up to this size need not occur anywhere."""
BUILTINS = frozenset(
    "abs all any bool dict enumerate float int len list max min range reversed round set sorted "
    "str sum tuple zip".split()
)
PRELUDE = frozenset(
    "date_add days_between minutes weekday combinations permutations product".split()
)
METHODS = frozenset(
    "append extend insert pop remove sort add discard update get items keys values setdefault copy "
    "index count split strip lower upper startswith endswith replace join".split()
)
KEYWORDS = frozenset("default key reverse start strict".split())
"""Of builtins and methods; other arguments of calls can be named if their names may be quoted."""
PARAMS = "PARAMS"
SOLVE = "solve"
FREE_TEXTS = frozenset({"error", "message"})
_NODES: tuple[type[ast.AST], ...] = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Name, ast.Load,
    ast.Store, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.IfExp, ast.BoolOp, ast.And, ast.Or,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.UnaryOp, ast.Not,
    ast.USub, ast.Compare, ast.cmpop, ast.Subscript, ast.Slice, ast.Lambda, ast.Call, ast.keyword,
    ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.Starred,
)  # fmt: skip


def check_solution(
    source: str, tools: Sequence[ToolSpec], prompt: str, submit_schema: Schema | None
) -> list[str]:
    """List the parts of a ``solution.py`` that the restricted language does not allow.

    Args:
        source: the text of ``solution.py``.
        tools: whose names may be called, and whose specs may be quoted.
        prompt: the task, with the policy text where there is one; its words and numbers are the
            constants that the solution may use.
        submit_schema: may be quoted as well.
    """
    if len(source) > MAX_SOURCE:
        return [f"the source is longer than {MAX_SOURCE} characters"]
    try:
        tree = ast.parse(source, "solution.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [f"the source is not valid Python: {type(error).__name__}: {error}"]
    try:
        return list(dict.fromkeys(_Checker(tree, tools, prompt, submit_schema).violations()))
    except RecursionError:
        return ["the source is nested too deeply"]


class _Checker:
    def __init__(
        self,
        tree: ast.Module,
        tools: Sequence[ToolSpec],
        prompt: str,
        submit_schema: Schema | None,
    ) -> None:
        self._tree = tree
        self._nodes = list(ast.walk(tree))
        self._tools = {tool.name for tool in tools}
        self._fixed = self._tools | BUILTINS | PRELUDE | {PARAMS}
        self._bound = set(_bound_names(self._nodes))
        self._spread = {id(arg) for n in self._nodes if isinstance(n, ast.Call) for arg in n.args}
        self._callees = {id(n.func) for n in self._nodes if isinstance(n, ast.Call)}
        lookups = [n for n in self._nodes if _is_lookup(n)]
        self._looked_up = {id(n.value) for n in lookups}
        self._exempt = _exempt_constants(tree, self._nodes) | {id(n.slice) for n in lookups}
        self._quotable = Quotable(prompt, tools, submit_schema)

    def violations(self) -> Iterator[str]:
        yield from self._frame()
        for node in self._nodes:
            for found in self._check(node):
                line = getattr(node, "lineno", None)
                yield found if line is None else f"line {line}: {found}"

    def _frame(self) -> Iterator[str]:
        """One ``def solve()`` and one literal ``PARAMS`` line, both at the top."""
        solves = [n for n in self._nodes if isinstance(n, ast.FunctionDef) and n.name == SOLVE]
        if len(solves) != 1 or solves[0] not in self._tree.body:
            yield "there must be exactly one def solve(), at the top"
        elif any(ast.iter_child_nodes(solves[0].args)):
            yield "solve() takes no arguments"
        stores = [
            n
            for n in self._nodes
            if isinstance(n, ast.Name) and n.id == PARAMS and isinstance(n.ctx, ast.Store)
        ]
        if len(stores) != 1 or not any(_is_params(n) for n in self._tree.body):
            yield "there must be exactly one PARAMS = {...}, at the top, in one line, of literals"

    def _check(self, node: ast.AST) -> Iterator[str]:
        if not isinstance(node, _NODES):
            yield f"{type(node).__name__} is not allowed"
        elif isinstance(node, ast.FunctionDef):
            yield from self._function(node)
        elif isinstance(node, ast.arguments):
            yield from _arguments(node)
        elif isinstance(node, ast.arg):
            yield from self._binding(node.arg)
            if node.annotation is not None:
                yield "annotations are not allowed"
        elif isinstance(node, ast.Name):
            yield from self._name(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.keyword):
            if node.arg is None:
                yield "** in a call is not allowed"
            elif node.arg.startswith("_") or not self._keyword(node.arg):
                yield f"the name {node.arg!r} is not allowed in a call"
        elif isinstance(node, ast.Starred):
            if id(node) not in self._spread:
                yield "* is only allowed before an argument of a call"
        elif isinstance(node, ast.Subscript):
            if isinstance(node.value, ast.Constant | ast.JoinedStr):
                yield "a part of a constant is not allowed"
        elif isinstance(node, ast.BinOp):
            yield from self._operation(node)
        elif isinstance(node, ast.Dict):
            if None in node.keys:
                yield "** in a dict is not allowed"
        elif isinstance(node, ast.comprehension):
            if node.is_async:
                yield "async comprehensions are not allowed"
        elif isinstance(node, ast.FormattedValue):
            if node.conversion != -1 or node.format_spec is not None:
                yield "conversions and format specs in f-strings are not allowed"
            elif isinstance(node.value, ast.Constant | ast.JoinedStr):
                yield "a constant in the braces of an f-string is not allowed"
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)

    def _function(self, node: ast.FunctionDef) -> Iterator[str]:
        yield from self._binding(node.name)
        if node.decorator_list:
            yield "decorators are not allowed"
        if node.returns is not None:
            yield "annotations are not allowed"
        if getattr(node, "type_params", None):
            yield "type parameters are not allowed"

    def _binding(self, name: str) -> Iterator[str]:
        if name.startswith("_"):
            yield f"the name {name!r} is not allowed"
        elif name in self._fixed:
            yield f"{name!r} can't be assigned"

    def _keyword(self, name: str) -> bool:
        return name in KEYWORDS or self._quotable.text(name)

    def _operation(self, node: ast.BinOp) -> Iterator[str]:
        """No new constant out of others, but for a bound of the prompt and a power of ten."""
        parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
        if not all(
            isinstance(p, ast.Constant | ast.JoinedStr | ast.BinOp | ast.UnaryOp) for p in parts
        ):
            if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant | ast.JoinedStr):
                yield "% after a constant is not allowed"
        elif not (self._is_bound(node) or _is_power_of_ten(node)):
            yield f"the constant {ast.unparse(node)[:MAX_TEXT]!r} is not allowed; write it as one"

    def _is_bound(self, node: ast.expr) -> bool:
        """Whether it is a small sum, or a quoted number with at most two small ones to its right."""
        numbers: list[int] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            if not isinstance(node.right, ast.Constant) or type(node.right.value) is not int:
                return False
            numbers.append(node.right.value)
            node = node.left
        if not isinstance(node, ast.Constant) or type(node.value) is not int:
            return False
        small = max(numbers, default=0) <= FREE_INT and len(numbers) <= 2
        return small and (node.value > FREE_INT or node.value + sum(numbers) <= FREE_INT)

    def _name(self, node: ast.Name) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            if node.id != PARAMS:  # see _frame
                yield from self._binding(node.id)
        elif node.id.startswith("_"):
            yield f"the name {node.id!r} is not allowed"
        elif node.id == PARAMS and id(node) not in self._looked_up:
            yield "PARAMS can only be read, as in PARAMS['name']"
        elif node.id in self._tools and id(node) not in self._callees:
            yield f"the tool {node.id!r} can only be called"
        elif node.id not in self._fixed | self._bound:
            yield f"the name {node.id!r} is unknown"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        if id(node) not in self._callees or node.attr not in METHODS:
            yield f"the attribute {node.attr!r} is not allowed"

    def _call(self, node: ast.Call) -> Iterator[str]:
        callee = node.func
        if isinstance(callee, ast.Name):
            if callee.id not in self._fixed | self._bound:
                yield f"{callee.id!r} can't be called"
        elif not isinstance(callee, ast.Attribute):
            yield f"a {type(callee).__name__} can't be called"
        elif isinstance(callee.value, ast.Constant | ast.JoinedStr) and callee.attr != "join":
            yield f"{callee.attr}() of a constant is not allowed"

    def _constant(self, node: ast.Constant) -> Iterator[str]:
        value = node.value
        if id(node) in self._exempt:
            return
        if isinstance(value, bool) or value is None:
            return
        if isinstance(value, str):
            if len(value) > MAX_TEXT:
                yield f"a text of more than {MAX_TEXT} characters is not allowed"
            elif "%" in value:
                yield "a text with % is not allowed"
            elif not self._quotable.text(value):
                yield f"the text {value!r} occurs in neither prompt, tools nor submit schema"
        elif isinstance(value, int):
            if value > MAX_INT:
                yield f"an integer above {MAX_INT} is not allowed"
            elif not self._quotable.number(value):
                yield f"the number {value} occurs in neither prompt, tools nor submit schema"
        elif isinstance(value, float):
            if not self._quotable.number(value):
                yield f"the number {value} occurs in neither prompt, tools nor submit schema"
        else:
            yield f"a constant of type {type(value).__name__} is not allowed"


def _arguments(node: ast.arguments) -> Iterator[str]:
    if node.kwarg is not None or node.kwonlyargs or node.posonlyargs:
        yield "** , / and what follows * in parameters are not allowed"
    defaults = [*node.defaults, *(d for d in node.kw_defaults if d is not None)]
    if not all(isinstance(default, ast.Constant) for default in defaults):
        yield "a default must be a constant"


def _bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _is_params(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Name) or target.id != PARAMS or node.lineno != node.end_lineno:
        return False
    return isinstance(node.value, ast.Dict) and _is_literal(node.value)


def _is_literal(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Dict):
        keys = all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys)
        return keys and all(map(_is_literal, node.values))
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_literal, node.elts))
    return isinstance(node, ast.Constant)


def _is_lookup(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether it reads one parameter by its name."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    named = isinstance(node.value, ast.Name) and node.value.id == PARAMS
    return named and isinstance(node.slice, ast.Constant)


def _is_power_of_ten(node: ast.expr) -> bool:
    """Whether it is tens, hundreds and thousands times one another."""
    if isinstance(node, ast.BinOp):
        product = isinstance(node.op, ast.Mult)
        return product and _is_power_of_ten(node.left) and _is_power_of_ten(node.right)
    return isinstance(node, ast.Constant) and node.value in (10, 100, 1000)


def _exempt_constants(tree: ast.Module, nodes: Iterable[ast.AST]) -> set[int]:
    """Docstrings, and the names of parameters, which no expression can list."""
    exempt: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                if isinstance(first.value.value, str):
                    exempt.add(id(first.value))
    for statement in tree.body:
        if _is_params(statement) and isinstance(statement, ast.Assign):
            names = statement.value
            if isinstance(names, ast.Dict):
                exempt.update(id(key) for key in names.keys if _is_parameter_name(key))
    return exempt


def _is_parameter_name(node: ast.expr | None) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return len(node.value) <= 64 and node.value.isidentifier()


class Quotable:
    """The words and numbers that a solution may quote: the prompt's, the tools', the schema's.

    A number may be quoted in another unit than the prompt's: 12.50 as 1250, 09:30 as 570 minutes,
    2 hours as 120 minutes; a date that it writes out (13 June 2025, June 13, 2025) as 2025-06-13.
    """

    def __init__(self, prompt: str, tools: Sequence[ToolSpec], schema: Schema | None) -> None:
        specs: list[JsonValue] = [tool.model_dump(mode="json") for tool in tools]
        leaves = [leaf for value in (*specs, schema) for leaf in _leaves(value)]
        self._words = {leaf for leaf in leaves if isinstance(leaf, str)} | FREE_TEXTS
        self._texts = "\n".join([prompt, *sorted(self._words)])
        self._words |= set(dates_in(self._texts))
        self._numbers = {leaf for leaf in leaves if isinstance(leaf, int | float)}
        self._numbers |= set(numbers_in(self._texts))

    def text(self, value: str) -> bool:
        """Whether a text occurs, as whole words."""
        if value in self._words:
            return True
        before = r"(?<!\w)" if value[:1].isalnum() else ""
        after = r"(?!\w)" if value[-1:].isalnum() else ""
        return re.search(before + re.escape(value) + after, self._texts) is not None

    def number(self, value: int | float) -> bool:
        """Whether a number occurs, or is a small integer."""
        return (isinstance(value, int) and abs(value) <= FREE_INT) or value in self._numbers


_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_MONTH = "|".join(f"{one[:3]}(?:{one[3:]})?" for one in _MONTHS)
_DATE = re.compile(
    rf"\b(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{_MONTH})\.?,? (?P<y1>\d{{4}})"
    rf"|(?P<m2>{_MONTH})\.? (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{4}}))\b",
    re.IGNORECASE | re.ASCII,
)


def dates_in(text: str) -> Iterator[str]:
    """The dates that a text writes out in English, as ISO 8601 writes them."""
    for match in _DATE.finditer(text):
        day, month, year = (match[f"{part}1"] or match[f"{part}2"] for part in "dmy")
        starts = [one[:3] for one in _MONTHS]
        with suppress(ValueError):  # no day of the calendar
            yield date(int(year), starts.index(month[:3].lower()) + 1, int(day)).isoformat()


def numbers_in(text: str) -> Iterator[int | float]:
    """The numbers in a text, each in the units that a solution may use."""
    for match in re.finditer(r"(?<![\d.])(\d{1,2}):(\d{2})(?!\d)", text):
        yield int(match[1]) * 60 + int(match[2])
    for match in re.finditer(r"\d{1,3}(?:[,_ \u00a0\u202f]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?", text):
        whole, _, decimals = re.sub(r"[,_ \u00a0\u202f]", "", match[0]).partition(".")
        if len(whole) + len(decimals) > 15:
            continue
        scaled = int(whole + decimals)
        yield scaled
        if decimals:
            yield float(f"{whole}.{decimals}")
        for zeros in range(1, 5):
            yield scaled * 10**zeros
        if not decimals:
            yield from (scaled * 60, scaled * 1440)
    for match in re.finditer(r"(\d+) (?:hours?|h) (?:and )?(\d+)", text):
        yield int(match[1][:6]) * 60 + int(match[2][:6])
    # A list such as "3 4 500" is read above as one number with thin spaces; take its parts too.
    for match in re.finditer(r"\d+", text):
        if len(match[0]) <= 15:
            yield int(match[0])


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, bool) and value is not None:
        yield value
