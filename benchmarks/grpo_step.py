"""A whole GRPO step (generation and update) beside TRL, on the same weights and shapes.

    python -P benchmarks/grpo_step.py --peer PYTHON [--cases 1x8 8x8] [--rounds 3] [--threads 2]

PYTHON is an interpreter that has ``trl``, ``transformers`` and ``datasets``. A case is PROMPTSxGROUP: so
many prompts of 66 tokens, each with a group of replies of exactly 64 tokens, temperature 1, no truncation,
beta 0, one update a batch. envgen trains its DSA model, *trl* trains transformers' ``DeepseekV32ForCausalLM``
from the same folder, *trl llama* a Llama of about the same size. Rewards count some tokens, so that no group
is without an advantage (checked). The first two steps of each process are left out; processes take turns.
TRL's optimiser steps outside of what is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPT, NEW, VOCAB = 66, 64, 512
STEPS, SKIPPED = 6, 2
SIDES = ("envgen", "trl", "trl llama")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a Python with trl")
    parser.add_argument("--cases", nargs="+", default=["1x8", "8x8"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, folder, case = arguments.child
        prompts, group = map(int, case.split("x"))
        steps = ours if side == "envgen" else peer
        print(json.dumps(steps(folder, prompts, group, arguments.threads, side)))
        return
    sides = SIDES if arguments.peer else SIDES[:1]
    if not arguments.peer:
        print("no --peer PYTHON with trl: envgen alone")
    print(f"{arguments.threads} threads, load {os.getloadavg()[0]:.1f}")
    print("   case  side         step s  generation  update   CPU s  tokens/s   step / trl's  CPU")
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder))
        for case in arguments.cases:
            compare(case, folder, sides, arguments)


def compare(case: str, folder: str, sides: tuple[str, ...], arguments: argparse.Namespace) -> None:
    """Run one case on all sides, in turns, and print its rows."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side in sides:
            python = sys.executable if side == "envgen" else arguments.peer
            command = [python, "-P", __file__, "--threads", str(arguments.threads)]
            done = subprocess.run(
                [*command, "--child", side, folder, case],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)},
            )  # fmt: skip
            found[side] += json.loads(done.stdout.splitlines()[-1])
    medians = {
        side: {name: statistics.median(step[name] for step in steps) for name in steps[0]}
        for side, steps in found.items()
    }
    for side, m in medians.items():
        ratio = ""
        if "trl" in medians:
            wall, cpu = (medians["trl"][name] / m[name] for name in ("wall", "cpu"))
            ratio = f"{wall:10.2f}x {cpu:9.2f}x"
        print(
            f"{case:>7}  {side:<10} {m['wall']:8.3f} {m['generation']:11.3f} {m['update']:7.3f} "
            f"{m['cpu']:7.3f} {m['tokens'] / m['wall']:9.0f} {ratio}",
            flush=True,
        )


def save_model(folder: Path) -> None:
    """A model of the tiny preset whose key sets leave something out."""
    from envgen.model.config import preset
    from envgen.model.modeling import DSAForCausalLM

    DSAForCausalLM(preset("tiny", vocab_size=VOCAB, index_topk=32)).save_pretrained(folder)


def ours(folder: str, prompts: int, group: int, threads: int, side: str) -> list[dict[str, float]]:
    """Steps of envgen: engine, rows, update."""
    from random import Random

    import numpy as np
    import torch

    from envgen.core.seeding import derive
    from envgen.model.engine import Engine, EngineConfig
    from envgen.model.modeling import DSAForCausalLM
    from envgen.model.requests import Request
    from envgen.model.sampling import SamplingParams
    from envgen.policies.dsa import reply_tokens
    from envgen.train.config import GRPOConfig, OptimizerConfig, UpdateConfig
    from envgen.train.optimize import Optimizer
    from envgen.train.rows import turn_rows
    from envgen.train.update import RolloutBatch, Updater

    torch.set_num_threads(threads)
    model = DSAForCausalLM.from_pretrained(folder)
    model.requires_grad_(True)
    size = prompts * group
    engine = Engine(model, EngineConfig(max_batch=size, cache_tokens=size * 192))
    # The indexer does not learn in transformers' class either.
    optimizer = Optimizer(model, OptimizerConfig(lr=1e-4, warmup_steps=0, indexer="frozen"))
    updater = Updater(model, optimizer, GRPOConfig(), UpdateConfig(), 1.0)
    rows = np.random.default_rng(0).integers(3, VOCAB, (prompts, PROMPT)).tolist()
    group_I = np.repeat(np.arange(prompts), group)
    found = []
    for step in range(STEPS):
        began, cpu = time.perf_counter(), time.process_time()
        model.eval()
        engine.refresh(str(step))
        params = [
            SamplingParams(max_new_tokens=NEW, seed=derive(step, i), capture_topk=True)
            for i in range(size)
        ]
        requests = [Request(rows[i // group], one) for i, one in enumerate(params)]
        done = engine.generate(requests)
        generated = time.perf_counter()
        reward_I = np.array([(one.ids % 7 == 0).sum() for one in done], np.float32)
        assert all(np.ptp(reward_I[group_I == g]) > 0 for g in range(prompts))
        replies = [reply_tokens(one).arrays() for one in done]
        taught = [row for i, reply in enumerate(replies) for row in turn_rows([reply], i)]
        updater.update(
            RolloutBatch(taught, group_I, reward_I, np.full(size, NEW, np.int64)), Random(step)
        )
        ended = time.perf_counter()
        found.append(figures(began, generated, ended, time.process_time() - cpu, size))
    return found[SKIPPED:]


def peer(folder: str, prompts: int, group: int, threads: int, side: str) -> list[dict[str, float]]:
    """Steps of TRL's trainer."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import datasets
    import torch
    import transformers
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.set_num_threads(threads)
    words = {f"w{i}": i for i in range(VOCAB)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.decoder = decoders.WordPiece(prefix="")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="w1", eos_token="w2", pad_token="w0", padding_side="left"
    )
    if side == "trl":
        model = transformers.DeepseekV32ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
                num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=1024,
                bos_token_id=1, eos_token_id=2, pad_token_id=0,
            )
        )  # fmt: skip
    model.generation_config.pad_token_id = 0
    spent = {"generation": 0.0}
    found: list[dict[str, float]] = []
    size = prompts * group

    class Timed(trl.GRPOTrainer):  # type: ignore[misc, name-defined]  # the peer's interpreter has it
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            began = time.perf_counter()
            result = super()._generate_and_score_completions(inputs)
            spent["generation"] += time.perf_counter() - began
            return result

        def training_step(self, *given: Any, **named: Any) -> Any:
            began, cpu = time.perf_counter(), time.process_time()
            spent["generation"] = 0.0
            result = super().training_step(*given, **named)
            generated = began + spent["generation"]
            cpu = time.process_time() - cpu
            found.append(figures(began, generated, time.perf_counter(), cpu, size))
            return result

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(sum(i % 7 == 0 for i in ids)) for ids in completion_ids]

    draws = torch.Generator().manual_seed(0)
    texts = [
        " ".join(f"w{i}" for i in torch.randint(3, VOCAB, (PROMPT,), generator=draws).tolist())
        for _ in range(256)
    ]
    with tempfile.TemporaryDirectory() as out:
        settings = trl.GRPOConfig(
            output_dir=out, per_device_train_batch_size=size, num_generations=group,
            max_completion_length=NEW, max_steps=STEPS, learning_rate=1e-4, logging_steps=1000,
            save_strategy="no", report_to=[], use_cpu=True, bf16=False, beta=0.0, temperature=1.0,
            generation_kwargs={"min_new_tokens": NEW}, disable_tqdm=True,
            gradient_checkpointing=False, scale_rewards="none", loss_type="grpo",
        )  # fmt: skip
        trainer = Timed(
            model=model, reward_funcs=reward, args=settings,
            train_dataset=datasets.Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
    return found[SKIPPED:]


def figures(
    began: float, generated: float, ended: float, cpu: float, size: int
) -> dict[str, float]:
    """One step's."""
    return {
        "wall": ended - began,
        "generation": generated - began,
        "update": ended - generated,
        "cpu": cpu,
        "tokens": float(size * NEW),
    }


if __name__ == "__main__":
    main()
