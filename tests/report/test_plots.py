"""Axes show what was measured."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from envgen.report.data import Curve, Panel, TaskPoint
from envgen.report.plots import density_plot, difficulty_plot, panel_plot


def ticks_of(svg: str) -> list[str]:
    """The texts at the y axis, upwards."""
    found = []
    for group in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        if re.fullmatch(r"\w+-ytick_\d+", group.get("id", "")):
            found.append("".join(group.itertext()).strip().replace("\N{MINUS SIGN}", "-"))
    return found


def drawn(*values: float, share: bool = False, log: bool = False) -> list[float]:
    curve = Curve(name="x", points=tuple(enumerate(values)))
    panel = Panel(title="x", curves=(curve,), share=share, log=log, limit=0.5)
    return [float(text) for text in ticks_of(panel_plot(panel, 0))]


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ((0.97, 0.98, 0.99), 0.9, 1.05),
        ((61.0, 62.5, 60.2), 55, 68),
        ((500.0, 500.0), 400, 600),
        ((0.0, 0.0), -1, 1),
        ((-3.0, 2.0), -5, 5),
        ((0.0, 1e-9), 0, 2),  # times 1e-9, which stands at the corner
        ((0.1, 0.9), 0, 1.05),
        ((2.0, math.nan, 3.0, math.inf), 0, 4),
        ((math.nan,), -1, 1),
        ((1.2e6, 1.3e6), 1, 1.5),
    ],
)
def test_an_axis_has_three_ticks_near_what_was_measured(
    values: tuple[float, ...], low: float, high: float
) -> None:
    for share in (False, True):
        ticks = drawn(*values, share=share)
        assert len(ticks) >= 3
        assert low <= ticks[0] < ticks[-1] <= high


def test_values_over_decades_get_a_logarithmic_axis() -> None:
    assert drawn(5.0, 0.3, 0.004) == [0.001, 0.01, 0.1, 1, 10]
    assert drawn(2e-4, 3e-4, log=True) == [1e-4, 1e-3, 1e-2]
    assert len(drawn(1.0, 1e-30)) in range(3, 8)
    assert drawn(0.01, 1.0, share=True)[0] == 0  # shares stay shares


def test_difficulty_and_density_have_three_ticks_for_one_task() -> None:
    task = TaskPoint(task_id="a", level=1, density=0.3, density_low=0.25, density_high=0.4)
    assert ticks_of(density_plot([task])) == ["0.01", "0.1", "1"]
    assert ticks_of(difficulty_plot([task])) == ["0", "1", "2"]


def test_a_title_is_text_in_the_plot() -> None:
    title = '"><script>a\\1&\x00'
    svg = panel_plot(Panel(title=title, curves=(Curve(name="x", points=((1, 1.0),)),)), 0)
    assert ET.fromstring(svg).get("aria-label") == '"><script>a\\1&?'
