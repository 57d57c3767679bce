"""Bytes that a rollout's replay takes, by token: sampling mask, routing, key sets; as npz files hold them.

    python -P benchmarks/replay_bytes.py [--model FOLDER] [--replies 8] [--prompt 256] [--new 256]

First real captures: the engine answers random prompts with a model folder, or with the ``tiny`` preset
(random weights), and each part of the replies is stored as ``envgen.store.token_files`` stores it. Then the
release's shape (61 layers, 58 mixtures with 8 of 256 experts, 2,048 keys), which no machine here can run: the
same codec on sets that are made up, for shares of a set that a token changes. ``independent`` draws each set
anew and is the most that can be. Routes are drawn uniformly, the most that they can take.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envgen.store.token_files import write_tokens

TOP_P = 0.8
CONTEXTS = (32_768, 131_072)
CHURNS = (0.02, 0.1, 0.3)
LAYERS, KEYS, MIXTURES, EXPERTS, CHOSEN = 61, 2_048, 58, 256, 8
WINDOW = 64
"""Tokens of the made-up replies."""

Arrays = Mapping[str, NDArray[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="default: the tiny preset")
    parser.add_argument("--replies", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=256)
    arguments = parser.parse_args()
    print(f"{'':<44} {'per':<6} {'plain':>9} {'stored':>9}  bytes")
    captured(arguments.model, arguments.replies, arguments.prompt, arguments.new)
    print()
    for context in CONTEXTS:
        release(context)


def captured(folder: Path | None, replies: int, prompt: int, new: int) -> None:
    """What an engine's own replies take."""
    from envgen.model.config import preset
    from envgen.model.engine import Engine, EngineConfig
    from envgen.model.modeling import DSAForCausalLM
    from envgen.model.requests import Request
    from envgen.model.sampling import SamplingParams
    from envgen.policies.dsa import reply_tokens

    if folder is None:
        model = DSAForCausalLM(preset("tiny", index_topk=32)).eval()
    else:
        model = DSAForCausalLM.from_pretrained(folder).eval()
    config = model.config
    draws = np.random.default_rng(0)
    requests = [
        Request(
            draws.integers(3, config.vocab_size, prompt).tolist(),
            SamplingParams(max_new_tokens=new, seed=i, top_p=TOP_P, capture_topk=True),
        )
        for i in range(replies)
    ]
    engine = Engine(model, EngineConfig(max_batch=replies, cache_tokens=replies * (prompt + new)))
    found = [reply_tokens(one).arrays() for one in engine.generate(requests)]
    written = sum(len(one["completion_ids"]) for one in found)
    run = sum(len(one["routing"]) for one in found)
    name = "tiny" if folder is None else str(folder)
    kept = sum(len(one["mask_ids"]) for one in found) / written
    print(
        f"{name}: {prompt} + {new} tokens, {config.num_hidden_layers} layers, top-k {config.index_topk}"
    )
    row(
        f"  mask, top-p {TOP_P} (keeps {kept:.0f} ids)",
        found,
        ("mask_offsets", "mask_ids"),
        written,
        "model",
    )
    row("  routing", found, ("routing",), run, "token")
    row("  key sets", found, ("topk",), run, "token")


def release(context: int) -> None:
    """What the release's replies would take at a context, by the same codec."""
    draws = np.random.default_rng(0)
    print(f"671B shape, context {context:,}")
    routes = np.argsort(draws.random((WINDOW, MIXTURES, EXPERTS)), axis=2)[..., :CHOSEN]
    row(
        "  routing, uniform", [{"routing": routes.astype(np.uint16)}], ("routing",), WINDOW, "token"
    )
    for churn in (*CHURNS, None):
        one = [{"topk": key_sets(context, churn, draws)[:, None]}]
        first = [{"topk": one[0]["topk"][:1]}]
        name = "independent" if churn is None else f"{churn:.0%} changed"
        plain, stored = (
            LAYERS * (a - b) / (WINDOW - 1)
            for a, b in zip(sizes(one, ("topk",)), sizes(first, ("topk",)), strict=True)
        )
        print(f"{'  key sets, ' + name:<44} {'token':<6} {plain:9,.0f} {stored:9,.0f}")


def key_sets(context: int, churn: float | None, draws: np.random.Generator) -> NDArray[np.int32]:
    """Sets of one layer for tokens in a row: int32 [WINDOW, KEYS]."""
    held = draws.choice(context, KEYS, replace=False)
    sets = []
    for _ in range(WINDOW):
        sets.append(held.astype(np.int32))
        if churn is None:
            held = draws.choice(context, KEYS, replace=False)
            continue
        gone = round(churn * KEYS)
        outside = np.setdiff1d(np.arange(context), held)
        held = np.concatenate((draws.permutation(held)[gone:], draws.choice(outside, gone, False)))
    return np.stack(sets)


def row(name: str, replies: list[Arrays], parts: tuple[str, ...], count: int, unit: str) -> None:
    """Print what some arrays take, as they are and as they are stored."""
    plain, stored = sizes(replies, parts)
    print(f"{name:<44} {unit:<6} {plain / count:9,.1f} {stored / count:9,.1f}")


def sizes(replies: list[Arrays], parts: tuple[str, ...]) -> tuple[int, int]:
    """Bytes of some arrays, and of the files that hold them."""
    plain = stored = 0
    with tempfile.TemporaryDirectory() as folder:
        for reply in replies:
            chosen = {name: reply[name] for name in parts}
            plain += sum(array.nbytes for array in chosen.values())
            reference = write_tokens(Path(folder), "reply.npz", chosen)
            stored += (Path(folder) / reference.path).stat().st_size
    return plain, stored


if __name__ == "__main__":
    main()
