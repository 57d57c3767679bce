"""Problems for the code interpreter: how fast they are made, and what guessing reaches.

    python -P benchmarks/problems.py [--problems 2000] [--workers 2]

Drafts (numbers, words, answer) and the gates without a kernel: the other method, and near answers. What gold
takes in a kernel is ``benchmarks/kernels.py``'s. By level: drafts that a gate refused, equal prompts, and two
guesses without code: a number from 0 to 100 (what ``random-valid`` submits), and the commonest answer of the
same maker's other problems.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from envgen.core.types import GateStatus
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.interpreter.config import InterpreterConfig
from envgen.pipelines.interpreter.generate import drafts
from envgen.pipelines.interpreter.tasks import InterpreterProblem
from envgen.pipelines.interpreter.validate import derived_twice, near_answers
from envgen.verifiers.maths import MathAnswer, accepts

TARGET_MINUTES = 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    started = time.monotonic()
    made = list(drafts(InterpreterConfig(problems=arguments.problems)))
    drafted = time.monotonic() - started
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        held = list(pool.map(holds, made, chunksize=20))
    minutes = (time.monotonic() - started) / 60
    verb = "meets" if minutes <= TARGET_MINUTES else "MISSES"
    print(
        f"{len(made):,} problems: {minutes:.1f} min ({verb} {TARGET_MINUTES:.0f}), "
        f"{drafted:.0f} s of it drafts in one process"
    )
    by_level(made, held)


def holds(draft: TaskDraft) -> bool:
    """Whether the gates without a kernel hold."""
    problem = InterpreterProblem.model_validate_json(draft.task.solution)
    answer = MathAnswer.model_validate_json(draft.task.verifier)
    found = [derived_twice(problem, answer), near_answers(answer)]
    return all(one.status is GateStatus.PASSED for one in found)


def by_level(made: list[TaskDraft], held: list[bool]) -> None:
    """Print what guessing reaches."""
    answers: dict[str, list[MathAnswer]] = defaultdict(list)
    rows = []
    for draft, good in zip(made, held, strict=True):
        problem = InterpreterProblem.model_validate_json(draft.task.solution)
        answer = MathAnswer.model_validate_json(draft.task.verifier)
        answers[problem.maker].append(answer)
        rows.append((problem.level, problem.maker, answer, draft.task.spec.prompt, good))
    values = {maker: Counter(one.value for one in own) for maker, own in answers.items()}
    print("level  problems  refused  equal  0..100  commonest")
    for level in range(1, 9):
        own = [row for row in rows if row[0] == level]
        numbers = sum(
            sum(accepts(answer, str(n)) for n in range(101)) / 101 for _, _, answer, *_ in own
        )
        commonest = 0
        for _, maker, answer, *_ in own:
            others = values[maker] - Counter([answer.value])
            commonest += bool(others) and accepts(answer, others.most_common(1)[0][0])
        equal = len(own) - len({prompt for *_, prompt, _ in own})
        refused = sum(not good for *_, good in own)
        print(
            f"{level:5}  {len(own):8}  {refused:7}  {equal:5}  {numbers / len(own):6.1%}  "
            f"{commonest / len(own):9.1%}"
        )


if __name__ == "__main__":
    main()
