"""Questions that somebody else wrote, as tasks over a corpus: playable, and proven by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import ConfigError
from envgen.core.types import Difficulty, TaskSpec
from envgen.environments.search import open_corpus
from envgen.pipelines.import_records import RecordsSummary, import_records
from envgen.pipelines.search.tasks import LIMITS, SCHEMAS, environment
from envgen.store.bundles import TaskBundle
from envgen.store.corpus import Corpus
from envgen.store.corpus_lines import package_corpus
from envgen.verifiers.answers import ShortAnswer, fold

QUESTION_FIELDS = ("question", "query", "problem", "prompt")
ANSWER_FIELDS = ("answer", "answers", "golden_answers", "gold")


def import_questions(
    file: str | Path, out: str | Path, *, corpus: str | Path | None = None, level: int = 1
) -> RecordsSummary:
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
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    known = package_corpus() if corpus is None else Corpus(corpus)
    known.remember()
    bundle = environment(open_corpus(known.hash))
    take = partial(_task, env_id=bundle.spec.id, level=level)
    return import_records(Path(file), out, bundle, take, name="questions")


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
