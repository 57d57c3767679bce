from __future__ import annotations

import pytest
from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import Clause, Cmp, Const, Get, Param, Scalar, SlotRef
from envgen.pipelines.general.lexicon import Frame, Lexicon, Phrase, lexicon
from envgen.pipelines.general.wording import Fields, Template, Words

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
        frame=lambda fields: Frame((), {}),
        phrases=phrases,
        words=WORDS,
    )


@pytest.mark.parametrize(
    ("template", "fields", "params", "text"),
    [
        ("Day {day}: {param:b_{day}} yuan.", {"day": 2}, {"b_2": 300}, "Day 2: 300 yuan."),
        ("In {city}.", {"city": "Xi'an, old town"}, {}, "In Xi'an, old town."),
        ("{a:slot} is near {b:slots}.", {"a": "hotel_1", "b": ["hotel_2", "x"]}, {},
         "the hotel of day 1 is near the hotel of day 2 and `x`."),
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
    clause = lex.clause("budget", day=2)
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
    with pytest.raises(ConfigError) as lexicon_error:
        lexicon("tripp")
    assert "trip" in lexicon_error.value.hint


def test_a_phrase_of_the_wrong_kind_is_refused() -> None:
    lex = _lexicon(odd=Phrase("Odd.", lambda _: Const(value=True)))
    with pytest.raises(ConfigError, match="is no clause"):
        lex.clause("odd")
    with pytest.raises(ConfigError, match="is no goal"):
        lex.goal("odd")
