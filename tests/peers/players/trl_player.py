"""Runs under TRL's Python: its own GRPOTrainer, our environments, a scripted agent or a tiny random model.

``trl_player.py PACKAGE MODULE DATASET TASKS SPEC SEED``: the rewards of TRL's tool loop, as JSON.
``trl_player.py PACKAGE MODULE DATASET train``: three steps of training; the losses.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from envgen.core.types import Message, Sampling
from envgen.environments.episodes import SUBMITTED_TEXT
from envgen.rollout.gold import make_policy
from envgen.store.columns import public_row
from envgen.store.dataset import Dataset

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>", "<think>", "</think>",
)  # fmt: skip
WINDOW = 1 << 20


def tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A small BPE over bytes, learned from some texts, and Qwen3's chat template."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learned = trainers.BpeTrainer(vocab_size=4_000, initial_alphabet=alphabet, show_progress=False)
    tok.train_from_iterator(texts, learned)
    tok.add_special_tokens(list(SPECIAL[:3]))
    tok.add_tokens(list(SPECIAL[3:]))
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        chat_template=template.read_text(),
    )  # fmt: skip


def model(vocab: int) -> Qwen3ForCausalLM:
    """A Qwen3 of two narrow layers, untrained."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=WINDOW,
        )
    )  # fmt: skip


class Scripted(GRPOTrainer):
    """Says what a policy of envgen says, where the model would speak."""

    policy: Any
    publics: dict[str, Any]
    seed: int
    rewards: dict[str, float]

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, **_):
        ids = [self._say(self.processing_class.decode(one)) for one in prompt_ids]
        return ids, [[0.0] * len(one) for one in ids]

    def _say(self, text: str) -> list[int]:
        if SUBMITTED_TEXT in text:
            return self.processing_class.encode("Done.<|im_end|>", add_special_tokens=False)
        public, tools = next(p for prompt, p in self.publics.items() if prompt in text)
        turn = text.count("<|im_start|>assistant") - 1
        messages = [Message(role="user", content=public.prompt)]
        messages += [Message(role="assistant", content="")] * turn
        reply = self.policy.respond(
            messages, tools, Sampling(), seed=self.seed, task=public
        ).message
        said = reply.content
        for call in reply.tool_calls:
            body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            said += f"\n<tool_call>\n{body}\n</tool_call>"
        return self.processing_class.encode(said.lstrip() + "<|im_end|>", add_special_tokens=False)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        for row, rewards in zip(inputs, found.tolist(), strict=True):
            (self.rewards[row["task_id"]],) = rewards
        return found


def trainer(kind: type[GRPOTrainer], loaded: Any, out: str, **more: Any) -> GRPOTrainer:
    """A trainer on this processor."""
    words = tokenizer(str(row["prompt"]) for row in loaded.train_dataset)
    config = GRPOConfig(
        output_dir=out, use_cpu=True, report_to=[], save_strategy="no", num_generations=2,
        per_device_train_batch_size=2, logging_steps=1, chat_template_kwargs={"enable_thinking": False},
        **more,
    )  # fmt: skip
    return kind(
        model=model(len(words)), processing_class=words, train_dataset=loaded.train_dataset,
        environment_factory=loaded.environment_factory, reward_funcs=loaded.reward_funcs, args=config,
    )  # fmt: skip


def main(package: str, module: str, dataset: str, *words: str) -> None:
    """See the module."""
    sys.path.insert(0, package)
    load = importlib.import_module(module).load
    with tempfile.TemporaryDirectory() as out:
        if words[0] == "train":
            made = trainer(GRPOTrainer, load(), out, max_steps=3, max_completion_length=48)
            made.train()
            losses = [one["loss"] for one in made.state.log_history if "loss" in one]
            print(json.dumps({"losses": losses}))
            return
        tasks, spec, seed = json.loads(words[0]), words[1], int(words[2])
        loaded = load(task_ids=tuple(tasks))
        player = trainer(
            Scripted,
            loaded,
            out,
            max_completion_length=WINDOW // 2,
            max_tool_calling_iterations=700,
        )
        held = Dataset.open(dataset)
        player.policy, player.seed, player.rewards = make_policy(spec, held), seed, {}
        player.publics = {}
        for name in tasks:
            task = held.tasks[name]
            public = task.public(held.environments[task.environment_id])
            offered = public_row(task, held.environments[task.environment_id])["tools"]
            player.publics[public.prompt.strip()] = public, offered
        for row in loaded.train_dataset:
            player._generate_and_score_completions([row, row])
        print(json.dumps(player.rewards))


if __name__ == "__main__":
    main(*sys.argv[1:])
