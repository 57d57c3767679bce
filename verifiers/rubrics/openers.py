"""Answers that say nothing: empty ones, marks alone, and the words that come before an answer.

Models that judge pass such answers now and then, even beside a reference ("One Token to Fool
LLM-as-a-Judge", arXiv 2507.08794), so no model is asked about them.
"""

from __future__ import annotations

import re

OPENERS = (
    "Thought process:", "Let me think step by step", "Let's think step by step",
    "Let's solve this problem step by step.", "Let me think about this", "Let me think",
    "Sure, here is the answer:", "Sure, here's the answer:", "Here is the answer:",
    "Here's the answer:", "Here is my answer:", "Here is the solution:", "The answer is:",
    "My answer is:", "The final answer is:", "Final answer:", "Answer:", "Solution:", "Sure!",
    "Certainly!", "Of course!", "Okay,", "OK", "Great question!", "I will answer the question",
    "Step by step", "Reasoning:", "Analysis:", "Response:", "Respuesta:", "Réponse:", "Antwort:",
    "解", "かいせつ", "答案",
)  # fmt: skip
"""Compared by their words alone."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


_KNOWN = frozenset(map(_words, OPENERS))
_LONGEST = max(map(len, _KNOWN))


def says_nothing(answer: str) -> bool:
    """Whether an answer is empty, has no letters and digits, or consists of openers."""
    words, at = _words(answer), 0
    while at < len(words):
        sizes = range(min(_LONGEST, len(words) - at), 0, -1)
        taken = next((n for n in sizes if words[at : at + n] in _KNOWN), 0)
        if not taken:
            return False
        at += taken
    return True
