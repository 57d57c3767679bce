"""The words of the meeting domain."""

from __future__ import annotations

from envgen.pipelines.general.domains import meetings_rules as rules
from envgen.pipelines.general.domains.meetings_recipe import CLOSES, MAX_MEETINGS, OPENS, STEP
from envgen.pipelines.general.lexicon import Lexicon, Phrase
from envgen.pipelines.general.wording import Words


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


_DAY = (
    f"All of it is on one day, from {_clock(OPENS)} (minute {OPENS}) to {_clock(CLOSES)} (minute "
    f"{CLOSES}), both included; meetings start every {STEP} minutes from {_clock(OPENS)} on."
)
_COUNTS = {2: "two", 3: "three", 4: "four"}


def _placing(count: int) -> str:
    named = [
        f"meeting {k} is {{param:meeting_{k}}} ({{minutes_{k}}} minutes)"
        for k in range(1, count + 1)
    ]
    if count == 1:
        return f"Please find a room and a time for one meeting: {named[0]}. {_DAY}"
    head = f"Please find a room and a time for each of {_COUNTS[count]} meetings"
    return f"{head}: {', '.join(named[:-1])} and {named[-1]}. {_DAY}"


LEXICON = Lexicon(
    id="meetings",
    title="Meeting scheduling",
    openings={
        "rooms": "You help people in an office to find meeting rooms.",
        "bookings": "You help people in an office to keep an eye on the bookings of meeting rooms.",
        "fixed": (
            "Please find a time for a meeting of {minutes_1} minutes that {param:person} wants to hold in "
            f"the room {{param:room}}. {_DAY}"
        ),
        **{f"place_{count}": _placing(count) for count in range(1, MAX_MEETINGS + 1)},
    },
    frame=rules.frame,
    phrases={
        "rank": Phrase(
            "Which room has the {sense} {attribute:word}?", rules.rank_goal, kind="goal"
        ),
        "filter": Phrase(
            "Among the rooms with at least {param:seats} seats, which one has the {sense} {attribute:word}?",
            rules.filter_goal,
            kind="goal",
        ),
        "hop": Phrase(
            "Take the room with the most seats on floor {param:floor}: which of its bookings starts "
            "{sense}?",
            rules.hop_goal,
            kind="goal",
        ),
        "fixed_free": Phrase(
            "{param:person} must be free during the whole meeting.", rules.fixed_free
        ),
        "fixed_room": Phrase(
            "There must be no booking of the room {param:room} during it.", rules.fixed_room
        ),
        "free": Phrase(
            "Everyone who attends meeting {k} must be free during all of it.", rules.free
        ),
        "room_free": Phrase(
            "The room of meeting {k} must have no booking during it.", rules.room_free
        ),
        "seats": Phrase(
            "The room of meeting {k} must have a seat for everyone who attends it.", rules.seats
        ),
        "apart": Phrase(
            "I want to be able to look in on each of them: no two of these {count} meetings may overlap.",
            rules.apart,
        ),
        "rooms_once": Phrase(
            "Of these {count} meetings, no two that are in the same room may overlap in time.",
            rules.rooms_once,
        ),
        "lunch": Phrase(
            "All {count} meetings have to leave the lunch break from {param:lunch_start|clock} to "
            "{param:lunch_end|clock} free; they may end when it starts, and start when it ends.",
            rules.lunch,
        ),
        "equipment": Phrase("Meeting {k} needs a room with {equipment:word}.", rules.equipment),
        "floor": Phrase("Meeting {k} must be on floor {param:floor_{k}} or below.", rules.floor),
        "after": Phrase(
            "Meeting {k} has to start at {param:after_{k}|clock} or later.", rules.after
        ),
        "until": Phrase(
            "Meeting {k} has to end at {param:until_{k}|clock} or earlier.", rules.until
        ),
        "lag": Phrase(
            "Meeting {a} must end at least {param:lag_{a}_{b}} minutes before meeting {b} starts.",
            rules.lag,
        ),
        "same_floor": Phrase(
            "Meetings {a} and {b} must be held on the same floor as each other.", rules.same_floor
        ),
    },
    words=Words(
        nouns={
            "seats": "number of seats",
            "floor": "floor number",
            "screens": "number of screens",
            "video": "video equipment",
            "whiteboard": "a whiteboard",
            "rooms.name": "room name",
            "bookings.id": "booking id",
        },
        slots={"time_{k}": "the time of meeting {k}", "room_{k}": "the room of meeting {k}"},
    ),
    units={
        "minutes": "Times are minutes after midnight: minute 600 is 10:00. What ends at a minute is over by "
        "then: something else may start at that very minute."
    },
    placeholders={"room": "room name", "room_{k}": "room name", "booking": "booking id"},
)
"""How meeting tasks are worded."""
