"""Categories: those of the package differ and are whole, draws are spread, bad files are named."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from envgen.core.errors import ConfigError
from envgen.pipelines.author import taxonomy
from envgen.pipelines.author.taxonomy import Category, categories, load_categories, sample

ONE = {"id": "tea-tasting", "name": "judging teas at a tasting", "area": "food"}


def test_all_categories_of_the_package_are_whole_and_differ() -> None:
    found = categories()
    assert len(found) >= 330
    assert len({one.id for one in found}) == len({one.name for one in found}) == len(found)
    for one in found:
        assert 2 <= len(one.name.split()) <= 8, one.id
        for text in (one.about, one.state, one.hard):
            assert text.isascii(), one.id
            assert len(text.split()) >= 6, one.id
            assert text.find(".") == len(text) - 1, one.id
    assert len(sample(found, len(found), seed=0)) == len(found), "near duplicates"
    areas = Counter(one.area for one in found)
    assert 25 <= len(areas) <= 35
    assert min(areas.values()) >= 5


def test_a_draw_is_reproducible_and_spread_over_areas() -> None:
    drawn = sample(categories(), 80, seed=3)
    assert drawn == sample(categories(), 80, seed=3)
    assert drawn != sample(categories(), 80, seed=4)
    assert drawn[:20] == sample(categories(), 20, seed=3)
    areas = Counter(one.area for one in drawn)
    assert set(areas.values()) == {2, 3}


def test_near_duplicates_are_drawn_once() -> None:
    names = ["Planning a travel itinerary", "travel itinerary planning", "Sorting old coins"]
    about = "Find the bus that a rider of line nine took."
    found = [Category(id=f"c-{i}", name=name) for i, name in enumerate(names)]
    found += [Category(id=x, name=f"{x} {x}{x}", about=about) for x in ("x", "y")]
    for seed in range(9):
        drawn = sample(found, 3, seed)
        assert not any(taxonomy.near_duplicates(a, b) for a, b in combinations(drawn, 2))
    with pytest.raises(ConfigError, match="only 3 of 5 differ enough"):
        sample(found, 4, 0)
    with pytest.raises(ConfigError, match="0 categories can't be drawn"):
        sample(found, 0, 0)


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeff# mine\n\nBooking  a boat\r\n書道\nbooking: a boat\n")
    read = load_categories(tmp_path / "a.txt")
    assert [one.id for one in read] == ["booking-a-boat", "category-4", "booking-a-boat-5"]
    assert read[0].name == "Booking a boat"
    (tmp_path / "a.jsonl").write_text(json.dumps(ONE | {"about": "Judge\u2028teas."}) + "\n\n")
    assert load_categories(tmp_path / "a.jsonl")[0].area == "food"


BAD = [
    ("a.jsonl", json.dumps(ONE) + "\n{", "line 2: .*JSON"),
    ("a.jsonl", json.dumps(ONE | {"id": "../x"}), "line 1: id: "),
    ("a.jsonl", json.dumps(ONE | {"colour": 1}), "line 1: colour: "),
    ("a.jsonl", "\n" + f"{json.dumps(ONE)}\n" * 2, "line 3: .* repeats line 2"),
    ("a.txt", "a b\n" + "x" * 201, "line 2: name: .*200 characters"),
    ("a.txt", "a b\na \x07 b", "line 2: name: "),
    ("a.txt", "Tea time\ntea TIME", "line 2: 'tea TIME' repeats line 1"),
    ("a.txt", "# nothing\n\n", "holds no category"),
    ("a.txt", "x" * (taxonomy.MAX_BYTES + 1), "larger than 4 MiB"),
    ("a.txt", "\n".join(map(str, range(taxonomy.MAX_CATEGORIES + 1))), "more than"),
    ("a.txt", "caf\udce9", "can't be read"),
    ("a.csv", "x", "no file of categories"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD, ids=[one[2] for one in BAD])
def test_bad_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"can't be read|no file"):
        load_categories(tmp_path / name)
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=message):
        load_categories(tmp_path / name)
