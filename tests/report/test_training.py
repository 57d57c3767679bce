"""The report of a training run, from the metrics that it wrote."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from metrics_samples import grpo_line, write_run

from envgen.core.errors import StoreError
from envgen.report.html import render_report, write_report
from envgen.report.plots import running_mean
from envgen.report.training import training_report
from envgen.train.metrics import Metrics


def test_what_was_measured_is_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [grpo_line(step) for step in range(1, 41)], data="<ds>")
    report = training_report(run)
    (curves,) = report.curves
    drawn = {panel.title: panel for panel in curves.panels}
    assert {
        "Reward", "KL to the reference", "Clipped tokens", "Masked rollouts", "Entropy", "Length",
        "Kept mass", "Calls and groups", "Throughput", "Seconds of a step",
    } <= drawn.keys()  # fmt: skip
    assert "Penalties" not in drawn  # 0 in all steps
    assert [curve.name for curve in drawn["Kept mass"].curves] == ["policy", "reference"]
    assert drawn["Masked rollouts"].limit == 0.5
    assert [curve.name for curve in drawn["Sampler and trainer"].curves] == ["99th percentile"]
    assert drawn["Reward"].curves[0].points[0] == pytest.approx((1, 0.21))
    assert report.counts["passed, last steps"] == pytest.approx(0.2 + 0.38)
    assert report.facts["assembly of batches"] == "2.5 % of a step"
    assert not report.notes
    page = render_report(report)
    assert page.count("<svg") == len(curves.panels)
    assert "&lt;ds&gt;" in page
    assert "mathdefault" not in page


def test_alarms_are_told(tmp_path: Path) -> None:
    lines = [
        grpo_line(1),
        grpo_line(2, **{"policy/kept_mass": 0.4, "policy/ref_kept_mass": 0.3}),
        grpo_line(3, **{"policy/ref_kept_mass": 0.3, "policy/masked_negatives": 0.6}),
    ]
    notes = " ".join(training_report(write_run(tmp_path / "run", lines)).notes)
    assert "In 1 steps truncation kept less than half of the policy's mass" in notes
    assert "In 2 steps truncation kept less than half of the reference's mass" in notes
    assert "In 1 steps eq. 9 masked more than half" in notes


def test_a_supervised_run(tmp_path: Path) -> None:
    lines = [{"sft/loss": 1.0 / step, "sft/tokens": 100.0} for step in range(1, 11)]
    run = write_run(tmp_path / "sft", [*lines, {"sft/validation_loss": 0.2}])
    report = training_report(run)
    assert report.counts["steps"] == 10
    assert report.counts["tokens"] == 1000
    (panel,) = report.curves[0].panels
    assert panel.title == "Loss"
    assert [len(curve.points) for curve in panel.curves] == [10, 1]
    assert not report.timings


def test_without_steps_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't read"):
        training_report(tmp_path / "nothing")
    with pytest.raises(StoreError, match="no step yet"):
        training_report(write_run(tmp_path / "early", []))


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("[1]", "step"),
        ('{"seconds": 1.0}', "step"),
        ('{"step": "2", "seconds": 1.0}', "step"),
        ('{"step": 2}', "seconds"),
        ('{"step": 2, "seconds": 1.0, "sft/loss": 0.5}', "sft/tokens"),
        ('{"step": 2, "seconds": 1.0, "time/sampling_s": 1, "time/update_s": 1}', "time/model_tokens_per_s"),
        ('{"step": 2, "seconds": 1.0, "reward/pass_rate": "most"}', "reward/pass_rate"),
    ],
)  # fmt: skip
def test_a_step_without_a_field_is_told_in_one_line(tmp_path: Path, line: str, field: str) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.5}\n' + line + "\n")
    with pytest.raises(StoreError) as caught:
        training_report(tmp_path)
    assert str(caught.value).splitlines()[0] == (
        f"line 2 of {str(tmp_path / 'metrics.jsonl')!r} has no number in its field {field!r}"
    )
    assert caught.value.hint


def test_running_means_keep_level_and_length() -> None:
    assert running_mean([1.0, 5.0]) == [1.0, 5.0]
    noisy = [0.5 + 0.4 * (-1) ** i for i in range(200)]
    smooth = running_mean(noisy)
    assert len(smooth) == 200
    assert max(abs(value - 0.5) for value in smooth[20:-20]) < 0.05


def test_seconds_go_on_where_a_stopped_run_left_off(tmp_path: Path) -> None:
    """A line after the checkpoint is lost work; time before it was spent."""
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "seconds": 10.5}\n{"step": 2, "seconds": 20.5}\n{"step": 3, "seconds": 30.5}\n'
    )
    with Metrics(tmp_path, 2) as metrics:
        metrics.write(3, {})
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert 20.5 <= lines[2]["seconds"] < 30


@pytest.mark.browser
def test_a_browser_shows_the_curves(tmp_path: Path, chromium: str) -> None:
    run = write_run(tmp_path / "run", [grpo_line(step) for step in range(1, 41)])
    page = write_report(run / "report.html", training_report(run))
    result = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'page.png'}",
            "--window-size=1200,2600", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert "CONSOLE" not in result.stderr, result.stderr
