"""Rows of the meeting domain: drawn without looking at the question, so that no row is a planted one."""

from __future__ import annotations

from random import Random

from envgen.pipelines.general.domains.meetings_recipe import CLOSES, OPENS, Recipe
from envgen.pipelines.general.tables import Row, Tables

_ROOM_NAMES = """
Alcove Almond Anchor Arbour Atrium Balcony Basil Bay Beacon Belfry Bramble Brook Canopy Cabin Chestnut
Clover Compass Corner Cove Current Daybreak Delta Dove Drift Fable Ferry Foxglove Gable Galley Glade
Grotto Gull Harvest Hazel Heath Hollow Horizon Island Keystone Lagoon Lantern Ledge Loft Maple Marina
Meadow Mill Mosaic Nook Oak Orchard Osprey Otter Parlour Pebble Pier Plover Prairie Quarry Ridge Rowan
Saffron Sail Shore Sparrow Spruce Summit Tern Thicket Tide Tower Valley Vista Walnut Willow Workshop
""".split()
_GIVEN = """
Abel Aino Alina Aron Astrid Basil Berit Bodo Cato Celia Clemens Dagny Dana Elio Elsa Enzo Esra Faye
Felix Flora Gian Hana Hugo Ida Ilya Iris Ivo Jana Joris Juno Kira Lars Lena Levi Lotte Luca Maja Mats
Mira Moritz Nika Nils Nora Olaf Pia Ravi Rike Romy Samir Sina Sofie Sven Tamar Theo Tuva Uma Viggo Zoe
""".split()
_FAMILY = """
Abendroth Achterberg Amsel Baltus Benning Brisco Caspar Corvin Dalgaard Demir Dorn Eklund Ferrow Fink
Gallo Grau Hallam Hartwig Hook Isler Jessen Kaplan Kranz Lindow Loewen Marlow Mohr Nadar Norling Okafor
Olsson Pardo Petri Quist Rasmus Reuter Sommer Stave Tanaka Thorne Ulrich Vance Vidal Wolter Yilmaz Zander
""".split()
_TEAMS = ("design", "engineering", "finance", "legal", "marketing", "operations", "people", "sales")
_SUBJECTS = (
    "Budget", "Hiring", "Launch", "Roadmap", "Security", "Supplier", "Support", "Training", "Website",
    "Workplace",
)  # fmt: skip
_FORMS = ("briefing", "check-in", "decision", "planning", "retrospective", "review", "workshop")
_DAY = range(OPENS, CLOSES, 30)


def draw_tables(recipe: Recipe, rng: Random) -> Tables:
    """Rows for one task of ``recipe``; sizes depend on the recipe alone (rank draws 2 to 4 rooms)."""
    if recipe.task == "rank":
        return {"rooms": _rooms(rng, rng.randint(2, 4), spread=9)}
    if recipe.task == "filter":
        return {"rooms": _rooms(rng, rng.randint(8, 12), spread=12)}
    rooms = _rooms(rng, 6, spread=4)
    if recipe.task == "place":
        for row in rooms.values():
            row["seats"] = rng.randint(2, 6)
    bookings = _intervals(rng, "K", "room", list(rooms), (3, 5), (30, 60, 60, 90, 120))
    tables: Tables = {"rooms": rooms, "bookings": bookings}
    if recipe.task == "hop":
        return tables
    people = _people(rng, _num_people(recipe))
    busy = _intervals(rng, "B", "person", list(people), (1, 2), (30, 30, 60, 60, 90))
    tables |= {"people": people, "busy": busy}
    if recipe.task == "place":
        meetings = _meetings(rng, len(recipe.lengths) + 3, list(people))
        tables |= {"meetings": meetings, "attendance": _attendance(rng, meetings, list(people))}
    return tables


def _num_people(recipe: Recipe) -> int:
    if recipe.task == "fixed":
        return 4
    return (
        (5 + 4 * len(recipe.lengths))
        if recipe.coupling == "rooms_once"
        else 9 + len(recipe.lengths)
    )


def _ids(rng: Random, prefix: str, digits: int, count: int) -> list[str]:
    numbers = rng.sample(range(10 ** (digits - 1), 10**digits), count)
    return [f"{prefix}-{number}" for number in numbers]


def _rooms(rng: Random, count: int, *, spread: int) -> dict[str, Row]:
    """Rooms on ``spread`` floors; all three numbers are unique where ``spread`` is not below ``count``.

    Up to nine rooms have numbers of one digit.
    """
    if spread >= count:
        floors = rng.sample(range(1, spread + 1), count)
    else:
        floors = [rng.randint(1, spread) for _ in range(count)]
    seats = rng.sample(range(2, 5 + count), count)
    screens = rng.sample(range(max(10, count + 1)), count)
    rows: dict[str, Row] = {}
    for i, name in enumerate(rng.sample(_ROOM_NAMES, count)):
        rows[name] = {
            "name": name,
            "floor": floors[i],
            "seats": seats[i],
            "screens": screens[i],
            "video": rng.random() < 0.5,
            "whiteboard": rng.random() < 0.5,
        }
    return rows


def _people(rng: Random, count: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    pairs = zip(rng.sample(_GIVEN, count), rng.sample(_FAMILY, count), strict=True)
    for given, family in pairs:
        name = f"{given} {family}"
        rows[name] = {"name": name, "team": rng.choice(_TEAMS)}
    return rows


def _meetings(rng: Random, count: int, people: list[str]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    titles = rng.sample([f"{a} {b}" for a in _SUBJECTS for b in _FORMS], count)
    for key, title in zip(_ids(rng, "M", 3, count), titles, strict=True):
        rows[key] = {"id": key, "title": title, "organizer": rng.choice(people)}
    return rows


def _attendance(rng: Random, meetings: dict[str, Row], people: list[str]) -> dict[str, Row]:
    pairs = []
    for meeting, row in meetings.items():
        others = [name for name in people if name != row["organizer"]]
        guests = rng.sample(others, rng.randint(2, 3))
        pairs += [(meeting, name) for name in (str(row["organizer"]), *guests)]
    rng.shuffle(pairs)
    rows: dict[str, Row] = {}
    for key, (meeting, name) in zip(_ids(rng, "A", 4, len(pairs)), pairs, strict=True):
        rows[key] = {"id": key, "meeting_id": meeting, "person": name}
    return rows


def _intervals(
    rng: Random,
    prefix: str,
    column: str,
    owners: list[str],
    each: tuple[int, int],
    lengths: tuple[int, ...],
) -> dict[str, Row]:
    """For each owner a few intervals of the day that don't overlap."""
    found: list[tuple[str, int, int]] = []
    for owner in owners:
        taken: list[tuple[int, int]] = []
        wanted = rng.randint(*each)
        for _ in range(4 * wanted):
            start, length = rng.choice(_DAY), rng.choice(lengths)
            end = start + length
            if end <= CLOSES and all(end <= s or start >= e for s, e in taken):
                taken.append((start, end))
            if len(taken) == wanted:
                break
        found += [(owner, start, end) for start, end in taken]
    rng.shuffle(found)
    rows: dict[str, Row] = {}
    for key, (owner, start, end) in zip(_ids(rng, prefix, 4, len(found)), found, strict=True):
        rows[key] = {"id": key, column: owner, "start_min": start, "end_min": end}
    return rows
