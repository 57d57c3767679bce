"""Rubrics: what they are worth, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envgen.core.errors import ConfigError
from envgen.pipelines.rubric.attacks import attacks, cases
from envgen.pipelines.rubric.rubrics import RubricSet, load_rubric
from envgen.verifiers.rubrics.rubric import Rubric


def item(name: str, weight: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"id": name, "dimension": "correctness", "text": name, "weight": weight, **more}


def rubric(*items: dict[str, Any]) -> dict[str, Any]:
    return {"question": "Why?", "items": list(items)}


ITEMS = (item("a", 3), item("b", 2), item("c", 1), item("d", 2), item("p", 4, pitfall=True))


@pytest.mark.parametrize(
    ("met", "value"),
    [
        ("", 0.0),
        ("a", 3 / 8),
        ("abcd", 1.0),
        ("abcdp", 0.5),
        ("p", 0.0),
        ("ap", 0.0),
        ("adp", 1 / 8),
    ],
)
def test_pitfalls_count_against(met: str, value: float) -> None:
    assert Rubric.model_validate(rubric(*ITEMS)).value(set(met)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (rubric(*ITEMS[:4]), "at least 5"),
        (rubric(*(item(f"i{n}") for n in range(21))), "at most 20"),
        (rubric(*ITEMS, item("b")), "two items have the id 'b'"),
        (rubric(*(item(f"i{n}", pitfall=True) for n in range(5))), "all items are pitfalls"),
        (rubric(*ITEMS, item("late", 0)), "item 'late': items.5.weight"),
        (rubric(*ITEMS, item("late", float("inf"))), "item 'late'"),
        (rubric(*ITEMS, item("late", dimension="beauty")), "item 'late': items.5.dimension"),
        (rubric(*ITEMS, item("late", colour=1)), "item 'late': items.5.colour"),
        (rubric(*ITEMS, item("../x")), "items.5.id"),
        (rubric(*ITEMS, {"id": 3}), "items.5"),
        ({"question": "", "items": list(ITEMS)}, "question"),
        ({"question": "Why?", "items": {"a": 1}}, "items"),
        ([], "valid dictionary"),
        (7, "valid dictionary"),
    ],
)
def test_malformed_rubrics_are_told(tmp_path: Path, value: Any, message: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigError) as told:
        load_rubric(path)
    assert message in str(told.value)
    assert "5 to 20 items" in told.value.hint


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[" * 100_000, b" " * ((1 << 20) + 1)])
def test_files_that_hold_no_rubric(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "r.json").write_bytes(raw)
    with pytest.raises(ConfigError, match=r"r\.json"):
        load_rubric(tmp_path / "r.json")


def test_a_folder_has_a_rubric_for_each_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rubrics in"):
        RubricSet.load(tmp_path)
    (tmp_path / "one.json").write_text(json.dumps(rubric(*ITEMS)))
    (tmp_path / "two.json").write_text(json.dumps({**rubric(*ITEMS), "question": "How?"}))
    named = RubricSet.load(tmp_path)
    named.require(["one", "two"])
    assert (named.of("one").question, named.of("two").question) == ("Why?", "How?")
    with pytest.raises(ConfigError, match="task 'six' and 1 others has no rubric") as told:
        named.require(["one", "six", "ten"])
    assert "six.json" in told.value.hint
    shared = RubricSet.load(tmp_path / "two.json")
    shared.require(["anything"])
    assert shared.of("anything").question == "How?"
    with pytest.raises(ConfigError, match="can't be read"):
        RubricSet.load(tmp_path / "none.json")


def test_the_package_has_questions_and_attacks_on_each() -> None:
    made = list(attacks(cases()))
    kinds = {one.name for one in made}
    assert len(cases()) == 6
    assert len(kinds) >= 12
    assert len(made) == 6 * len(kinds)
    names = [item.id for case in cases() for item in case.rubric.items]
    assert len(set(names)) == len(names)
    assert all(case.nonsense != case.good != case.middling for case in cases())
