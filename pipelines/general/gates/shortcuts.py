"""The gate against shortcuts: over re-seeded rows, no short program's output is the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice, product
from math import comb
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import EnvError, PolicyError
from envgen.core.types import GateResult, PublicTask, ToolSpec
from envgen.pipelines.general.gates.execution import trial_children
from envgen.pipelines.general.gates.trial import Case, Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.layout import fill_layout
from envgen.policies.answers import AnswerLeaf
from envgen.policies.programs import Call
from envgen.policies.programs import Program as Generator
from envgen.policies.random_valid import chosen_answer
from envgen.policies.sources import Reader
from envgen.sandboxes.tools import ToolSession

RESEEDS = 12
MAX_PROGRAMS = 48


class Program(NamedTuple):
    """What a short program would submit, and out of how many rows it took it."""

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
    trials = [trial, *children]
    hits: Counter[tuple[str, str]] = Counter()
    chance: dict[tuple[str, str], list[float]] = {}
    for one in trials:
        made = _programs(one) if len(trial.problem.slots) == 1 else _by_parts(one)
        programs = list({dumps([p.text, p.selector, p.answer]): p for p in made}.values())
        scores = one.judge([Case(program.answer) for program in programs])
        here: dict[tuple[str, str], float] = {}
        right: set[tuple[str, str]] = set()
        for program, score in zip(programs, scores, strict=True):
            key = (program.text, program.selector)
            here[key] = min(1.0, here.get(key, 0.0) + 1.0 / max(1, program.rows))
            if score.passed:
                right.add(key)
        for key, rate in here.items():  # one trial per database, however many arguments were tried
            chance.setdefault(key, []).append(rate)
            hits[key] += key in right
    found = []
    for key, rates in chance.items():
        whole = key[1].startswith(("whole", "only", "each"))
        expected = 1.0 / _candidates(trial) if whole else sum(rates) / len(rates)
        if hits[key] >= 2 and _at_least(hits[key], len(rates), min(1.0, expected)) < 0.001:
            found.append(f"{key[1]} of {key[0]} ({hits[key]}/{len(rates)})")
    return outcome(
        "shortcuts",
        not found,
        len(chance),
        reason=f"right too often: {'; '.join(sorted(found)[:3])}",
        databases=len(trials),
    )


def _at_least(k: int, n: int, rate: float) -> float:
    """The chance of ``k`` or more hits in ``n`` draws: the upper tail of a binomial distribution."""
    return sum(comb(n, i) * rate**i * (1.0 - rate) ** (n - i) for i in range(k, n + 1))


def _candidates(trial: Trial) -> float:
    """How many answers there are to choose from."""
    known = trial.density.value
    return max(2.0, 1.0 / known) if known > 0 else 2.0


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
    """What a program returns when a session answers its calls."""
    results: list[JsonValue] | None = None
    try:
        while True:
            calls = next(program) if results is None else program.send(results)
            results = [_answered(session, call) for call in calls]
    except StopIteration as stop:
        answer: JsonValue = stop.value
        return answer
    except PolicyError as error:
        raise EnvError(f"the tools don't tell what an answer may hold: {error}") from error


def _answered(session: ToolSession, call: Call) -> JsonValue:
    reply = session.call(call.name, call.arguments)
    return reply.value if reply.error is None else {"error": reply.error, "message": reply.message}


def _outputs(trial: Trial, session: ToolSession) -> Iterator[tuple[str, JsonValue]]:
    """(program, output) for all one-call programs, then two-call programs fed by them."""
    literals = _literals(trial)
    first = []
    for tool in trial.draft.tools:
        for arguments in _arguments(tool, literals):
            output = _call(session, tool, arguments)
            if output is not None:
                first.append((tool.name, output))
                yield tool.name, output
    for (outer, output), tool in product(first[:8], trial.draft.tools):
        source = _rows(output)
        for position, row in (("first", source[:1]), ("last", source[-1:])):
            values = [v for item in row for v in _scalars(item)]
            for arguments in _arguments(tool, values):
                second = _call(session, tool, arguments)
                if second is not None:
                    yield f"{tool.name}({position} of {outer})", second


def _literals(trial: Trial) -> list[JsonValue]:
    """Row keys and parameters that stand in the prompt."""
    prompt = trial.draft.prompt
    keys = [key for rows in trial.draft.tables.values() for key in rows if key in prompt]
    return [*keys[:12], *[v for v in trial.problem.params.values() if isinstance(v, int | str)]]


def _arguments(tool: ToolSpec, values: list[JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Argument sets for ``tool`` with every argument taken from ``values`` (or all columns of a list)."""
    if tool.mutates:
        return
    properties = tool.parameters.get("properties", {})
    if not isinstance(properties, dict):
        return
    choices: list[list[JsonValue]] = []
    for schema in properties.values():
        kind = schema.get("type") if isinstance(schema, dict) else None
        items = schema.get("items") if isinstance(schema, dict) else None
        if kind == "array" and isinstance(items, dict) and isinstance(items.get("enum"), list):
            choices.append([items["enum"]])
        elif kind == "integer":
            choices.append([v for v in values if isinstance(v, int) and not isinstance(v, bool)])
        else:
            choices.append([v for v in values if isinstance(v, str)])
    for combination in islice(product(*choices), 12):
        yield dict(zip(properties, combination, strict=True))


def _call(session: ToolSession, tool: ToolSpec, arguments: dict[str, JsonValue]) -> JsonValue:
    """The output, or None for a documented error."""
    try:
        reply = session.call(tool.name, arguments)
    except EnvError as error:
        raise EnvError(f"tool {tool.name!r} broke on {arguments!r}: {error}") from error
    return None if reply.error is not None else reply.value


def _rows(output: JsonValue) -> list[JsonValue]:
    if isinstance(output, dict) and isinstance(output.get("items"), list):
        return list(output["items"])  # type: ignore[arg-type]  # checked to be a list
    return list(output) if isinstance(output, list) else [output]


def _scalars(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, dict):
        return [v for v in value.values() if not isinstance(v, dict | list)]
    return [] if isinstance(value, list) else [value]


def _selections(output: JsonValue) -> Iterator[tuple[str, JsonValue, int]]:
    rows = _rows(output)
    yield "whole", output, len(rows)
    if len(rows) == 1:
        for name, value in _fields(rows[0]):
            yield f"only{name}", value, 1
    elif rows:
        for selector, row in (("first", rows[0]), ("last", rows[-1])):
            for name, value in _fields(row):
                yield f"{selector}{name}", value, len(rows)


def _fields(row: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """(field name, value) of a row; a bare value has no name."""
    if isinstance(row, dict):
        yield from ((f" {k}", v) for k, v in row.items() if not isinstance(v, dict | list))
    elif not isinstance(row, list):
        yield "", row
