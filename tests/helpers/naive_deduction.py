"""A second checker of natural deduction, written apart from the first: one clause a rule, no limits.

And a third opinion that knows no rules: every line of a right proof is true in each row of the truth table in
which the hypotheses and the assumptions over it are.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

Tree = Any
"""An atom's name, or a list: the connective and its parts."""


def tree(text: str) -> Tree:
    """A formula, split at its loosest connective."""
    text = text.strip()
    for op, last in (("<->", True), ("->", False), ("|", True), ("&", True)):
        places = [at for at in range(len(text)) if _splits(text, at, op)]
        if places:
            at = places[-1 if last else 0]
            return [op, tree(text[:at]), tree(text[at + len(op) :])]
    if text.startswith("~"):
        return ["~", tree(text[1:])]
    if text.startswith("("):
        assert text.endswith(")")
        return tree(text[1:-1])
    assert re.fullmatch(r"[A-Za-z]\w*", text), text
    return text


def _splits(text: str, at: int, op: str) -> bool:
    if not text.startswith(op, at) or text[:at].count("(") != text[:at].count(")"):
        return False
    return op != "->" or at == 0 or text[at - 1] != "<"


def true(formula: Tree, row: dict[str, bool]) -> bool:
    """What a formula says of a row of its truth table."""
    if isinstance(formula, str):
        return formula != "false" and row[formula]
    values = [true(part, row) for part in formula[1:]]
    return {
        "~": not values[0],
        "&": all(values),
        "|": any(values),
        "->": not values[0] or values[-1],
        "<->": values[0] == values[-1],
    }[formula[0]]


def names(formula: Tree) -> set[str]:
    if isinstance(formula, str):
        return {formula} - {"false"}
    return set().union(*map(names, formula[1:]))


def implies(given: list[Tree], goal: Tree) -> bool:
    """By all rows of the truth table."""
    atoms = sorted(set().union(*map(names, [*given, goal])))
    for values in itertools.product((False, True), repeat=len(atoms)):
        row = dict(zip(atoms, values, strict=True))
        if all(true(one, row) for one in given) and not true(goal, row):
            return False
    return True


def lines_of(proof: str) -> list[tuple[int, int, Tree, str, list[str]]]:
    """Depth, number, formula, rule and citations of each line; None of it is judged."""
    lines = []
    for line in proof.split("\n"):
        head, _, by = line.rstrip("]").rpartition("[")
        bars, number, formula = re.match(r"([| ]*)(\d+)\.(.*)", head).groups()  # type: ignore[union-attr]
        rule, *cited = by.split()
        lines.append((bars.count("|"), int(number), tree(formula), rule, cited))
    return lines


def meaningful(proof: str, hypotheses: list[str]) -> bool:
    """Whether every line follows from the hypotheses and the assumptions over it."""
    given, open_ = [tree(one) for one in hypotheses], list[Tree]()
    for depth, _, formula, rule, _cited in lines_of(proof):
        if rule == "assume":
            open_ = [*open_[: depth - 1], formula]
        open_ = open_[:depth]
        if not implies([*given, *open_], formula):
            return False
    return True


def proves(proof: str, hypotheses: list[str], goal: str) -> bool:
    """Whether a text (its lines well-formed) is a proof."""
    lines = lines_of(proof)
    given = [tree(one) for one in hypotheses]
    if [number for _, number, *_ in lines] != list(range(1, len(lines) + 1)):
        return False
    # The path of a line: the assumptions over it. Visible is what has a prefix of one's own path.
    paths, path = [], list[int]()
    for depth, number, _, rule, _ in lines:
        if rule == "assume":
            if depth < 1 or depth > len(path) + 1:
                return False
            path = [*path[: depth - 1], number]
        elif depth > len(path):
            return False
        path = path[:depth]
        paths.append(path)
    for at, (_, number, formula, rule, cited) in enumerate(lines):
        found: list[Tree] = []
        for one in cited:
            first, _, last = one.partition("-")
            low, high = int(first), int(last or first)
            if not 1 <= low <= high < number:
                return False
            if not last:
                if paths[low - 1] != paths[at][: len(paths[low - 1])]:
                    return False
                found.append(lines[low - 1][2])
                continue
            block, outside = paths[low - 1], paths[low - 1][:-1]
            inside = [n for n in range(low, len(lines) + 1) if paths[n - 1][: len(block)] == block]
            if (
                lines[low - 1][3] != "assume"
                or paths[at][: len(outside)] != outside
                or number in inside
            ):
                return False
            if inside != list(range(low, high + 1)) or paths[high - 1] != block:
                return False
            found.append(("box", lines[low - 1][2], lines[high - 1][2]))
        if not _follows(rule, found, formula, given):
            return False
    return paths[-1] == [] and lines[-1][2] == tree(goal)


def _follows(rule: str, c: list[Tree], f: Tree, given: list[Tree]) -> bool:
    """One clause a rule."""
    boxes = sum(isinstance(one, tuple) for one in c)
    shape = (len(c), boxes)
    match rule:
        case "premise":
            return not c and f in given
        case "assume":
            return not c
        case "reiterate":
            return shape == (1, 0) and f == c[0]
        case "and-intro":
            return shape == (2, 0) and f == ["&", c[0], c[1]]
        case "and-elim-left":
            return shape == (1, 0) and c[0][0] == "&" and f == c[0][1]
        case "and-elim-right":
            return shape == (1, 0) and c[0][0] == "&" and f == c[0][2]
        case "or-intro-left":
            return shape == (1, 0) and f[0] == "|" and f[1] == c[0]
        case "or-intro-right":
            return shape == (1, 0) and f[0] == "|" and f[2] == c[0]
        case "or-elim":
            return shape == (3, 2) and not isinstance(c[0], tuple) and c[0][0] == "|" and (
                c[1] == ("box", c[0][1], f) and c[2] == ("box", c[0][2], f))  # fmt: skip
        case "implies-intro":
            return shape == (1, 1) and f == ["->", c[0][1], c[0][2]]
        case "implies-elim":
            return shape == (2, 0) and c[0] == ["->", c[1], f]
        case "not-intro":
            return shape == (1, 1) and c[0][2] == "false" and f == ["~", c[0][1]]
        case "not-elim":
            return shape == (2, 0) and f == "false" and c[0] == ["~", c[1]]
        case "explosion":
            return shape == (1, 0) and c[0] == "false"
        case "double-negation":
            return shape == (1, 0) and c[0] == ["~", ["~", f]]
        case "raa":
            return shape == (1, 1) and c[0][2] == "false" and c[0][1] == ["~", f]
        case "iff-intro":
            return (
                shape == (2, 2) and f == ["<->", c[0][1], c[0][2]] and c[1] == ("box", f[2], f[1])
            )
        case "iff-elim-left":
            return shape == (2, 0) and c[0] == ["<->", c[1], f]
        case "iff-elim-right":
            return shape == (2, 0) and c[0] == ["<->", f, c[1]]
        case _:
            return False
