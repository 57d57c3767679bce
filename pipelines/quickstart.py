"""The whole way on a small scale: synthesize, prove, step, filter by pass@100, train a policy, report."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import envgen
from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.pipelines.boundary import broken
from envgen.pipelines.demo_records import TrainingDemoSummary
from envgen.pipelines.general.generate import GenerateConfig, GenerateSummary, generate
from envgen.pipelines.quickstart_records import QuickstartConfig, QuickstartSummary
from envgen.pipelines.quickstart_report import quickstart_report
from envgen.pipelines.stages import OnEnd, Progress, Stages
from envgen.policies.registry import PolicyConfig
from envgen.report.data import FilterRow, PassRow
from envgen.report.html import write_report
from envgen.rollout.filter import FilterConfig, FilterReport, reestimate
from envgen.rollout.filter import filter as filter_dataset
from envgen.rollout.pass_at_k import PassReport, run_report
from envgen.rollout.run import Progress as RolloutProgress
from envgen.rollout.run import RolloutConfig, rollout
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.dataset import Dataset

STAGES = ("generate", "rollouts", "filter", "re-estimate", "baselines", "training", "report")


def quickstart(
    config: QuickstartConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
    ended: OnEnd | None = None,
) -> QuickstartSummary:
    """Fill ``out`` with dataset, rollouts, kept dataset, ``report.html`` and ``summary.json``.

    With training also ``sft/last`` and ``grpo/last``, model folders that ``envgen eval --model`` loads.
    A finished quickstart is replaced; an interrupted one of the same configuration is continued.

    Args:
        config: how much of everything.
        out: the folder.
        workers: processes that generate; one per core if None.
        backend: where generated code runs.
        progress: called with (stages done, total, what).
        ended: called at a stage's end, those of the training included.

    Raises:
        ConfigError: if ``out`` holds something else.
    """
    out = Path(out)
    _prepare(out, config)
    stages = Stages(out / "quickstart_stages.json", len(STAGES), progress, ended)
    with stages.stage("generate") as say:
        generated = _generate(config, out, workers, backend, say)
    dataset = Dataset.open(out / "dataset")
    with stages.stage("rollouts") as say:
        selection = _rollout_config(config, out, "random-valid", config.samples, backend)
        rollout(selection, progress=_episodes(say, "episodes of random-valid"))
    with stages.stage("filter"):
        filtered = _filter(config, out)
    with stages.stage("re-estimate") as say:
        fresh = reestimate(
            str(out / "kept"),
            selection,
            str(out / "rollouts" / "fresh"),
            progress=_episodes(say, "episodes on fresh seeds"),
        )
    with stages.stage("baselines") as say:
        reports = {"random-valid": fresh, **_baselines(config, out, backend, say)}
    trained, failed = None, ""
    if config.train:
        try:
            with stages.stage("training") as say:
                trained = _train(config, out, say, ended)
        except Exception as error:  # the boundary: what was made before is reported
            failed = f"the training failed: {broken('training', error).reason}"
    with stages.stage("report"):
        notes = _notes(dataset, backend)
        if failed:
            notes = (*notes, f"{failed}; the same command tries it again")
        summary = _summary(config, dataset, generated, filtered, reports, stages.seconds, notes)
        summary = summary.model_copy(update={"training": trained})
        write_report(out / "report.html", quickstart_report(dataset, summary, out))
    summary = summary.model_copy(
        update={"stages": stages.seconds, "seconds": sum(stages.seconds.values())}
    )
    if not failed:  # else the next call goes on where this one failed
        (out / "summary.json").write_text(pretty(summary), encoding="utf-8")
    return summary.model_copy(update={"failed": failed})


def _prepare(out: Path, config: QuickstartConfig) -> None:
    stamp = out / "config.json"
    if out.exists() and not stamp.exists() and any(out.iterdir()):
        raise ConfigError(f"{str(out)!r} is not a quickstart folder", "choose another --out")
    same = stamp.exists() and stamp.read_text() == pretty(config)
    if out.exists() and (not same or (out / "summary.json").exists()):
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    stamp.write_text(pretty(config))


def _generate(
    config: QuickstartConfig,
    out: Path,
    workers: int | None,
    backend: WorkerBackend,
    say: Progress,
) -> GenerateSummary:
    record = out / "generate.json"
    if (out / "dataset").exists() and record.exists():
        return GenerateSummary.model_validate_json(record.read_text())
    generated = generate(
        GenerateConfig(
            environments=config.environments,
            tasks_per_environment=config.tasks_per_environment,
            max_level=config.max_level,
            seed=config.seed,
            name="quickstart",
        ),
        out / "dataset",
        workers=workers,
        backend=backend,
        progress=lambda done, total, what: say(done, total, f"environments: {what}"),
    )
    record.write_text(pretty(generated))
    return generated


def _rollout_config(
    config: QuickstartConfig, out: Path, policy: str, n: int, backend: WorkerBackend
) -> RolloutConfig:
    return RolloutConfig(
        dataset=str(out / "dataset"),
        policy=PolicyConfig(spec=policy),
        out=str(out / "rollouts" / policy.partition(":")[0]),
        n=n,
        seed=derive(config.seed, "rollouts", policy),
        backend=backend,
    )


def _filter(config: QuickstartConfig, out: Path) -> FilterReport:
    if (out / "kept").exists():
        shutil.rmtree(out / "kept")
    return filter_dataset(
        FilterConfig(
            dataset=str(out / "dataset"),
            rollouts=str(out / "rollouts" / "random-valid"),
            out=str(out / "kept"),
            pass_at=min(100, config.samples),
            max_pass_at_1=config.max_pass_at_1,
            name="quickstart-kept",
        )
    )


def _baselines(
    config: QuickstartConfig, out: Path, backend: WorkerBackend, say: Progress
) -> dict[str, PassReport]:
    """Who else plays the kept tasks: gold must pass always, noise and greed sometimes."""
    reports = {}
    for policy, n in (("gold", 2), ("noisy-gold:0.1", 10), ("greedy", 2), ("random", 10)):
        run = _rollout_config(config, out, policy, n, backend)
        run = run.model_copy(update={"dataset": str(out / "kept")})
        rollout(run, progress=_episodes(say, f"episodes of {policy}"))
        reports[policy] = run_report(run.out, (1,))
    return reports


def _episodes(say: Progress, what: str) -> Callable[[RolloutProgress], None]:
    return lambda now: say(now.done, now.total, what)


def _train(
    config: QuickstartConfig, out: Path, say: Progress, ended: OnEnd | None
) -> TrainingDemoSummary:
    """Cold start, pass@100, GRPO and held-out evaluation of a policy, in the same folder."""
    from envgen.pipelines.training_demo import training_demo

    processes = min(2, os.cpu_count() or 1)
    settings = config.training.model_copy(update={"seed": config.seed, "processes": processes})

    def on_end(name: str, seconds: float, before: bool) -> None:
        if ended:
            ended(f"training: {name}", seconds, before)

    return training_demo(settings, out, progress=say, ended=on_end)


def _notes(dataset: Dataset, backend: WorkerBackend) -> tuple[str, ...]:
    if choose(backend, trusted=True) in ("process", "inline"):
        return (
            "bubblewrap is missing, so generated code ran unisolated, in plain processes; only code "
            "that is trusted by hash may do that. For isolation: apt install bubblewrap",
        )
    return ()


def _pass_rows(reports: dict[str, PassReport]) -> tuple[PassRow, ...]:
    """Mean pass@k by policy and level, with intervals over databases."""
    rows = []
    for policy, report in reports.items():
        for group in (report.total, *report.levels):
            for k in report.ks:
                if (mean := group.means[k]) is not None:
                    low, high = group.intervals.get(k, (None, None))
                    num_tasks = group.tasks - group.undecided[k]
                    rows.append(
                        PassRow(
                            policy=policy, level=group.level, k=k, estimate=mean, low=low,
                            high=high, n=group.samples, num_tasks=num_tasks,
                        )
                    )  # fmt: skip
    return tuple(rows)


def _summary(
    config: QuickstartConfig,
    dataset: Dataset,
    generated: GenerateSummary,
    filtered: FilterReport,
    reports: dict[str, PassReport],
    seconds: Mapping[str, float],
    notes: tuple[str, ...],
) -> QuickstartSummary:
    rows = tuple(
        FilterRow(
            level=row.level or 0,
            kept=row.kept,
            dropped=row.too_hard + row.too_easy,
            undecided=row.undecided,
            reasons={
                name: n for name, n in (("too hard", row.too_hard), ("too easy", row.too_easy)) if n
            },
        )
        for row in filtered.levels
    )
    versions = {
        "envgen": envgen.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    return QuickstartSummary(
        seed=config.seed,
        versions=versions,
        environments=generated.environments,
        tasks=generated.tasks,
        drafted=generated.drafted,
        rejected=generated.rejected,
        episodes=config.samples * len(dataset.own_task_ids)
        + sum(t.n + t.errors for report in reports.values() for t in report.tasks),
        kept=filtered.kept,
        filtered=rows,
        pass_at=_pass_rows(reports),
        seconds=sum(seconds.values()),
        stages=dict(seconds),
        isolated=not notes,
        notes=notes,
    )
