"""What commands say while they work."""

from __future__ import annotations

import io
import re
import time

import pytest

from envgen.cli import console


@pytest.mark.parametrize(
    ("elapsed", "done", "total", "left"),
    [
        (2.0, 0, 10, ""),
        (2.0, 10, 10, ""),
        (10.0, 1, 5, "about 40 s left"),
        (60.0, 1, 11, "about 10 min left"),
        (3600.0, 1, 4, "about 3 h left"),
        (0.001, 9, 10, "about 1 s left"),
    ],
)
def test_the_time_left_follows_from_what_is_done(
    elapsed: float, done: int, total: int, left: str
) -> None:
    assert console.time_left(elapsed, done, total) == left


def test_each_part_of_the_work_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    part = console._OutputPart()
    for now, done, total, left in (
        (1.0, 1, 60, "about 59 s left"),
        (60.0, 60, 60, ""),
        (61.0, 1, 80, "about 79 s left"),  # not the 80 min of a pace of 61 s
        (70.0, 10, 80, "about 70 s left"),
        (90.0, 0, 9, ""),  # 20 s of loading are none of its pace
        (91.0, 1, 9, "about 8 s left"),
    ):
        clock[0] = now
        part.note(done, total)
        assert part.left() == left


def test_what_a_resumed_run_had_done_says_nothing_of_its_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    part = console._OutputPart()
    clock[0] = 2.0
    part.note(91, 100)
    assert part.left() == "about 18 s left"


def test_lines_come_while_the_first_step_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "FIRST_LINE_S", 0.02)
    monkeypatch.setattr(console, "NEXT_LINES_S", 0.02)
    with console.progress("working") as update:
        waited_for(capsys, r"working: \d+ s\n")
        update(1, 4, "second")
        waited_for(capsys, r"working: 1/4 after \d+ s, about \d+ s left, second\n")
    said = capsys.readouterr().err
    time.sleep(0.06)
    assert capsys.readouterr().err == "", said


def waited_for(capsys: pytest.CaptureFixture[str], pattern: str) -> None:
    said = ""
    for _ in range(500):
        said += capsys.readouterr().err
        if re.search(pattern, said):
            return
        time.sleep(0.02)
    pytest.fail(f"{pattern!r} was not said, but {said!r}")


def test_texts_of_strangers_only_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt could set the terminal's title, fill its clipboard, or hide what stands below it."""
    written = io.StringIO()
    shown = console._SafeConsole(
        file=written, force_terminal=True, width=200, highlight=False, markup=False
    )
    monkeypatch.setattr(console, "out", shown)
    evil = "\x1b]52;c;ZXZpbA==\x1b\\ \x9b2J \x07 \u202etxt\u2066 [link=file:///x]k[/link] [/b]"
    console.say(evil)
    console.prose(evil)
    console.heading(evil)
    rows = console.table("a", "b")
    rows.add_row(evil, evil)
    shown.print(rows)
    said = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert said.count("[link=file:///x]k[/link] [/b]") == 5
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said)
