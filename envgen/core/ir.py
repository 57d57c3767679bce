"""The constraint IR: one machine-readable statement of a task, from which everything else is compiled.

A ``Problem`` names the relations of a database, the tools over them (``Access``), what is asked
(``slots`` in a ``layout``), what must hold (``clauses``, ``goal``) and the tunable constants
(``params``). ``docs/ir.md`` says how to read it; ``envgen.pipelines.general`` compiles it.

Values: int, str, bool, None (unknown). Decimals are scaled ints, dates ``YYYY-MM-DD``, datetimes
``YYYY-MM-DDTHH:MM``; an entity is the value of its relation's key column; an interval is
``{"start": int, "end": int}`` in minutes; a set is a list without repeats.

Logic is SQL's: three-valued, a missing row gives unknown, ``Not(unknown)`` is unknown. A clause holds
iff ``guard -> expr`` is true; an unknown clause is false, and so is one with an unknown guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Literal, Self, TypeVar, cast

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
)

from envgen.core.limits import Json, Label, Text, Whole, Word
from envgen.core.types import Record

Scalar = bool | int | str | None
Found = TypeVar("Found")
_Scalar = bool | Whole | Text | None


class Node(Record, defer_build=True):
    """Base of all expressions."""

    # Expressions are keys of every compiler's memos: each is hashed once, and a copy anew. What is asked
    # of one again and again is kept with it: to look it up by an equal one compares whole trees.
    __slots__ = ("_hash", "_known")

    def __hash__(self) -> int:
        try:
            known: int = object.__getattribute__(self, "_hash")
        except AttributeError:
            known = hash((type(self), *self.__dict__.values()))
            object.__setattr__(self, "_hash", known)
        return known

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self.__dict__ == other.__dict__

    def known(self, find: Callable[[Node], Found]) -> Found:
        """What ``find`` says of this node, asked once."""
        try:
            facts: dict[object, object] = object.__getattribute__(self, "_known")
        except AttributeError:
            object.__setattr__(self, "_known", facts := {})
        if find not in facts:
            facts[find] = find(self)
        return cast("Found", facts[find])

    def children(self) -> Iterator[Node]:
        """Direct sub-expressions, queries included, in field order."""
        for name in _fields(type(self)):
            value = getattr(self, name)
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Node):
                    yield item

    def walk(self) -> Iterator[Node]:
        """This node and everything below it, depth first."""
        yield self
        for child in self.children():
            yield from child.walk()


@cache
def _fields(kind: type[Node]) -> tuple[str, ...]:
    """The fields of a kind of node; pydantic takes its time to name them."""
    return tuple(kind.model_fields)


class Const(Node):
    """A literal; ``unit`` only matters to the prompt. A tuple is allowed on the right of ``in``."""

    op: Literal["const"] = "const"
    value: _Scalar | tuple[_Scalar, ...]
    unit: Label | None = None


class Param(Node):
    """A tunable constant, ``Problem.params[name]``; it is stated in the prompt."""

    op: Literal["param"] = "param"
    name: Word


class Var(Node):
    """A variable bound by a Query (an entity) or by Sum/Count/All/Any (element of what ``over`` gives)."""

    op: Literal["var"] = "var"
    name: Word


class Arg(Node):
    """An argument of the tool call (only in ``Access.pre`` and ``Access.effects``)."""

    op: Literal["arg"] = "arg"
    name: Word


class SlotRef(Node):
    """The submitted value of a slot; ``index`` picks an element of a sequence or a map's value at a key."""

    op: Literal["slot"] = "slot"
    slot: Word
    index: Expr | None = None


class Get(Node):
    """Column ``column`` of the row of ``relation`` whose key is ``entity``; unknown if there is none.

    Reads the final database inside ``New``, else the initial one.
    """

    op: Literal["get"] = "get"
    relation: Word
    entity: Expr
    column: Word


class Arith(Node):
    """Integer arithmetic. ``//`` floors (operands >= 0, divisor a positive constant).

    ``convert`` multiplies ``left`` by the constant ``right`` and states a unit change in the prompt.
    """

    op: Literal["arith"] = "arith"
    fn: Literal["+", "-", "*", "//", "convert"]
    left: Expr
    right: Expr


class Cmp(Node):
    """A comparison; unknown if a side is. ``in`` looks into a tuple Const, a set slot or a list."""

    op: Literal["cmp"] = "cmp"
    fn: Literal["=", "!=", "<", "<=", ">", ">=", "in"]
    left: Expr
    right: Expr


class And(Node):
    """All of ``items``; true when empty."""

    op: Literal["and"] = "and"
    items: tuple[Expr, ...]


class Or(Node):
    """Any of ``items``; false when empty."""

    op: Literal["or"] = "or"
    items: tuple[Expr, ...]


class Not(Node):
    """Negation; unknown stays unknown."""

    op: Literal["not"] = "not"
    item: Expr


class If(Node):
    """``then`` where ``test`` is true, ``other`` where it is false; unknown where it is unknown."""

    op: Literal["if"] = "if"
    test: Expr
    then: Expr
    other: Expr


class Query(Node):
    """Rows of ``relation`` with ``where`` true, in ``order`` (ties by key, ascending), cut to ``limit``.

    ``select`` is computed per row (None: the row's key). ``agg`` folds the selected values: count -> int,
    sum -> int (0 when empty), min / max -> unknown when empty, mean -> floor, unknown when empty. With
    ``agg="none"`` and ``limit=1`` the query is a scalar (unknown when empty), else a list of values.
    Joins are written as nested ``Get`` over foreign keys.
    """

    op: Literal["query"] = "query"
    var: Word
    relation: Word
    where: Expr = Const(value=True)
    select: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: Whole | None = None
    agg: Literal["none", "count", "sum", "min", "max", "mean"] = "none"


class Order(Node):
    """One sort key."""

    op: Literal["order"] = "order"
    by: Expr
    descending: bool = False


class Range(Node):
    """The integers low, low + step, ... <= high."""

    op: Literal["range"] = "range"
    low: Expr
    high: Expr
    step: Whole = 1


class Reachable(Node):
    """The entities that edges lead to from ``start``, over one step or more; ``start`` only on a cycle.

    Each row of ``relation`` is an edge from the entity in its column ``source`` to the one in ``target``;
    an unknown end is no edge, and nothing can be reached from an unknown ``start``. Stands where a list
    may: ``over`` of Sum, Count, All and Any, the right of ``in``. Reads the final database inside ``New``.
    """

    op: Literal["reachable"] = "reachable"
    start: Expr
    relation: Word
    source: Word
    target: Word


class Sum(Node):
    """Sum of ``body`` over the elements of ``over``; 0 when empty, unknown if any body is."""

    op: Literal["sum"] = "sum"
    var: Word
    over: Over
    body: Expr


class Count(Node):
    """How many elements of ``over`` make ``body`` true; unknown if any body is."""

    op: Literal["count"] = "count"
    var: Word
    over: Over
    body: Expr


class All(Node):
    """``body`` for every element: false if one is false, else unknown if one is unknown, else true."""

    op: Literal["all"] = "all"
    var: Word
    over: Over
    body: Expr


class Any(Node):
    """``body`` for some element: true if one is true, else unknown if one is unknown, else false."""

    op: Literal["any"] = "any"
    var: Word
    over: Over
    body: Expr


class AllDifferent(Node):
    """``items`` pairwise different; unknown if two known items don't clash but one is unknown."""

    op: Literal["all_different"] = "all_different"
    items: tuple[Expr, ...]


class NoOverlap(Node):
    """No two ``intervals`` (half-open, [start, end)) overlap.

    With ``resources`` (one expression per interval), only pairs with equal resources must not overlap.
    """

    op: Literal["no_overlap"] = "no_overlap"
    intervals: tuple[Expr, ...]
    resources: tuple[Expr, ...] = ()


class Before(Node):
    """``left`` ends at least ``lag`` minutes before ``right`` starts."""

    op: Literal["before"] = "before"
    left: Expr
    right: Expr
    lag: Expr = Const(value=0)


class Start(Node):
    """Start minute of an interval."""

    op: Literal["start"] = "start"
    interval: Expr


class End(Node):
    """End minute of an interval."""

    op: Literal["end"] = "end"
    interval: Expr


class Days(Node):
    """Whole days from date ``left`` to date ``right`` (negative if right is earlier)."""

    op: Literal["days"] = "days"
    left: Expr
    right: Expr


class Old(Node):
    """``item`` read in the initial database."""

    op: Literal["old"] = "old"
    item: Expr


class New(Node):
    """``item`` read in the final database."""

    op: Literal["new"] = "new"
    item: Expr


def _op(value: object) -> str:
    return str(value["op"] if isinstance(value, dict) else getattr(value, "op", ""))


Expr = Annotated[
    Annotated[Const, Tag("const")]
    | Annotated[Param, Tag("param")]
    | Annotated[Var, Tag("var")]
    | Annotated[Arg, Tag("arg")]
    | Annotated[SlotRef, Tag("slot")]
    | Annotated[Get, Tag("get")]
    | Annotated[Arith, Tag("arith")]
    | Annotated[Cmp, Tag("cmp")]
    | Annotated[And, Tag("and")]
    | Annotated[Or, Tag("or")]
    | Annotated[Not, Tag("not")]
    | Annotated[If, Tag("if")]
    | Annotated[Query, Tag("query")]
    | Annotated[Reachable, Tag("reachable")]
    | Annotated[Sum, Tag("sum")]
    | Annotated[Count, Tag("count")]
    | Annotated[All, Tag("all")]
    | Annotated[Any, Tag("any")]
    | Annotated[AllDifferent, Tag("all_different")]
    | Annotated[NoOverlap, Tag("no_overlap")]
    | Annotated[Before, Tag("before")]
    | Annotated[Start, Tag("start")]
    | Annotated[End, Tag("end")]
    | Annotated[Days, Tag("days")]
    | Annotated[Old, Tag("old")]
    | Annotated[New, Tag("new")],
    Discriminator(_op),
]
Over = Annotated[
    Annotated[Query, Tag("query")]
    | Annotated[Reachable, Tag("reachable")]
    | Annotated[SlotRef, Tag("slot")]
    | Annotated[Range, Tag("range")],
    Discriminator(_op),
]

EXPR_NODES: tuple[type[Node], ...] = (
    Const, Param, Var, Arg, SlotRef, Get, Arith, Cmp, And, Or, Not, If, Query, Reachable, Sum, Count, All,
    Any, AllDifferent, NoOverlap, Before, Start, End, Days, Old, New,
)  # fmt: skip
"""Every expression class. A compiler that dispatches on them must cover each one at import."""


class Column(Record, defer_build=True):
    """A column. ``type``: entity:RELATION | int | decimal:SCALE | str | bool | date | datetime | minutes."""

    name: Word
    type: Label
    unit: Label | None = None
    nullable: bool = False


class Relation(Record, defer_build=True):
    """A table with a one-column text key. Hidden relations (``visible=False``) have no tools."""

    name: Word
    key: Word
    columns: tuple[Column, ...]
    visible: bool = True

    def column(self, name: str) -> Column:
        """The column ``name``; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name}.{name}")


class Precondition(Record, defer_build=True):
    """A condition that a write tool enforces; a call that breaks it returns the error ``code``."""

    expr: Expr
    code: Label
    text: Text


class Write(Record, defer_build=True):
    """One effect of a write tool.

    insert: a new row, ``key`` and ``set`` give its values. update / delete: the row(s) of ``relation``
    whose key is ``key``.
    """

    kind: Literal["insert", "update", "delete"]
    relation: Word
    key: Expr
    set: dict[Word, Expr] = Field(default_factory=dict)


class Access(Record, defer_build=True):
    """A tool: its signature and its body.

    ``args`` maps argument -> column. Modes and what they return:

    * list: rows where each args column equals its argument (all rows if no args).
    * range: as list, but an argument named ``min_*`` / ``max_*`` bounds its column, inclusive.
    * page: as list plus an int argument ``page`` (from 1, ``page_size`` rows): {items, page, pages}.
    * inverse: the one row (args name its key): the value of its one returned column, or an object.
    * info: the one row, an object with the columns named in the list argument ``projection``.
    * write: checks ``pre`` in order, applies ``effects``; returns {"ok": true}.

    Lists come in key order; with one returned column they hold bare values, else objects. A key that
    names no row is the documented error ``not_found``. For writes ``args`` maps argument -> "relation.key"
    column it names ("orders.id") or to a bare type ("int", "str", "date").
    """

    tool: Word
    relation: Word
    mode: Literal["list", "inverse", "info", "range", "page", "write"]
    description: Text
    args: dict[Word, Label] = Field(default_factory=dict)
    projection: Label | None = None
    returned_columns: tuple[Word, ...] = ()
    page_size: Whole = 10
    pre: tuple[Precondition, ...] = ()
    effects: tuple[Write, ...] = ()


class Choice(Record, defer_build=True):
    """A finite type of values."""

    kind: Literal["choice"] = "choice"
    values: tuple[_Scalar, ...]


class IntRange(Record, defer_build=True):
    """The ints low..high."""

    kind: Literal["int_range"] = "int_range"
    low: Whole
    high: Whole
    step: Whole = 1


class Intervals(Record, defer_build=True):
    """Intervals [s, s + length) with s = low, low + step, ... and s + length <= high, in minutes."""

    kind: Literal["intervals"] = "intervals"
    low: Whole
    high: Whole
    step: Whole
    length: Whole


ValueType = Annotated[Choice | IntRange | Intervals, Discriminator("kind")]


class Slot(Record, defer_build=True):
    """One thing to be found.

    entity: ``domain`` is a Query of keys (it may refer to earlier slots); value: a Choice, IntRange or a
    Query of values; interval: an Intervals type; set: a subset of the domain Query with ``length`` or
    fewer elements, ``least`` or more; map: a value of ``domain`` for each key of ``key_domain``;
    sequence: ``length`` elements of ``domain``.
    """

    name: Word
    kind: Literal["entity", "value", "interval", "set", "map", "sequence"]
    domain: Query | ValueType
    length: Whole | None = None
    least: Whole = 0
    key_domain: Query | None = None

    @model_serializer(mode="wrap")
    def _stored(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit ``least`` when it is 0: task ids are hashes of this form."""
        stored: dict[str, object] = handler(self)
        if not self.least:
            del stored["least"]
        return stored


class Clause(Record, defer_build=True):
    """A rule, one sentence of the prompt (or of the environment's policy text).

    ``fields`` fill the lexicon's template ``text_key``; the template's own builder gives the clause back.
    """

    id: Label
    family: Label
    expr: Expr
    guard: Expr | None = None
    source: Literal["prompt", "policy"] = "prompt"
    text_key: Label
    fields: dict[Label, Json] = Field(default_factory=dict)
    gives_way: Word | None = Field(default=None, exclude_if=lambda name: name is None)
    """The parameter that bounds a sum in it, where the rule gives way if no answer keeps all: all others are
    then kept, and it is missed by as little as can be. What is judged is the bound ``NEAREST``."""


NEAREST = "nearest"
"""The parameter in whose stead a rule that gives way states its own: the same where some answer keeps all
rules, else the best that any reaches. It is found for the rows; no prompt states it, no solution knows it."""


class Satisfy(Record, defer_build=True):
    """Any answer that keeps every clause."""

    kind: Literal["satisfy"] = "satisfy"


class Equals(Record, defer_build=True):
    """``slot`` must equal the value of ``query`` (as a set for a set slot)."""

    kind: Literal["equals"] = "equals"
    slot: Word
    query: Query
    text_key: Label
    fields: dict[Label, Json] = Field(default_factory=dict)


class Optimise(Record, defer_build=True):
    """All clauses, and ``expr`` within ``eps`` of the certified optimum, the parameter ``bound``.

    That parameter differs from instance to instance like any other, but no prompt states it and no
    solution knows it.
    """

    kind: Literal["optimise"] = "optimise"
    sense: Literal["min", "max"]
    expr: Expr
    bound: Param
    eps: Whole = 0
    text_key: Label
    fields: dict[Label, Json] = Field(default_factory=dict)


class WriteSet(Record, defer_build=True):
    """Cells that may change: ``columns`` of the rows of ``relation`` that ``rows`` gives (initial state).

    ``inserts`` allows new rows in ``relation``. A row may be deleted iff its key is among ``columns``.
    ``only`` says how: one of these rows either has its old ``columns``, or makes ``only`` true, over Old and
    New and with ``rows.var`` bound to it.
    """

    relation: Word
    rows: Query
    columns: tuple[Word, ...]
    inserts: bool = False
    only: Expr | None = Field(default=None, exclude_if=lambda only: only is None)


class Reach(Record, defer_build=True):
    """A final state: every effect holds (over Old / New), and nothing outside ``write_set`` changed.

    When ``escalate_when`` (initial state) is true, the answer must be the escalation layout instead
    (slot ``outcome`` = "escalated") and nothing at all may change; else ``outcome`` must be "done".
    ``max_calls`` is the public bound of write calls that random walks use.
    """

    kind: Literal["reach"] = "reach"
    effects: tuple[Clause, ...]
    write_set: tuple[WriteSet, ...]
    escalate_when: Expr | None = None
    escalate_text_key: Label | None = None
    max_calls: Whole = 6


Goal = Annotated[Satisfy | Equals | Optimise | Reach, Discriminator("kind")]

Layout = Json
"""A JSON template; ``{"$slot": name}`` marks a slot, everything else is constant."""


class Problem(Record, defer_build=True):
    """A task in full. ``params`` holds every tunable bound; the prompt's constants come from it."""

    id: Label
    shape: Literal["A", "B", "C", "D", "E", "F", "G", "H"]
    relations: tuple[Relation, ...]
    access: tuple[Access, ...]
    slots: tuple[Slot, ...]
    clauses: tuple[Clause, ...] = ()
    goal: Goal = Satisfy()
    layout: Layout
    params: dict[Word, _Scalar] = Field(default_factory=dict)
    lexicon: Label
    fields: dict[Label, Json] = Field(default_factory=dict)
    """Fill the lexicon's opening and layout sentences."""
    traits: tuple[Word, ...] = ()
    """What no sentence states but the tools or rows depend on, such as "facts need a call a row"."""

    @property
    def giving_way(self) -> Clause | None:
        """The rule that gives way where no answer keeps all; None if none does."""
        return next((clause for clause in self.clauses if clause.gives_way), None)

    @property
    def feasible(self) -> bool:
        """Whether some answer keeps all rules: false where one has to give way."""
        rule = self.giving_way
        return rule is None or self.params.get(NEAREST) == self.params.get(str(rule.gives_way))

    def relation(self, name: str) -> Relation:
        """The relation ``name``; KeyError if there is none."""
        for relation in self.relations:
            if relation.name == name:
                return relation
        raise KeyError(name)

    def slot(self, name: str) -> Slot:
        """The slot ``name``; KeyError if there is none."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)

    def without(self, clause_id: str) -> Self:
        """The same problem with one clause or effect, or what is to be best (``goal``), dropped."""
        goal = self.goal
        if isinstance(goal, Optimise) and clause_id == "goal":
            goal = Satisfy()
        if isinstance(goal, Reach):
            kept = tuple(e for e in goal.effects if e.id != clause_id)
            goal = goal.model_copy(update={"effects": kept})
        clauses = tuple(c for c in self.clauses if c.id != clause_id)
        return self.model_copy(update={"clauses": clauses, "goal": goal})


_ALL: tuple[type[Record], ...] = (
    *EXPR_NODES, Order, Range, Column, Relation, Precondition, Write, Access, Choice, IntRange, Intervals,
    Slot, Clause, Satisfy, Equals, Optimise, WriteSet, Reach, Problem,
)  # fmt: skip
for _model in _ALL:  # put off until here: most refer to Expr, which needs them all
    _model.model_rebuild()
