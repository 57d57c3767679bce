"""Make a policy from what a user writes: ``random``, ``openai:MODEL@URL``, ``replay:PATH``, ..."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from envgen.core.errors import ConfigError
from envgen.core.limits import Json, Label, Line
from envgen.core.types import Record
from envgen.policies.base import Policy
from envgen.policies.budget import Budget, Price

OFFLINE = ("random", "random-valid", "greedy", "bm25-reader")
KINDS = (*OFFLINE, "dsa", "openai", "batch", "vllm", "sglang", "replay", "record", "scripted")


class PolicyConfig(Record):
    """A policy that can be made in any process."""

    spec: Line
    """random, random-valid, greedy, bm25-reader, gold, noisy-gold:P, hasty:P, replay:PATH,
    record:PATH:POLICY, scripted:PATH, dsa:FOLDER, openai:MODEL@URL, vllm:MODEL@URL, sglang:MODEL@URL or
    batch:MODEL@DIR, which writes requests to files and waits for files of answers."""
    options: dict[Label, Json] = Field(default_factory=dict)
    """Settings of the model's client, such as api_key_env=NAME, tool_mode=text, max_new_tokens=512."""


def parse_policy(config: PolicyConfig | str, *, budget: Budget | None = None) -> Policy:
    """Make the policy that ``config`` names.

    Raises:
        ConfigError: for an unknown kind or a malformed spec.
    """
    if isinstance(config, str):
        config = PolicyConfig(spec=config)
    kind, _, rest = config.spec.partition(":")
    if kind in (*OFFLINE, "replay", "scripted"):
        refuse_options(config)
    if kind in OFFLINE:
        return _offline(kind)
    if kind in ("openai", "vllm", "sglang"):
        return _model(kind, rest, config, budget)
    if kind == "batch":
        return _batch(rest, config, budget)
    if kind == "dsa":
        return _local(rest, config)
    if kind in ("replay", "scripted") and rest:
        return _from_file(kind, Path(rest))
    if kind == "record" and ":" in rest:
        from envgen.policies.replay import RecordPolicy

        path, _, inner = rest.partition(":")
        inner_policy = parse_policy(config.model_copy(update={"spec": inner}), budget=budget)
        return RecordPolicy(inner_policy, Path(path))
    raise unknown_policy(config.spec)


def refuse_options(config: PolicyConfig) -> None:
    """Refuse settings of a policy that has none.

    Raises:
        ConfigError: if there are any.
    """
    if config.options:
        raise ConfigError(
            f"policy {config.spec!r} has no option {next(iter(config.options))!r}",
            "it has none; models have: openai:, vllm:, sglang: and dsa:",
        )


def unknown_policy(spec: str) -> ConfigError:
    """Make the error for a policy that does not exist, or lacks a part."""
    near = difflib.get_close_matches(spec.partition(":")[0], ("gold", "noisy-gold:P", *KINDS), 1)
    return ConfigError(
        f"unknown policy {spec!r}",
        f"did you mean {near[0]!r}?" if near else f"one of gold, noisy-gold:P, {', '.join(KINDS)}",
    )


def _offline(kind: str) -> Policy:
    from envgen.policies.greedy import GreedyPolicy
    from envgen.policies.random_policy import RandomPolicy
    from envgen.policies.random_valid import RandomValidPolicy
    from envgen.policies.search_reader import BM25ReaderPolicy

    policies: dict[str, Policy] = {
        "random": RandomPolicy(),
        "random-valid": RandomValidPolicy(),
        "greedy": GreedyPolicy(),
        "bm25-reader": BM25ReaderPolicy(),
    }
    return policies[kind]


def _from_file(kind: str, path: Path) -> Policy:
    from envgen.policies.replay import ReplayPolicy
    from envgen.policies.scripted import ScriptedPolicy

    return ReplayPolicy(path) if kind == "replay" else ScriptedPolicy.load(path)


def _local(folder: str, config: PolicyConfig) -> Policy:
    from envgen.policies.dsa import DSAPolicy, DSAPolicyConfig

    if not folder:
        raise ConfigError(f"policy {config.spec!r} is missing a model folder", "write dsa:FOLDER")
    fields: dict[str, Any] = {**config.options, "model": folder}
    try:
        settings = DSAPolicyConfig(**fields)
    except ValidationError as error:
        raise _refused(error, DSAPolicyConfig) from error
    return DSAPolicy(settings)


def _model(kind: str, rest: str, config: PolicyConfig, budget: Budget | None) -> Policy:
    from envgen.policies.openai import OpenAIPolicy
    from envgen.policies.tokens_http import TokenConfig, TokenPolicy
    from envgen.policies.wire import OpenAIConfig

    model, at, url = rest.rpartition("@") if "@" in rest else (rest, "", "")
    if not model or (kind != "openai" and not url):
        raise ConfigError(
            f"policy {config.spec!r} is missing a model or a server", f"write {kind}:MODEL@URL"
        )
    fields: dict[str, Any] = {**config.options, "model": model}
    if at:
        fields["base_url"] = url
    try:
        if kind == "openai":
            return OpenAIPolicy(OpenAIConfig(**fields), budget=budget)
        return TokenPolicy(TokenConfig(engine=kind, **fields), budget=budget)
    except ValidationError as error:
        raise _refused(error, OpenAIConfig if kind == "openai" else TokenConfig) from error


def _batch(rest: str, config: PolicyConfig, budget: Budget | None) -> Policy:
    from envgen.policies.batch import REPLIES, BatchConfig, BatchPolicy
    from envgen.policies.replay import RecordPolicy

    model, _, folder = rest.partition("@")
    if not (model and folder):
        raise ConfigError(f"policy {config.spec!r} is missing a part", "write batch:MODEL@DIR")
    fields: dict[str, Any] = {**config.options, "model": model}
    try:
        settings = BatchConfig(**fields)
    except ValidationError as error:
        raise _refused(error, BatchConfig) from error
    return RecordPolicy(BatchPolicy(settings, Path(folder), budget=budget), Path(folder, REPLIES))


def _refused(error: ValidationError, config: type[Record]) -> ConfigError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return ConfigError(f"policy option {where!r}: {first['msg']}")
    known = Price.model_fields if first["loc"][:-1] == ("price",) else config.model_fields
    near = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return ConfigError(f"unknown policy option {where!r}", hint)
