"""Published sets of problems as tasks: fields found by their usual names, answers typed; proven by nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from envgen.core.canonical import content_hash, pretty
from envgen.core.types import Difficulty, TaskSpec
from envgen.environments.interpreter import interpreter_environment
from envgen.pipelines.import_records import (
    RecordsSummary,
    Refusal,
    Testimony,
    import_records,
)
from envgen.pipelines.interpreter.answer_types import (
    MAX_ANSWER,
    typed,
    without_group_commas,
)
from envgen.pipelines.interpreter.near_twins import near_twins
from envgen.pipelines.interpreter.second_reading import READER, read_again
from envgen.pipelines.interpreter.tasks import LIMITS, SCHEMA
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.verifiers.answers import fold
from envgen.verifiers.maths import MathAnswer, accepts

PROBLEM_FIELDS = ("problem", "question", "prompt", "Problem", "Question")
ANSWER_FIELDS = ("answer", "final_answer", "expected_answer", "ground_truth", "Answer", "label")
UNUSABLE = ("proof", "notfound", "none", "n/a")
"""Placeholders that published sets use for a missing answer."""
_MAX_SOLUTION = 100_000
_BOX = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")


def import_problems(file: str | Path, out: str | Path, *, level: int = 1) -> RecordsSummary:
    """Make a dataset of problems and answers in a file. Nothing is proven: play it with ``unproven``.

    Known are the fields of GSM8K (the number behind ``####``), MATH-500, AIME, DAPO and its kin (``prompt``
    as messages, ``reward_model.ground_truth``), NuminaMath, DeepMath, Big-Math, OpenR1-Math, and whatever
    names its fields so. An answer may stand in the last box of ``solution``. Equal problems are taken once;
    proofs and answers of no type that can be judged exactly are left out, and counted.

    Args:
        file: JSONL, JSON (a list), or a table.
        out: the dataset folder; it must not exist.
        level: of all problems that don't state one of 1 to 8.

    Raises:
        ConfigError: if the file can't be read, or ``out`` exists.
        PipelineError: if no record gives a task.
    """
    spec = interpreter_environment("imported-problems", "Problems that somebody else wrote")
    take = partial(_task, env_id=spec.id, level=level)
    bundle = EnvironmentBundle(spec=spec)
    return import_records(Path(file), Path(out), bundle, take, name="problems", witness=_witness)


def _witness(tasks: Mapping[str, TaskBundle]) -> Testimony:
    """Leave out golds that accept a near twin, or that a second reader reads otherwise."""
    golds = {name: MathAnswer.model_validate_json(one.verifier) for name, one in tasks.items()}
    refused: dict[str, Refusal] = {}
    for name, gold in golds.items():
        twin = next((one for one in near_twins(gold) if accepts(gold, one)), None)
        if twin is not None:
            told = f"{gold.published!r:.80} would accept {twin!r:.80}"
            refused[name] = Refusal("an answer that accepts a near one", told)
    found = read_again({name: gold for name, gold in golds.items() if name not in refused})
    for name, said in found.apart.items():
        gold = golds[name]
        told = (
            f"{gold.published!r:.80} was read as {gold.kind} {gold.value!r:.80}, a second time as"
        )
        refused[name] = Refusal("an answer that two readers read differently", f"{told} {said:.80}")
    if found.nothing:
        return Testimony(refused, (f"nothing was read twice: {found.nothing}",))
    notes = [f"{n} read once by us alone: {READER}: {why}" for why, n in found.misread.items()]
    return Testimony(refused, tuple(notes))


def _task(record: Mapping[str, Any], env_id: str, level: int) -> TaskBundle | str:
    """The task of a record, or why there is none."""
    problem = _problem(record)
    if not problem:
        return "no problem"
    text = answer_text(record)
    if not text:
        return "no answer"
    if text.casefold().strip(" .") in UNUSABLE:
        return "an answer that is none"
    solution = _solution(record)
    if len(text) <= MAX_ANSWER and without_group_commas(text, solution) is None:
        return "commas between digits that may part numbers"
    answer = typed(text, problem, solution)
    if answer is None:
        return "an answer of no exact type"
    stated = record.get("level")
    known = stated if isinstance(stated, int) and 1 <= stated <= 8 else level
    spec = TaskSpec(
        id=f"p-{content_hash(fold(problem))[:16]}",
        environment_id=env_id,
        family="interpreter",
        prompt=problem,
        submit_schema=SCHEMA,
        limits=LIMITS,
        difficulty=Difficulty(level=known),
    )
    return TaskBundle(spec=spec, verifier=pretty(answer))


def _problem(record: Mapping[str, Any]) -> str:
    for name in PROBLEM_FIELDS:
        value = record.get(name)
        if isinstance(value, list):  # messages: what the user says
            said = [
                one.get("content")
                for one in value
                if isinstance(one, dict) and one.get("role") == "user"
            ]
            value = said[-1] if said else None
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _solution(record: Mapping[str, Any]) -> str:
    """How the answer is reached: in GSM8K's records it stands before the answer."""
    found = [record.get("solution"), *(record.get(name) for name in ANSWER_FIELDS)]
    texts = [found[0], *(str(one).rpartition("####")[0] for one in found[1:])]
    return "\n".join(one[:_MAX_SOLUTION] for one in texts if isinstance(one, str))


def answer_text(record: Mapping[str, Any]) -> str:
    """The answer as the record has it, without what stands around it; empty if there is none."""
    reward = record.get("reward_model")
    places = [record.get(name) for name in ANSWER_FIELDS]
    places += [reward.get("ground_truth")] if isinstance(reward, dict) else []
    for value in places:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            tail = value.rpartition("####")[2].strip()
            boxes = _BOX.findall(tail)
            return (boxes[-1] if boxes else tail).strip().strip("$").strip()
    solution = record.get("solution")
    boxes = _BOX.findall(solution) if isinstance(solution, str) else []
    return boxes[-1].strip() if boxes else ""
