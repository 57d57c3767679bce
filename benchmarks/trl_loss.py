"""What TRL's GRPO trainer makes of given log-probabilities and rewards, written as a test's fixture.

    PYTHON -P benchmarks/trl_loss.py tests/data/trl_loss.json

PYTHON is an interpreter that has ``trl`` and ``datasets``; envgen is not needed. TRL's own ``GRPOTrainer`` is
run from rewards to loss: ``_generate_and_score_completions`` (advantages, importance weights, denominators)
and ``_compute_loss``. Two things are put in its place: rollouts are given instead of generated, and so are
the log-probabilities of policy, old policy and reference, that the gradients are taken of.
``tests/train/test_trl_loss.py`` compares envgen's objective with what is written here.

What TRL has nothing to compare with: rollouts of several rows, the sampler's support and choices, groups that
are dropped, KL strength by domain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

GROUPS, SIZE, LONGEST, VOCAB = 3, 4, 9, 16
CASES: dict[str, dict[str, Any]] = {
    "mean only": {},
    "std": {"scale_rewards": "group"},
    "clip-higher": {"epsilon_high": 0.28},
    "k3": {"beta": 0.1, "use_bias_correction_kl": False},
    "unbiased kl": {"beta": 0.1},
    "off-policy mask": {"off_policy_mask_threshold": 0.05},
    "token, bnpo": {"loss_type": "bnpo"},
    "token, dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "tis": {"vllm": True},
    "tis, mask, kl": {"vllm": True, "off_policy_mask_threshold": 0.05, "beta": 0.1},
}
"""Settings that differ from ``PLAIN``; ``vllm``: the sampler's log-probabilities are given, too."""
PLAIN: dict[str, Any] = {
    "scale_rewards": "none",
    "loss_type": "grpo",
    "epsilon": 0.2,
    "epsilon_high": None,
    "beta": 0.0,
    "use_bias_correction_kl": True,
    "off_policy_mask_threshold": None,
}
TIS_CAP = 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="FILE", help="what to write")
    arguments = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch
    import transformers
    import trl

    given = rollouts()
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model")
        cases = {name: run(given, changes, Path(folder)) for name, changes in CASES.items()}
    record = {
        "trl": trl.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "group_size": SIZE,
        "rollouts": given,
        "cases": cases,
    }
    arguments.out.write_text(in_lines(record))
    print(f"{len(cases)} cases by TRL {trl.__version__}, written to {arguments.out}")


def in_lines(record: dict[str, Any]) -> str:
    """JSON with a line for each rollout and each case."""
    *plain, (_, given), (_, cases) = record.items()
    head = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in plain)
    rows = ",\n".join(json.dumps(one) for one in given)
    told = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    return f'{{{head},\n"rollouts": [\n{rows}\n],\n"cases": {{\n{told}\n}}}}\n'


def rollouts() -> list[dict[str, Any]]:
    """Rollouts by group: reward, which tokens the model wrote, and four log-probabilities of each token.

    Ratios lie around 1 far enough to be clipped on both sides. The last group's rewards are all the same.
    """
    draws = random.Random(13)
    found = []
    for i in range(GROUPS * SIZE):
        length = draws.randint(2, LONGEST)
        written = [1, *(int(draws.random() < 0.7) for _ in range(length - 1))]
        old = [round(-draws.uniform(0.2, 3.0), 4) for _ in range(length)]

        def near(mean: float, deviation: float, values: list[float] = old) -> list[float]:
            return [round(value + draws.gauss(mean, deviation), 4) for value in values]

        last = i // SIZE == GROUPS - 1
        found.append(
            {
                "reward": 1.0 if last else draws.choice([0.0, 0.25, 1.0]),
                "written": written,
                "policy": near(-0.05, 0.25),
                "old": old,
                "reference": near(0, 0.3),
                "sampler": near(0, 0.1),
            }
        )
    return found


def save_model(folder: Path) -> None:
    """A model and tokenizer that the trainer can be made with; nothing is computed with them."""
    import transformers
    from tokenizers import Tokenizer, models

    words = {f"w{i}": i for i in range(VOCAB)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="w1", eos_token="w2", pad_token="w0"
    ).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def run(given: list[dict[str, Any]], changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One case: settings, advantages, loss, and its gradient by each rollout's log-probabilities."""
    import datasets
    import torch
    import transformers
    import trl

    settings = {**PLAIN, **changes}
    vllm = settings.pop("vllm", False)
    longest = max(len(one["policy"]) for one in given)

    def padded(name: str) -> Any:
        rows = [one[name] + [0.0] * (longest - len(one[name])) for one in given]
        return torch.tensor(rows, dtype=torch.float32)

    policy = padded("policy").requires_grad_()

    class Told(trl.GRPOTrainer):  # type: ignore[misc, name-defined]  # the peer's interpreter has it
        """A trainer that is told rollouts and log-probabilities."""

        def _generate(self, prompts: list[Any]) -> Any:
            ids = [[3] * len(one["policy"]) for one in given]
            written = [one["written"] for one in given]
            sampler = [one["sampler"] for one in given] if vllm else None
            return [[3]] * len(given), ids, written, [""] * len(given), sampler, {}, None, None

        def _get_per_token_logps_and_entropies(self, model: Any, *_: Any, **__: Any) -> Any:
            if torch.is_grad_enabled():
                return policy, torch.zeros_like(policy), None
            return padded("reference" if model is self.ref_model else "old"), None, None

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [one["reward"] for one in given]

    trainer = Told(
        model=str(folder / "model"),
        reward_funcs=reward,
        args=trl.GRPOConfig(
            output_dir=str(folder / "out"), per_device_train_batch_size=len(given),
            num_generations=SIZE, max_completion_length=longest, use_cpu=True, bf16=False,
            report_to=[], num_iterations=2, gradient_checkpointing=False,
            vllm_importance_sampling_mode="token_truncate",
            vllm_importance_sampling_clip_max=TIS_CAP, **settings,
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["w3"] * len(given)}),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "model"),
    )  # fmt: skip
    # With use_vllm among the settings a server would be looked for.
    trainer.use_vllm = vllm
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions([{"prompt": "w3"} for _ in given])
    loss = trainer._compute_loss(trainer.model, batch)
    (gradient,) = torch.autograd.grad(loss, policy)
    beyond = [
        row[len(one["policy"]) :].abs().sum() for row, one in zip(gradient, given, strict=True)
    ]
    assert not any(beyond), "padding has a gradient"
    return {
        "settings": {**settings, "tis_cap": TIS_CAP if vllm else None},
        "advantages": batch["advantages"].tolist(),
        "loss": loss.item(),
        "gradients": [
            row[: len(one["policy"])].tolist() for row, one in zip(gradient, given, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
