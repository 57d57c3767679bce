"""``envgen validate`` on code-interpreter tasks: derive the answer again, twice, and run gold in a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

from envgen.core.types import GateResult, GateStatus
from envgen.environments.interpreter import InterpreterEnv
from envgen.pipelines.boundary import failure, guarded
from envgen.pipelines.interpreter.makers.registry import find_maker
from envgen.pipelines.interpreter.tasks import InterpreterProblem, task_of
from envgen.pipelines.played import played
from envgen.pipelines.stored import IMPORTED, failed, passed, stored
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.sandboxes.kernel import Kernel
from envgen.store.dataset import Dataset
from envgen.verifiers.maths import MathAnswer, accepts


class InterpreterValidator(TaskValidator):
    """Proves code-interpreter problems again: by their makers' two methods, and in a kernel."""

    family = "interpreter"
    methods: ClassVar = {"derived": "derived again by two methods, and run in a kernel"}

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        # One kernel for all: what runs in it is compared with what its maker writes before.
        self._env = InterpreterEnv(dataset, backend=options.backend, reuse=True)
        self._kernel: Kernel | None = None

    def __exit__(self, *_: object) -> None:
        self._env.close()
        if self._kernel is not None:
            self._kernel.close()

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        evidence = tuple(self._gates(task_id))
        return TaskValidation(
            task_id=task_id, method="derived", passed=failure(evidence) is None, evidence=evidence
        )

    def group(self, task_id: str) -> str:
        """See ``TaskValidator``: problems about one table share a split."""
        solution = self.dataset.task_files(task_id).solution
        if not solution:
            return ""
        maker = find_maker(InterpreterProblem.model_validate_json(solution).maker)
        return self.dataset.facts(task_id).environment_id if maker.files else task_id

    def _gates(self, task_id: str) -> Iterator[GateResult]:
        files = self.dataset.task_files(task_id)
        if not files.solution:
            yield IMPORTED
            return
        problem = InterpreterProblem.model_validate_json(files.solution)
        same = stored(self.dataset, task_id, lambda: task_of(problem))
        yield same
        if same.status is GateStatus.FAILED:  # what follows would run somebody else's code
            return
        answer = MathAnswer.model_validate_json(files.verifier)
        yield guarded("derived_twice", lambda: derived_twice(problem, answer))
        yield guarded("near_answers", lambda: near_answers(answer))
        yield guarded("computed", lambda: self._computed(problem, answer))
        yield played(self._env, task_id)

    def _computed(self, problem: InterpreterProblem, answer: MathAnswer) -> GateResult:
        """Whether gold's code, run in a kernel, prints the answer as its last line."""
        maker = find_maker(problem.maker)
        if self._kernel is None:
            self._kernel = Kernel(self.options.backend)
        for name, text in (maker.files(problem.params) if maker.files else {}).items():
            self._kernel.sandbox.write_file(name, text.encode())
        cell = self._kernel.run(maker.code(problem.params), 60.0)
        self._kernel.forget()
        last = (cell.output.strip().splitlines() or [""])[-1]
        if cell.status != "ok" or not accepts(answer, last):
            return failed("computed", f"it ended with {cell.status} and printed {last[:200]!r}")
        return passed("computed")


def derived_twice(problem: InterpreterProblem, answer: MathAnswer) -> GateResult:
    """Whether the maker's other method gives the same answer."""
    again = find_maker(problem.maker).check(problem.params)
    if not (accepts(answer, again.value) and accepts(again, answer.value)):
        return failed(
            "derived_twice", f"one method gives {answer.value!r}, another {again.value!r}"
        )
    return passed("derived_twice", 2)


def near_answers(answer: MathAnswer) -> GateResult:
    """Whether near answers are refused: the next numbers, another sign, nothing, more words behind."""
    near = ["", answer.value + " or so", f"{answer.value} {answer.value}", "-" + answer.value]
    if answer.kind == "decimal":  # one more digit may be right, another last one is not
        value = Fraction(answer.value)
        step = Fraction(1, 10**answer.digits) if answer.digits else abs(value) / 10**5
        near += [str(value + step), str(value - step)] if step else ["1"]
    else:
        near.append(answer.value + "1")
    if answer.kind == "integer":
        near += [str(int(answer.value) + step) for step in (-1, 1, 10)]
    wrong = [one for one in near if not re.fullmatch(r"-[0.]+", one)]
    accepted = [one for one in wrong if accepts(answer, one)]
    if accepted:
        return failed("near_answers", f"{accepted[0]!r} is accepted, too")
    return passed("near_answers", len(wrong))
