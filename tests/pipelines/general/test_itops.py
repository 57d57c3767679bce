"""The page of IT operations: what its rows promise."""

from __future__ import annotations

from random import Random

import pytest

from envgen.pipelines.general.authoring.draws import DRAWS, Drawing
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.semantics.tables import Tables


def rows(level: int) -> Tables:
    """The rows of one task."""
    rehearsed = load_tasks("itops").rehearsed()
    return next(task for at, task in enumerate(rehearsed, 1) if at == level).tables


def reached(start: str, links: list[tuple[str, str]]) -> set[str]:
    drawing = Drawing(rng=Random(0), tables={}, known={})
    sources, targets = [a for a, _ in links], [b for _, b in links]
    return set(DRAWS["reached"].run(drawing, "", start, sources, targets))


@pytest.mark.parametrize(
    ("start", "found"), [("a", {"b", "c", "d"}), ("d", set()), ("b", {"c", "b", "d"}), ("x", set())]
)
def test_reached_follows_links_over_any_number_of_steps_and_ends_on_circles(
    start: str, found: set[str]
) -> None:
    assert reached(start, [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]) == found


def test_what_alerts_is_all_that_depends_on_two_services() -> None:
    tables = rows(4)
    links = [(str(row["service"]), str(row["needs"])) for row in tables["links"].values()]
    watched = {str(row["service"]): row["status"] for row in tables["monitors"].values()}
    down = {service for service, status in watched.items() if status == "alerting"}
    struck = {
        service: {s for s in watched if s == service or service in reached(s, links)}
        for service in tables["services"]
    }
    pairs = [(a, b) for a in struck for b in struck if a < b and struck[a] | struck[b] == down]
    assert pairs
    assert not any(found == down for found in struck.values())  # one cause never explains all
