"""What math-verify, the checker that trainers use, says of the same answers as ours.

    pip install math-verify==0.9.0
    python -P benchmarks/second_opinion.py

Of the pairs of ``tests/data/math_pairs.jsonl``, whose labels were written by hand, and of the package's
problems: gold, and the near answers that the gate ``near_answers`` refuses. It is asked in a process of its
own that is killed after ten seconds: nothing less bounds what it does with ``9^9^9^9``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import envgen
from envgen.verifiers.maths import MathAnswer, accepts

PAIRS = Path(__file__).parents[1] / "tests" / "data" / "math_pairs.jsonl"
LIMIT_S = 10.0
_COLUMNS = ("agree", "accepts what is wrong", "refuses what is right", "no answer")


def main() -> None:
    table: dict[str, Counter[str]] = {}
    print(f"{'':<28}{''.join(f'{one:>24}' for one in _COLUMNS)}")
    with SecondOpinion() as opinion:
        for name, group in groupby([*_pairs(), *_problems()], key=lambda one: one[0]):
            counts = table.setdefault(name, Counter())
            for _, gold, given, equal in group:
                said = opinion.agrees(gold, given)
                if said is None:
                    counts["no answer"] += 1
                elif said == equal:
                    counts["agree"] += 1
                else:
                    counts[_COLUMNS[1 if said else 2]] += 1
            print(f"{name:<28}{''.join(f'{counts[one]:>24}' for one in _COLUMNS)}", flush=True)


def _pairs() -> Iterator[tuple[str, str, str, bool]]:
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    for row in sorted(rows, key=lambda one: str(one["kind"])):
        yield f"pairs: {row['kind']}", row["gold"], row["given"], row["equal"]


def _problems() -> Iterator[tuple[str, str, str, bool]]:
    dataset = envgen.load("package:interpreter_problems")
    for near in (False, True):
        for task_id in dataset.tasks:
            answer = MathAnswer.model_validate_json(dataset.task_files(task_id).verifier)
            if not near:
                yield "problems: gold", answer.value, answer.value, True
                continue
            for given in (f"{answer.value}1", f"-{answer.value}", f"{answer.value} or so"):
                if not accepts(answer, given):
                    yield "problems: near answers", answer.value, given, False


class SecondOpinion:
    """math-verify in a process that is killed when it takes too long."""

    def __enter__(self) -> SecondOpinion:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_answer, args=(other,), daemon=True)
        self._process.start()
        assert self._pipe.poll(60.0)
        self._pipe.recv()

    def agrees(self, gold: str, given: str) -> bool | None:
        """Whether it takes ``given`` for ``gold``, each as the box of a solution; None: it gave no answer."""
        self._pipe.send((gold, given))
        if self._pipe.poll(LIMIT_S):
            said = self._pipe.recv()
            return said if isinstance(said, bool) else None
        self._process.kill()
        self._process.join()
        self._start()
        return None


def _answer(pipe: Connection) -> None:
    from math_verify import parse, verify

    pipe.send("ready")
    while True:
        gold, given = pipe.recv()
        try:
            pipe.send(bool(verify(parse(_boxed(gold)), parse(_boxed(given)))))
        except Exception as error:
            pipe.send(repr(error))


def _boxed(text: str) -> str:
    return text if "\\boxed" in text else f"\\boxed{{{text}}}"


if __name__ == "__main__":
    main()
