"""``envgen train sft``: the cold start of a policy from teachers' rollouts. A stopped run can be resumed.

The stages of a sparse model (paper, section 2.1) are settings of the same loop: dense attention with a frozen
indexer; dense attention with a frozen trunk, which is the indexer's warm-up by eq. 3; sparse attention, where
the trunk learns from the text and the indexer from eq. 4.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from envgen.core.seeding import derive
from envgen.core.types import Record
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.checkpoints import Checkpoints, fitting_encoding
from envgen.train.config import ColdStartConfig, SFTConfig
from envgen.train.metrics import Metrics, read_metrics
from envgen.train.optimize import DivergedError, Norms, Optimizer, require_finite
from envgen.train.parallel import Ranks, balance, ranks
from envgen.train.sft import SFTLoss, SFTRow, batches_by_length, sft_batch, sft_loss
from envgen.train.sharding import shard, stand_in, whole_model
from envgen.train.teachers import play_teachers, teacher_folder, teacher_rows

logger = logging.getLogger(__name__)


class ColdStartSummary(Record):
    """The result of a cold start."""

    out: str
    rows: int
    steps: int
    tokens: int
    """Tokens of all rows trained on, over the whole run, resumed parts included; so are ``seconds``."""
    first_loss: float
    """Loss of the first step: of the replies, or of the indexer if the trunk is frozen."""
    loss: float
    """The same loss in the last step."""
    validation_loss: float | None
    """Loss of the replies in the held-out rows."""
    seconds: float
    tokens_per_second: float


Progress = Callable[[int, int, str], None]
Weigh = Callable[[SFTRow, float], SFTRow]
"""Returns a row with new ``weights``; the second argument is the share of the run that is done, 0 to 1."""
Weighting = Callable[[Sequence[SFTRow]], Weigh]
"""Called once with all training rows; with several processes it must be importable."""


def train_sft(
    config: ColdStartConfig,
    out: str | Path,
    *,
    weighting: Weighting | None = None,
    progress: Progress | None = None,
) -> ColdStartSummary:
    """Learn from teachers; ``out/last`` is the model.

    Args:
        config: what is learnt, from whom, and how.
        out: the run's folder.
        weighting: what each token of a row counts, where not all alike. It is not in the run's settings:
            give the same one to go on.
        progress: called with (done, total, what).

    Raises:
        ConfigError: if the model's tokenizer does not fit, or there is nothing to learn from.
        ResumeError: if ``out`` holds a run with another config.
        DivergedError: if the loss stops being finite; ``out/diverged.pt`` holds the batch.
    """
    out = Path(out)
    # Fail before the teachers play if the run can't work.
    fitting_encoding(config.model)
    _checkpoints(config, out).resume()
    dataset = open_dataset(config.data, trust=config.trust)
    folder, seed, episodes = out / "teachers", config.seed, config.episodes
    play_teachers(dataset, config.teachers, folder, seed, progress, episodes=episodes)
    with ranks(config, partial(run_sft, config, out, weighting), out) as mine:
        return run_sft(config, out, weighting, mine, progress)


def run_sft(
    config: ColdStartConfig,
    out: Path,
    weighting: Weighting | None,
    ranks: Ranks,
    progress: Progress | None = None,
) -> ColdStartSummary:
    """One process's part of ``train_sft``; the teachers have been played."""
    return _ColdStartRun(config, out, weighting, ranks).train(progress)


class _ColdStartRun:
    """One process of a run: its student, rows, optimiser, and the loop over steps."""

    def __init__(
        self, config: ColdStartConfig, out: Path, weighting: Weighting | None, ranks: Ranks
    ) -> None:
        self.config, self.out, self.ranks = config, out, ranks
        self.leads = ranks.rank == 0
        self.checkpoints = _checkpoints(config, out)
        resumed = self.checkpoints.resume()
        self.model = _student(config, resumed[0] if resumed else None)
        if ranks.sharded:
            shard(self.model)
        rows = teacher_rows(
            [*config.rollouts, *(teacher_folder(out / "teachers", t) for t in config.teachers)],
            open_dataset(config.data),
            fitting_encoding(config.model),
            split=config.split,
            passed_only=config.passed_only,
            max_tokens=self.model.config.max_position_embeddings,
            weights=config.weights,
        )
        self.rows, self.held = _split(rows, config)
        self.plan = list(_plan(self.rows, config))
        if self.leads and config.trunk == "learns":
            _warn_of_few(len(self.plan), len(self.rows), config)
        self.weigh = weighting(self.rows) if weighting else None
        settings = config.optimizer.model_copy(update={"total_steps": len(self.plan)})
        self.optimizer = Optimizer(self.model, settings)
        self.first = 0
        if resumed:
            self.first = resumed[1].step
            self.optimizer.load(resumed[1].optimizer)

    def train(self, progress: Progress | None) -> ColdStartSummary:
        """All steps that are left."""
        config, steps = self.config, len(self.plan)
        if progress and self.leads:
            progress(self.first, steps, f"learns from {len(self.rows)} rows")
        with Metrics(self.out, self.first) if self.leads else nullcontext() as metrics:
            for step in range(self.first, steps):
                figures = self._step(step)
                if metrics:
                    metrics.write(step + 1, figures)
                if (step + 1) % config.save_every == 0 or step + 1 == steps:
                    self._save(step + 1, metrics)
                if progress and self.leads:
                    progress(step + 1, steps, f"loss {figures[config.loss_name]:.3f}")
        return self._summary()

    def _step(self, step: int) -> dict[str, float]:
        """Run one step on a batch, which the processes share; return its metrics."""
        config, ranks = self.config, self.ranks
        rows = [self.rows[i] for i in self.plan[step]]
        if self.weigh:
            rows = [self.weigh(row, step / len(self.plan)) for row in rows]
        self.model.train()
        found, learnt, run = self._run(rows[ranks.rank :: ranks.size])
        counts = ranks.sum(torch.tensor([learnt, run], dtype=torch.float64))
        # A mean over the whole batch: weight each process's mean by its share of the tokens.
        shares = torch.tensor([learnt, run]) / counts.clamp_min(1)
        parts = torch.zeros(3, dtype=torch.float64)
        total = torch.zeros(())
        if found is not None:
            if config.trunk == "learns":
                total = found.loss * float(shares[0])
            parts[0], parts[1] = total.detach(), found.learnt_loss.detach() * shares[0]
            if found.index_loss is not None:
                index_loss = found.index_loss * float(shares[1])
                parts[2] = index_loss.detach()
                total = total + config.index_loss_weight * index_loss
        loss, learnt_loss, index_value = ranks.sum(parts).tolist()
        try:
            require_finite(torch.tensor(loss + index_value), step)
            norms = self._move(total, step)
        except DivergedError:
            spoiled = {"step": step, "ids": [row.ids.tolist() for row in rows]}
            torch.save(spoiled, self.out / "diverged.pt")
            raise
        figures = {
            "sft/loss": learnt_loss,
            "sft/grad_norm": norms.trunk,
            "sft/tokens": float(sum(len(row.ids) for row in rows)),
            "sft/tokens_run": float(counts[1]),
        }
        if config.index_loss is not None:
            figures |= {"index/loss": index_value, "index/grad_norm": norms.indexer}
        return figures

    def _run(self, rows: list[SFTRow]) -> tuple[SFTLoss | None, float, float]:
        """Return the losses of rows, their number of learnt tokens, and the number of tokens run."""
        config = self.config
        if not rows:
            return None, 0.0, 0.0
        # Eq. 3 is taken over whole sequences.
        pack_tokens = 0 if config.index_loss == "dense" else config.pack_tokens
        batch = sft_batch(rows, config.device, pack_tokens=pack_tokens)
        dense = config.attention == "dense"
        found = sft_loss(self.model, batch, config.sft, config.index_loss, dense=dense)
        return found, batch.learnt_N.sum().item(), batch.valid_BT.sum().item()

    def _move(self, total: Tensor, step: int) -> Norms:
        """Compute and sum the gradients of all processes, and step the optimiser."""
        config, ranks = self.config, self.ranks
        self.optimizer.zero_grad()
        if total.requires_grad:
            torch.autograd.backward(total)
        elif ranks.sharded:
            stand_in(self.model, config.index_loss, dense=config.attention == "dense")
        ranks.add_gradients(self.optimizer.weights)
        norms = self.optimizer.step(step)
        if config.router_bias_rate and config.trunk == "learns":
            balance(self.model, config.router_bias_rate, ranks)
        return norms

    def _save(self, step: int, metrics: Metrics | None) -> None:
        if not (self.leads or self.ranks.sharded):
            return
        held = self._validate()
        full, state = whole_model(self.model), {"optimizer": self.optimizer.state()}
        if metrics:
            if held is not None:
                metrics.write(step, {"sft/validation_loss": held})
            self.checkpoints.save(step, full, state)

    @torch.no_grad()
    def _validate(self) -> float | None:
        """Return the mean loss over the learnt tokens of the held-out rows; None if there are none."""
        if not self.held:
            return None
        config = self.config
        self.model.eval()
        total = tokens = 0.0
        for chosen in batches_by_length(self.held, config.tokens_per_batch, Random(0)):
            batch = sft_batch([self.held[i] for i in chosen], config.device)
            count = batch.learnt_N.sum().item()
            found = sft_loss(self.model, batch, SFTConfig(), dense=config.attention == "dense")
            total += found.learnt_loss.item() * count
            tokens += count
        return total / tokens

    def _summary(self) -> ColdStartSummary:
        lines = read_metrics(self.out) if self.leads else []
        learnt = [line for line in lines if "sft/loss" in line]
        losses = [line[self.config.loss_name] for line in learnt] or [float("nan")]
        tokens = round(sum(line["sft/tokens"] for line in learnt))
        seconds = float(lines[-1]["seconds"]) if lines else 0.0
        return ColdStartSummary(
            out=str(self.out),
            rows=len(self.rows),
            steps=len(self.plan),
            tokens=tokens,
            first_loss=losses[0],
            loss=losses[-1],
            validation_loss=self._validate() if self.leads or self.ranks.sharded else None,
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


def _split(rows: list[SFTRow], config: ColdStartConfig) -> tuple[list[SFTRow], list[SFTRow]]:
    """Split into training rows and held-out rows of other tasks (at most about a tenth)."""
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


def _plan(rows: list[SFTRow], config: ColdStartConfig) -> Iterator[list[int]]:
    """Yield the batches of the whole run; a seed fixes them, so a resumed run can skip those it has done."""
    whole, part = divmod(config.epochs, 1.0)
    for epoch in range(int(whole) + (part > 0)):
        rng = Random(derive(config.seed, "epoch", epoch))
        batches = list(batches_by_length(rows, config.tokens_per_batch, rng))
        if epoch == int(whole):
            batches = batches[: max(1, round(part * len(batches)))]
        yield from batches


FEW_STEPS = 50
"""With fewer steps, a new model learns the format of its replies at best."""


def _warn_of_few(steps: int, rows: int, config: ColdStartConfig) -> None:
    if steps < FEW_STEPS:
        logger.warning(
            "%d rows make %d steps, of %d tokens each: a new model learns next to nothing in fewer than "
            "%d. Make more tasks (`envgen variants`), raise --epochs (%g now), or lower "
            "-c tokens_per_batch=%d",
            rows, steps, config.tokens_per_batch, FEW_STEPS, config.epochs, config.tokens_per_batch,
        )  # fmt: skip
