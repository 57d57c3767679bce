from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import episode, report_data, trained_data

from envgen.core.errors import StoreError
from envgen.core.types import Message, Score, StopReason, ToolCall, TrajectoryError
from envgen.report.data import FunnelStage, PassRow, Played, ReportData, TaskPoint
from envgen.report.html import render_report, write_report

EVIL = (
    """</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>"'`"""
    "{{7*7}}{% raw %}&lt;\x00\u202e$x^$"
)
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects tags and attributes, and checks that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_shows_every_part() -> None:
    text = render_report(report_data())
    page = Page(text)
    assert not page.open
    words = " ".join(" ".join(page.words).split())
    for part in (
        "Quickstart: trip planning",
        "bubblewrap 0.8.0",
        "near-miss accepted",
        "pass@100",
        "noisy-gold:0.1",
        "Kept and dropped per level",
        "write_prefixes",
        "31.4 s",
        "First I need the hotels in Hangzhou",
        "Grand Canal Inn",
        "Passed, score 1.",
        "$ envgen filter ds/",
        "Two tasks ran without isolation",
    ):
        assert part in words, part
    assert page.tags.count("svg") == 4


def test_the_result_comes_first_with_its_ceiling_and_a_task_before_and_after() -> None:
    words = " ".join(" ".join(Page(render_report(trained_data())).words).split())
    parts = (
        "GRPO takes a policy that was taught a bias from 0.61 to 0.96",
        "ceiling: cold start from right answers alone 0.969 0.950..0.980",
        "after - before +0.351 +0.310..+0.400",
        "The bias is planted",
        "One task, before and after",
        "Before: the cold start",
        "Failed, score 0.",
        "After GRPO",
        "Passed, score 1.",
        "What becomes of a task",
        "12,000 variants of them",
        "Two builds of the database give the same bytes.",
    )
    places = [words.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)
    assert words.count("Plan a three-day trip") == 1  # one prompt over both sides


def test_the_page_needs_nothing_from_outside_and_no_script() -> None:
    text = render_report(report_data())
    page = Page(text)
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "xlink:href"):
            assert (value or "").startswith("#"), value
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_hostile_text_stays_text() -> None:
    data = report_data()
    message = Message(
        role="assistant",
        content=EVIL,
        reasoning=EVIL,
        tool_calls=(
            ToolCall(id="9", name=EVIL, arguments={EVIL: EVIL, "deep": '{"x": "<script>"}'}),
            ToolCall(id="10", name="x", arguments=None, arguments_text=EVIL),
        ),
    )
    bad = episode().model_copy(
        update={
            "policy": EVIL,
            "messages": (message, Message(role="tool", tool_call_id="9", content=EVIL)),
            "score": Score(value=0, passed=False, reasons=(EVIL,)),
        }
    )
    one = PassRow(policy="x", level=1, k=1, estimate=0.5, low=0, high=1, n=1, num_tasks=1)
    data = data.model_copy(
        update={
            "title": EVIL,
            "summary": EVIL,
            "facts": {EVIL: EVIL},
            "commands": (EVIL,),
            "counts": {EVIL: 1},
            "notes": (EVIL,),
            "filter_rule": EVIL,
            "funnel": (FunnelStage(name=EVIL, num_in=2, num_out=1, reasons={EVIL: 1}),),
            "pass_at": (
                one.model_copy(update={"policy": EVIL}),
                one.model_copy(update={"policy": "_" + "\u6f22" * 90}),
            ),
            "tasks": (TaskPoint(task_id=EVIL, level=1),),
            "played": (Played(title=EVIL, episode=bad),),
        }
    )
    text = render_report(data)
    clean = Page(render_report(report_data()))
    page = Page(text)
    assert not page.open
    assert set(page.tags) <= set(clean.tags)
    assert {name for name, _value in page.attributes} <= {name for name, _value in clean.attributes}
    assert "49" not in "".join(page.words).replace("{{7*7}}", "")
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "U+202E" in text


def test_plots_are_well_formed_with_ids_of_their_own() -> None:
    text = render_report(report_data())
    plots = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(plots) == 4
    for plot in plots:
        ET.fromstring(plot)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert not re.findall(r"#0[0-9]0[0-9]0[0-9]", text), "a stand-in colour is left"


def test_a_page_of_many_tasks_stays_small() -> None:
    tasks = [
        TaskPoint(task_id=f"t{i}", level=1 + i % 10, density=10 ** -(i % 7), gold_calls=i % 30)
        for i in range(20_000)
    ]
    assert len(render_report(ReportData(title="x", tasks=tuple(tasks)))) < 1_000_000


def test_an_empty_report_and_odd_episodes_render() -> None:
    assert "Nothing here" in render_report(ReportData(title="Nothing here"))
    for changes in (
        {"score": None, "stop": StopReason.TURN_LIMIT},
        {"score": None, "error": TrajectoryError(kind="EnvError", text="worker <died>")},
        {"messages": ()},
        {"messages": (Message(role="tool", content="[" * 5000),)},
        {"messages": (Message(role="user", content="x" * 100_000),)},
    ):
        changed = episode().model_copy(update=changes)
        Page(render_report(ReportData(title="x", played=(Played(title="", episode=changed),))))
    zero = TaskPoint(task_id="a", level=3, density=0.0)
    Page(render_report(ReportData(title="x", tasks=(zero,))))


def test_same_data_same_page() -> None:
    assert render_report(report_data()) == render_report(report_data())


def test_writing_replaces_and_reports_errors(tmp_path: Path) -> None:
    path = write_report(tmp_path / "a" / "report.html", report_data())
    write_report(path, ReportData(title="second"))
    assert "second" in path.read_text()
    assert [x.name for x in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't write the page"):
        write_report(tmp_path / "file" / "report.html", ReportData(title="x"))


@pytest.mark.browser
def test_a_browser_shows_it_without_a_complaint(tmp_path: Path, chromium: str) -> None:
    path = write_report(tmp_path / "report.html", report_data())
    result = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={tmp_path / 'page.png'}",
            "--window-size=1200,3000",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert "CONSOLE" not in result.stderr, result.stderr
