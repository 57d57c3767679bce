from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import Clause, Cmp, Const, Get, Node, Param, Scalar, SlotRef
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.senses import BOUNDS, SIDES, comparisons
from envgen.pipelines.general.domains import DOMAINS, load_tasks, page
from envgen.pipelines.general.words.lexicon import AnswerForm, Lexicon, Phrase, lexicon, suffix
from envgen.pipelines.general.words.wording import Fields, Template, Words

WORDS = Words(
    nouns={"hotels.price": "price per night"}, slots={"hotel_{i}": "the hotel of day {i}"}
)


def _budget(fields: Fields) -> Clause:
    day = fields["day"]
    price = Get(relation="hotels", entity=SlotRef(slot=f"hotel_{day}"), column="price")
    return Clause(
        id=f"budget_{day}",
        family="budget",
        expr=Cmp(fn="<=", left=price, right=Param(name=f"budget_{day}")),
        text_key="",
    )


def _lexicon(**phrases: Phrase) -> Lexicon:
    return Lexicon(
        id="test",
        title="Test",
        openings={"default": "Find a hotel in {city}."},
        frame=lambda fields: AnswerForm((), {}),
        phrases=phrases,
        words=WORDS,
    )


@pytest.mark.parametrize(
    ("template", "fields", "params", "text"),
    [
        ("Day {day}: {param:b_{day}} yuan.", {"day": 2}, {"b_2": 300}, "Day 2: 300 yuan."),
        ("In {city}.", {"city": "Xi'an, old town"}, {}, "In Xi'an, old town."),
        ("From {param:open|clock}.", {}, {"open": 545}, "From 09:05 (minute 545)."),
        ("Rated {param:r|tenths}.", {}, {"r": 40}, "Rated 40 (4.0)."),
        ("By {c:word}, {c:word}!", {"c": "hotels.price"}, {},
         "By price per night, price per night!"),
        ("On {d:date} with {who:list}.", {"d": "2025-10-01", "who": ["A", "B", "C"]}, {},
         "On 2025-10-01 with A, B and C."),
    ],
)  # fmt: skip
def test_a_template_reads_back_what_it_writes(
    template: str, fields: dict[str, JsonValue], params: dict[str, Scalar], text: str
) -> None:
    compiled = Template(template)
    assert compiled.render(fields, params, WORDS) == text
    reading = compiled.read(text, WORDS)
    assert reading is not None
    assert (reading.fields, reading.params) == (fields, params)
    assert compiled.read(text[:-1] + ";", WORDS) is None


@pytest.mark.parametrize("bad", ["a {day", "a {x:nonsense} b", "two\nlines", ""])
def test_a_malformed_template_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        Template(bad)


def test_a_text_that_reads_like_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="reads like a number"):
        Template("In {city}.").render({"city": "12"}, {}, WORDS)


def test_a_clause_carries_its_sentence() -> None:
    lex = _lexicon(budget=Phrase("Day {day} costs at most {param:budget_{day}}.", _budget))
    clause = lex.rule("budget", {"day": 2})
    assert isinstance(clause, Clause)
    assert (clause.id, clause.text_key, clause.fields) == ("budget_2", "budget", {"day": 2})


def test_ambiguous_phrases_are_refused() -> None:
    with pytest.raises(ConfigError, match="also reads"):
        _lexicon(
            one=Phrase("Stay in {city:text} for the night.", _budget),
            two=Phrase("Stay in {place} for {span}.", _budget),
        )


def test_an_unknown_phrase_or_lexicon_names_near_ones() -> None:
    lex = _lexicon(budget=Phrase("Day {day}.", _budget))
    with pytest.raises(ConfigError) as phrase_error:
        lex.phrase("budgets")
    assert "budget" in phrase_error.value.hint
    with pytest.raises(ConfigError, match="unknown lexicon 'trip'"):
        lexicon("trip")  # of a dataset that was made before pages were stored


def test_a_phrase_of_the_wrong_kind_is_refused() -> None:
    lex = _lexicon(odd=Phrase("Odd.", lambda _: Const(value=True)))
    with pytest.raises(ConfigError, match="states no rule"):
        lex.rule("odd", {})


ANY_FIELDS: dict[str, JsonValue] = {
    "day": 1, "days": 3, "k": 1, "a": 1, "b": 2, "count": 2, "of": "hotels", "by": "price",
    "keep": "free", "start": "2025-10-01", "equipment": "video", "attribute": "priority",
    "sense": "highest", "pick": "latest", "opening": "refund", "escalation": "escalated",
    "most": 9, "n": 3, "amount": "paid", "source": "card",
    "luxury_price": 90_001, "mid_price": 90_002, "low_price": 90_003, "luxury_meals": 90_004,
    "good_rating": 90_005, "fair_rating": 90_006, "luxury_ticket": 90_007, "mid_ticket": 90_008,
}  # fmt: skip
BOUND_FIELDS = {v: k for k, v in ANY_FIELDS.items() if isinstance(v, int) and v > 90_000}
"""Bounds that are drawn with the scene: the number in the rule tells which it is."""
FIELD = re.compile(r"\{(\w+)(?::\w+)?\}")
PARAMETER = re.compile(r"\{param:((?:[^{}|]|\{\w+\})+)(?:\|\w+)?\}")
SPOKEN = {
    "later": "that time itself is fine in both cases",
    "earlier": "that time itself is fine in both cases",
    "least_paid": "only the <most> ",
    "most_paid": "only the <most> ",
    "per_order": "only the <per_order> ",
    "wishes": "the <most> ",
}
"""Phrases whose boundaries are two, or a number of the best, and said in words of their own."""


def boundaries(built: Any) -> Iterator[tuple[str, str]]:
    """(parameter or drawn bound, the side that its value belongs to) for each comparison in a rule."""
    for place, fn in comparisons(built):
        if place[0] == "<":
            yield place[1:-1], SIDES[fn]
        elif int(place) in BOUND_FIELDS:
            yield BOUND_FIELDS[int(place)], SIDES[fn]


def walked(built: Any) -> Iterator[Node]:
    for name in ("expr", "query", "guard"):
        part = getattr(built, name, None)
        if isinstance(part, Node):
            yield from part.walk()
    if isinstance(built, Node):
        yield from built.walk()


@pytest.mark.parametrize("name", DOMAINS)
def test_every_bound_says_whether_it_is_included(name: str) -> None:
    """Bounds are drawn to equal a row's value, so an unclear one decides tasks."""
    used, stated = set(), set()
    for key, phrase in load_tasks(name).lexicon.phrases.items():
        text = FIELD.sub(field_of, PARAMETER.sub(name_of, phrase.template))
        fields = sample_fields(page(name), key.partition("~")[0])
        for parameter, side in set(boundaries(phrase.build(fields))):
            used.add(parameter)
            place = f"<{parameter}>"
            if place not in text:  # it refers to a rule that states it
                continue
            stated.add(parameter)
            if (phrase_name := key.partition("~")[0]) in SPOKEN:
                assert SPOKEN[phrase_name] in text
                continue
            other = BOUNDS["down" if side == "up" else "up"]
            assert re.search(BOUNDS[side].replace("@", place), text), (key, parameter, side, text)
            assert not re.search(other.replace("@", place), text), (key, parameter, side, text)
    assert used == stated
    assert len(used) >= 4


def sample_fields(domain: Domain, key: str) -> dict[str, JsonValue]:
    """Fields that a sentence may have."""
    rule = domain.phrases[key]
    found: dict[str, JsonValue] = {name: values[0] for name, values in rule.choose.items()}
    words = [one.word for one in domain.phrases.values() if one.word]
    if "{rules:list}" in rule.texts[0]:
        found["rules"] = load_tasks(domain.id).blueprint.named_by(key, words)
    return {**ANY_FIELDS, **found, **rule.fields}


def name_of(token: re.Match[str]) -> str:
    return f"<{token[1].format(**ANY_FIELDS)}>"


def field_of(token: re.Match[str]) -> str:
    return f"<{token[1]}>" if ANY_FIELDS.get(token[1]) in BOUND_FIELDS else token[0]


@pytest.mark.parametrize("name", DOMAINS)
def test_every_phrase_is_said_in_three_ways_or_more(name: str) -> None:
    """All are read back to the clause of the first, whatever the way."""
    lexicon, domain = load_tasks(name).lexicon, page(name)
    for key, rule in domain.phrases.items():
        assert len(rule.texts) >= 3, key
        fields = sample_fields(domain, key)
        built = []
        for i in range(len(rule.texts)):
            template = lexicon.phrase(key + suffix(i)).sentence
            own = {n: v for n, v in fields.items() if n in template.names}
            params = template.sample_params(own)
            reading = template.read(template.render(own, params, WORDS), WORDS)
            assert reading is not None
            built.append((lexicon.phrase(key).build({**fields, **reading.fields}), reading))
        assert all(one == built[0] for one in built), key
    for opening in {opening.partition("~")[0] for opening in lexicon.openings}:
        assert f"{opening}~3" in lexicon.openings


def test_the_boundary_check_tells_unclear_sentences() -> None:
    """What the audit met: none of these says whether the bound itself is allowed."""
    for unclear in (
        "an order can be cancelled up to <n> days after it was placed.",
        "refunded only up to <n> days after its delivery.",
        "Meeting 1 has to end by <n>.",
        "between <n> and <m>",
    ):
        for side in BOUNDS.values():
            assert not re.search(side.replace("@", "<n>"), unclear)


def test_windows_by_tier_and_the_office_day_include_their_ends() -> None:
    """Their bounds are no parameters."""
    tiers = load_tasks("orders").domain.phrases["tier_window"].texts
    assert all("the last day included" in text for text in tiers)
    words = load_tasks("meetings").lexicon
    timed = [t for name, t in words.openings.items() if name.startswith(("pair", "place"))]
    assert len(timed) == 9
    assert all("both included" in text for text in timed)
    minutes = (words.units["minutes"], *words.more_units["minutes"])
    assert all("may start at that very minute" in text for text in minutes)


def test_refunds_say_what_amount_is_due_and_check_it() -> None:
    phrases = load_tasks("orders").lexicon.phrases
    words = load_tasks("orders").lexicon.words
    assert words.noun("paid") == "what was paid for it (unit price times quantity)"
    assert words.noun("fee").startswith("less a handling fee")
    assert "{money:word}, {less:word}" in phrases["refund"].template
    built = phrases["refund"].build(sample_fields(page("orders"), "refund"))
    cells = {node.column for node in walked(built) if isinstance(node, Get)}
    assert "refund" in cells


def test_cheap_hotels_are_told_to_be_free_of_rules() -> None:
    for text in page("trip").phrases["low"].texts:
        assert "A hotel for less than {low_price} CNY asks for nothing." in text
