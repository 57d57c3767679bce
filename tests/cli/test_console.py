"""What commands say while they work."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.progress import Task

from envgen.cli import console, records


def test_each_part_of_the_work_has_a_pace_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(console.talk, "get_time", lambda: clock[0])
    tasks: list[Task] = []
    monkeypatch.setattr(console, "_tick", lambda task, ended: tasks.append(task))
    with console.progress("working") as update:
        for now, done, total, left in (
            (1.0, 1, 60, None),
            (2.0, 2, 60, 58.0),
            (60.0, 60, 60, 0.0),
            (61.0, 1, 80, None),  # not the 80 min of a pace of 61 s
            (70.0, 10, 80, 70.0),
            (90.0, 0, 80, None),  # it begins anew
            (91.0, 91, 100, None),  # a resumed part: what it had done says nothing of its pace
            (93.0, 93, 100, 7.0),
        ):
            clock[0] = now
            update(done, total, "")
            (task,) = tasks
            assert console.time_left(task) == left, now


def test_no_time_is_left_to_tell_where_nothing_was_done_for_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of five quick parts said "0:00:13 left" for all the minutes of the fifth."""
    clock = [0.0]
    monkeypatch.setattr(console.talk, "get_time", lambda: clock[0])
    tasks: list[Task] = []
    monkeypatch.setattr(console, "_tick", lambda task, ended: tasks.append(task))
    with console.progress("working") as update:
        for now in (10.0, 20.0, 30.0, 40.0):
            clock[0] = now
            update(round(now) // 10, 6, "")
        (task,) = tasks
        for now, left in ((40.0, 20.0), (52.0, 8.0), (60.5, None), (200.0, None)):
            clock[0] = now
            update(4, 6, "still the fifth")
            assert console.time_left(task) == left, now
        clock[0] = 210.0
        update(5, 6, "")
        assert console.time_left(task) == pytest.approx(50.0)


def test_the_pace_is_that_of_late(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand quick steps said that a hundred slow ones take seconds; quick ones follow, too."""
    clock = [0.0]
    monkeypatch.setattr(console.talk, "get_time", lambda: clock[0])
    tasks: list[Task] = []
    monkeypatch.setattr(console, "_tick", lambda task, ended: tasks.append(task))
    done, total = 0, 1_200
    with console.progress("working") as update:
        for steps, seconds, left in ((1_000, 0.1, 20.0), (10, 100.0, 19_000.0), (100, 1.0, 90.0)):
            for _ in range(steps):
                clock[0] += seconds
                done += 1
                update(done, total, "")
            (task,) = tasks
            assert console.time_left(task) == pytest.approx(left), done
        clock[0] += 5.0
        assert console.time_left(task) == pytest.approx(85.0)


def test_lines_come_while_the_first_step_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "FIRST_LINE_S", 0.02)
    monkeypatch.setattr(console, "NEXT_LINES_S", 0.02)
    with console.progress("working") as update:
        waited_for(capsys, r"working: \d+ s\n")
        update(1, 4, "second")
        waited_for(capsys, r"working: 1/4 after \d+ s, second\n")
    output = capsys.readouterr().err
    time.sleep(0.06)
    assert capsys.readouterr().err == "", output


def waited_for(capsys: pytest.CaptureFixture[str], pattern: str) -> None:
    output = ""
    for _ in range(500):
        output += capsys.readouterr().err
        if re.search(pattern, output):
            return
        time.sleep(0.02)
    pytest.fail(f"{pattern!r} was not said, but {output!r}")


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
    monkeypatch.setattr(records, "out", shown)
    records.show_rows(("a", "b"), [(evil, evil)])
    output = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert output.count("[link=file:///x]k[/link] [/b]") == 5
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)
