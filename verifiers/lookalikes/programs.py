"""Sites in tests of C and C++: literals that assertions compare with.

Nothing is copied, for a program may tell no more than its exit code. Each literal becomes a choice by an
environment variable, all are compiled once, and the program runs once for each option (``rounds``).
"""

from __future__ import annotations

import random
import re
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from envgen.core.code_types import Leaf, Question, Site, TestId, VerdictKind
from envgen.verifiers.lookalikes.braces import Braces, LanguageRules, decoded
from envgen.verifiers.lookalikes.options import Literal, Value, capacity
from envgen.verifiers.lookalikes.scanning import CODE, Scanned

_HEAD = re.compile(
    r"^[ \t]*(?:TYPED_)?(?:TEST(?:_[FP])?\s*\(\s*(?P<suite>\w+)\s*,\s*(?P<test>\w+)\s*\)"
    r"|(?:TEST_CASE|SCENARIO)\s*\(\s*\"(?P<case>[^\"\\\n]+)\"[^)\n]*\))\s*(?=\{)",
    re.M,
)
_CALLS = re.compile(
    r"\b(?:(?P<check>\w*(?:assert|check|expect|require|verify|test|equal|eq)\w*)|if)\s*(?=\()", re.I
)
_COMPARED = re.compile(r"==")
_FAILED = re.compile(r"!=")
_STRCMP = re.compile(r"\b(?:str|mem)n?(?:case)?cmp\s*(?=\()")
_CALL = re.compile(r"(?!(?:std::)?(?:string|string_view|vector|pair|u?int\d*(?:_t)?)\b)\b\w+\s*\(")
_NOTHING, _MAKERS, _ANYTHING = re.compile("(?!)"), re.compile("[A-Z]"), re.compile("")
"""What may be called in an expectation; a capital begins what makes a value of its arguments, it seems."""
_NUMBER = re.compile(r"(?<![\w.'])\d+(?:\.\d+)?[uUlLfF]*(?![\w.'])")
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_TEXTS = re.compile(rf"{_TEXT.pattern}(?:\s*{_TEXT.pattern})*")
_SUFFIX = re.compile(r"[uUlLfF]*$")
MAX_PROGRAMS = 16
"""Beyond them, only those that have the file's name in theirs."""
_BEFORE, _AFTER = "(,=!<>{&|?:-", "),=!<>}&|?:;"
"""What stands around a literal that an expression can take the place of."""


class Programs(Braces):
    """Look-alikes of what C and C++ programs expect."""

    def __init__(self) -> None:
        super().__init__("go")
        self.rules = RULES

    def sites(self, file: str, source: bytes) -> list[Question]:
        """See ``Language``: the whole file, then each test of GoogleTest, Catch2 and doctest."""
        try:
            source.decode()
        except UnicodeDecodeError:
            return []
        text = source.decode("latin-1")
        scanned = Scanned(text, "\"'", hashes=False, patterns=False)
        sites = sorted(_Sites(scanned, self).found(), key=lambda site: site.at)
        blocks = [(0, len(text), "")]
        for head in scanned.code(_HEAD, 0, len(text)):
            end = scanned.closing(head.end())
            if end is not None:
                name = head["case"] or f"{head['suite']}::{head['test']}"
                blocks.append((head.start(), end + 1, decoded(name)))
        return [
            Question(
                file=file,
                start=start,
                end=end,
                name=name or PurePosixPath(file).name,
                name_at=start,
                tests=(name or "",),
                sites=tuple(site for site in sites if start <= site.at < end),
            )
            for start, end, name in blocks
        ]

    def matched(self, found: Sequence[Question], ids: Sequence[TestId]) -> list[Question]:
        """See ``Language``: by name; a file none of whose tests is reported may be any program's.

        A test of which each section is reported has a question for each of them. What another program
        or section than the question's follows does not hold.
        """
        matches = [
            question.model_copy(update={"tests": (test,)})
            for question in found[1:]
            for test in ids
            if _is(test, question.name)
        ]
        if matches or not found:
            return matches
        stem = PurePosixPath(found[0].file).stem
        own = [test for test in ids if len(ids) <= MAX_PROGRAMS or stem in test]
        return [found[0].model_copy(update={"tests": (test,)}) for test in own]

    def known(self, text: str, leaf: Leaf) -> Literal:
        """See ``Language``; what follows a number's digits belongs to it."""
        if leaf.kind == "text":
            parts = _TEXTS.fullmatch(text) and _TEXT.findall(text)
            return Literal(
                "".join(
                    str(super(Programs, self).known(one, leaf).value) for one in parts or [text]
                )
            )
        return super().known(_SUFFIX.sub("", text), leaf)

    def spell(self, value: Value, text: str) -> str:
        """See ``Language``."""
        if isinstance(value, str):
            return f"(const char *){super().spell(value, text)}"
        return super().spell(value, text) + _ending(text)


RULES = LanguageRules(
    head=_HEAD, calls=_CALLS, quotes="\"'", texts='"', test="{0}_{1}", compared=True
)


def _ending(text: str) -> str:
    found = _SUFFIX.search(text)
    return found[0] if found and text[:1] in "-0123456789" else ""


def _is(test: TestId, name: str) -> bool:
    """Whether a test's id says this name, or that of one of its sections."""
    suite, _, case = name.rpartition("::")
    ending = rf"(?:::|^){re.escape(suite)}(?:::|\.){re.escape(case)}$"
    return bool(
        re.search(ending if suite else rf"(?:::|: |^){re.escape(case)}(?:/.*)?$", test, re.DOTALL)
    )


class _Sites:
    def __init__(self, scanned: Scanned, language: Programs) -> None:
        self.scanned, self.language = scanned, language
        self.taken: set[int] = set()

    def found(self) -> Iterator[Site]:
        """Every expectation that is understood; no literal is in two."""
        heads = [head.span() for head in self.scanned.code(_HEAD, 0, len(self.scanned.text))]
        for call in self.scanned.code(_CALLS, 0, len(self.scanned.text)):
            line = self.scanned.text[: call.start()].rpartition("\n")[2]
            if "#" in line or any(start <= call.start() < end for start, end in heads):
                continue
            given = self.scanned.arguments(call.end())
            failing = not call["check"]
            spans = [part for one in given for part in self._compared(one, failing=failing)]
            found = [self._leaves(*span, _MAKERS) for span in spans]
            equal = [_ANYTHING] if "equal" in (call["check"] or "").lower() else []
            for called in [_NOTHING, _MAKERS, *equal] if call["check"] else []:
                chosen = [one for one in given if self._leaves(*one, called)]
                if chosen and (called is _NOTHING or len(chosen) == 1):
                    expected = _expected(self.scanned.text, given, chosen)
                    found += [self._leaves(*span, called) for span in expected]
                    break
            for leaves in found:
                yield from self._site(call.start(), leaves)

    def _compared(self, span: tuple[int, int], *, failing: bool) -> Iterator[tuple[int, int]]:
        """What is compared with; where a condition says what has failed, with the contrary sign.

        Else it may choose among tests. Of ``strcmp`` the texts: that it gives 0 says nothing.
        """
        text = self.scanned.text[slice(*span)]
        calls = list(self.scanned.code(_STRCMP, *span))
        if calls and not (failing and re.search(r"==|!\s*\w*cmp", text)):
            for call in calls:
                yield from self.scanned.arguments(call.end())
        for sign in () if calls else self.scanned.code(_FAILED if failing else _COMPARED, *span):
            yield self.scanned.expression(sign.end(), span[1], "&|,?")

    def _site(self, at: int, found: Sequence[Leaf]) -> Iterator[Site]:
        leaves = [leaf for leaf in found if leaf.start not in self.taken]
        text = self.scanned.text
        bits = capacity(
            [self.language.known(decoded(text[leaf.start : leaf.end]), leaf) for leaf in leaves]
        )
        if leaves and bits:
            self.taken |= {leaf.start for leaf in leaves}
            kind = VerdictKind.MANY if bits > 1 else VerdictKind.ONE_BIT
            yield Site(leaves=tuple(leaves), kind=kind, at=at)

    def _leaves(self, start: int, end: int, called: re.Pattern[str]) -> list[Leaf]:
        """The literals of what is made of nothing else; none where anything but ``called`` is called."""
        text, found = self.scanned.text, []
        calls = [call[0] for call in self.scanned.code(_CALL, start, end)]
        if not all(called.match(call) for call in calls):
            return []
        for first, last in self._texts(start, end):
            if text[first] == '"':
                leaf = Leaf(start=first, end=last, kind="text")
                try:
                    self.language.known(decoded(text[first:last]), leaf)
                except ValueError:
                    return []
                found.append(leaf)
        for match in self.scanned.code(_NUMBER, start, end):
            found.append(Leaf(start=match.start(), end=match.end(), kind="number"))
        for match in self.scanned.code(re.compile(r"\b(?:true|false)\b"), start, end):
            found.append(Leaf(start=match.start(), end=match.end(), kind="boolean"))
        found.sort(key=lambda leaf: leaf.start)
        return found if all(self._stands_alone(leaf) for leaf in found) else []

    def _texts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Texts; those that stand side by side are one."""
        own = [one for one in self.scanned.texts if start <= one[0] and one[1] <= end]
        while own:
            (first, last), *own = own
            while own and not self.scanned.text[last : own[0][0]].strip():
                (_, last), *own = own
            yield first, last

    def _stands_alone(self, leaf: Leaf) -> bool:
        before = self.scanned.text[: leaf.start].rstrip()
        after = self.scanned.text[leaf.end :].lstrip()
        return (
            before[-1:] in _BEFORE
            and after[:1] in _AFTER
            and self.scanned.kinds[len(before) - 1] == CODE
        )


def _expected(
    text: str, given: Sequence[tuple[int, int]], pure: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Choose the literal argument that a check with descriptions compares with."""
    edges = [given[0]] if len(given) > 2 else []
    edges += [given[-1]] if len(given) > 3 or len(pure) > 1 else []
    texts = [one for one in pure if text[slice(*one)].strip().startswith('"')]
    inner = [one for one in pure if one not in edges or one not in texts]
    found = [one for one in inner if one in texts] or inner or texts[1:]
    return found[-1:]


class SiteTurn(NamedTuple):
    """A site of a question with its options, the true one first: a text for each leaf."""

    question: Question
    site: Site
    options: list[tuple[str, ...]]


class Choices(NamedTuple):
    """Files with choices, and what is chosen in each round."""

    files: dict[str, bytes]
    variable: str
    values: tuple[str, ...]
    rounds: list[list[int]]
    """Of each turn, the round of each of its options."""


def choices(
    turns: Sequence[SiteTurn], sources: Mapping[str, bytes], draw: random.Random, *, apart: bool
) -> Choices:
    """Compile every option of every turn into its file, in random order.

    Args:
        turns: no literal is in two sites of them.
        sources: the files.
        draw: every secret.
        apart: one after another in each test or program, to see what each of them does. Judged,
            all are varied at once: an idle one would show its true option.
    """
    variable = "".join(draw.choice(string.ascii_lowercase) for _ in range(16))
    ends: dict[object, int] = {}
    known: dict[tuple[str, Site], list[int]] = {}
    rounds: list[list[int]] = []
    places: list[tuple[list[int], dict[int, int]]] = []  # compiled options, round -> option
    edits: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for question, site, options in turns:
        if (question.file, site) in known:
            rounds.append(known[question.file, site])
            continue
        keys = [(question.file, question.start), *question.tests] if apart else [len(rounds)]
        first = max(ends.get(key, 0) for key in keys)
        ends |= dict.fromkeys(keys, first + len(options))
        own = draw.sample(range(first, first + len(options)), len(options))
        compiled = draw.sample(range(len(options)), len(options))
        check = f"{variable}({len(places)})"
        for n, leaf in enumerate(site.leaves):
            texts = [options[option][n] for option in compiled]
            chain = "".join(f"{check}=={m}?{text}:" for m, text in enumerate(texts[1:], 1))
            edits[question.file].append((leaf.start, leaf.end, f"({chain}{texts[0]})"))
        places.append((compiled, {round_: option for option, round_ in enumerate(own)}))
        known[question.file, site] = own
        rounds.append(own)
    values = tuple(
        "".join(
            chr(ord("a") + compiled.index(options_at.get(n, 0))) for compiled, options_at in places
        )
        for n in range(max(ends.values(), default=0))
    )
    files = {
        file: _CHOOSE.format(variable).encode() + replaced(sources[file], changes)
        for file, changes in edits.items()
    }
    return Choices(files, variable, values, rounds)


_CHOOSE = """\
extern char *{0}_of(const char *) __asm__("getenv");
static int {0}(int place) {{ const char *told = {0}_of("{0}"); return told ? told[place] - 'a' : 0; }}
"""


def replaced(source: bytes, edits: Sequence[tuple[int, int, str]]) -> bytes:
    """A text with stretches of it replaced."""
    result, at = b"", 0
    for start, end, text in sorted(edits):
        result += source[at:start] + text.encode()
        at = end
    return result + source[at:]


def in_round(n: int, test: TestId) -> TestId:
    """Return a test's name in a report of several rounds."""
    return f"{n}::{test}"
