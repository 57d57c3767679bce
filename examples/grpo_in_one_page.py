"""GRPO after DeepSeek-V3.2 on one page: plain torch over envgen's environments, tokenizer and model.

    Q=runs/quickstart
    python examples/grpo_in_one_page.py --data $Q/tasks/variants --model $Q/sft/last --ceiling $Q/ceiling/last

It is the map to ``envgen/train``: each section names its equation of DeepSeek-V3.2 (arXiv 2512.02556,
section 3.1) and the file that does the same at full size. Left out: rows that share prompts (``packing.py``),
recorded routes, key sets and sampling masks (``rows.py``, ``scoring.py``), rewards for length and language
(``rewards.py``), the indexer's loss (eq. 4), checkpoints, several processes. It learns the demo's task to
within 0.05 of ``train grpo`` (``docs/training.md``). Shapes: B rollouts, G of a group, T tokens, V words.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

import envgen
from envgen.core.turns import encode_message
from envgen.environments.general import GeneralEnv
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding, load_encoding
from envgen.rollout.learned import missed_on_tasks, pass_rate, shown
from envgen.sandboxes.zygote import WorkerBackend

# ---------------------------------------------------------------------- config
# Full size: envgen/train/config.py (GRPOConfig, TrainGRPOConfig), grpo.py, grpo_run.py.


@dataclass(frozen=True)
class Config:
    """The defaults are those of the quickstart's ``train grpo``."""

    data: str
    model: str
    ceiling: str | None = None
    """A model that learned from right answers alone: exit with 1 unless ``model`` comes near it."""
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
    """Tokens of one reply,"""
    max_tokens: int = 128
    """and of a whole rollout: twice what the demo's take."""
    held_out: int = 512
    backend: WorkerBackend = "inline"
    """Where tools and verifiers run; inline is for tasks that were generated on this machine."""
    seed: int = 0


PART = 64
"""Rollouts whose gradients are computed at once."""


# ---------------------------------------------------------------------- rollouts
# o_i ~ pi_old of eq. 5. A rollout is one row of tokens: the prompt, what the model wrote, what the tools
# said, what the model wrote next. Only what it wrote is learnt. Full size: rollouts.py, lockstep.py, rows.py.


class Rollout:
    """An episode that is being played: its tokens, and which of them the model wrote."""

    def __init__(self, env: GeneralEnv, encoding: Encoding, task_id: str, config: Config) -> None:
        _, info = env.reset(options={"task_id": task_id})
        self.env, self.encoding, self.config = env, encoding, config
        self.tools = info["tools"]
        self.ids = encoding.prompt(env.messages, self.tools)
        if len(self.ids) >= config.max_tokens:
            raise ValueError(f"the prompt of task {task_id!r} fills a rollout; raise --max-tokens")
        self.begins = len(self.ids)  # where the reply begins that is being written
        self.places: list[int] = []  # of the model's own tokens: no other is in a loss
        self.logps: list[float] = []  # log pi_old of these, as the sampler said
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
    cache = model.new_cache(len(rollouts), rollouts[0].config.max_tokens)
    fed, stop = 0, min(len(one.ids) for one in rollouts)
    while not all(one.over for one in rollouts):
        ids = [[*one.ids[fed:stop], *[0] * (stop - fed)][: stop - fed] for one in rollouts]
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


# ---------------------------------------------------------------------- advantages
# A_i = R_i - mean(R), eq. 5: no deviation. Full size: grpo.py (group_advantages), rewards.py.


def advantages(reward_BG: Tensor) -> Tensor:
    """Rewards centred within their groups."""
    return reward_BG - reward_BG.mean(1, keepdim=True)


# ---------------------------------------------------------------------- scores
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
    logp_BTV: Tensor = model(ids_BT, keep=slice(0, -1)).logits.float().log_softmax(-1)
    return logp_BTV.gather(2, ids_BT[:, 1:, None])[..., 0]


# ---------------------------------------------------------------------- mask, KL, loss
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


# ---------------------------------------------------------------------- update
# Full size: update.py (Updater), optimize.py (Optimizer).


def update(
    model: DSAForCausalLM,
    reference: DSAForCausalLM | None,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[Rollout]],
    c: Config,
) -> None:
    """``mini_batches`` optimiser steps on a batch, each on whole groups."""
    model.train()
    for n in range(c.mini_batches):
        optimizer.zero_grad()
        some = groups[n :: c.mini_batches]
        batch = [one for group in some for one in group]
        a_B = advantages(torch.tensor([[one.reward for one in group] for group in some])).flatten()
        # Without a KL term, a rollout without an advantage moves nothing.
        learnt = [i for i in range(len(batch)) if a_B[i] != 0 or reference is not None]
        learnt.sort(key=lambda i: len(batch[i].ids))  # parts of like lengths are padded little
        for start in range(0, len(learnt), PART):
            part = learnt[start : start + PART]
            ids_BT, old_BT, mask_BT = padded([batch[i] for i in part])
            ref_BT = None
            if reference is not None:
                with torch.no_grad():
                    ref_BT = logp_of(reference, ids_BT)
            loss = grpo_loss(logp_of(model, ids_BT), old_BT, ref_BT, mask_BT, a_B[part], c)
            torch.autograd.backward(loss / len(batch))  # 1/G sum_i; parts add up
        torch.nn.utils.clip_grad_norm_(model.trunk_parameters(), 1.0)
        optimizer.step()


# ---------------------------------------------------------------------- the loop
# Full size: grpo_run.py; evaluate.py, estimates.py (intervals over databases), held_out.py.


def load(folder: str) -> DSAForCausalLM:
    """A model in single precision."""
    return DSAForCausalLM.from_pretrained(folder, dtype=torch.float32)


def train(c: Config) -> None:
    """Train a copy of the model on the training split, and tell how it does on held-out tasks."""
    dataset, encoding = envgen.load(c.data), load_encoding(c.model)
    tasks: dict[str, list[str]] = {"train": [], "test": []}
    for name in dataset.tasks:
        tasks.setdefault(dataset.facts(name).split, []).append(name)
    rng, draws = Random(c.seed), torch.Generator().manual_seed(c.seed)
    test = rng.sample(tasks["test"], min(c.held_out, len(tasks["test"])))
    if not test:
        raise SystemExit(f"{c.data!r} has no tasks in its test split: make more variants")
    most = max(len(test), c.groups * c.group_size)
    envs = [GeneralEnv(dataset, backend=c.backend) for _ in range(most)]
    model = load(c.model)
    reference = load(c.model) if c.beta > 0 else None
    optimizer = torch.optim.AdamW(model.trunk_parameters(), c.lr, (0.9, 0.95), weight_decay=0.0)
    ramp = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / c.warmup))

    def played(names: Sequence[str], draws: torch.Generator | None) -> list[Rollout]:
        rollouts = [Rollout(e, encoding, n, c) for e, n in zip(envs, names, strict=False)]
        play(model, rollouts, draws)
        return rollouts

    def evaluate(when: str) -> list[bool]:
        passed = [one.reward >= 1 for one in played(test, None)]
        print(f"{when}: held-out pass@1 {shown(pass_rate(passed))}", flush=True)
        return passed

    before = evaluate("before")
    for step in range(c.steps):
        names = rng.sample(tasks["train"], c.groups)
        batch = played([name for name in names for _ in range(c.group_size)], draws)
        groups = [batch[i : i + c.group_size] for i in range(0, len(batch), c.group_size)]
        update(model, reference, optimizer, groups, c)
        ramp.step()
        reward = sum(one.reward for one in batch) / len(batch)
        print(f"step {step + 1}: reward {reward:.3f}", flush=True)
    after = evaluate("after")
    if c.out is not None:
        model.save_pretrained(Path(c.out))
    if c.ceiling is not None:
        model = load(c.ceiling)
        missed = missed_on_tasks(c.data, test, evaluate("ceiling"), before, after)
        if missed:
            raise SystemExit(f"not learned: {'; '.join(missed)}")


def main() -> None:
    """Read the options, which are the fields of ``Config``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in vars(Config("", "")).items():
        flag, kind = "--" + name.replace("_", "-"), str if default is None else type(default)
        parser.add_argument(flag, type=kind, default=default, required=default == "")
    train(Config(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
