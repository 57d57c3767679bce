"""Faults planted in a dataset's files, every hash mended: ``validate`` must find them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from ladders import page_of
from planted_faults import AUDIT, AUDIT_2, BLIND, SHORTCUTS, SHOWN, Fault, forget

from envgen import __version__
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import (
    Draft,
    DraftRequest,
    Proof,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.stored import SINCE_0_2
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.validate import TaskValidation, ValidationReport, validate
from envgen.store.bundles import VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

MADE = {
    "orders": ("orders", "order_management", 5, 5),
    "trips": ("trip", "trip_planning", 4, 5),
    "meetings": ("office", "", 5, 3),
    "lookups": ("trip", "trip_planning", 2, 3),
}
"""Domain, category (where it is generated), level and seed of each dataset."""
WAYS = ("compared", "judged by evaluation")
ESCAPES = {
    "compared": set[str](),
    "judged by evaluation": {
        "a wrong unit",
        "another grid in the prompt",
        "a probe less",
        "more mutants than were made",
        "somebody else is busy",
        "a customer with more credit",
    },
}
"""What passes, 0 and 6 of 40: words and figures that only the version which wrote them could derive, and
rows on which nothing depends. Before anything was compared, 25 passed."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@cache
def generated(root: Path, name: str) -> Path:
    """A dataset of one proven task."""
    domain, category, level, seed = MADE[name]
    config = GenerateConfig(
        categories=(category,) if category else (),
        pages=() if category else (page_of(domain),),
        environments=1,
        tasks_per_environment=1,
        min_level=level,
        max_level=level,
        seed=seed,
        agreement_episodes=16,
    )
    generate(config, root / name, workers=1, backend="process" if category else "auto")
    return root / name


@cache
def drafted(root: Path, name: str) -> Path:
    """A dataset of one task that claims to be compiled by this envgen; its proof is left out."""
    domain, _, level, _ = MADE[name]
    found = page_of(domain)
    request = DraftRequest(domain=found.id, page=found.text, level=level)
    drafts = (ProceduralAuthor().draft(request, n) for n in range(9))
    draft = next(one for one in drafts if isinstance(one, Draft) and _has_writes(one, domain))
    sentence = (
        GateResult(gate="compiled", status=GateStatus.PASSED, n=1, details={"envgen": __version__}),
        GateResult(gate="gold", status=GateStatus.PASSED, n=1),
    )
    with DatasetWriter(root / f"drafted-{name}", name="drafted") as writer:
        writer.add_environment(environment_bundle(draft))
        writer.add_task(task_bundle(draft, Proof(sentence, None, (), None)))
        writer.finish(funnel={})
    return root / f"drafted-{name}"


def _has_writes(draft: Draft, domain: str) -> bool:
    return domain != "orders" or "refund_1" in draft.tools_source


def judged(dataset: Path, fault: Fault | None, way: str, folder: Path) -> TaskValidation:
    """What ``validate`` says of the task in a copy with the fault planted."""
    shutil.copytree(dataset, folder)
    if fault is not None:
        fault.plant(folder)
    if way != "compared":
        forget(folder, *SINCE_0_2)
    return report_of(folder, way).tasks[0]


def report_of(folder: Path, way: str) -> ValidationReport:
    """What ``validate`` says where the user lets it, or does not let it, judge by evaluation."""
    by_evaluation = way != "compared"
    report = validate(folder, backend="process", trust=True, by_evaluation=by_evaluation)
    assert {task.method for task in report.tasks} == {way}
    return report


COMPARED = {
    "a wrong price for some items",
    "a list sorted by price",
    "busy times after noon hidden",
    "a description of something else",
    "a wrong answer in gold",
    "a flipped verdict of a probe",
    "a falsified density",
}
"""One of each dataset and file: what is compared with what is compiled anew may differ anywhere."""


def both_ways(fault: Fault) -> list[object]:
    often = () if fault.name in COMPARED else pytest.mark.slow
    by_name = pytest.param(fault, "compared", marks=often, id=f"{fault.name}-compared")
    return [by_name, pytest.param(fault, WAYS[1], id=f"{fault.name}-{WAYS[1]}")]


@pytest.mark.parametrize(("fault", "way"), [case for fault in AUDIT for case in both_ways(fault)])
def test_what_an_audit_planted_is_caught(
    fault: Fault, way: str, root: Path, tmp_path: Path
) -> None:
    make = generated if fault.dataset == "lookups" else drafted
    found = judged(make(root, fault.dataset), fault, way, tmp_path / "ds").failure
    assert found is not None
    assert found.gate in {fault.gate, "compiled", "stored"}
    if way != "compared":
        assert found.gate == fault.gate


def examined(dataset: Path, fault: Fault, way: str, folder: Path) -> ValidationReport:
    """The same of a whole dataset that pleads for evaluation: it says that somebody else wrote it."""
    shutil.copytree(dataset, folder)
    fault.plant(folder)
    if way != "compared":
        forget(folder, *SINCE_0_2)
    return report_of(folder, way)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", AUDIT_2, ids=lambda fault: fault.name)
def test_what_a_second_audit_planted_is_caught_or_shown(
    fault: Fault, way: str, root: Path, tmp_path: Path
) -> None:
    report = examined(generated(root, fault.dataset), fault, way, tmp_path / "ds")
    if way == "compared" or fault.gate != SHOWN:
        assert not report.passed
    elif report.passed:  # else a gate caught what was to be shown
        shown = next(g for g in report.tasks[0].evidence if g.gate == "differences")
        assert "that nothing here vouches for" in shown.reason
        assert report.how.startswith("1 of 1 tasks JUDGED BY EVALUATION")


@pytest.mark.parametrize("excuse", ["another version", "another author", "no evidence"])
def test_a_dataset_does_not_choose_its_own_examination(
    excuse: str, root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ds"
    shutil.copytree(generated(root, "lookups"), folder)
    fault = next(one for one in AUDIT_2 if one.name == "a rule that the IR lacks")
    fault.plant(folder)
    if excuse == "another version":
        forget(folder, *SINCE_0_2)
    elif excuse == "another author":
        Fault("", "", "environment.json", '"author": "procedural"', '"author": "me"').plant(folder)
    else:
        Fault("", "", "evidence.json", r'"gates": \[.*\]', '"gates": []').plant(folder)
    report = report_of(folder, "compared")
    assert not report.passed
    assert report.how.startswith("1 of 1 tasks compared")
    if excuse != "no evidence":
        found = report.tasks[0].failure
        assert found is not None
        assert "--by-evaluation" in found.reason


def test_a_variant_s_words_are_those_of_its_parameters(root: Path, tmp_path: Path) -> None:
    """Variants' prompts turned to "lowest", gold still highest: they were only replayed, and held."""
    variants(
        VariantsConfig(per_task=3, seed=2), generated(root, "lookups"), tmp_path / "v", workers=1
    )
    assert validate(tmp_path / "v", backend="process", trust=True).passed
    turned = tmp_path / "turned"
    source = Dataset.open(tmp_path / "v")
    with DatasetWriter(turned, name="turned", seed=source.manifest.seed) as writer:
        for name in source.environments:
            writer.add_environment(source.environment_files(name).bundle())
        (parent,) = source.own_task_ids
        writer.add_task(source.task_files(parent))
        rows = []
        for name in sorted(set(source.tasks) - {parent}):
            task, database = source.task_files(name), source.database(name)
            assert task.gold is not None
            assert database is not None
            prompt = task.spec.prompt.replace("highest", "lowest")
            rows.append(
                VariantRow(
                    task_id=name, seed=1, prompt=prompt, solution=task.solution,
                    verifier=task.verifier, constraints=task.constraints, gold=task.gold,
                    submit_schema=task.spec.submit_schema, rules=task.spec.rules,
                    database=database.read_bytes(), evidence=task.spec.evidence,
                )
            )  # fmt: skip
        writer.add_variants(parent, rows)
        writer.finish(funnel=source.manifest.funnel)
    report = validate(turned, backend="process", trust=True)
    failed = [task.failure for task in report.tasks if task.failure is not None]
    assert len(failed) == 3
    assert all("lowest" in found.reason for found in failed)


@pytest.mark.parametrize("fault", SHORTCUTS, ids=lambda fault: fault.name)
def test_falsified_pass_rates_are_caught(fault: Fault, root: Path, tmp_path: Path) -> None:
    found = judged(generated(root, "lookups"), fault, "compared", tmp_path / "ds").failure
    assert found is not None
    assert found.gate == "stored"
    assert "shortcuts" in found.reason


@pytest.mark.parametrize("way", WAYS)
def test_a_sound_dataset_holds_both_ways(way: str, root: Path, tmp_path: Path) -> None:
    assert judged(generated(root, "lookups"), None, way, tmp_path / "ds").failure is None


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["orders", "trips", "meetings"])
def test_blindly_planted_faults_are_caught(name: str, way: str, root: Path, tmp_path: Path) -> None:
    sound = judged(generated(root, name), None, way, tmp_path / "sound")
    assert sound.failure is None
    missed = set()
    for i, fault in enumerate(one for one in BLIND if one.dataset == name):
        if judged(generated(root, name), fault, way, tmp_path / str(i)).passed:
            missed.add(fault.name)
    assert missed <= ESCAPES[way]
