"""Relations and tools of the meeting domain, as far as a recipe needs them."""

from __future__ import annotations

from envgen.core.ir import Access, Column, Relation
from envgen.pipelines.general.domains.meetings_recipe import Recipe

_ROOM_FACTS = ("floor", "seats", "screens", "video", "whiteboard")

ROOMS = Relation(
    name="rooms",
    key="name",
    columns=(
        Column(name="name", type="str"),
        Column(name="floor", type="int"),
        Column(name="seats", type="int"),
        Column(name="screens", type="int"),
        Column(name="video", type="bool"),
        Column(name="whiteboard", type="bool"),
    ),
)
PEOPLE = Relation(
    name="people",
    key="name",
    columns=(Column(name="name", type="str"), Column(name="team", type="str")),
)
MEETINGS = Relation(
    name="meetings",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="title", type="str"),
        Column(name="organizer", type="entity:people"),
    ),
)
ATTENDANCE = Relation(
    name="attendance",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="meeting_id", type="entity:meetings"),
        Column(name="person", type="entity:people"),
    ),
)
BUSY = Relation(
    name="busy",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="person", type="entity:people"),
        Column(name="start_min", type="minutes", unit="minutes"),
        Column(name="end_min", type="minutes", unit="minutes"),
    ),
)
BOOKINGS = Relation(
    name="bookings",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="room", type="entity:rooms"),
        Column(name="start_min", type="minutes", unit="minutes"),
        Column(name="end_min", type="minutes", unit="minutes"),
    ),
)


def relations(recipe: Recipe) -> tuple[Relation, ...]:
    """The tables of a task."""
    if recipe.task in ("rank", "filter"):
        return (ROOMS,)
    if recipe.task == "hop":
        return (ROOMS, BOOKINGS)
    if recipe.task == "fixed":
        return (ROOMS, PEOPLE, BUSY, BOOKINGS)
    return (ROOMS, PEOPLE, MEETINGS, ATTENDANCE, BUSY, BOOKINGS)


def access(recipe: Recipe) -> tuple[Access, ...]:
    """The tools of a task."""
    if recipe.task == "rank":
        return (_list("list_rooms", "rooms", "All meeting rooms.", ("name", recipe.attribute)),)
    tools = [
        _list("list_rooms", "rooms", "The names of all meeting rooms.", ("name",)),
        _one("get_room", "rooms", "name", "room", "Facts about a meeting room.", _ROOM_FACTS),
    ]
    if recipe.task != "filter":
        tools.append(_by("list_bookings_by_room", "bookings", "room", "The bookings of a room."))
    if recipe.task in ("fixed", "place"):
        text = "The times at which a person is busy."
        tools.append(_list("list_people", "people", "The names of all people.", ("name",)))
        tools.append(_by("list_busy_by_person", "busy", "person", text))
    if recipe.task == "place":
        text = "Title and organizer of a meeting."
        tools += [
            _list("list_meetings", "meetings", "The ids of all meetings to hold.", ("id",)),
            _one("get_meeting", "meetings", "id", "meeting_id", text, ("title", "organizer")),
            Access(
                tool="list_attendees",
                relation="attendance",
                mode="list",
                description="The names of those who attend a meeting.",
                args={"meeting_id": "meeting_id"},
                returned_columns=("person",),
            ),
        ]
    return tuple(tools)


def _list(tool: str, relation: str, text: str, columns: tuple[str, ...]) -> Access:
    return Access(
        tool=tool, relation=relation, mode="list", description=text, returned_columns=columns
    )


def _by(tool: str, relation: str, column: str, text: str) -> Access:
    return Access(
        tool=tool,
        relation=relation,
        mode="list",
        description=f"{text} They are not sorted by time. Times are minutes after midnight; the end is "
        "not included.",
        args={column: column},
        returned_columns=("id", "start_min", "end_min"),
    )


def _one(
    tool: str, relation: str, key: str, arg: str, text: str, columns: tuple[str, ...]
) -> Access:
    return Access(
        tool=tool,
        relation=relation,
        mode="inverse",
        description=text,
        args={arg: key},
        returned_columns=columns,
    )
