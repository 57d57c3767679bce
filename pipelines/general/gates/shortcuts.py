"""The gate against shortcuts: over re-seeded rows, no short program's output is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice, product
from math import comb
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import EnvError, PolicyError
from envgen.core.types import GateResult, PublicTask, ToolSpec
from envgen.pipelines.general.gates.trial import (
    Case,
    Trial,
    not_applicable,
    outcome,
    trial_children,
)
from envgen.pipelines.general.semantics.layout import fill_layout
from envgen.policies.answers import AnswerLeaf
from envgen.policies.programs import Program as Generator
from envgen.policies.random_valid import chosen_answer
from envgen.policies.sources import Reader
from envgen.sandboxes.tools import ToolSession

RESEEDS = 12
MAX_PROGRAMS = 48


class Program(NamedTuple):
    """The answer of a short program, and the number of rows out of which it took it."""

    text: str
    selector: str
    answer: JsonValue
    rows: int


def shortcuts(trial: Trial) -> GateResult:
    """Over re-seeds, no short program's output is the answer more often than chance.

    For answers of one value, one- or two-call programs whose arguments are taken from the prompt or the
    first call's output: the whole output and its only value, its first or last row. For answers of several,
    each part's first (or last) value as tools list them. None may be right more often than a draw from all
    answers, a row no more often than 1/rows, by a binomial test at 0.001, and once is luck. Listing,
    comparing and submitting is what level 1 is about, and is not such a program.
    """
    if trial.writes:
        return not_applicable("shortcuts", "only for tasks that ask for an answer")
    children = trial_children(trial, RESEEDS)
    if not children:
        return not_applicable("shortcuts", "the author can't re-seed this task")
    trials = (trial, *children)
    tried: dict[tuple[str, str], list[_Try]] = {}
    for one in trials:
        for key, result in _tried(one).items():
            tried.setdefault(key, []).append(result)
    found = []
    for (text, selector), results in tried.items():
        hits = sum(result.right for result in results)
        chance = sum(result.chance for result in results) / len(results)
        if selector.startswith(("whole", "only", "each")):
            chance = _one_of_all(trials[0])
        if hits >= 2 and _at_least(hits, len(results), min(1.0, chance)) < 0.001:
            found.append(f"{selector} of {text} ({hits}/{len(results)})")
    return outcome(
        "shortcuts",
        not found,
        len(tried),
        reason=f"right too often: {'; '.join(sorted(found)[:3])}",
        databases=len(trials),
    )


class _Try(NamedTuple):
    """One program on one database, with all arguments that were tried."""

    chance: float
    """The chance that a row drawn instead is right."""
    right: bool


def _tried(trial: Trial) -> dict[tuple[str, str], _Try]:
    """Try each program; results by its text and selector."""
    candidates = _programs(trial) if len(trial.problem.slots) == 1 else _by_parts(trial)
    programs = list({dumps([p.text, p.selector, p.answer]): p for p in candidates}.values())
    scores = trial.judge([Case(program.answer) for program in programs])
    found: dict[tuple[str, str], _Try] = {}
    for program, score in zip(programs, scores, strict=True):
        key = (program.text, program.selector)
        before = found.get(key, _Try(0.0, False))
        chance = min(1.0, before.chance + 1.0 / max(1, program.rows))
        found[key] = _Try(chance, before.right or score.passed)
    return found


def _at_least(k: int, n: int, rate: float) -> float:
    """The chance of ``k`` or more hits in ``n`` draws: the upper tail of a binomial distribution."""
    return sum(comb(n, i) * rate**i * (1.0 - rate) ** (n - i) for i in range(k, n + 1))


def _one_of_all(trial: Trial) -> float:
    """The chance that one of all answers, drawn at random, is right."""
    known = trial.density.value
    return min(0.5, known) if known > 0 else 0.5


def _programs(trial: Trial) -> Iterator[Program]:
    """Programs over one trial; a program's text names tools only, so it can be compared over re-seeds."""
    layout = trial.problem.layout
    name = trial.problem.slots[0].name
    with closing(trial.session()) as session:
        for text, output in islice(_outputs(trial, session), MAX_PROGRAMS):
            for selector, value, rows in _selections(output):
                yield Program(text, selector, fill_layout(layout, {name: value}), rows)


def _by_parts(trial: Trial) -> Iterator[Program]:
    """Every part filled with its first value that no other part has, or its last, as tools list them."""
    draft = trial.draft
    task = PublicTask(
        id=draft.task_id,
        environment_id=draft.environment_id,
        family="general",
        prompt=draft.prompt,
        submit_schema=draft.submit_schema,
        tools=draft.tools,
    )
    for selector, backwards in (("first", False), ("last", True)):
        with closing(trial.session()) as session:
            choose = _End(backwards)
            answer = _played(chosen_answer(draft.submit_schema, Reader(task), choose), session)
        yield Program("the tools", f"each part's {selector} value", answer, 1)


class _End:
    """Chooses the first of a part's values that no other part has; of a set, as few as may be."""

    def __init__(self, backwards: bool) -> None:
        self._backwards = backwards
        self._taken: set[tuple[str | None, str]] = set()

    def __call__(self, leaf: AnswerLeaf, domain: Sequence[JsonValue]) -> JsonValue:
        values = list(reversed(domain)) if self._backwards else list(domain)
        fresh = [v for v in values if (leaf.source, dumps(v)) not in self._taken] or values
        chosen = fresh[: max(1, leaf.schema.get("minItems", 1)) if leaf.is_set else 1]
        self._taken |= {(leaf.source, dumps(value)) for value in chosen}
        if leaf.is_set:
            return chosen
        return chosen[0] if chosen else None


def _played(program: Generator[JsonValue], session: ToolSession) -> JsonValue:
    """Run a program whose calls a session answers; its result."""
    results: list[JsonValue] | None = None
    try:
        while True:
            calls = next(program) if results is None else program.send(results)
            replies = [session.call(call.name, call.arguments) for call in calls]
            results = [
                r.value if r.error is None else {"error": r.error, "message": r.message}
                for r in replies
            ]
    except StopIteration as stop:
        answer: JsonValue = stop.value
        return answer
    except PolicyError as error:
        raise EnvError(f"the tools don't tell what an answer may hold: {error}") from error


def _outputs(trial: Trial, session: ToolSession) -> Iterator[tuple[str, JsonValue]]:
    """(program, output) for all one-call programs, then two-call programs fed by them."""
    first = []
    for tool in trial.draft.tools:
        for output in _called(session, tool, _literals(trial)):
            first.append((tool.name, output))
            yield tool.name, output
    for (outer, output), tool in product(first[:8], trial.draft.tools):
        rows = _rows(output)
        for position, row in (("first", rows[:1]), ("last", rows[-1:])):
            values = [value for item in row for _, value in _fields(item)]
            for second in _called(session, tool, values):
                yield f"{tool.name}({position} of {outer})", second


def _called(session: ToolSession, tool: ToolSpec, values: list[JsonValue]) -> Iterator[JsonValue]:
    """Yield a tool's replies to arguments out of ``values``, but for documented errors and null."""
    replies = (session.call(tool.name, arguments) for arguments in _arguments(tool, values))
    yield from (reply.value for reply in replies if reply.error is None and reply.value is not None)


def _literals(trial: Trial) -> list[JsonValue]:
    """Row keys and parameters that stand in the prompt."""
    prompt = trial.draft.prompt
    keys = [key for rows in trial.draft.tables.values() for key in rows if key in prompt]
    return [*keys[:12], *[v for v in trial.problem.params.values() if isinstance(v, int | str)]]


def _arguments(tool: ToolSpec, values: list[JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Argument sets for ``tool`` with every argument taken from ``values`` (or all columns of a list)."""
    if tool.mutates:
        return
    properties: Any = tool.parameters.get("properties", {})
    choices = [_fitting(schema, values) for schema in properties.values()]
    for combination in islice(product(*choices), 12):
        yield dict(zip(properties, combination, strict=True))


def _fitting(schema: Any, values: list[JsonValue]) -> list[JsonValue]:
    if schema.get("type") == "array":
        return [schema["items"]["enum"]]
    kind = int if schema.get("type") == "integer" else str
    return [value for value in values if type(value) is kind]


def _rows(output: JsonValue) -> list[JsonValue]:
    if isinstance(output, dict) and isinstance(output.get("items"), list):
        output = output["items"]
    return output if isinstance(output, list) else [output]


def _selections(output: JsonValue) -> Iterator[tuple[str, JsonValue, int]]:
    rows = _rows(output)
    yield "whole", output, len(rows)
    ends = {"only": 0} if len(rows) == 1 else {"first": 0, "last": -1}
    for selector, at in ends.items() if rows else ():
        for name, value in _fields(rows[at]):
            yield f"{selector}{name}", value, len(rows)


def _fields(row: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """(field name, value) of a row; a bare value has no name."""
    if isinstance(row, dict):
        yield from ((f" {k}", v) for k, v in row.items() if not isinstance(v, dict | list))
    elif not isinstance(row, list):
        yield "", row
