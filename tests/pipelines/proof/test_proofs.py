"""Proofs as tasks: from statements to played episodes, and gates that a lax checker can't pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from metamath_texts import SMALL

from envgen.core.errors import ConfigError
from envgen.core.seeding import rng
from envgen.core.types import GateStatus
from envgen.environments.hosts import open_dataset
from envgen.pipelines.proof.config import ProofConfig
from envgen.pipelines.proof.generate import draw, generate_proofs, renamed
from envgen.pipelines.proof.tasks import ProofProblem, task_of
from envgen.pipelines.proof.validate import checked, near_proofs, needed, true
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter
from envgen.verifiers.proof_verdict import ProofVerdict

TOLLENS = ProofProblem(
    system="deduction",
    level=1,
    hypotheses=("P -> Q", "~Q", "R"),
    goal="~P",
    proof="1. P -> Q  [premise]\n2. ~Q  [premise]\n3. ~P  [lemma modus-tollens 1 2]",
)
UNIT = ProofProblem(
    system="equational",
    level=1,
    algebra="group",
    goal="mul(mul(inv(a), a), b) = b",
    proof=(
        "1. mul(mul(inv(a), a), b)\n2. = mul(e, b)  [left-inverse at 1]\n3. = b  [left-unit at root]"
    ),
)

LATER = "2. P -> Q  [premise]\n3. ~Q  [premise]\n4. ~P  [lemma modus-tollens 2 3]"
"""Gold of ``TOLLENS``, one line further down."""


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("proofs") / "proofs"
    summary = generate_proofs(ProofConfig(problems=8, level="1..4"), out, workers=1)
    assert summary.tasks == 8
    return Dataset.open(out)


def written(path: Path, *problems: ProofProblem) -> Dataset:
    with DatasetWriter(path, name="own") as writer:
        for draft in map(task_of, problems):
            writer.add_environment(draft.environment)
            writer.add_task(draft.task)
        writer.finish()
    return open_dataset(path, unproven=True)


def step(env: gymnasium.Env[Any, Any], name: str, **arguments: Any) -> Any:
    call = {"name": name, "arguments": arguments}
    return json.loads(env.step(json.dumps({"content": "", "tool_calls": [call]}))[0])


def submit(env: gymnasium.Env[Any, Any], **arguments: Any) -> tuple[float, bool]:
    call = {"name": "submit_proof", "arguments": arguments}
    _, reward, terminated, _, _ = env.step(json.dumps({"tool_calls": [call]}))
    return float(reward), terminated


def test_gold_scores_one_and_a_guess_nothing(proofs: Dataset, tmp_path: Path) -> None:
    for policy, passed in (("gold", 8), ("random-valid", 0)):
        config = RolloutConfig(
            dataset=str(proofs.path),
            policy=PolicyConfig(spec=policy),
            out=str(tmp_path / policy),
            concurrency=1,
        )
        summary = rollout(config)
        assert (summary.errors, summary.passed) == (0, passed)


def test_an_agent_proves_step_by_step(tmp_path: Path) -> None:
    dataset = written(tmp_path / "own", TOLLENS)
    env = gymnasium.make("envgen/Proof-v0", dataset=dataset)
    env.reset()
    assert step(env, "search_lemma", query="tollens")[0]["name"] == "modus-tollens"
    assert step(env, "search_lemma", query="zzz") == []
    first = step(env, "apply", steps="P -> Q [premise]\n| P [assume]")
    assert first["lines"] == ["1. P -> Q [premise]", "| 2. P [assume]"]
    assert first["open_goals"][0].startswith("P |- ?")
    assert first["open_goals"][1] == "~P"
    wrong = step(env, "apply", steps="| Q [implies-elim 1 2]\n| false [not-elim 9 3]")
    assert wrong["error"] == "wrong_step"
    assert wrong["message"].startswith("step 4: line 9")
    assert step(env, "apply", steps="| 3. Q [implies-elim 1 2]")["lines"] == [
        "| 3. Q [implies-elim 1 2]"
    ]
    rest = step(env, "apply", steps="~Q [premise]\n~P [lemma modus-tollens 1 2]", after=1)
    assert rest == {
        "lines": ["2. ~Q [premise]", "3. ~P [lemma modus-tollens 1 2]"],
        "open_goals": [],
    }
    assert step(env, "check", proof="1. ~P [premise]")["wrong_step"] == 1
    assert step(env, "check", proof="")["error"] == "no_proof"
    assert submit(env) == (1.0, True)
    for text in (TOLLENS.proof, json.dumps(TOLLENS.proof)):
        env.reset()
        assert submit(env, answer_text=text) == (1.0, True)
    env.reset()
    assert submit(env) == (0.0, True)  # no step of the last episode is left
    env.close()


def test_a_chain_is_applied_term_by_term(tmp_path: Path) -> None:
    env = gymnasium.make("envgen/Proof-v0", dataset=written(tmp_path / "own", UNIT))
    env.reset()
    found = step(env, "apply", steps="mul(e, b) [left-inverse]")
    assert found == {"lines": ["2. = mul(e, b) [left-inverse]"], "open_goals": ["mul(e, b) = b"]}
    assert step(env, "apply", steps="a [left-unit]")["message"].startswith("step 2: ")
    assert step(env, "apply", steps="3. = b [left-unit]")["open_goals"] == []
    assert submit(env, answer_text="") == (1.0, True)
    env.close()


@pytest.mark.parametrize(
    "steps",
    [
        "x" * 20_000,
        "|" * 20_000,
        "\n".join(["R [premise]"] * 501),
        "\u2028 [premise]",
        "1. [",
        "((((" * 4000,
    ],
)
def test_no_steps_end_an_episode(tmp_path: Path, steps: str) -> None:
    env = gymnasium.make("envgen/Proof-v0", dataset=written(tmp_path / "own", TOLLENS))
    env.reset()
    assert step(env, "apply", steps=steps)["error"] in ("wrong_step", "invalid_arguments")
    assert submit(env, answer_text=TOLLENS.proof) == (1.0, True)
    env.close()


def test_statements_that_differ_in_names_are_alike() -> None:
    other = TOLLENS.model_copy(update={"hypotheses": ("S -> R", "~R", "P"), "goal": "~S"})
    assert renamed(other) == renamed(TOLLENS)
    assert renamed(UNIT) != renamed(TOLLENS)


@pytest.mark.parametrize("system", ["deduction", "equational"])
def test_drawn_statements_pass_every_gate(system: str) -> None:
    for level in (1, 4, 8):
        problem = draw(rng(11, level), system, level)
        gates = [checked, true, near_proofs, *([needed] if system == "deduction" else [])]
        assert {gate(problem).status for gate in gates} == {GateStatus.PASSED}
        assert near_proofs(problem).n > level


def test_gates_refuse_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = TOLLENS.model_copy(update={"proof": TOLLENS.proof.replace("1 2", "2 1")})
    assert checked(bad).reason.startswith("step 3")
    assert "leave a goal open" not in checked(TOLLENS).reason
    assert "makes the hypotheses true" in true(TOLLENS.model_copy(update={"goal": "P"})).reason
    both = TOLLENS.model_copy(update={"hypotheses": ("P", "~P")})
    assert "contradict" in true(both).reason
    assert (
        "false in model" in true(UNIT.model_copy(update={"goal": "mul(a, b) = mul(b, a)"})).reason
    )
    more = TOLLENS.model_copy(update={"proof": f"1. R  [premise]\n{LATER}"})
    assert "follows without R" in needed(more).reason
    for system, problem in (("DeductionSystem", TOLLENS), ("EquationalSystem", UNIT)):
        place = f"envgen.verifiers.proof_statement.{system}.check"
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *_: ProofVerdict(9))
            assert "found nowhere" in near_proofs(problem).reason
    # It finds errors in lines, but takes a proof that ends elsewhere.
    monkeypatch.setattr("envgen.verifiers.deduction.Scope.unfinished", lambda *_: "")
    assert "a cut proof was accepted" in near_proofs(TOLLENS).reason


def test_theorems_of_metamath_are_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "small.mm"
    database.write_text(SMALL)
    config = ProofConfig(system="metamath", problems=3, level="1", database=database)
    assert generate_proofs(config, tmp_path / "mm", workers=1).tasks == 3
    dataset = Dataset.open(tmp_path / "mm")
    for task in validate(dataset.path, workers=1).tasks:
        assert [one.gate for one in task.evidence if one.reason] == ["true"]
        assert task.passed
    problem = ProofProblem.model_validate_json(dataset.task_files(dataset.own_task_ids[0]).solution)
    assert problem.source not in problem.proof.split()
    env = gymnasium.make("envgen/Proof-v0", dataset=dataset)
    env.reset(options={"task_id": dataset.own_task_ids[0]})
    assert step(env, "apply", steps=problem.source)["error"] == "wrong_step"
    state: Any = None
    for one in problem.steps:
        state = step(env, "apply", steps=one)
    assert state["open_goals"] == []
    assert submit(env) == (1.0, True)
    env.close()
    assert near_proofs(problem).n > 20
    monkeypatch.setattr(
        "envgen.verifiers.metamath_system.MetamathSystem.check", lambda *_: ProofVerdict(9)
    )
    assert "was accepted" in near_proofs(problem).reason
    with pytest.raises(ConfigError, match="no Metamath database"):
        generate_proofs(config.model_copy(update={"database": tmp_path / "no.mm"}), tmp_path / "x")


@pytest.mark.parametrize("field", ["goal", "policy", "theory", "answer"])
def test_validate_finds_what_was_changed(proofs: Dataset, tmp_path: Path, field: str) -> None:
    task_id = proofs.own_task_ids[0]
    files = proofs.task_files(task_id)
    bundle = proofs.environment_files(files.spec.environment_id).bundle()
    if field == "goal":
        files = files.model_copy(update={"verifier": '{"goal": "P | ~P", "hypotheses": []}'})
    elif field == "answer":
        assert files.gold is not None
        gold = files.gold.model_copy(update={"answer": "1. P [premise]"})
        files = files.model_copy(update={"gold": gold})
    elif field == "policy":
        spec = bundle.spec.model_copy(update={"policy_text": "Prove."})
        bundle = bundle.model_copy(update={"spec": spec})
    else:
        blueprint = json.loads(json.dumps(bundle.blueprint))
        blueprint["equations"]["goal"] = "x = y"
        bundle = bundle.model_copy(update={"blueprint": blueprint})
    with DatasetWriter(tmp_path / "changed", name="changed") as writer:
        writer.add_environment(bundle)
        writer.add_task(files)
        writer.finish()
    (found,) = validate(tmp_path / "changed", workers=1).tasks
    assert found.failure is not None
    assert found.failure.gate == "stored"


@pytest.mark.slow
def test_the_shipped_proofs_are_what_their_command_makes_and_hold(tmp_path: Path) -> None:
    generate_proofs(ProofConfig(problems=64), tmp_path / "proofs")
    shipped = open_dataset("package:proofs")
    made = Dataset.open(tmp_path / "proofs")
    assert made.manifest.content_hash == shipped.manifest.content_hash
    assert validate(shipped.path).passed
