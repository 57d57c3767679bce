"""What numbers and intervals a text may be read as, by hand."""

from __future__ import annotations

import pytest

from envgen.pipelines.search.readings import Statements, readings, saying
from envgen.store.corpus import CorpusDocument, Fact


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 January 1993", [(1, 1), (1993, 1993)]),
        ("1,234.5 km", [(1234.5, 1234.5)]),
        ("3 million", [(3e6, 3e6)]),
        ("about 2.5 billion", [(2.5e9, 2.5e9)]),
        ("1990-95", [(1990, 1995)]),
        ("1990 to 1995", [(1990, 1995)]),
        ("the 1960s", [(1960, 1969)]),
        ("the 1800s", [(1800, 1899)]),
        ("the 19th century", [(1800, 1900)]),
        ("late nineteenth century", [(1800, 1900)]),
        ("221 B.C.", [(-221, -221)]),
        ("the first century B.C.", [(-100, 0)]),
        ("\u8a69\u5341\u4e09\u9996", [(13, 13)]),
        ("\u4e00\u5343\u4e8c\u767e", [(1200, 1200)]),
        ("\u4e00\u4e5d\u516d\u3007", [(1960, 1960)]),
        ("B52, x9 and no number", []),
    ],
)
def test_numbers_and_intervals_of_a_text(text: str, wanted: list[tuple[float, float]]) -> None:
    assert [(one.low, one.high) for one in readings(text)] == wanted


def test_a_day_is_found_in_its_other_forms() -> None:
    for text in ("on 21 june", "june 21", "20-21 june", "21st june"):
        assert saying("21 June").search(text)
    for text in ("on 121 june", "june 211", "21 july"):
        assert not saying("21 June").search(text)


def test_where_an_attribute_stands_is_learned_from_its_facts() -> None:
    """Lines by their labels, sentences by the words before; and nothing that a fact covers."""

    def document(name: str, text: str, value: str = "", title: str = "") -> CorpusDocument:
        start = text.find(value)
        fact = (
            Fact(attribute="founding_year", value=int(value), start=start, end=start + 4)
            if value
            else None
        )
        return CorpusDocument.model_validate(
            {
                "id": name,
                "class": "town",
                "title": title or name,
                "text": text,
                "facts": [fact] if fact else [],
            }
        )

    said = Statements(
        [
            document("a", "Founded: 1201\nPlace: by a river", "1201"),
            document("b", "Founded: 1305 (by monks)\nPlace: on a hill since 1400", "1305"),
            document("c", "Founded: 1100, or 1150\nPlace: burnt in 1500", "1100"),
            document("d", "Founded: in the 1240s\nPlace: moved in 1600"),
            document("e", "Place: the founding of 1199 is a legend. It was sold in 1700."),
            document("f", "Place: nobody knows", title="F (since 1310)"),
        ]
    )
    found = [(row, one.low, one.high) for row, one in said.numbers("founding_year", years=True)]
    assert found == [(2, 1150, 1150), (3, 1240, 1249), (4, 1199, 1199), (5, 1310, 1310)]
