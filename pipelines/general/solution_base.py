"""What the solution compilers share: pieces of Python, scopes, and the table of handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.dispatch import Dispatch
from envgen.pipelines.general.emit import Block, Doc
from envgen.pipelines.general.names import Names
from envgen.pipelines.general.solution_data import Data, Source

Want = Literal["value", "true", "false"]


IF, OR, AND, NOT, CMP, ADD, MUL, ATOM = range(1, 9)


@dataclass(frozen=True)
class Py:
    """A piece of Python, how tightly it binds, and whether it is never None."""

    doc: Doc
    level: int = ATOM
    known: bool = True
    where: tuple[Py, ...] = ()
    """What must not be None for ``inner``, where the whole is "None if ... else inner"."""
    inner: Py | None = None

    def at(self, level: int) -> Doc:
        """The text, in parentheses where its context binds tighter than it does."""
        return self.doc if self.level >= level else Block("(", (self.doc,), "", ")")


@dataclass(frozen=True)
class Item:
    """What a variable or slot stands for in the code.

    A row (``relation``: its dict is ``text``), an interval (``text`` is its start), a list of rows
    (``many``) or a plain value.
    """

    text: str
    relation: str | None = None
    source: Source | None = None
    length: int | None = None
    many: bool = False


@dataclass(frozen=True)
class Scope:
    """Where an expression stands."""

    p: ir.Problem
    data: Data
    names: Names
    slots: Mapping[str, Item] = field(default_factory=dict)
    variables: Mapping[str, Item] = field(default_factory=dict)

    def bind(self, name: str, item: Item) -> Scope:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: item})

    def variable(self, wish: str) -> str:
        """A name for a loop variable that hides none in scope."""
        return self.names.free(wish, self.taken)

    @property
    def taken(self) -> frozenset[str]:
        """Names that loop variables must not hide."""
        return frozenset(item.text for item in (*self.variables.values(), *self.slots.values()))


emit_table: Dispatch[Callable[..., Py]] = Dispatch("solution")


def emit(node: ir.Node, scope: Scope, want: Want = "value") -> Py:
    """``node`` in Python.

    Raises:
        PipelineError: if the tools don't give what it reads, or it has no form here.
    """
    return emit_table[type(node)](node, scope, want)


def as_wanted(py: Py, want: Want) -> Py:
    """A value where a condition may be wanted."""
    if want == "value":
        return py
    if py.known:
        return py if want == "true" else Py(Block("not ", (py.at(ATOM),)), NOT)
    word = "True" if want == "true" else "False"
    return Py(Block("", (py.at(ADD), word), " is "), CMP)


def logic(node: ir.Node, want: Want, make: Callable[[Want], Py], known: bool) -> Py:
    """A boolean node: ``make`` gives its true and its false condition."""
    if want != "value":
        return make(want)
    true = make("true")
    if known:
        return true
    false = make("false")
    inner = Block("", (Block("False if ", (false.at(OR),)), "else None"), " ")
    return Py(Block("(True if ", (true.at(OR), Block("else ", (inner,))), " ", ")"), known=False)


def join(items: list[Py], word: str, level: int, empty: str) -> Py:
    """``items`` joined by and / or; ``empty`` if there are none."""
    items = [item for item in items if item.doc != {"and": "True", "or": "False"}[word]]
    if len(items) <= 1:
        return items[0] if items else Py(empty)
    return Py(Block("", tuple(item.at(level) for item in items), f" {word} "), level)


def if_known(py: Py, parts: list[Py]) -> Py:
    """``py``, or None if one of ``parts`` is None."""
    doubtful = [part for part in parts if not part.known]
    if not doubtful:
        return py
    tests = [Block("", (part.at(ADD), "None"), " is ") for part in doubtful]
    test: Doc = Block("", tuple(tests), " or ") if len(tests) > 1 else tests[0]
    doc = Block("(None if ", (test, Block("else ", (py.at(OR),))), " ", ")")
    return Py(doc, known=False, where=tuple(doubtful), inner=py)


def compare(left: Py, symbol: str, right: Py) -> Py:
    """A comparison that is False where a side is None."""
    shown = [part.inner or part for part in (left, right)]
    test = Py(Block("", tuple(part.at(ADD) for part in shown), f" {symbol} "), CMP)
    doubtful = [p for part in (left, right) if not part.known for p in part.where or (part,)]
    if symbol == "==" and len(doubtful) == 1 and shown == [left, right]:
        return test
    known = [Py(Block("", (part.at(ADD), "None"), " is not "), CMP) for part in doubtful]
    return join([*known, test], "and", AND, "True")


def slot_item(node: ir.SlotRef, scope: Scope) -> Item:
    """What a slot stands for."""
    if node.index is not None or node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} can't be used like this in a solution")
    return scope.slots[node.slot]


def key_of(item: Item, scope: Scope) -> Py:
    """The value of a variable: for a row, its key."""
    if item.relation is None:
        return Py(item.text)
    key = scope.p.relation(item.relation).key
    if item.source is not None:
        item.source.want(key)
    return Py(f'{item.text}["{scope.data.field(item.relation, key)}"]')


def solid(node: ir.Node, scope: Scope) -> bool:
    """Whether a key is sure to name a row: it comes from one."""
    if isinstance(node, ir.Get):
        return scope.p.relation(node.relation).column(node.column).type.startswith("entity:")
    return isinstance(node, ir.Var | ir.SlotRef)


def conjuncts(node: ir.Node) -> list[ir.Node]:
    """Expressions that are all true iff ``node`` is."""
    if isinstance(node, ir.And):
        return [part for item in node.items for part in conjuncts(item)]
    return [] if node == ir.Const(value=True) else [node]
