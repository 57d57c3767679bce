"""Snippets show the match, and the quick way to find it is the slow one."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from envgen.store.corpus_index import _TERM, _densest, _places, is_cjk, snippet, terms


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


def units(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a text stand, and in Chinese each pair of characters."""
    for match in _TERM.finditer(text):
        start, end = match.span()
        if end - start > 1 and is_cjk(text[start]):
            yield from ((i, i + 2) for i in range(start, end - 1))
        else:
            yield start, end


def slow_start(text: str, wanted: frozenset[str], length: int) -> int:
    """Where the stretch begins, by looking at all of them."""
    places = [
        (start, end, hit)
        for start, end in units(text)
        if (hit := wanted.intersection(terms(text[start:end])))
    ]
    best, found = 0, 0
    for first, (begin, _, _) in enumerate(places):
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
    wanted = frozenset(terms(query))
    assert _densest(_places(text, wanted), length) == slow_start(text, wanted, length)
