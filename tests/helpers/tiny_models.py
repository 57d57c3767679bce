"""Tiny model folders: real weights, tokenizer and encoding, made in seconds.

* ``write_random_model(folder)``: writes noise;
* ``write_taught_model(folder, lessons)``: trained until it answers each lesson's prompt with its reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envgen.core.types import Message, ToolCall
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.model.tokenizer import Tokenizer, train_tokenizer
from envgen.policies.base import Tool
from envgen.policies.encoding import EncodingConfig, make_encoding, save_encoding
from envgen.policies.encoding.files import tokenizer_config

TEXTS = (
    "list_hotels get_hotel book_hotel submit_result city name hotel nights price answer_text",
    "Find the cheapest hotel in Hangzhou. Lotus Inn, West Lake, Canal House, Garden Court in Suzhou",
    "Is it warm in Paris? It is 21 degrees. get_weather",
) * 3

WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
QUESTION = Message(role="user", content="Is it warm in Paris?")
CALL = Message(
    role="assistant",
    content="I will look.",
    tool_calls=(ToolCall(id="call_0_0", name="get_weather", arguments={"city": "Paris"}),),
)
RESULT = Message(role="tool", content='{"degrees": 21}', tool_call_id="call_0_0")
ANSWER = Message(role="assistant", content="It is 21 degrees, caf\u00e9 \u676d\u5dde.")


class Lesson(NamedTuple):
    """A conversation and the reply to it that a model shall learn by heart."""

    messages: Sequence[Message]
    reply: Message
    tools: Sequence[Tool] = ()


def weather_lessons(*, thinking: bool = False) -> list[Lesson]:
    """A call, then an answer about its result."""
    thought = {"reasoning": "Let me see."} if thinking else {}
    call, answer = CALL.model_copy(update=thought), ANSWER.model_copy(update=thought)
    return [
        Lesson([QUESTION], call, [WEATHER_TOOL]),
        Lesson([QUESTION, call, RESULT], answer, [WEATHER_TOOL]),
    ]


def hotel_lessons(dataset: Path) -> list[Lesson]:
    """A good episode of ``tiny-cheapest`` in the tiny dataset, as the environment tells it."""
    from envgen.core.turns import encode_message
    from envgen.environments.general import GeneralEnv
    from envgen.environments.hosts import open_dataset

    steps = [
        ToolCall(id="call_0_0", name="list_hotels", arguments={"city": "Hangzhou"}),
        ToolCall(
            id="call_1_0", name="submit_result", arguments={"answer_text": '{"hotel": "Lotus Inn"}'}
        ),
    ]
    found: list[Lesson] = []
    env = GeneralEnv(open_dataset(str(dataset)), backend="inline")
    try:
        _, info = env.reset(options={"task_id": "tiny-cheapest"})
        for call in steps:
            reply = Message(role="assistant", tool_calls=(call,))
            found.append(Lesson(list(env.messages), reply, info["tools"]))
            env.step(encode_message(reply))
        assert env.score is not None
        assert env.score.passed
    finally:
        env.close()
    return found


def write_random_model(
    folder: Path, encoding: EncodingConfig | None = None, *, seed: int = 0, **changes: Any
) -> DSAForCausalLM:
    """A model folder whose model has learnt nothing."""
    config = encoding or EncodingConfig(kind="compact")
    tokenizer = train_tokenizer(TEXTS, tokenizer_config(config, vocab_size=480))
    model = _tiny(tokenizer, **changes)
    model.reset_parameters(seed)
    _write(folder, model, tokenizer, config)
    return model


def write_taught_model(
    folder: Path, lessons: Sequence[Lesson], encoding: EncodingConfig | None = None
) -> None:
    """A model folder whose model answers each lesson's prompt with its reply, when it is greedy."""
    config = encoding or EncodingConfig(kind="compact")
    tokenizer = train_tokenizer(TEXTS, tokenizer_config(config, vocab_size=480))
    built = make_encoding(config, tokenizer)
    model = _tiny(tokenizer)
    rows = [
        (built.prompt(lesson.messages, lesson.tools), built.completion(lesson.reply))
        for lesson in lessons
    ]
    _teach(model, rows)
    _write(folder, model, tokenizer, config)


def _tiny(tokenizer: Tokenizer, **changes: Any) -> DSAForCausalLM:
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 64,
        "initializer_range": 0.1,
        "max_position_embeddings": 4_096,
    }
    return DSAForCausalLM(preset("tiny", **{**sizes, **changes}))


def _write(
    folder: Path, model: DSAForCausalLM, tokenizer: Tokenizer, config: EncodingConfig
) -> None:
    model.save_pretrained(folder)
    tokenizer.save(folder)
    save_encoding(config, folder)


def _teach(model: DSAForCausalLM, rows: Sequence[tuple[list[int], list[int]]]) -> None:
    """Minimise the language-modelling loss on the replies until greedy decoding gives them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    batch = [
        (torch.tensor([[*prompt, *reply[:-1]]]), torch.tensor(reply), len(reply))
        for prompt, reply in rows
    ]
    model.train()
    for _ in range(300):
        losses, right = [], True
        for ids, wanted, size in batch:
            logits = model(ids, keep=slice(-size, None)).logits[0]
            loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
            right = right and float(loss.detach().max()) < 0.02
            losses.append(loss.mean())
        if right:
            break
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]  # PyTorch's own
        optimizer.step()
    else:
        raise AssertionError("the tiny model did not learn its lessons")
    model.eval()
