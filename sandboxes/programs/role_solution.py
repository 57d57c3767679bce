"""Zygote role: restricted solutions, which hold tool proxies and nothing else (docs/ir.md)."""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import resource
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from importlib import import_module
from types import CodeType
from typing import Any

params = import_module("params")
toolbox = import_module("toolbox")

CALL, DONE = 1, 0
"""Kinds of a worker's frame: ``[CALL, tool, arguments]``; ``[DONE, answer]``; ``[FAULT, text]``."""

CAP = 10**6
BUILTINS = (
    "abs all any bool dict enumerate float int len list max min range reversed round set sorted "
    "str sum tuple zip"
).split()
METHODS = frozenset(
    "append extend insert pop remove sort add discard update get items keys values setdefault copy "
    "index count split strip lower upper startswith endswith replace join".split()
)
NODES = {
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Name, ast.Load,
    ast.Store, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.IfExp, ast.BoolOp, ast.And, ast.Or,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.UnaryOp, ast.Not,
    ast.USub, ast.Compare, *ast.cmpop.__subclasses__(), ast.Subscript, ast.Slice, ast.Lambda,
    ast.Call, ast.keyword, ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.Starred,
}  # fmt: skip


def check(tree: ast.AST) -> list[ast.AST]:
    """Refuse all but the allowed nodes, and give them; names and constants are the host's to check."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    spread = {id(argument) for node in calls for argument in node.args}
    for node in nodes:
        fault = _fault(node, id(node) in called, id(node) in spread)
        if fault is not None:
            raise SyntaxError(f"line {getattr(node, 'lineno', 0)}: {fault}")
    return nodes


def _fault(node: Any, called: bool, argument: bool) -> str | None:
    """What is not allowed of a node; types are compared as they are, which is fastest."""
    kind = type(node)
    if kind not in NODES:
        return f"{kind.__name__} is not allowed"
    if kind is ast.Attribute and not (called and node.attr in METHODS):
        return f"attribute {node.attr!r} is not allowed"
    if kind is ast.FunctionDef and node.decorator_list:
        return "decorators are not allowed"
    if kind is ast.Starred and not argument:
        return "* is only allowed before an argument of a call"
    if kind is ast.arguments and node.kwarg:
        return "** parameters are not allowed"
    if kind is ast.keyword and node.arg is None:
        return "** arguments are not allowed"
    if kind is ast.FormattedValue and (node.conversion != -1 or node.format_spec):
        return "format specifications are not allowed"
    name = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", None)
    if isinstance(name, str) and name.startswith("_"):
        return f"name {name!r} is not allowed"
    return None


def date_add(day: str, days: int) -> str:
    """The date ``days`` after ``day``, as YYYY-MM-DD."""
    return (date.fromisoformat(day[:10]) + timedelta(days=days)).isoformat()


def days_between(left: str, right: str) -> int:
    """Whole days from ``left`` to ``right`` (negative if right is earlier)."""
    return (date.fromisoformat(right[:10]) - date.fromisoformat(left[:10])).days


def minutes(clock: str) -> int:
    """Minutes since midnight of "HH:MM", alone or at the end of a date and time."""
    hours, _, rest = clock[-5:].partition(":")
    return int(hours) * 60 + int(rest)


def weekday(day: str) -> int:
    """Day of the week, Monday being 0."""
    return date.fromisoformat(day[:10]).weekday()


def _capped(items: Iterator[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number >= CAP:
            raise OverflowError(f"more than {CAP} items")
        yield item


def combinations(items: Any, size: int) -> Iterator[Any]:
    """``itertools.combinations``, capped."""
    return _capped(itertools.combinations(items, size))


def permutations(items: Any, size: int | None = None) -> Iterator[Any]:
    """``itertools.permutations``, capped."""
    return _capped(itertools.permutations(items, size))


def product(*parts: Any) -> Iterator[Any]:
    """``itertools.product``, capped."""
    return _capped(itertools.product(*parts))


PRELUDE: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        date_add, days_between, minutes, weekday, combinations, permutations, product,
    )
}  # fmt: skip


def text(value: Any = "") -> str:
    """``str`` of data; of functions and iterators it would tell names and addresses.

    Raises:
        TypeError: when something in the value is no data.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    _data(value)
    return str(value)


def _data(value: Any) -> None:
    if isinstance(value, dict):
        value = itertools.chain(value, value.values())
    elif not isinstance(value, list | tuple | set):
        if value is None or isinstance(value, bool | int | float | str):
            return
        raise TypeError(f"a {type(value).__name__} has no text")
    for item in value:
        _data(item)


NAMES = {name: getattr(builtins, name) for name in BUILTINS} | PRELUDE | {"str": text}


class _Texts(ast.NodeTransformer):
    """Has f-strings call ``str``, too."""

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        node.value = ast.Call(ast.Name("str", ast.Load()), [node.value], [])
        return node


def prepare(config: dict[str, Any], files: list[int]) -> None:
    """Nothing to load: solutions get no file and no database."""


def _proxy(pipe: Any, name: str, order: list[str]) -> Callable[..., Any]:
    def tool(*values: Any, **arguments: Any) -> Any:
        for parameter, value in zip(order, values, strict=False):
            if parameter in arguments:
                raise TypeError(f"{name}() got two values for {parameter!r}")
            arguments[parameter] = value
        if len(values) > len(order):
            raise TypeError(f"{name}() takes {len(order)} arguments")
        pipe.send([CALL, name, arguments])
        return pipe.recv()

    return tool


def _plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON would carry it; refuses what JSON would silently change."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth < 50 and isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if depth < 50 and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    raise TypeError(f"the answer holds a {type(value).__name__} that is not JSON")


def _compile(source: str, first_line: int = 0) -> CodeType:
    """Code of a source that passed the check; ``first_line`` lines of the file stand before it."""
    tree = ast.parse("\n" * first_line + source, "solution.py")
    if any(isinstance(node, ast.FormattedValue) for node in check(tree)):
        tree = ast.fix_missing_locations(_Texts().visit(tree))
    return compile(tree, "solution.py", "exec", dont_inherit=True)


class SolutionCompiler:
    """Compiles solutions; the same one with another ``PARAMS`` line costs that line only."""

    def __init__(self) -> None:
        self._program: tuple[str, str] | None = None
        self._codes: tuple[CodeType, CodeType] | None = None

    def codes(self, source: str) -> list[CodeType]:
        """What to execute, in order, in one namespace."""
        parts = params.split(source)
        if parts is not None:
            try:
                return self._around(parts)
            except SyntaxError:  # the line is inside something, or the whole is wrong
                pass
        return [_compile(source)]

    def _around(self, parts: Any) -> list[CodeType]:
        lines = parts.before.count("\n")
        if self._codes is None or parts.program != self._program:
            self._codes = _compile(parts.before), _compile(parts.after, lines)
            self._program = parts.program
        before, after = self._codes
        return [before, _compile(parts.line, lines), after]


def _allow_cpu(seconds: int) -> None:
    """Set the soft limit of CPU time to ``seconds`` from now, or up to one more; the hard one stays."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(time.process_time() - 0.05) + seconds  # whole seconds are all it knows
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))


def _solve(codes: list[CodeType], tools: dict[str, Any]) -> Any:
    space: dict[str, Any] = {**tools, "__builtins__": dict(NAMES)}
    for code in codes:
        exec(code, space)
    if not callable(space.get("solve")):
        raise LookupError("solution.py is missing solve()")
    return _plain(space["solve"]())


def serve(pipe: Any, request: dict[str, Any], files: list[int]) -> None:
    """Run solutions one by one, each in a namespace of its own, until one fails.

    A frame holds the source; the request names the tools and the CPU seconds of one run. A solution can
    leave nothing behind for the next: it has no module, no attribute and no object that outlives it.
    """
    tools = {name: _proxy(pipe, name, order) for name, order in request["tools"].items()}
    compiler = SolutionCompiler()
    while True:
        source = pipe.recv()
        _allow_cpu(request["run_cpu_s"])
        pipe.send([DONE, _solve(compiler.codes(source), tools)])
