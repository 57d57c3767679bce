"""What the runs of ``stabilisers.py`` came to: counts and intervals, as a table, JSON and SVG.

    python -P benchmarks/stabilisers_report.py RUNS [--out docs/figures]

Collapses are counted out of all runs, with Clopper-Pearson's interval. Means and differences are over seeds,
with the percentiles of a bootstrap over them, which are narrow for few seeds; a difference pairs an arm with
all-on of the same seed, which has the same cold start and the same prompts. An interval that holds 0 is no
difference.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envgen.rollout.bootstrap import (
    BootstrapConfig,
    Estimate,
    Ratio,
    clopper_pearson,
    difference,
    estimate,
)

ARMS = (
    "all-on", "all-off", "no-unbiased-kl", "no-off-policy-mask", "no-keep-routing",
    "no-keep-sampling-mask", "index-replay",
)  # fmt: skip
WATCHED = (
    "masked_negatives", "log_ratio_p99", "kept_mass", "kept_routes", "routes", "key_sets", "clip_fraction",
)  # fmt: skip
Runs = Mapping[str, Mapping[int, dict[str, Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("stabilisers.json"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    runs = load(arguments.runs)
    if not runs.get("all-on"):
        parser.error(f"no runs of all-on in {str(arguments.runs)!r}; make them with stabilisers.py")
    missing = [(a, s) for a in ARMS for s in config["seeds"] if s not in runs.get(a, {})]
    if missing:
        print(f"INCOMPLETE: {len(missing)} of {len(ARMS) * len(config['seeds'])} runs are missing")
    figures = {arm: summary(runs[arm], runs["all-on"]) for arm in ARMS if runs.get(arm)}
    print(table(figures))
    if arguments.out is not None:
        record = {
            "config": config,
            "missing": missing,
            "arms": figures,
            "runs": [runs[arm][seed] for arm in ARMS for seed in sorted(runs.get(arm, {}))],
        }
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "stabilisers.json").write_text(json.dumps(rounded(record)) + "\n")
        plot(runs, figures, config, arguments.out / "stabilisers.svg")


def load(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The runs by arm and seed.

    Raises:
        SystemExit: if they are of different configs.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/seed-*.json")):
        run = json.loads(path.read_text())
        found.setdefault(run["arm"], {})[run["seed"]] = run
    digests = {run["config"] for runs in found.values() for run in runs.values()}
    if len(digests) > 1:
        raise SystemExit(f"{folder} holds runs of the configs {', '.join(sorted(digests))}")
    return found


def summary(
    runs: Mapping[int, dict[str, Any]], all_on: Mapping[int, dict[str, Any]]
) -> dict[str, Any]:
    """An arm's outcomes."""
    seeds = sorted(runs)
    ended = [runs[seed]["collapsed_after"] is not None or runs[seed]["diverged"] for seed in seeds]
    exact = clopper_pearson(len(seeds), sum(map(bool, ended)))
    paired = [seed for seed in seeds if seed in all_on]
    curves = [runs[seed]["curve"] for seed in seeds]
    return {
        "seeds": seeds,
        "collapses": sum(map(bool, ended)),
        "collapse_interval": [exact.low, exact.high],
        "before": over([runs[seed]["before"]["sampled"] for seed in seeds], seeds),
        "peak": over([runs[seed]["peak"] for seed in seeds], seeds),
        "final": over([runs[seed]["final"] for seed in seeds], seeds),
        "final_to_all_on": against(runs, all_on, paired),
        **{
            name: float(np.mean([p[name] for curve in curves for p in curve if name in p]))
            for name in WATCHED
        },
    }


def over(values: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """A mean over seeds."""
    found = estimate(Ratio.mean(values), seeds, BootstrapConfig())
    assert found is not None
    return shown(found)


def against(
    runs: Mapping[int, dict[str, Any]], all_on: Mapping[int, dict[str, Any]], seeds: Sequence[int]
) -> dict[str, Any]:
    """The final reward less that of all-on."""
    before, after = (Ratio.mean([some[seed]["final"] for seed in seeds]) for some in (all_on, runs))
    found = difference(before, after, seeds, BootstrapConfig())
    assert found is not None
    return shown(found)


def shown(found: Estimate) -> dict[str, Any]:
    return {"value": found.value, "low": found.low, "high": found.high}


def rounded(value: Any) -> Any:
    """Floats to four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def table(figures: Mapping[str, dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        "| arm | collapses | peak | final | to all-on | masked | p99 of \\|log r\\| | kept mass | routes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, one in figures.items():
        low, high = one["collapse_interval"]
        lines.append(
            f"| {arm} | {one['collapses']} of {len(one['seeds'])} ({low:.2f}..{high:.2f}) "
            f"| {between(one['peak'])} | {between(one['final'])} "
            f"| {'' if arm == 'all-on' else between(one['final_to_all_on'], '+')} "
            f"| {one['masked_negatives']:.0%} | {one['log_ratio_p99']:.3f} | {one['kept_mass']:.2f} "
            f"| {one['kept_routes']:.1%} |"
        )
    return "\n".join(lines)


def between(found: Mapping[str, Any], sign: str = "") -> str:
    text = f"{found['value']:{sign}.2f}"
    return text if found["low"] is None else f"{text} ({found['low']:.2f}..{found['high']:.2f})"


def plot(
    runs: Runs, figures: Mapping[str, dict[str, Any]], config: dict[str, Any], path: Path
) -> None:
    """Rewards over updates, one panel an arm: each seed, their mean, and that of all-on."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    each = config["update"]["mini_batches"]
    figure, axes = pyplot.subplots(1, len(figures), figsize=(2.1 * len(figures), 2.6), sharey=True)
    baseline = mean_curve(runs["all-on"])
    for arm, axis in zip(figures, np.atleast_1d(axes), strict=True):
        for run in runs[arm].values():
            rewards = [point["reward"] for point in run["curve"]]
            axis.plot(each * np.arange(len(rewards)), rewards, color="grey", linewidth=0.5)
        axis.plot(each * np.arange(len(baseline)), baseline, "--", color="black", linewidth=0.9)
        own = mean_curve(runs[arm])
        axis.plot(each * np.arange(len(own)), own, color="tab:blue")
        axis.set(xlabel="updates", ylim=(0, 1.02))
        axis.set_title(f"{arm} ({len(runs[arm])})", fontsize=8)
    np.atleast_1d(axes)[0].set_ylabel("reward (dashed: all-on)")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def mean_curve(runs: Mapping[int, dict[str, Any]]) -> list[float]:
    """Mean reward of each batch, as far as all runs got."""
    curves = [[point["reward"] for point in run["curve"]] for run in runs.values()]
    return [float(np.mean(values)) for values in zip(*curves, strict=False)]


if __name__ == "__main__":
    main()
