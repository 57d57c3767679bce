from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_server import END, TEMPLATE, ModelServer, Raw, chatml, encode, npy
from toy_world import SUBMIT, town_task

from envgen.core.errors import PolicyError
from envgen.core.types import Message, Sampling
from envgen.policies.base import PolicyReply
from envgen.policies.tokens_http import TokenConfig, TokenPolicy

CALL = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
LAYERS, K = 3, 2


def completion(body: dict[str, Any], text: str, stop: bool) -> tuple[list[int], int]:
    ids = encode(text) + ([END] if stop else [])
    return ids, len(body.get("token_ids") or body.get("input_ids") or body["prompt"])


def vllm(text: str = CALL, *, stop: bool = True) -> Callable[[dict[str, Any]], Any]:
    def reply(body: dict[str, Any]) -> Any:
        ids, num_prompt = completion(body, text, stop)
        tokens = num_prompt + len(ids) - 1
        routing = np.arange(tokens * LAYERS * K).reshape(tokens, LAYERS, K) % 256
        content = [{"token": f"token_id:{i}", "logprob": -0.5} for i in ids]
        choice: dict[str, Any] = {
            "index": 0,
            "token_ids": ids,
            "logprobs": {"content": content},
            "finish_reason": "stop" if stop else "length",
            "sampling_mask": [[i, 7] for i in ids],
        }
        if body.get("return_routed_experts"):
            choice["routed_experts"] = npy(routing.astype(np.uint8))
        return {"request_id": "r", "choices": [choice], "prompt_logprobs": None}

    return reply


def sglang(text: str = CALL, *, stop: bool = True) -> Callable[[dict[str, Any]], Any]:
    def reply(body: dict[str, Any]) -> Any:
        ids, num_prompt = completion(body, text, stop)
        routing = np.arange((num_prompt + len(ids) - 1) * LAYERS * K, dtype="<i4") % 300
        finish = (
            {"type": "stop", "matched": END} if stop else {"type": "length", "length": len(ids)}
        )
        meta: dict[str, Any] = {
            "finish_reason": finish,
            "prompt_tokens": num_prompt,
            "output_token_logprobs": [[-0.25, i, None] for i in ids],
            "weight_version": "v7",
        }
        if body.get("return_routed_experts"):
            meta["routed_experts"] = base64.b64encode(routing.tobytes()).decode()
        if body.get("return_sampling_mask"):
            meta["output_token_sampling_mask"] = [[i, 9] for i in ids]
            meta["output_token_sampling_logprobs"] = [-0.125] * len(ids)
        return {"text": text, "output_ids": ids, "meta_info": meta}

    return reply


def ask(policy: TokenPolicy, messages: list[Message], **sampling: Any) -> PolicyReply:
    return policy.respond(messages, [SUBMIT], Sampling(**sampling), seed=3, task=town_task())


def make(server: ModelServer, engine: str, **options: Any) -> TokenPolicy:
    fields: dict[str, Any] = {"base_url": server.url, "model": "m", "backoff_s": 0.01}
    return TokenPolicy(TokenConfig(engine=engine, **{**fields, **options}))


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "chat_template.jinja"
    path.write_text(TEMPLATE)
    return str(path)


def engine_options(engine: str, template: str) -> dict[str, Any]:
    options: dict[str, Any] = {"routed_experts": True, "sampling_mask": True}
    if engine == "sglang":
        options |= {"chat_template": template, "experts_per_token": K}
    return options


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("stop", [True, False])
def test_next_turn_extends_the_ids(engine: str, stop: bool, template: str) -> None:
    reply = (vllm if engine == "vllm" else sglang)(CALL, stop=stop)
    with ModelServer([reply], flavour=engine) as server:
        policy = make(server, engine, **engine_options(engine, template))
        messages = [Message(role="user", content="go")]
        first = ask(policy, messages)
        messages += [first.message, Message(role="tool", content="5", tool_call_id="call_0_0")]
        second = ask(policy, messages)
    assert first.tokens is not None
    assert second.tokens is not None
    assert first.message.tool_calls[0].arguments == {"x": 1}
    opening = encode(chatml([{"role": "user", "content": "go"}], True))
    assert first.tokens.prompt_ids.tolist() == opening
    assert first.tokens.stopped is stop
    between = encode(
        ("" if stop else "<|im_end|>") + "\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n"
    )
    expected = [*opening, *first.tokens.completion_ids.tolist(), *between]
    assert second.tokens.prompt_ids.tolist() == expected
    assert second.usage.prompt_tokens == len(expected)
    total = len(expected) + len(second.tokens.completion_ids) - 1
    assert second.tokens.routing is not None
    assert second.tokens.routing.shape == (total, LAYERS, K)
    assert second.tokens.routing.dtype == np.uint16
    assert second.tokens.mask is not None
    assert np.diff(second.tokens.mask.offsets).tolist() == [2] * len(second.tokens.completion_ids)
    assert {"prompt_ids", "logprobs", "routing", "mask_ids"} <= set(second.tokens.arrays())


def test_what_logprobs_belong_to_is_marked(template: str) -> None:
    user = [Message(role="user", content="go")]
    with ModelServer([vllm("hi")]) as server:
        tokens = [
            ask(make(server, "vllm"), user).tokens,  # nothing is changed: raw is exact
            ask(make(server, "vllm"), user, temperature=0.7).tokens,
            ask(make(server, "vllm", logprobs_mode="processed"), user, top_p=0.9).tokens,
        ]
    assert [t.raw_logprobs for t in tokens if t] == [False, True, False]
    with ModelServer([sglang("hi")], flavour="sglang") as server:
        plain = make(server, "sglang", chat_template=template)
        exact = make(server, "sglang", chat_template=template, sampling_mask=True)
        tokens = [
            ask(plain, user, temperature=0.7).tokens,
            ask(plain, user, top_p=0.9).tokens,
            ask(exact, user, top_p=0.9).tokens,
        ]
    assert [t.raw_logprobs for t in tokens if t] == [False, True, False]
    assert tokens[2] is not None
    assert tokens[2].logprobs is not None
    assert tokens[2].logprobs[0] == np.float32(-0.125)
    assert tokens[2].policy_version == "v7"


def test_completions_endpoint_of_older_vllm() -> None:
    def reply(body: dict[str, Any]) -> Any:
        ids = [*encode("hi"), END]
        assert body["return_token_ids"]
        logprobs = {"tokens": ["h", "i", ""], "token_logprobs": [-1.0, -2.0, -3.0]}
        choice = {"text": "hi", "token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {}}

    with ModelServer([reply]) as server:
        got = ask(make(server, "vllm", endpoint="completions"), [Message(role="user", content="x")])
    assert got.message.content == "hi"
    assert got.tokens is not None
    assert got.tokens.logprobs is not None
    assert got.tokens.logprobs.tolist() == [-1.0, -2.0, -3.0]


def claiming(entries: int) -> str:
    """The header of an array that claims so many entries and has none."""
    file = io.BytesIO()
    header = {"descr": "<u2", "fortran_order": False, "shape": (3, entries)}
    np.lib.format.write_array_header_1_0(file, header)
    return base64.b64encode(file.getvalue()).decode()


def broken(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    def reply(body: dict[str, Any]) -> Any:
        value = vllm("hi")(body)
        value["choices"][0].update(changes)
        return value

    return reply


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": None}, "token ids"),
        ({"token_ids": ["a"]}, "token ids"),
        ({"logprobs": {"content": []}}, "log-probabilities"),
        ({"logprobs": {"token_logprobs": ["a", "b", "c"]}}, "numbers"),
        ({"logprobs": {"token_logprobs": [None, -1, -1]}}, "numbers"),
        ({"logprobs": {"token_logprobs": [10**400, -1, -1]}}, "numbers"),
        ({"logprobs": ["x"]}, "of another form"),
        ({"token_ids": [2**70, 1, 2]}, "token ids"),
        ({"sampling_mask": [[1]]}, "mask"),
        ({"sampling_mask": [["a"], [None], [2**70]]}, "else than token ids"),
        ({"sampling_mask": [[1], [1], [1]]}, "is missing the sampled id"),
        ({"routed_experts": "!!"}, "routed experts"),
        ({"routed_experts": npy(np.zeros((2, 3, 2), np.uint8))}, "does not fit"),
        ({"routed_experts": npy(np.zeros((2, 3, 2)))}, "of type float64"),
        ({"routed_experts": claiming(10**12)}, "routed experts"),
        ({"routed_experts": npy(np.array([{}], dtype=object))}, "routed experts"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with ModelServer([broken(**changes)]) as server, pytest.raises(PolicyError, match=message):
        ask(make(server, "vllm", max_retries=1), [Message(role="user", content="x")])


def test_html_from_the_tokenizer_is_a_policy_error(template: str) -> None:
    with ModelServer([Raw(404, "<html>")]) as server:
        policy = make(server, "vllm")
        with pytest.raises(PolicyError, match="404"):
            ask(policy, [Message(role="user", content="x")])


def test_unknown_conversation_is_rendered() -> None:
    answer = Message(role="assistant", content="earlier")
    more = [Message(role="user", content="a"), answer, Message(role="user", content="b")]
    with ModelServer([vllm("hi")]) as server:
        got = ask(make(server, "vllm"), more)
    assert got.tokens is not None
    text = chatml([json.loads(m.model_dump_json(include={"role", "content"})) for m in more], True)
    assert got.tokens.prompt_ids.tolist() == encode(text)
