"""A question as a task: its words, its gold run through the agent's tools, its answer."""

from __future__ import annotations

import json
from collections.abc import Collection

from pydantic import JsonValue

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import PipelineError
from envgen.core.types import CallRecord, Difficulty, GoldRun, Limits, Schema, TaskSpec
from envgen.environments.search import OpenCorpus, pages, run_tool, search_environment
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.search.questions import NONE, TITLE, FactTable, SearchQuestion
from envgen.pipelines.search.wording import worded
from envgen.policies.search_reader import SEARCH_HINT
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.verifiers.answers import ShortAnswer

LIMITS = Limits(turns=40, tokens=65_536)
SCHEMAS: dict[str, Schema] = {
    "text": {"type": "string", "maxLength": 200, SEARCH_HINT: True},
    "number": {"type": "number", SEARCH_HINT: True},
    "year": {"type": "integer", SEARCH_HINT: True},
    "set": {"type": "array", "items": {"type": "string", "maxLength": 200}, SEARCH_HINT: True},
}


def environment(opened: OpenCorpus) -> EnvironmentBundle:
    """The environment of questions about a corpus."""
    corpus = opened.corpus
    spec = search_environment(corpus.hash, corpus.header, opened.engine)
    blueprint: dict[str, JsonValue] = {"corpus": corpus.hash, "title": corpus.header.title}
    if opened.engine != "fts5":
        blueprint["engine"] = opened.engine
    return EnvironmentBundle(spec=spec, blueprint=blueprint)


def answer_of(question: SearchQuestion, table: FactTable, targets: Collection[str]) -> ShortAnswer:
    """What is accepted if these are the entities that fit.

    Raises:
        PipelineError: if they give no answer, or several.
    """
    match question.shape:
        case "none":
            return ShortAnswer(kind="text", values=NONE)
        case "set":
            return ShortAnswer(
                kind="set", values=tuple(sorted(table.titles[one] for one in targets))
            )
        case "count":
            return ShortAnswer(kind="number", values=(len(targets),))
        case "least" | "most":
            known = [one for one in targets if question.by in table.facts[one]]
            best = table.extreme(known, question.by or "", question.shape)
            if best is None:
                raise PipelineError(f"no one of {len(targets)} has the {question.shape}")
            return ShortAnswer(kind="text", values=(table.titles[best],))
    values = {value for one in targets for value in table.answers(one, question.ask)}
    if len(targets) != 1 or len(values) != 1:
        raise PipelineError(
            f"{len(targets)} entities have {len(values)} values of {question.ask!r}"
        )
    (value,) = values
    if isinstance(value, str):
        return ShortAnswer(kind="text", values=(value,))
    spec = table.spec(question.query.kind, question.ask)
    if spec is not None and spec.kind == "year":
        return ShortAnswer(kind="year", values=(value,))
    return ShortAnswer(kind="number", values=(value,), unit=spec.unit if spec else "")


def task_of(question: SearchQuestion, table: FactTable, opened: OpenCorpus) -> TaskDraft:
    """The whole task of a question; the same for the same question and corpus."""
    bundle = environment(opened)
    answer = answer_of(question, table, question.targets)
    calls = [_reading(question, table, opened, document) for document in question.evidence]
    spec = TaskSpec(
        id=f"q-{content_hash(question)[:16]}",
        environment_id=bundle.spec.id,
        family="search",
        prompt=worded(question, table),
        submit_schema=SCHEMAS[answer.kind],
        limits=LIMITS,
        difficulty=Difficulty(level=question.level, gold_calls=len(calls), distinct_tools=1),
    )
    task = TaskBundle(
        spec=spec,
        solution=pretty(question),
        verifier=pretty(answer),
        gold=GoldRun(calls=tuple(calls), answer=_given(answer)),
    )
    return TaskDraft(bundle, task, group=question.group)


def _given(answer: ShortAnswer) -> JsonValue:
    return list(answer.values) if answer.kind == "set" else answer.values[0]


def _reading(
    question: SearchQuestion, table: FactTable, opened: OpenCorpus, document: str
) -> CallRecord:
    """The call that opens a document where it says what is needed."""
    page = 1
    if document in question.targets and question.ask != TITLE:
        fact = table.facts[document][question.ask][0]
        found = opened.corpus.page(document)
        assert found is not None
        borders = pages(found.text)
        shown = [
            i for i, (low, high) in enumerate(borders, 1) if low <= fact.start < fact.end <= high
        ]
        if not shown:
            raise PipelineError(f"the answer in {document!r} is cut by the end of a page")
        page = shown[0]
    arguments: dict[str, JsonValue] = {"document": document, "page": page}
    result = run_tool(opened, "open", arguments)
    return CallRecord(name="open", arguments=arguments, result=json.loads(json.dumps(result.value)))
