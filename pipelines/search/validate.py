"""``envgen validate`` on search tasks: count again, search again, play again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import ClassVar

from pydantic import JsonValue

from envgen.core.errors import MissingExtraError, StoreError
from envgen.core.types import GateResult, GateStatus
from envgen.environments.search import CorpusNote, OpenCorpus, SearchEnv, results
from envgen.pipelines.boundary import failure, guarded
from envgen.pipelines.played import played
from envgen.pipelines.search.census import Census
from envgen.pipelines.search.draw import MAX_SHARE
from envgen.pipelines.search.open_questions import (
    OpenQuestion,
    is_open,
    judged_right,
    open_quotes,
    open_task,
    stored_rate,
    untold,
)
from envgen.pipelines.search.questions import TITLE, EntityQuery, FactTable, SearchQuestion
from envgen.pipelines.search.spoken_of import agents_agree, quotes_show
from envgen.pipelines.search.tasks import answer_of, task_of
from envgen.pipelines.search.wording import clue_texts
from envgen.pipelines.search.written import WrittenQuestion, is_written, written_task
from envgen.pipelines.stored import IMPORTED, failed, passed, stored
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.store.bundles import TaskBundle
from envgen.store.corpus import CorpusDocument, DocumentText
from envgen.store.dataset import Dataset
from envgen.verifiers.answers import ShortAnswer, accepts, fold

TOP = 10
"""Results of a single search that must not show the answer."""
MAX_NEAR = 200
"""Near answers tried, the first ones by id."""


class CorpusFacts:
    """A corpus as gates count in it."""

    def __init__(self, opened: OpenCorpus) -> None:
        self.opened = opened

    @cached_property
    def documents(self) -> dict[str, CorpusDocument]:
        """All documents, by id."""
        return {one.id: one for one in self.opened.corpus.documents()}

    @cached_property
    def census(self) -> Census:
        """What counts in them."""
        header = self.opened.corpus.header
        years = [key for key, spec in header.attributes.items() if spec.kind == "year"]
        return Census(self.documents.values(), years)

    @cached_property
    def table(self) -> FactTable:
        """Their facts."""
        table = FactTable(self.opened.corpus.header)
        for document in self.documents.values():
            table.add(document)
        return table


class SearchValidator(TaskValidator):
    """Proves search questions again: by counting in the corpus, by searching it, and by playing gold."""

    family = "search"
    methods: ClassVar = {
        "uncounted": "NOT COUNTED AGAIN: their corpus or its search engine is not on this machine",
        "counted": "counted again in their corpus, searched and played",
        "judged": "open: their quotes looked up, a judge's verdicts weighed again, gold played by them",
        "verified": "of models: their quotes looked up, verdicts weighed, searched and played",
    }

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        self._env = SearchEnv(dataset)
        self._corpora: dict[str, CorpusFacts] = {}

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        env_id = self.dataset.facts(task_id).environment_id
        try:
            facts = self._corpus(env_id)
        except (StoreError, MissingExtraError) as error:
            reason = f"{error}: {error.hint}"
            missing = GateResult(gate="unique", status=GateStatus.NOT_RUN, reason=reason)
            return TaskValidation(
                task_id=task_id, method="uncounted", passed=False, evidence=(missing,)
            )
        evidence = tuple(self._gates(task_id, facts))
        return TaskValidation(
            task_id=task_id,
            method=next(
                (m for m in ("verified", "judged") if m in {g.gate for g in evidence}), "counted"
            ),
            passed=failure(evidence) is None,
            evidence=evidence,
        )

    def how(self, results: Sequence[TaskValidation], total: int) -> list[str]:
        """See ``TaskValidator``; with which roles one model played."""
        told = Counter(g.reason for one in results for g in one.evidence if g.gate == "verified")
        same = [
            f"of {n} of them {why}" for why, n in sorted(told.items()) if why.startswith("one ")
        ]
        return [*super().how(results, total), *same]

    def group(self, task_id: str) -> str:
        """See ``TaskValidator``: the document or entity that a question is about."""
        solution = self.dataset.task_files(task_id).solution
        if not solution:
            return ""
        if is_open(solution):
            return OpenQuestion.model_validate_json(solution).evidence[0]
        if is_written(solution):
            return WrittenQuestion.model_validate_json(solution).source
        return SearchQuestion.model_validate_json(solution).group

    def _corpus(self, env_id: str) -> CorpusFacts:
        if env_id not in self._corpora:
            note = CorpusNote.model_validate(self.dataset.environment_files(env_id).blueprint)
            self._corpora[env_id] = CorpusFacts(note.open())
        return self._corpora[env_id]

    def _gates(self, task_id: str, facts: CorpusFacts) -> Iterator[GateResult]:
        files = self.dataset.task_files(task_id)
        if not files.solution:
            yield IMPORTED
            return
        if is_open(files.solution):
            yield from self._open_gates(task_id, facts.opened, files)
            return
        if is_written(files.solution):
            yield from self._written_gates(task_id, facts.opened, files)
            return
        question = SearchQuestion.model_validate_json(files.solution)
        same = stored(self.dataset, task_id, lambda: task_of(question, facts.table, facts.opened))
        yield same
        if same.status is GateStatus.FAILED:  # what follows would be about another question
            return
        yield guarded("unique", lambda: unique(question, facts))
        yield guarded("unstated", lambda: unstated(question, facts))
        yield guarded("chain", lambda: chain(question, facts))
        yield guarded("minimal", lambda: minimal(question, facts))
        yield guarded("near_answers", lambda: near_answers(question, facts))
        yield guarded("leak", lambda: leak(question, facts, files.spec.prompt))
        yield guarded("prior", lambda: prior(question, facts))
        yield guarded("single_search", lambda: single_search(question, facts, files.spec.prompt))
        yield played(self._env, task_id)

    def _open_gates(
        self, task_id: str, opened: OpenCorpus, files: TaskBundle
    ) -> Iterator[GateResult]:
        """The gates of an open question: what a judge said is weighed again, and gold is played by it."""
        question = OpenQuestion.model_validate_json(files.solution)
        yield (same := stored(self.dataset, task_id, lambda: open_task(question, opened)))
        if same.status is GateStatus.FAILED:
            return
        yield guarded("quotes", lambda: open_quotes(question, opened))
        yield guarded("judged", lambda: judged_right(question))
        yield guarded("leak", lambda: untold(question))
        for gate in ("unique", "single_search"):
            yield _not_applicable(gate, "the answer is a report: a judge scores it by a rubric")
        env = SearchEnv(self.dataset, judge=partial(stored_rate, question))
        yield played(env, task_id)

    def _written_gates(
        self, task_id: str, opened: OpenCorpus, files: TaskBundle
    ) -> Iterator[GateResult]:
        """The gates of a question that a model wrote: no facts are there to count."""
        question = WrittenQuestion.model_validate_json(files.solution)
        yield (same := stored(self.dataset, task_id, lambda: written_task(question, opened)))
        if same.status is GateStatus.FAILED:
            return
        yield guarded("quotes", lambda: quotes_show(question, opened))
        yield guarded("verified", lambda: agents_agree(question, opened))
        yield guarded("leak", lambda: written_leak(question, opened.corpus.page))
        yield guarded("single_search", lambda: written_single_search(question, top_of(opened)))
        for gate in ("unique", "minimal"):
            yield _not_applicable(
                gate, "a model wrote it: agents verified it, no facts were counted"
            )
        yield played(self._env, task_id)


def unique(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether exactly the targets fit, counted over all documents."""
    found = sorted(facts.census.count(question.query))
    if found != list(question.targets) or (len(found) != 1 and question.shape == "one"):
        return failed("unique", f"{len(found)} entities fit, {found[:3]}")
    return passed("unique", len(facts.documents))


def unstated(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether texts give no other answer: what documents state in words, and no fact of them holds.

    Facts of running text are what was surely read from it, and so not all that it says.
    """
    census, targets = facts.census, set(question.targets)
    found = set(census.count(question.query, by_text=True)) - targets
    if found:
        return failed(
            "unstated", f"{len(found)} others may be meant by their texts, {sorted(found)[:3]}"
        )
    for name in question.targets:
        if twins := set(census.twins(question.query, name)) - targets:
            return failed("unstated", f"{sorted(twins)[0]} says nearly the same as {name}")
    if other := _otherwise(question, facts):
        return failed("unstated", other)
    return passed("unstated", len(facts.documents))


def _otherwise(question: SearchQuestion, facts: CorpusFacts) -> str:
    """How the text of a target may be read so that the answer is another one; empty if it can't."""
    asked, shape = question.by or question.ask, question.shape
    if asked == TITLE or shape == "none":
        return ""
    values, said = dict[str, float](), list[tuple[str, float]]()
    for name in question.targets:
        (value,) = facts.table.answers(name, asked)
        if isinstance(value, str):
            names = facts.census.named_beside(question.query.kind, asked, name)
            return f"{name} also states {names[0]!r} of {asked}" if names else ""
        values[name] = value
        beside = facts.census.stated_beside(question.query.kind, asked, name)
        said += [(name, end) for one in beside if one.labelled for end in (one.low, one.high)]
    for name, value in said:
        read = values | {name: value}
        best, other = (
            [one for one in of if of[one] == (min if shape == "least" else max)(of.values())]
            for of in (values, read)
        )
        if (value != values[name] and question.by is None) or best != other:
            return f"{name} also states {value:g} of {asked}"
    return ""


def chain(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether no entity stands twice on the way: one that is met again gives away what is inside."""
    met = set(question.targets) | {question.group}
    inner = [clause.entity for clause in question.query.clauses if clause.entity is not None]
    steps = 0
    while inner:
        query = inner.pop()
        found = facts.census.count(query)
        if twice := met.intersection(found):
            return failed("chain", f"{sorted(twice)[0]} is met twice")
        met.update(found)
        inner += [clause.entity for clause in query.clauses if clause.entity is not None]
        steps += 1
    if not steps:
        return _not_applicable("chain", "its clues name no other document")
    return passed("chain", steps)


def minimal(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether no clause can be left out, at any depth, and none is enough alone."""
    size = len(question.targets)
    smaller = [(query, size) for query in question.query.without()]
    for clause in question.query.clauses:
        alone = EntityQuery(kind=question.query.kind, clauses=(clause,))
        smaller.append((alone, max(1, size)))
    for query, most in smaller:
        if len(facts.census.count(query)) <= most:
            return failed("minimal", f"{query.model_dump_json(exclude_none=True)[:500]} is enough")
    return passed("minimal", len(smaller))


def near_answers(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether answers that all clauses but one give are refused: near entities', or the wider question's."""
    given = near(question, facts)
    if not given:
        return _not_applicable("near_answers", "there are none")
    accepted = sum(good for _, good in given)
    share = accepted / len(given)
    if share > (MAX_SHARE if question.shape == "one" else 0):
        return failed("near_answers", f"{accepted} of {len(given)} near answers are right, too")
    return passed("near_answers", len(given), share)


def near(question: SearchQuestion, facts: CorpusFacts) -> list[tuple[JsonValue, bool]]:
    """Answers that all clauses but one give, and whether each is accepted."""
    answer = answer_of(question, facts.table, question.targets)
    rest = [facts.census.count(query) for query in question.query.without()]
    given: list[JsonValue]
    if question.shape in ("one", "none"):
        names = sorted({name for found in rest for name in found} - set(question.targets))
        given = [
            str(one) for name in names[:MAX_NEAR] for one in facts.table.answers(name, question.ask)
        ]
    else:
        # Of thousands that fit without a clause, some: a list of them is as wrong.
        some = (found[:MAX_NEAR] if question.shape == "set" else found for found in rest)
        wider = (answer_of(question, facts.table, found) for found in some)
        given = [list(one.values) if one.kind == "set" else str(one.values[0]) for one in wider]
    return [(one, accepts(answer, one)) for one in given]


def leak(question: SearchQuestion, facts: CorpusFacts, prompt: str) -> GateResult:
    """Whether the answer stands neither in the question nor in ids, addresses and titles of evidence."""
    answer = answer_of(question, facts.table, question.targets)
    shown = [("the question", prompt)]
    for name in question.evidence if question.shape == "one" else ():
        document = facts.documents[name]
        shown += [(f"the id {name}", name), (f"the address of {name}", document.url or "")]
        if name not in question.targets or question.ask != TITLE:
            shown.append((f"the title of {name}", document.title))
    return _unsaid("leak", answer, shown)


def written_leak(
    question: WrittenQuestion, page: Callable[[str], DocumentText | None]
) -> GateResult:
    """The same of a question that a model wrote."""
    shown = [("the question", question.question)]
    for name in question.evidence:
        document = page(name)
        assert document is not None
        shown += [(f"the id {name}", name), (f"the address of {name}", document.url or "")]
        if name != question.source:
            shown.append((f"the title of {name}", document.title))
    return _unsaid("leak", question.answer, shown)


def _unsaid(gate: str, answer: ShortAnswer, shown: list[tuple[str, str]]) -> GateResult:
    for what, text in shown:
        if says(text, answer):
            return failed(gate, f"the answer stands in {what}")
    return passed(gate, len(shown))


def prior(question: SearchQuestion, facts: CorpusFacts) -> GateResult:
    """Whether the answer is no better guess than one in three."""
    if question.shape in ("set", "count", "none"):
        return _not_applicable("prior", f"a guess at a {question.shape} is one among many")
    among = len(facts.table.members[question.query.kind])
    share = 1 / max(1, len(question.targets))
    if question.shape == "one":
        (value,) = answer_of(question, facts.table, question.targets).values
        assert isinstance(value, str | int | float)
        share = facts.table.share(question.query.kind, question.ask, value)
    if share > MAX_SHARE:
        return failed("prior", f"{share:.0%} of all answers of this kind are right")
    return passed("prior", among, share)


def single_search(question: SearchQuestion, facts: CorpusFacts, prompt: str) -> GateResult:
    """Whether no single search shows the answer: the question whole, and each clause alone."""
    if question.query.depth < 2 or question.shape in ("count", "none"):
        reason = "asked where the answer is a name or value, and two documents or more lead to it"
        return _not_applicable("single_search", reason)
    answer = answer_of(question, facts.table, question.targets)
    return _unseen([prompt, *clue_texts(question, facts.table)], answer, top_of(facts.opened))


def written_single_search(question: WrittenQuestion, top: Callable[[str], str]) -> GateResult:
    """The same of a question that a model wrote; ``top`` gives what a search shows."""
    return _unseen([question.question, *(one.text for one in question.clues)], question.answer, top)


def top_of(opened: OpenCorpus) -> Callable[[str], str]:
    """Titles and snippets that a search of a corpus shows first."""

    def top(query: str) -> str:
        shown = []
        for hit in results(opened, query, TOP, 1):
            assert isinstance(hit, dict)
            shown.append(f"{hit['title']}\n{hit['snippet']}")
        return "\n".join(shown)

    return top


def _unseen(queries: list[str], answer: ShortAnswer, top: Callable[[str], str]) -> GateResult:
    for query in queries:
        if says(top(query), answer):
            return failed("single_search", f"{query[:200]!r} shows it")
    return passed("single_search", len(queries))


def says(text: str, answer: ShortAnswer) -> bool:
    """Whether a text holds an answer in one of its forms, or all members of a set."""
    folded = fold(text)
    held = (_holds(folded, value) for value in answer.values)
    return all(held) if answer.kind == "set" else any(held)


def _holds(folded: str, value: JsonValue) -> bool:
    if isinstance(value, str):
        wanted = fold(value)
        found = re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", folded) is not None
        return found or (not value.isascii() and wanted in folded)
    plain = re.escape(f"{value:,}") + "|" + re.escape(str(value))
    return re.search(rf"(?<![\d.,])(?:{plain})(?![\d]|[.,]\d)", folded) is not None


def _not_applicable(gate: str, reason: str) -> GateResult:
    return GateResult(gate=gate, status=GateStatus.NOT_APPLICABLE, reason=reason)
