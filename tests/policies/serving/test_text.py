from __future__ import annotations

import random

import pytest

from envgen.policies.serving.text import Characters, StopText


def test_characters_come_whole() -> None:
    text = "caf\u00e9 \u676d\u5dde \U0001f600"
    characters = Characters()
    pieces = [characters.feed(bytes([byte])) for byte in text.encode()]
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


def test_broken_bytes_become_replacements_one_by_one() -> None:
    characters = Characters()
    assert characters.feed(b"a\xffb\0") == "a\ufffdb\ufffd"
    assert characters.feed("\u676d".encode()[:2]) == ""
    assert characters.feed(b"", final=True) == "\ufffd\ufffd"


@pytest.mark.parametrize("seed", range(50))
def test_what_is_sent_ends_before_the_first_stop(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice("ab") for _ in range(40))
    stops = ["".join(rng.choice("ab") for _ in range(rng.randint(2, 6))) for _ in range(2)]
    reader = StopText(stops)
    sent, at = "", 0
    while at < len(text) and not reader.stopped:
        size = rng.randint(1, 4)
        sent += reader.feed(text[at : at + size])
        at += size
    if not reader.stopped:
        sent += reader.settle(reader.held)
    # Fed in pieces: the earliest stop among those that were complete when the first one was.
    ends = [text.find(stop) for stop in stops if stop in text]
    assert reader.stopped == bool(ends)
    if ends:
        assert text.startswith(sent)
        assert not any(stop in sent for stop in stops)
        assert any(text[len(sent) :].startswith(stop) for stop in stops)
    else:
        assert sent == text


def test_nothing_comes_after_a_stop() -> None:
    reader = StopText(["end"])
    assert reader.feed("the en") == "the "
    assert reader.feed("d of it") == ""
    assert reader.stopped
    assert reader.feed("more") == reader.settle("more") == ""
