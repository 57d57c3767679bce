"""The gate ``unrequested``: whoever does anything but what was asked fails, whatever the IR says may change.

Every other gate judges by the task's own write set, so one that is too wide fools them all. This one knows
nothing of it: it makes gold's calls and one more, before them and after, leaves one out, repeats one, turns
their order and aims one at another row, and lets the stored verifier judge each state that is not gold's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice, product
from random import Random
from typing import Any

from envgen.core.ir import Access
from envgen.core.types import GateResult
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.calls import Call, IntSpan, argument_values
from envgen.pipelines.general.semantics.replies import apply_call
from envgen.pipelines.general.semantics.tables import Tables
from envgen.sandboxes.verifier import VerifierInput

MOST = 200
"""Plans of one kind that are tried; a sample by seed where there are more."""
_LOOKED_AT = 5_000
"""Calls of which those that the tools take are sought, a sample of all."""


def unrequested(trial: Trial) -> GateResult:
    """No state but gold's passes: no write too many, left out, repeated or aimed at another row."""
    if not trial.writes:
        return not_applicable("unrequested", "the task changes nothing")
    rows, gold = trial.draft.tables, trial.gold_plan
    done = _after(trial, rows, gold)
    states: dict[str, tuple[str, Tables]] = {}
    for what, plan in _plans(trial, done):
        state = _after(trial, rows, plan)
        if state != done:
            states.setdefault(json.dumps(_changes(rows, state), sort_keys=True), (what, state))
    inputs = [
        VerifierInput(trial.gold.answer, trial.database, trial.stored(state, f"unrequested-{i}"))
        for i, (_, state) in enumerate(states.values())
    ]
    verdicts = trial.verdicts(trial.draft.verifier, inputs)
    trial.other_states = list(zip(inputs, verdicts, strict=True))
    found = [(what, broken) for (what, _), broken in zip(states.values(), verdicts, strict=True)]
    passed = [what for what, broken in found if not broken]
    faults = sum(broken is None for _, broken in found)
    what = f"pass, or break the verifier ({faults})" if faults else "pass"
    return outcome(
        "unrequested",
        not passed,
        len(inputs),
        figure=float(len(passed)),
        reason=f"{len(passed)} other states {what}, such as gold {'; gold '.join(passed[:3])}",
    )


def _plans(trial: Trial, done: Tables) -> Iterator[tuple[str, Sequence[Call]]]:
    """Plans that are not gold's, each with how it differs."""
    gold = trial.gold_plan
    for when, state in (("before", trial.draft.tables), ("after", done)):
        for call in _accepted_calls(trial, state, trial.rng("unrequested", when)):
            plan = (call, *gold) if when == "before" else (*gold, call)
            yield f"{when} which came {_call_text(call)}", plan
    for i, call in enumerate(gold):
        yield f"without {_call_text(call)}", (*gold[:i], *gold[i + 1 :])
        yield f"with {_call_text(call)} twice", (*gold, call)
        yield f"with {_call_text(call)} first", (call, *gold[:i], *gold[i + 1 :])
    yield "in reverse", gold[::-1]
    twins = [
        (i, (name, {**args, changed: value}))
        for i, (name, args) in enumerate(gold)
        for changed in args
        for value in _values(trial, _access(trial, name), changed)
        if value != args[changed]
    ]
    for i, twin in _some(twins, trial.rng("unrequested", "twins")):
        yield f"with {_call_text(twin)} in place of a call", (*gold[:i], twin, *gold[i + 1 :])


def _accepted_calls(trial: Trial, state: Tables, rand: Random) -> list[Call]:
    """Write calls that the tools take in ``state``: all, or a sample."""
    every: list[Call] = []
    for access in (a for a in trial.problem.access if a.mode == "write"):
        values = [_values(trial, access, name) for name in access.args]
        chosen = product(*(_some(v, rand, 64) for v in values))
        calls = [
            dict(zip(access.args, one, strict=True)) for one in islice(chosen, 10 * _LOOKED_AT)
        ]
        every += [(access.tool, args) for args in _some(calls, rand, _LOOKED_AT)]
    taken = [
        (name, args)
        for name, args in every
        if not isinstance(apply_call(trial.problem, state, _access(trial, name), args), str)
    ]
    return _some(taken, rand)


def _access(trial: Trial, tool: str) -> Access:
    return next(a for a in trial.problem.access if a.tool == tool)


def _values(trial: Trial, access: Access, name: str) -> list[Any]:
    """What an argument may be: all keys, a span's values, or what gold gave it and numbers beside."""
    found = argument_values(trial.problem, access, name, trial.draft.tables)
    if isinstance(found, IntSpan):
        return list(range(found.low, found.high + 1))
    if found is not None:
        return list(found)
    given = {args[name] for tool, args in trial.gold_plan if tool == access.tool and name in args}
    near = {value + step for value in given if type(value) is int for step in (-1, 1)}
    return sorted({*given, *near, *({0, 1} if near or not given else set())}, key=str)


def _some(values: Sequence[Any], rand: Random, most: int = MOST) -> list[Any]:
    """All values, or a sample of them in their order."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in sorted(rand.sample(range(len(values)), most))]


def _after(trial: Trial, rows: Tables, plan: Sequence[Call]) -> Tables:
    """The rows after the calls of ``plan``; those that a tool refuses change nothing."""
    for name, args in plan:
        state = apply_call(trial.problem, rows, _access(trial, name), args)
        rows = rows if isinstance(state, str) else state
    return rows


def _changes(before: Tables, after: Tables) -> list[Any]:
    """What tells two states over the same initial rows apart."""
    return [
        [name, key, after[name].get(key)]
        for name in sorted(after)
        if after[name] is not before.get(name)
        for key in sorted({*before.get(name, {}), *after[name]})
        if after[name].get(key) != before.get(name, {}).get(key)
    ]


def _call_text(call: Call) -> str:
    name, args = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
