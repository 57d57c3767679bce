"""GRPO after DeepSeek-V3.2 on one page: plain torch over envgen's environments, tokenizer and model.

    python examples/grpo_in_one_page.py --data runs/quickstart/tasks/variants --model runs/quickstart/sft/last

It is the map to ``envgen/train``: each section names the equation of DeepSeek-V3.2 (arXiv 2512.02556, section
3.1) that it is, and the file that does the same at full size. What is left out here: rows that share prompts
(``packing.py``), an engine (``rollouts.py``), recorded expert routes, key sets and sampling masks (``rows.py``,
``scoring.py``; without truncation and experts there is little to repeat), rewards for length and language
(``rewards.py``), the indexer's own loss (eq. 4; here the indexer is frozen), checkpoints (``checkpoints.py``),
several processes (``parallel.py``). Shapes: B rollouts in groups of G, T tokens, V vocabulary.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

import envgen
from envgen.environments.actions import encode_message
from envgen.environments.general import GeneralEnv
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding, load_encoding

# ---------------------------------------------------------------------------------- config
# Full size: envgen/train/grpo.py (GRPOConfig), grpo_run.py (TrainGRPOConfig).


@dataclass(frozen=True)
class Config:
    """The defaults are those of the quickstart's ``train grpo``."""

    data: str
    model: str
    out: str | None = None
    steps: int = 50
    groups: int = 16
    """Tasks in a step."""
    group_size: int = 16
    """G, rollouts of each."""
    mini_batches: int = 1
    """Optimiser steps a batch; from the second on r of eq. 6 leaves 1, and the clip and eq. 9 have work."""
    lr: float = 4e-4
    warmup: int = 5
    clip: float = 0.2
    """eps of eq. 5."""
    beta: float = 0.0
    """Of the KL term in eq. 5; the paper: mathematics does well with little or none."""
    delta: float = 0.1
    """Of eq. 9, nats a token."""
    max_turns: int = 6
    max_new: int = 48
    """Tokens of one reply."""
    max_tokens: int = 256
    """Of a whole rollout."""
    held_out: int = 512
    backend: str = "inline"
    """Where tools and verifiers run; inline is for tasks that were generated on this machine."""
    seed: int = 0


# ---------------------------------------------------------------------------------- rollouts
# o_i ~ pi_old of eq. 5. A rollout is one row of tokens: the prompt, what the model wrote, what the tools said,
# what the model wrote next. Only what the model wrote is learnt. Full size: rollouts.py, lockstep.py, rows.py.


class Rollout:
    """An episode that is being played: its tokens, and which of them the model wrote."""

    def __init__(self, env: GeneralEnv, encoding: Encoding, task_id: str, config: Config) -> None:
        _, info = env.reset(options={"task_id": task_id})
        self.env, self.encoding, self.config = env, encoding, config
        self.tools = info["tools"]
        self.ids = encoding.prompt(env.messages, self.tools)
        self.begins = len(self.ids)
        """Where the reply begins that is being written."""
        self.places: list[int] = []
        """Of the model's own tokens in ``ids``: the others are masked out of every loss."""
        self.logps: list[float] = []
        """log pi_old of these, as the sampler said."""
        self.turns = 0
        self.reward = 0.0
        self.over = False

    def take(self, token: int, logp: float) -> None:
        """Append a token of the model; where it ends a reply, let the environment answer."""
        self.places.append(len(self.ids))
        self.logps.append(logp)
        self.ids.append(token)
        closed = token in self.encoding.stop_ids
        if closed or len(self.ids) - self.begins >= self.config.max_new:
            self._step(closed)
        self.over = self.over or len(self.ids) >= self.config.max_tokens

    def _step(self, closed: bool) -> None:
        env, written = self.env, self.ids[self.begins :]
        message = self.encoding.parse(written, self.tools, self.turns, lenient=True)
        after = len(env.messages) + 1
        _, self.reward, terminated, truncated, _ = env.step(encode_message(message))
        self.turns += 1
        self.over = terminated or truncated or self.turns == self.config.max_turns
        if not self.over:
            self.ids += self.encoding.extension(env.messages, self.tools, after, closed=closed)
            self.begins = len(self.ids)


@torch.no_grad()
def play(model: DSAForCausalLM, rollouts: Sequence[Rollout], draws: torch.Generator | None) -> None:
    """Play all rollouts to their end, a token of each at a time; greedily where ``draws`` is None.

    At place t a row either has a token already (the prompt's, a tool's) or samples one, so rows of any
    lengths and numbers of turns go on side by side without padding before them.
    """
    model.eval()
    limit = rollouts[0].config.max_tokens
    cache = model.new_cache(len(rollouts), limit + max(len(one.ids) for one in rollouts))
    fed, stop = 0, min(len(one.ids) for one in rollouts)
    while not all(one.over for one in rollouts):
        ids = [
            [one.ids[t] if t < len(one.ids) else 0 for t in range(fed, stop)] for one in rollouts
        ]
        logits_BV = model(torch.tensor(ids), cache=cache, keep=slice(-1, None)).logits[:, 0]
        logp_BV = logits_BV.float().log_softmax(-1)
        if draws is None:
            drawn_B1 = logp_BV.argmax(-1, keepdim=True)
        else:
            drawn_B1 = torch.multinomial(logp_BV.exp(), 1, generator=draws)
        tokens, logps = drawn_B1[:, 0].tolist(), logp_BV.gather(1, drawn_B1)[:, 0].tolist()
        for one, token, logp in zip(rollouts, tokens, logps, strict=True):
            if len(one.ids) == stop and not one.over:
                one.take(token, logp)
        fed, stop = stop, stop + 1


# ---------------------------------------------------------------------------------- advantages
# A_i = R_i - mean(R), eq. 5: no deviation. Full size: grpo.py (group_advantages), rewards.py.


def advantages(reward_BG: Tensor) -> Tensor:
    """Rewards centred within their groups."""
    return reward_BG - reward_BG.mean(1, keepdim=True)


# ---------------------------------------------------------------------------------- scores
# log pi_theta of the recorded tokens. Full size: batch.py, scoring.py, packing.py.


def padded(rollouts: Sequence[Rollout]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [B, T], padded at the end; log pi_old and the mask of the model's own tokens, [B, T - 1] each."""
    width = max(len(one.ids) for one in rollouts)
    ids_BT = torch.zeros(len(rollouts), width, dtype=torch.int64)
    old_BT, mask_BT = torch.zeros(ids_BT.shape), torch.zeros(ids_BT.shape)
    for i, one in enumerate(rollouts):
        ids_BT[i, : len(one.ids)] = torch.tensor(one.ids)
        old_BT[i, one.places] = torch.tensor(one.logps)
        mask_BT[i, one.places] = 1.0
    return ids_BT, old_BT[:, 1:], mask_BT[:, 1:]


def logp_of(model: DSAForCausalLM, ids_BT: Tensor) -> Tensor:
    """Log pi(o_t | o_<t) of every token but the first: [B, T - 1]."""
    logp_BTV = model(ids_BT, keep=slice(0, -1)).logits.float().log_softmax(-1)
    return logp_BTV.gather(2, ids_BT[:, 1:, None])[..., 0]


# ---------------------------------------------------------------------------------- mask, KL, loss
# Full size: grpo.py (off_policy_mask, kl_estimate, grpo_loss).


def grpo_loss(
    logp_BT: Tensor, old_BT: Tensor, ref_BT: Tensor | None, mask_BT: Tensor, a_B: Tensor, c: Config
) -> Tensor:
    """-J of eq. 8, summed over the rollouts; the caller divides by their number."""
    length_B = mask_BT.sum(1)  # |o_i|
    a_B1 = a_B[:, None]
    ratio_BT = ((logp_BT - old_BT) * mask_BT).exp()  # eq. 6
    # Eq. 9: a rollout that failed and has become unlikely teaches nothing any more.
    gap_B = ((old_BT - logp_BT.detach()) * mask_BT).sum(1) / length_B
    keep_B1 = 1.0 - ((a_B < 0) & (gap_B > c.delta)).float()[:, None]
    # Eq. 5's surrogate under eq. 8's mask.
    held_BT = ratio_BT.clamp(1 - c.clip, 1 + c.clip)
    objective_BT = keep_B1 * torch.minimum(ratio_BT * a_B1, held_BT * a_B1)
    if ref_BT is not None:
        # Eq. 7. The ratio stays in the graph: without it the gradient is another divergence's.
        log_gap_BT = (ref_BT - logp_BT) * mask_BT
        objective_BT = objective_BT - c.beta * ratio_BT * (log_gap_BT.exp() - log_gap_BT - 1)
    return -((objective_BT * mask_BT).sum(1) / length_B).sum()  # 1/|o_i| sum_t


# ---------------------------------------------------------------------------------- update
# Full size: update.py (Updater), optimize.py (Optimizer).


def update(
    model: DSAForCausalLM,
    reference: DSAForCausalLM | None,
    optimizer: torch.optim.Optimizer,
    rollouts: Sequence[Rollout],
    advantage_B: Tensor,
    config: Config,
    rng: Random,
) -> None:
    """``mini_batches`` optimiser steps on a batch, each on whole groups."""
    model.train()
    groups = list(range(len(rollouts) // config.group_size))
    rng.shuffle(groups)
    for n in range(config.mini_batches):
        chosen = [g * config.group_size + i for g in groups[n :: config.mini_batches] for i in range(config.group_size)]  # fmt: skip
        optimizer.zero_grad()
        # Without a KL term, a rollout without an advantage moves nothing.
        run = [i for i in chosen if reference is not None or advantage_B[i] != 0]
        for part in parts(run, rollouts):
            ids_BT, old_BT, mask_BT = padded([rollouts[i] for i in part])
            ref_BT = None
            if reference is not None:
                with torch.no_grad():
                    ref_BT = logp_of(reference, ids_BT)
            logp_BT = logp_of(model, ids_BT)
            loss = grpo_loss(logp_BT, old_BT, ref_BT, mask_BT, advantage_B[part], config)
            (loss / len(chosen)).backward()  # 1/G sum_i: parts add up
        torch.nn.utils.clip_grad_norm_(model.trunk_parameters(), 1.0)
        optimizer.step()


def parts(
    chosen: Sequence[int], rollouts: Sequence[Rollout], size: int = 64
) -> Iterator[list[int]]:
    """Rollouts in runs of like lengths, so that they are padded little."""
    ordered = sorted(chosen, key=lambda i: len(rollouts[i].ids))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


# ---------------------------------------------------------------------------------- evaluation
# Full size: evaluate.py, estimates.py (intervals over databases), held_out.py.


@dataclass(frozen=True)
class PassRate:
    """pass@1 with a 95 % interval (Wilson); each held-out task has a database of its own."""

    passed: int
    n: int

    @property
    def value(self) -> float:
        """The share that passed."""
        return self.passed / self.n

    def __str__(self) -> str:
        z, p, n = 1.96, self.value, self.n
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return f"{p:.3f} ({(middle - half) / scale:.3f}..{(middle + half) / scale:.3f})"


class Page:
    """Model, tasks and environments of a run."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dataset = envgen.load(config.data)
        self.encoding = load_encoding(config.model)
        self.model = DSAForCausalLM.from_pretrained(config.model, dtype=torch.float32)
        self.tasks: dict[str, list[str]] = {"train": [], "test": []}
        for name in self.dataset.tasks:
            self.tasks.setdefault(self.dataset.facts(name).split, []).append(name)
        Random(config.seed).shuffle(self.tasks["test"])
        self._envs: list[GeneralEnv] = []

    def rollouts(self, task_ids: Sequence[str]) -> list[Rollout]:
        """One begun rollout of each task; an environment is used again in the next batch."""
        while len(self._envs) < len(task_ids):
            self._envs.append(GeneralEnv(self.dataset, backend=self.config.backend))  # type: ignore[arg-type]  # checked there
        envs = self._envs[: len(task_ids)]
        return [Rollout(e, self.encoding, t, self.config) for e, t in zip(envs, task_ids, strict=True)]  # fmt: skip

    def evaluate(self) -> PassRate:
        """Greedy pass@1 on held-out tasks, none of whose databases is trained on."""
        task_ids = self.tasks["test"][: self.config.held_out]
        rollouts = self.rollouts(task_ids)
        play(self.model, rollouts, None)
        return PassRate(sum(one.reward >= 1 for one in rollouts), len(rollouts))

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


# ---------------------------------------------------------------------------------- the loop
# Full size: grpo_run.py.


def train(config: Config) -> tuple[PassRate, list[float], PassRate]:
    """Train; the pass rate before, the mean reward of each step, and the pass rate after."""
    page = Page(config)
    model, size = page.model, config.group_size
    reference = None
    if config.beta > 0:
        reference = DSAForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(
        model.trunk_parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    ramp = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / config.warmup)
    )
    rng, draws = Random(config.seed), torch.Generator().manual_seed(config.seed)
    before, curve = page.evaluate(), []
    print(f"before: pass@1 {before}")
    for step in range(config.steps):
        began = time.monotonic()
        task_ids = rng.sample(page.tasks["train"], config.groups)
        rollouts = page.rollouts([name for name in task_ids for _ in range(size)])
        play(model, rollouts, draws)
        reward_BG = torch.tensor([one.reward for one in rollouts]).view(config.groups, size)
        update(model, reference, optimizer, rollouts, advantages(reward_BG).flatten(), config, rng)
        ramp.step()
        curve.append(float(reward_BG.mean()))
        print(
            f"step {step + 1}: reward {curve[-1]:.3f}, {time.monotonic() - began:.1f} s", flush=True
        )
    after = page.evaluate()
    print(f"after: pass@1 {after}, {after.value - before.value:+.3f}")
    page.close()
    if config.out is not None:
        model.save_pretrained(Path(config.out))
    return before, curve, after


def main() -> None:
    """Read the options, which are the fields of ``Config``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults: dict[str, Any] = vars(Config("", ""))
    for name, default in defaults.items():
        kind = str if default is None else type(default)
        required = name in ("data", "model")
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, default=default, required=required)
    train(Config(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
