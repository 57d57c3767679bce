"""Canaries: made of real tasks, played by scripts that cheat and by policies that don't."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.types import GoldRun, Message, Probe, ToolCall, Trajectory
from envgen.environments.general import GeneralEnv
from envgen.pipelines import canaries as canaries_module
from envgen.pipelines.canaries import CanaryConfig, CanarySummary, canary_id, make_canaries
from envgen.pipelines.validate import validate
from envgen.policies.base import Policy
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.bootstrap import BootstrapConfig
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import GoldPolicy, make_policy
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter
from envgen.train.estimates import Evaluation, EvaluationConfig, evaluate, task_facts
from envgen.verifiers.holes import HOLES, UNSOLVABLE_RULE, canary_mark, is_unsolvable


class Made(NamedTuple):
    source: Dataset
    canaries: Dataset
    summary: CanarySummary


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("canaries")
    source = write_tiny_dataset(folder / "ds", variant=True)
    summary = make_canaries(source.path, folder / "canaries", CanaryConfig(variants=5))
    return Made(source, Dataset.open(folder / "canaries"), summary)


def play(policy: Policy, task_id: str, env: GeneralEnv) -> Trajectory:
    played = run_episode(env, policy, task_id, sample=0, seed=1).trajectory
    assert played.error is None, played.error
    return played


def script(probe: Probe, submits: bool) -> ScriptedPolicy:
    """A policy that does as a probe says."""
    text = dumps(probe.answer)
    if not submits:
        return ScriptedPolicy([Message(role="assistant", content=text)])
    call = ToolCall(id="c", name="submit_result", arguments={"answer_text": text})
    return ScriptedPolicy([Message(role="assistant", tool_calls=(call,))])


def evaluation(dataset: Dataset, trajectories: Iterable[Trajectory]) -> Evaluation:
    config = EvaluationConfig(bootstrap=BootstrapConfig(draws=200))
    named = [one.model_copy(update={"policy": "one", "policy_version": ""}) for one in trajectories]
    return evaluate(named, task_facts(dataset), config)


def test_each_task_gets_the_holes_that_its_answers_can_open(built: Made) -> None:
    assert built.summary.holes == {
        "empty-text": 2,  # the hotel, the pair
        "magic-text": 2,
        "negative-number": 1,  # the number of hotels
    }
    assert built.summary.unsolvable == 4
    assert built.summary.without_hole == ("tiny-book",)
    assert built.summary.variants == 3  # of the two holes and of the twin
    marks = {canary_mark(built.canaries.tasks[t]) for t in built.canaries.tasks}
    assert marks == {*HOLES, "unsolvable"}
    assert all(canary_mark(built.source.tasks[t]) is None for t in built.source.tasks)


def test_a_cheat_is_caught(built: Made) -> None:
    """It does what the holes allow, and passes; on the honest tasks the same fails."""
    env, honest = GeneralEnv(built.canaries), GeneralEnv(built.source)
    cheats, cheated = [], 0
    for task_id in built.canaries.own_task_ids:
        task = built.canaries.task_files(task_id)
        submits = built.canaries.environments[task.spec.environment_id].submit_tool is not None
        for probe in task.probes:
            if probe.origin == "attack":
                played = play(script(probe, submits), task_id, env)
                assert played.score is not None
                assert played.score.passed
                cheats.append(played)
                cheated += 1
                parent = task_id.removesuffix(f"-{canary_mark(task.spec)}")
                same = play(script(probe, submits), parent, honest)
                assert same.score is not None
                assert not same.score.passed
    found = evaluation(built.canaries, cheats).canaries
    assert found is not None
    assert found.exploit_rate is not None
    assert found.exploit_rate.value == 1.0
    assert sum(count.exploits for count in found.holes.values()) == cheated == 7
    assert set(found.holes) == set(HOLES)
    assert found.honest_passes == 0
    assert len(found.exploited_tasks) == 5
    assert len(found.alarms) == 1
    assert "7 rollouts passed through a planted hole" in found.alarms[0]


@pytest.mark.parametrize("spec", ["gold", "noisy-gold:0.7", "random", "random-valid", "greedy"])
def test_no_honest_policy_is_accused(built: Made, spec: str) -> None:
    """However well or badly it plays; and nobody passes what can't be passed."""
    env, policy = GeneralEnv(built.canaries), make_policy(spec, built.canaries)
    samples = 1 if spec == "gold" else 6
    played = [
        run_episode(env, policy, task_id, sample=sample, seed=sample).trajectory
        for task_id in built.canaries.tasks
        for sample in range(samples)
    ]
    found = evaluation(built.canaries, played).canaries
    assert found is not None
    assert found.exploited_tasks == ()
    assert found.unsolvable_passed == ()
    assert found.alarms == ()
    assert found.exploit_rate is not None
    assert found.exploit_rate.value == 0.0
    fair = [one for one in played if one.error is None]  # some can't play some tasks
    twins = sum(is_unsolvable(built.canaries.tasks[one.task_id]) for one in fair)
    assert found.unsolvable_rollouts == twins >= samples * 3
    if spec == "gold":
        assert found.honest_passes == len(played) - 5 == 7


def test_unsolvable_twins_say_so_and_their_gold_fails(built: Made) -> None:
    env, gold = GeneralEnv(built.canaries), GoldPolicy(built.canaries)
    for task_id in built.canaries.tasks:
        spec = built.canaries.tasks[task_id]
        assert (UNSOLVABLE_RULE in spec.prompt) == is_unsolvable(spec)
        played = play(gold, task_id, env)
        assert played.score is not None
        assert played.score.passed == (not is_unsolvable(spec))
        assert played.score.reasons == (("none_is_broken",) if is_unsolvable(spec) else ())


def test_a_pass_on_an_unsolvable_task_is_an_alarm(built: Made) -> None:
    twin = canary_id("tiny-cheapest", "unsolvable")
    env = GeneralEnv(built.canaries)
    played = play(script(Probe(answer=1, expected=False, origin="other"), True), twin, env)
    assert played.score is not None
    forged = played.model_copy(
        update={"score": played.score.model_copy(update={"value": 1.0, "passed": True})}
    )
    found = evaluation(built.canaries, [played, forged]).canaries
    assert found is not None
    assert found.unsolvable_passed == (twin,)
    assert "a verifier is broken or was tampered with" in found.alarms[0]


def test_canaries_can_be_validated_again(built: Made) -> None:
    report = validate(built.canaries.path, variants=3)
    assert report.passed, [task.failure for task in report.tasks if not task.passed]
    assert {task.method for task in report.tasks} == {"replayed"}
    assert report.variants_checked == 3


def test_canaries_are_no_part_of_pass_at_k(built: Made, tmp_path: Path) -> None:
    facts = {**task_facts(built.source), **task_facts(built.canaries)}
    gold = GoldPolicy(built.source)
    plain = [
        run_episode(GeneralEnv(built.source), gold, t, sample=0, seed=0).trajectory
        for t in built.source.own_task_ids
    ]
    env = GeneralEnv(built.canaries)
    twin = canary_id("tiny-cheapest", "unsolvable")
    failed = play(script(Probe(answer=1, expected=False, origin="other"), True), twin, env)
    failed = failed.model_copy(update={"policy": "gold", "policy_version": gold.version})
    found = evaluate([*plain, failed], facts)
    assert found.tasks == 4
    assert found.pass_at[1] is not None
    assert found.pass_at[1].value == 1.0
    assert found.canaries is not None
    assert found.canaries.unsolvable_rollouts == 1


def test_canaries_of_chosen_tasks_and_holes(built: Made, tmp_path: Path) -> None:
    config = CanaryConfig(holes=("negative-number",), unsolvable=False)
    summary = make_canaries(built.source.path, tmp_path / "one", config)
    assert summary.holes == {"negative-number": 1}
    assert set(summary.without_hole) == {"tiny-cheapest", "tiny-pair", "tiny-book"}
    again = make_canaries(built.source.path, tmp_path / "two", config)
    assert (
        Dataset.open(summary.path).manifest.content_hash
        == Dataset.open(again.path).manifest.content_hash
    )
    with pytest.raises(ConfigError, match="unknown hole 'negative'"):
        make_canaries(built.source.path, tmp_path / "no", CanaryConfig(holes=("negative",)))
    with pytest.raises(ConfigError, match="unknown task 'tiny-boo'"):
        make_canaries(built.source.path, tmp_path / "no", CanaryConfig(task_ids=("tiny-boo",)))
    nothing = config.model_copy(update={"task_ids": ("tiny-pair",)})
    with pytest.raises(ConfigError, match="no canary can be made"):
        make_canaries(built.source.path, tmp_path / "no", nothing)
    with pytest.raises(ConfigError, match="no canary can be made"):  # none of canaries
        make_canaries(built.canaries.path, tmp_path / "no")


def test_a_parent_whose_gold_fails_is_refused(built: Made, tmp_path: Path) -> None:
    files = built.source.environment_files("tiny_hotels")
    task = built.source.task_files("tiny-cheapest")
    assert files.database is not None
    wrong = task.model_copy(update={"gold": GoldRun(calls=(), answer={"hotel": "West Lake"})})
    with DatasetWriter(tmp_path / "ds", name="wrong", compiled=True) as writer:
        writer.add_environment(
            EnvironmentBundle(
                spec=files.spec,
                database=files.database.read_bytes(),
                tools_source=files.tools_source,
            )
        )
        writer.add_task(wrong)
        writer.finish()
    with pytest.raises(PipelineError, match="no canary could be proven") as caught:
        make_canaries(tmp_path / "ds", tmp_path / "canaries")
    assert "gold of task 'tiny-cheapest' fails" in caught.value.hint
    assert not (tmp_path / "canaries").exists()


def test_a_parent_that_breaks_costs_its_canaries_only(
    built: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = canaries_module._with_hole

    def with_hole(parent: Any, hole: Any, hosts: Any) -> Any:
        if parent.task.spec.id == "tiny-cheapest":
            raise ZeroDivisionError("by zero")
        return real(parent, hole, hosts)

    monkeypatch.setattr(canaries_module, "_with_hole", with_hole)
    summary = make_canaries(built.source.path, tmp_path / "canaries")
    assert summary.failed == {"tiny-cheapest": "ZeroDivisionError: by zero"}
    assert summary.unsolvable == built.summary.unsolvable - 1
