"""Questions that somebody else wrote, as tasks over a corpus: playable, and proven by nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Count, Label
from envgen.core.types import Difficulty, Record, TaskSpec
from envgen.environments.search import open_corpus
from envgen.pipelines.search.tables import SUFFIXES, read_tables
from envgen.pipelines.search.tasks import LIMITS, SCHEMAS, environment
from envgen.store.bundles import TaskBundle
from envgen.store.corpus import Corpus
from envgen.store.corpus_lines import package_corpus
from envgen.store.splits import assign_splits
from envgen.store.writer import DatasetWriter
from envgen.verifiers.answers import ShortAnswer, fold

QUESTION_FIELDS = ("question", "query", "problem", "prompt")
ANSWER_FIELDS = ("answer", "answers", "golden_answers", "gold")
Skipped = dict[Label, Count]


class ImportQuestionsSummary(Record):
    """What was taken, and what was left out for which reason."""

    path: Label
    tasks: Count
    left_out: Skipped
    """Reason -> records."""


def import_questions(
    file: str | Path, out: str | Path, *, corpus: str | Path | None = None, level: int = 1
) -> ImportQuestionsSummary:
    """Make a dataset of questions and answers in a file. Nothing is proven: play it with ``unproven``.

    A record's question stands under ``question`` (or ``query``, ``problem``, ``prompt``), its answer under
    ``answer``, ``answers``, ``golden_answers`` or ``gold``. A list under ``answers`` or ``golden_answers``
    holds forms of one answer; under ``answer`` it is an answer that is a list.

    Args:
        file: JSONL, JSON (a list), or a table.
        out: the dataset folder; it must not exist.
        corpus: what they are about: a corpus of ``build_corpus``. None: the one in the package.
        level: of all questions: nobody measured them.

    Raises:
        ConfigError: if the file can't be read, or ``out`` exists.
        PipelineError: if no record has a question and an answer.
    """
    file, out = Path(file), Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    known = package_corpus() if corpus is None else Corpus(corpus)
    known.remember()
    bundle = environment(open_corpus(known.hash))
    left_out: dict[str, int] = {}
    tasks: dict[str, TaskBundle] = {}
    for record in _records(file):
        found = _task(record, bundle.spec.id, level)
        reason = found if isinstance(found, str) else ""
        if not isinstance(found, str) and found.spec.id in tasks:
            reason = "asked twice"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        elif not isinstance(found, str):
            tasks[found.spec.id] = found
    if not tasks:
        raise PipelineError(
            f"no record of {str(file)!r} has a question and an answer", str(left_out)
        )
    splits = assign_splits({name: name for name in tasks}, seed=0)
    with DatasetWriter(out, name="questions") as writer:
        writer.add_environment(bundle)
        for name, task in sorted(tasks.items()):
            spec = task.spec.model_copy(update={"split": splits[name]})
            writer.add_task(task.model_copy(update={"spec": spec}))
        writer.finish(funnel={"imported": file.name, "left out": dict(left_out)})
    return ImportQuestionsSummary(path=str(out), tasks=len(tasks), left_out=left_out)


def _task(record: Mapping[str, Any], env_id: str, level: int) -> TaskBundle | str:
    """The task of a record, or why there is none."""
    question = next((record[name] for name in QUESTION_FIELDS if record.get(name)), None)
    if not isinstance(question, str) or not question.strip():
        return "no question"
    answer = _answer(record)
    if isinstance(answer, str):
        return answer
    spec = TaskSpec(
        id=f"q-{content_hash(fold(question))[:16]}",
        environment_id=env_id,
        family="search",
        prompt=question.strip(),
        submit_schema=SCHEMAS[answer.kind],
        limits=LIMITS,
        difficulty=Difficulty(level=level),
    )
    return TaskBundle(spec=spec, verifier=pretty(answer))


def _answer(record: Mapping[str, Any]) -> ShortAnswer | str:
    name = next((one for one in ANSWER_FIELDS if record.get(one) not in (None, "", [])), None)
    if name is None:
        return "no answer"
    value = record[name]
    members = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in members):
        return "an answer that is neither a text nor a number"
    if isinstance(value, list) and name == "answer":
        return ShortAnswer(kind="set", values=tuple(members))
    if not isinstance(members[0], str):
        return ShortAnswer(kind="number", values=(members[0],))
    if not all(fold(str(one)) for one in members):
        return "an empty answer"
    return ShortAnswer(kind="text", values=tuple(map(str, members)))


def _records(file: Path) -> Iterator[Mapping[str, Any]]:
    suffix = file.suffix.lower()
    if suffix in SUFFIXES:
        for table in read_tables(file):
            yield from table.rows
        return
    try:
        text = file.read_text(encoding="utf-8-sig")
        lines = text.splitlines() if suffix == ".jsonl" else [text]
        for number, line in enumerate(lines, 1):
            found = json.loads(line) if line.strip() else []
            for record in found if isinstance(found, list) else [found]:
                if not isinstance(record, dict):
                    raise ConfigError(f"{str(file)!r}, line {number}: a record must be an object")
                yield record
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{str(file)!r} can't be read: {error}", "give JSONL, JSON or a table"
        ) from error
