"""A problem as a task: its words, its gold cell, its answer."""

from __future__ import annotations

from pydantic import Field, JsonValue

from envgen.core.canonical import content_hash, pretty
from envgen.core.limits import Json, Label
from envgen.core.types import CallRecord, Difficulty, GoldRun, Id, Limits, Record, Schema, TaskSpec
from envgen.environments.interpreter import PYTHON, interpreter_environment
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.interpreter.makers.registry import find_maker
from envgen.store.bundles import EnvironmentBundle, TaskBundle

LIMITS = Limits(turns=24, tokens=65_536)
SCHEMA: Schema = {"type": "string", "maxLength": 2_000}


class InterpreterProblem(Record):
    """What a problem was made of: the solution of a task."""

    maker: Id
    level: int = Field(ge=1, le=8)
    params: dict[Label, Json]


def environment_of(problem: InterpreterProblem) -> EnvironmentBundle:
    """The environment of a problem: of one kind, or of its table."""
    maker = find_maker(problem.maker)
    files: dict[str, JsonValue] = dict(maker.files(problem.params)) if maker.files else {}
    name, about = f"interpreter-{maker.kind}", ""
    if maker.files and maker.about:
        name, about = f"{name}-{content_hash(files)[:12]}", maker.about(problem.params)
    spec = interpreter_environment(name, f"Problems to compute: {maker.kind}", about)
    return EnvironmentBundle(spec=spec, blueprint={"texts": files})


def task_of(problem: InterpreterProblem) -> TaskDraft:
    """The whole task of a problem; the same for the same problem. Its gold call has no result yet.

    Raises:
        ConfigError: if there is no such maker.
    """
    maker, params = find_maker(problem.maker), problem.params
    answer = maker.solve(params)
    bundle = environment_of(problem)
    arguments: dict[str, JsonValue] = {"code": maker.code(params)}
    spec = TaskSpec(
        id=f"{maker.name.replace('_', '-')}-{content_hash(problem)[:12]}",
        environment_id=bundle.spec.id,
        family="interpreter",
        prompt=maker.text(params),
        submit_schema=SCHEMA,
        limits=LIMITS,
        difficulty=Difficulty(level=problem.level, gold_calls=1, distinct_tools=1),
    )
    task = TaskBundle(
        spec=spec,
        solution=pretty(problem),
        verifier=pretty(answer),
        gold=GoldRun(
            calls=(CallRecord(name=PYTHON.name, arguments=arguments, mutates=True),),
            answer=answer.value,
        ),
    )
    # Problems about one table share a split.
    return TaskDraft(bundle, task, group=bundle.spec.id if maker.files else spec.id)
