"""The rule-based reader of search questions: how it reads, in both languages, and what it answers."""

from __future__ import annotations

import pytest

from envgen.policies.search_reading import Hint, fit, numbers, understand, values
from envgen.policies.search_values import number_in, text_in


def clues(prompt: str) -> list[tuple[tuple[str, ...], float | None, float | None, str]]:
    return [(one.names, one.low, one.high, one.unit) for one in understand(prompt).clues]


def test_a_question_is_cut_into_clues_outside_quotes_and_intervals() -> None:
    prompt = (
        "Which bridge was opened between 1,920 and 1980, spans at least 3,000 km2 and at most 4,500 km2 "
        "of the bay, is called “Iron, steel and wood”, and was drawn by Ada King? Answer with a name."
    )
    assert clues(prompt) == [
        ((), 1920, 1980, ""),
        ((), 3000, 4500, "sq km"),
        (("Iron, steel and wood",), None, None, ""),
        (("Ada King",), None, None, ""),
    ]
    assert understand(prompt).names_it


def test_what_is_asked_about_a_thing_is_not_the_thing() -> None:
    question = understand(
        "What is the length of the river that crosses Graz and is cold? Say a number."
    )
    assert question.asked == "What is the length of"
    assert not question.names_it
    assert not understand("请问住在北京\uff0c有3到5個孩子的人的職業是什麼?").names_it


def test_chinese_intervals_and_numerals_are_read() -> None:
    assert clues("哪个人有3到12本書\uff0c是京都人?") == [((), 3, 12, "本"), ((), None, None, "")]
    assert [(one.value, one.unit) for one in numbers("書十二本\uff0c畫一百零三幅")] == [
        (12, "本"),
        (103, "幅"),
    ]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("The bridge is 120 m long.", True),
        ("The bridge is 12 m wide and 130 m long.", True),
        ("The bridge is 130 m wide and 12 m long.", False),
        ("The bridge is 120 km long.", False),
        ("The bridge is 1,200 m long.", False),
    ],
)
def test_a_number_fits_an_interval_with_its_unit_and_beside_its_word(text: str, fits: bool) -> None:
    (clue,) = understand("Which bridge has a length from 100 m to 140 m?").clues
    assert (fit(clue, text, {}) == 1.0) is fits


def test_a_narrow_interval_is_searched_for_by_its_numbers() -> None:
    (clue,) = understand("Which bridge was opened in one of the years from 1998 to 2001?").clues
    assert values(clue) == ["1998", "1999", "2000", "2001"]
    assert values(Hint("", frozenset(), (), 1, 1_000_000)) == []


LABELLED = """Name: Utopia
Surface: 3,020 sq km
Seat: Amaurot (since 1516)
Coins: florins (UTF)
Summit: Mount More 812 m"""
PROSE = (
    "Ada King was born in Graz, Austria in 1901. She died in Turin, Italy in 1980. "
    "The work is made in oil on oak."
)


@pytest.mark.parametrize(
    ("prompt", "text", "answer"),
    [
        ("Which seat belongs to the state that has fun?", LABELLED, "Amaurot"),
        ("What is the code of the coins of the state that has fun?", LABELLED, "UTF"),
        ("Which summit is in the state that has fun?", LABELLED, "Mount More"),
        ("What is the town of birth of the painter that has fun?", PROSE, "Graz"),
        ("What is the country of death of the painter that has fun?", PROSE, "Italy"),
        ("What is the material of the work that has fun?", PROSE, "oil on oak"),
        ("京都人的字是什麼?", "李甲\uff0c字子乙\uff0c京都人。", "子乙"),
    ],
)
def test_a_text_is_taken_where_the_document_says_it(prompt: str, text: str, answer: str) -> None:
    assert text_in(understand(prompt), text) == answer


def test_a_number_is_taken_beside_what_it_is_called() -> None:
    question = understand("In what year was the death of the painter that has fun?")
    assert number_in(question, PROSE, years=True) == 1980
    area = understand("In square kilometres, what is the surface of the state that has fun?")
    assert number_in(area, LABELLED, years=False) == 3020
