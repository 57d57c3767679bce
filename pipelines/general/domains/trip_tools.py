"""The tools of the trip domain, by the names that DeepSeek-V3.2's trip example gives them."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.ir import Access
from envgen.pipelines.general.domains.trip_rows import KIND_OF

_INFO_COLUMNS = {
    "hotels": ("price", "rating"),
    "restaurants": ("price", "rating", "cuisine"),
    "attractions": ("ticket", "rating"),
    "cities": ("population", "latitude", "longitude"),
}

ALL_CITIES = Access(
    tool="get_all_cities",
    relation="cities",
    mode="list",
    description="The names of all cities.",
    returned_columns=("name",),
)
INFOS_BY_CITY = Access(
    tool="get_infos_by_city",
    relation="cities",
    mode="info",
    description="Facts about one city: the fields named in info_keywords.",
    args={"city": "name"},
    projection="info_keywords",
    returned_columns=_INFO_COLUMNS["cities"],
)
MOVING: tuple[Access, ...] = (
    Access(
        tool="get_city_transport",
        relation="city_transport",
        mode="list",
        description="The ways to get around within a city and what a ride costs.",
        args={"city": "city"},
        returned_columns=("mode", "fare"),
    ),
    Access(
        tool="get_inter_city_transport",
        relation="inter_city_transport",
        mode="list",
        description="All connections from one city to another, with travel time and fare.",
        args={"from_city": "from_city", "to_city": "to_city"},
        returned_columns=("mode", "minutes", "fare"),
    ),
    Access(
        tool="get_weather_by_city_date",
        relation="weather",
        mode="list",
        description="The weather forecast for a city on a date.",
        args={"city": "city", "date": "date"},
        returned_columns=("condition", "high", "low"),
    ),
)
"""Getting around and the weather."""


def list_tool(relation: str, columns: Sequence[str] = ("name",)) -> Access:
    """``get_all_<relation>_by_city``: bare names, or objects with ``columns``."""
    what = "The names of all" if tuple(columns) == ("name",) else "All"
    return Access(
        tool=f"get_all_{relation}_by_city",
        relation=relation,
        mode="list",
        description=f"{what} {relation} in a city.",
        args={"city": "city"},
        returned_columns=tuple(columns),
    )


def info_tool(relation: str, columns: Sequence[str] = ()) -> Access:
    """``get_infos_by_<kind>``: chosen fields of one row."""
    kind = KIND_OF[relation]
    return Access(
        tool=f"get_infos_by_{kind}",
        relation=relation,
        mode="info",
        description=f"Facts about one {kind}: the fields named in info_keywords.",
        args={kind: "name"},
        projection="info_keywords",
        returned_columns=tuple(columns) or _INFO_COLUMNS[relation],
    )


def city_tool(relation: str) -> Access:
    """``get_city_by_<kind>``: the city of one row."""
    kind = KIND_OF[relation]
    return Access(
        tool=f"get_city_by_{kind}",
        relation=relation,
        mode="inverse",
        description=f"The city of one {kind}.",
        args={kind: "name"},
        returned_columns=("city",),
    )


def plan_tools(days: int) -> tuple[Access, ...]:
    """The tools of itinerary tasks: lists, facts and the way back; from three days on all."""
    tools = [ALL_CITIES, INFOS_BY_CITY]
    tools += [make(name) for make in (list_tool, info_tool, city_tool) for name in KIND_OF]
    if days >= 3:
        tools += MOVING
    return tuple(sorted(tools, key=lambda access: access.tool))
