"""Truth tables as bits of an integer: which rows make a formula true, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.verifiers.propositions import Proposition


def columns(names: Sequence[str]) -> dict[str, int]:
    """The column of each atom over all ``2 ** len(names)`` rows, and of ``false``.

    Row ``r`` makes atom ``i`` true if bit ``i`` of ``r`` is set.
    """
    rows = 1 << len(names)
    return {"false": 0} | {
        name: sum(1 << row for row in range(rows) if row >> place & 1)
        for place, name in enumerate(names)
    }


def column(formula: Proposition, of_atoms: dict[str, int], every: int) -> int:
    """The rows that make a formula true; ``every`` has a bit for each row."""
    parts = [column(part, of_atoms, every) for part in formula.parts]
    match formula.op:
        case "~":
            return every ^ parts[0]
        case "&":
            return parts[0] & parts[1]
        case "|":
            return parts[0] | parts[1]
        case "->":
            return (every ^ parts[0]) | parts[1]
        case "<->":
            return every ^ parts[0] ^ parts[1]
        case _:
            return of_atoms[formula.op]


def follows(given: int, goal: int) -> bool:
    """Whether every row of the one is a row of the other."""
    return given & ~goal == 0
