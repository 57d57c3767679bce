"""The quickstart on the smallest scale, and the page of its training."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from metrics_samples import grpo_line, write_run

from envgen.cli.quickstart import Quickstart
from envgen.core.errors import StoreError
from envgen.pipelines import training_demo
from envgen.pipelines.demo_records import Measured, TrainingDemoSummary
from envgen.pipelines.family_samples import family_samples
from envgen.pipelines.quickstart import STAGES, quickstart
from envgen.pipelines.quickstart_records import QuickstartConfig, QuickstartSummary
from envgen.pipelines.quickstart_report import (
    UNBIASED,
    quickstart_report,
    training_curves,
    training_part,
)
from envgen.policies.registry import PolicyConfig
from envgen.report.data import ReportData
from envgen.report.html import render_report
from envgen.rollout.bootstrap import Estimate
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset

CONFIG = QuickstartConfig(
    environments=3, tasks_per_environment=1, max_level=2, samples=20, max_pass_at_1=1.0, train=False
)
Told = list[tuple[str, float, bool]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, QuickstartSummary, Told]:
    out = tmp_path_factory.mktemp("quickstart") / "out"
    progress: Told = []
    summary = quickstart(
        CONFIG, out, workers=1, backend="inline", ended=lambda *end: progress.append(end)
    )
    return out, summary, progress


def test_all_stages_are_told_and_timed(finished: tuple[Path, QuickstartSummary, Told]) -> None:
    out, summary, progress = finished
    stages = [name for name in STAGES if name != "training"]
    assert [(name, before) for name, _, before in progress] == [(name, False) for name in stages]
    assert list(summary.stages) == stages
    assert summary.seconds == pytest.approx(sum(seconds for _, seconds, _ in progress))
    page = (out / "report.html").read_text()
    assert 'id="result"' not in page
    assert "Policy <code>gold</code>" in page
    assert 'id="curves"' not in page


def test_what_was_stopped_goes_on_and_says_what_was_done(
    finished: tuple[Path, QuickstartSummary, Told],
) -> None:
    out, first, _ = finished
    (out / "summary.json").unlink()  # as if it had been stopped while it wrote this
    progress: Told = []
    again = quickstart(
        CONFIG, out, workers=1, backend="inline", ended=lambda *end: progress.append(end)
    )
    assert all(before for _, _, before in progress)
    assert again.stages == first.stages
    assert again.kept == first.kept


def test_what_was_made_is_reported_where_the_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(training_demo, "training_demo", fails)
    config = CONFIG.model_copy(update={"environments": 2, "train": True})
    summary = quickstart(config, tmp_path / "out", workers=1, backend="inline")
    assert summary.failed == "the training failed: ZeroDivisionError: by zero"
    assert summary.failed in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "out" / "summary.json").exists()  # the same call goes on from here


def test_the_page_shows_the_curves_of_the_training(
    finished: tuple[Path, QuickstartSummary, Told], tmp_path: Path
) -> None:
    out, summary, _ = finished
    for name in ("rollouts", "dataset"):
        (tmp_path / name).symlink_to(out / name)
    write_training(tmp_path)
    write_evaluations(tmp_path)
    report = quickstart_report(
        Dataset.open(out / "dataset"), summary.model_copy(update={"training": training()}), tmp_path
    )
    page = render_report(report)
    for words in (
        "Masked rollouts", "KL to the reference", "Throughput", "Clipped tokens", "Kept mass",
        "Loss, dense attention", "Indexer, warm-up", "Loss, sparse attention", "training: grpo",
        "In 1 steps truncation kept less than half of the policy&#39;s mass",
        "from 0.50 to 0.90 of held-out tasks. Without the bias, the cold start alone reaches 0.97",
        "with weight 0.45, and the first row with 0.55", "Before: the cold start", "Failed, score 0.",
        "Passed, score 1.", "12,000 variants of them", "measured, and not trained on",
        "No value of gold stands in the prompt", "The policy random-valid passes as often as",
    ):  # fmt: skip
        assert words in page, words
    before, after = (one.episode for one in report.played)
    assert before.task_id == after.task_id
    assert report.played_task is not None
    assert "training: grpo" in {time.name for time in report.timings}
    assert sum(time.seconds for time in report.timings) == pytest.approx(
        sum(summary.stages.values()) + 30
    )


def test_curves_are_of_grpo_and_of_the_cold_start(tmp_path: Path) -> None:
    write_training(tmp_path)
    grpo, cold = training_curves(tmp_path)
    assert (grpo.title, cold.title) == ("GRPO", "Cold start")
    assert {"Reward", "Entropy", "Length", "Calls and groups"} <= {p.title for p in grpo.panels}
    assert [panel.title for panel in cold.panels] == [
        "Loss, dense attention",
        "Indexer, warm-up",
        "Loss, sparse attention",
        "Indexer, sparse attention",
    ]
    assert [len(panel.curves[0].points) for panel in cold.panels] == [9, 2, 4, 4]
    (tmp_path / "sft" / "metrics.jsonl").unlink()
    with pytest.raises(StoreError, match=r"can't read .*sft"):
        training_curves(tmp_path)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.4, 0.3, 0.5), "GRPO takes a policy that was taught a bias from 0.50 to 0.90"),
        ((0.01, -0.02, 0.04), "No effect of GRPO was measured"),
        ((-0.1, -0.2, -0.05), "GRPO took a policy that was taught a bias down"),
    ],
)
def test_the_headline_follows_the_interval(ends: tuple[float, float, float], words: str) -> None:
    value, low, high = ends
    lift = Estimate(value=value, low=low, high=high, clusters=20)
    found = training().model_copy(update={"greedy_lift": lift})
    assert training_part(found).headline.startswith(words)


def test_a_quickstart_whose_policy_did_not_learn_fails(
    finished: tuple[Path, QuickstartSummary, Told],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = finished[1]
    command = Quickstart(out=tmp_path)
    command.tell(summary.model_copy(update={"training": training()}))
    found = training().model_copy(update={"missed": ("no effect was measured",)})
    with pytest.raises(click.exceptions.Exit):
        command.tell(summary.model_copy(update={"training": found}))
    assert "not learned: no effect was measured" in "".join(capsys.readouterr())
    assert "did not do what it should: no effect was measured" in training_part(found).text


def write_training(out: Path) -> None:
    """The metrics that a training demo leaves."""
    write_run(out / "grpo", [grpo_line(1), grpo_line(2, **{"policy/kept_mass": 0.4})])
    for name, steps, figures in (
        ("dense", 9, {"sft/loss": 1.0}),
        ("indexer", 2, {"sft/loss": 0.1, "index/loss": 0.4}),
        ("sft", 4, {"sft/loss": 0.2, "index/loss": 0.3}),
    ):
        write_run(out / name, [{**figures, "sft/tokens": 10.0}] * steps)


def write_evaluations(out: Path) -> None:
    """A random policy in the place of the cold start, and gold in that of what GRPO made of it."""
    (out / "tasks").mkdir()
    (out / "tasks" / "variants").symlink_to(out / "dataset")
    for name, policy in (("before", "random"), ("after", "gold")):
        rollout(
            RolloutConfig(
                dataset=str(out / "dataset"),
                policy=PolicyConfig(spec=policy),
                out=str(out / name / "temperature-0"),
                backend="inline",
            )
        )


def measured(value: float) -> Measured:
    rate = Estimate(value=value, low=value - 0.02, high=value + 0.02, clusters=20)
    return Measured(greedy=rate, sampled=rate, call_valid_rate=None, valid_rollout_rate=None)


def training() -> TrainingDemoSummary:
    """What a demo of two stages tells."""
    lift = Estimate(value=0.4, low=0.3, high=0.5, clusters=20)
    return TrainingDemoSummary(
        seed=0, parents=6, variants=12_000, gold_weight=0.45, held_out_tasks=20,
        held_out_databases=20, first_row=0.37,
        ceiling=measured(0.97), before=measured(0.5), after=measured(0.9),
        greedy_lift=lift, sampled_lift=lift, filter_kept=1, filter_dropped=0, sft_steps=9,
        grpo_steps=2, sft_tokens_per_second=100.0, grpo_tokens_per_second=50.0,
        stages={"cold start": 10.0, "grpo": 20.0},
    )  # fmt: skip


def test_the_report_quotes_what_the_study_measured() -> None:
    figures = Path(__file__).parents[2] / "docs" / "figures" / "unbiased_study.json"
    (row,) = json.loads(figures.read_text())["seeds"]
    measured = (row[name]["value"] for name in ("cold start", "GRPO", "more SFT"))
    assert tuple(round(one, 2) for one in measured) == UNBIASED


def test_the_report_shows_a_task_of_each_other_family() -> None:
    found = {one.family: one for one in family_samples()}
    search = found["search"]
    assert search.players["gold"] == "1 of 1"
    assert search.players["random-valid"] == "0 of 5"
    assert len(search.parts["Clues"]) > 1
    page = render_report(ReportData(title="x", samples=tuple(found.values())))
    assert all(one.task_id in page for one in found.values())
    assert page.count("#families") == page.count('id="families"') == 1
