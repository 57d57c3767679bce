"""Which of GRPO's stabilisers does a policy need whose engine and trainer differ?

    python -P benchmarks/stabilisers.py --out RUNS [--arms ARM ...] [--seeds N ...]
    python -P benchmarks/stabilisers_report.py RUNS --out docs/figures

The engine plays in bfloat16 with index keys rounded to fp8, the trainer computes in float32; nucleus
sampling, experts, few keys of many, several updates a batch. Arms: all four stabilisers of the paper's
section 3.1, none, each left out, and all four with the key sets repeated as well. All settings, the meaning
of a collapse among them, are in ``stabilisers.json``, which was committed before the runs; its
``pilot_seeds`` are what they were chosen on.

Task: a prompt shows items in random order and asks for the n best, best first; the order is the same in all
prompts, and is to be learnt. The verifier wants all n. The cold start, shared by a seed's arms, imitates a
teacher that skips the item that is next in ``slip`` of all cases.

Each run is a file of its own, and what is there is not run again; ``--known docs/figures/stabilisers.json``
goes on from runs that the report kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from envgen.core.seeding import derive, rng
from envgen.core.types import Record
from envgen.model.attention import IndexLoss
from envgen.model.config import DSAConfig, preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.indexer import HIDDEN, NOT_REPLAYED
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Completion, Request
from envgen.model.sampling import SamplingParams
from envgen.policies.dsa import reply_tokens
from envgen.train.batch import RowBatch, row_batch, score_batch
from envgen.train.config import GRPOConfig, OptimizerConfig, SFTConfig, UpdateConfig
from envgen.train.figures import Figures
from envgen.train.optimize import DivergedError, Optimizer
from envgen.train.parallel import Alone, balance
from envgen.train.rollouts import engine_model, publish
from envgen.train.rows import NOT_ROUTED, Row, turn_rows
from envgen.train.sft import SFTRow, sft_batch, sft_loss
from envgen.train.update import RolloutBatch, Updater

END, BOS, ASK, FIRST_COUNT = 0, 1, 2, 3
OFF: Mapping[str, tuple[str, object]] = {
    "unbiased-kl": ("kl_form", "k3"),
    "off-policy-mask": ("off_policy_mask", False),
    "keep-routing": ("keep_routing", False),
    "keep-sampling-mask": ("keep_sampling_mask", False),
}
"""The paper's stabilisers: the objective's field, and its value where the stabiliser is off."""


class TaskConfig(Record):
    """The n best of some items."""

    items: int = Field(ge=2)
    shown: int = Field(ge=2)
    least: int = Field(ge=1)
    most: int = Field(ge=1)
    """n is drawn from ``least`` to ``most``."""
    slip: float = Field(ge=0, lt=1)
    """How often the teacher skips the item that is next."""

    @property
    def first_item(self) -> int:
        """The worst item's token; better ones follow."""
        return FIRST_COUNT + self.most + 1

    @property
    def vocab_size(self) -> int:
        """Marks, counts, items."""
        return self.first_item + self.items


class ColdConfig(Record):
    """The cold start: the trunk with dense attention and eq. 3 beside it, then sparse with eq. 4."""

    dense_steps: int
    sparse_steps: int
    batch: int
    optimizer: OptimizerConfig


class CollapseConfig(Record):
    """When a run counts as collapsed: also if a loss or gradient was not finite.

    The reward of every batch of ``updates`` updates on end is below ``share`` of the peak: the highest mean
    over as many updates before.
    """

    share: float = Field(gt=0, lt=1)
    updates: int = Field(ge=1)

    def window(self, updates_each: int) -> int:
        """``updates`` in batches of so many, rounded up."""
        return -(-self.updates // updates_each)


class StudyConfig(Record):
    """Everything that a run depends on."""

    seeds: tuple[int, ...]
    pilot_seeds: tuple[int, ...]
    task: TaskConfig
    model: dict[str, int]
    """Changes to the preset ``tiny``."""
    cold: ColdConfig
    batches: int
    groups: int
    group_size: int
    top_p: float
    objective: GRPOConfig
    """All stabilisers on."""
    update: UpdateConfig
    optimizer: OptimizerConfig
    collapse: CollapseConfig
    final_batches: int
    """The final reward is the mean of so many last batches."""
    judged: int
    """Prompts of the evaluation before and after."""

    @property
    def digest(self) -> str:
        """Of what results depend on: runs of other settings are refused."""
        text = self.model_dump_json(exclude={"seeds", "pilot_seeds"})
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def architecture(self) -> DSAConfig:
        """The trainer's model."""
        return preset("tiny", vocab_size=self.task.vocab_size, **self.model)


def objectives(on: GRPOConfig) -> dict[str, GRPOConfig]:
    """The arms by name."""
    changes = dict(OFF.values())
    return {
        "all-on": on,
        "all-off": on.model_copy(update=changes),
        **{f"no-{name}": on.model_copy(update=dict([off])) for name, off in OFF.items()},
        "index-replay": on.model_copy(update={"keep_topk": True}),
    }


def collapsed_after(
    rewards: Sequence[float], updates_each: int, config: CollapseConfig
) -> int | None:
    """Updates after which a run counts as collapsed; None: it does not.

    Args:
        rewards: mean of each batch, in order.
        updates_each: of a batch.
        config: the definition.
    """
    window = config.window(updates_each)
    for end in range(2 * window, len(rewards) + 1):
        if max(rewards[end - window : end]) < config.share * peak(rewards[: end - window], window):
            return end * updates_each
    return None


def peak(rewards: Sequence[float], window: int) -> float:
    """The highest mean of ``window`` batches on end."""
    return float(np.convolve(rewards, np.full(window, 1 / window), "valid").max())


def prompt(task: TaskConfig, draws: random.Random) -> list[int]:
    """Marks around the items that are shown, and n before the end."""
    items = draws.sample(range(task.first_item, task.vocab_size), task.shown)
    return [BOS, *items, FIRST_COUNT + draws.randint(task.least, task.most), ASK]


def answer(ids: Sequence[int]) -> list[int]:
    """What the verifier wants."""
    return [*sorted(ids[1:-2], reverse=True)[: ids[-2] - FIRST_COUNT], END]


def taught(task: TaskConfig, draws: random.Random) -> SFTRow:
    """A prompt with the teacher's answer."""
    ids = prompt(task, draws)
    left = sorted(ids[1:-2], reverse=True)
    reply = []
    for _ in range(ids[-2] - FIRST_COUNT):
        while draws.random() < task.slip:
            left.pop(0)
        reply.append(left.pop(0))
    places = len(ids) + np.arange(len(reply) + 1)
    return SFTRow(np.array([*ids, *reply, END], np.int32), places)


class Player:
    """The engine: a copy of the trainer's weights in bfloat16, index keys in fp8."""

    def __init__(self, model: DSAForCausalLM, study: StudyConfig) -> None:
        self._model, self._study = model, study
        self._played = engine_model(model, torch.bfloat16, index_fp8=True)
        tokens = study.task.shown + study.task.most + 8
        size = study.groups * study.group_size
        sizes = EngineConfig(
            max_batch=size, cache_tokens=size * (tokens + 16), prefill_chunk_tokens=8192
        )
        self._engine = Engine(self._played, sizes)

    def refresh(self) -> None:
        """Copy the trainer's weights."""
        publish(self._model, self._played)
        self._engine.refresh()

    def play(
        self, prompts: Sequence[Sequence[int]], seed: int, temperature: float = 1.0
    ) -> list[Completion]:
        """One reply to each."""
        return self._engine.generate(
            [
                Request(
                    ids,
                    SamplingParams(
                        temperature=temperature,
                        top_p=self._study.top_p,
                        max_new_tokens=self._study.task.most + 2,
                        seed=derive(seed, "reply", i),
                        stop_ids=(END,),
                        capture_topk=True,
                    ),
                )
                for i, ids in enumerate(prompts)
            ]
        )


def passed(done: Completion) -> bool:
    """The verifier."""
    return bool(done.ids.tolist() == answer(done.prompt_ids.tolist()))


def judge(player: Player, study: StudyConfig, seed: int) -> dict[str, float]:
    """Pass rates on prompts of their own, greedy and as sampled in training."""
    draws = rng(seed, "judged")
    prompts = [prompt(study.task, draws) for _ in range(study.judged)]
    return {
        name: float(np.mean([passed(one) for one in player.play(prompts, seed, temperature)]))
        for name, temperature in (("greedy", 0.0), ("sampled", 1.0))
    }


def cold_start(study: StudyConfig, seed: int, out: Path) -> dict[str, Any]:
    """The model that a seed's arms begin with, in ``out``; is made once."""
    told = out / "cold.json"
    if told.exists():
        found: dict[str, Any] = json.loads(told.read_text())
        return found
    began = time.process_time()
    model = DSAForCausalLM(study.architecture)
    model.reset_parameters(derive(seed, "weights"))
    steps = study.cold.dense_steps + study.cold.sparse_steps
    optimizer = Optimizer(model, study.cold.optimizer.model_copy(update={"total_steps": steps}))
    draws, losses = rng(seed, "cold start"), []
    model.train()
    for step in range(steps):
        dense = step < study.cold.dense_steps
        losses.append(cold_step(model, optimizer, study, draws, step, dense=dense))
    player = Player(model.eval(), study)
    player.refresh()
    record = {
        "seed": seed,
        "loss": float(np.mean(losses[-20:])),
        **judge(player, study, seed),
        "cpu_s": time.process_time() - began,
    }
    model.save_pretrained(out)
    write(told, record)
    return record


def cold_step(
    model: DSAForCausalLM,
    optimizer: Optimizer,
    study: StudyConfig,
    draws: random.Random,
    step: int,
    *,
    dense: bool,
) -> float:
    """One update of the cold start; the loss."""
    rows = [taught(study.task, draws) for _ in range(study.cold.batch)]
    kind: IndexLoss = "dense" if dense else "sparse"
    found = sft_loss(model, sft_batch(rows, pack_tokens=0), SFTConfig(), kind, dense=dense)
    assert found.index_loss is not None
    optimizer.zero_grad()
    torch.autograd.backward(found.loss + found.index_loss)
    optimizer.step(step)
    balance(model, 1e-3, Alone())
    return float(found.learnt_loss.detach())


@torch.no_grad()
def mismatch(model: DSAForCausalLM, rows: Sequence[Row], objective: GRPOConfig) -> dict[str, float]:
    """How trainer and engine differ over some rows before an update.

    ``routes`` and ``key_sets``: shares of (token, layer) that the trainer would choose otherwise by itself;
    ``kept_routes``: that it does in this arm; ``log_ratio_p99``: of |log r|, in this arm.
    """
    batch = row_batch(rows)
    own = model(
        batch.ids_BT,
        position_ids=batch.position_BT,
        until=batch.until_BT,
        capture_topk=True,
        keep=slice(0, 1),
    )
    said = score_batch(
        model,
        batch,
        1.0,
        keep_mask=objective.keep_sampling_mask,
        keep_routing=objective.keep_routing,
        keep_topk=objective.keep_topk,
    )
    log_ratios = (said.scores.logp_N - batch.old_N).abs().numpy()
    assert said.routing_BTXA is not None
    return {
        "routes": rerouted(batch, own.routing_BTXA),
        "kept_routes": rerouted(batch, said.routing_BTXA),
        "key_sets": rekeyed(batch, own.topk),
        "log_ratio_p50": float(np.quantile(log_ratios, 0.5)),
        "log_ratio_p99": float(np.quantile(log_ratios, 0.99)),
    }


def rerouted(batch: RowBatch, routing_BTXA: torch.Tensor) -> float:
    """Share of (token, layer) with other experts than the engine's."""
    assert batch.routing_BTXA is not None
    known = (batch.routing_BTXA[..., 0] != NOT_ROUTED) & batch.valid_BT.unsqueeze(-1)
    other = (batch.routing_BTXA.sort(-1).values != routing_BTXA.sort(-1).values).any(-1)
    return float(other[known].float().mean())


def rekeyed(batch: RowBatch, topk: tuple[torch.Tensor, ...]) -> float:
    """Share of (token, layer) with other keys than the engine's."""
    assert batch.topk is not None
    shares = []
    for ours, theirs in zip(topk, batch.topk, strict=True):
        known = batch.valid_BT & (theirs[..., 0] != NOT_REPLAYED)
        wide = ours.new_full((*ours.shape[:2], max(ours.shape[2], theirs.shape[2])), HIDDEN)
        one, other = wide.clone(), wide.clone()
        one[..., : ours.shape[2]], other[..., : theirs.shape[2]] = ours, theirs
        differ = (one.sort(-1).values != other.sort(-1).values).any(-1)
        shares.append(float(differ[known].float().mean()))
    return float(np.mean(shares))


def run(study: StudyConfig, arm: str, seed: int, cold: Path) -> dict[str, Any]:
    """One run: a curve of batches, and what it was before and after."""
    began = time.process_time()
    objective = objectives(study.objective)[arm]
    model = DSAForCausalLM.from_pretrained(cold)
    model.requires_grad_(True)
    reference = DSAForCausalLM.from_pretrained(cold).eval().requires_grad_(False)
    optimizer = Optimizer(model, study.optimizer)
    updater = Updater(model, optimizer, objective, study.update, 1.0, reference)
    player = Player(model, study)
    curve: list[dict[str, float]] = []
    diverged = None
    for batch in range(study.batches):
        player.refresh()
        learnt = drawn(player, study, derive(seed, "batch", batch))
        model.eval()
        found = mismatch(model, learnt.rows[: 2 * study.group_size], objective)
        try:
            figures = updater.update(learnt, random.Random(derive(seed, "mini-batches", batch)))
        except DivergedError as error:
            diverged = str(error)
            break
        curve.append({"reward": float(learnt.reward_I.mean()), **found, **watched(figures)})
    model.eval()
    player.refresh()
    return {
        "arm": arm,
        "seed": seed,
        "config": study.digest,
        "updates": updater.step,
        "delta": objective.off_policy_delta,
        "diverged": diverged,
        **outcome([point["reward"] for point in curve], study),
        "after": None if diverged else judge(player, study, seed),
        "cpu_s": time.process_time() - began,
        "curve": curve,
    }


def outcome(rewards: Sequence[float], study: StudyConfig) -> dict[str, float | None]:
    """What a curve comes to; of a run that diverged, what there is of it."""
    each = study.update.mini_batches
    window = min(len(rewards), study.collapse.window(each))
    return {
        "peak": peak(rewards, window) if rewards else 0.0,
        "final": float(np.mean(rewards[-study.final_batches :])) if rewards else 0.0,
        "collapsed_after": collapsed_after(rewards, each, study.collapse),
    }


def drawn(player: Player, study: StudyConfig, seed: int) -> RolloutBatch:
    """A batch of rollouts with their rewards."""
    draws = rng(seed, "prompts")
    asked = [prompt(study.task, draws) for _ in range(study.groups)]
    done = player.play([ids for ids in asked for _ in range(study.group_size)], seed)
    rows = [row for i, one in enumerate(done) for row in turn_rows([reply_tokens(one).arrays()], i)]
    return RolloutBatch(
        rows=rows,
        group_I=np.repeat(np.arange(study.groups), study.group_size),
        reward_I=np.array([passed(one) for one in done], np.float32),
        length_I=lengths(done),
    )


def lengths(done: Sequence[Completion]) -> NDArray[np.int64]:
    """|o_i|."""
    return np.array([len(one.ids) for one in done], np.int64)


WATCHED = (
    "masked_negatives", "mismatch_p95", "kept_mass", "clip_fraction", "entropy", "kl", "log_ratio_p99",
)  # fmt: skip


def watched(figures: Figures) -> dict[str, float]:
    """Of all updates of a batch."""
    named = figures.named()
    kept = {name: named[f"policy/{name}"] for name in WATCHED if f"policy/{name}" in named}
    if "log_ratio_p99" in kept:
        kept["update_log_ratio_p99"] = kept.pop("log_ratio_p99")
    return kept | {"grad_norm": named.get("update/grad_norm", 0.0)}


def write(path: Path, record: Mapping[str, Any]) -> None:
    """As a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record) + "\n")
    part.replace(path)


def unpack(known: Path, out: Path) -> None:
    """The runs that a report kept, as files."""
    for record in json.loads(known.read_text())["runs"]:
        path = out / record["arm"] / f"seed-{record['seed']}.json"
        if not path.exists():
            write(path, record)


def wanted(
    study: StudyConfig, out: Path, arms: Sequence[str], seeds: Sequence[int]
) -> list[tuple[str, int]]:
    """The runs that are not there yet, seed by seed.

    Raises:
        SystemExit: if one that is there was made with another config.
    """
    left = []
    for seed in seeds:
        for arm in arms:
            path = out / arm / f"seed-{seed}.json"
            if not path.exists():
                left.append((arm, seed))
            elif json.loads(path.read_text())["config"] != study.digest:
                raise SystemExit(f"{path} was made with another config; name another --out")
    return left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own = Path(__file__).with_suffix(".json")
    parser.add_argument("--config", type=Path, default=own)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--known", type=Path, help="a report whose runs are not made again")
    parser.add_argument("--arms", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int)
    arguments = parser.parse_args()
    study = StudyConfig.model_validate_json(arguments.config.read_text())
    known = list(objectives(study.objective))
    arms, seeds = arguments.arms or known, arguments.seeds or study.seeds
    if unknown := sorted(set(arms) - set(known)):
        parser.error(f"no arm {unknown[0]!r}; there are {', '.join(known)}")
    torch.set_num_threads(1)
    if arguments.known is not None:
        unpack(arguments.known, arguments.out)
    left = wanted(study, arguments.out, arms, seeds)
    print(f"config {study.digest}, {len(left)} runs to make, load {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    for number, (arm, seed) in enumerate(left, 1):
        cold = arguments.out / "cold" / study.digest / f"seed-{seed}"
        before = cold_start(study, seed, cold)
        record = run(study, arm, seed, cold) | {"before": before}
        write(arguments.out / arm / f"seed-{seed}.json", record)
        remaining = (time.monotonic() - began) / number * (len(left) - number)
        print(f"[{number}/{len(left)}] {told(record)}; {remaining:.0f} s left", flush=True)


def told(record: Mapping[str, Any]) -> str:
    """A run in a line."""
    text = f"{record['arm']}, seed {record['seed']}: {record['updates']} updates"
    if record["curve"]:
        first = record["curve"][0]["reward"]
        text += f", reward {first:.2f}, peak {record['peak']:.2f}, final {record['final']:.2f}"
    if record["collapsed_after"] is not None:
        text += f", collapsed after {record['collapsed_after']} updates"
    if record["diverged"]:
        text += f", diverged ({record['diverged']})"
    return f"{text}, {record['cpu_s']:.0f} CPU s"


if __name__ == "__main__":
    main()
