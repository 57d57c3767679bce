"""envgen's tasks for TRL's GRPOTrainer: a dataset, and an environment for each of its tool lists.

``GRPOTrainer(model=..., **load("ds/")._asdict())``. TRL makes the calls of a turn one by one
and counts the turns itself (``max_tool_calling_iterations``); it reads a tool from a method's signature and
docstring, so that those are made here of the tool's JSON Schema.
"""

from __future__ import annotations

import inspect
import keyword
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import islice
from operator import or_
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from envgen.core.errors import ConfigError, EnvError, EnvgenError, MissingExtraError
from envgen.core.types import ToolSpec
from envgen.integrations.sessions import Episodes
from envgen.integrations.settings import EpisodesConfig
from envgen.store.dataset import Dataset

logger = logging.getLogger(__name__)

TAKEN = frozenset({"reset", "get_reward", "self"})
"""Names that TRL's environments have for themselves."""
OVER = "the episode is over: nothing more can be done"
_SCALARS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}


class Loaded(NamedTuple):
    """What ``GRPOTrainer`` takes."""

    train_dataset: Any
    """A ``datasets.Dataset`` of prompt, environment, task_id."""
    environment_factory: dict[str, Callable[[], TrlEnvironment]]
    """Of each envgen environment, by its id."""
    reward_funcs: Callable[..., list[float | None]]
    """``score``."""


class TrlEnvironment:
    """Episodes of one list of tools; subclasses have a method for each of them."""

    def __init__(self, episodes: Episodes) -> None:
        self._session = episodes.session()
        self._broken = False

    def reset(self, *, task_id: str, **_: Any) -> None:
        """Begin the episode of a row of the dataset, whose prompt says it all.

        Raises:
            ConfigError: if there is no such task.
            SandboxUnavailableError: if the dataset's code can't be isolated here.
        """
        self._broken = False
        try:
            self._session.reset(task_id)
        except EnvError as error:  # this one counts for nobody, and training goes on
            logger.warning("task %s: %s", task_id, error)
            self._broken = True

    def _score(self) -> float | None:
        return None if self._broken else self._session.outcome.reward

    def _call(self, name: str, arguments: dict[str, JsonValue]) -> str:
        if not self._session.running:
            return OVER
        try:
            return self._session.call(name, arguments).text
        except EnvgenError as error:
            self._broken = True
            return f"the environment broke: {error}"


def score(environments: Sequence[TrlEnvironment], **_: Any) -> list[float | None]:
    """TRL's reward function: the score of each episode, 0 if nothing was submitted.

    None, which TRL leaves out, where the environment broke. (Environments that own their reward have a column
    of figures for each of their classes, of which there is one for each list of tools.)
    """
    return [one._score() for one in environments]


def load(dataset: str | Path | Dataset, *, episodes: int | None = None, **chosen: Any) -> Loaded:
    """A dataset's tasks for ``GRPOTrainer(model=..., **load("ds/")._asdict())``.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        episodes: so many rows, tasks in an order that the seed draws, again and again; None: each once.
        chosen: ``split``, ``families``, ``min_level``, ... of ``EpisodesConfig``.

    Raises:
        ConfigError: if no task is left, a name is unknown, or a tool can't be a method.
        MissingExtraError: if the package ``datasets`` is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("TRL reads datasets", "pip install trl") from error
    found = Episodes(dataset, EpisodesConfig.model_validate(chosen))
    names = found.task_ids if episodes is None else islice(found.stream(), episodes)
    rows = [_row(found, name) for name in names]
    factories: dict[str, Callable[[], TrlEnvironment]] = {
        name: partial(environment_class(found, name, task_id), found)
        for name, task_id in {row["environment"]: row["task_id"] for row in rows}.items()
    }
    return Loaded(datasets.Dataset.from_list(rows), factories, score)


def _row(episodes: Episodes, task_id: str) -> dict[str, Any]:
    return {
        "prompt": episodes.messages(task_id),
        "environment": episodes.dataset.facts(task_id).environment_id,
        "task_id": task_id,
    }


def environment_class(
    episodes: Episodes, environment_id: str, task_id: str
) -> type[TrlEnvironment]:
    """The class whose methods are the tools of an environment.

    Args:
        episodes: what is played.
        environment_id: whose tools.
        task_id: a task of it.

    Raises:
        ConfigError: if it has no submit tool, or a tool's name can't be a method's.
    """
    toolbox = episodes.toolbox(task_id)
    if toolbox.submit is None:
        raise ConfigError(
            f"environment {environment_id!r} takes plain text for an answer, which TRL's never see",
            "leave its tasks out",
        )
    methods = {tool.name: method(tool) for tool in toolbox.specs}
    return type("EnvgenEnvironment", (TrlEnvironment,), methods)


def method(tool: ToolSpec) -> Callable[..., str]:
    """A method that TRL reads a tool from: annotations and a Google docstring made of its JSON Schema.

    Raises:
        ConfigError: if a name can't be a Python name.
    """
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}  # type: ignore[assignment]
    required: Sequence[str] = tool.parameters.get("required") or []  # type: ignore[assignment]
    for name in (tool.name, *properties):
        if not name.isidentifier() or keyword.iskeyword(name) or name in TAKEN or name[0] == "_":
            raise ConfigError(f"tool {tool.name!r}: TRL can't have the name {name!r}")

    def call(self: TrlEnvironment, **arguments: JsonValue) -> str:
        return self._call(tool.name, arguments)

    parameters, annotations = (
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)],
        {},
    )
    lines = [tool.description or tool.name, "", "Args:"]
    for name, schema in sorted(properties.items(), key=lambda one: one[0] not in required):
        kind = annotation(schema)
        default: Any = inspect.Parameter.empty
        if name not in required:
            kind, default = kind | None, None
        annotations[name] = kind
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
        )
        lines.append(f"    {name}: {_told(name, schema)}")
    signature = inspect.Signature(parameters, return_annotation=str)
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = "\n".join(lines if properties else lines[:1])
    call.__annotations__ = {**annotations, "return": str}
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def annotation(schema: Mapping[str, Any]) -> Any:
    """The Python type of a JSON Schema, as far as annotations can say it."""
    options = schema.get("enum")
    if options and all(isinstance(one, str | int) for one in options):
        return Literal[tuple(options)]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return reduce(or_, (annotation(one) for one in several))
    kind = schema.get("type")
    if isinstance(kind, list):
        return reduce(or_, (_SCALARS.get(one, Any) for one in kind))
    if kind == "array":
        return list[annotation(schema.get("items") or {})]  # type: ignore[misc]
    if kind == "object":
        return dict[str, Any]
    return _SCALARS.get(str(kind), Any)


def _told(name: str, schema: Mapping[str, Any]) -> str:
    """A description on one line, with the bounds that an annotation can't say."""
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"), ("pattern", "matches"))
        if key in schema
    ]
    text = re.sub(r"\s+", " ", str(schema.get("description") or name.replace("_", " ")))
    return f"{text} ({', '.join(bounds)})" if bounds else text
