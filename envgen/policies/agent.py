"""One agent: a policy, tools, one linear conversation, and budgets.

Writers, answerers, verifiers and the setup agent of the code family are prompts and tools over it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from envgen.core.limits import Whole, fault
from envgen.core.schema import Validator, argument_fault
from envgen.core.seeding import derive
from envgen.core.threads import over
from envgen.core.types import FamilyName, Message, PublicTask, Record, Sampling, ToolCall, Usage
from envgen.policies.ask import form_tool, heard
from envgen.policies.base import ContextOverflowError, Policy, Tool
from envgen.policies.budget import estimated_tokens
from envgen.policies.context import ContextConfig, ContextManager

T = TypeVar("T", bound=BaseModel)
Ending = Literal["submitted", "submissions", "turns", "tokens", "silent", "repeats", "context"]
"""Why a conversation ended: with a submission that was accepted; with as many that were not as there may be;
without turns or tokens left; with replies that call no tool, or the same call again and again; or with more
than the model's window holds."""


class AgentConfig(Record):
    """How long an agent may work."""

    turns: int = Field(default=40, ge=1, le=10_000)
    submissions: int = Field(default=4, ge=1, le=1_000)
    """Tries to submit; what was wrong with each is told."""
    tokens: int | None = Field(default=None, ge=1)
    """Of all requests and replies together; None: no limit."""
    output_chars: int = Field(default=6_000, ge=200)
    """Of what a tool returns; the middle is left out."""
    idle: int = Field(default=3, ge=1)
    """Replies in a row without a call, or with the same calls as before, that end it."""
    sampling: Sampling = Sampling()
    seed: Whole = 0
    context: ContextConfig = ContextConfig(strategy="discard-75")


@dataclass(frozen=True)
class AgentTool:
    """A tool of an agent.

    Args:
        name: as the model calls it.
        description: one line.
        parameters: the JSON schema of its arguments.
        run: takes them, as the schema has them, and returns what the agent sees.
        whole: what it returns is shown whole, however long; it must be bounded by its nature.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any]], str]
    whole: bool = False

    @property
    def wire(self) -> Tool:
        """In OpenAI's form."""
        function = {
            "name": self.name, "description": self.description, "parameters": dict(self.parameters),
        }  # fmt: skip
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class AgentRun(Generic[T]):
    """What came of a conversation."""

    answer: T | None
    """What was submitted and accepted."""
    ended: Ending
    turns: int
    submissions: int
    usage: Usage
    fault: str = ""
    """What was wrong with the last submission."""
    messages: tuple[Message, ...] = ()


def run_agent(
    policy: Policy,
    prompt: str,
    tools: Sequence[AgentTool],
    form: type[T],
    accept: Callable[[T], str] = lambda _: "",
    *,
    name: str,
    family: FamilyName,
    config: AgentConfig | None = None,
    system: str = "",
) -> AgentRun[T]:
    """Talk with a policy until it submits what is accepted.

    Args:
        policy: the agent.
        prompt: its task.
        tools: what it may call.
        form: what it submits, by a tool named and described as the form is (``form_tool``).
        accept: says what is wrong with a submission; empty: it is accepted.
        name: what it is about, for the policy's records; the draws depend on it.
        family: of the tasks that it works for.
        config: how long it may work.
        system: the system prompt.

    Raises:
        PolicyError: if the policy gives no reply, but for a context that overflows.
        CancelledPolicyError: if this thread's work was given up (``envgen.core.threads``).
    """
    talk = _Conversation(policy, tools, form, accept, config or AgentConfig())
    return talk.run(prompt, name, family, system)


@dataclass
class _Conversation(Generic[T]):
    policy: Policy
    tools: Sequence[AgentTool]
    form: type[T]
    accept: Callable[[T], str]
    config: AgentConfig
    answer: T | None = None
    submissions: int = 0
    fault: str = ""
    usage: Usage = field(default_factory=Usage)

    def run(self, prompt: str, name: str, family: str, system: str) -> AgentRun[T]:
        config = self.config
        seed = derive(config.seed, "agent", name)
        key = f"{family}-{seed & 0xFFFFFFFFFFFF:012x}"
        task = PublicTask(id=key, environment_id=key, family=family, prompt=prompt)
        messages = [Message(role="system", content=system)] if system else []
        messages.append(Message(role="user", content=prompt))
        wire = [*(one.wire for one in self.tools), form_tool(self.form)]
        context = ContextManager(config.context, self.policy, task, seed)
        ended: Ending = "turns"
        used = turns = idle = 0
        before = ""
        while turns < config.turns:
            turns += 1
            try:
                seen = context.manage(messages, used, config.sampling, cancel=over())
                reply = self.policy.respond(
                    seen, wire, config.sampling, cancel=over(), seed=seed, task=task
                )
            except ContextOverflowError:
                ended = "context"
                break
            self.usage += reply.usage
            used = _tokens(reply.usage)
            message = heard(reply)
            answers = self._answered(message)
            used += estimated_tokens(answers[1:])
            messages += answers
            said = _calls(message)
            idle = idle + 1 if not said or said == before else 0
            before = said
            if self.answer is not None:
                ended = "submitted"
            elif self.submissions >= config.submissions:
                ended = "submissions"
            elif idle >= config.idle:
                ended = "repeats" if said else "silent"
            elif config.tokens and _tokens(self.usage) >= config.tokens:
                ended = "tokens"
            else:
                continue
            break
        return AgentRun(
            self.answer,
            ended,
            turns,
            self.submissions,
            self.usage + context.usage,
            self.fault,
            tuple(messages),
        )

    def _answered(self, message: Message) -> list[Message]:
        """The reply and the answers to its calls."""
        calls = [call for call in message.tool_calls if call.arguments is not None]
        kept = message.model_copy(update={"tool_calls": tuple(calls)})
        if calls:
            return [kept, *(self._answer(call) for call in calls)]
        names = ", ".join([*(one.name for one in self.tools), _form_name(self.form)])
        what = "The arguments of a call must be a JSON object. " if message.tool_calls else ""
        return [kept, Message(role="user", content=f"{what}Call one of: {names}.")]

    def _answer(self, call: ToolCall) -> Message:
        arguments = dict(call.arguments or {})
        tool = next((one for one in self.tools if one.name == call.name), None)
        if tool is not None:
            schema = Validator({"type": "object", **tool.parameters})
            text = argument_fault(schema, arguments) or tool.run(arguments)
        elif call.name == _form_name(self.form):
            text = self._submit(arguments)
        else:
            text = f"there is no tool {call.name[:80]!r}"
        if tool is None or not tool.whole:
            text = cut(text, self.config.output_chars)
        return Message(role="tool", content=text, tool_call_id=call.id)

    def _submit(self, arguments: dict[str, Any]) -> str:
        if self.answer is not None or self.submissions >= self.config.submissions:
            return "nothing more is taken"
        self.submissions += 1
        try:
            answer = self.form.model_validate(arguments)
        except ValidationError as error:
            self.fault = fault(error)
        else:
            self.fault = self.accept(answer)
            if not self.fault:
                self.answer = answer
        return f"not accepted: {self.fault}" if self.fault else "accepted"


def _tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def cut(text: str, most: int) -> str:
    """A text without its middle, if it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[... left out ...]\n{text[-(most // 2) :]}"


def _calls(message: Message) -> str:
    """The calls of a reply, to compare; empty: there are none."""
    return json.dumps([[one.name, one.arguments] for one in message.tool_calls]) * bool(
        message.tool_calls
    )


def _form_name(form: type[BaseModel]) -> str:
    return str(form_tool(form)["function"]["name"])
