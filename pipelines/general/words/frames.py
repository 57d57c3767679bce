"""The sentences that are the same in all domains, each in several ways.

A prompt has the way that goes with the wording of its opening, so that nothing else need be stored. The
heading of the policy has one: all tasks of an environment share that text.
"""

from __future__ import annotations

from collections.abc import Mapping

POLICY = "Policy. These rules hold for every request:"
FRAMES: Mapping[str, tuple[str, ...]] = {
    "rules": (
        "Please keep to these rules:",
        "These rules apply:",
        "My conditions:",
        "All of the following must hold:",
    ),
    "effects": (
        "What I need:",
        "Please do the following:",
        "To be done:",
        "This is the request:",
    ),
    "notes": (
        "Good to know:",
        "Please note:",
        "For your information:",
        "Some background:",
    ),
    "write rule": (
        "Change nothing else in the system: everything not mentioned above must stay as it is.",
        "Everything that is not mentioned above must be left exactly as it is in the system.",
        "Leave the rest of the system untouched: only what is mentioned above may change.",
        "Make no other changes: whatever is not mentioned above has to stay the way it is.",
    ),
    "tie-break": (
        "Among equals, take the one whose {key:word} comes first in alphabetical order.",
        "If several are equal, the one whose {key:word} is first in alphabetical order counts.",
        "Break ties by alphabetical order: the {key:word} that comes first wins.",
        "Should there be a tie, choose the one with the alphabetically first {key:word}.",
    ),
    "submit": (
        "When you are done, call `submit_result` once. Its `answer_text` must be a JSON text in exactly "
        "this form, with the parts in angle brackets filled in:",
        "At the end, call `submit_result` exactly once, with an `answer_text` that is a JSON text of this "
        "form and no other; fill in the parts in angle brackets:",
        "Hand in your answer with one call of `submit_result`. Give as `answer_text` a JSON text of exactly "
        "the following form, every part in angle brackets filled in:",
        "To finish, make a single call of `submit_result`; the `answer_text` has to be JSON in exactly the "
        "form below, with values in place of the parts in angle brackets:",
    ),
    "way": (
        "If no answer keeps all of these rules, the last one gives way: keep all the others, and miss its "
        "bound by as little as can be.",
        "It may be that no answer keeps all of them; then keep all but the last, and come as near to the "
        "bound of that one as any such answer does.",
        "Should there be no answer that keeps every one of them, only the last may be broken, and by no more "
        "than it must.",
        "Where they can't all be kept, the last one alone yields: among the answers that keep the others, "
        "give one that is off its bound by the least.",
    ),
}  # fmt: skip
"""Frame sentence -> ways to say it; a page's lexicon file may add some."""
HEADINGS = ("rules", "effects", "notes")
"""Frames that stand above a list."""
