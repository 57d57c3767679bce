"""Datasets end to end: the same bytes however they are made, resumed, validated, varied."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envgen.cli.settings import text_of
from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, ResumeError, StoreError
from envgen.core.types import GateStatus
from envgen.environments.hosts import close_hosts
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.domains import page
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.dataset import (
    dataset_evidence,
    diversity,
    planted_rows,
    random_valid_agreement,
)
from envgen.pipelines.general.gates.prove import GATES
from envgen.pipelines.general.generate import CATEGORIES, KNOWN, GenerateConfig, generate
from envgen.pipelines.general.stored import first_draft
from envgen.pipelines.general.synthesize import EnvironmentJob, synthesize
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.quickstart_records import QuickstartConfig
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CONFIG = GenerateConfig(
    categories=("trip_planning", "meeting_scheduling"),
    environments=2,
    tasks_per_environment=2,
    min_level=1,
    max_level=1,
    seed=5,
    agreement_episodes=16,
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "ds"
    generate(CONFIG, out, workers=1, backend="process")
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def bundles(path: Path) -> list[tuple[EnvironmentBundle, list[TaskBundle]]]:
    dataset = Dataset.open(path, unproven=True)
    result = []
    for environment_id in dataset.environments:
        files = dataset.environment_files(environment_id)
        assert files.database is not None
        bundle = EnvironmentBundle(
            spec=files.spec,
            database=files.database.read_bytes(),
            tools_source=files.tools_source,
            blueprint=files.blueprint,
        )
        own = [i for i in dataset.own_task_ids if dataset.tasks[i].environment_id == environment_id]
        result.append((bundle, [dataset.task_files(i) for i in own]))
    return result


def test_every_task_carries_its_proof(generated: Path) -> None:
    dataset = Dataset.open(generated)
    assert len(dataset.own_task_ids) == 4
    for task_id in dataset.own_task_ids:
        evidence = dataset.tasks[task_id].evidence
        assert {"gold", "mutants", "near_misses", "attacks", "reseeds"} <= {
            r.gate for r in evidence
        }
        assert all(r.n > 0 for r in evidence if r.status is GateStatus.PASSED)


def test_the_funnel_adds_up(generated: Path) -> None:
    funnel = Dataset.open(generated).manifest.funnel
    rejected = funnel["rejected"]
    assert isinstance(rejected, dict)
    assert funnel["drafted"] == 4 + sum(int(str(n)) for n in rejected.values())


@pytest.mark.slow
def test_same_bytes_for_other_workers_and_hash_seeds(generated: Path, tmp_path: Path) -> None:
    code = (
        "from envgen.pipelines.general.generate import *\n"
        f"generate(GenerateConfig.model_validate_json({CONFIG.model_dump_json()!r}), "
        f"{str(tmp_path / 'ds')!r}, workers=2, backend='process')\n"
    )
    script = tmp_path / "make.py"
    script.write_text(f"if __name__ == '__main__':\n    exec({code!r})\n")
    subprocess.run(
        [sys.executable, "-P", str(script)],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        check=True,
        timeout=280,
    )
    assert contents(tmp_path / "ds") == contents(generated)


def test_an_interrupted_run_goes_on(generated: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(CONFIG, tmp_path / "ds", workers=1, backend="process", progress=stop)
    assert not (tmp_path / "ds").exists()
    summary = generate(CONFIG, tmp_path / "ds", workers=1, backend="process")
    assert summary.resumed == 1
    assert contents(tmp_path / "ds") == contents(generated)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from envgen.pipelines.partial import partial_folder\n"
        "partial_folder(Path(sys.argv[1]), {}); print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-P", "-c", program, str(tmp_path / "ds")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(
            StoreError, match=rf"another process .*: process {other.pid}, since \d\d:"
        ):
            generate(CONFIG, tmp_path / "ds", workers=1)
        other.communicate()
    with pytest.raises(ResumeError, match="another configuration"):  # it has ended
        generate(CONFIG, tmp_path / "ds", workers=1)


def test_partial_work_of_another_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.partial").mkdir()
    (tmp_path / "ds.partial" / "config.json").write_text("{}")
    with pytest.raises(ResumeError, match="another configuration"):
        generate(CONFIG, tmp_path / "ds", workers=1)


def test_an_existing_folder_is_not_overwritten(generated: Path) -> None:
    with pytest.raises(ConfigError, match="exists") as error:
        generate(CONFIG, generated)
    assert "it is finished, by this very configuration: `envgen list" in error.value.hint
    with pytest.raises(ConfigError, match="exists") as error:
        generate(CONFIG.model_copy(update={"seed": 6}), generated)
    assert error.value.hint == "choose another --out, or remove it"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_level": 4, "max_level": 2}, "wrong way round"),
        ({"categories": ("knitting",)}, "unknown category"),
    ],
)
def test_bad_configurations(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerateConfig.model_validate(fields)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5, 6, 8, 10])
@pytest.mark.parametrize("names", [(), ("trip_planning",), tuple(CATEGORIES)[:5]])
def test_any_number_of_environments_has_all_levels_evenly(
    levels: int, names: tuple[str, ...]
) -> None:
    sources = len(names or CATEGORIES)
    config = GenerateConfig(categories=names, max_level=levels, environments=levels * sources)
    pairs = [(job.domain, job.level) for job in config.jobs("inline")]
    assert len(set(pairs)) == len(pairs)  # so all pairs have come up
    for n in range(1, len(pairs)):
        for part, of in ((0, sources), (1, levels)):
            counts = Counter(pair[part] for pair in pairs[:n])
            assert len(counts) == min(of, n)
            assert max(counts.values()) - min(counts.values()) <= 1 + (n > levels) * part
    assert not config.left_out


def test_readers_are_told_every_category() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    for text in (readme, text_of(GenerateConfig, "categories")):
        assert set(re.findall(r"\w+_\w+", text)) >= set(KNOWN)


def test_default_configurations_have_all_their_levels() -> None:
    """Six environments of levels 1 to 5 had levels 1 and 2, for eight categories came first."""
    assert {job.level for job in GenerateConfig().jobs("inline")} == {1, 2, 3, 4, 5}
    quick = QuickstartConfig()
    config = GenerateConfig(environments=quick.environments, max_level=quick.max_level)
    assert Counter(job.level for job in config.jobs("inline")) == dict.fromkeys(range(1, 6), 3)
    assert GenerateConfig(environments=3).left_out == (4, 5)


def test_too_few_siblings_cost_one_more_draft_that_is_counted() -> None:
    """A page whose level has two questions gives no third; other rows are tried before giving up."""
    job = EnvironmentJob(
        index=0, domain="meetings", level=1, tasks=3, seed=0, backend="inline", agreement_episodes=0
    )
    found = synthesize(job)
    assert (len(found.tasks), found.drafts.tried) == (2, 2)
    assert found.drafts.proven + found.siblings.proven == len(found.tasks)
    assert found.drafts.rejected == {"fewer siblings": 1}
    assert found == synthesize(job).model_copy(
        update={"proving_s": found.proving_s, "measuring_s": found.measuring_s}
    )


def test_validation_by_another_seed_proves_it_again(generated: Path) -> None:
    report = validate(generated, backend="process", seed=1)
    assert report.passed
    assert {task.method for task in report.tasks} == {"compared"}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An order task of level 5."""
    update = {"categories": ("order_management",), "min_level": 5, "max_level": 5, "seed": 11}
    config = CONFIG.model_copy(update={**update, "environments": 1, "tasks_per_environment": 1})
    out = tmp_path_factory.mktemp("orders") / "ds"
    generate(config, out, workers=1, backend="process")
    return out


@pytest.mark.slow  # of two datasets; that figures are compared, planted faults show, too
def test_validation_finds_the_very_figures_again(generated: Path, orders: Path) -> None:
    """Whatever seed the dataset was made with."""
    for path in (generated, orders):
        dataset = Dataset.open(path)
        report = validate(path, backend="process")
        assert report.passed
        for task in report.tasks:
            assert task.method == "compared"
            stored = {result.gate: result for result in dataset.tasks[task.task_id].evidence}
            found = {result.gate: result for result in task.evidence}
            assert {"gold", "density", "mutants"} <= set(found)
            for name, _ in GATES:
                assert found.get(name) == stored.get(name)


def test_the_recipe_of_a_page_from_elsewhere_is_made_anew() -> None:
    """From the page that the dataset carries: the package has none of that name."""
    elsewhere = page("meetings").model_copy(update={"id": "elsewhere"})
    request = DraftRequest(domain="elsewhere", page=elsewhere.text)
    draft = ProceduralAuthor().draft(request, 3)
    assert isinstance(draft, Draft)
    assert first_draft(dumps(draft.blueprint)) == draft


def test_validation_catches_a_verifier_that_was_exchanged(generated: Path, tmp_path: Path) -> None:
    (environment, tasks), *_ = bundles(generated)
    lax = "PARAMS = {}\n\n\ndef verify(answer, initial, final):\n    return []\n"
    with DatasetWriter(tmp_path / "ds", name="lax", compiled=True) as writer:
        writer.add_environment(environment)
        writer.add_task(tasks[0].model_copy(update={"verifier": lax}))
        writer.finish(funnel={})
    report = validate(tmp_path / "ds", backend="process")
    assert not report.passed


def test_validation_catches_a_dataset_of_one_kind(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task holds; the dataset does not. With so few tasks the gates must be told to run."""
    (environment, tasks), *_ = bundles(generated)
    with DatasetWriter(tmp_path / "ds", name="alike", compiled=True) as writer:
        writer.add_environment(environment)
        for task in tasks:
            writer.add_task(task)
        writer.finish(funnel={})
    evidence = dataset_evidence(bundles(tmp_path / "ds"))
    assert [result.status for result in evidence] == [GateStatus.NOT_RUN, GateStatus.PASSED]
    monkeypatch.setattr("envgen.pipelines.general.gates.dataset.MIN_TASKS", 2)
    report = validate(tmp_path / "ds", backend="process")
    assert all(task.passed for task in report.tasks)
    assert {r.gate: r.status for r in report.dataset_evidence}["diversity"] is GateStatus.FAILED
    assert not report.passed
    mixed = dataset_evidence(bundles(generated))
    assert {r.gate: r.status for r in mixed}["diversity"] is GateStatus.PASSED


def test_variants_are_new_rows_that_gold_solves(generated: Path, tmp_path: Path) -> None:
    summary = variants(
        VariantsConfig(per_task=3, seed=9), generated, tmp_path / "v", workers=1, backend="process"
    )
    assert summary.variants == 12
    dataset = Dataset.open(tmp_path / "v")
    ids = sorted(set(dataset.tasks) - set(dataset.own_task_ids))
    assert len({dataset.database_hash(task_id) for task_id in ids}) == 12
    assert all({r.inherited_from for r in dataset.tasks[i].evidence} > {None} for i in ids)
    result = rollout(
        RolloutConfig(
            dataset=str(tmp_path / "v"),
            policy=PolicyConfig(spec="gold"),
            out=str(tmp_path / "run"),
            task_ids=tuple(ids),
            backend="process",
            concurrency=1,
        )
    )
    assert (result.passed, result.errors) == (12, 0)
    close_hosts()


def repeated(generated: Path, answers: str) -> list[tuple[EnvironmentBundle, list[TaskBundle]]]:
    """120 copies of a lookup task whose gold row is the first, or every row in turn."""
    environment, tasks = next(
        pair for pair in bundles(generated) if "trip" in pair[0].spec.category
    )
    task = tasks[0]
    assert isinstance(task.constraints, dict)
    from envgen.core.ir import Problem, Query
    from envgen.pipelines.general.gates.dataset import _tables
    from envgen.pipelines.general.semantics.layout import fill_layout

    problem = Problem.model_validate(task.constraints)
    slot = problem.slots[0]
    assert isinstance(slot.domain, Query)
    assert environment.database is not None
    assert task.gold is not None
    keys = sorted(_tables(problem, environment.database)[slot.domain.relation])
    copies = []
    for i in range(120):
        key = keys[0] if answers == "first" else keys[i % len(keys)]
        gold = task.gold.model_copy(
            update={"answer": fill_layout(problem.layout, {slot.name: key})}
        )
        spec = task.spec.model_copy(update={"id": f"t-{i}", "prompt": f"{task.spec.prompt} {i}"})
        copies.append(task.model_copy(update={"spec": spec, "gold": gold}))
    return [(environment, copies)]


def test_planted_rows_catches_gold_that_is_always_first(generated: Path) -> None:
    assert planted_rows(repeated(generated, "first")).status is GateStatus.FAILED
    assert planted_rows(repeated(generated, "spread")).status is GateStatus.PASSED


def test_diversity_catches_a_dataset_of_one_kind(generated: Path) -> None:
    ((_, tasks),) = repeated(generated, "spread")
    assert diversity(tasks).status is GateStatus.FAILED


def test_agreement_catches_a_wrong_density(generated: Path) -> None:
    """A density that random-valid can't confirm means that it, the env or the verifier is wrong."""
    environment, tasks = bundles(generated)[0]
    density = tasks[0].spec.difficulty.density
    assert density is not None
    wrong = density.model_copy(update={"value": 0.97, "low": 0.95, "high": 0.99})
    difficulty = tasks[0].spec.difficulty.model_copy(update={"density": wrong})
    spec = tasks[0].spec.model_copy(update={"difficulty": difficulty})
    lying = tasks[0].model_copy(update={"spec": spec})
    honest, caught = (
        random_valid_agreement(environment, [task], episodes=64, backend="process", seed=1)[0]
        for task in (tasks[0], lying)
    )
    assert honest.status is GateStatus.PASSED
    assert caught.status is GateStatus.FAILED


def test_agreement_catches_a_verifier_that_takes_anything(generated: Path) -> None:
    environment, tasks = bundles(generated)[0]
    lax = "def verify(answer, initial, final):\n    return []\n"
    task = tasks[0].model_copy(update={"verifier": lax})
    result = random_valid_agreement(environment, [task], episodes=64, backend="process", seed=1)[0]
    assert result.status is GateStatus.FAILED


def test_diversity_catches_a_task_that_is_there_twice(generated: Path) -> None:
    """Ten kinds of equal share, one of the tasks twice in its environment."""
    (environment, tasks), *_ = bundles(generated)
    assert environment.spec.id == tasks[0].spec.environment_id
    kinds = []
    for i in range(100):
        assert isinstance(tasks[0].constraints, dict)
        constraints = {**tasks[0].constraints, "shape": "ABCEDFGH"[i % 8], "params": {"own": i}}
        spec = tasks[0].spec.model_copy(update={"id": f"t-{i}", "prompt": f"Which one? {i}"})
        kinds.append(tasks[0].model_copy(update={"spec": spec, "constraints": constraints}))
    assert diversity(kinds).status is GateStatus.PASSED
    assert diversity([*kinds, kinds[0]]).status is GateStatus.FAILED
