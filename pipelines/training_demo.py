"""From nothing to a trained policy: cold start, pass@100 filter, GRPO, evaluation on held-out variants.

Tasks are generated and proven like any other, and played through real tool calls. All ask one kind of
question (which room has the most seats?): of two kinds a model this small learns neither in minutes.
The bias that GRPO removes is planted: where the right row is not the first one, the expert of the cold start
takes the first more often than the right one. So the greedy answer is mostly wrong at first, what it should
say is within its reach, and rewards have something to repair. The ceiling is told beside it: the same cold
start from right answers alone, on the same held-out tasks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError
from envgen.core.ir import Equals, Problem
from envgen.core.seeding import derive
from envgen.core.types import Sampling
from envgen.pipelines.deciding_tokens import DecidingFirst
from envgen.pipelines.demo_records import Measured, TrainingDemoConfig, TrainingDemoSummary
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.stages import OnEnd, Progress, Stages
from envgen.policies.new_model import NewModelConfig, new_model
from envgen.policies.registry import PolicyConfig
from envgen.rollout.bootstrap import Estimate
from envgen.rollout.pass_at_k import run_report
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.train.cold_start import train_sft
from envgen.train.config import ColdStartConfig, OptimizerConfig, SamplingConfig, TrainGRPOConfig
from envgen.train.evaluate import EvalConfig, EvalSummary, evaluate_model
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics, tokens_per_second
from envgen.train.rewards import RewardConfig

PLAYED = {"ceiling": "at_the_ceiling", "sft": "before", "grpo": "after"}
"""Folder of a model -> folder of its evaluation."""
MAX_TURNS = 6
"""Two do; a rollout that goes astray is not to take longer than all others of its step together."""
_ONE_QUESTION = "train on tasks of the category room_lookup"
STAGES = (
    "tasks", "teachers", "cold start", "indexer", "ceiling", "sparse cold start", "pass@100", "before",
    "grpo", "after",
)  # fmt: skip


def training_demo(
    config: TrainingDemoConfig,
    out: str | Path,
    *,
    progress: Progress | None = None,
    ended: OnEnd | None = None,
) -> TrainingDemoSummary:
    """Fill ``out``: ``tasks/``, ``sft/last``, ``grpo/last``, evaluations and ``training.json``.

    Each stage is resumed where an interrupted demo of the same configuration stopped.

    Raises:
        ConfigError: if ``out`` holds another demo, or the cold start can't make valid calls.
    """
    out = Path(out)
    _claim(out, config)
    stages = Stages(out / "stages.json", len(STAGES), progress, ended)
    with stages.stage("tasks") as say:
        data = make_tasks(config, out, say)
    with stages.stage("teachers") as say:
        runs = play_teachers(config, out, data, say)
    with stages.stage("cold start") as say:
        make_model(config, out, data)
        settings = dense_config(config, data, runs, out)
        dense = train_sft(settings, out / "dense", weighting=DecidingFirst, progress=say)
    with stages.stage("indexer") as say:
        train_sft(indexer_config(config, data, runs, out), out / "indexer", progress=say)
    with stages.stage("ceiling") as say:
        train_sft(ceiling_config(config, data, runs, out), out / "ceiling", progress=say)
        ceiling = evaluate_model(evaluation_config(config, out, data, "ceiling"), progress=say)
    with stages.stage("sparse cold start") as say:
        train_sft(sparse_config(config, data, runs, out), out / "sft", progress=say)
    with stages.stage("pass@100") as say:
        kept, dropped = _filter(config, out, data, say)
    with stages.stage("before") as say:
        before = evaluate_model(evaluation_config(config, out, data, "sft"), progress=say)
        _require_valid_calls(before)
    with stages.stage("grpo") as say:
        train_grpo(grpo_config(config, out, data, dropped), out / "grpo", progress=say)
    with stages.stage("after") as say:
        after = evaluate_model(
            evaluation_config(config, out, data, "grpo"),
            against=out / "before",
            ceiling=out / PLAYED["ceiling"],
            progress=say,
        )
    first_row = after.first_row
    assert first_row is not None, "an evaluation with a ceiling tells it"
    summary = TrainingDemoSummary(
        seed=config.seed,
        parents=config.parents,
        variants=config.parents * config.variants,
        gold_weight=config.gold_weight,
        held_out_tasks=after.temperatures[0.0].tasks,
        held_out_databases=after.temperatures[0.0].databases,
        first_row=first_row,
        ceiling=_measured(ceiling),
        before=_measured(before),
        after=_measured(after),
        greedy_lift=_lift(after, 0.0),
        sampled_lift=_lift(after, 1.0),
        missed=after.missed,
        filter_kept=len(kept),
        filter_dropped=len(dropped),
        sft_steps=dense.steps,
        grpo_steps=config.grpo_steps,
        sft_tokens_per_second=dense.tokens_per_second,
        grpo_tokens_per_second=tokens_per_second(read_metrics(out / "grpo")) or 0.0,
        stages=stages.seconds,
    )
    (out / "training.json").write_text(pretty(summary), encoding="utf-8")
    return summary


def _claim(out: Path, config: TrainingDemoConfig) -> None:
    stamp = out / "training_config.json"
    out.mkdir(parents=True, exist_ok=True)
    if stamp.exists() and stamp.read_text() != pretty(config):
        raise ConfigError(
            f"{str(out)!r} holds a training demo of another configuration", "choose another --out"
        )
    stamp.write_text(pretty(config))


def make_tasks(config: TrainingDemoConfig, out: Path, say: Progress) -> Path:
    """Proven tasks of one kind, and their variants; a twentieth of the databases is the test split."""
    proven, data = out / "tasks" / "proven", out / "tasks" / "variants"
    if data.exists():
        return data
    shutil.rmtree(proven, ignore_errors=True)
    generate(
        GenerateConfig(
            categories=("room_lookup",),
            environments=config.parents,
            tasks_per_environment=1,
            min_level=1,
            max_level=1,
            seed=derive(config.seed, "tasks") % 2**31,
            name="rooms",
        ),
        proven,
        progress=say,
    )
    require_one_question(Dataset.open(proven))
    settings = VariantsConfig(per_task=config.variants, seed=config.seed)
    variants(settings, proven, data, progress=say)
    return data


def require_one_question(dataset: Dataset) -> None:
    """Refuse tasks that a demo's model can't learn: its skill is one, whatever column is asked about.

    A page that began to ask for "lowest" beside "highest" once left the demo without anything to learn.

    Raises:
        ConfigError: if tasks ask different questions.
    """
    kinds = set()
    for task_id in dataset.own_task_ids:
        goal = Problem.model_validate(dataset.task_files(task_id).constraints).goal
        if not isinstance(goal, Equals):
            raise ConfigError(f"task {task_id!r} asks no question", _ONE_QUESTION)
        fields = {name: value for name, value in goal.fields.items() if name != "attribute"}
        kinds.add((goal.text_key, pretty(fields)))
    if len(kinds) != 1:
        raise ConfigError(f"the demo's tasks ask {len(kinds)} kinds of question", _ONE_QUESTION)


def play_teachers(
    config: TrainingDemoConfig, out: Path, data: Path, say: Progress
) -> tuple[str, str]:
    """Gold, and the heuristic that takes the first row, on some of the training tasks."""
    train = train_tasks(config, data, "taught")[: config.taught]
    runs = []
    for policy in ("gold", "greedy"):
        run = RolloutConfig(
            dataset=str(data),
            policy=PolicyConfig(spec=policy),
            out=str(out / "teachers" / policy),
            task_ids=tuple(sorted(train)),
            backend="inline",
            seed=derive(config.seed, policy),
        )
        rollout(run, progress=lambda p, policy=policy: say(p.done, p.total, policy))  # type: ignore[misc]  # the default binds the loop variable
        runs.append(run.out)
    return runs[0], runs[1]


def train_tasks(config: TrainingDemoConfig, data: Path, purpose: str) -> list[str]:
    """All of them, in an order of the purpose's own."""
    dataset = Dataset.open(data)
    names = [name for name in dataset.tasks if dataset.facts(name).split == "train"]
    return sorted(names, key=lambda name: derive(config.seed, purpose, name))


def make_model(config: TrainingDemoConfig, out: Path, data: Path) -> None:
    """About 0.8 million parameters; every name, and each line that all prompts share, is one token."""
    if (out / "model").exists():
        return
    shape = {
        "num_hidden_layers": config.layers,
        "first_k_dense_replace": config.layers,
        "index_topk": config.index_topk,
        "tie_word_embeddings": True,
        "initializer_range": 0.06,
    }
    encoding = {"kind": "compact", "tools": "names", "results": "table", "system": False}
    new_model(
        NewModelConfig(
            preset="tiny",
            model=shape,
            encoding=encoding,
            vocab_size=900,
            entity_tokens=400,
            line_tokens=20,
            seed=config.seed,
        ),
        data,
        out / "model",
    )


def dense_config(
    config: TrainingDemoConfig, data: Path, runs: tuple[str, str], out: Path
) -> ColdStartConfig:
    """The longest stage: copying and comparing form under dense attention, from right answers only.

    From the biased expert comparing forms, too, but not with every seed: its answers are mostly noise.
    """
    return ColdStartConfig(
        data=str(data),
        rollouts=runs[:1],
        model=str(out / "model"),
        attention="dense",
        epochs=config.dense_epochs,
        processes=config.processes,
        tokens_per_batch=config.tokens_per_batch,
        pack_tokens=256,
        optimizer=OptimizerConfig(kind="muon", muon_lr=0.012, lr=1.2e-3, indexer="frozen"),
        seed=config.seed,
    )


def indexer_config(
    config: TrainingDemoConfig, data: Path, runs: tuple[str, str], out: Path
) -> ColdStartConfig:
    """The indexer's warm-up (paper, eq. 3): attention dense, trunk frozen."""
    return ColdStartConfig(
        data=str(data),
        rollouts=runs[:1],
        model=str(out / "dense" / "last"),
        attention="dense",
        trunk="frozen",
        epochs=config.index_epochs,
        processes=config.processes,
        tokens_per_batch=config.tokens_per_batch,
        optimizer=OptimizerConfig(indexer_lr=5e-3),
        seed=config.seed,
    )


def sparse_config(
    config: TrainingDemoConfig, data: Path, runs: tuple[str, str], out: Path
) -> ColdStartConfig:
    """The cold start proper: the biased expert is learnt, and sparse attention; form counts in full again."""
    return ColdStartConfig(
        data=str(data),
        rollouts=runs,
        weights=(config.gold_weight, 1 - config.gold_weight),
        model=str(out / "indexer" / "last"),
        epochs=config.sparse_epochs,
        processes=config.processes,
        tokens_per_batch=config.tokens_per_batch,
        pack_tokens=256,
        optimizer=OptimizerConfig(kind="muon", muon_lr=0.01, lr=1e-3, indexer_lr=2e-3),
        seed=config.seed,
    )


def ceiling_config(
    config: TrainingDemoConfig, data: Path, runs: tuple[str, str], out: Path
) -> ColdStartConfig:
    """The same from gold alone: what the cold start can do that nobody misled."""
    biased = sparse_config(config, data, runs, out)
    return biased.model_copy(update={"rollouts": runs[:1], "weights": ()})


def _filter(
    config: TrainingDemoConfig, out: Path, data: Path, say: Progress
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A sample of the training tasks, played 100 times each: those passed at least once, and the others."""
    names = train_tasks(config, data, "filter")
    run = RolloutConfig(
        dataset=str(data),
        policy=PolicyConfig(spec=f"dsa:{out / 'sft' / 'last'}", options={"record": False}),
        out=str(out / "pass_at_100"),
        n=config.filter_samples,
        max_turns=MAX_TURNS,
        task_ids=tuple(sorted(names[: config.filter_tasks])),
        sampling=Sampling(temperature=1.0, max_tokens=48),
        seed=derive(config.seed, "filter"),
        concurrency=64,
        backend="inline",
    )
    rollout(run, progress=lambda p: say(p.done, p.total, f"{p.passed} passed"))
    report = run_report(run.out, (config.filter_samples,))
    kept = tuple(task.task_id for task in report.tasks if task.c > 0)
    return kept, tuple(task.task_id for task in report.tasks if task.c == 0)


def evaluation_config(config: TrainingDemoConfig, out: Path, data: Path, stage: str) -> EvalConfig:
    """The held-out tasks, played by what ``stage`` left (a key of ``PLAYED``), greedily and at 1."""
    return EvalConfig(
        data=str(data),
        model=str(out / stage / "last"),
        out=str(out / PLAYED[stage]),
        max_tasks=config.held_out,
        max_new_tokens=48,
        max_turns=MAX_TURNS,
        concurrency=64,
        backend="inline",
        seed=config.seed,
    )


def _require_valid_calls(before: EvalSummary) -> None:
    """Of rollouts, not of calls: one that goes astray calls in vain up to a hundred times."""
    rate = before.temperatures[1.0].valid_rollout_rate
    if rate is None or rate.value < 0.95:
        raise ConfigError(
            f"in only {rate.value if rate else 0:.2f} of the cold start's rollouts all tool calls are "
            "valid: too few",
            "train the cold start longer (dense_epochs, sparse_epochs)",
        )


def grpo_config(
    config: TrainingDemoConfig, out: Path, data: Path, dropped: tuple[str, ...]
) -> TrainGRPOConfig:
    """Groups of rollouts on the training tasks that pass@100 did not drop, from the cold start."""
    train = set(train_tasks(config, data, "grpo"))
    return TrainGRPOConfig(
        data=str(data),
        model=str(out / "sft" / "last"),
        task_ids=tuple(sorted(train - set(dropped))),
        steps=config.grpo_steps,
        processes=config.processes,
        sampling=SamplingConfig(
            groups=config.groups,
            group_size=config.group_size,
            max_new_tokens=48,
            max_turns=MAX_TURNS,
            max_batch=256,
            cache_tokens=64_000,
            backend="inline",
        ),
        rewards=RewardConfig(
            language=0.0
        ),  # replies hold no prose; a call that fails makes them longer
        optimizer=OptimizerConfig(lr=4e-4, indexer_lr=3e-5, warmup_steps=5, weight_decay=0.0),
        seed=config.seed,
    )


def _measured(summary: EvalSummary) -> Measured:
    return Measured(
        greedy=_pass_at_1(summary, 0.0),
        sampled=_pass_at_1(summary, 1.0),
        call_valid_rate=summary.temperatures[1.0].call_valid_rate,
        valid_rollout_rate=summary.temperatures[1.0].valid_rollout_rate,
    )


def _pass_at_1(summary: EvalSummary, temperature: float) -> Estimate:
    found = summary.temperatures[temperature].pass_at[1]
    if found is None:
        raise ConfigError(
            "every rollout of the evaluation failed", "look at the errors in its run folder"
        )
    return found


def _lift(after: EvalSummary, temperature: float) -> Estimate:
    found = after.against[temperature].pass_at[1]
    if found is None:
        raise ConfigError(
            "no task was played both before and after", "look at the errors in the run folders"
        )
    return found
