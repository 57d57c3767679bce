"""The gate ``unrequested`` without a constraint IR: gold, and one more call of every tool that writes.

What an argument may be is found by its values: where gold gave it a value that stands in a column, the others
of that column are of its kind, too; else a column or table of its name tells, else the keys of all tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, EnvError
from envgen.core.sampler import sample_schema
from envgen.core.types import CallRecord, GateResult, ToolSpec
from envgen.environments.runner import toolbox_of
from envgen.pipelines.general.gates.trial import Calls, Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.calls import Call
from envgen.sandboxes.tools import ToolSession
from envgen.sandboxes.verifier import VerifierInput
from envgen.store.sqlite_files import inspect, open_database, snapshot, tables_of

TRIES = 60
"""Calls of each tool that are tried, before gold's calls and again after them."""
MOST = 12
"""States that so many of them leave, of each tool and moment, are judged."""
_VALUES = 40
"""Values of a column that are drawn from."""


class ExtraWrite(NamedTuple):
    """The state that gold's calls and one more leave."""

    tool: str
    what: str
    """When which call came, in words."""
    final: Path


def unrequested(trial: Trial, states: Sequence[ExtraWrite], allowed: Sequence[str]) -> GateResult:
    """Gold's answer fails in every state that gold and one more write leave, but for tools that are allowed.

    Without a constraint IR nobody knows what may change: what the author does not allow may not.
    """
    writing = [spec.name for spec in trial.draft.tools if spec.mutates]
    if not writing:
        return not_applicable("unrequested", "no tool writes")
    if not states:
        reason = f"no call that was tried changed more than gold: {', '.join(writing)}"
        return not_applicable("unrequested", reason)
    inputs = [VerifierInput(trial.gold.answer, trial.database, one.final) for one in states]
    verdicts = trial.verdicts(trial.draft.verifier, inputs)
    accepted = [one for one, broken in zip(states, verdicts, strict=True) if not broken]
    wrong = [one for one in accepted if one.tool not in allowed]
    first = {one.tool: one.what for one in reversed(wrong)}
    found = outcome(
        "unrequested",
        not wrong,
        len(states),
        figure=float(len(wrong)),
        reason=f"{len(wrong)} of {len(states)} states with one more write than gold pass, or break the "
        f"verifier: gold {'; gold '.join(sorted(first.values())[:5])}",
        allowed=list(allowed),
        unreached=[name for name in writing if name not in {one.tool for one in states}],
    )
    if wrong or not allowed:
        return found
    reason = (
        f"its author allows further calls of {', '.join(allowed)}; {len(accepted)} states pass so"
    )
    return found.model_copy(update={"reason": reason})


def extra_writes(trial: Trial, rand: Random) -> Iterator[ExtraWrite]:
    """States other than gold's that one more call of a tool leaves, after gold's calls and before them."""
    pools = ArgumentPools(trial.database, trial.gold.calls, rand)
    done = inspect(trial.final(trial.gold_plan)).content
    for spec in (one for one in trial.draft.tools if one.mutates):
        own = [args for name, args in trial.gold_plan if name == spec.name]
        calls = [(spec.name, arguments) for arguments in pools.calls(spec, own)]
        for before in (False, True) if trial.gold_plan else (False,):
            found = 0
            for call, final in _states(trial, calls, before):
                if inspect(final).content != done:
                    when = "before which came" if before else "after which came"
                    yield ExtraWrite(spec.name, f"{when} {call_text(call)}", final)
                    found += 1
                if found == MOST:
                    break


def _states(trial: Trial, calls: Sequence[Call], before: bool) -> Iterator[tuple[Call, Path]]:
    """The state after each call that its tool takes, with gold's calls; refused ones change nothing."""
    plan = () if before else trial.gold_plan
    session: ToolSession | None = None
    try:
        for number, (name, arguments) in enumerate(calls):
            if session is None:
                session = _after(trial, plan)
            try:
                if session.call(name, dict(arguments)).error is not None:
                    continue
                for one, given in trial.gold_plan if before else ():
                    session.call(one, dict(given))
            except EnvError:  # a tool that breaks is what the gate ``tools`` is for
                session.close()
                session = None
                continue
            path = trial.folder / f"extra-{name}-{before:d}-{number}.sqlite"
            session.snapshot(path)
            session.close()
            session = None
            yield (name, arguments), path
    finally:
        if session is not None:
            session.close()


def _after(trial: Trial, plan: Calls) -> ToolSession:
    session = trial.session()
    for name, arguments in plan:
        session.call(name, dict(arguments))
    return session


def call_text(call: Call) -> str:
    """A call as one reads it."""
    name, args = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"[:300]


class ArgumentPools:
    """What the arguments of tools may be, by the database and by what gold gave them.

    Args:
        database: the task's own.
        calls: gold's, those that read among them.
        rand: draws.
    """

    def __init__(self, database: Path, calls: Sequence[CallRecord], rand: Random) -> None:
        self._rand = rand
        self._given: dict[str, list[JsonValue]] = {}
        for call in calls:
            for name, value in call.arguments.items():
                self._given.setdefault(name, []).append(value)
        self._columns: dict[tuple[str, str], list[JsonValue]] = {}
        self._keys: list[tuple[str, str]] = []
        rows = snapshot(database).tables
        with open_database(database) as db:
            for table in tables_of(db):
                for i, column in enumerate(table.columns):
                    place = (table.name.lower(), column[0].lower())
                    self._columns[place] = _distinct(row[i] for row in rows[table.name])
                    if column[3] or i == 0:
                        self._keys.append(place)

    def calls(
        self, spec: ToolSpec, gold: Sequence[Mapping[str, JsonValue]]
    ) -> list[dict[str, JsonValue]]:
        """Distinct arguments of a tool: gold's own first, then those with one changed, then all drawn."""
        properties, required = spec.parameters.get("properties"), spec.parameters.get("required")
        schemas = properties if isinstance(properties, dict) else {}
        needed = set(required) if isinstance(required, list) else set()
        pools = {str(name): self.pool(str(name), schema) for name, schema in schemas.items()}
        found: dict[str, dict[str, JsonValue]] = {}
        for number in range(2 * TRIES):
            if number < len(gold):
                drawn = dict(gold[number])
            elif gold and pools and number % 2:
                name = self._rand.choice(sorted(pools))
                drawn = {**self._rand.choice(gold), name: self._rand.choice(pools[name])}
            else:
                drawn = {
                    name: self._rand.choice(pool)
                    for name, pool in pools.items()
                    if name in needed or self._rand.random() < 0.5
                }
            if toolbox_of((spec,)).fault(spec.name, drawn) is None:
                found.setdefault(dumps(drawn), drawn)
        return list(found.values())[:TRIES]

    def pool(self, name: str, schema: JsonValue) -> list[JsonValue]:
        """Values that an argument of this name and schema may take; never empty."""
        if not isinstance(schema, dict):
            return [*self._given.get(name, []), None]
        if isinstance(choices := schema.get("enum"), list) and choices:
            return choices
        if isinstance(branches := schema.get("anyOf", schema.get("oneOf")), list) and branches:
            return [value for branch in branches for value in self.pool(name, branch)]
        if schema.get("type") == "boolean":
            return [False, True]
        given = self._given.get(name, [])
        if schema.get("type") == "array":
            items = self.pool(name, schema.get("items", {}))
            return [*given, *([one] for one in items)]
        near: list[JsonValue] = [v + step for v in given if type(v) is int for step in (-1, 1)]
        return [
            *_distinct((*given, *near, *self._like(name, given, schema))),
            *self._random(schema),
        ]

    def _like(
        self, name: str, given: Sequence[JsonValue], schema: dict[str, JsonValue]
    ) -> Iterator[JsonValue]:
        """Values of the columns that hold what gold gave; else of those of the name; else of all keys."""
        flat = [one for value in given for one in (value if isinstance(value, list) else [value])]
        texts = [one for one in flat if isinstance(one, str)]
        held = [place for place, values in self._columns.items() if any(t in values for t in texts)]
        bare = name.lower().removesuffix("_id").removesuffix("s")
        called = [
            (table, column)
            for table, column in self._columns
            if column in (name.lower(), bare, f"{bare}_id")
            or ((table, column) in self._keys and table.removesuffix("s") == bare)
        ]
        for place in sorted({*held, *called}) or self._keys:
            values = self._columns[place]
            some = values if len(values) <= _VALUES else self._rand.sample(values, _VALUES)
            yield from (one for one in some if _fits(one, schema))

    def _random(self, schema: dict[str, JsonValue]) -> list[JsonValue]:
        try:
            return [sample_schema(schema, self._rand) for _ in range(2)]
        except ConfigError:
            return [None]


def _fits(value: JsonValue, schema: dict[str, JsonValue]) -> bool:
    kinds = {"string": str, "integer": int, "number": (int, float)}
    wanted = kinds.get(str(schema.get("type")), object)
    return isinstance(value, wanted)  # type: ignore[arg-type]  # a type, or two


def _distinct(values: Iterator[object] | Sequence[object]) -> list[JsonValue]:
    found: dict[str, JsonValue] = {}
    for value in values:
        if value is None or isinstance(value, str | int | float | list):
            found.setdefault(dumps(value), value)
    return list(found.values())
