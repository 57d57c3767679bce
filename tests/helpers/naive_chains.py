"""A second checker of chains, written apart from the first, and finite models for equations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Tree = tuple[Any, ...]
"""A name, then its arguments."""


def tree(text: str) -> Tree:
    """A term, by its parentheses."""
    name, _, inside = text.strip().partition("(")
    args, depth, start = [], 0, 0
    inside = inside.strip()[:-1]
    for at, char in enumerate(inside + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0 and inside:
            args.append(tree(inside[start:at]))
            start = at + 1
    return (name.strip(), *args)


def steps(
    term: Tree, names: set[str], left: Tree, right: Tree
) -> Iterator[tuple[str, Tree, list[str]]]:
    """Every place at which a pattern fits, with what the term becomes; what it leaves open is called so."""
    found: dict[str, Tree] = {}
    if _fits(left, term, names, found):
        open_ = sorted(_names(right) - names - set(found))
        yield "root", _fill(right, names, found), open_
    for at, part in enumerate(term[1:], start=1):
        for place, changed, open_ in steps(part, names, left, right):
            whole = (*term[:at], changed, *term[at + 1 :])
            yield str(at) if place == "root" else f"{at}.{place}", whole, open_


def _fits(pattern: Tree, term: Tree, names: set[str], found: dict[str, Tree]) -> bool:
    if pattern[0] not in names:
        if pattern[0] in found:
            return found[pattern[0]] == term
        found[pattern[0]] = term
        return True
    if pattern[0] != term[0]:
        return False
    return all(_fits(p, t, names, found) for p, t in zip(pattern[1:], term[1:], strict=True))


def _fill(pattern: Tree, names: set[str], found: dict[str, Tree]) -> Tree:
    if pattern[0] not in names:
        return found.get(pattern[0], pattern)
    return (pattern[0], *(_fill(part, names, found) for part in pattern[1:]))


def _names(term: Tree) -> set[str]:
    return {term[0]}.union(*map(_names, term[1:]))


def shows(
    proof: str, signature: Mapping[str, int], equations: Mapping[str, str], goal: str
) -> bool:
    """Whether a text (its lines well-formed, nothing said by ``with``) is a proof."""
    start, end = map(tree, goal.split("="))
    names, terms = set(signature), []
    for number, line in enumerate(proof.split("\n"), start=1):
        read = re.fullmatch(r"(\d+)\. (= )?(.*?)(?:  \[(.*)\])?", line)
        assert read is not None
        term = tree(read[3])
        terms.append(term)
        if number == 1:
            if read[2] or read[4] is not None or term != start:
                return False
            continue
        words = read[4].split()
        sides = [tree(side) for side in equations[words[0]].split("=")]
        if "backwards" in words:
            sides.reverse()
        wanted = words[words.index("at") + 1] if "at" in words else None
        for place, changed, open_ in steps(terms[-2], names, *sides):
            # A variable that the left side leaves open may be anything: compare as patterns.
            if wanted in (None, place) and _fits(changed, term, names - set(open_), {}):
                break
        else:
            return False
    return bool(terms) and terms[-1] == end


Model = tuple[list[Any], dict[str, Callable[..., Any]]]


def _symmetric_group() -> Model:
    """S3, in which products do not commute."""
    every = list(itertools.permutations(range(3)))
    return every, {
        "mul": lambda p, q: tuple(p[i] for i in q),
        "inv": lambda p: tuple(sorted(range(3), key=lambda i: p[i])),
        "e": lambda: (0, 1, 2),
    }


def _subsets() -> Model:
    """The subsets of a set of two."""
    return [0, 1, 2, 3], {
        "meet": lambda x, y: x & y, "join": lambda x, y: x | y, "top": lambda: 3, "bottom": lambda: 0
    }  # fmt: skip


MODELS = {"group": _symmetric_group(), "lattice": _subsets()}


def value(term: Tree, model: Model, of_names: dict[str, Any]) -> Any:
    if term[0] in model[1]:
        return model[1][term[0]](*(value(part, model, of_names) for part in term[1:]))
    return of_names[term[0]]


def holds(equation: str, model: Model) -> bool:
    """Whether an equation is true, whatever its free names are."""
    left, right = map(tree, equation.split("="))
    free = sorted((_names(left) | _names(right)) - set(model[1]))
    for values in itertools.product(model[0], repeat=len(free)):
        of_names = dict(zip(free, values, strict=True))
        if value(left, model, of_names) != value(right, model, of_names):
            return False
    return True
