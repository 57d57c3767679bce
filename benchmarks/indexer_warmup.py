"""Does the dense warm-up (paper, eq. 3) teach the lightning indexer where attention looks?

    python -P benchmarks/indexer_warmup.py [--seeds 3] [--base-steps 500] [--steps 800] [--out FOLDER]

Per seed: a tiny model is trained with dense attention on Python's own standard library (tokenized by a
byte-level BPE trained on the same files), then frozen; the indexer alone learns from eq. 3. On files that
neither stage saw, k = T / 16 keys are chosen for every query of the second half of T tokens, so each sees
at least 8 k keys. Shown: attention mass of the indexer's keys over that of the best k, beside random keys,
the last k, and 4 sinks with the last k - 4. ``--out`` keeps the curves (JSON and SVG).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envgen.core.seeding import derive
from envgen.model.config import DSAConfig, preset
from envgen.model.modeling import DSAForCausalLM
from envgen.model.selection import captured_mass
from envgen.model.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TARGET = 0.95
CHOICES = ("indexer", "sink+recency", "recency", "random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=1024, help="T, the length of a sequence")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--base-steps", type=int, default=500)
    parser.add_argument("--base-lr", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    runs = [
        run(seed, arguments)
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    ]
    worst = min(min(one["points"][-1]["indexer"]) for one in runs)
    verdict = "met" if worst >= TARGET else "MISSED"
    print(f"worst layer of all seeds: {worst:.3f}; target >= {TARGET} ({verdict})")
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        settings = {name: value for name, value in vars(arguments).items() if name != "out"}
        record = {"settings": settings, "runs": runs}
        (arguments.out / "indexer_warmup.json").write_text(json.dumps(record, indent=1) + "\n")
        plot(runs, arguments.out / "indexer_warmup.svg")


def run(seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One seed: base model, warm-up, curves."""
    torch.manual_seed(seed)
    train, held_out = corpus(seed)
    tokenizer = train_tokenizer(train[:200], TokenizerConfig(vocab_size=1024))
    config = preset(
        "tiny",
        vocab_size=tokenizer.vocab_size,
        moe_intermediate_size=128,
        index_topk=arguments.tokens // 16,
    )
    model = DSAForCausalLM(config)
    model.reset_parameters(seed)
    batches = stream(train, tokenizer, arguments.batch, arguments.tokens, seed)
    judged = next(stream(held_out, tokenizer, 8, arguments.tokens, seed))
    started = time.monotonic()
    loss = train_base(model, batches, arguments.base_steps, arguments.base_lr)
    base_s = time.monotonic() - started
    with torch.no_grad():
        held_loss = language_loss(model, judged, dense=True).item()
        sparse_before = language_loss(model, judged).item()
    started = time.monotonic()
    points = warm_up(model, batches, judged, config, arguments)
    warm_s = time.monotonic() - started
    with torch.no_grad():
        sparse_after = language_loss(model, judged).item()
    last = points[-1]
    print(
        f"seed {seed}: {arguments.base_steps} base steps in {base_s:.0f} s (loss {loss:.2f}, held out "
        f"{held_loss:.2f}), {arguments.steps} warm-up steps in {warm_s:.0f} s, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"  held-out loss with k = {config.index_topk} of {arguments.tokens}: {sparse_before:.3f} "
        f"before the warm-up, {sparse_after:.3f} after; dense {held_loss:.3f}"
    )
    for name in CHOICES:
        print(f"  {name:>13}: " + "  ".join(f"{share:.3f}" for share in last[name]))
    print("  oracle's mass: " + "  ".join(f"{mass:.3f}" for mass in last["oracle"]), flush=True)
    losses = {"dense": held_loss, "sparse_before": sparse_before, "sparse_after": sparse_after}
    return {"seed": seed, "points": points, "held_out_loss": losses}


def corpus(seed: int) -> tuple[list[str], list[str]]:
    """Texts of the standard library's modules: nine tenths to learn from, one held out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [
        path
        for path in sorted(folder.rglob("*.py"))
        if not {"site-packages", "test", "tests", "lib2to3", "encodings"} & set(path.parts)
    ]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    texts = [text for text in texts if len(text) > 2_000]
    random.Random(derive(seed, "split")).shuffle(texts)
    cut = len(texts) // 10
    return texts[cut:], texts[:cut]


def stream(
    texts: Sequence[str], tokenizer: Tokenizer, batch: int, tokens: int, seed: int
) -> Iterator[Tensor]:
    """Windows of random files, without end: [batch, tokens]."""
    ids = [torch.tensor(tokenizer.encode_plain(text[:200_000])) for text in texts]
    ids = [one for one in ids if len(one) > tokens]
    rng = random.Random(derive(seed, "windows", len(texts)))
    weights = [len(one) for one in ids]
    while True:
        chosen = rng.choices(ids, weights, k=batch)
        starts = [rng.randrange(len(one) - tokens) for one in chosen]
        yield torch.stack([one[i : i + tokens] for one, i in zip(chosen, starts, strict=True)])


def language_loss(model: DSAForCausalLM, ids: Tensor, *, dense: bool = False) -> Tensor:
    """Mean cross-entropy of the next token, in nats."""
    logits = model(ids, dense=dense).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train_base(model: DSAForCausalLM, batches: Iterator[Tensor], steps: int, lr: float) -> float:
    """Train the trunk with dense attention; the last loss."""
    optimizer = torch.optim.AdamW(
        model.trunk_parameters(), lr, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1)
    loss = torch.zeros(())
    for _ in range(steps):
        loss = language_loss(model, next(batches), dense=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.trunk_parameters(), 1.0)
        optimizer.step()
        schedule.step()
        model.update_router_bias()
    return loss.item()


def warm_up(
    model: DSAForCausalLM,
    batches: Iterator[Tensor],
    judged: Tensor,
    config: DSAConfig,
    arguments: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Train the indexer alone with eq. 3; what its choice covers, every so many steps."""
    model.eval()
    for weight in model.trunk_parameters():
        weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.indexer_parameters(), arguments.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    points = [judge(model, judged, config, 0, float("nan"))]
    for step in range(1, arguments.steps + 1):
        output = model(next(batches), dense=True, index_loss="dense", keep=slice(0, 1))
        assert output.index_loss is not None
        optimizer.zero_grad(set_to_none=True)
        output.index_loss.backward()
        optimizer.step()
        schedule.step()
        if step % arguments.every == 0 or step == arguments.steps:
            points.append(judge(model, judged, config, step, output.index_loss.item()))
    return points


def judge(
    model: DSAForCausalLM, judged: Tensor, config: DSAConfig, step: int, loss: float
) -> dict[str, Any]:
    shares = captured_mass(model, judged, config.index_topk, judged.shape[1] // 2)
    point = {name: [round(v, 4) for v in values.tolist()] for name, values in shares.items()}
    return {"step": step, "loss": None if loss != loss else round(loss, 4), **point}


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    """One panel a layer: shares of the oracle's mass over warm-up steps, mean and range of the seeds."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    layers = len(runs[0]["points"][0]["indexer"])
    steps = [point["step"] for point in runs[0]["points"]]
    figure, axes = pyplot.subplots(1, layers, figsize=(3 * layers, 2.8), sharey=True)
    for layer, axis in enumerate(axes):
        for name in CHOICES:
            values = [[p[name][layer] for p in one["points"]] for one in runs]
            columns = list(zip(*values, strict=True))
            axis.plot(steps, [sum(c) / len(c) for c in columns], label=name)
            axis.fill_between(
                steps, [min(c) for c in columns], [max(c) for c in columns], alpha=0.2
            )
        axis.axhline(TARGET, color="grey", linewidth=0.8, linestyle="--")
        axis.set(title=f"layer {layer}", xlabel="warm-up steps", ylim=(0, 1.02))
    axes[0].set_ylabel("share of the best k keys' mass")
    axes[-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
