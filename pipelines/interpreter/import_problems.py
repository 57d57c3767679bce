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
from envgen.pipelines.import_records import RecordsSummary, import_records
from envgen.pipelines.interpreter.tasks import LIMITS, SCHEMA
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.verifiers.answers import fold
from envgen.verifiers.maths import MathAnswer

PROBLEM_FIELDS = ("problem", "question", "prompt", "Problem", "Question")
ANSWER_FIELDS = ("answer", "final_answer", "expected_answer", "ground_truth", "Answer", "label")
UNUSABLE = ("proof", "notfound", "none", "n/a")
"""Placeholders that published sets use for a missing answer."""
_BOX = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_MAX_ANSWER = 300


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
    return import_records(
        Path(file), Path(out), EnvironmentBundle(spec=spec), take, name="problems"
    )


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
    answer = typed(text)
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


def typed(text: str) -> MathAnswer | None:
    """An answer with its type; None where it has none that can be judged exactly."""
    if len(text) > _MAX_ANSWER:
        return None
    try:
        return _typed(text)
    except ValueError:  # it can't be read as what it looks like
        return None


def _typed(text: str) -> MathAnswer | None:
    plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.replace("\\!", "").replace("\\,", ""))
    plain = plain.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    plain = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", plain).strip()
    if re.fullmatch(r"[+-]?\d+", plain):
        return MathAnswer(kind="integer", value=plain.lstrip("+"))
    if re.fullmatch(r"[+-]?\d+/\d+", plain):
        return MathAnswer(kind="rational", value=plain.lstrip("+"))
    if re.fullmatch(r"[+-]?\d*\.\d+", plain):
        return MathAnswer(kind="decimal", value=plain, digits=len(plain.rpartition(".")[2]))
    if re.fullmatch(r"\(?[A-J]\)?", plain):
        return MathAnswer(kind="string", value=plain.strip("()"))
    return _structured(text)


def _structured(text: str) -> MathAnswer | None:
    """Sets, matrices and expressions; a pair in round brackets may be a point or an interval: it is none."""
    if re.match(r"\\?\{", text):
        return MathAnswer(kind="set", value=text)
    if re.match(r"\\begin\{[pb]matrix\}", text):
        return MathAnswer(kind="matrix", value=text)
    bare = re.sub(r"\\[a-zA-Z]+", " ", text)
    letters = re.findall(r"[a-zA-Z]+", bare)
    if "," in text or any(len(one) > 1 for one in letters):
        return None
    variables = tuple(sorted(set(letters) - {"e"}))
    return MathAnswer(kind="expression", value=text, variables=variables)
