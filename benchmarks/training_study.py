"""Does GRPO teach the quickstart's policy what nothing else at the same cost does?

    python -P benchmarks/training_study.py --work FOLDER [--seeds 10 11 12 13 14] [--out docs/figures]

Per seed: the training demo of ``envgen quickstart`` (new tasks, cold start, pass@100, GRPO), judged on
held-out databases. Then, from the same cold start and for the same processor seconds as GRPO took: more SFT
on the same data; SFT on its own rollouts that passed; GRPO with the rewards shuffled within each group. And
rejection sampling for as many rounds of as many rollouts: each step learns what passed, and nothing else. The
cold start is also sampled at five temperatures, for sharpening alone can look like learning. Tool results of
tasks that the trained policy passes are edited so that another row wins. The trained policy plays with dense
attention, and with an indexer of random weights. ``--work`` is resumed: what is measured already stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from envgen.core.canonical import pretty
from envgen.core.seeding import derive
from envgen.core.types import Message, Sampling
from envgen.model.modeling import DSAForCausalLM
from envgen.pipelines.demo_records import TrainingDemoConfig
from envgen.pipelines.training_demo import (
    evaluation_config,
    grpo_config,
    sparse_config,
    training_demo,
)
from envgen.policies.dsa import DSAPolicy, DSAPolicyConfig
from envgen.policies.registry import PolicyConfig
from envgen.rollout.bootstrap import Estimate
from envgen.rollout.run import RolloutConfig, rollout
from envgen.rollout.task_tools import TaskTools
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.train.cold_start import train_sft
from envgen.train.config import TrainGRPOConfig
from envgen.train.evaluate import EvalConfig, EvalSummary, compare_runs, evaluate_model
from envgen.train.grpo_run import train_grpo

TEMPERATURES = (0.0, 0.3, 0.5, 0.7, 1.0)
MAX_TOKENS = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("--demo-only", action="store_true", help="leave the controls for later")
    parser.add_argument(
        "--demo", type=Path, help="a finished quickstart: rejection sampling on it alone"
    )
    parser.add_argument("--out", type=Path, help="where training_study.json goes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.demo is not None:
        print(json.dumps(rejection_beside(arguments.demo, arguments.work), indent=1))
        return
    found = [
        Seed(seed, arguments.work / f"seed-{seed}").run(demo_only=arguments.demo_only)
        for seed in arguments.seeds
    ]
    if arguments.out is not None:
        path = arguments.out / "training_study.json"
        record = {"config": TrainingDemoConfig().model_dump(mode="json"), "seeds": found}
        path.write_text(json.dumps(record, indent=1) + "\n")
    for line in table(found):
        print(line)


class OutOfBudgetError(Exception):
    """A control has used the processor seconds that GRPO took."""


class Seed:
    """The study of one seed; parts that are in ``parts.json`` are not measured again."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.config = TrainingDemoConfig(seed=seed)
        self.folder = folder
        self.demo = folder / "demo"
        self.data = self.demo / "tasks" / "variants"
        self.runs = tuple(str(self.demo / "teachers" / name) for name in ("gold", "greedy"))
        folder.mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, Any] = {}
        if (folder / "parts.json").exists():
            self.parts = json.loads((folder / "parts.json").read_text())

    def run(self, *, demo_only: bool = False) -> dict[str, Any]:
        """All parts, in order."""
        self.part("demo", self._demo)
        self.part("temperatures", self._temperatures)
        if demo_only:
            return {"seed": self.config.seed, **self.parts}
        budget = self.parts["demo"]["cpu_s"]["grpo"]
        self.part("more_sft", lambda: self._more_sft(budget))
        self.part("rft", lambda: self._rft(budget))
        self.part("rejection", self._rejection)
        self.part("permuted", lambda: self._permuted(budget))
        self.part("counterfactual", self._counterfactual)
        self.part("attention", self._attention)
        return {"seed": self.config.seed, **self.parts}

    def part(self, name: str, measure: Callable[[], Any]) -> None:
        """Measure, unless that was done."""
        if name not in self.parts:
            started = time.monotonic()
            self.parts[name] = measure()
            (self.folder / "parts.json").write_text(json.dumps(self.parts, indent=1))
            print(f"seed {self.config.seed} {name}: {time.monotonic() - started:.0f} s", flush=True)

    def _demo(self) -> dict[str, Any]:
        spent: dict[str, float] = {}
        last, since = "", cpu_s()

        def note(done: int, total: int, text: str) -> None:
            nonlocal last, since
            stage, now = text.partition(":")[0], cpu_s()
            if stage != last:
                spent[last], last, since = now - since, stage, now

        summary = training_demo(self.config, self.demo, progress=note)
        spent[last] = cpu_s() - since
        return {"summary": json.loads(pretty(summary)), "cpu_s": spent}

    def _temperatures(self) -> dict[str, Any]:
        """The cold start at each temperature, and what GRPO's at 1 has over the best of them."""
        settings = evaluation_config(self.config, self.demo, self.data, "sft")
        played = evaluate_model(settings.model_copy(update={"temperatures": TEMPERATURES}))
        rates = {t: one.pass_at[1] for t, one in played.temperatures.items()}
        best = max(rates, key=lambda t: value(rates[t]))
        after = evaluation_config(self.config, self.demo, self.data, "grpo")
        lift = compare_runs([settings.run(best)], [after.run(1.0)]).pass_at[1]
        return {
            "pass_at_1": {str(t): told(rate) for t, rate in rates.items()},
            "best": best,
            "lift_over_best": told(lift),
        }

    def _more_sft(self, budget: float) -> dict[str, Any]:
        """The sparse cold start goes on."""
        return self._taught("more_sft", self.runs, budget)

    def _taught(
        self, name: str, runs: Sequence[str], budget: float, used: float = 0.0
    ) -> dict[str, Any]:
        """SFT from the cold start, for what is left of the budget; then the held-out tasks."""
        settings = sparse_config(self.config, self.data, (runs[0], runs[-1]), self.demo)
        steps = sum(1 for _ in (self.demo / "sft" / "metrics.jsonl").open())
        a_pass = self.parts["demo"]["cpu_s"]["sparse cold start"] / self.config.sparse_epochs
        update: dict[str, Any] = {"model": str(self.demo / "sft" / "last")}
        if name == "rft":
            update |= {"rollouts": tuple(runs), "weights": (), "passed_only": True}
            a_pass *= self.parts["rft_rows"] / max(1, 2 * self._train_tasks())
        epochs = max(0.02, (budget - used) / a_pass)
        started = cpu_s()
        shutil.rmtree(self.folder / name, ignore_errors=True)
        made = train_sft(
            settings.model_copy(update={**update, "epochs": epochs}), self.folder / name
        )
        spent = used + cpu_s() - started
        found = self._judged(self.folder / name / "last", name)
        return {**found, "cpu_s": spent, "budget_s": budget, "steps": made.steps, "before": steps}

    def _train_tasks(self) -> int:
        dataset = Dataset.open(self.data)
        return sum(dataset.facts(name).split == "train" for name in dataset.tasks)

    def _rft(self, budget: float) -> dict[str, Any]:
        """Half of the budget samples the cold start at temperature 1, the other half learns what passed."""
        dataset = Dataset.open(self.data)
        names = [name for name in dataset.tasks if dataset.facts(name).split == "train"]
        names.sort(key=lambda name: derive(self.config.seed, "rft", name))
        started, first = cpu_s(), 0
        out = self.folder / "rft-rollouts"
        shutil.rmtree(out, ignore_errors=True)
        rows, runs = 0, []
        while cpu_s() - started < budget / 2:
            chosen = names[first : first + 400]
            first += len(chosen)
            run = RolloutConfig(
                dataset=str(self.data),
                policy=PolicyConfig(spec=f"dsa:{self.demo / 'sft' / 'last'}"),
                out=str(out / f"{first}"),
                n=4,
                task_ids=tuple(sorted(chosen)),
                sampling=Sampling(temperature=1.0, max_tokens=MAX_TOKENS),
                seed=derive(self.config.seed, "rft"),
                concurrency=64,
                backend="inline",
            )
            rows += rollout(run).passed
            runs.append(run.out)
        self.parts["rft_rows"] = rows
        return {**self._taught("rft", runs, budget, cpu_s() - started), "rows": rows}

    def _rejection(self) -> dict[str, Any]:
        """As many rounds and rollouts as GRPO, which learn what passed and nothing else."""
        report = self.parts["demo"]["summary"]
        settings = rejection_config(self.config, self.demo, self.data, dropped(self.demo, report))
        started = cpu_s()
        shutil.rmtree(self.folder / "rejection", ignore_errors=True)
        train_grpo(settings, self.folder / "rejection")
        spent = cpu_s() - started
        return {**self._judged(self.folder / "rejection" / "last", "rejection"), "cpu_s": spent}

    def _permuted(self, budget: float) -> dict[str, Any]:
        """GRPO that can't learn anything: its lift is what the procedure itself does."""
        report = self.parts["demo"]["summary"]
        settings = grpo_config(self.config, self.demo, self.data, dropped(self.demo, report))
        settings = settings.model_copy(update={"permute_rewards": True, "save_every": 5})
        started, steps = cpu_s(), 0

        def stop(done: int, total: int, text: str) -> None:
            nonlocal steps
            steps = done // 5 * 5
            if steps and cpu_s() - started > budget:  # what it learns to say grows long
                raise OutOfBudgetError

        shutil.rmtree(self.folder / "permuted", ignore_errors=True)
        with contextlib.suppress(OutOfBudgetError):
            train_grpo(settings, self.folder / "permuted", progress=stop)
        spent = cpu_s() - started
        found = self._judged(self.folder / "permuted" / "last", "permuted")
        return {**found, "cpu_s": spent, "budget_s": budget, "steps": steps}

    def _evaluation(self, model: Path, name: str) -> EvalConfig:
        """The held-out tasks, played anew by a model."""
        held_out = evaluation_config(self.config, self.demo, self.data, "grpo")
        out = self.folder / f"{name}-played"
        shutil.rmtree(out, ignore_errors=True)
        return held_out.model_copy(update={"model": str(model), "out": str(out)})

    def _judged(self, model: Path, name: str) -> dict[str, Any]:
        """pass@1 on the held-out tasks, and the lift over the cold start."""
        return lifts(evaluate_model(self._evaluation(model, name), against=self.demo / "before"))

    def _counterfactual(self) -> dict[str, Any]:
        """Two values of a tool result change places so that another row wins: does the answer follow?"""
        settings = evaluation_config(self.config, self.demo, self.data, "grpo")
        with RunStore.read(settings.run(0.0).run) as run:
            passed = [t for t in run.trajectories() if t.score is not None and t.score.passed]
        policy = DSAPolicy(DSAPolicyConfig(model=settings.model, max_new_tokens=MAX_TOKENS))
        dataset = Dataset.open(self.data)
        tools = TaskTools(dataset)
        moved = asked = 0
        for trajectory in passed:
            edited = with_another_winner(trajectory.messages)
            if edited is None:
                continue
            messages, winner = edited
            asked += 1
            spec = dataset.tasks[trajectory.task_id]
            reply = policy.respond(
                messages,
                tools.of(spec.id),
                Sampling(temperature=0.0),
                seed=0,
                task=spec.public(dataset.environments[spec.environment_id]),
            )
            moved += winner in json.dumps([c.arguments for c in reply.message.tool_calls or ()])
        policy.close()
        return {
            "passed": len(passed),
            "asked": asked,
            "moved": moved,
            "share": moved / max(1, asked),
        }

    def _attention(self) -> dict[str, Any]:
        """The trained policy with all keys, with its indexer's, and with those of a random indexer."""
        trained = self.demo / "grpo" / "last"
        rows = {"trained indexer": self.parts["demo"]["summary"]["after"]}
        for name in ("dense", "random indexer"):
            folder = self.folder / name.replace(" ", "-")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(trained, folder)
            if name == "dense":
                config = json.loads((folder / "config.json").read_text())
                (folder / "config.json").write_text(json.dumps(config | {"index_topk": 4096}))
            else:
                randomise_indexer(folder, self.config.seed)
            settings = self._evaluation(folder, name.replace(" ", "-"))
            if name != "dense":
                # At random keys it talks until its turns are used up: a few tasks show that it fails.
                settings = settings.model_copy(update={"max_tasks": 64, "temperatures": (0.0,)})
            played = evaluate_model(settings).temperatures
            rows[name] = {"greedy": told(played[0.0].pass_at[1])}
        return rows


def rejection_config(
    config: TrainingDemoConfig, demo: Path, data: Path, left_out: tuple[str, ...]
) -> TrainGRPOConfig:
    """GRPO's settings but for two: no baseline, and rewards of 0 and 1."""
    plain = grpo_config(config, demo, data, left_out)
    return plain.model_copy(
        update={
            "objective": plain.objective.model_copy(update={"advantage": "none"}),
            "rewards": plain.rewards.model_copy(update={"length": 0.0}),
        }
    )


def rejection_beside(demo: Path, folder: Path) -> dict[str, Any]:
    """Rejection sampling from the cold start of a finished demo, beside its own figures."""
    study = Seed(0, folder)
    study.config = TrainingDemoConfig.model_validate_json(
        (demo / "training_config.json").read_text()
    )
    study.demo, study.data = demo, demo / "tasks" / "variants"
    summary = json.loads((demo / "training.json").read_text())
    study.parts["demo"] = {"summary": summary}
    study.part("rejection", study._rejection)
    own = {name: summary[name] for name in ("seed", "ceiling", "before", "after", "greedy_lift")}
    return {**own, "rejection": study.parts["rejection"]}


def randomise_indexer(folder: Path, seed: int) -> None:
    """Give a model folder's indexers new weights."""
    model = DSAForCausalLM.from_pretrained(folder)
    fresh = DSAForCausalLM(model.config)
    fresh.reset_parameters(seed)
    trunk = {id(weight) for weight in model.trunk_parameters()}
    with torch.no_grad():
        for old, new in zip(model.parameters(), fresh.parameters(), strict=True):
            if id(old) not in trunk:
                old.copy_(new)
    model.save_pretrained(folder)


def with_another_winner(messages: Sequence[Message]) -> tuple[list[Message], str] | None:
    """The conversation up to the tool result, with the highest value and another exchanged; who wins now."""
    place = next((i for i, m in enumerate(messages) if m.role == "tool"), None)
    if place is None:
        return None
    result = json.loads(messages[place].content or "")
    rows = result if isinstance(result, list) else next(iter(result.values()))
    key = next(name for name in rows[0] if name != "name")
    ranked = sorted(rows, key=lambda row: (-row[key], row["name"]))
    best, other = ranked[0], ranked[-1]
    if best[key] == other[key]:
        return None
    best[key], other[key] = other[key], best[key]
    winner = min(rows, key=lambda row: (-row[key], row["name"]))["name"]
    edited = messages[place].model_copy(update={"content": json.dumps(result)})
    return [*messages[:place], edited], winner


def dropped(demo: Path, report: dict[str, Any]) -> tuple[str, ...]:
    """The tasks that pass@100 left out of GRPO."""
    from envgen.rollout.pass_at_k import run_report

    tasks = run_report(str(demo / "pass_at_100"), (report_samples(),)).tasks
    return tuple(task.task_id for task in tasks if task.c == 0)


def report_samples() -> int:
    """K of the demo's filter."""
    return TrainingDemoConfig().filter_samples


def lifts(summary: EvalSummary) -> dict[str, Any]:
    """Greedy and at temperature 1: pass@1 and its difference to the cold start."""
    return {
        "greedy": told(summary.temperatures[0.0].pass_at[1]),
        "sampled": told(summary.temperatures[1.0].pass_at[1]),
        "greedy_lift": told(summary.against[0.0].pass_at[1]),
        "sampled_lift": told(summary.against[1.0].pass_at[1]),
    }


def told(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else json.loads(pretty(found))


def value(found: Estimate | None) -> float:
    return 0.0 if found is None or found.value is None else found.value


def cpu_s() -> float:
    """Processor seconds of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table(found: Sequence[dict[str, Any]]) -> list[str]:
    """As Markdown: pass@1, and differences to the cold start with intervals over databases."""

    def lift(one: dict[str, Any]) -> str:
        return f"{one['value']:+.3f} ({one['low']:+.2f}..{one['high']:+.2f})"

    lines = [
        "| seed | ceiling | GRPO, greedy | at temperature 1 over the cold start at its best | more SFT | "
        "RFT | rejection | permuted | answer follows the data | "
        "dense / trained / random indexer | processor s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        summary, sampled = one["demo"]["summary"], one.get("temperatures")
        share = one.get("counterfactual", {}).get("share")
        cells = [
            str(one["seed"]),
            f"{summary['ceiling']['greedy']['value']:.3f}" if "ceiling" in summary else "-",
            f"{summary['before']['greedy']['value']:.3f} -> {summary['after']['greedy']['value']:.3f}, "
            f"{lift(summary['greedy_lift'])}",
            f"{lift(sampled['lift_over_best'])}, {sampled['best']:g}" if sampled else "-",
            *(f"{one[n]['greedy_lift']['value']:+.3f}" if n in one else "-" for n in CONTROLS),
            "-" if share is None else f"{share:.2f}",
            " / ".join(_greedy(one.get("attention", {}), kind) for kind in KINDS),
            f"{sum(one['demo']['cpu_s'].values()):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _greedy(attention: dict[str, Any], kind: str) -> str:
    return f"{attention[kind]['greedy']['value']:.2f}" if kind in attention else "-"


KINDS = ("dense", "trained indexer", "random indexer")
CONTROLS = ("more_sft", "rft", "rejection", "permuted")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
