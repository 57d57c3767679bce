"""Answers that are near a gold and differ from it: what judges by that gold must refuse them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from envgen.verifiers.maths import MathAnswer
from envgen.verifiers.published import members

TWINS = 3


def near_twins(answer: MathAnswer) -> tuple[str, ...]:
    """Three texts of other values than the answer's, as far as one can say; as near as can be made.

    Numbers are nudged (whole ones by 1, others by less than rounding hides), negated, and made ten times as
    large; expressions get a constant more; a member is dropped or nudged, an interval's end opened, closed
    or nudged.
    """
    value = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", answer.value).strip()
    if answer.kind in ("integer", "rational", "decimal"):
        found = _numbers(value, answer.kind == "integer")
    elif answer.kind == "choice":
        found = iter([*(one for one in answer.choices if one != value), f"not {value}", "", "?"])
    elif answer.kind == "interval":
        found = _intervals(value)
    elif answer.kind == "matrix":
        found = _matrices(value)
    elif answer.kind in ("set", "tuple"):
        found = _lists(value, answer.kind)
    else:
        found = (f"({value}){more}" for more in ("+1", "-1", "+1/1000"))
    return tuple(islice(found, TWINS))


def _numbers(value: str, whole: bool) -> Iterator[str]:
    right = Fraction(value)
    place = 10 ** len(value.partition(".")[2]) if "." in value else right.denominator
    step = Fraction(1) if whole else Fraction(1, 100 * place)
    yield from map(str, (right + step, -right or right - step, 10 * right or right + 2 * step))


def _nudged(value: str, by: str = "+1") -> str:
    """A member that is another: the first number in its brackets, if it has any, is."""
    value = value.strip()
    inside = members(value[1:-1])
    if value[:1] in ("(", "[") and len(inside) > 1:
        return value[0] + ",".join([_nudged(inside[0], by), *inside[1:]]) + value[-1]
    return f"({value}){by}"


def _lists(value: str, kind: str) -> Iterator[str]:
    inner = re.sub(r"^\\?[{(\[]|\\?[})\]]$", "", value) if value[:1] in "\\{([" else value
    begin, end = ("{", "}") if kind == "set" else (value[0], value[-1])
    parts = members(inner)
    if value.startswith(("\\empty", "\\var")) or not inner.strip():
        yield from ("{0}", "{1}", "()")
        return
    yield begin + ",".join([*parts[:-1], _nudged(parts[-1])]) + end
    yield begin + ",".join([_nudged(parts[0], "-1/7"), *parts[1:]]) + end
    yield begin + ",".join(parts[1:]) + end


def _intervals(value: str) -> Iterator[str]:
    first, *rest = re.split(r"\\cup(?![A-Za-z])|\u222a|(?<=[\])])\s*U\s*(?=[\[(])", value)
    first, others = first.strip(), "".join(f" \\cup {one}" for one in rest)
    low, high = members(first[1:-1])
    if re.search(r"infty|\u221e|oo", low):
        if re.search(r"infty|\u221e|oo", high):
            yield from ("[0,1]", "(0,oo)", "(-oo,0)")
            return
        yield f"{first[:-1]}{']' if first[-1] == ')' else ')'}{others}"
    else:
        yield f"{'[' if first[0] == '(' else '('}{first[1:]}{others}"
        yield f"{first[0]}{_nudged(low, '-1/7')},{high}{first[-1]}{others}"
    for by in ("-1/7", "+1/7"):
        yield f"{first[0]}{low},{_nudged(high, by)}{first[-1]}{others}"
    yield f"(-oo,{_nudged(low)})"


def _matrices(value: str) -> Iterator[str]:
    inner = re.sub(r"\\(?:begin|end)\{[pb]matrix\}", "", value).strip().removesuffix("\\\\")
    rows = [row.split("&") for row in inner.split("\\\\")]
    last = [*rows[:-1], [*rows[-1][:-1], f"({rows[-1][-1]})+1"]]
    first = [[f"({rows[0][0]})-1", *rows[0][1:]], *rows[1:]]
    for one in (first, last, [*rows, rows[0]]):
        yield "[" + ",".join(f"[{','.join(row)}]" for row in one) + "]"
