"""Send a model server one small request before a run, so that a fault is reported once and within seconds."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import httpcore

from envgen.core.environ import secret
from envgen.core.errors import ConfigError, PolicyError
from envgen.core.registry import near_names
from envgen.core.types import Message, PublicTask, Sampling
from envgen.policies.base import ContextOverflowError, Policy, Tool
from envgen.policies.budget import Budget
from envgen.policies.http import Http
from envgen.policies.wire import OpenAIConfig

logger = logging.getLogger(__name__)

QUESTION = (
    "Call the tool `ready` with the word yes. If you have no tools, answer with the word ready."
)
READY: Tool = {
    "type": "function",
    "function": {
        "name": "ready",
        "description": "Say that you are ready.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}
SKIP = "--no-preflight goes on without asking"
_TASK = PublicTask(id="preflight", environment_id="preflight", family="preflight", prompt=QUESTION)
_MAX_TOKENS = 256
"""Of the reply, where the run sets no limit; a reasoning model thinks before it says a word."""
_RETRIES = 1
_SILENCE_S = 120.0
"""A server that loads its model first needs a while; one that says nothing for so long is told of."""
_MODELS_S = 10.0
_SHOWN = 12


def preflight(policy: Policy, sampling: Sampling, *, tools: bool = True) -> None:
    """Have a policy that uses a model server send it one request; other policies need no check.

    Args:
        policy: the one that will play.
        sampling: the settings of the run; a server that refuses them does so now.
        tools: whether the run will offer it any.

    Raises:
        ConfigError: if the server can't be used, with what is wrong and what to do.
        BudgetExceededError: if nothing may be spent.
    """
    ask = getattr(policy, "preflight", None)
    if ask is not None:
        ask(sampling, tools=tools)


def ask_server(
    policy: Policy, config: OpenAIConfig, budget: Budget, sampling: Sampling, *, tools: bool
) -> None:
    """Ask for one reply, charge it to the budget, and report what is wrong.

    Args:
        policy: the one to ask; it gives up sooner than it does in a run (``hasty``).
        config: of the run's policy.
        budget: of the run.
        sampling: of the run.
        tools: whether the request contains a tool.

    Raises:
        ConfigError: if there is no reply.
    """
    budget.check()
    own = type(config).model_fields["base_url"].default
    if config.base_url == own and not secret(config.api_key_env):
        raise ConfigError(*_key_told(config, f"{own} requires an API key"))
    limited = sampling.model_copy(update={"max_tokens": sampling.max_tokens or _MAX_TOKENS})
    question = Message(role="user", content=QUESTION)
    try:
        reply = policy.respond((question,), (READY,) if tools else (), limited, seed=0, task=_TASK)
    except PolicyError as error:
        raise _diagnosis(error, config, limited) from error
    budget.charge(reply.usage)
    if tools and not reply.message.tool_calls:
        logger.warning(
            "%s called no tool when it was asked to; if the server has no tool calls, use "
            "--option tool_mode=text",
            config.model,
        )


def hasty(config: OpenAIConfig) -> dict[str, Any]:
    """Settings that make a preflight give up sooner than a run would."""
    return {
        "max_retries": min(config.max_retries, _RETRIES),
        "timeout_s": min(config.timeout_s, _SILENCE_S),
    }


def _diagnosis(error: PolicyError, config: OpenAIConfig, sampling: Sampling) -> ConfigError:
    """Advice for a user whose server gave no reply."""
    causes = tuple(_causes(error))
    if error.status in (401, 403):
        return ConfigError(*_key_told(config, str(error)))
    if any(isinstance(x, httpcore.ConnectError | httpcore.ConnectTimeout) for x in causes):
        return ConfigError(
            f"nothing answers at {config.base_url}: {causes[-1]}",
            "start the server, or check host, port and http(s) of the URL",
        )
    if any(isinstance(x, httpcore.ReadTimeout) for x in causes):
        return ConfigError(
            f"{config.base_url} took a request and said nothing for {hasty(config)['timeout_s']:g} s",
            f"look at the server; if it is only slow, {SKIP}",
        )
    if isinstance(error, ContextOverflowError):
        return ConfigError(
            f"a small request with max_tokens {sampling.max_tokens} does not fit the model: {error}",
            "lower --max-tokens, or serve the model with a larger window",
        )
    found = _wrong_place(error, config)
    if found is not None:
        return found
    if config.tool_mode != "text" and re.search(r"\btools?\b|tool[_ -]choice", str(error)):
        return ConfigError(
            f"the server takes no tool calls: {error}",
            "--option tool_mode=text writes them as text; or start the server with tool calls "
            "(vLLM: --enable-auto-tool-choice --tool-call-parser NAME)",
        )
    hint = f"look at the server's words; settings are --option NAME=VALUE; {SKIP}"
    return ConfigError(f"no reply to a small request: {error}", hint)


def _wrong_place(error: PolicyError, config: OpenAIConfig) -> ConfigError | None:
    """Advice for a model that the server lacks, or a URL that is not the API's."""
    http = Http(config.model_copy(update=hasty(config)), secret(config.api_key_env))
    try:
        models = _models(http, "models")
        there = _models(http, "v1/models") if models is None else None
    finally:
        http.close()
    if models and config.model not in models and (error.status == 404 or "model" in str(error)):
        shown = ", ".join(models[:_SHOWN]) + (", ..." if len(models) > _SHOWN else "")
        hint = near_names(config.model, models).partition("; did")
        near = hint[1] + hint[2]
        return ConfigError(
            f"the server at {config.base_url} has no model {config.model!r}{near}",
            f"it has {shown}",
        )
    if models is None and there is not None:
        moved = f"{config.base_url.rstrip('/')}/v1"
        return ConfigError(
            f"the API is at {moved}, not at {config.base_url}", f"write MODEL@{moved}"
        )
    if models is None and error.status in (404, 405, 501):
        return ConfigError(
            f"no model server's API at {config.base_url}, or no model {config.model!r}: {error}",
            "check the URL, which usually ends in /v1, and the model's name",
        )
    if error.status == 404:
        return ConfigError(
            f"the server has the model, but not this way to ask for it: {error}",
            "openai:MODEL@URL works with every server",
        )
    return None


def _models(http: Http, path: str) -> list[str] | None:
    """Names of the server's models; None where it does not list them."""
    found = (http.get(path, within_s=_MODELS_S) or {}).get("data")
    if not isinstance(found, list):
        return None
    return sorted(str(one["id"]) for one in found if isinstance(one, dict) and "id" in one)


def _key_told(config: OpenAIConfig, error: str) -> tuple[str, str]:
    name = config.api_key_env
    other = "or name another with --option api_key_env=NAME"
    if name is None:
        return f"{error}; no key was named", "--option api_key_env=NAME names its variable"
    if secret(name):
        return f"{error}; the key is that of environment variable {name!r}", f"check it, {other}"
    return f"{error}; environment variable {name!r} is not set", f"export {name}=..., {other}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
