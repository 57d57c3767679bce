"""Whether a sentence says the opposite of its rule, as far as its words tell for certain.

A bound belongs to what is above it ("at least 5", "less than 5") or to what is below it ("at most 5", "more
than 5"), whether the sentence demands or forbids: its words must put it on the side of the rule's comparison.
Where nothing in a sentence negates, its words must also point the way in which the comparison does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from envgen.core.errors import ConfigError
from envgen.core.ir import AllDifferent, Before, Clause, Cmp, Const, Equals, Node, Param
from envgen.pipelines.general.authoring.page import PhraseRule
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.semantics.rewrite import condition, conjuncts, truth

_ABOVE = r"(?:at least|no (?:fewer|less) than|no earlier than|from) @(?! to\b)"
_BELOW = r"(?:at most|no more than|no later than|up to and including) @"
_OVER = r"(?<!no )(?:more than|above|later than|after|exceed) @"
_UNDER = r"(?<!no )(?:less than|fewer than|below|earlier than|[Bb]efore) @"
_OR_MORE = r"@[^{},.;]*? (?:or more|or higher|or later)"
_OR_LESS = r"@[^{},.;]*? (?:or less|or fewer|or lower|or below|or earlier)"
BOUNDS = {
    "up": rf"{_ABOVE}|{_UNDER}|{_OR_MORE}",
    "down": rf"{_BELOW}|{_OVER}|{_OR_LESS}|(?:up to|within) @ days [^{{}}.;]*, the last day included",
}
"""How a sentence says that the boundary @ belongs to what is above it, or to what is below it."""
SIDES = {"<": "up", ">=": "up", "<=": "down", ">": "down"}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WAYS = {
    "more": rf"{_ABOVE}|{_OVER}|{_OR_MORE}",
    "less": rf"{_BELOW}|{_UNDER}|{_OR_LESS}",
}
"""How a sentence says that something lies above the bound @, or below it."""


def _words(text: str) -> re.Pattern[str]:
    """Any of the words; + stands for a space, * for more letters."""
    words = "|".join(text.split()).replace("+", " ").replace("*", r"\w*")
    return re.compile(rf"\b(?:{words})\b|n't\b", re.IGNORECASE)


_TURNS = _words("""
not no none never neither nor nothing nobody cannot without unless except exception only leave left
out ignor* skip* exclud* refus* forb* drop* avoid* cancel* lost loses lose fail* dies closed
otherwise else other others rest remain* instead free+of but if where when should until who whoever
different differ another own apart twice once
""")
"""Words that may turn a sentence's sense round: where one stands, its direction is not judged."""
_OBLIGES = _words("""
must has+to have+to need needs should shall is+to are+to at+most at+least at+the+most at+the+least
than below above before after up+to or+less or+more or+fewer or+lower or+higher or+later or+earlier
not no none never neither nor nothing nobody cannot unless except only but as+many+as as+much+as
as+long+as
""")
"""Words of which a sentence that demands has one, whatever it says beside."""
_PERMITS = re.compile(r"\b(?:may|can)\b", re.IGNORECASE)
_EXTREMES = (
    ("highest", "lowest"), ("latest", "earliest"), ("longest", "shortest"),
    ("largest", "smallest"), ("dearest", "cheapest"),
)  # fmt: skip
_OPPOSITE = {a: b for pair in _EXTREMES for a, b in (pair, pair[::-1])}
_FIELD = re.compile(r"\{(\w+)(?::\w+)?\}")
_PARAM = re.compile(r"\{param:((?:[^{}|]|\{\w+\})+)(?:\|\w+)?\}")


def check_sense(text: str, rule: PhraseRule, built: Any, fields: Mapping[str, Any]) -> None:
    """No word of ``text``, one way to say a phrase, says the opposite of what the phrase means.

    Args:
        text: the sentence, with its holes.
        rule: the phrase.
        built: what it means, with ``fields`` filled in.
        fields: those of the sentence.

    Raises:
        ConfigError: naming the text, its word and the comparison.
    """
    what = f"its text {text!r}"
    sentence = _PARAM.sub(lambda token: f"<{token[1].format(**fields)}>", text)
    bounds = list(comparisons(built))
    for place, fn in bounds:
        if len({SIDES[other] for at, other in bounds if at == place}) == 1:  # else it says both
            _check_side(what, sentence, place, fn)
    for place, fn in _demanded(built):
        _check_way(what, sentence, place, fn)
    _check_extremes(what, _FIELD.sub("", sentence), rule.means)
    if isinstance(built, Clause) and rule.kind in ("clause", "policy"):
        _check_duty(what, sentence, built)


def comparisons(built: Any) -> Iterator[tuple[str, str]]:
    """(place of the bound in a sentence, comparison with it on the right) of each one in a rule."""
    for root in _roots(built):
        for node in root.walk():
            yield from _compared(node)


def _roots(built: Any) -> Iterator[Node]:
    parts = [getattr(built, name, None) for name in ("expr", "query", "guard")]
    yield from (part for part in (built, *parts) if isinstance(part, Node))


def _compared(node: Node) -> Iterator[tuple[str, str]]:
    if isinstance(node, Before) and isinstance(node.lag, Param):
        yield f"<{node.lag.name}>", ">="
    if isinstance(node, Cmp) and node.fn in SIDES:
        for bound, fn in ((node.right, node.fn), (node.left, MIRRORED[node.fn])):
            if isinstance(bound, Param):
                yield f"<{bound.name}>", fn
            elif isinstance(bound, Const) and type(bound.value) is int and abs(bound.value) > 1:
                yield str(bound.value), fn


def _demanded(built: Any) -> Iterator[tuple[str, str]]:
    """Those comparisons that hold whenever the rule does, so that a sentence says them as they are."""
    parts: list[Node] = []
    if isinstance(built, Clause):
        parts += condition(built) if built.source == "policy" else conjuncts(built.expr)
    elif isinstance(built, Equals):
        parts += conjuncts(built.query.where)
    for part in parts:
        yield from _compared(part)


def _found(pattern: str, place: str, sentence: str) -> str | None:
    spot = re.escape(place) if place[0] == "<" else rf"(?<![\w<-]){place}(?![\w>])"
    match = re.search(pattern.replace("@", spot), sentence)
    return match[0] if match else None


def _check_side(what: str, sentence: str, place: str, fn: str) -> None:
    side = SIDES[fn]
    wrong = _found(BOUNDS["down" if side == "up" else "up"], place, sentence)
    if wrong and not _found(BOUNDS[side], place, sentence):
        raise _opposite(what, wrong, f"{fn} {place.strip('<>')}")


def _check_way(what: str, sentence: str, place: str, fn: str) -> None:
    right, other = ("more", "less") if fn[0] == ">" else ("less", "more")
    wrong = _found(_WAYS[other], place, sentence)
    if wrong and not _found(_WAYS[right], place, sentence) and not _TURNS.search(sentence):
        raise _opposite(what, wrong, f"{fn} {place.strip('<>')}")


def _opposite(what: str, wrong: str, rule: str) -> ConfigError:
    return ConfigError(
        f"{what} says {re.sub('[<>]', '', wrong)!r}, but its rule compares with {rule!r}",
        "turn one of them round: 'at least' and 'or more' go with >=, 'at most' and 'or less' with <=, "
        "'less than' and 'before' with <, 'more than' and 'after' with >",
    )


def _check_extremes(what: str, sentence: str, means: str) -> None:
    asked = set(_asked(means))
    words = set(re.findall(r"[a-z]+", sentence.lower()))
    for word in sorted(asked):
        opposite = _OPPOSITE[word]
        if opposite in words and word not in words and opposite not in asked:
            raise ConfigError(
                f"{what} says {opposite!r}, but its rule takes the {word!r}",
                f"say {word!r}, or let the rule take the {opposite!r}",
            )


def _asked(means: str) -> Iterator[str]:
    """The extremes that a rule names, in calls of ``best`` with a word."""
    for node in ast.walk(parsed(means)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "best" and node.args:
            word = getattr(node.args[0], "value", None)
            if word in _OPPOSITE:
                yield str(word)


def _check_duty(what: str, sentence: str, rule: Clause) -> None:
    """A rule is no mere permission, and what must differ is not asked to be the same."""
    permits = _PERMITS.search(sentence)
    bounded = (
        "{param" in what
    )  # which quotes the text: "may take {param:hours} hours or less" is a bound
    if permits and not bounded and not _OBLIGES.search(sentence):
        raise ConfigError(
            f"{what} says {permits[0]!r} and permits something, but its rule demands something",
            "say what must be, or what may not be",
        )
    same = re.search(r"\bsame\b", sentence)
    only_different = all(isinstance(part, AllDifferent) for part in conjuncts(truth(rule)))
    if same and only_different and not _TURNS.search(sentence):
        raise ConfigError(
            f"{what} says 'same', but its rule requires them to be different",
            "say that no two may be the same, or write == into the rule",
        )
