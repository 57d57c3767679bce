"""A whole family of tasks: sums to work out with a calculator that takes one step at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import add, mul, sub
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from envgen.core import seeding
from envgen.core.families import INWARD, Family
from envgen.core.types import (
    CallRecord,
    Difficulty,
    EnvironmentSpec,
    GateResult,
    GateStatus,
    GoldRun,
    Record,
    Score,
    TaskSpec,
    ToolSpec,
)  # fmt: skip
from envgen.environments.episodes import ToolResult
from envgen.environments.host import HostEnv
from envgen.pipelines.assemble import AssembleSummary, TaskDraft, assemble
from envgen.pipelines.boundary import failure
from envgen.pipelines.played import played
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset

SIGNS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}
NUMBER = {"type": "integer", "minimum": -(10**12), "maximum": 10**12}
ARGUMENTS = {"left": NUMBER, "sign": {"enum": list(SIGNS)}, "right": NUMBER}
CALCULATOR = ToolSpec(
    name="calculate",
    description="Work out one step: left sign right.",
    parameters={"type": "object", "properties": ARGUMENTS, "required": list(ARGUMENTS)},
)
DESK = EnvironmentSpec(id="desk", category="arithmetic", title="Calculator", tools=(CALCULATOR,))


class ArithmeticConfig(Record):
    """What to generate."""

    family: ClassVar[str] = "arithmetic"
    tasks: int = Field(default=20, ge=1)
    """Sums to make."""
    level: int = Field(default=3, ge=1, le=10)
    """Steps of a sum."""
    seed: int = Field(default=0, ge=0)


class ArithmeticEnv(HostEnv):
    """Plays sums; see ``EpisodeEnv`` for observations, actions and the end."""

    family = "arithmetic"

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Work out one step; arguments fit the schema."""
        return ToolResult(SIGNS[arguments["sign"]](arguments["left"], arguments["right"]))

    def judge(self, files: TaskBundle, answer: str) -> Score:
        """1 for the result, and for nothing else."""
        passed = answer.strip() == files.verifier
        return Score(value=float(passed), passed=passed)


class ArithmeticValidator(TaskValidator):
    """Proves sums again: the result is recomputed, gold is played, near numbers are refused."""

    family = "arithmetic"
    methods: ClassVar = {"recomputed": "recomputed from their steps, and played"}

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        self._env = ArithmeticEnv(dataset)

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        files = self.dataset.task_files(task_id)
        again = draft(json.loads(files.solution), task_id).task
        public = again.spec.model_copy(update={"split": files.spec.split}).public(DESK)
        stored = files.spec.public(self.dataset.environments[files.spec.environment_id])
        same = (again.verifier, public) == (files.verifier, stored)
        near = ("", "zero", f"{files.verifier}0", str(int(again.verifier) + 1))
        refused = not any(self._env.judge(files, text).passed for text in near)
        evidence = (
            gate("recomputed", same, 1),
            played(self._env, task_id),
            gate("near_numbers", refused, len(near)),
        )
        holds = failure(evidence) is None
        return TaskValidation(task_id=task_id, method="recomputed", passed=holds, evidence=evidence)


def gate(name: str, holds: bool, n: int) -> GateResult:
    """The result of a gate that made ``n`` trials."""
    return GateResult(gate=name, status=GateStatus.PASSED if holds else GateStatus.FAILED, n=n)


def draft(steps: list[Any], task_id: str) -> TaskDraft:
    """The sum of these steps: ``[7, ["+", 5], ["*", 3]]`` is (7 + 5) * 3."""
    total, *rest = steps
    text, calls = str(total), []
    for sign, right in rest:
        arguments: dict[str, JsonValue] = {"left": total, "sign": sign, "right": right}
        total = SIGNS[sign](total, right)
        calls.append(CallRecord(name="calculate", arguments=arguments, result=total))
        text = f"({text} {sign} {right})"
    spec = TaskSpec(
        id=task_id,
        environment_id=DESK.id,
        family="arithmetic",
        prompt=f"Work out {text[1:-1]} with the calculator and submit the number.",
        submit_schema=NUMBER,
        difficulty=Difficulty(level=len(calls), gold_calls=len(calls), distinct_tools=1),
    )
    gold = GoldRun(calls=tuple(calls), answer=total)
    task = TaskBundle(spec=spec, solution=json.dumps(steps), verifier=str(total), gold=gold)
    return TaskDraft(EnvironmentBundle(spec=DESK), task, group=task_id)


def generate(config: ArithmeticConfig, out: str, **more: Any) -> AssembleSummary:
    """Generate sums; ``more`` goes to ``assemble``."""
    drafts = []
    for i in range(config.tasks):
        rng = seeding.rng(config.seed, "sum", i)
        rest = [[rng.choice("+-*"), rng.randint(2, 99)] for _ in range(config.level)]
        drafts.append(draft([rng.randint(2, 99), *rest], f"sum-{i}"))
    return assemble(config, out, drafts, name="arithmetic", seed=config.seed, **more)


ARITHMETIC = Family(
    name="arithmetic",
    env="envgen_arithmetic.family:ArithmeticEnv",
    validator="envgen_arithmetic.family:ArithmeticValidator",
    generate="envgen_arithmetic.family:generate",
    command="envgen_arithmetic.command:Arithmetic",
    solution_file="steps.json",
    verifier_file="result.txt",
    measured=False,
    packed=True,
    gates=dict.fromkeys(("recomputed", "near_numbers"), INWARD),
    about="**Sums.** Recomputed from their steps; near numbers were refused.",
)
