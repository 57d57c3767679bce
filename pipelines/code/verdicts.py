"""Prove on the gold patch which verdicts follow a secret: the questions that a code task's verifier asks.

Every expectation of the fail-to-pass tests that can be varied is tried: the test must pass with the true
option and fail with each wrong one. Questions that hold are rehearsed in the way submissions are judged,
and one that fails even once is dropped. Tests without a question run with the gold patch's functions gutted.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from envgen.core.code_types import CodeTests, Question, Site, Status, TestId, Verdict, VerdictKind
from envgen.core.errors import SandboxError
from envgen.core.types import GateResult, GateStatus
from envgen.sandboxes.workspace import Workspace, WorkspaceLimits
from envgen.verifiers.code import exam_of
from envgen.verifiers.code_run import RunStatus, TestRun, read_tests, run_tests, touched_paths
from envgen.verifiers.lookalikes.gutting import changed_lines, touched_functions
from envgen.verifiers.lookalikes.judging import Examiner
from envgen.verifiers.lookalikes.paper import (
    LANGUAGES,
    Copy,
    Language,
    Paper,
    best,
    compiled,
    copies,
    names,
    paper,
    runs_of,
    varied,
)
from envgen.verifiers.lookalikes.programs import Programs

REHEARSALS = 2
"""Times that all judged runs are gone through."""
MAX_SITES = 6
"""Expectations of a question that are tried."""
MAX_SAMPLE = 12
"""Questions about pass-to-pass tests that are kept, for the verifier to draw from."""
_TRIED = 9
"""Options of a site that are tried at first, the true one among them."""
_ROUNDS = 4
"""Options of a site that are tried where each takes a run of its own."""
_COPIES = (32, 16, 8)
_MOST_HALVES = 3
_MIN_TESTS = 32
"""Copies of all questions that are always allowed: a start of the runner takes longer."""
LEAST_WAIT_S = 60.0
"""A run that takes longer, and ``_WAIT`` times the gold patch's, has a test that waits for ever: for a wrong
option, or for code that is not mended. Without this each such run took the recipe's half an hour."""
_WAIT = 10.0
_MOST_WAITS = 4
"""Such runs that are looked into by halves."""
_SHARE = 4
"""Of the tests of a run, every so many-th may be a copy beyond that."""


class Proven(NamedTuple):
    """A verifier with its questions, and the cost of proving them."""

    tests: CodeTests
    runs: int
    tests_s: float


def prove_verdicts(
    workspace: Workspace,
    tests: CodeTests,
    gold: bytes,
    *,
    limits: WorkspaceLimits | None = None,
    log: Callable[[str], None] | None = None,
    draw: random.Random | None = None,
    rehearsals: int = REHEARSALS,
) -> Proven:
    """Find the questions of a task, and how well they prove each fail-to-pass test.

    Args:
        workspace: the base commit, built as users will build it.
        tests: a verifier whose tests pass with the gold patch.
        gold: the gold patch.
        limits: of the sandboxes.
        log: called with each step as it starts.
        draw: makes every choice; the default can't be predicted.
        rehearsals: how often all judged runs are rehearsed.
    """
    prover = _VerdictProver(workspace, tests, gold, limits, log or (lambda _: None), draw)
    prover.rehearsals = rehearsals
    return Proven(prover.prove(), prover.runs, prover.tests_s)


def patient(limits: WorkspaceLimits | None, most_s: float, plain_s: float) -> WorkspaceLimits:
    """Limits for runs like one that took ``plain_s``: ten times that, but a minute at least."""
    limits = limits or WorkspaceLimits()
    wall_s = min(limits.wall_s or most_s, max(LEAST_WAIT_S, _WAIT * plain_s))
    return limits.model_copy(update={"wall_s": wall_s})


def verdict_gate(tests: CodeTests) -> GateResult:
    """The entry about a task's verdicts in its evidence."""
    found = [tests.verdicts.get(test, NOT_PROVEN) for test in tests.fail_to_pass]
    proven = [one for one in found if one.kind in STRONG]
    odds = max((one.odds for one in proven), default=1.0)
    summary = f"verdict proven for {len(proven)} of {len(found)} fail-to-pass tests"
    return GateResult(
        gate="verdicts",
        status=GateStatus.PASSED if proven else GateStatus.NOT_APPLICABLE,
        n=len(found),
        figure=float(len(proven)),
        reason=f"{summary}, blind odds <= 1/{1 / odds:.0f}" if proven else "report believed",
        details={str(kind): sum(one.kind is kind for one in found) for kind in VerdictKind}
        | {"runs": max((one.runs for one in found), default=0), "odds": odds},
    )


STRONG = (VerdictKind.MANY, VerdictKind.EXCEPTION)
"""Kinds of a proven verdict."""
NOT_PROVEN = Verdict(kind=VerdictKind.NONE)


class _VerdictProver:
    def __init__(
        self,
        workspace: Workspace,
        tests: CodeTests,
        gold: bytes,
        limits: WorkspaceLimits | None,
        log: Callable[[str], None],
        draw: random.Random | None,
    ) -> None:
        self.workspace, self.gold, self.limits = workspace, gold, limits
        self.log, self.draw = log, draw or secrets.SystemRandom()
        # No part of the verifier's content: code under test knows how options are made, and could try
        # which of those that it sees makes just these.
        self.tests = tests.model_copy(update={"secret": f"{self.draw.getrandbits(128):032x}"})
        self.exam = exam_of(tests)
        self.language = LANGUAGES.get(workspace.recipe.language)
        self.runs, self.waits, self.tests_s = 0, 0, 0.0
        self.rehearsals = REHEARSALS

    def prove(self) -> CodeTests:
        questions: list[Question] = []
        if self.language is not None:
            files = touched_paths(self.exam.test_patch)
            sources = read_tests(self.workspace, self.exam, files, limits=self.limits)
            plain = self._counted("the order of tests", run_tests(
                self.workspace, self.exam, self.gold, limits=self.limits
            ))  # fmt: skip
            if plain.report is not None:
                self.limits = patient(self.limits, self.workspace.recipe.test_s, plain.wall_s)
                ids = [case.id for case in plain.report.cases]
                questions = self._tried(self._asked(self.language, sources, ids), sources)
                self._budget(questions, len(ids))
            self._rehearse(questions, sources)
        self._gut()
        return self.tests

    def _counted(self, what: str, run: TestRun) -> TestRun:
        self.runs += 1
        self.tests_s += run.tests_s
        self.waits += run.status is RunStatus.TIMED_OUT
        self.log(f"verdicts, run {self.runs}: {what}: {run.status}")
        return run

    def _asked(
        self, language: Language, sources: dict[str, bytes], ids: Sequence[TestId]
    ) -> list[Question]:
        """Questions about fail-to-pass tests, and a sample of those about others; sites are not tried yet."""
        wanted, others = set(self.tests.fail_to_pass), set(self.tests.pass_to_pass)
        asked: list[Question] = []
        sample: list[Question] = []
        changed = changed_lines(self.exam.test_patch) if isinstance(language, Programs) else {}
        for file, source in sources.items():
            for question in language.matched(language.sites(file, source), ids):
                sites = self._some(_on(changed.get(file, ()), question.sites, source))
                question = question.model_copy(update={"sites": sites})
                if sites and wanted.issuperset(question.tests):
                    asked.append(question)
                elif sites and others.issuperset(question.tests):
                    sample.append(question)
        return asked + self.draw.sample(sample, min(MAX_SAMPLE, len(sample)))

    def _some(self, sites: tuple[Site, ...]) -> tuple[Site, ...]:
        """The last sites and some of the others."""
        half = MAX_SITES // 2
        head = range(max(0, len(sites) - half))
        kept = self.draw.sample(head, min(half, len(head)))
        return tuple(sites[n] for n in [*sorted(kept), *range(len(head), len(sites))])

    def _tried(self, asked: list[Question], sources: dict[str, bytes]) -> list[Question]:
        """Each question with the sites that hold."""
        assert self.language is not None
        bad: dict[Question, set[Site]] = defaultdict(set)
        wrong_types: dict[tuple[Question, Site], set[str]] = defaultdict(set)
        tried = self._apart([(one, site) for one in asked for site in one.sites], sources)
        for copy, fault in tried.items():
            if fault and copy.site.wrong and fault == "forged":
                wrong_types[copy.question, copy.site].add(_type_of(copy, sources))
            elif fault:
                bad[copy.question].add(copy.site)
        found = []
        for one in asked:
            sites = (
                site.model_copy(
                    update={"wrong": _without(site.wrong, wrong_types.get((one, site), set()))}
                )
                for site in one.sites
                if site not in bad[one]
            )
            whole = [site for site in sites if site.wrong or site.kind is not _EXCEPTION]
            if kept := _without_covered(whole):
                found.append(one.model_copy(update={"sites": kept}))
        return _merged(found) if isinstance(self.language, Programs) else found

    def _apart(
        self, pairs: Sequence[tuple[Question, Site]], sources: dict[str, bytes], depth: int = 0
    ) -> dict[Copy, str]:
        """Like ``_sat``; where nothing in a file was collected, one copy broke it: halves are tried."""
        tried = self._sat(pairs, sources)
        for file in sources:
            own = [pair for pair in pairs if pair[0].file == file]
            faults = [fault for copy, fault in tried.items() if copy.question.file == file]
            enough = depth == _MOST_HALVES or self.waits > _MOST_WAITS
            if len(own) < 2 or enough or not all(one == "missing" for one in faults):
                continue
            own.sort(key=_has_number)  # one that is out of a type's range is no Go, and no C
            middle = len(own) // 2
            kept = {copy: fault for copy, fault in tried.items() if copy.question.file != file}
            halves = [
                self._apart(half, sources, depth + 1) for half in (own[:middle], own[middle:])
            ]
            tried = kept | halves[0] | halves[1]
        return tried

    def _sat(
        self, pairs: Iterable[tuple[Question, Site]], sources: dict[str, bytes]
    ) -> dict[Copy, str]:
        """Copy -> fault, of some options of each site."""
        assert self.language is not None
        if isinstance(self.language, Programs):
            asked = [(question, site, _ROUNDS) for question, site in pairs]
            sheet = compiled(self.language, sources, asked, self.draw, apart=True)
            return self._answered(sheet)
        fresh = iter(names(self.language, sources.values(), self.draw))
        chosen: list[Copy] = []
        for question, site in pairs:
            source = sources[question.file]
            forms = copies(question, {site: 16}, self.language, source, self.draw, fresh)
            most = len(forms) if site.kind is _EXCEPTION else _TRIED
            chosen += [forms[0], *self.draw.sample(forms[1:], min(most - 1, len(forms) - 1))]
        return self._answered(paper(self.language, sources, chosen, self.draw))

    def _answered(self, sheet: Paper) -> dict[Copy, str]:
        """Copy -> fault, of the gold patch."""
        if not sheet.copies:
            return {}
        examiner = Examiner(self.workspace, self.tests, self.exam, self.limits, self.draw)
        run = self._counted(f"{len(sheet.copies)} look-alikes", examiner.run(sheet, self.gold))
        if run.report is None:
            return dict.fromkeys(sheet.copies, "missing")
        return dict.fromkeys(sheet.copies, "") | sheet.faults(run.report)

    def _budget(self, questions: Sequence[Question], plain: int) -> None:
        """Fewer copies than tests; counted, not timed, or the same seed would give other tasks."""
        wanted = set(self.tests.fail_to_pass)
        asked = sum(not wanted.isdisjoint(question.tests) for question in questions)
        alike = 1 if isinstance(self.language, Programs) else asked  # rounds are of all at once
        fits = [n for n in _COPIES if n * alike <= max(plain // _SHARE, _MIN_TESTS)]
        self.tests = self.tests.model_copy(update={"copies": fits[0] if fits else _COPIES[-1]})

    def _rehearse(self, questions: list[Question], sources: dict[str, bytes]) -> None:
        """Judge the gold patch until it holds; questions that it fails are dropped."""
        clean = 0
        runs = runs_of(self.language) if self.language else 0
        while questions and clean < self.rehearsals * runs:
            self._ask(questions, sources)
            examiner = Examiner(self.workspace, self.tests, self.exam, self.limits, self.draw)
            sheet = examiner.paper(whole=True)
            run = self._counted("rehearsal", examiner.run(sheet, self.gold))
            faults = {} if run.report is None else sheet.faults(run.report)
            bad = {copy.question for copy in faults}
            for copy, fault in faults.items():
                self.log(f"{copy.question.tests[0]}: {fault}, {copy.site.leaves}")
            questions = [one for one in questions if one not in bad and run.report is not None]
            clean = 0 if bad else clean + 1
        self._ask(questions, sources)

    def _ask(self, questions: Sequence[Question], sources: dict[str, bytes]) -> None:
        verdicts = dict.fromkeys(self.tests.fail_to_pass, NOT_PROVEN)
        for question in questions:
            for test in verdicts.keys() & set(question.tests):
                verdicts[test] = self._verdict(question, sources[question.file])
        self.tests = self.tests.model_copy(
            update={"questions": tuple(questions), "verdicts": verdicts}
        )

    def _verdict(self, question: Question, source: bytes) -> Verdict:
        assert self.language is not None
        sites = varied(question, self.language, source, self.tests.copies, self.tests.secret)
        # A guess that goes by the options alone is right in all runs or in none.
        odds = 1 / math.prod(sites.values())
        kind = best(question.sites)[0].kind
        return Verdict(kind=kind, runs=runs_of(self.language), odds=odds)

    def _gut(self) -> None:
        """Which tests without a question fail when the functions of the gold patch raise."""
        unproven = [
            test
            for test in self.tests.fail_to_pass
            if self.tests.verdicts.get(test, NOT_PROVEN).kind is VerdictKind.NONE
        ]
        functions = self._functions() if self.language is not None and unproven else ()
        verdicts = dict.fromkeys(self.tests.fail_to_pass, NOT_PROVEN) | self.tests.verdicts
        if functions:
            files = tuple(dict.fromkeys(_file(test) for test in unproven))
            exam = self.exam.model_copy(update={"gutted": functions, "only": files})
            run = self._counted(
                "gutted", run_tests(self.workspace, exam, self.gold, limits=self.limits)
            )
            statuses = {} if run.report is None else run.report.statuses()
            for test in unproven:
                if statuses.get(test) in (Status.FAIL, Status.ERROR):
                    verdicts[test] = Verdict(kind=VerdictKind.GUTTED_ONLY, runs=0)
        used = any(one.kind is VerdictKind.GUTTED_ONLY for one in verdicts.values())
        self.tests = self.tests.model_copy(
            update={"verdicts": verdicts, "gutted": functions if used else ()}
        )

    def _functions(self) -> tuple[str, ...]:
        """The functions of the gold patch."""
        found = []
        with self.workspace.open(self.limits) as opened:
            opened.apply(self.gold)
            for path, lines in changed_lines(self.gold).items():
                try:
                    source = opened.read(path)
                except SandboxError:  # a link
                    continue
                found += [f"{path}::{name}" for name in sorted(touched_functions(source, lines))]
        return tuple(found)


_EXCEPTION = VerdictKind.EXCEPTION


def _has_number(pair: tuple[Question, Site]) -> bool:
    return any(leaf.kind == "number" for leaf in pair[1].leaves)


def _on(lines: Collection[int], sites: tuple[Site, ...], source: bytes) -> tuple[Site, ...]:
    """The sites on these lines; where there are none, all."""
    return tuple(one for one in sites if source.count(b"\n", 0, one.at) + 1 in lines) or sites


def _merged(questions: Sequence[Question]) -> list[Question]:
    """Questions that are asked at once: tests that follow the same sites share an answer."""
    found: list[Question] = []
    for one in questions:
        if any(not set(one.tests).isdisjoint(other.tests) for other in found):
            continue
        for n, other in enumerate(found):
            common = tuple(site for site in other.sites if site in one.sites)
            if common and (other.file, other.start) == (one.file, one.start):
                tests = (*other.tests, *one.tests)
                found[n] = other.model_copy(update={"tests": tests, "sites": common})
                break
        else:
            found.append(one)
    return found


def _file(test: TestId) -> str:
    return test.partition("::")[0]


def _without_covered(sites: Sequence[Site]) -> tuple[Site, ...]:
    """Without the conditions of assertions that have a site which tells more."""
    asserted = {site.at for site in sites if site.leaves[0].kind != "condition"}
    return tuple(
        site for site in sites if site.leaves[0].kind != "condition" or site.at not in asserted
    )


def _without(names: Iterable[str], bad: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in bad)


def _type_of(copy: Copy, sources: dict[str, bytes]) -> str:
    """The wrong type that a copy expects."""
    source, leaf = sources[copy.question.file], copy.site.leaves[0]
    ending = source[leaf.end : copy.question.end]
    for text in copy.site.wrong:
        if text.encode() + ending in copy.text:
            return text
    return ""
