"""Code-interpreter problems from makers to played episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import gymnasium
import pytest
from every_maker import every_maker

from envgen.core.types import GateStatus
from envgen.environments.host import submitted_text
from envgen.environments.hosts import open_dataset
from envgen.environments.interpreter import MAX_CALLS, InterpreterEnv
from envgen.pipelines.interpreter.config import InterpreterConfig
from envgen.pipelines.interpreter.generate import generate_interpreter
from envgen.pipelines.interpreter.makers.maker import Maker
from envgen.pipelines.interpreter.makers.registry import all_makers
from envgen.pipelines.interpreter.tasks import InterpreterProblem
from envgen.pipelines.interpreter.validate import derived_twice, near_answers
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.sandboxes.kernel import Kernel
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter
from envgen.verifiers.maths import MathAnswer, accepts

pytestmark = pytest.mark.bwrap


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("code") / "int"
    summary = generate_interpreter(InterpreterConfig(problems=6, level="1..2"), out, workers=1)
    assert summary.tasks == 6
    return Dataset.open(out)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as one:
        yield one


@every_maker
def test_a_maker_s_methods_agree_at_every_level(maker: Maker) -> None:
    for level in (1, 4, 8):
        params = dict(maker.draw(Random(f"{maker.name} {level}"), level))
        assert json.loads(json.dumps(params)) == params
        assert maker.draw(Random(f"{maker.name} {level}"), level) == params
        answer = maker.solve(params)
        assert accepts(answer, maker.check(params).value), (level, params)
        assert accepts(answer, answer.value)


@every_maker
def test_gold_code_prints_the_answer(maker: Maker, kernel: Kernel) -> None:
    params = maker.draw(Random(maker.name), 2)
    for name, text in (maker.files(params) if maker.files else {}).items():
        kernel.sandbox.write_file(name, text.encode())
    cell = kernel.run(maker.code(params), 60)
    kernel.forget()
    assert cell.status == "ok", cell.output
    assert accepts(maker.solve(params), cell.output.strip().splitlines()[-1]), cell.output


def test_gold_scores_one_and_a_guess_little(problems: Dataset, tmp_path: Path) -> None:
    for policy, least, most in (("gold", 6, 6), ("random-valid", 0, 1)):
        config = RolloutConfig(
            dataset=str(problems.path),
            policy=PolicyConfig(spec=policy),
            out=str(tmp_path / policy),
            concurrency=1,
        )
        summary = rollout(config)
        assert summary.errors == 0
        assert least <= summary.passed <= most


def test_an_agent_computes_step_by_step_and_answers(problems: Dataset) -> None:
    with gymnasium.make("envgen/Interpreter-v0", dataset=problems.path) as env:
        task_id = problems.own_task_ids[0]
        answer = problems.task_files(task_id).gold
        assert answer is not None
        env.reset(options={"task_id": task_id})
        assert step(env, "python", code="x = 20")["output"] == ""
        assert step(env, "python", code="x + 1") == {"output": "21\n"}
        broken = step(env, "python", code="import os; os._exit(1)")
        assert broken["status"] == "lost"
        assert "variables are lost" in broken["note"]
        assert step(env, "python", code="")["error"] == "invalid_arguments"
        for _ in range(MAX_CALLS - 3):
            step(env, "python", code="0")
        assert step(env, "python", code="0")["error"] == "no_executions_left"
        env.reset(options={"task_id": task_id})
        assert "NameError" in step(env, "python", code="x")["output"]
        call = {"name": "submit_result", "arguments": {"answer_text": answer.answer}}
        _, reward, terminated, _, _ = env.step(json.dumps({"tool_calls": [call]}))
        assert (reward, terminated) == (1.0, True)


def step(env: gymnasium.Env[Any, Any], name: str, **arguments: Any) -> Any:
    call = {"name": name, "arguments": arguments}
    text, *_ = env.step(json.dumps({"content": "", "tool_calls": [call]}))
    return json.loads(text)


def test_output_is_no_answer(problems: Dataset) -> None:
    """Printing the answer, boxed or not, earns nothing: only what is submitted counts."""
    env = InterpreterEnv(problems)
    task_id = problems.own_task_ids[0]
    gold = problems.task_files(task_id).gold
    assert gold is not None
    env.reset(options={"task_id": task_id})
    step(env, "python", code=f"print(r'\\boxed{{{gold.answer}}}')")
    call = {"name": "submit_result", "arguments": {"answer_text": "-1"}}
    assert env.step(json.dumps({"tool_calls": [call]}))[1] == 0.0
    env.close()


def test_submissions_are_read_digit_for_digit() -> None:
    assert submitted_text('"1/2"') == "1/2"
    assert submitted_text("12345678901234567890") == "12345678901234567890"
    assert submitted_text("[1, 2]") == "[1, 2]"
    assert submitted_text("9**9**9") == "9**9**9"


@pytest.mark.parametrize("field", ["answer", "prompt", "gold"])
def test_validate_finds_what_was_changed(problems: Dataset, tmp_path: Path, field: str) -> None:
    task_id = problems.own_task_ids[0]
    with DatasetWriter(tmp_path / "changed", name="changed") as writer:
        for env_id in problems.environments:
            writer.add_environment(problems.environment_files(env_id).bundle())
        files = problems.task_files(task_id)
        gold = files.gold
        assert gold is not None
        if field == "answer":
            files = files.model_copy(
                update={"verifier": MathAnswer(kind="integer", value="7").model_dump_json()}
            )
        elif field == "gold":
            gold = gold.model_copy(update={"answer": "7"})
            files = files.model_copy(update={"gold": gold})
        else:
            spec = files.spec.model_copy(update={"prompt": "How many?"})
            files = files.model_copy(update={"spec": spec})
        writer.add_task(files)
        writer.finish()
    (found,) = validate(tmp_path / "changed", workers=1).tasks
    assert found.failure is not None
    assert found.failure.gate == "stored"


NEAR = (
    MathAnswer(kind="decimal", value="3.14", digits=2, unit="m"),
    MathAnswer(kind="decimal", value="0.00", digits=2),
    MathAnswer(kind="decimal", value="-1.5e-7"),
    MathAnswer(kind="rational", value="-1/3"),
    MathAnswer(kind="integer", value="0"),
    MathAnswer(kind="expression", value="sqrt(2)/2"),
    MathAnswer(kind="set", value="{0,1}"),
    MathAnswer(kind="tuple", value="(0,0)"),
    MathAnswer(kind="matrix", value="[[0]]"),
    MathAnswer(kind="interval", value="[0,1)"),
    MathAnswer(kind="choice", value="yes", choices=("yes", "no")),
)


def test_a_wrong_method_and_a_lax_answer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = all_makers()["prime_count"]
    problem = InterpreterProblem(maker=maker.name, level=1, params=dict(maker.draw(Random(1), 1)))
    answer = maker.solve(problem.params)
    assert derived_twice(problem, answer).status is GateStatus.PASSED
    wrong = MathAnswer(kind="integer", value=str(int(answer.value) + 1))
    assert derived_twice(problem, wrong).status is GateStatus.FAILED
    assert near_answers(answer).status is GateStatus.PASSED
    for other in NEAR:
        assert near_answers(other).status is GateStatus.PASSED, other
    lax = MathAnswer(kind="string", value="x")
    monkeypatch.setattr("envgen.pipelines.interpreter.validate.accepts", lambda *_: True)
    assert near_answers(lax).status is GateStatus.FAILED


@pytest.mark.slow
def test_the_shipped_problems_are_what_their_command_makes_and_hold(tmp_path: Path) -> None:
    generate_interpreter(InterpreterConfig(problems=80), tmp_path / "int")
    shipped = open_dataset("package:interpreter_problems")
    assert Dataset.open(tmp_path / "int").manifest.content_hash == shipped.manifest.content_hash
    assert validate(shipped.path).passed
