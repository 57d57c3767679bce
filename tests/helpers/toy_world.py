"""A world of a few dicts to run policies in, without the environments room."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from envgen.core.types import Message, PublicRule, PublicTask, Sampling, ToolSpec
from envgen.policies.base import Policy

SUBMIT = {
    "type": "function",
    "function": {
        "name": "submit_result",
        "description": "Submit.",
        "parameters": {
            "type": "object",
            "properties": {"answer_text": {"type": "string"}},
            "required": ["answer_text"],
        },
    },
}
HOTELS = {
    "Arden": {"Amber": 900, "Birch": 520, "Cedar": 310},
    "Brook": {"Dune": 800, "Elm": 499},
    "Calder": {"Fern": 250},
}
CITY = {"type": "string", "x-source": "cities.name"}
HOTEL = {"type": "string", "x-source": "hotels.name"}


def tool(name: str, parameters: dict[str, Any], returns: dict[str, Any], **more: Any) -> ToolSpec:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return ToolSpec(name=name, description=name, parameters=schema, returns=returns, **more)


@dataclass
class Episode:
    """What one run of a policy in the toy world did."""

    messages: list[Message]
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answer: Any = None
    submitted: bool = False


def play(
    policy: Policy,
    task: PublicTask,
    functions: dict[str, Callable[..., Any]],
    seed: int,
    sampling: Sampling | None = None,
) -> Episode:
    """Run ``policy`` until it submits or the turn limit is reached."""
    episode = Episode([Message(role="user", content=task.prompt)])
    tools = [*(spec.openai() for spec in task.tools), SUBMIT]
    for _ in range(task.limits.turns):
        reply = policy.respond(
            episode.messages, tools, sampling or Sampling(), seed=seed, task=task
        )
        episode.messages.append(reply.message)
        for call in reply.message.tool_calls:
            arguments: dict[str, Any] = dict(call.arguments or {})
            episode.calls.append((call.name, arguments))
            if call.name == "submit_result":
                episode.answer = json.loads(arguments["answer_text"])
                episode.submitted = True
                return episode
            result = functions[call.name](**arguments)
            episode.messages.append(
                Message(role="tool", content=json.dumps(result), tool_call_id=call.id)
            )
    return episode


def town_task(**changes: Any) -> PublicTask:
    """A city and a hotel in it, each of two days."""
    day = {
        "type": "object",
        # Alphabetical order puts a leaf before the one its x-where names.
        "properties": {
            "bed": {**HOTEL, "x-where": {"city": "/{i}/city"}},
            "city": CITY,
            "nights": {"type": "integer", "minimum": 1, "maximum": 3},
        },
        "required": ["bed", "city", "nights"],
    }
    days = [json.loads(json.dumps(day).replace("{i}", str(i))) for i in range(2)]
    fields: dict[str, Any] = {
        "id": "toy",
        "environment_id": "toy-env",
        "family": "general",
        "prompt": "Find hotels.",
        "submit_schema": {"type": "array", "prefixItems": days, "items": False},
        "tools": (
            tool("list_cities", {}, {"type": "array", "items": CITY}),
            tool("city_of_hotel", {"hotel": HOTEL}, CITY),
            tool(
                "hotels_in_range",
                {"city": CITY, "min_price": {"type": "integer"}, "max_price": {"type": "integer"}},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": HOTEL, "price": {"type": "integer"}},
                    },
                },
            ),
        ),
        "rules": (
            PublicRule(
                text="Hotels cost at most 500.",
                kind="compare",
                slots=("/0/bed", "/1/bed"),
                column="price",
                cmp="<=",
                value=500,
            ),
            PublicRule(text="Two hotels.", kind="different", slots=("/0/bed", "/1/bed")),
        ),
    }
    return PublicTask(**{**fields, **changes})


def town_functions() -> dict[str, Callable[..., Any]]:
    def hotels_in_range(city: str, min_price: int, max_price: int) -> Any:
        if city not in HOTELS:
            return {"error": "not_found", "message": city}
        rows = HOTELS[city].items()
        return [{"name": n, "price": p} for n, p in rows if min_price <= p <= max_price]

    def city_of_hotel(hotel: str) -> Any:
        for city, hotels in HOTELS.items():
            if hotel in hotels:
                return city
        return {"error": "not_found", "message": hotel}

    return {
        "list_cities": lambda: list(HOTELS),
        "city_of_hotel": city_of_hotel,
        "hotels_in_range": hotels_in_range,
    }
