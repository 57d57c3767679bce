"""Gates over re-seeded rows: gold solves them too, and no shortcut does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice, product
from math import comb
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import EnvError
from envgen.core.seeding import derive
from envgen.core.types import GateResult, ToolSpec
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.trial import Case, Trial, not_applicable, outcome
from envgen.pipelines.general.layout import fill_layout
from envgen.pipelines.general.solve import solve
from envgen.sandboxes.programs.params import same_program
from envgen.sandboxes.tools import ToolSession

RESEEDS = 3
SHORTCUT_RESEEDS = 12
MAX_PROGRAMS = 48


def reseeds(trial: Trial) -> GateResult:
    """On three re-seeded databases gold agrees with the independent solver, infeasible ones included."""
    children = trial_children(trial, RESEEDS)
    if children is None:
        return not_applicable("reseeds", "the author can't re-seed this task")
    if len(children) < RESEEDS:
        return outcome("reseeds", False, 1, reason="too few re-seeds could be re-bound")
    problems = [problem for child in children if (problem := disagreement(trial.draft, child))]
    infeasible = sum(child.gold.answer is None for child in children)
    return outcome(
        "reseeds",
        not problems,
        len(children),
        figure=1.0 - len(problems) / len(children),
        reason="; ".join(problems[:2]),
        infeasible=infeasible,
    )


def trial_children(trial: Trial, n: int) -> list[Trial] | None:
    """The first ``n`` re-seeds that can be re-bound (made once per trial); None without an author."""
    if trial.author is None or trial.draft.blueprint is None:
        return None
    for i in range(trial.reseeds_tried, 4 * n):
        if len(trial.children) >= n:
            break
        trial.reseeds_tried = i + 1
        draft = trial.author.reseed(trial.draft, derive(trial.seed, "reseed", i))
        if draft is not None:
            trial.children.append(trial.child(draft, f"reseed-{i}"))
    return trial.children[:n]


def disagreement(parent: Draft, child: Trial) -> str:
    """What is wrong with a re-seeded draft; "" when gold, verifier and solver agree."""
    draft = child.draft
    for name in ("solution", "verifier"):
        if not same_program(getattr(parent, name), getattr(draft, name)):
            return f"the {name} differs in more than PARAMS"
    if child.gold_result.fault is not None:
        return f"the solution fails on a re-seed: {child.gold_result.fault}"
    found = list(islice(solve(child.problem, draft.tables, child.rng("solve")), 1))
    if child.gold.answer is None or not found:
        return "" if child.gold.answer is None and not found else "feasible for one, not the other"
    score = child.judge([child.gold_case])[0]
    return "" if score.passed else f"gold fails on a re-seed: {', '.join(score.reasons)}"


class Program(NamedTuple):
    """A one- or two-call program: literal arguments from the prompt, or the first call's output."""

    text: str
    selector: str
    answer: JsonValue
    rows: int


def shortcuts(trial: Trial) -> GateResult:
    """Over re-seeds, no one- or two-call program's output is the answer more often than chance.

    Taken: the whole output and its only value (never right twice or more), its first or last row
    (right no more often than 1/rows: a binomial test at 0.001). Listing, comparing and submitting is
    what level 1 is about, and is not such a program.
    """
    if trial.draft.problem is None or trial.writes:
        return not_applicable("shortcuts", "only for tasks that ask for an answer")
    if len(trial.problem.slots) != 1:
        return not_applicable("shortcuts", "the answer has several parts, no single output fits it")
    children = trial_children(trial, SHORTCUT_RESEEDS)
    if not children:
        return not_applicable("shortcuts", "the author can't re-seed this task")
    trials = [trial, *children]
    hits: Counter[tuple[str, str]] = Counter()
    chance: dict[tuple[str, str], list[float]] = {}
    for one in trials:
        programs = list({dumps([p.text, p.selector, p.answer]): p for p in _programs(one)}.values())
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
        whole = key[1].startswith(("whole", "only"))
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
    known = trial.density
    return 2.0 if known is None or known.value <= 0 else max(2.0, 1.0 / known.value)


def _programs(trial: Trial) -> Iterator[Program]:
    """Programs over one trial; a program's text names tools only, so it can be compared over re-seeds."""
    layout = trial.problem.layout
    name = trial.problem.slots[0].name
    with closing(trial.session()) as session:
        for text, output in islice(_outputs(trial, session), MAX_PROGRAMS):
            for selector, value, rows in _selections(output):
                yield Program(text, selector, fill_layout(layout, {name: value}), rows)


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
