"""Write tools as a fast state machine, written apart from ``replies`` so that each checks the other.

A state is what differs from the initial rows. Calls are kept in groups that share their leading
arguments (those that keys and first preconditions read), so that "every exchange of an item that is not
delivered fails" is one step, not one for each product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Access, Node, Problem
from envgen.pipelines.general.semantics.calls import (
    Call,
    IntSpan,
    argument_type,
    argument_values,
    new_row,
)
from envgen.pipelines.general.semantics.evaluator import (
    Closure,
    Compiler,
    Frame,
    Memo,
    Reads,
    elements,
)
from envgen.pipelines.general.semantics.rewrite import free_names, reads_final, truth
from envgen.pipelines.general.semantics.tables import Row, Tables

RowId = tuple[str, str]
Diff = tuple[tuple[RowId, tuple[Any, ...] | None], ...]
"""Changed rows, sorted, with their values (None: deleted)."""
RowRead = tuple[str, str | None]
"""A row that was read; key None: all of its relation."""
MAX_SPAN = 64
"""Int arguments with more values are cut into pieces whose values act alike."""
MAX_BINDINGS = 5_000
"""Values of the other arguments looked at, where an int argument is compared with one of them."""


class WeightedValue(NamedTuple):
    """A value of an argument and its share of all values."""

    value: Any
    weight: float


class Effect(NamedTuple):
    """A compiled ``Write``."""

    kind: str
    relation: str
    key: Closure
    values: dict[str, Closure]
    constants: dict[str, Any]
    """Columns that are set to a literal."""
    early: tuple[str, ...]
    """Columns whose values read leading arguments alone, as keys do."""
    late: tuple[str, ...]


Planned = tuple[Effect, Any, dict[str, Any]]
"""An effect, its key and the values that it writes to ``early`` columns."""


@dataclass
class Tool:
    """A compiled write access."""

    access: Access
    domains: dict[str, list[WeightedValue]]
    spans: dict[str, IntSpan]
    sources: dict[str, str]
    pres: list[tuple[Closure, frozenset[str]]]
    effects: list[Effect]
    lead: tuple[str, ...]
    rest: tuple[str, ...]
    weight: float
    fixed_keys: bool
    """Whether which rows it may write depends on the leading arguments alone."""

    def choices(
        self, names: tuple[str, ...], weight: float
    ) -> Iterator[tuple[dict[str, Any], float]]:
        """Every combination of some arguments' values, with its share of ``weight``."""
        for choice in product(*(self.domains[name] for name in names)):
            share = weight
            for item in choice:
                share *= item.weight
            yield {name: item.value for name, item in zip(names, choice, strict=True)}, share


class Move(NamedTuple):
    """A call that works: what it writes, and its share of all calls."""

    call: Call
    writes: dict[RowId, Row | None]
    weight: float


@dataclass
class Group:
    """The calls of a tool with given leading arguments, as they act in one state."""

    tool: Tool
    lead: dict[str, Any]
    weight: float
    failing: float = 0.0
    doomed: float = 0.0
    """Share of calls that work and leave a state from which nothing is accepted."""
    moves: list[Move] = field(default_factory=list)
    reads: Reads = field(default_factory=set)


class Machine:
    """The write tools of a problem over its initial rows."""

    def __init__(self, p: Problem, db: Tables) -> None:
        self.p, self.db = p, db
        self.compiler = Compiler(p)
        self.start = Compiler(p, db)
        """Of what the initial rows say."""
        writers = [access for access in p.access if access.mode == "write"]
        self.mutable = {effect.relation for access in writers for effect in access.effects}
        effects = [effect for access in writers for effect in access.effects]
        self.written = {(effect.relation, column) for effect in effects for column in effect.set}
        self.written |= {(e.relation, "") for e in effects if e.kind != "update"}
        self.tools = [self._tool(access, 1 / len(writers)) for access in writers]
        self.forbidden: Callable[[str, str, str, Any], bool] = lambda *cell: False
        """Whether a cell's new value can neither stay nor be undone."""
        self._rest_failing: dict[str, float] = {}

    def _tool(self, access: Access, weight: float) -> Tool:
        domains: dict[str, list[WeightedValue]] = {}
        spans: dict[str, IntSpan] = {}
        for name in access.args:
            values = argument_values(self.p, access, name, self.db)
            if values is None:
                raise ConfigError(
                    f"{access.tool}: nothing says what values {name!r} may have",
                    "add a precondition that compares it with constants",
                )
            if isinstance(values, IntSpan):
                spans[name] = values
                domains[name] = self._pieces(access, name, values)
            else:
                share = 1 / max(len(values), 1)
                domains[name] = [WeightedValue(value, share) for value in values]
        compile_node = self.compiler.compile
        kinds = {name: argument_type(self.p, target) for name, target in access.args.items()}
        leading = {name for effect in access.effects for name in _args(effect.key)}
        leading |= _args(access.pre[0].expr) if access.pre else set()
        lead = {name for name in access.args if name in leading}
        return Tool(
            access=access,
            domains=domains,
            spans=spans,
            sources={n: k[7:] for n, k in kinds.items() if k.startswith("entity:")},
            pres=[(compile_node(pre.expr), frozenset(_args(pre.expr))) for pre in access.pre],
            effects=[
                Effect(
                    e.kind,
                    e.relation,
                    compile_node(e.key),
                    {c: compile_node(v) for c, v in e.set.items()},
                    {c: v.value for c, v in e.set.items() if isinstance(v, ir.Const)},
                    tuple(c for c, v in e.set.items() if _args(v) <= lead),
                    tuple(c for c, v in e.set.items() if not _args(v) <= lead),
                )
                for e in access.effects
            ],
            lead=tuple(name for name in access.args if name in leading),
            rest=tuple(name for name in access.args if name not in leading),
            weight=weight,
            fixed_keys=not any(_cells(effect.key) & self.written for effect in access.effects),
        )

    def _pieces(self, access: Access, name: str, span: IntSpan) -> list[WeightedValue]:
        """A span's values; a long one as the values that something is compared with, and the gaps."""
        size = span.high - span.low + 1
        if size <= MAX_SPAN:
            return [WeightedValue(value, 1 / size) for value in range(span.low, span.high + 1)]
        found = set(self._thresholds(access, name))
        around = {value + step for value in found for step in (-1, 0, 1)}
        pieces, start = [], span.low
        for mark in (*sorted(v for v in around if span.low <= v <= span.high), span.high + 1):
            if mark > start:
                pieces.append(WeightedValue(start, (mark - start) / size))
            if mark <= span.high:
                pieces.append(WeightedValue(mark, 1 / size))
            start = mark + 1
        return pieces

    def _thresholds(self, access: Access, name: str) -> Iterator[int]:
        """Values around which the outcome of a call may change with the int argument ``name``.

        They come from comparisons of the argument in ``pre``, and from comparisons in clauses and effects
        with a column that the argument is written to (directly or added to a column of the written row).
        """
        for pre in access.pre:
            for node in pre.expr.walk():
                if isinstance(node, ir.Cmp):
                    for one, other in ((node.left, node.right), (node.right, node.left)):
                        if one == ir.Arg(name=name):
                            yield from self._argument_bindings(access, other)
        columns = {
            (effect.relation, column)
            for effect in access.effects
            for column, expr in effect.set.items()
            if name in _args(expr)
        }
        effects = self.p.goal.effects if isinstance(self.p.goal, ir.Reach) else ()
        for clause in (*self.p.clauses, *effects):
            yield from _compared(truth(clause), columns, self.start, self.start.frame())

    def _argument_bindings(self, access: Access, expr: Node) -> Iterator[int]:
        """Values of an expression over the other arguments."""
        names, domains = sorted(_args(expr)), []
        for name in names:
            values = argument_values(self.p, access, name, self.db)
            if values is None or isinstance(values, IntSpan):
                return
            domains.append(values)
        run, frame = self.compiler.compile(expr), self.compiler.frame(self.db)
        for choice in islice(product(*domains), MAX_BINDINGS):
            frame.args = dict(zip(names, choice, strict=True))
            value = run(frame)
            if type(value) is int:
                yield value

    def groups(self, state: Tables) -> Iterator[Group]:
        """Every group of calls, as it acts in ``state``."""
        memo: Memo = {}
        for tool in self.tools:
            for lead, weight in tool.choices(tool.lead, tool.weight):
                group = Group(tool, lead, weight)
                self.act(group, state, memo)
                yield group

    def act(self, group: Group, state: Tables, memo: Memo) -> None:
        """Fill in what the calls of a group do in ``state``; ``memo`` is of that state."""
        tool = group.tool
        frame = self.compiler.frame(state)
        frame.reads, frame.memo = group.reads, memo
        frame.args = group.lead
        leading = set(tool.lead)
        if not _present(tool, group.lead, state, group.reads) or any(
            run(frame) is not True for run, names in tool.pres if names <= leading
        ):
            group.failing = group.weight
            return
        if self._dooms(tool, frame):
            group.failing = group.weight * self._failing_share(tool, frame)
            group.doomed = group.weight - group.failing
            return
        later = [run for run, names in tool.pres if not names <= leading]
        early: list[Planned] | None = None
        for rest, weight in tool.choices(tool.rest, group.weight):
            frame.args = args = {**group.lead, **rest}
            writes = None
            if _present(tool, rest, state, group.reads) and all(
                run(frame) is True for run in later
            ):
                early = early or [_planned(e, frame) for e in tool.effects]
                writes = self._writes(early, frame)
            if writes is None:
                group.failing += weight
            else:
                group.moves.append(Move((tool.access.tool, args), writes, weight))

    def _dooms(self, tool: Tool, frame: Frame) -> bool:
        """Whether the leading arguments alone say that a working call writes a forbidden cell."""
        if any(_args(e.key) - set(tool.lead) for e in tool.access.effects):
            return False
        if any(e.kind == "insert" for e in tool.effects):
            return False
        for effect in tool.effects:
            key = effect.key(frame)
            if effect.kind == "update" and key in frame.old.get(effect.relation, {}):
                for column, value in effect.constants.items():
                    if self.forbidden(effect.relation, key, column, value):
                        return True
        return False

    def _failing_share(self, tool: Tool, frame: Frame) -> float:
        """Share of a doomed group's calls that fail: those whose other preconditions don't hold."""
        lead, name = set(tool.lead), tool.access.tool
        later = [(run, names) for run, names in tool.pres if not names <= lead]
        sources = {n: r for n, r in tool.sources.items() if n not in lead}
        alone = all(not names & lead for _, names in later) and not any(
            _reads(pre.expr) & self.mutable for pre in tool.access.pre if _args(pre.expr) - lead
        )
        if not later and not sources:
            return 0.0
        if alone and name in self._rest_failing:
            return self._rest_failing[name]
        share, args, reads = 0.0, dict(frame.args), frame.reads or set()
        for rest, weight in tool.choices(tool.rest, 1.0):
            frame.args = {**args, **rest}
            present = _present(tool, frame.args, frame.old, reads)
            if not present or any(run(frame) is not True for run, _ in later):
                share += weight
        frame.args = args
        if alone and not set(sources.values()) & self.mutable:
            self._rest_failing[name] = share
        return share

    def call(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        state: Tables,
        reads: Reads | None = None,
    ) -> dict[RowId, Row | None] | None:
        """The rows that one call writes; None if it fails."""
        frame = self.compiler.frame(state)
        reads = set() if reads is None else reads
        frame.reads, frame.args = reads, args
        if not _present(tool, args, state, reads):
            return None
        if any(run(frame) is not True for run, _ in tool.pres):
            return None
        planned = [_planned(e, frame) for e in tool.effects]
        return self._writes(planned, frame)

    def _writes(self, planned: list[Planned], frame: Frame) -> dict[RowId, Row | None] | None:
        """The rows that a call writes whose preconditions hold; None if it fails."""
        state, reads = frame.old, frame.reads
        assert reads is not None
        late = [{c: e.values[c](frame) for c in e.late} for e, _, _ in planned]
        writes: dict[RowId, Row | None] = {}
        for (effect, key, early), more in zip(planned, late, strict=True):
            values = {**early, **more} if more else early
            at = (effect.relation, key)
            reads.add(at)
            row = writes[at] if at in writes else state.get(effect.relation, {}).get(key)
            if effect.kind == "insert":
                if row is not None or key is None:
                    return None
                writes[at] = new_row(self.p, effect.relation, key, values)
            elif row is not None:
                writes[at] = None if effect.kind == "delete" else {**row, **values}
        return writes

    def targets(self, group: Group) -> list[RowId]:
        """Rows that a group may write, whatever the state (``fixed_keys`` tools)."""
        frame = self.compiler.frame(self.db)
        frame.args = group.lead
        return [(effect.relation, effect.key(frame)) for effect in group.tool.effects]

    def after(self, diff: Diff, writes: Mapping[RowId, Row | None]) -> Diff:
        """``diff`` with some more rows written."""
        changed = dict(diff)
        for at, row in writes.items():
            initial = self.db.get(at[0], {}).get(at[1])
            if row == initial:
                changed.pop(at, None)
            else:
                changed[at] = None if row is None else tuple(row.values())
        return tuple(sorted(changed.items()))

    def tables(self, diff: Diff) -> Tables:
        """The rows of a state."""
        state = dict(self.db)
        for (relation, key), values in diff:
            if state.get(relation) is self.db.get(relation):
                state[relation] = dict(self.db.get(relation, {}))
            if values is None:
                state[relation].pop(key, None)
            else:
                names = [column.name for column in self.p.relation(relation).columns]
                initial = self.db.get(relation, {}).get(key)
                order = list(initial) if initial is not None else names
                state[relation][key] = dict(zip(order, values, strict=True))
        return state


def among(diff: Diff, reads: frozenset[RowRead]) -> Diff:
    """The changes of rows that were read."""
    return tuple([item for item in diff if item[0] in reads or (item[0][0], None) in reads])


def _planned(effect: Effect, frame: Frame) -> Planned:
    """What an effect does that leading arguments alone decide."""
    return effect, effect.key(frame), {c: effect.values[c](frame) for c in effect.early}


def _present(tool: Tool, args: Mapping[str, Any], state: Tables, reads: Reads) -> bool:
    """Whether the rows that the arguments name exist."""
    for name, relation in tool.sources.items():
        if name in args:
            reads.add((relation, args[name]))
            if args[name] not in state.get(relation, {}):
                return False
    return True


def _args(expr: Node) -> set[str]:
    return {name[4:] for name in free_names(expr) if name.startswith("arg:")}


def _cells(expr: Node) -> set[tuple[str, str]]:
    """(relation, column) of what an expression reads; column "" for which rows there are."""
    gets = [node for node in expr.walk() if isinstance(node, ir.Get)]
    found = {(get.relation, column) for get in gets for column in (get.column, "")}
    for node in expr.walk():
        if isinstance(node, ir.Query | ir.Reachable):
            found.add((node.relation, ""))
        if isinstance(node, ir.Reachable):
            found |= {(node.relation, node.source), (node.relation, node.target)}
    return found


def _reads(expr: Node) -> set[str]:
    """Relations that an expression reads."""
    return {n.relation for n in expr.walk() if isinstance(n, ir.Get | ir.Query | ir.Reachable)}


def _compared(
    expr: Node, columns: set[tuple[str, str]], compiler: Compiler, frame: Frame
) -> Iterator[int]:
    """Values, in the initial state, of what is compared with a new value of one of ``columns``."""
    if not reads_final(expr):
        return
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
        if not reads_final(expr.body):
            return
        outer = frame.vars
        for element in elements(expr.over, compiler)(frame):
            frame.vars = {**outer, expr.var: element}
            yield from _compared(expr.body, columns, compiler, frame)
        frame.vars = outer
        return
    for child in expr.children():
        yield from _compared(child, columns, compiler, frame)


def _reads_new(expr: Node, columns: set[tuple[str, str]]) -> bool:
    return any(
        isinstance(get, ir.Get) and (get.relation, get.column) in columns
        for node in expr.walk()
        if isinstance(node, ir.New)
        for get in node.walk()
    )
