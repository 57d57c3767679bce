"""The look-alikes of one run: what each copy of a test expects, which copies are true, and their names.

Each test is replaced by several copies with new names, which differ in the options for one or two of its
expectations. One copy has true options only. A change that passes another one does not compute what it is
asked for (**forged**); one that fails the true copy has not solved the task.

Which expectations vary, and their options, is the same in every run and judgement of a task: else the true
options would be those that come again, or stand in the runs that vary something else. Names, places and the
sample are drawn anew. In each run every option of an expectation stands in as many copies as any other.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from envgen.core.code_types import (
    CodeLanguage,
    Leaf,
    Question,
    Site,
    Status,
    TestId,
    TestReport,
    VerdictKind,
)
from envgen.core.seeding import rng
from envgen.verifiers.lookalikes import options
from envgen.verifiers.lookalikes.braces import Braces
from envgen.verifiers.lookalikes.options import Literal, Value
from envgen.verifiers.lookalikes.programs import Programs, SiteTurn, choices, in_round, replaced
from envgen.verifiers.lookalikes.python import Python

RUNS = 2
"""In which look-alikes are judged, before the one that counts all tests; one where each has rounds."""
_WORDS = re.compile(r"[^\W\d_]{1,12}")
_GOOD = frozenset({Status.PASS, Status.XFAIL})
_BAD = frozenset({Status.FAIL, Status.ERROR})


class Language(Protocol):
    """The parts that differ from language to language."""

    def sites(self, file: str, source: bytes) -> list[Question]:
        """The tests of a file, with every expectation that can be varied."""

    def known(self, text: str, leaf: Leaf) -> Literal:
        """The value of a leaf's text. Raises ValueError."""

    def spell(self, value: Value, text: str) -> str:
        """A value as source text, to replace ``text``."""

    def conditions(self, text: str) -> tuple[str, str]:
        """Source texts of a condition and of its opposite."""

    def word(self, first: str, second: str) -> str:
        """A name for a test."""

    def key(self, test: TestId) -> str:
        """The part that the ids of all cases of a test share."""

    def matched(self, found: Sequence[Question], ids: Sequence[TestId]) -> list[Question]:
        """The questions of one file with the ids of their tests, of those in a report (in its order)."""


LANGUAGES: Mapping[CodeLanguage, Language] = {
    "python": Python(),
    "javascript": Braces("javascript"),
    "typescript": Braces("typescript"),
    "go": Braces("go"),
    "java": Braces("java"),
    "php": Braces("php"),
    "c": Programs(),
    "cpp": Programs(),
}


def runs_of(language: Language) -> int:
    """Runs in which look-alikes are judged, each with a build of its own."""
    return 1 if isinstance(language, Programs) else RUNS


class Copy(NamedTuple):
    """A look-alike: a question under a new name, with true or wrong expectations."""

    question: Question
    site: Site
    """What varies, or the first of it."""
    name: str
    text: bytes
    right: bool
    round: int | None = None
    """It is the test itself in this round."""

    def renamed(self, key: str) -> str:
        """The copy's key: every part of the test's key that ends with its name is renamed (mocha has two)."""
        if self.round is not None:
            return in_round(self.round, key)
        old = re.compile(rf"(?:^|(?<= )){re.escape(self.question.name)}(?=(?:\(\))?$|/\S*$)")
        return "::".join(old.sub(lambda _: self.name, part) for part in key.split("::"))

    def fault(self, cases: Sequence[Status]) -> str:
        """Say what is wrong with the verdicts on its cases; empty if nothing is."""
        if len(cases) != len(self.question.tests) and (self.right or not cases):
            return "missing"
        if self.right:
            return "" if all(case is Status.PASS for case in cases) else "failed"
        return "" if all(case in _BAD for case in cases) else "forged"


class Paper(NamedTuple):
    """The files of one run, and the verdicts that their tests must give."""

    files: dict[str, bytes]
    copies: tuple[Copy, ...]
    language: Language
    variable: str = ""
    values: tuple[str, ...] = ()
    """What the variable is in each round; none: there is one run, without it."""

    def faults(self, report: TestReport) -> dict[Copy, str]:
        """The copies with a wrong verdict: ``failed``, ``forged`` or ``missing``."""
        cases: dict[str, list[Status]] = defaultdict(list)
        for case in report.cases:
            cases[self.language.key(case.id)].append(case.status)
        found = {}
        for copy in self.copies:
            keys = dict.fromkeys(self.language.key(test) for test in copy.question.tests)
            statuses = [status for key in keys for status in cases[copy.renamed(key)]]
            if fault := copy.fault(statuses):
                found[copy] = fault
        return found


def bits_of(site: Site, language: Language, source: bytes, most: int) -> int:
    """How many bits of options a site has, up to a given number."""
    if site.leaves[0].kind in ("exception", "condition"):
        return 1
    return min(most.bit_length() - 1, options.capacity(_literals(site, language, source)))


def size(site: Site, language: Language, source: bytes, most: int) -> int:
    """How many options a site has."""
    if site.leaves[0].kind == "exception":
        return min(most, 1 + len(site.wrong))
    return int(2 ** bits_of(site, language, source, most))


def variants(
    question: Question,
    site: Site,
    language: Language,
    source: bytes,
    most: int,
    draw: random.Random,
) -> list[tuple[str, ...]]:
    """The texts of a site's leaves for each option, the true one first."""
    texts = [source[leaf.start : leaf.end].decode() for leaf in site.leaves]
    if site.leaves[0].kind == "condition":
        return [(text,) for text in language.conditions(texts[0])]
    if site.leaves[0].kind == "exception":
        wrong = draw.sample(site.wrong, min(len(site.wrong), most - 1))
        return [(text,) for text in (texts[0], *wrong)]
    literals = _literals(site, language, source)
    bits = bits_of(site, language, source, most)
    words = _words(question, source)
    found = options.options(literals, bits, words, draw)
    return [
        tuple(language.spell(value, text) for value, text in zip(values, texts, strict=True))
        for values in found
    ]


def _literals(site: Site, language: Language, source: bytes) -> list[Literal]:
    return [language.known(source[leaf.start : leaf.end].decode(), leaf) for leaf in site.leaves]


def _words(question: Question, source: bytes) -> list[str]:
    """The words of a test, then those of its file."""
    own = source[question.start : question.end].decode(errors="replace")
    both = [*_WORDS.findall(own), *_WORDS.findall(source.decode(errors="replace"))]
    return list(dict.fromkeys(both))


def copies(
    question: Question,
    sites: Mapping[Site, int],
    language: Language,
    source: bytes,
    draw: random.Random,
    names: Iterable[str],
) -> list[Copy]:
    """Make a look-alike for each combination of the options of sites (so many of each at most)."""
    leaves = [leaf for site in sites for leaf in site.leaves]
    found = itertools.product(
        *(variants(question, site, language, source, most, draw) for site, most in sites.items())
    )
    return [
        Copy(
            question,
            next(iter(sites)),
            name,
            _text(question, leaves, source, list(itertools.chain(*texts)), name),
            right=not n,
        )
        for (n, texts), name in zip(enumerate(found), names, strict=False)
    ]


def _text(
    question: Question, leaves: Sequence[Leaf], source: bytes, texts: Sequence[str], name: str
) -> bytes:
    edits = [(cut.start, cut.end, cut.text) for cut in question.cuts]
    edits += [(leaf.start, leaf.end, text) for leaf, text in zip(leaves, texts, strict=True)]
    edits.append((question.name_at, question.name_at + len(question.name.encode()), name))
    return replaced(source[: question.end], edits)[question.start :]


def names(language: Language, sources: Iterable[bytes], draw: random.Random) -> Iterable[str]:
    """Yield new names for tests without end, made of words that the files use."""
    text = b"\n".join(sources).decode(errors="replace")
    words = sorted(set(re.findall(r"[a-z]{3,12}", text))) or ["case"]
    used = set()
    while True:
        parts = [draw.choice(words) for _ in range(draw.choice((2, 3)))]
        name = language.word(parts[0], "_".join(parts[1:]))
        if name in used:
            name = f"{name}_{draw.choice(words)}"
        if name not in used and name not in text:
            used.add(name)
            yield name


def paper(
    language: Language, sources: Mapping[str, bytes], chosen: Sequence[Copy], draw: random.Random
) -> Paper:
    """Make the files in which copies, in random order, replace their tests."""
    blocks: dict[tuple[str, int, int], list[Copy]] = defaultdict(list)
    for copy in chosen:
        question = copy.question
        blocks[question.file, question.start, question.end].append(copy)
    files = {file: sources[file] for file, _, _ in blocks}
    for (file, start, end), block in sorted(blocks.items(), reverse=True):
        # Copies come with the true one first: in that order, code under test could tell it by counting.
        draw.shuffle(block)
        replacement = b"\n\n\n".join(copy.text for copy in block)
        files[file] = files[file][:start] + replacement + files[file][end:]
    return Paper(files, tuple(chosen), language)


def compiled(
    language: Language,
    sources: Mapping[str, bytes],
    asked: Sequence[tuple[Question, Site, int]],
    draw: random.Random,
    *,
    secret: str | None = None,
    apart: bool = False,
) -> Paper:
    """Files with all options of the sites asked for (so many of each at most), chosen in rounds."""
    turns = [
        SiteTurn(
            one,
            site,
            variants(
                one,
                site,
                language,
                sources[one.file],
                most,
                draw if secret is None else _fixed(secret, one, "options"),
            ),
        )
        for one, site, most in asked
    ]
    chosen = choices(turns, sources, draw, apart=apart)
    found = [
        Copy(turn.question, turn.site, "", b"", right=not n, round=round_)
        for turn, rounds in zip(turns, chosen.rounds, strict=True)
        for n, round_ in enumerate(rounds)
    ]
    return Paper(chosen.files, tuple(found), language, chosen.variable, chosen.values)


def sitting(
    asked: Sequence[Question],
    sample: Sequence[Question],
    language: Language,
    sources: Mapping[str, bytes],
    most: tuple[int, int],
    secret: str,
    draw: random.Random,
) -> Paper:
    """The look-alikes of one judged run.

    Args:
        asked: questions about fail-to-pass tests.
        sample: questions about other tests.
        language: that of the files.
        sources: the files, by name.
        most: the largest number of look-alikes of a question, in ``asked`` and in ``sample``.
        secret: the task's; makes what is the same in all its runs.
        draw: makes what is new in each.
    """
    limits = [(question, most[0]) for question in asked] + [(one, most[1]) for one in sample]
    picked = [
        (one, varied(one, language, sources[one.file], limit, secret)) for one, limit in limits
    ]
    if isinstance(language, Programs):
        turns = [(one, *turn) for one, sites in picked for turn in sites.items()]
        return compiled(language, sources, turns, draw, secret=secret)
    fresh = iter(names(language, sources.values(), draw))
    chosen: list[Copy] = []
    for question, sites in picked:
        same = _fixed(secret, question, "options")
        chosen += copies(question, sites, language, sources[question.file], same, fresh)
    return paper(language, sources, chosen, draw)


def varied(
    question: Question, language: Language, source: bytes, most: int, secret: str
) -> dict[Site, int]:
    """The sites of a question that vary in all runs of a task, and how many options each has.

    Those are the last one, since what comes before the call that raises proves nothing, and one of the
    strongest others. Of a program, and where there is room for two options only, one of the strongest.
    """
    draw = _fixed(secret, question, "sites")
    last, strongest = question.sites[-1], best(question.sites)
    others = [site for site in strongest if site != last and not _overlap(site, last)]
    if isinstance(language, Programs) or most < 4:
        return {(site := draw.choice(strongest)): size(site, language, source, most)}
    if not others:
        return {last: size(last, language, source, most)}
    other = draw.choice(others)
    first = size(last, language, source, 2 ** (most.bit_length() // 2))
    second = size(other, language, source, most // first)
    return {last: size(last, language, source, most // second), other: second}


def _overlap(one: Site, other: Site) -> bool:
    return any(a.start < b.end and b.start < a.end for a in one.leaves for b in other.leaves)


def _fixed(secret: str, question: Question, what: str) -> random.Random:
    return rng(0, secret, question.file, question.start, question.tests[0], what)


def best(sites: Sequence[Site]) -> list[Site]:
    """The sites of the strongest kind."""
    strongest = min(_STRENGTH.index(site.kind) for site in sites)
    return [site for site in sites if site.kind is _STRENGTH[strongest]]


_STRENGTH = (VerdictKind.MANY, VerdictKind.EXCEPTION, VerdictKind.ONE_BIT)
