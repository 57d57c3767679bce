"""Sites in Python's tests: found in the syntax tree, changed at its positions.

Decorators, ``async``, classes and expectations of several lines are all alike to it. An expectation is the
side of a comparison that is made of literals; a name stands for what it was given once in the test, in
the table of a loop, or in a row of ``parametrize``. Rows become questions of their own.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from envgen.core.code_types import Cut, Leaf, Question, Site, TestId, VerdictKind
from envgen.verifiers.lookalikes.options import Literal as Known
from envgen.verifiers.lookalikes.options import Value, capacity

Function = ast.FunctionDef | ast.AsyncFunctionDef
LeafKind = Literal["text", "pattern", "number", "boolean", "exception", "condition"]
_MIN_BITS = 2
"""Of ``many``."""
_HELPER = re.compile(r"_*(?:assert|check|verify|expect|ensure|should|validate)", re.I)
_TOLERANCES = frozenset({"rel", "abs", "delta", "places", "msg", "tol", "rtol", "atol", "nan_ok"})
_QUESTIONS = frozenset({"startswith", "endswith", "match", "search", "fullmatch", "equals"})
"""Calls whose arguments say what is expected, where their truth is asserted."""
_MAKERS = frozenset(
    {
        "approx", "dict", "list", "tuple", "set", "frozenset", "sorted", "sum", "str", "bytes", "int",
        "float", "bytearray", "complex", "date", "datetime", "time", "timedelta", "timezone", "deque",
        "defaultdict", "array", "join", "format", "encode", "decode", "replace", "strip", "dedent", "split",
    }
)  # fmt: skip
"""Calls that make a value of their arguments, beside those of classes."""
_RAISES = frozenset(
    {"raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertWarnsRegex"}
)
_NEVER = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "Exit", "BaseException"})
"""Nothing but the true one may be expected where one of these is raised: it would end the run."""
_USUAL = (
    "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "RuntimeError", "OSError",
    "ZeroDivisionError", "NotImplementedError", "LookupError", "ImportError", "ArithmeticError",
)  # fmt: skip
_USUAL_WARNINGS = (
    "UserWarning", "DeprecationWarning", "FutureWarning", "RuntimeWarning", "SyntaxWarning",
    "ImportWarning", "UnicodeWarning", "BytesWarning", "ResourceWarning",
)  # fmt: skip
MAX_TYPES = 8


class Python:
    """Look-alikes of Python's tests (pytest and unittest)."""

    def sites(self, file: str, source: bytes) -> list[Question]:
        """Every test of a file, each row of its table by itself; ``tests`` are the names of its classes.

        The id of a test is not known here: ``tests`` holds one text, ``Class.Class``.
        """
        try:
            source.decode()
            tree = ast.parse(source)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
        places = _Places(source)
        found: list[Question] = []
        for owner, function in _functions(tree):
            found += _Test(tree, function, places).questions(file, owner)
        return found

    def known(self, text: str, leaf: Leaf) -> Known:
        """Read a leaf's text. Raises ValueError."""
        value = ast.literal_eval(f"({text})")  # it may go on over lines
        if isinstance(value, bytes):
            return Known(value.decode("latin-1"))
        if not isinstance(value, str | int | float):
            raise ValueError(f"{text!r} is not a literal")
        return Known(value, leaf.kind == "pattern")

    def spell(self, value: Value, text: str) -> str:
        """A value as source, in the place of a text."""
        if text.lstrip("(rR").startswith(("b", "B")) and isinstance(value, str):
            return repr(value.encode("latin-1", "replace"))
        return repr(value)

    def conditions(self, text: str) -> tuple[str, str]:
        """A condition and its opposite, neither of them as it stood."""
        return f"(not not ({text}))", f"(not ({text}))"

    def word(self, first: str, second: str) -> str:
        """A test's name made of two words."""
        return f"test_{first}_{second}"

    def key(self, test: TestId) -> str:
        """See ``Language``: without parameters."""
        return re.sub(r"(?:\[.*| \(.*)$", "", test, flags=re.DOTALL)

    def matched(self, found: Sequence[Question], ids: Sequence[TestId]) -> list[Question]:
        """See ``Language``.

        A table that was taken apart has a question for each of its cases; where their number is another
        than the report's, or several classes inherit a test, it can't be said which is which.
        """
        functions: dict[tuple[str, str], list[Question]] = defaultdict(list)
        for question in found:
            functions[question.tests[0], question.name].append(question)
        cases: dict[tuple[str, str], dict[str, list[TestId]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for test in ids:
            head, _, name = self.key(test).rpartition("::")
            if found and test.partition("::")[0] != found[0].file:
                continue
            if owner := _owner(head, name, functions):
                cases[owner][head].append(test)
        questions = []
        for key, heads in cases.items():
            rows, tests = functions[key], [test for own in heads.values() for test in own]
            if len(rows) == 1 and not rows[0].cuts:
                questions.append(rows[0].model_copy(update={"tests": tuple(tests)}))
            elif len(rows) == len(tests) and len(heads) == 1:
                questions += [
                    row.model_copy(update={"tests": (test,)})
                    for row, test in zip(rows, tests, strict=True)
                ]
        return questions


class _Places:
    """Places in the syntax tree as places in the bytes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of the module and of its classes that have a name of their own there."""
    todo: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    while todo:
        owner, node = todo.pop()
        here = [one for one in node.body if isinstance(one, Function)]
        names = [one.name for one in here]
        yield from ((owner, one) for one in here if names.count(one.name) == 1)
        classes = [one for one in node.body if isinstance(one, ast.ClassDef)]
        todo += [(f"{owner}.{one.name}".lstrip("."), one) for one in classes]


class _Row(NamedTuple):
    """The rows of each table that one case takes, and what they give its parameters."""

    cuts: tuple[Cut, ...]
    values: dict[str, ast.expr]


class _Test:
    def __init__(self, tree: ast.Module, function: Function, places: _Places) -> None:
        self.tree, self.function, self.places = tree, function, places
        self.values = {**_assigned(function), **_looped(function)}

    def questions(self, file: str, owner: str) -> Iterator[Question]:
        first = [*self.function.decorator_list, self.function][0]
        start = self.places.starts[first.lineno - 1]
        end = self.places.span(self.function)[1]
        at = self.places.span(self.function)[0]
        at = self.places.source.index(self.function.name.encode(), at + len("def"))
        for row in self._rows():
            yield Question(
                file=file,
                start=start,
                end=end,
                name=self.function.name,
                name_at=at,
                cuts=row.cuts,
                tests=(owner,),
                sites=tuple(self._sites(row)),
            )

    def _rows(self) -> list[_Row]:
        """One for each case, in pytest's order: the uppermost table turns fastest.

        A single one without cuts where a table is no literal: its cases stay together.
        """
        rows = [_Row((), {})]
        for call in self.function.decorator_list:
            if not isinstance(call, ast.Call) or _name(call.func) != "parametrize":
                continue
            table = self._table(call)
            if table is None:
                return [_Row((), {})]
            rows = [
                _Row((*old.cuts, *new.cuts), old.values | new.values)
                for new in table
                for old in rows
            ]
        return rows

    def _table(self, call: ast.Call) -> list[_Row] | None:
        given = [
            *call.args,
            *(k.value for k in call.keywords if k.arg in ("argnames", "argvalues")),
        ]
        if len(given) != 2 or not isinstance(given[1], ast.List | ast.Tuple):
            return None
        names = _argument_names(given[0])
        ids = [k.value for k in call.keywords if k.arg == "ids"]
        lists = [one for one in (given[1], *ids) if isinstance(one, ast.List | ast.Tuple)]
        rows = given[1].elts
        fit = names and rows and all(len(one.elts) == len(rows) for one in lists)
        if not fit or any(isinstance(row, ast.Starred) for row in rows):
            return None
        found = []
        for n, row in enumerate(rows):
            if not all(self._is_single(one, n) for one in lists):
                return None
            cuts = tuple(cut for one in lists for cut in self._only(one, n))
            found.append(_Row(cuts if len(rows) > 1 else (), _given(names, row)))
        return found

    def _is_single(self, table: ast.List | ast.Tuple, n: int) -> bool:
        """Whether what is left of a list is one with a single element."""
        first, last = self.places.span(table)
        text = self.places.source[first : first + 1]
        for cut, after in itertools.pairwise(self._only(table, n)):
            text += self.places.source[cut.end : after.start] + after.text.encode()
        try:
            left = ast.parse(text + self.places.source[last - 1 : last], mode="eval").body
        except SyntaxError:  # an element in brackets
            return False
        return isinstance(left, ast.List | ast.Tuple) and len(left.elts) == 1

    def _only(self, table: ast.List | ast.Tuple, n: int) -> Iterator[Cut]:
        """What leaves one element of a list."""
        start, end = self.places.span(table.elts[n])
        first, last = self.places.span(table)
        yield Cut(start=first + 1, end=start)
        yield Cut(start=end, end=last - 1, text=",")

    def _sites(self, row: _Row) -> Iterator[Site]:
        found = _Expectations(self, row.values)
        for statement in self.function.body:
            found.statement(statement)
        seen = set()
        for site in sorted(found.sites, key=lambda site: site.at):
            if site.leaves not in seen and all(_inside(leaf, row.cuts) for leaf in site.leaves):
                seen.add(site.leaves)
                yield site

    def types(self, node: ast.expr, usual: Sequence[str]) -> tuple[str, ...]:
        """Other exceptions that a test could expect: those that its file knows, then the usual ones."""
        true = {_name(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
        if not true or true & _NEVER:
            return ()
        known: dict[str, None] = {}
        for one in ast.walk(self.tree):
            if isinstance(one, ast.Call) and _name(one.func) in _RAISES and one.args:
                text = self.places.text(one.args[0])
                if re.fullmatch(r"[\w.]+", text):
                    known[text] = None
        kin = set().union(*(_kin(name) for name in true))
        others = [one for one in (*known, *usual) if one.rpartition(".")[2] not in kin | _NEVER]
        return tuple(dict.fromkeys(others))[: MAX_TYPES - 1]


class _Expectations:
    """Walks a test's statements; ``sites`` is what it found."""

    def __init__(self, test: _Test, values: dict[str, ast.expr]) -> None:
        self.test, self.values = test, values
        self.sites: list[Site] = []
        self.at = 0

    def statement(self, node: ast.stmt) -> None:
        """A statement and those inside it."""
        if isinstance(node, ast.Assert):
            self._condition(node.test)
        elif isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(value, ast.Call):
                self.at = self.test.places.span(value)[0]
                self._call(value)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call):
                    self.at = self.test.places.span(item.context_expr)[0]
                    self._call(item.context_expr)
        if isinstance(node, Function | ast.ClassDef):
            return
        for name in ("body", "orelse", "finalbody"):
            for one in getattr(node, name, ()):
                self.statement(one)
        for handler in getattr(node, "handlers", ()):
            for one in handler.body:
                self.statement(one)

    def _condition(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for value in node.values:
                self._condition(value)
            return
        self.at = self.test.places.span(node)[0]
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = node.left, node.comparators[0]
            if isinstance(node.ops[0], ast.Eq | ast.Is):
                self._either(right, left)
            elif isinstance(node.ops[0], ast.In):
                self._either(left, right)
        elif isinstance(node, ast.Call) and _name(node.func) in _QUESTIONS:
            self._values(*node.args, pattern=_name(node.func) in ("match", "search"))
        self._bit(node)

    def _call(self, node: ast.Call) -> None:
        name = _name(node.func)
        if name in _RAISES:
            self._raises(node)
        elif name in ("assertTrue", "assertFalse") and node.args:
            self._condition(node.args[0]) if name == "assertTrue" else self._bit(node.args[0])
        elif name in ("assertIsNone", "assertIsNotNone", "assertNotIn", "assertNotEqual"):
            pass  # what would be its opposite is no literal
        elif name in ("assertIn", "assertRegex", "assertRegexpMatches") and len(node.args) > 1:
            first, second = node.args[:2]
            if name == "assertIn":
                self._either(first, second)
            else:
                self._values(second, pattern=True)
        elif name.startswith("assert") and len(node.args) > 1:
            self._either(node.args[1], node.args[0])
        elif _HELPER.match(name):
            given = [k.value for k in node.keywords if k.arg not in _TOLERANCES]
            any(self._values(one) for one in (*reversed(node.args), *given))

    def _raises(self, node: ast.Call) -> None:
        matched = [k.value for k in node.keywords if k.arg in ("match", "expected_regex")]
        if _name(node.func).endswith("Regex"):
            matched += node.args[1:2]
        for one in matched:
            self._values(one, pattern=True)
        if node.args:
            warns = "arn" in _name(node.func)
            types = self.test.types(node.args[0], _USUAL_WARNINGS if warns else _USUAL)
            start, end = self.test.places.span(node.args[0])
            if types:
                leaf = Leaf(start=start, end=end, kind="exception")
                site = Site(leaves=(leaf,), kind=VerdictKind.EXCEPTION, at=self.at, wrong=types)
                self.sites.append(site)

    def _either(self, first: ast.expr, second: ast.expr) -> bool:
        """Vary the side that is made of literals; of two, the one without a call."""
        sides = sorted((first, second), key=self._distance)
        return any(self._values(one) for one in sides)

    def _distance(self, node: ast.expr, depth: int = 0) -> int:
        """How far an expression is from a literal: its calls, and those behind its names."""
        found = -sum(
            isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
            for one in ast.walk(node)
        )
        for one in ast.walk(node):
            found += isinstance(one, ast.Call | ast.Attribute | ast.Subscript)
            if isinstance(one, ast.Name) and depth < 5 and (known := self._behind(one.id)):
                found += self._distance(known, depth + 1)
        return found

    def _behind(self, name: str) -> ast.expr | None:
        return self.values.get(name) or self.test.values.get(name)

    def _values(self, *nodes: ast.expr, pattern: bool = False) -> bool:
        """A site of the literals in expressions, if there are any."""
        found = [leaf for node in nodes for leaf in self._leaves(node, pattern, 0)]
        literals = [known for _, known in found]
        bits = capacity(literals)
        if not bits:
            return False
        kind = VerdictKind.MANY if bits >= _MIN_BITS else VerdictKind.ONE_BIT
        leaves = sorted((leaf for leaf, _ in found), key=lambda leaf: leaf.start)
        if any(a.end > b.start for a, b in itertools.pairwise(leaves)):
            return False
        self.sites.append(Site(leaves=tuple(leaves), kind=kind, at=self.at))
        return True

    def _bit(self, node: ast.expr) -> None:
        start, end = self.test.places.span(node)
        leaf = Leaf(start=start, end=end, kind="condition")
        self.sites.append(Site(leaves=(leaf,), kind=VerdictKind.ONE_BIT, at=self.at))

    def _leaves(self, node: ast.expr, pattern: bool, depth: int) -> Iterator[tuple[Leaf, Known]]:
        signed = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) and signed else node
        if isinstance(inner, ast.Constant):
            yield from self._constant(node, pattern)
        elif isinstance(node, ast.Name) and depth < 5:
            if known := self._behind(node.id):
                yield from self._leaves(known, pattern, depth + 1)
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            found = self._ordered(node.values, pattern, depth)
            yield from found or self._one(keys, pattern, depth)
        elif isinstance(node, ast.List | ast.Tuple) or _name_of_call(node) == "approx":
            yield from self._ordered(_children(node), pattern, depth)
        else:
            yield from self._one(_children(node), pattern, depth)

    def _ordered(
        self, nodes: Sequence[ast.expr], pattern: bool, depth: int
    ) -> list[tuple[Leaf, Known]]:
        """All leaves: another value at any of these places is another whole."""
        return [found for node in nodes for found in self._leaves(node, pattern, depth)]

    def _one(
        self, nodes: Sequence[ast.expr], pattern: bool, depth: int
    ) -> list[tuple[Leaf, Known]]:
        """The leaf that has most options: of a sum or a set, two changes could be none."""
        found = self._ordered(nodes, pattern, depth)
        return [max(found, key=lambda one: capacity([one[1]]))] if found else []

    def _constant(self, node: ast.expr, pattern: bool) -> Iterator[tuple[Leaf, Known]]:
        start, end = self.test.places.span(node)
        value = ast.literal_eval(node)
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if not isinstance(value, str | int | float) or len(str(value)) > 2_000:
            return
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            return
        kind: LeafKind = "boolean" if isinstance(value, bool) else "number"
        if isinstance(value, str):
            kind = "pattern" if pattern else "text"
        known = Known(value, pattern and isinstance(value, str))
        if capacity([known]):
            yield Leaf(start=start, end=end, kind=kind), known


def _children(node: ast.expr) -> list[ast.expr]:
    """The parts of an expression whose literals are what is expected."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if not name.lstrip("_")[:1].isupper() and name not in _MAKERS:
            return []  # what it is given is no expectation, but an input
        keywords = [k.value for k in node.keywords if k.arg not in _TOLERANCES]
        return [*node.args, *keywords]
    if isinstance(node, ast.Starred | ast.Await):
        return [node.value]
    return [node.left, node.right] if isinstance(node, ast.BinOp) else []


def _name_of_call(node: ast.expr) -> str:
    return _name(node.func) if isinstance(node, ast.Call) else ""


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _kin(name: str) -> set[str]:
    """A builtin exception's bases and itself, and what is below it."""
    found = getattr(builtins, name, None)
    if not isinstance(found, type):
        return {name}
    below = [one.__name__ for one in vars(builtins).values() if _below(one, found)]
    return {one.__name__ for one in found.__mro__} | set(below)


def _below(one: object, other: type) -> bool:
    return isinstance(one, type) and issubclass(one, other)


def _argument_names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    if isinstance(node, ast.List | ast.Tuple):
        return [str(one.value) for one in node.elts if isinstance(one, ast.Constant)]
    return []


def _given(names: Sequence[str], row: ast.expr) -> dict[str, ast.expr]:
    """Return a row's value of each parameter, without computed ones: those are made at load."""
    if isinstance(row, ast.Call) and _name(row.func) == "param":
        values = row.args
    elif len(names) == 1:
        values = [row]
    else:
        values = row.elts if isinstance(row, ast.Tuple | ast.List) else []
    if len(values) != len(names):
        return {}
    given = zip(names, values, strict=True)
    return {name: value for name, value in given if not _computed(value)}


def _computed(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Call | ast.BinOp) for one in ast.walk(node))


def _assigned(function: Function) -> dict[str, ast.expr]:
    """Names that are given a value once."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        plain = len(node.targets) == 1 and one is target
                        found.setdefault(one.id, []).extend([node.value] * (1 if plain else 2))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _looped(function: Function) -> dict[str, ast.expr]:
    """Names of a loop over a literal table: all their rows, as a list."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.For) or not isinstance(node.iter, ast.List | ast.Tuple):
            continue
        single = isinstance(node.target, ast.Name)
        targets = [node.target] if single else getattr(node.target, "elts", [])
        for n, target in enumerate(targets):
            if isinstance(target, ast.Name):
                column = [row if single else _cell(row, n, len(targets)) for row in node.iter.elts]
                if cells := [one for one in column if one is not None]:
                    found[target.id] = ast.List(elts=cells, ctx=ast.Load())
    return found


def _cell(row: ast.expr, n: int, width: int) -> ast.expr | None:
    fits = isinstance(row, ast.Tuple | ast.List) and len(row.elts) == width
    return row.elts[n] if fits and isinstance(row, ast.Tuple | ast.List) else None


def _inside(leaf: Leaf, cuts: Sequence[Cut]) -> bool:
    """Whether a leaf stands in what is kept."""
    return all(leaf.end <= cut.start or leaf.start >= cut.end for cut in cuts)


def _owner(
    head: str, name: str, functions: dict[tuple[str, str], list[Question]]
) -> tuple[str, str] | None:
    """Find a test's class: the one that its id names, or the only one that has it."""
    classname = head.rpartition("::")[2]
    stem = head.partition("::")[0].rpartition("/")[2].rpartition(".")[0]
    owners = [owner for owner, one in functions if one == name]
    exact = [
        owner
        for owner in owners
        if (owner and f".{classname}".endswith(f".{owner}"))
        or (not owner and (classname.endswith(stem) or stem == "__init__"))
    ]
    chosen = exact or owners
    return (max(chosen, key=len), name) if len(exact) > 0 or len(owners) == 1 else None
