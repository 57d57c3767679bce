"""``random-valid``: answers drawn uniformly from a task's answer space, found through tools alone.

It tests density, environment and verifier together: its success rate must agree with the density that
was computed from the tables. Workflows (``x-walk``) are random walks over the write tools.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.core.types import PublicTask, ToolSpec
from envgen.policies.answers import (
    AnswerLeaf,
    draw_subset,
    filled,
    options,
    template,
    waves,
    where_of,
)
from envgen.policies.programs import Call, Program, ProgramPolicy, gather
from envgen.policies.search_reader import guess, searches
from envgen.policies.sources import Reader, Where, parameters

_FREE = tuple(str(number) for number in range(101))
"""Guesses at a text that can be anything: what problems ask for is most often a small number."""


class RandomValidPolicy(ProgramPolicy):
    """Draws each leaf uniformly from its domain, later leaves conditioned on earlier ones."""

    name = "random-valid"

    def answer(self, task: PublicTask, rng: random.Random) -> Program[JsonValue]:
        """List every leaf's domain through tools, draw, and return the submission."""
        if task.submit_schema is None:
            raise PolicyError(f"task {task.id!r} has no submit schema to draw answers from")
        if searches(task):
            return (yield from guess(task, rng))
        reader = Reader(task)
        walk = task.submit_schema.get("x-walk")
        if isinstance(walk, int):
            yield from _walk(task, reader, rng, walk)
        return (
            yield from chosen_answer(
                task.submit_schema, reader, lambda leaf, domain: _draw(leaf, domain, rng)
            )
        )


def chosen_answer(
    schema: Mapping[str, Any],
    reader: Reader,
    choose: Callable[[AnswerLeaf, Sequence[JsonValue]], JsonValue],
) -> Program[JsonValue]:
    """A submission that fits ``schema``: ``choose`` fills each leaf from what tools list for it.

    A leaf's domain is that which earlier leaves leave it (``x-where``).

    Raises:
        PolicyError: if no tool tells what a leaf may be.
    """
    blank, leaves = template(schema)
    values: dict[str, JsonValue] = {}
    for wave in waves(leaves):
        partial = filled(blank, values)
        domains = yield from gather(
            [_domain(reader, leaf, where_of(leaf, leaves, partial)) for leaf in wave]
        )
        for leaf, domain in zip(wave, domains, strict=True):
            values[leaf.pointer] = choose(leaf, domain)
    return filled(blank, values)


def _domain(reader: Reader, leaf: AnswerLeaf, where: Where) -> Program[Sequence[JsonValue]]:
    values = options(leaf.element)
    if values is not None:
        return values
    if leaf.source is None and leaf.element.get("type") == "string":
        return _FREE  # no tool tells what it may be
    if leaf.source is None:
        raise PolicyError(f"leaf {leaf.pointer!r} has neither a source nor a range")
    return (yield from reader.values(leaf.source, where))


def _draw(leaf: AnswerLeaf, domain: Sequence[JsonValue], rng: random.Random) -> JsonValue:
    if leaf.is_set:
        return draw_subset(leaf, domain, rng)
    return rng.choice(domain) if domain else None


def _walk(
    task: PublicTask, reader: Reader, rng: random.Random, max_calls: int
) -> Program[list[JsonValue]]:
    """Make m write calls, m uniform in 0..max_calls, each uniform over tools and then arguments."""
    writes = [tool for tool in task.tools if tool.mutates]
    num_calls = rng.randint(0, max_calls)
    plan = [rng.choice(writes) for _ in range(num_calls if writes else 0)]
    needed = {tool.name: tool for tool in plan}
    domains = yield from gather([_arguments(reader, tool) for tool in needed.values()])
    by_tool = dict(zip(needed, domains, strict=True))
    calls = [
        Call(tool.name, {name: rng.choice(values) for name, values in by_tool[tool.name].items()})
        for tool in plan
    ]
    return (yield calls) if calls else []


def _arguments(reader: Reader, tool: ToolSpec) -> Program[dict[str, Sequence[JsonValue]]]:
    needed = parameters(tool)
    domains = yield from gather([_argument(reader, tool, name, needed[name]) for name in needed])
    return dict(zip(needed, domains, strict=True))


def _argument(
    reader: Reader, tool: ToolSpec, name: str, schema: Mapping[str, Any]
) -> Program[Sequence[JsonValue]]:
    values = options(schema)
    if values is None and "x-source" in schema:
        rows = yield from reader.rows(schema["x-source"])
        values = [row.value for row in rows]
    if not values:
        raise PolicyError(f"no values are known for argument {name!r} of {tool.name!r}")
    return values
