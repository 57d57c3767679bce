"""Clusters of slots, with all combinations of their values that break at most one rule, the cheapest first.

Where one slot of a cluster, its *head*, tells which values the others may have (the city of a day that of its
hotel and restaurants), the combinations are listed head by head, out of values that fit. What breaks such a
fit is listed next to the cheapest combinations only: enough to find a near-miss, far too many to list whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from envgen.pipelines.general.semantics.evaluator import Closure, Frame
from envgen.pipelines.general.space.model import TooHardError

MAX_HEADED = 20_000
"""The most combinations listed for one cluster with a head, over all values of the head."""
_CHANGED = 2
"""Cheapest combinations of each head next to which those are listed that break a fit."""
Cell = tuple[int, tuple[Any, ...], str]
"""Cost of a combination of a cluster's values, the values, and the one rule it breaks ("" for none)."""


class Term(NamedTuple):
    """A summand: the slots that it reads, its sign, its value."""

    scope: tuple[int, ...]
    sign: int
    run: Closure

    def cost(self, frame: Frame) -> int | None:
        """Its value in the sum, None if it's unknown."""
        value = self.run(frame)
        return None if value is None else self.sign * whole(value)


def whole(value: Any) -> int:
    """``value`` if it is a whole number.

    Raises:
        TooHardError: where it is something else.
    """
    if type(value) is not int:
        raise TooHardError("a term of the sum is not a whole number")
    return value


@dataclass
class Conjunct:
    """A conjunct of a rule; verdicts are kept by the values of the slots that it reads."""

    rule: str
    scope: tuple[int, ...]
    run: Closure
    verdicts: dict[Any, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.read = itemgetter(*self.scope) if self.scope else len

    def holds(self, frame: Frame) -> bool:
        """Whether it is true of a frame."""
        read = self.read(frame.slots)
        held = self.verdicts.get(read)
        if held is None:
            held = self.verdicts[read] = self.run(frame) is True
        return held


def one_broken(parts: Sequence[Conjunct], broken: str, frame: Frame) -> str | None:
    """The one rule broken by now; None if there are two."""
    slots = frame.slots
    for part in parts:
        if part.rule == broken:
            continue
        held = part.verdicts.get(
            part.read(slots)
        )  # known nearly always, and asked millions of times
        if held is False or (held is None and not part.holds(frame)):
            if broken:
                return None
            broken = part.rule
    return broken


class Cluster:
    """Slots that are filled together.

    Attributes:
        slots: their positions; the head comes first where there is one.
        head: the position of the slot that tells what the others may be; None where all are alike.
        cells: by value of the head (None where there is none) the combinations, the cheapest first.
    """

    def __init__(
        self,
        slots: Sequence[int],
        head: int | None,
        domains: Sequence[Sequence[Any]],
        parts: Sequence[Conjunct],
        terms: Sequence[Term],
        frame: Frame,
    ) -> None:
        """List the cells.

        Args:
            slots: positions.
            head: one of them, or None.
            domains: by position the values that a slot may have.
            parts: conjuncts of rules, of which those about these slots alone count.
            terms: summands, likewise.
            frame: to work in.
        """
        self.head = head
        self.slots = tuple(sorted(slots, key=lambda i: (i != head, i)))
        self.domains, self.frame = domains, frame
        inside = set(self.slots)
        self.own = [p for p in parts if p.scope and inside.issuperset(p.scope)]
        self.terms = [t for t in terms if inside.issuperset(t.scope)]
        self.cells: dict[Any, list[Cell]] = {}
        if head is None:
            self.cells[None] = self._grown([domains[i] for i in self.slots], self.own)
            return
        ties = fits(self.own, head)
        rest = [part for part in self.own if part not in ties]
        for value in domains[head]:
            allowed = fitting(self.slots, head, value, ties, domains, frame)
            found = self._grown(allowed, rest)
            cheapest = [cell for cell in found if not cell[2]][:_CHANGED]
            found += self._changed(cheapest, allowed)
            self.cells[value] = sorted(found, key=itemgetter(0))

    def __len__(self) -> int:
        """How many combinations are listed."""
        return sum(map(len, self.cells.values()))

    def _grown(self, allowed: Sequence[Sequence[Any]], parts: Sequence[Conjunct]) -> list[Cell]:
        """Combinations of allowed values that break at most one of the rules, the cheapest first."""
        slots, frame = self.frame.slots, self.frame
        cells: list[Cell] = [(0, (), "")]
        for depth, i in enumerate(self.slots):
            before = self.slots[:depth]
            seen = {*before, i}
            here = [p for p in parts if i in p.scope and seen.issuperset(p.scope)]
            terms = [t for t in self.terms if i in t.scope and seen.issuperset(t.scope)]
            alone = [t for t in terms if len(t.scope) == 1]
            joint = [t for t in terms if len(t.scope) > 1]
            priced = []
            for value in allowed[depth]:
                slots[i] = value
                cost = total(alone, frame)
                if cost is not None:  # an unknown term breaks the sum
                    priced.append((value, cost))
            grown = []
            for spent, values, broken in cells:
                for j, value in zip(before, values, strict=True):
                    slots[j] = value
                for value, cost in priced:
                    slots[i] = value
                    rule = one_broken(here, broken, frame) if here else broken
                    more = total(joint, frame) if joint else 0
                    if rule is not None and more is not None:
                        grown.append((spent + cost + more, (*values, value), rule))
            cells = grown
        cells.sort(key=itemgetter(0))
        return cells

    def _changed(self, cells: Sequence[Cell], allowed: Sequence[Sequence[Any]]) -> Iterator[Cell]:
        """Cells with one value that doesn't fit the head, if that breaks a single rule."""
        slots = self.frame.slots
        for _, values, _ in cells:
            for at, i in enumerate(self.slots):
                fit = set(allowed[at])
                here = [part for part in self.own if i in part.scope]
                for value in self.domains[i] if i != self.head else ():
                    if value in fit:
                        continue
                    changed = (*values[:at], value, *values[at + 1 :])
                    for j, one in zip(self.slots, changed, strict=True):
                        slots[j] = one
                    rule = one_broken(here, "", self.frame)
                    cost = total(self.terms, self.frame) if rule else None
                    if rule and cost is not None:
                        yield cost, changed, rule


def total(terms: Sequence[Term], frame: Frame) -> int | None:
    """What terms cost together; None where one is unknown."""
    found = 0
    for term in terms:
        cost = term.cost(frame)
        if cost is None:
            return None
        found += cost
    return found


def fits(parts: Sequence[Conjunct], head: int) -> list[Conjunct]:
    """The conjuncts about a head and one slot more."""
    return [part for part in parts if len(part.scope) == 2 and head in part.scope]


def fitting(
    slots: Sequence[int],
    head: int,
    value: Any,
    ties: Sequence[Conjunct],
    domains: Sequence[Sequence[Any]],
    frame: Frame,
) -> list[list[Any]]:
    """By slot the values that fit a value of the head."""
    frame.slots[head] = value
    found: list[list[Any]] = []
    for i in slots:
        here = [part for part in ties if i in part.scope and i != head]
        found.append([value] if i == head else [])
        for one in domains[i] if i != head else ():
            frame.slots[i] = one
            if all(part.holds(frame) for part in here):
                found[-1].append(one)
    return found
