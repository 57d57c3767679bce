"""Which task of the meeting domain a problem is: all that its structure depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import JsonValue

from envgen.core.ir import Equals, Intervals, Problem

Task = Literal["rank", "filter", "hop", "fixed", "place"]
Sense = Literal["highest", "lowest"]
Coupling = Literal["", "apart", "rooms_once"]

ATTRIBUTES = ("seats", "floor", "screens")
"""What rank and filter tasks compare."""
EQUIPMENT = ("video", "whiteboard")
OPENS, CLOSES, STEP = 540, 1020, 30
"""The working day, in minutes after midnight, and the grid that meetings start on."""
LENGTHS = (30, 60, 60)
MAX_MEETINGS = 4


class Extra(NamedTuple):
    """A rule beyond those that every placement has: the sentence's key and what it is about."""

    key: str
    first: int = 0
    """Number of the meeting; 0 where the rule is about all of them."""
    second: int = 0
    word: str = ""

    @property
    def fields(self) -> dict[str, JsonValue]:
        """Fields of the sentence."""
        fields: dict[str, JsonValue] = {}
        if self.second:
            return {"a": self.first, "b": self.second}
        if self.first:
            fields["k"] = self.first
        if self.word:
            fields["equipment"] = self.word
        return fields

    @property
    def name(self) -> str:
        """The clause's id."""
        return "_".join([self.key, *(str(n) for n in (self.first, self.second) if n)])


EXTRAS = ("lunch", "equipment", "floor", "after", "until", "lag", "same_floor")
"""Keys of extras, in the order of the prompt."""


@dataclass(frozen=True)
class Recipe:
    """The structure of a task; everything else about it is rows and params."""

    task: Task
    attribute: str = ""
    """What rank, filter and hop compare."""
    sense: Sense = "highest"
    lengths: tuple[int, ...] = ()
    """Minutes of each meeting to place."""
    coupling: Coupling = ""
    """The rule on overlaps that all meetings share: none of them, or none in the same room."""
    extras: tuple[Extra, ...] = ()

    @property
    def numbers(self) -> range:
        """Numbers of the meetings to place, from 1."""
        return range(1, len(self.lengths) + 1)


def recipe_of(problem: Problem) -> Recipe:
    """The recipe that ``problem`` was made from, read off its goal, slots and clauses."""
    goal = problem.goal
    if isinstance(goal, Equals):
        return Recipe(
            task=goal.text_key,  # type: ignore[arg-type]  # the keys of read goals are task names
            attribute=str(goal.fields.get("attribute", "start_min")),
            sense="highest" if goal.fields["sense"] in ("highest", "last") else "lowest",
        )
    lengths = tuple(s.domain.length for s in problem.slots if isinstance(s.domain, Intervals))
    if all(slot.kind == "interval" for slot in problem.slots):
        return Recipe(task="fixed", lengths=lengths)
    extras = [_extra(c.text_key, c.fields) for c in problem.clauses if c.text_key in EXTRAS]
    ids = {clause.id for clause in problem.clauses}
    coupling: Coupling = "apart" if "apart" in ids else "rooms_once" if "rooms_once" in ids else ""
    return Recipe(task="place", lengths=lengths, coupling=coupling, extras=tuple(extras))


def _extra(key: str, fields: dict[str, JsonValue]) -> Extra:
    first, second = fields.get("a", fields.get("k", 0)), fields.get("b", 0)
    assert isinstance(first, int)
    assert isinstance(second, int)
    return Extra(key, first, second, str(fields.get("equipment", "")))
