"""Plays an export under verl's Python: verl's dataset reads the Parquet files, verl's agent loop plays.

``verl_player.py PACKAGE DATASET TASKS SPEC SEED [muses]``: the rewards, as JSON. An agent that muses begins
each task with a turn of plain text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import hydra
from omegaconf import OmegaConf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from envgen.core.types import Message, Sampling
from envgen.rollout.gold import make_policy
from envgen.store.columns import public_row
from envgen.store.dataset import Dataset

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content + '\n' if messages[0].role == 'system' else '' }}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if loop.first and message.role == 'system' %}{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
WINDOW = 1 << 20
NAMES = ("actor_rollout_ref", "data")


def tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A small BPE over bytes, learned from some texts, and a chat template in Qwen's form."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=4_000, initial_alphabet=alphabet, show_progress=False),
    )
    tok.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token=SPECIAL[1], pad_token=SPECIAL[2], chat_template=TEMPLATE
    )


class Scripted:
    """Says what a policy of envgen says, where verl would ask its model servers."""

    def __init__(
        self, dataset: Dataset, tasks: list[str], spec: str, seed: int, words: Any
    ) -> None:
        self.policy, self.seed, self.words = make_policy(spec, dataset), seed, words
        self.muses = "muses" in sys.argv
        self.publics: dict[str, Any] = {}
        for name in tasks:
            task = dataset.tasks[name]
            environment = dataset.environments[task.environment_id]
            offered = public_row(task, environment)["tools"]
            self.publics[task.prompt.strip()] = task.public(environment), offered

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        text = self.words.decode(prompt_ids)
        public, tools = next(p for prompt, p in self.publics.items() if prompt in text)
        turn = text.count("<|im_start|>assistant") - 1
        if self.muses:
            if turn == 0:
                return self._output("Let me see.")
            assert "plain text does nothing here" in text
            turn -= 1
        messages = [Message(role="user", content=public.prompt)]
        messages += [Message(role="assistant", content="")] * turn
        reply = self.policy.respond(
            messages, tools, Sampling(), seed=self.seed, task=public
        ).message
        said = reply.content
        for call in reply.tool_calls:
            body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            said += f"\n<tool_call>\n{body}\n</tool_call>"
        return self._output(said.lstrip())

    def _output(self, said: str) -> TokenOutput:
        ids = self.words.encode(said + SPECIAL[1], add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids))


async def play(package: Path, dataset: Dataset, tasks: list[str], spec: str, seed: int) -> None:
    """Each task once."""
    words = tokenizer([dataset.tasks[name].prompt for name in tasks])
    multi_turn = {
        "max_user_turns": None, "max_assistant_turns": None, "max_parallel_calls": 16,
        "max_tool_response_length": 256, "tool_response_truncate_side": "middle", "format": "hermes",
    }  # fmt: skip
    rollout = {
        "prompt_length": WINDOW, "response_length": WINDOW, "multi_turn": multi_turn,
        "full_determinism": False,
    }  # fmt: skip
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout},
            "data": {"max_prompt_length": WINDOW, "filter_overlong_prompts": False},
        }
    )
    (loop,) = OmegaConf.load(package / "agent_loops.yaml")
    files = [str(package / "data" / f"{name}.parquet") for name in ("train", "validation", "test")]
    rows = {}
    for file in files:
        read = RLHFDataset(file, words, config.data)
        rows |= {
            row["extra_info"]["task_id"]: row for row in map(read.__getitem__, range(len(read)))
        }
    server = Scripted(dataset, tasks, spec, seed, words)
    rewards = {}
    for name in tasks:
        row = rows[name]
        assert row.pop("agent_name") == loop.name
        played = hydra.utils.instantiate(
            config={"_target_": loop["_target_"]},
            trainer_config=DictConfigWrap(config),
            server_manager=server,
            tokenizer=words,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap([]),
        )
        output = await played.run({}, **row)
        assert (
            len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
        )
        assert any(output.response_mask)
        rewards[name] = output.reward_score
    print(json.dumps(rewards))


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    held = Dataset.open(sys.argv[2])
    asyncio.run(
        play(Path(sys.argv[1]), held, json.loads(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    )
