"""Ask a policy for one JSON object of a given form, and say what the answer cost."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from envgen.core.surrogates import whole
from envgen.core.threads import over
from envgen.core.types import Message, PublicTask, Sampling, Usage
from envgen.policies.base import Policy, PolicyReply

T = TypeVar("T", bound=BaseModel)
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Asked(Generic[T]):
    """What came of a question."""

    answer: T | None
    """None: no reply had the form that was asked for."""
    usage: Usage
    fault: str = ""
    """What was wrong with the last reply."""


def ask(
    policy: Policy,
    form: type[T],
    prompt: str,
    *,
    name: str,
    seed: int,
    sampling: Sampling,
    family: str = "code",
    tries: int = 2,
) -> Asked[T]:
    """One answer in the form of ``form``: a call of the only tool, or JSON in the text.

    Args:
        policy: who answers.
        form: the answer's fields; its JSON schema is the tool's parameters.
        prompt: the question.
        name: what it is about, for the policy's records.
        seed: of the draw.
        sampling: how to draw.
        family: of the tasks that it is asked for.
        tries: replies in all; after a malformed one the policy is told what was wrong.

    Raises:
        PolicyError: if the policy gives no reply at all.
        CancelledPolicyError: if this thread's work was given up (``envgen.core.threads``).
    """
    tool = form_tool(form)
    key = f"{family}-" + hashlib.sha256(f"{name}\0{seed}".encode()).hexdigest()[:16]
    task = PublicTask(id=key, environment_id=key, family=family, prompt=prompt)
    messages = [Message(role="user", content=prompt)]
    usage, fault = Usage(), ""
    for _ in range(tries):
        reply = policy.respond(messages, [tool], sampling, cancel=over(), seed=seed, task=task)
        usage += reply.usage
        message = heard(reply)
        try:
            return Asked(_parsed(message, form), usage)
        except ValueError as error:
            fault = _fault(error)
            messages += _again(message, fault)
    return Asked(None, usage, fault)


def heard(reply: PolicyReply) -> Message:
    """A reply's message without lone surrogates, which no file, database or server takes."""
    text = json.dumps(reply.message.model_dump(mode="json"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Message.model_validate_json(whole(text))
    return reply.message


def block(name: str, text: str, most_chars: int) -> str:
    """Foreign text between marks that it can't imitate; a long one loses its middle.

    The mark is the text's own hash, so whoever wrote the text could not have put it inside.
    """
    if len(text) > most_chars:
        half = most_chars // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"<{name} {mark}>\n{text.strip()}\n</{name} {mark}>"


def form_tool(form: type[BaseModel]) -> Mapping[str, Any]:
    """A form as a tool in OpenAI's form: named and described as it is, its fields the parameters."""
    schema = form.model_json_schema()
    function = {
        "name": _name(form),
        "description": (form.__doc__ or "").strip().split("\n")[0],
        "parameters": schema,
    }
    return {"type": "function", "function": function}


def _parsed(message: Message, form: type[T]) -> T:
    """The answer in a reply.

    Raises:
        ValueError: if there is none.
    """
    for call in message.tool_calls:
        if call.name == _name(form):
            if call.arguments is None:
                raise ValueError("the call's arguments must be a JSON object")
            return form.model_validate(call.arguments)
    text = message.content
    fenced = _FENCED.findall(text)
    start, end = text.find("{"), text.rfind("}")
    for found in (*reversed(fenced), text[start : end + 1] if start >= 0 else ""):
        try:
            value = json.loads(found.strip())
        except (ValueError, RecursionError):
            continue
        return form.model_validate(value)
    raise ValueError(f"no call of {_name(form)} and no JSON object in the reply")


def _fault(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
    return str(error)


def _again(message: Message, fault: str) -> Sequence[Message]:
    """The reply and what is wrong with it; a call must be answered by a tool message."""
    text = f"That can't be read: {fault}. Answer again, in the form that was asked for."
    calls = [call for call in message.tool_calls if call.arguments is not None]
    if not calls:
        plain = message.model_copy(update={"tool_calls": ()})
        return (plain, Message(role="user", content=text))
    kept = message.model_copy(update={"tool_calls": tuple(calls)})
    answers = (Message(role="tool", content=text, tool_call_id=call.id) for call in calls)
    return (kept, *answers)


def _name(form: type[BaseModel]) -> str:
    """What the model calls to fill the form in."""
    return str(form.model_config.get("title") or form.__name__.lower())
