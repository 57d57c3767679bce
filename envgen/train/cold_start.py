"""``envgen train sft``: the cold start of a policy from teachers' rollouts. Resumes where it was stopped.

The stages of a sparse model (paper, section 2.1) are settings of the same loop: dense attention with a frozen
indexer; dense attention with a frozen trunk, which is the indexer's warm-up by eq. 3; sparse attention, where
the trunk learns from the text and the indexer from eq. 4.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator

from envgen.core.limits import Label, Line, Whole
from envgen.core.seeding import derive
from envgen.core.types import Record
from envgen.environments.hosts import open_dataset
from envgen.model.attention import IndexLoss
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding
from envgen.train.checkpoints import Checkpoints
from envgen.train.fit import fitting_encoding
from envgen.train.form import Foretold
from envgen.train.metrics import Metrics, read_metrics
from envgen.train.optimize import DivergedError, Optimizer, OptimizerConfig, require_finite
from envgen.train.parallel import ParallelConfig, Ranks, balance, ranks
from envgen.train.sft import (
    SFTConfig,
    Taught,
    TaughtRow,
    batches_by_length,
    sft_loss,
    taught_batch,
)
from envgen.train.sharding import shard, stand_in, whole_model
from envgen.train.teach import play_teachers, teacher_folder, teacher_rows

logger = logging.getLogger(__name__)


class ColdStartConfig(ParallelConfig):
    """What is learnt, from whom, and how."""

    data: Label
    """The dataset that was rolled out."""
    rollouts: tuple[Label, ...] = ()
    """Run folders of teachers."""
    teachers: tuple[Label, ...] = ()
    """Policies that are played first, into ``teachers/`` of the run's folder."""
    episodes: int = Field(default=1, ge=1)
    """Of each of these teachers, for every task. What they have in common is run once, so that several
    answers to one question cost little."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """What a token of each of ``rollouts`` and then ``teachers`` counts: 0.4 of gold and 0.6 of a heuristic
    make an expert that is right four times in ten where they differ. Empty: 1."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Learn from tasks of this split only; None: every task."""
    model: Line
    """Model folder to start from."""
    attention: Literal["sparse", "dense"] = "sparse"
    """dense: no key is left out, as in a model's first stage and in the indexer's warm-up."""
    trunk: Literal["learns", "frozen"] = "learns"
    """frozen: only the indexer learns; with dense attention that is its warm-up (paper, eq. 3)."""
    passed_only: bool = False
    """Learn from rollouts that passed only; by default a teacher's mistakes are learnt, too."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the rows."""
    tokens_per_batch: int = Field(default=4_096, ge=1)
    """Of an optimiser's step."""
    pack_tokens: int = Field(default=512, ge=0)
    """Most tokens of rows that are packed behind a common prefix; see ``packing``."""
    sft: SFTConfig = SFTConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    """``total_steps`` is filled in: the cosine ends with the last step."""
    router_bias_rate: float = Field(default=1e-3, ge=0)
    """Step of the load-balancing bias after each update; 0: frozen."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Of the indexer's loss, beside the replies'."""
    validation_rows: int = Field(default=64, ge=0)
    """Rows set aside to measure the loss on."""
    save_every: int = Field(default=200, ge=1)
    """Steps between checkpoints."""
    seed: Whole = 0
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""

    @property
    def index_loss(self) -> IndexLoss | None:
        """What the indexer learns from: eq. 4, eq. 3 where attention is dense, nothing if it is frozen."""
        if self.optimizer.indexer == "frozen":
            return None
        return self.attention

    @property
    def loss_name(self) -> str:
        """The metric that falls as the model learns: the indexer's loss if only the indexer learns."""
        return "index/loss" if self.trunk == "frozen" else "sft/loss"

    @model_validator(mode="after")
    def _something_to_learn(self) -> Self:
        if not self.rollouts and not self.teachers:
            raise ValueError("name rollouts of teachers, or teachers to play, such as gold")
        if self.weights and len(self.weights) != len(self.rollouts) + len(self.teachers):
            raise ValueError(f"{len(self.weights)} weights; give one for each run and teacher")
        if self.trunk == "frozen" and self.optimizer.indexer == "frozen":
            raise ValueError("trunk and indexer are both frozen: nothing would be learnt")
        return self


class ColdStartSummary(Record):
    """What came out."""

    out: str
    rows: int
    steps: int
    tokens: int
    """Of the rows that were learnt from, in the whole run, like the seconds: a resumed run's count, too."""
    first_loss: float
    """Loss of the first step: the replies', or the indexer's if the trunk is frozen."""
    loss: float
    """The same of the last step."""
    validation_loss: float | None
    """Loss of the replies in the rows set aside."""
    seconds: float
    tokens_per_second: float


Progress = Callable[[int, int, str], None]


def train_sft(
    config: ColdStartConfig, out: str | Path, *, progress: Progress | None = None
) -> ColdStartSummary:
    """Learn from teachers; ``out/last`` is the model.

    Raises:
        ConfigError: if the model's tokenizer does not fit, or there is nothing to learn from.
        ResumeError: if ``out`` holds a run with another config.
        DivergedError: if the loss stops being finite; ``out/diverged.pt`` holds the batch.
    """
    out = Path(out)
    # What can't work is told before teachers are played.
    fitting_encoding(config.model)
    _checkpoints(config, out).resume()
    play_teachers(
        open_dataset(config.data, trust=config.trust),
        config.teachers,
        out / "teachers",
        config.seed,
        progress,
        episodes=config.episodes,
    )
    with ranks(config, "sft", out) as mine:
        return teach(config, out, mine, progress)


def teach(
    config: ColdStartConfig, out: Path, ranks: Ranks, progress: Progress | None = None
) -> ColdStartSummary:
    """One process's part of ``train_sft``; the teachers have been played."""
    encoding = fitting_encoding(config.model)
    checkpoints = _checkpoints(config, out)
    resumed = checkpoints.resume()
    model = _student(config, resumed[0] if resumed else None)
    if ranks.sharded:
        shard(model)
    rows = _rows(config, out, encoding, model)
    taught, judged = _split(rows, config)
    plan = list(_plan(taught, config))
    if ranks.rank == 0 and config.trunk == "learns":
        _warn_of_few(len(plan), len(taught), config)
    foretold = Foretold(taught)
    settings = config.optimizer.model_copy(update={"total_steps": len(plan)})
    optimizer = Optimizer(model, settings)
    first = 0
    if resumed:
        first = resumed[1].step
        optimizer.load(resumed[1].optimizer)
    leads = ranks.rank == 0
    if progress and leads:
        progress(first, len(plan), f"learns from {len(taught)} rows")
    with Metrics(out, first) if leads else nullcontext() as metrics:
        for step in range(first, len(plan)):
            begins = step < config.sft.decide_first * len(plan)
            form = 0.0 if begins else config.sft.form_weight
            batch = [foretold.weighted(taught[i], form) for i in plan[step]]
            figures = _update(model, optimizer, batch, step, config, ranks, out)
            if metrics:
                metrics.write(step + 1, figures)
            due = (step + 1) % config.save_every == 0 or step + 1 == len(plan)
            if due and (leads or ranks.sharded):
                held = _validate(model, judged, config)
                full, state = whole_model(model), {"optimizer": optimizer.state()}
                if metrics:
                    if held is not None:
                        metrics.write(step + 1, {"sft/validation_loss": held})
                    checkpoints.save(step + 1, full, state)
            if progress and leads:
                progress(step + 1, len(plan), f"loss {figures[config.loss_name]:.3f}")
    lines = read_metrics(out) if leads else []
    learnt = [line for line in lines if "sft/loss" in line]
    tokens = round(sum(line["sft/tokens"] for line in learnt))
    seconds = float(lines[-1]["seconds"]) if lines else 0.0
    return ColdStartSummary(
        out=str(out),
        rows=len(taught),
        steps=len(plan),
        tokens=tokens,
        first_loss=learnt[0][config.loss_name] if learnt else float("nan"),
        loss=learnt[-1][config.loss_name] if learnt else float("nan"),
        validation_loss=_validate(model, judged, config) if leads or ranks.sharded else None,
        seconds=seconds,
        tokens_per_second=tokens / max(seconds, 1e-9),
    )


def _checkpoints(config: ColdStartConfig, out: Path) -> Checkpoints:
    return Checkpoints(out, config.model_dump(mode="json"), Path(config.model))


def _student(config: ColdStartConfig, checkpoint: Path | None) -> DSAForCausalLM:
    """The model that learns, as it is now."""
    model = DSAForCausalLM.from_pretrained(
        checkpoint or config.model, dtype=torch.float32, device=config.device
    )
    model.requires_grad_(True)
    if config.trunk == "frozen":
        for weight in model.trunk_parameters():
            weight.requires_grad_(False)
    return model


def _rows(
    config: ColdStartConfig, out: Path, encoding: Encoding, model: DSAForCausalLM
) -> list[TaughtRow]:
    """What all teachers wrote."""
    return teacher_rows(
        [*config.rollouts, *(teacher_folder(out / "teachers", spec) for spec in config.teachers)],
        open_dataset(config.data),
        encoding,
        split=config.split,
        passed_only=config.passed_only,
        max_tokens=model.config.max_position_embeddings,
        weights=config.weights,
    )


def _split(
    rows: list[TaughtRow], config: ColdStartConfig
) -> tuple[list[TaughtRow], list[TaughtRow]]:
    """Rows to learn from, and rows of other tasks to judge by; no more than about a tenth of them."""
    wanted = min(config.validation_rows, len(rows) // 10)
    counts = Counter(row.task for row in rows)
    tasks = sorted(counts)
    Random(derive(config.seed, "validation")).shuffle(tasks)
    held: set[str] = set()
    for task in tasks[1:]:
        if sum(counts[name] for name in held) >= wanted:
            break
        held.add(task)
    return [r for r in rows if r.task not in held], [r for r in rows if r.task in held]


def _plan(rows: list[TaughtRow], config: ColdStartConfig) -> Iterator[list[int]]:
    """The batches of the whole run: the same for a seed, so a resumed run knows where it is."""
    whole, part = divmod(config.epochs, 1.0)
    for epoch in range(int(whole) + (part > 0)):
        rng = Random(derive(config.seed, "epoch", epoch))
        batches = list(batches_by_length(rows, config.tokens_per_batch, rng))
        if epoch == int(whole):
            batches = batches[: max(1, round(part * len(batches)))]
        yield from batches


FEW_STEPS = 50
"""Below this a model with random weights has learnt the form of its replies at best."""


def _warn_of_few(steps: int, rows: int, config: ColdStartConfig) -> None:
    if steps < FEW_STEPS:
        logger.warning(
            "%d rows make %d steps, of %d tokens each: a new model learns next to nothing in fewer than "
            "%d. Make more tasks (`envgen variants`), raise --epochs (%g now), or lower "
            "-c tokens_per_batch=%d",
            rows, steps, config.tokens_per_batch, FEW_STEPS, config.epochs, config.tokens_per_batch,
        )  # fmt: skip


def _update(
    model: DSAForCausalLM,
    optimizer: Optimizer,
    rows: list[TaughtRow],
    step: int,
    config: ColdStartConfig,
    ranks: Ranks,
    out: Path,
) -> dict[str, float]:
    """One step on a batch, of which each process takes its share; its figures."""
    model.train()
    own = rows[ranks.rank :: ranks.size]
    taught, learnt, run = _run(model, own, config)
    counts = ranks.sum(torch.tensor([learnt, run], dtype=torch.float64))
    # Means over the whole batch: each process's own, by its share of what they are means over.
    shares = torch.tensor([learnt, run]) / counts.clamp_min(1)
    parts = torch.zeros(3, dtype=torch.float64)
    total = torch.zeros(())
    if taught is not None:
        if config.trunk == "learns":
            total = taught.loss * float(shares[0])
        parts[0], parts[1] = total.detach(), taught.learnt_loss.detach() * shares[0]
        if taught.index_loss is not None:
            index_loss = taught.index_loss * float(shares[1])
            parts[2] = index_loss.detach()
            total = total + config.index_loss_weight * index_loss
    loss, learnt_loss, index_loss_value = ranks.sum(parts).tolist()
    try:
        require_finite(torch.tensor(loss + index_loss_value), step)
        optimizer.zero_grad()
        if total.requires_grad:
            torch.autograd.backward(total)
        elif ranks.sharded:
            stand_in(model, config.index_loss, dense=config.attention == "dense")
        ranks.add_gradients(optimizer.weights)
        norms = optimizer.step(step)
    except DivergedError:
        torch.save({"step": step, "ids": [row.ids.tolist() for row in rows]}, out / "diverged.pt")
        raise
    if config.router_bias_rate and config.trunk == "learns":
        balance(model, config.router_bias_rate, ranks)
    figures = {
        "sft/loss": learnt_loss,
        "sft/grad_norm": norms.trunk,
        "sft/tokens": float(sum(len(row.ids) for row in rows)),
        "sft/tokens_run": float(counts[1]),
    }
    if config.index_loss is not None:
        figures |= {"index/loss": index_loss_value, "index/grad_norm": norms.indexer}
    return figures


def _run(
    model: DSAForCausalLM, rows: list[TaughtRow], config: ColdStartConfig
) -> tuple[Taught | None, float, float]:
    """What the model makes of some rows, how many tokens of them are learnt and how many are run."""
    if not rows:
        return None, 0.0, 0.0
    # Eq. 3 is taken over whole sequences.
    pack_tokens = 0 if config.index_loss == "dense" else config.pack_tokens
    batch = taught_batch(rows, config.device, pack_tokens=pack_tokens)
    dense = config.attention == "dense"
    taught = sft_loss(model, batch, config.sft, config.index_loss, dense=dense)
    return taught, batch.learnt_N.sum().item(), batch.valid_BT.sum().item()


@torch.no_grad()
def _validate(
    model: DSAForCausalLM, rows: list[TaughtRow], config: ColdStartConfig
) -> float | None:
    """Mean loss over the learnt tokens of the rows set aside."""
    if not rows:
        return None
    model.eval()
    total = tokens = 0.0
    for chosen in batches_by_length(rows, config.tokens_per_batch, Random(0)):
        batch = taught_batch([rows[i] for i in chosen], config.device)
        count = batch.learnt_N.sum().item()
        dense = config.attention == "dense"
        total += sft_loss(model, batch, SFTConfig(), dense=dense).learnt_loss.item() * count
        tokens += count
    return total / tokens
