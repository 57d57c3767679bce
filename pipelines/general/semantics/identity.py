"""What a problem asks, whatever its words: two tasks over the same rows that ask the same are one task."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core.canonical import content_hash
from envgen.core.ir import Clause, Node, Problem, Reach
from envgen.core.types import Record

_WORDS = {"text_key", "fields", "escalate_text_key"}
"""Parts of a goal that only say it."""


def identity(problem: Problem) -> str:
    """A hash of the slots, their layout, the rules, the goal and the parameters of ``problem``.

    Its wording, its persona and the names of its rules are left out, and so is the order of its rules.
    """
    goal = problem.goal
    asked = _plain(goal, _WORDS | {"effects"})
    effects = goal.effects if isinstance(goal, Reach) else ()
    return content_hash(
        [
            [_plain(slot) for slot in problem.slots],
            problem.layout,
            _rules(problem.clauses),
            asked,
            _rules(effects),
            dict(sorted(problem.params.items())),
        ]
    )


def _plain(part: Record | Node, without: set[str] | None = None) -> JsonValue:
    found: JsonValue = part.model_dump(mode="json", exclude=without)
    return found


def _rules(clauses: tuple[Clause, ...]) -> list[str]:
    parts = {"expr", "guard", "source"}
    return sorted(content_hash(clause.model_dump(mode="json", include=parts)) for clause in clauses)
