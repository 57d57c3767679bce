"""What the SQL compilers share: pieces of SQL, scopes, and the table of handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.pipelines.general.programs.emit import Block, Doc, identifier
from envgen.pipelines.general.semantics.dispatch import Dispatch

OR, AND, NOT, CMP, ADD, MUL, ATOM = range(1, 8)


@dataclass(frozen=True)
class Sql:
    """A piece of SQL, how tightly it binds, and whether it is never NULL."""

    doc: Doc
    level: int = ATOM
    known: bool = False

    def at(self, level: int) -> Doc:
        """The text, in parentheses where its context binds tighter than it does."""
        return self.doc if self.level >= level else Block("(", (self.doc,), "", ")")


@dataclass(frozen=True)
class Bound:
    """What a variable stands for: an SQL text, and the row it is the key of, if it is one."""

    text: str
    alias: str | None = None
    relation: str | None = None
    state: str = "initial"
    known: bool = True
    names: str | None = None
    """The relation of which it is sure to be a key, in ``state``."""


@dataclass(frozen=True)
class SqlScope:
    """Where an expression stands.

    ``schemas`` maps the state ("initial", "final") to the prefix of its tables.
    """

    relations: Mapping[str, ir.Relation]
    slots: Mapping[str, ir.Slot] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=lambda: {"initial": ""})
    state: Literal["initial", "final"] = "initial"
    variables: Mapping[str, Bound] = field(default_factory=dict)

    def table(self, relation: str) -> str:
        """The name of a table in the current state."""
        if self.state not in self.schemas:
            raise PipelineError(f"the {self.state} database is not at hand here")
        return self.schemas[self.state] + identifier(relation)

    def alias(self, name: str) -> str:
        """A table alias for variable ``name`` that hides nothing."""
        taken = {bound.alias for bound in self.variables.values()} | set(self.relations)
        choice, n = name, 2
        while choice in taken:
            choice, n = f"{name}_{n}", n + 1
        return choice

    def bind(self, name: str, bound: Bound) -> SqlScope:
        """This scope and one more variable."""
        return replace(self, variables={**self.variables, name: bound})


emit_table: Dispatch[Callable[..., Sql]] = Dispatch("sql")


def sql(node: ir.Node, scope: SqlScope, *, truth: bool = False) -> Sql:
    """``node`` as an SQL expression in ``scope``.

    Raises:
        PipelineError: for a combination that has no SQL form.
    """
    return emit_table[type(node)](node, scope, truth)


def bound_of(node: ir.Var, scope: SqlScope) -> Bound:
    """What a variable stands for."""
    if node.name not in scope.variables:
        raise PipelineError(f"the variable {node.name!r} is not bound")
    return scope.variables[node.name]


def slot_of(node: ir.SlotRef, scope: SqlScope) -> ir.Slot:
    """The slot that is referred to."""
    if node.slot not in scope.slots:
        raise PipelineError(f"the slot {node.slot!r} does not exist here")
    return scope.slots[node.slot]


def chain(items: list[Sql], word: str, level: int, empty: str) -> Sql:
    """``items`` joined by AND or OR; ``empty`` if there are none."""
    """The slot that is referred to."""
    if len(items) <= 1:
        return items[0] if items else Sql(empty, known=True)
    doc = Block("", tuple(item.at(level) for item in items), f" {word} ")
    return Sql(doc, level, all(item.known for item in items))


def compare(left: Sql, symbol: str, right: Sql) -> Sql:
    """A comparison."""
    doc = Block("", (left.at(ADD), right.at(ADD)), f" {symbol} ")
    return Sql(doc, CMP, left.known and right.known)


def choose(test: Sql, then: Sql, other: Sql) -> Sql:
    """CASE WHEN test THEN then ELSE other, unknown where the test is."""
    if test.known and other.doc == "TRUE":
        return chain(
            [Sql(Block("NOT ", (test.at(ATOM),)), NOT, known=True), then], "OR", OR, "FALSE"
        )
    if test.known and then.doc == "TRUE":
        return chain([test, other], "OR", OR, "FALSE")
    when: list[Doc] = [Block("WHEN ", (test.doc,), ""), Block("THEN ", (then.doc,), "")]
    if test.known:
        when.append(Block("ELSE ", (other.doc,), ""))
    else:
        when += [Block("WHEN NOT ", (test.at(ATOM),), ""), Block("THEN ", (other.doc,), "")]
    known = test.known and then.known and other.known
    return Sql(Block("CASE ", tuple(when), " ", " END"), known=known)
