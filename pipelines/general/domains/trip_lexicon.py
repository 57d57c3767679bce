"""The words of the trip domain: every rule as a sentence, every sentence with the rule it means."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import NamedTuple

from envgen.core.ir import Problem
from envgen.pipelines.general.domains import trip_rules as rules
from envgen.pipelines.general.domains.names import person
from envgen.pipelines.general.domains.trip_rows import HOME
from envgen.pipelines.general.lexicon import Lexicon, Phrase
from envgen.pipelines.general.wording import Words

_SCOPES = {
    "city": "the {of:word} in {param:city}",
    "big": "all {of:word} in cities with at least {param:people} inhabitants",
}


def _best(scope: str, filtered: bool, highest: bool) -> Phrase:
    ask = f"which one has the {'highest' if highest else 'lowest'} {{by:word}}?"
    text = f"Of {_SCOPES[scope]}, {ask}"
    if filtered:
        only = "Leave out every one whose {keep:word} is below {param:floor}."
        text = f"{only} Of {_SCOPES[scope]} that remain, {ask}"
    return Phrase(text, rules.best(scope, filtered, highest), kind="goal")


_COUNTED = (
    "{of:word} in cities with at least {param:people} inhabitants whose {keep:word} is {param:floor} "
    "or more"
)
_PHRASES: dict[str, Phrase] = {
    f"{scope}_{'kept_' if filtered else ''}{'most' if highest else 'least'}": _best(
        scope, filtered, highest
    )
    for scope, filtered, highest in product(_SCOPES, (False, True), (True, False))
}
_PHRASES |= {
    "count": Phrase(f"Please count the {_COUNTED}.", rules.number("count"), kind="goal"),
    "sum": Phrase(
        f"Please add up the {{by:word}} of all {_COUNTED}.", rules.number("sum"), kind="goal"
    ),
    "no_repeat": Phrase(
        "Nothing may be repeated on the {days} days: all cities, all hotels, all restaurants and "
        "all attractions must be different.",
        rules.no_repeat,
    ),
    "meals_differ": Phrase("The two restaurants of the day must be different.", rules.meals_differ),
    "located": Phrase(
        "On each of the {days} days, the hotel, both restaurants and the attraction must be located "
        "in that day's city.",
        rules.located,
    ),
    "located_one": Phrase(
        "The hotel, both restaurants and the attraction must be located in the city you choose.",
        rules.located_one,
    ),
    "luxury": Phrase(
        "If the hotel of day {day} costs {param:luxury_price} CNY or more per night, then the two "
        "restaurants of that day together must cost less than {param:luxury_meals} CNY, both must be "
        "rated at least {param:good_rating|tenths}, and that day's attraction ticket must cost less "
        "than {param:luxury_ticket} CNY.",
        rules.luxury,
    ),
    "mid": Phrase(
        "If the hotel of day {day} costs at least {param:mid_price} CNY but less than "
        "{param:luxury_price} CNY per night, then at least one of that day's restaurants must be "
        "rated {param:good_rating|tenths} or higher, and that day's attraction ticket must cost less "
        "than {param:mid_ticket} CNY.",
        rules.mid,
    ),
    "low": Phrase(
        "If the hotel of day {day} costs at least {param:low_price} CNY but less than "
        "{param:mid_price} CNY per night, then at least one of that day's restaurants must be rated "
        "{param:fair_rating|tenths} or higher. A hotel for less than {param:low_price} CNY asks for nothing.",
        rules.low,
    ),
    "budget": Phrase(
        "All hotels, restaurants and attraction tickets of the {days} days together must cost at "
        "most {param:budget} CNY.",
        rules.budget,
    ),
    "legs": Phrase(
        "Getting from each of the {days} cities to the next, always by the cheapest connection, must "
        "cost at most {param:legs} CNY in total (the way to the first city does not count).",
        rules.legs,
    ),
    "dry": Phrase(
        f"For none of the {{days}} days from {{start:date}} on may the forecast for that day's city "
        f'be "{rules.RAIN}".',
        rules.dry,
    ),
}

_HOME = f"{HOME} (which is not one of the cities to choose from)"
_PARTS = "for the afternoon, and a restaurant each for the afternoon and the evening."

LEXICON = Lexicon(
    id="trip",
    title="Trip planning",
    openings={
        "find-a": "Hi! I am {who:text}. I am going to {param:city} and need a hint about the "
        "{of:word} there.",
        "find-b": "Please compare the {of:word} of {param:city} for my friend {who:text}.",
        "find-c": "{who:text} asked me about {of:word}, but only those of {param:city}.",
        "search-a": "{who:text} here. I have not settled on a city yet, so please look at the "
        "{of:word} everywhere.",
        "search-b": "For a travel guide by {who:text} I compare {of:word} all over the country.",
        "number-a": "For a travel guide by {who:text} I need one number, which I know is {most} or less.",
        "number-b": "{who:text}'s travel agency is counting what it has on offer. The result is a "
        "whole number, at most {most}.",
        "day-a": "I am {who:text}. Please plan my day trip on {start:date}: a city, a hotel, an "
        f"attraction {_PARTS}",
        "day-b": "My name is {who:text} and I have {start:date} off. Suggest a city for that day, with "
        f"a hotel, an attraction {_PARTS}",
        "plan-a": "Hello, {who:text} here. I am planning a trip of {days} days that starts from my home "
        f"in {_HOME}, and I need an itinerary from {{start:date}} to {{end:date}}: for each day a city, a "
        f"hotel, an attraction {_PARTS}",
        "plan-b": "Can you help me put together an itinerary for {who:text} and me? We leave from home "
        f"in {_HOME} on {{start:date}}, travel for {{days}} days and are done on {{end:date}}. Every day "
        f"needs a city, a hotel, an attraction {_PARTS}",
    },
    frame=rules.frame,
    phrases=_PHRASES,
    words=Words(
        nouns={
            "free_rooms": "number of free rooms",
            "free_tables": "number of free tables",
            "free_tours": "number of free tour places",
            "price": "price",
            "ticket": "ticket price",
            "rating": "rating",
            "cities.name": "city name",
            "hotels.name": "hotel name",
            "restaurants.name": "restaurant name",
            "attractions.name": "attraction name",
        },
    ),
    units={
        "CNY": "Prices are whole yuan (CNY): per night for a hotel, per visit for the rest.",
        "rating": "Ratings are given in tenths: 40 means 4.0.",
        "people": "Population is the number of inhabitants.",
        "minutes": "Travel times are minutes.",
    },
)
"""How the trip domain speaks."""


class Voice(NamedTuple):
    """Who asks, and in which words the request opens."""

    opening: str
    who: str


def new_voice(rng: Random, kind: str) -> Voice:
    """A voice with an opening of ``kind`` ("find", "search", "number", "day", "plan")."""
    names = [name for name in LEXICON.openings if name.startswith(f"{kind}-")]
    return Voice(rng.choice(names), person(rng))


def voice_of(problem: Problem) -> Voice:
    """The voice of ``problem``."""
    return Voice(str(problem.fields["opening"]), str(problem.fields["who"]))
