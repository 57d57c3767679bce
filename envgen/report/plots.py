"""Plots as inline SVG that follows the page's light or dark colours.

Figures are drawn in stand-in colours, which are then replaced by CSS variables; texts stay texts.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from envgen.core.seeding import derive, rng
from envgen.report.data import Panel, PassRow, TaskPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT, GRID = "#010101", "#020202", "#030303"
SERIES = ("#040401", "#040402", "#040403", "#040404", "#040405", "#040406")
_VARIABLES = {INK: "--ink", FAINT: "--faint", GRID: "--line"} | {
    color: f"--series-{i + 1}" for i, color in enumerate(SERIES)
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "envgen",
    "text.parse_math": False,
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": GRID,
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_MAX_SERIES = len(SERIES)
_MAX_POINTS = 600
_FEW_STEPS = 8
"""Up to so many are marked each: a line through two validations says nothing of the steps between."""
_DECADES = 2.0
"""Positive values that span so many powers of ten are drawn on a logarithmic axis."""
_LEAST_SPAN = 0.1
"""Of the largest value: an axis shows no less, so that the last digits of a constant are not blown up."""


def difficulty_plot(tasks: Sequence[TaskPoint]) -> str:
    """Calls and distinct tools of the gold run, per level."""
    tasks = _some(tasks)

    def draw(axes: Axes) -> None:
        _strip(axes, tasks, [t.gold_calls for t in tasks], SERIES[0], "o", -0.13, "tool calls")
        _strip(
            axes, tasks, [t.distinct_tools for t in tasks], SERIES[1], "s", 0.13, "distinct tools"
        )
        axes.set_ylabel("gold run")
        axes.set_ylim(0, 1.05 * max(2, *(t.gold_calls for t in tasks)))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=3))
        _legend(axes)
        _levels(axes, [t.level for t in tasks])

    return _svg("difficulty", draw, "Tool calls and distinct tools of the gold run, by level")


def density_plot(tasks: Sequence[TaskPoint]) -> str:
    """Density with its interval on a logarithmic axis, per level; empty if none is known."""
    known = [t for t in _some(tasks) if t.density is not None and t.density > 0]
    if not known:
        return ""

    def draw(axes: Axes) -> None:
        ends = []
        for i, task in enumerate(known):
            value = task.density or 0.0
            low = value if not task.density_low else min(task.density_low, value)
            high = value if task.density_high is None else max(task.density_high, value)
            ends += [low, high]
            x = task.level + _jitter(task.task_id)
            axes.plot([x, x], [low, high], color=SERIES[0], linewidth=1.2, alpha=0.55)
            label = "task (bar: its interval)" if i == 0 else None
            axes.plot([x], [value], "o", color=SERIES[0], markersize=5, alpha=0.75, label=label)
        _log_axis(axes, ends)
        axes.set_ylabel("share of answers accepted")
        _legend(axes)
        _levels(axes, [t.level for t in known])

    return _svg("density", draw, "Density of accepted answers, by level")


def pass_plot(rows: Sequence[PassRow], k: int) -> str:
    """pass@k with its interval per policy and level; empty without rows per level."""
    rows = [row for row in rows if row.k == k and row.level is not None]
    if not rows:
        return ""
    policies = list(dict.fromkeys(row.policy for row in rows))[:_MAX_SERIES]

    def draw(axes: Axes) -> None:
        for i, policy in enumerate(policies):
            own = [row for row in rows if row.policy == policy]
            shift = (i - (len(policies) - 1) / 2) * 0.14
            xs = [(row.level or 0) + shift for row in own]
            for x, row in zip(xs, own, strict=True):
                if row.low is not None and row.high is not None:
                    ends = [row.low, row.high]
                    axes.plot([x, x], ends, color=SERIES[i], linewidth=1.6, alpha=0.6)
            ys = [row.estimate for row in own]
            axes.plot(
                xs, ys, "o", color=SERIES[i], markersize=5, label=_label(policy), clip_on=False
            )
        axes.set_ylim(-0.02, 1.02)
        axes.set_ylabel(f"pass@{k}")
        _legend(axes)
        _levels(axes, [row.level or 0 for row in rows])

    return _svg(f"pass{k}", draw, f"pass@{k} by policy and level")


def panel_plot(panel: Panel, number: int) -> str:
    """A panel's curves over the steps; long ones also as a running mean, with the steps faint behind."""

    def draw(axes: Axes) -> None:
        for color, curve in zip(SERIES, panel.curves, strict=False):
            steps = [step for step, _ in curve.points]
            values = [value for _, value in curve.points]
            smooth = running_mean(values)
            if smooth is not values:
                axes.plot(steps, values, color=color, linewidth=0.8, alpha=0.3)
            marker = "o" if len(steps) <= _FEW_STEPS else None
            label = _label(curve.name)
            axes.plot(
                steps, smooth, color=color, marker=marker, markersize=4, label=label, clip_on=False
            )
        if panel.limit is not None:
            axes.axhline(panel.limit, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        values = [v for curve in panel.curves for _, v in curve.points if math.isfinite(v)] or [0.0]
        low, high = min(values), max(values)
        if low > 0 and (panel.log or (not panel.share and high >= 10**_DECADES * low)):
            _log_axis(axes, values)
        else:
            _linear_axis(axes, low, high)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set_xlabel("step")
        if len(panel.curves) > 1:
            _legend(axes, columns=3)

    return _svg(f"panel{number}", draw, panel.title, height=2.3)


def _linear_axis(axes: Axes, low: float, high: float) -> None:
    """Show what was measured, from 0 where that is near, with three ticks or more."""
    least = _LEAST_SPAN * max(abs(low), abs(high)) or 1.0
    if 0 <= low < (high - low) / 2:
        low = 0.0
    wider = max(0.0, least - (high - low)) / 2 + 0.04 * max(high - low, least)
    axes.set_ylim(low - wider, high + wider)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    axes.ticklabel_format(axis="y", useOffset=False)


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis over these positive values, with three to seven powers of ten named."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    while last - first < _DECADES:
        first, last = first - (last >= 0), last + (last < 0)
    axes.set_yscale("log")
    axes.set_ylim(0.8 * 10.0**first, 1.25 * 10.0**last)
    ticks = [10.0**power for power in range(first, last + 1, math.ceil((last - first) / 6))]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(_power))
    axes.minorticks_off()


def _power(value: float, _place: int | None) -> str:
    return f"{value:g}" if 0.001 <= value <= 1000 else f"{value:.0e}".replace("e-0", "e-")


def running_mean(values: list[float]) -> list[float]:
    """Means over a twentieth of the steps, the same list where there are too few to smooth."""
    width = len(values) // 20
    if width < 2:
        return values
    means = []
    for i in range(len(values)):
        part = values[max(0, i - width) : i + width + 1]
        means.append(sum(part) / len(part))
    return means


def _strip(
    axes: Axes,
    tasks: Sequence[TaskPoint],
    values: Sequence[float],
    color: str,
    marker: str,
    shift: float,
    label: str,
) -> None:
    xs = [task.level + shift + 0.4 * _jitter(task.task_id) for task in tasks]
    axes.plot(xs, list(values), marker, color=color, markersize=5, alpha=0.6, label=label)
    for level in sorted({task.level for task in tasks}):
        same = [y for task, y in zip(tasks, values, strict=True) if task.level == level]
        mean = sum(same) / len(same)
        axes.plot(
            [level + shift - 0.1, level + shift + 0.1], [mean, mean], color=color, linewidth=2.4
        )


def _jitter(name: str) -> float:
    return rng(0, "jitter", name).uniform(-0.2, 0.2)


def _legend(axes: Axes, columns: int = 2) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        handletextpad=0.2,
        columnspacing=1.2,
    )


def _some(tasks: Sequence[TaskPoint]) -> Sequence[TaskPoint]:
    """At most ``_MAX_POINTS`` tasks, drawn by their ids, so that a page stays small."""
    if len(tasks) <= _MAX_POINTS:
        return tasks
    return sorted(tasks, key=lambda task: derive(0, "some", task.task_id))[:_MAX_POINTS]


def _levels(axes: Axes, levels: Sequence[int]) -> None:
    low, high = min(levels), max(levels)
    axes.set_xticks(range(low, high + 1))
    axes.set_xlim(low - 0.5, high + 0.5)
    axes.set_xlabel("level")
    axes.grid(False, axis="x")
    axes.minorticks_off()


def _label(text: str) -> str:
    """A legend text: short, of characters the font has, and not hidden by a leading underscore."""
    text = _printable(text).lstrip("_") or "?"
    return text if len(text) <= 22 else text[:21] + "~"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.encode("ascii", "replace").decode())


def _svg(name: str, draw: object, title: str, *, width: float = 4.2, height: float = 2.6) -> str:
    assert callable(draw)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.subplots())
        buffer = io.StringIO()
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", text)
    named = f'role="img" aria-label="{escape(_printable(title))}"'
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', lambda _: named, text, count=1)
