"""Snippets show the match, and the quick way to find it is the slow one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from envgen.store.corpus_index import _densest, _places, _slow_places, _wanted, snippet, terms


def test_a_snippet_shows_the_match_and_is_the_same_each_time() -> None:
    text = (
        "Nothing here. " * 100 + "The lighthouse keeper met Ada in Porto. " + "Nothing here. " * 100
    )
    shown = snippet(text, "keeper of the lighthouse in Porto")
    assert "lighthouse keeper met Ada in Porto" in shown
    assert shown == snippet(text, "keeper of the lighthouse in Porto")
    assert len(shown) < 260
    poem = "\u5c71" * 500 + "\u5e8a\u524d\u660e\u6708\u5149" + "\u6c34" * 500
    assert "\u660e\u6708" in snippet(poem, "\u660e\u6708")


def slow_start(places: list[Any], length: int) -> int:
    """Where the stretch begins, by looking at all of them."""
    best, found = 0, 0
    for first, (begin, *_) in enumerate(places):
        seen: set[str] = set()
        for _, end, hit in places[first:]:
            if end - begin > length:
                break
            seen |= hit
        if len(seen) > best:
            best, found = len(seen), begin
    return found


WORDS = [
    "a",
    "B",
    "c",
    "d.e",
    "\u017c" * 45,
    "caf\u00e9",
    "\u660e\u6708\u5149",
    "\u674e",
    "--",
    "\n",
    "x" * 30,
]


@given(
    text=st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join),
    query=st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join),
    length=st.integers(1, 60),
)
def test_the_densest_stretch_is_that_of_the_slow_way(text: str, query: str, length: int) -> None:
    wanted = _wanted(query)
    places = _places(text, wanted)
    assert places == _slow_places(text, wanted)
    assert _densest(places, length) == slow_start(places, length)


@given(
    text=st.text("aB1.,' -\u2019s\n\u00e9\u0142\u660e\u6708\u5149\u00df", max_size=40),
    data=st.data(),
)
def test_the_quick_way_finds_what_the_slow_one_does(text: str, data: st.DataObject) -> None:
    asked = data.draw(st.sampled_from(terms(text) or ["none"]))
    wanted = _wanted(f"{asked} {data.draw(st.text('aB1.', max_size=4))}")
    assert _places(text, wanted) == _slow_places(text, wanted)
