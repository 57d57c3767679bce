"""The report of a training run: what ``metrics.jsonl`` tells, as curves and figures.

Works for GRPO and for supervised runs, finished or not; what a run did not measure is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.errors import StoreError
from envgen.report.data import Curve, CurveGroup, Panel, ReportData, StageTime
from envgen.store.run_folder import RUN_FILE
from envgen.train.metrics import METRICS_FILE, read_metrics, tokens_per_second

SETTINGS_FILE = "settings.json"
ENDS = 5
"""Steps that the figures of beginning and end are means over."""
ALARM = 0.5
"""Of kept mass (below) and masked negatives (above)."""

Lines = Sequence[Mapping[str, Any]]


def _hint(run: Path) -> str:
    if (run / RUN_FILE).is_file():
        of = f"it is a run of `envgen rollout`: `envgen pass-at-k {run}` has its rates"
        return f"{of}, `envgen show {run}` its episodes"
    return "give a folder of `envgen train`"


class _Plan(NamedTuple):
    """A panel that is drawn if any of its curves was measured."""

    title: str
    hint: str
    curves: dict[str, str]
    """Name of the metric -> what the curve is called."""
    share: bool = False
    limit: float | None = None
    log: bool = False


PLANS = (
    _Plan(
        "Reward", "mean of a step's rollouts",
        {"reward/pass_rate": "passed", "reward/total": "total reward", "eval/pass_rate": "held out"},
    ),
    _Plan(
        "Penalties", "what the losses take from the reward",
        {"reward/length": "length", "reward/language": "language", "reward/format": "format"},
    ),
    _Plan("Loss", "on what is learnt, and on rows set aside",
          {"sft/loss": "learnt", "sft/validation_loss": "set aside"}),
    _Plan("KL to the reference", "eq. 7, in nats a token", {"policy/kl": "KL"}),
    _Plan("Clipped tokens", "where the clip is what counts", {"policy/clip_fraction": "share"}),
    _Plan("Masked rollouts", "of those with negative advantage, by eq. 9",
          {"policy/masked_negatives": "share"}, share=True, limit=ALARM),
    _Plan("Entropy", "of the policy on what was sampled from, in nats a token",
          {"policy/entropy": "entropy"}),
    _Plan("Length", "model tokens of a rollout", {"rollout/model_tokens": "model tokens"}),
    _Plan("Turns", "replies of a rollout", {"rollout/turns": "turns"}),
    _Plan("Kept mass", "probability of what truncation kept", {
        "policy/kept_mass": "policy", "policy/ref_kept_mass": "reference",
        "policy/least_kept_mass": "policy, least"}, share=True, limit=ALARM),
    _Plan("Calls and groups", "shares of calls, of groups, of episodes", {
        "rollout/valid_calls": "valid calls", "groups/zero_variance": "groups alike",
        "rollout/errored": "left out", "rollout/tool_faults": "tools at fault"}, share=True),
    _Plan("Sampler and trainer", "|log r| of tokens", {
        "policy/log_ratio_p99": "99th percentile", "policy/log_ratio_max": "largest"}, log=True),
    _Plan("Gradient norm", "before clipping",
          {"update/grad_norm": "trunk", "sft/grad_norm": "trunk", "index/grad_norm": "indexer"}),
    _Plan("Indexer", "KL from attention to index scores", {"index/loss": "loss"}),
    _Plan("Throughput", "model tokens a second, sampling and update together",
          {"time/model_tokens_per_s": "tokens/s"}),
    _Plan("Seconds of a step", "", {
        "time/sampling_s": "sampling", "time/update_s": "update", "time/assembly_s": "assembly"}),
)  # fmt: skip
NEEDED = {
    "sft/loss": ("sft/tokens",),
    "time/sampling_s": ("time/update_s", "time/model_tokens_per_s"),
}
"""Metric -> what stands in a line beside it."""
STYLE = ("share", "limit", "log")
ALWAYS_ZERO = (
    "policy/kl", "reward/length", "reward/language", "reward/format", "rollout/errored",
    "rollout/tool_faults",
)  # fmt: skip
"""Left out where they are 0 in all steps: the run does without them."""


def training_report(run: str | Path) -> ReportData:
    """The data of a run's report.

    Args:
        run: folder of `train grpo`, `train sft` or `train indexer`.

    Raises:
        StoreError: if it holds no metrics of a step.
    """
    run = Path(run)
    lines = read_run(run)
    settings = _settings(run)
    grpo = any("reward/pass_rate" in line for line in lines)
    seconds = {
        name: sum(line.get(f"time/{key}", 0.0) for line in lines)
        for name, key in (("sampling", "sampling_s"), ("update", "update_s"))
    }
    assembly = sum(line.get("time/assembly_s", 0.0) for line in lines)
    return ReportData(
        title=f"GRPO: {run.name}" if grpo else f"Supervised training: {run.name}",
        summary="Groups of episodes were played by the policy, judged by verifiers, and learnt from."
        if grpo
        else "The policy learnt, token by token, what teachers did.",
        facts={**_facts(settings), **_assembly(assembly, sum(seconds.values()))},
        counts=_grpo_counts(lines) if grpo else _taught_counts(lines),
        notes=alarms(lines),
        curves=(CurveGroup(panels=panels(lines)),),
        timings=tuple(StageTime(name=n, seconds=s) for n, s in seconds.items()) if grpo else (),
        timings_title="Seconds in sampling and updates",
    )


def read_run(run: Path) -> Lines:
    """The metrics of a run's steps.

    Raises:
        StoreError: if it holds none, or one that lacks a field.
    """
    try:
        lines = read_metrics(run)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"can't read {str(run / METRICS_FILE)!r}: {why}", _hint(run)) from error
    if not lines:
        raise StoreError(f"{str(run)!r} has no step yet", "wait for the run's first step")
    for number, line in enumerate(lines, 1):
        if (name := _lacking(line)) is not None:
            what = (
                f"line {number} of {str(run / METRICS_FILE)!r} has no number in its field {name!r}"
            )
            raise StoreError(what, "give a run that `envgen train` wrote")
    return lines


def _lacking(line: object) -> str | None:
    """The first field of a step that is missing or no number; None if there is none."""
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        return "step"
    needed = [name for metric, names in NEEDED.items() if metric in line for name in names]
    drawn = [metric for plan in PLANS for metric in plan.curves if line.get(metric) is not None]
    every = ("seconds", *needed, *drawn)
    return next((name for name in every if not isinstance(line.get(name), int | float)), None)


def panels(lines: Lines) -> tuple[Panel, ...]:
    """The panels of what was measured in these steps."""
    found = []
    for plan in PLANS:
        curves = tuple(
            Curve(name=name, points=points)
            for metric, name in plan.curves.items()
            if (points := _points(lines, metric, plan.log))
        )
        if curves:
            settings = {name: getattr(plan, name) for name in ("title", "hint", *STYLE)}
            found.append(Panel(curves=curves, **settings))
    return tuple(found)


def alarms(lines: Lines) -> tuple[str, ...]:
    """List the warnings that a reader of these steps should not miss."""
    found = []
    low = [line for line in lines if line.get("policy/kept_mass", 1.0) < ALARM]
    if low:
        found.append(f"In {len(low)} steps truncation kept less than half of the policy's mass.")
    low = [line for line in lines if line.get("policy/ref_kept_mass", 1.0) < ALARM]
    if low:
        found.append(f"In {len(low)} steps truncation kept less than half of the reference's mass.")
    masked = [line for line in lines if line.get("policy/masked_negatives", 0.0) > ALARM]
    if masked:
        found.append(
            f"In {len(masked)} steps eq. 9 masked more than half of the rollouts with negative advantage."
        )
    return tuple(found)


def _points(lines: Lines, metric: str, positive: bool) -> tuple[tuple[int, float], ...]:
    points = [
        (int(line["step"]), float(line[metric]))
        for line in lines
        if line.get(metric) is not None and (line[metric] > 0 or not positive)
    ]
    if metric in ALWAYS_ZERO and not any(value for _, value in points):
        return ()
    return tuple(points)


def _grpo_counts(lines: Lines) -> dict[str, int | float]:
    steps = [line for line in lines if "reward/pass_rate" in line]
    return {
        "steps": len(steps),
        "passed, first steps": _mean(steps[:ENDS], "reward/pass_rate"),
        "passed, last steps": _mean(steps[-ENDS:], "reward/pass_rate"),
        "valid calls, last steps": _mean(steps[-ENDS:], "rollout/valid_calls"),
        "model tokens a second": tokens_per_second(steps) or 0.0,
    }


def _taught_counts(lines: Lines) -> dict[str, int | float]:
    steps = [line for line in lines if "sft/loss" in line]
    tokens = sum(line["sft/tokens"] for line in steps)
    seconds = float(lines[-1]["seconds"])
    return {
        "steps": len(steps),
        "loss, first steps": _mean(steps[:ENDS], "sft/loss"),
        "loss, last steps": _mean(steps[-ENDS:], "sft/loss"),
        "tokens": round(tokens),
        "tokens a second": tokens / seconds if seconds else 0.0,
    }


def _mean(lines: Lines, name: str) -> float:
    values = [float(line[name]) for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else 0.0


def _assembly(spent: float, whole: float) -> dict[str, str]:
    """How much of the steps went into making batches of trajectories."""
    return {"assembly of batches": f"{100 * spent / whole:.1f} % of a step"} if whole else {}


def _settings(run: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((run / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a run of an older version, or before its first checkpoint
        return {}
    return found


def _facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that one compares runs by."""
    found = {name: str(settings[name]) for name in ("data", "model", "seed") if name in settings}
    sampling, optimizer = settings.get("sampling", {}), settings.get("optimizer", {})
    if sampling:
        found["groups"] = f"{sampling['groups']} x {sampling['group_size']}"
        found["temperature, top-p"] = f"{sampling['temperature']:g}, {sampling['top_p']:g}"
    if optimizer:
        found["learning rate"] = f"{optimizer['lr']:g}"
    objective = settings.get("objective", {})
    for name in ("advantage", "loss", "kl_coef", "old"):
        if name in objective:
            found[name.replace("_", " ")] = str(objective[name])
    return found
