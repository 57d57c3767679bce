from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
import toy_python

from envgen.core.code_types import Recipe
from envgen.core.errors import ConfigError, EnvError, PipelineError, ResumeError
from envgen.core.surrogates import from_json, to_json
from envgen.core.types import GateStatus, Message, ToolCall
from envgen.pipelines import boundary
from envgen.pipelines.code import generate as generate_module
from envgen.pipelines.code.generate import (
    CodeConfig,
    generate_code,
    outcomes_path,
)
from envgen.pipelines.code.played import gold_played
from envgen.pipelines.code.prove import BuildConfig, Job, Outcome, prove
from envgen.pipelines.code.validation import Reason, ValidateConfig
from envgen.pipelines.validate import validate
from envgen.policies.scripted import ScriptedPolicy
from envgen.sandboxes.workspace.packages import PROGRAMS
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.subset import subset
from envgen.store.writer import DatasetWriter
from envgen.verifiers.code import CodeVerifier

pytestmark = pytest.mark.bwrap


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_python.clone(tmp_path_factory.mktemp("toy") / "clone")


@pytest.fixture(scope="module")
def generated(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "code"
    summary = toy_python.generated(repo, out, *three(repo))
    assert (summary.tasks, summary.instances) == (1, 3)
    assert summary.rejected == {"install": 1, "no_tree": 1}
    return out


def three(repo: Path) -> list[Job]:
    return [
        Job(toy_python.instance(repo), repo),
        Job(toy_python.instance(repo, id="toy__shop-8", base_commit="0" * 40), repo),
        Job(toy_python.instance(repo, id="toy__shop-9", recipe=broken()), repo),
    ]


def broken() -> Recipe:
    return toy_python.RECIPE.model_copy(update={"install": ("echo no such index >&2; exit 1",)})


def test_the_dataset_holds_what_was_proven(generated: Path) -> None:
    dataset = Dataset.open(generated)
    (name,) = dataset.own_task_ids
    spec = dataset.tasks[name]
    assert (name, spec.family) == ("toy__shop-7", "code")
    assert all(gate.status is GateStatus.PASSED for gate in spec.evidence)
    files = dataset.task_files(name)
    assert "price * count" in files.solution
    assert files.gold is not None
    environment_files = dataset.environment_files(spec.environment_id)
    assert environment_files.attachments["tree.tar"].is_file()
    assert dataset.manifest.funnel["rejected"] == {"install": 1, "no_tree": 1}
    public = spec.public(dataset.environments[spec.environment_id]).model_dump_json()
    assert "price * count" not in public
    assert "test_total_counts" not in public


def test_every_instance_has_its_reason(generated: Path) -> None:
    lines = outcomes_path(generated).read_text().splitlines()
    found = {o.validation.instance_id: o.validation for o in map(_outcome, lines)}
    assert found["toy__shop-7"].kept
    assert found["toy__shop-8"].reason is Reason.NO_TREE
    assert found["toy__shop-9"].reason is Reason.INSTALL
    assert "no such index" in found["toy__shop-9"].details
    assert not generated.with_name("code.partial").exists()


def _outcome(line: str) -> Outcome:
    return from_json(Outcome, line)


def test_the_same_instances_give_the_same_bytes(
    generated: Path, repo: Path, tmp_path: Path
) -> None:
    toy_python.generated(repo, tmp_path / "again", *three(repo))
    one, two = (folder / "dataset.json" for folder in (generated, tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes()


def test_an_interrupted_run_goes_on(repo: Path, tmp_path: Path) -> None:
    jobs = [
        Job(toy_python.instance(repo), repo),
        Job(toy_python.instance(repo, id="toy__shop-8", base_commit="0" * 40), repo),
    ]
    config = CodeConfig(validation=ValidateConfig(repeats=1, more=0))
    build = BuildConfig(backend="bubblewrap", mounts=toy_python.mounts())

    def stop(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_code(config, tmp_path / "code", jobs=jobs, build=build, progress=stop)
    other = config.model_copy(update={"seed": 1})
    with pytest.raises(ResumeError, match="another configuration"):
        generate_code(other, tmp_path / "code", jobs=jobs, build=build)
    first = tmp_path / "code.partial" / "outcomes" / "toy__shop-7.json"
    outcome = _outcome(first.read_text())
    fault = outcome.validation.model_copy(update={"reason": Reason.ENVGEN})
    second = first.with_name("toy__shop-8.json")
    second.write_text(to_json(outcome.model_copy(update={"validation": fault})))
    summary = generate_code(config, tmp_path / "code", jobs=jobs, build=build)
    assert (summary.resumed, summary.tasks) == (1, 1)
    assert summary.rejected == {"no_tree": 1}
    with pytest.raises(ConfigError, match="exists"):
        generate_code(config, tmp_path / "code", jobs=jobs, build=build)


def test_an_interrupted_run_does_not_wait_for_the_instances_in_flight(
    repo: Path, tmp_path: Path
) -> None:
    jobs = [
        Job(toy_python.instance(repo), repo),
        Job(toy_python.instance(repo, id="toy__shop-8", base_commit="0" * 40), repo),
    ]
    config = CodeConfig(validation=ValidateConfig(repeats=3, more=10))
    build = BuildConfig(backend="bubblewrap", mounts=toy_python.mounts())
    stopped, after = [False], []

    def stop(done: int, total: int, what: str) -> None:
        stopped[0] = True
        raise KeyboardInterrupt

    def log(text: str) -> None:
        if stopped[0]:
            after.append(text)

    with pytest.raises(KeyboardInterrupt):
        generate_code(
            config, tmp_path / "code", jobs=jobs, build=build, workers=2, progress=stop, log=log
        )
    outcomes = tmp_path / "code.partial" / "outcomes"
    assert [path.name for path in outcomes.iterdir()] == ["toy__shop-8.json"]
    assert after == []  # of the other's thirty runs


@pytest.mark.parametrize("where", ["install", "test"])
def test_an_interrupted_run_ends_a_command_that_hangs(
    repo: Path, tmp_path: Path, where: str
) -> None:
    hangs = {"install": ("sleep 600",)} if where == "install" else {"options": "; sleep 600 #"}
    recipe = toy_python.RECIPE.model_copy(update=hangs)
    jobs = [
        Job(toy_python.instance(repo, recipe=recipe), repo),
        Job(toy_python.instance(repo, id="toy__shop-8", base_commit="0" * 40), repo),
    ]
    under_way = threading.Event()

    def log(text: str) -> None:
        if "toy__shop-7: " in text and ("run 1" in text if where == "test" else "install" in text):
            under_way.set()

    def stop(done: int, total: int, what: str) -> None:
        assert under_way.wait(60)
        time.sleep(0.3)
        raise KeyboardInterrupt

    started = time.monotonic()
    build = BuildConfig(backend="bubblewrap", mounts=toy_python.mounts())
    with pytest.raises(KeyboardInterrupt):
        generate_code(
            CodeConfig(),
            tmp_path / "code",
            jobs=jobs,
            build=build,
            workers=2,
            progress=stop,
            log=log,
        )
    assert time.monotonic() - started < 60
    outcomes = tmp_path / "code.partial" / "outcomes"
    assert [path.name for path in outcomes.iterdir()] == ["toy__shop-8.json"]


def test_nothing_proven_is_an_error(repo: Path, tmp_path: Path) -> None:
    job = Job(toy_python.instance(repo, base_commit="0" * 40), repo)
    with pytest.raises(PipelineError, match="no instance was proven"):
        toy_python.generated(repo, tmp_path / "code", job)
    with pytest.raises(ConfigError, match="neither a clone nor instances"):
        generate_code(CodeConfig(), tmp_path / "other")


def added(path: str, line: str) -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,0 +1 @@\n+{line}\n"


WEIGHS = added("shop/cart.py", "def total_weight_g(cart): return 7")
WEIGHED = added("tests/test_cart.py", "assert total_weight_g(cart) == 7")


@pytest.mark.parametrize(
    ("told", "patch"),
    [
        ("Fix it", {}),
        (
            "Weigh carts\n\nThe cart has no way to say what it weighs.",
            {"gold_patch": WEIGHS, "test_patch": WEIGHED},
        ),
    ],
    ids=["vague", "untold"],
)
def test_an_instance_that_says_too_little_is_not_even_built(
    repo: Path, tmp_path: Path, told: str, patch: dict[str, str]
) -> None:
    job = Job(toy_python.instance(repo, problem_statement=told, kind="commit", **patch), repo)
    steps: list[str] = []
    outcome = prove(job, tmp_path, ValidateConfig(), BuildConfig(), log=steps.append)
    assert (outcome.validation.reason, steps) == (Reason.STATEMENT, [])


def test_what_this_machine_lacks_is_said_and_tried_again(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(PROGRAMS, "pytest", ("sh", "no-such-program"))
        with pytest.raises(PipelineError, match="no instance was proven") as caught:
            toy_python.generated(repo, tmp_path / "code")
    assert "1 machine" in caught.value.hint
    (line,) = outcomes_path(tmp_path / "code").read_text().splitlines()
    details = from_json(Outcome, line).validation.details
    assert "no-such-program: not found in the layer 'host'" in details
    assert "envgen images bootstrap python" in details
    assert toy_python.generated(repo, tmp_path / "code").tasks == 1


def test_a_dataset_is_proven_again_from_its_files(generated: Path, tmp_path: Path) -> None:
    report = validate(generated, repeats=1, backend="bubblewrap")
    assert report.passed, report
    kept = subset(Dataset.open(generated), ["toy__shop-7"], tmp_path / "kept")
    assert validate(kept.path, repeats=1, backend="bubblewrap").passed


@pytest.mark.parametrize("gold", ["", "no diff"])
def test_a_gold_patch_that_does_not_hold_is_found(
    generated: Path, tmp_path: Path, gold: str
) -> None:
    source = Dataset.open(generated)
    (name,) = source.own_task_ids
    files = source.environment_files(source.tasks[name].environment_id)
    with DatasetWriter(tmp_path / "bad", name="bad") as writer:
        writer.add_environment(
            EnvironmentBundle(
                spec=files.spec, blueprint=files.blueprint, attachments=files.attachments
            )
        )
        writer.add_task(source.task_files(name).model_copy(update={"solution": gold}))
        bad = writer.finish()
    report = validate(bad.path, repeats=1, backend="bubblewrap")
    assert not report.passed
    assert report.tasks[0].failure is not None
    assert report.tasks[0].failure.reason.startswith("gold: ")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("pins", r"(?s)EnvError: .*can.t be built: .*pins"),
        ("gold", "it ended with submitted and scored 0"),
        ("tests", ".*must be a list of tests"),
        ("nothing", ""),
    ],
)
def test_a_task_that_does_not_play_from_its_dataset_is_told(
    generated: Path, tmp_path: Path, what: str, words: str
) -> None:
    """A pin of 4,188 characters was written past its type: proven, kept, and never to be opened."""
    source = Dataset.open(generated)
    (name,) = source.own_task_ids
    task = source.task_files(name)
    environment = source.environment_files(task.spec.environment_id)
    assert isinstance(environment.blueprint, dict)
    if what == "pins":
        recipe = environment.blueprint["recipe"]
        assert isinstance(recipe, dict)
        recipe["pins"] = ["x" * 70_000]
    elif what == "gold":
        assert task.gold is not None
        first = task.gold.calls[0].model_copy(update={"arguments": {"command": "true"}})
        gold = task.gold.model_copy(update={"calls": (first, *task.gold.calls[1:])})
        task = task.model_copy(update={"gold": gold})
    elif what == "tests":
        task = task.model_copy(update={"verifier": "{}"})
    with DatasetWriter(tmp_path / "one", name="one") as writer:
        writer.add_environment(
            EnvironmentBundle(
                spec=environment.spec,
                blueprint=environment.blueprint,
                attachments=environment.attachments,
            )
        )
        writer.add_task(task)
        dataset = writer.finish()
    fault = gold_played(
        dataset, name, BuildConfig(backend="bubblewrap", mounts=toy_python.mounts())
    ).reason
    assert re.match(words, fault) if words else fault == ""


def test_what_does_not_play_is_not_kept(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        generate_module,
        "gold_played",
        lambda *_: boundary.broken("played", EnvError("it can't be opened")),
    )
    with pytest.raises(PipelineError) as caught:
        toy_python.generated(repo, tmp_path / "code", Job(toy_python.instance(repo), repo))
    assert "1 played" in caught.value.hint


def test_a_task_that_breaks_its_judge_fails_and_validation_goes_on(
    generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(verifier: CodeVerifier, patch: bytes) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(CodeVerifier, "verify_patch", breaks)
    (task,) = validate(generated, repeats=1, backend="bubblewrap").tasks
    assert task.failure is not None
    assert task.failure.reason == "OverflowError: date value out of range"


def test_a_policy_finds_the_recipe_that_rules_did_not(repo: Path, tmp_path: Path) -> None:
    good = toy_python.RECIPE
    handed = {"runner": good.runner, "install": list(good.install), "build": list(good.build)}
    call = ToolCall(id="c1", name="hand_in", arguments=handed)
    helper = ScriptedPolicy([Message(role="assistant", tool_calls=(call,))])
    job = Job(toy_python.instance(repo, recipe=broken()), repo)
    config = ValidateConfig(repeats=1, more=1)
    build = BuildConfig(
        backend="bubblewrap",
        mounts=toy_python.mounts(),
        cache_root=tmp_path / "cache",
        downloads=tmp_path / "downloads",
    )
    (tmp_path / "trees").mkdir()
    outcome = prove(job, tmp_path / "trees", config, build, helper=helper)
    assert outcome.validation.kept, outcome.validation.details
    assert outcome.recipe is not None
    assert (outcome.recipe.author, outcome.recipe.pins) == ("scripted", ("pytest==0",))
    assert (tmp_path / "downloads" / "toy" / "shop").is_dir()
    unreached = broken().model_copy(update={"install": ("echo dial tcp: no such host >&2; false",)})
    job = Job(toy_python.instance(repo, recipe=unreached), repo)
    outcome = prove(job, tmp_path / "trees", config, build)
    assert outcome.validation.reason is Reason.MACHINE
    job = Job(toy_python.instance(repo, recipe=broken()), repo)
    silent = ScriptedPolicy([Message(role="assistant", content="I give up.")])
    outcome = prove(job, tmp_path / "trees", config, build, helper=silent)
    assert outcome.validation.reason is Reason.INSTALL
    assert "no such index" in outcome.validation.details
    assert "scripted" in outcome.validation.details
