from __future__ import annotations

import time
from pathlib import Path

import pytest

from envgen.pipelines.stages import Stages


def test_stages_are_timed_and_told(tmp_path: Path) -> None:
    lines: list[tuple[int, int, str]] = []
    stages = Stages(tmp_path / "stages.json", 2, lambda *update: lines.append(update))
    with stages.stage("one") as say:
        say(3, 4, "half")
        time.sleep(0.05)
    with stages.stage("two"):
        pass
    assert lines == [(0, 2, "one: 0/1 "), (0, 2, "one: 3/4 half"), (1, 2, "two: 0/1 ")]
    assert stages.seconds["one"] >= 0.05 > stages.seconds["two"]


def test_a_finished_stage_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "stages.json"
    with Stages(path, 1).stage("one"):
        time.sleep(0.05)
    before = Stages(path, 1).seconds
    again = Stages(path, 1)
    with again.stage("one"):  # found done
        time.sleep(0.02)
    assert again.seconds == before == Stages(path, 1).seconds


def test_a_stopped_stage_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "stages.json"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            stop_within(Stages(path, 1))
    last = Stages(path, 1)
    with last.stage("one"):
        time.sleep(0.03)
    assert last.seconds["one"] >= 0.09


def test_the_end_of_a_stage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "stages.json"
    events: list[tuple[str, float, bool]] = []
    first = Stages(path, 2, ended=lambda *end: events.append(end))
    with first.stage("second by name"):
        time.sleep(0.02)
    with pytest.raises(KeyboardInterrupt), first.stage("first by name"):
        raise KeyboardInterrupt
    again = Stages(path, 2, ended=lambda *end: events.append(end))
    assert list(again.seconds) == ["second by name", "first by name"]  # as they were made
    for name in again.seconds:
        with again.stage(name):
            pass
    assert [(name, before) for name, _, before in events] == [
        ("second by name", False),
        ("second by name", True),
        ("first by name", False),
    ]
    assert events[0][1] == events[1][1] >= 0.02  # found done, it keeps its seconds


def stop_within(stages: Stages) -> None:
    with stages.stage("one"):
        time.sleep(0.03)
        raise KeyboardInterrupt
