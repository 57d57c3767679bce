"""Formulas as people and programs write them, plain or in LaTeX, read by a parser of our own.

There are numbers, + - * /, powers, factorials, roots, pi, e, variables, and lists of all these. What has two
readings is refused: a/bc, or a number beside a fraction.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

MAX_NESTING, MAX_EXPONENT = 50, 3_000
LISTS = ("tuple", "list")


class NoAnswerError(ValueError):
    """It can't be read as what it should be, or exceeds a limit."""


class UndefinedError(NoAnswerError):
    """It has no value at this point."""


LONE_TEXT = re.compile(r"\\(?:text|mathrm|textbf|texttt)\s*\{([^{}]*)\}")
_SIGNS = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u00d7\u00b7\u22c5\u2219"), "*"),
    **dict.fromkeys(map(ord, "\u00f7\u2044\u2215"), "/"),
    **dict.fromkeys(map(ord, "\u00a0\u2009\u202f\u2002\u2003\t\n\r"), " "),
    ord("\u221a"): " sqrt ",
    ord("\u03c0"): " pi ",
    ord("\u221e"): " oo ",
    ord("\u222a"): " \\cup ",
    ord("\u2205"): "{}",
}
_RAISED = {ord(unicodedata.lookup(f"SUPERSCRIPT {name}")): plain for name, plain in zip(
    ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE", "PLUS SIGN", "MINUS"),
    "0123456789+-", strict=True,
)}  # fmt: skip
_RAISED_RUN = re.compile("[" + "".join(map(chr, _RAISED)) + "]+")
_VULGAR = re.compile("(\\d*) ?([\u00bc-\u00be\u2150-\u215e])", re.ASCII)
_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;: ]|(?<=.)~", " "),
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:cdot|times)(?![A-Za-z])", "*"),
        (r"\*\*", "^"),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\pi(?![A-Za-z])", " pi "),
        (r"\\infty(?![A-Za-z])", " oo "),
        (r"\\(?:emptyset|varnothing)(?![A-Za-z])", "{}"),
        (r"\\(?:circ|degree)(?![A-Za-z])", "\u00b0"),
        (r"\^\s*(?:\{\s*\u00b0\s*\}|\u00b0)", "\u00b0"),
        (r"\\([%{}])", r"\1"),
        (r"\\(frac|sqrt)\s*(\d)", r"\\\1{\2}"),
        (r"\\sqrt(?![A-Za-z])", " sqrt "),
        (LONE_TEXT.pattern, r" \1 "),
    )
)


def plain(text: str) -> str:
    """A formula without LaTeX's marks, in ASCII as far as it can be."""
    text = _RAISED_RUN.sub(lambda run: f"^({run[0].translate(_RAISED)})", text)
    text = _VULGAR.sub(_fraction, text).translate(_SIGNS)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return text.strip()


def _fraction(found: re.Match[str]) -> str:
    above, below = unicodedata.normalize("NFKC", found[2]).split("\u2044")
    return f"({int(found[1] or 0) * int(below) + int(above)}/{below})"


@dataclass(frozen=True, slots=True)
class Formula:
    """A node of what was read: a number, a name, or an operation on ``parts``."""

    op: Literal["number", "name", "+", "neg", "*", "inv", "^", "!", "root", "tuple", "list"]
    parts: tuple[Formula, ...] = ()
    number: Fraction = Fraction(0)
    name: str = ""

    def names(self) -> frozenset[str]:
        """All names in it."""
        own = [self.name] if self.op == "name" else []
        return frozenset(own).union(*(part.names() for part in self.parts))


INFINITY = ("infinity", "Infinity", "inf", "oo")
_OPENING = {"(": ")", "[": "]", "{": "}"}


class FormulaReader:
    """Reads formulas by recursive descent.

    Args:
        text: what ``_plain`` gives.
        variables: names beside pi and e.
        grouped: whether commas may stand between groups of three digits.
        scientific: whether ``1e5`` is a number.
    """

    def __init__(
        self, text: str, variables: tuple[str, ...], *, grouped: bool, scientific: bool = False
    ) -> None:
        whole = r"[1-9]\d{0,2}(?:(?:,|\{,\})\d{3})+(?![\d,])|\d+" if grouped else r"\d+"
        power = r"(?:[eE][+-]?\d{1,4}(?!\d))?" if scientific else ""
        names = sorted({*variables, "sqrt", "pi", "e", "E"}, key=len, reverse=True)
        number = rf"(?:(?:{whole})(?:\.\d+)?|\.\d+){power}"
        token = rf"\s*(?:({number})|({'|'.join(names)})|(\\frac|[-+*/^!(){{}}\[\],]))"
        self._tokens: list[tuple[str, str]] = []
        self._at = self._depth = 0
        self._variables = variables
        text = text.strip()
        at, pattern = 0, re.compile(token, re.ASCII)
        while at < len(text):
            found = pattern.match(text, at)
            if found is None:
                raise NoAnswerError("it is no formula")
            kind = ("number", "name", "sign")[(found.lastindex or 1) - 1]
            self._tokens.append((kind, found[0].strip()))
            at = found.end()

    def items(self) -> tuple[Formula, ...]:
        """The formulas of the whole text, with commas between them."""
        found = self._list("")
        if self._at < len(self._tokens):
            raise NoAnswerError("something stands behind it")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        """The next token if it is one of these, else nothing."""
        token = self._peek()
        if token not in wanted or not token:
            return ""
        self._at += 1
        return token

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise NoAnswerError(f"{wanted} is missing")

    def _list(self, end: str) -> tuple[Formula, ...]:
        if end and self._take(end):
            return ()
        found = [self._sum()]
        while self._take(","):
            found.append(self._sum())
        if end:
            self._need(end)
        return tuple(found)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise NoAnswerError("it is nested too deeply")

    def _sum(self) -> Formula:
        self._deeper()
        found, sign = [], self._take("+", "-")
        while True:
            term = self._product()
            found.append(Formula("neg", (term,)) if sign == "-" else term)
            sign = self._take("+", "-")
            if not sign:
                break
        self._depth -= 1
        return found[0] if len(found) == 1 else Formula("+", tuple(found))

    def _product(self) -> Formula:
        found, divided = [self._power()], False
        while True:
            sign = self._take("*", "/")
            if sign:
                divided = sign == "/"
                factor = self._signed()
                found.append(Formula("inv", (factor,)) if divided else factor)
                continue
            token = self._peek()
            starts = token in ("(", "\\frac") or (
                bool(token) and self._tokens[self._at][0] == "name"
            )
            if not starts:
                break
            # a / bc has two readings, and so has a number before a fraction.
            if divided or (token == "\\frac" and found[-1].op == "number"):
                raise NoAnswerError("it is ambiguous")
            found.append(self._power())
        return found[0] if len(found) == 1 else Formula("*", tuple(found))

    def _signed(self) -> Formula:
        sign = self._take("+", "-")
        found = self._power()
        return Formula("neg", (found,)) if sign == "-" else found

    def _power(self) -> Formula:
        self._deeper()
        base = self._atom()
        if self._take("!"):
            base = Formula("!", (base,))
        if self._take("^"):
            base = Formula("^", (base, self._group() if self._peek() == "{" else self._signed()))
        self._depth -= 1
        return base

    def _group(self) -> Formula:
        self._need("{")
        found = self._sum()
        self._need("}")
        return found

    def _argument(self) -> Formula:
        """What LaTeX takes: a group, a digit or a name."""
        if self._peek() == "{":
            return self._group()
        kind, token = self._tokens[self._at] if self._peek() else ("", "")
        if (kind == "number" and len(token) == 1) or (kind == "name" and token != "sqrt"):
            return self._atom()
        raise NoAnswerError("a fraction lacks a part")

    def _atom(self) -> Formula:
        if self._at >= len(self._tokens):
            raise NoAnswerError("it ends too early")
        kind, token = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            head, _, exponent = re.sub(r"[{},]", "", token).lower().partition("e")
            if exponent and abs(int(exponent)) > MAX_EXPONENT:
                raise NoAnswerError("the exponent is too large")
            return Formula("number", number=Fraction(head) * Fraction(10) ** int(exponent or 0))
        if kind == "name" and token in self._variables:
            return Formula("name", name=token)
        if token == "sqrt":
            return self._root()
        if kind == "name":
            return Formula("name", name=token.lower())
        if token == "\\frac":
            above = self._argument()
            return Formula("*", (above, Formula("inv", (self._argument(),))))
        if token in ("(", "["):
            found = self._list(_OPENING[token])
            if token == "(" and len(found) == 1:
                return found[0]
            return Formula("tuple" if token == "(" else "list", found)
        raise NoAnswerError(f"{token} stands at the wrong place")

    def _root(self) -> Formula:
        order = 2
        if self._take("["):
            order = int(self._peek()) if re.fullmatch("[2-6]", self._peek()) else 0
            self._at += 1
            self._need("]")
        if not order or not (self._peek() in ("{", "(") or self._tokens[self._at :][:1]):
            raise NoAnswerError("a root of nothing, or of another order")
        if self._peek() == "{":
            under = self._group()
        elif self._peek() == "(" or self._tokens[self._at][0] == "number":
            under = self._atom()
        else:
            raise NoAnswerError("what stands under the root?")
        return Formula("root", (under,), number=Fraction(order))
