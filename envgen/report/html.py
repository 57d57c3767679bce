"""Render a report: one HTML file without scripts or outside parts.

Everything shown may come from a model or a stranger: the template escapes all of it, control and
direction-changing characters are made visible, and a content security policy forbids scripts.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from envgen.core.errors import StoreError
from envgen.core.types import Trajectory
from envgen.report.data import Panel, PassRow, ReportData
from envgen.report.plots import density_plot, difficulty_plot, panel_plot, pass_plot
from envgen.report.transcript import steps_of

OPEN_PANELS = 6
"""Of a run's curves are seen at once; the others are folded."""


class PassCell(NamedTuple):
    """One estimate in the table."""

    text: str
    interval: str
    low: float
    width: float
    at: float


class PassLine(NamedTuple):
    """One row of the pass@k table."""

    policy: str
    level: str
    num_tasks: int
    n: int
    cells: list[PassCell | None]


def render_report(data: ReportData) -> str:
    """The whole page for ``data``; the same data gives the same page."""
    ks = sorted({row.k for row in data.pass_at})
    plots = []
    if data.tasks:
        plots = [difficulty_plot(data.tasks), density_plot(data.tasks)]
    view: dict[str, Any] = {
        "data": data,
        "widest": max([1, *(stage.num_in for stage in data.funnel)]),
        "plots": [Markup(plot) for plot in plots if plot],
        "pass_plots": [
            Markup(p)
            for p in (pass_plot(data.pass_at, k) for k in sorted({*ks[:1], *ks[-1:]}))
            if p
        ],
        "curve_groups": _curve_groups(data),
        "ks": ks,
        "pass_lines": (lines := _pass_lines(data.pass_at, ks)),
        "pass_totals": [line for line in lines if line.level == "all"] or lines,
        "open_panels": OPEN_PANELS,
        "total_s": sum(time.seconds for time in data.timings),
        "longest_s": max([1e-9, *(time.seconds for time in data.timings)]),
        "transcripts": [(one, steps_of(one.episode)) for one in data.played],
        "kill_rates": _kill_rates(data),
    }
    return _templates().get_template("report.html.j2").render(view)


def render_episodes(title: str, lead: str, episodes: Sequence[Trajectory]) -> str:
    """A page of conversations, turn by turn, with an index where there are several."""
    view = {
        "title": title,
        "lead": lead,
        "episodes": [(one, steps_of(one)) for one in episodes],
    }
    return _templates().get_template("episodes.html.j2").render(view)


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(number=_number, seconds=_seconds, percent=_percent)
    return environment


def write_report(path: str | Path, data: ReportData) -> Path:
    """Write the page for ``data`` to ``path``, replacing what is there; returns the path.

    Raises:
        StoreError: if it can't be written.
    """
    return write_page(path, render_report(data))


def write_page(path: str | Path, text: str) -> Path:
    """Write a page, replacing what is there; returns the path.

    Raises:
        StoreError: if it can't be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StoreError(
            f"can't write the page {str(path)!r}: {error.strerror}",
            "choose another file",
        ) from error
    return path


def _curve_groups(data: ReportData) -> list[tuple[str, list[tuple[Panel, Markup]]]]:
    """(title, panels and their plots) of each group that has any; plots are numbered through."""
    numbers = count()
    return [
        (group.title, [(panel, Markup(panel_plot(panel, next(numbers)))) for panel in group.panels])
        for group in data.curves
        if group.panels
    ]


def _pass_lines(rows: tuple[PassRow, ...], ks: list[int]) -> list[PassLine]:
    groups: dict[tuple[str, int | None], dict[int, PassRow]] = {}
    for row in rows:
        groups.setdefault((row.policy, row.level), {})[row.k] = row
    order = list(dict.fromkeys(row.policy for row in rows))
    keys = sorted(groups, key=lambda key: (order.index(key[0]), key[1] is None, key[1] or 0))
    lines: list[PassLine] = []
    for policy, level in keys:
        found = groups[policy, level]
        first = next(iter(found.values()))
        cells = [_cell(found[k]) if k in found else None for k in ks]
        name = "all" if level is None else str(level)
        lines.append(PassLine(policy, name, first.num_tasks, first.n, cells))
    return lines


def _cell(row: PassRow) -> PassCell:
    if row.low is None or row.high is None:
        low = high = row.estimate
        interval = "one database"
    else:
        low, high = max(0.0, min(1.0, row.low)), max(0.0, min(1.0, row.high))
        interval = f"{_share(row.low)} to {_share(row.high)}"
    return PassCell(
        text=_share(row.estimate),
        interval=interval,
        low=100 * low,
        width=max(1.0, 100 * (high - low)),
        at=100 * max(0.0, min(1.0, row.estimate)),
    )


def _share(value: float) -> str:
    if 0 < value < 0.0005:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.3f}"


def _kill_rates(data: ReportData) -> str:
    rates = [task.kill_rate for task in data.tasks if task.kill_rate is not None]
    if not rates:
        return ""
    mean = sum(rates) / len(rates)
    return (
        f"Mutants of the verifiers killed by the probes: {_percent(mean)} on average, "
        f"{_percent(min(rates))} in the worst of {len(rates)} tasks."
    )


def _finalize(value: object) -> object:
    return _visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _visible(text: str) -> str:
    """Text with control, format and private characters spelled out, so that none acts on the page."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Cn")
        else f"\N{WHITE SQUARE}U+{ord(c):04X}"
        for c in text
    )  # fmt: skip


def _number(value: float) -> str:
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    if value >= 60:
        return f"{int(value // 60)} min {value % 60:.0f} s"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %".replace(".0 %", " %")
