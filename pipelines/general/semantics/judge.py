"""Which states a Reach goal accepts, and from which nothing can be accepted any more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.core.ir import Node, Problem, Reach
from envgen.pipelines.general.semantics.evaluate import Allowance, domain_values, rules_of
from envgen.pipelines.general.semantics.evaluator import (
    Closure,
    Memo,
    Reads,
    elements,
)
from envgen.pipelines.general.semantics.layout import fill_layout, frozen, match_layout, plain
from envgen.pipelines.general.semantics.machine import Diff, Machine, RowId, RowRead, among
from envgen.pipelines.general.semantics.rewrite import (
    as_asked,
    conjuncts,
    reads_final,
    slots_of,
    truth,
)
from envgen.pipelines.general.semantics.tables import Tables

MAX_SUBMISSIONS = 5_000
MAX_READS = 4
"""Sets of rows that an atom read, at most, for which its verdicts are kept."""


class _Atom(NamedTuple):
    """A part of a rule that must be true, with variables bound; reads no slot."""

    rule: str
    run: Closure
    variables: dict[str, Any]


class Judge:
    """The rules of a Reach problem over its initial rows.

    Rules are taken apart into atoms, one for each row that they speak of: a call changes a row or two, so
    in the next state only the atoms that read those are looked at again.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """

    def __init__(self, p: Problem, machine: Machine) -> None:
        assert isinstance(p.goal, Reach)
        self.p, self.goal, self.machine, self.db = p, p.goal, machine, machine.db
        self.compiler = machine.start
        start = self.compiler.frame()
        due = p.goal.escalate_when
        self.due = False if due is None else self.compiler.compile(due)(start)
        nothing = Allowance(frozenset(), frozenset())
        self.allowance = (
            nothing if self.due is True else rules_of(p).allowance(p.goal, start, ever=True)
        )
        self.outcome = {True: "escalated", False: "done"}.get(self.due)
        self.domains = [domain_values(slot, self.compiler) for slot in p.slots]
        self.num_submissions = prod(map(len, self.domains))
        self.effects = [e for a in p.access if a.mode == "write" for e in a.effects]
        effects = () if self.due is True else p.goal.effects
        self.with_slots: list[tuple[str, Closure]] = []
        self.atoms: list[_Atom] = []
        for clause in (*p.clauses, *effects):
            for part in conjuncts(truth(clause)):
                if slots_of(part):
                    self.with_slots.append((clause.id, self.compiler.compile(part)))
                else:
                    self.atoms += self._atoms(clause.id, part, {})
        if self.due is not True:
            for rule in as_asked(p.goal.write_set):
                self.atoms += self._atoms("write_set", rule, {})
        self._state: Tables | None = None
        self._looks: dict[int, tuple[bool, Reads]] = {}
        """What atoms say of ``_state``, the state looked at last."""
        self._memo: Memo = {}
        self._known: dict[int, dict[frozenset[RowRead], dict[Diff, bool]]] = {}
        """Atoms by what they read, and what of it was changed: whether they were true."""
        self.start_true: set[int] = set()
        self.by_row: dict[tuple[str, str | None], list[int]] = {}
        for i in range(len(self.atoms)):
            true, reads = self._look(i, self.db)
            if true:
                self.start_true.add(i)
            for at in reads:
                self.by_row.setdefault(at, []).append(i)
        machine.forbidden = self.forbidden

    def _atoms(self, rule: str, expr: Node, variables: dict[str, Any]) -> Iterator[_Atom]:
        """``expr`` as parts; an All over rows of the initial state gives one for each row."""
        over = expr.over if isinstance(expr, ir.All) else None
        if isinstance(expr, ir.All) and isinstance(over, ir.Query) and not reads_final(over):
            frame = self.compiler.frame()
            frame.vars = dict(variables)
            for element in elements(over, self.compiler)(frame):
                for part in conjuncts(expr.body):
                    yield from self._atoms(rule, part, {**variables, expr.var: element})
        else:
            yield _Atom(rule, self.compiler.compile(expr), variables)

    def _look(self, i: int, state: Tables) -> tuple[bool, Reads]:
        """Whether an atom is true, and the rows of the state that it looked at."""
        if state is not self._state:
            self._state, self._looks, self._memo = state, {}, {}
        if i not in self._looks:
            atom, frame = self.atoms[i], self.compiler.frame(new=state)
            frame.vars, frame.reads, frame.memo = dict(atom.variables), set(), self._memo
            self._looks[i] = atom.run(frame) is True, frame.reads
        return self._looks[i]

    def allowed(self, diff: Diff) -> bool:
        """Whether all that changed may change."""
        return not any(True for _ in self._intrusions(diff))

    def _intrusions(self, diff: Diff) -> Iterator[tuple[RowId, str | None, Any]]:
        """(row, column or None for a whole row, new value) for each change outside the write set."""
        for at, values in diff:
            relation, key = at
            before = self.db.get(relation, {}).get(key)
            if before is None:
                if relation not in self.allowance.inserts:
                    yield at, None, values
            elif values is None:
                if (relation, key, self.p.relation(relation).key) not in self.allowance.cells:
                    yield at, None, None
            else:
                for (column, old), new in zip(before.items(), values, strict=True):
                    if old != new and (relation, key, column) not in self.allowance.cells:
                        yield at, column, new

    def forbidden(self, relation: str, key: str, column: str, value: Any) -> bool:
        """Whether a cell may not have this value at the end, and no call can restore it."""
        if (relation, key, column) in self.allowance.cells:
            return False
        initial = self.db.get(relation, {}).get(key, {}).get(column)
        return initial != value and not self.undo(relation, column, initial)

    def undo(self, relation: str, column: str | None, value: Any) -> bool:
        """Whether some tool could write back a column's value, or (column None) do ``value`` to rows."""
        own = [effect for effect in self.effects if effect.relation == relation]
        kinds = {effect.kind for effect in own}
        if column is None:
            return value in kinds
        if kinds >= {"insert", "delete"}:
            return True  # deleted and inserted anew
        exprs = [effect.set.get(column) for effect in own if effect.kind == "update"]
        return any(
            expr.value == value
            if isinstance(expr, ir.Const)
            else expr is not None and not _only_grows(expr, relation, column)
            for expr in exprs
        )

    def intruding(self, diff: Diff) -> bool:
        """Whether something changed that may not change and can't be undone."""
        for (relation, key), column, value in self._intrusions(diff):
            if column is None:
                kind = "insert" if value is None else "delete"
                if not self.undo(relation, None, kind):
                    return True
            elif self.forbidden(relation, key, column, value):
                return True
        return False

    def rules_hold(self, diff: Diff, state: Tables) -> bool:
        """Whether every rule that doesn't read the submission holds."""
        return next(self._broken_atoms(diff, state), None) is None

    def _broken_atoms(self, diff: Diff, state: Tables) -> Iterator[_Atom]:
        touched = self._touched(diff)
        for i, atom in enumerate(self.atoms):
            if not (self._look(i, state)[0] if i in touched else i in self.start_true):
                yield atom

    def broken(self, diff: Diff, state: Tables, answer: Any) -> set[str]:
        """Ids of the rules that a final state and a fitting submission break."""
        found = {atom.rule for atom in self._broken_atoms(diff, state)}
        if not self.allowed(diff):
            found.add("write_set")
        values = match_layout(self.p.layout, answer) or {}
        frame = self.compiler.frame(new=state)
        frame.slots[:] = [frozen(slot, values.get(slot.name)) for slot in self.p.slots]
        found |= {rule for rule, run in self.with_slots if run(frame) is not True}
        if self.outcome is None or values.get("outcome", self.outcome) != self.outcome:
            found.add("goal")
        return found

    def faults(self, diff: Diff, state: Tables) -> int:
        """How many parts of rules a state breaks, and cells it changes that must stay as they are."""
        wrong = len(self.atoms) - len(self.start_true)
        for i in self._touched(diff):
            wrong += (i in self.start_true) - self._atom_holds(i, diff, state)
        return wrong + sum(1 for _ in self._intrusions(diff))

    def _atom_holds(self, i: int, diff: Diff, state: Tables) -> bool:
        """Whether an atom is true: known where rows that it read were the same."""
        # An atom is evaluated step by step, so what it reads next follows from what it has read: in a state
        # that changes these rows alike it reads the same ones and comes to the same verdict, whatever else
        # changed. Many orders of calls lead to states that differ elsewhere only.
        known = self._known.setdefault(i, {})
        for reads, verdicts in known.items():
            found = verdicts.get(among(diff, reads))
            if found is not None:
                return found
        true, read = self._look(i, state)
        reads = frozenset(read)
        if reads in known or len(known) < MAX_READS:
            known.setdefault(reads, {})[among(diff, reads)] = true
        return true

    def _touched(self, diff: Diff) -> set[int]:
        """Positions of the atoms that read a changed row."""
        rows = {at for (relation, key), _ in diff for at in ((relation, key), (relation, None))}
        return {i for at in rows for i in self.by_row.get(at, ())}

    def looked_at(self, diff: Diff, state: Tables) -> set[RowId]:
        """The rows of tables that calls change at which the atoms about a changed row look."""
        seen = {at for i in sorted(self._touched(diff)) for at in self._look(i, state)[1]}
        return {(r, key) for r, key in seen if key is not None and r in self.machine.mutable}

    def lost(self, diff: Diff, state: Tables, fixed: set[RowId]) -> set[RowId] | None:
        """Rows that no call can change any more and that break a rule; None if there are none."""
        for at, _, _ in self._intrusions(diff):
            if at in fixed:
                return {at}
        touched = self._touched(diff)
        for i in sorted(touched):
            true, reads = self._look(i, state)
            rows = {(r, k) for r, k in reads if r in self.machine.mutable and k is not None}
            loose = any(k is None and r in self.machine.mutable for r, k in reads)
            if not true and not loose and rows <= fixed:
                return rows
        return None

    def submissions(self, state: Tables) -> Iterator[Any]:
        """Every submission that is accepted with a final state whose other rules hold."""
        if self.outcome is None:
            return
        slots, frame = self.p.slots, self.compiler.frame(new=state)
        domains = [
            [self.outcome] if slot.name == "outcome" else domain
            for slot, domain in zip(slots, self.domains, strict=True)
        ]
        for values in product(*domains):
            frame.slots[:] = values
            if all(run(frame) is True for _, run in self.with_slots):
                named = {s.name: plain(s, v) for s, v in zip(slots, values, strict=True)}
                yield fill_layout(self.p.layout, named)


def _only_grows(expr: Node, relation: str, column: str) -> bool:
    """``column + positive constant``: values only go up (as long as nothing else lowers them)."""
    if not isinstance(expr, ir.Arith) or expr.fn != "+" or not isinstance(expr.right, ir.Const):
        return False
    left, right = expr.left, expr.right.value
    grows = isinstance(left, ir.Get) and (left.relation, left.column) == (relation, column)
    return grows and type(right) is int and right > 0
