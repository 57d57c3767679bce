"""The mutation gate: break the verifier in every small way and see whether the probes notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from pydantic import JsonValue

from envgen.core.types import GateResult
from envgen.pipelines.general.gates.meaning import params_of
from envgen.pipelines.general.gates.probes import (
    SAMPLES,
    edited_probes,
    judged,
    perturbed_probes,
    samples,
    walked_probes,
)
from envgen.pipelines.general.gates.trial import Trial, outcome, twin_of
from envgen.pipelines.general.programs.emit import replace_params
from envgen.sandboxes.verifier import Judged, VerifierInput, WorkerVerifierHost
from envgen.verifiers.mutants import Mutant, mutants

KILL_RATE = 0.95
CHUNKS = (3, 16, 64)
"""Probes are tried in this many at a time; most mutants die early, survivors see all of them."""
DRAWS = 4
"""The most times that they are drawn: an unlucky draw says nothing about the verifier."""


def mutants_killed(trial: Trial) -> GateResult:
    """At least 95 % of the verifier's mutants are told apart by the probes; survivors are equivalent.

    A mutant is killed when some probe gets another verdict (or a crash). Probes are gold, alternatives,
    near-misses, misshapen answers and unrequested writes on the task's own rows, and right and wrong
    answers on perturbed rows (values shuffled, or set to a bound or one off it); more such rows are drawn
    while too many survive. Where the task must be escalated, a re-seed's rows on which nothing must be
    count, too.
    Survivors must agree with the original on 1,000 sampled answers, and are listed.
    """
    pairs = [*judged(trial), *trial.other_states]
    if not pairs:
        return outcome("mutants", False, 0, reason="no probes")
    candidates = [
        Mutant(name, source)
        for name, source in mutants(trial.draft.verifier)
        if not _only_unused_params(trial.draft.verifier, source)
    ]
    tried, n_probes = len(candidates), len(pairs)
    survivors = _alive(trial, candidates, pairs)
    twin = twin_of(trial) if trial.escalated and survivors else None
    if twin is not None:  # nothing else shows here while the request must be escalated
        n_probes += len(judged(twin))
        rebound = [Mutant(one.source, _rebound(twin, one.source)) for one in survivors]
        alive = {one.description for one in _alive(twin, rebound, judged(twin))}
        survivors = [one for one in survivors if one.source in alive]
    for draw in range(1, DRAWS):
        if len(survivors) <= (1.0 - KILL_RATE) * tried:
            break
        walked, survivors = _after_walks(trial, survivors, draw)
        n_probes += walked
        if len(survivors) <= (1.0 - KILL_RATE) * tried:
            break
        probes = [*perturbed_probes(trial, draw), *edited_probes(trial, draw)]
        n_probes += len(probes)
        survivors = _alive(trial, survivors, _judged(trial, probes))
    distinct = 0
    if survivors:
        drawn = samples(trial)
        distinct = len(drawn)
        survivors = _alive(trial, survivors, _judged(trial, drawn))
    names: list[JsonValue] = [mutant.description for mutant in survivors]
    rate = 1.0 - len(survivors) / tried if tried else 0.0
    return outcome(
        "mutants",
        rate >= KILL_RATE,
        tried,
        figure=round(rate, 4),
        reason=f"{len(survivors)} of {tried} mutants of verifier.py survive: "
        f"{shown(trial.draft.verifier, survivors)}",
        survivors=names,
        probes=n_probes,
        sampled=SAMPLES if distinct else 0,
        sampled_distinct=distinct,
    )


def _after_walks(trial: Trial, survivors: Sequence[Mutant], draw: int) -> tuple[int, list[Mutant]]:
    """The mutants that walks leave, each tried on those over the rule that it changes; how many probes."""
    names = _rule_names(trial.draft.verifier)
    by_rule: dict[str, list[Mutant]] = {}
    for one in survivors:
        by_rule.setdefault(names.get(_line(one), ""), []).append(one)
    probes, left = 0, set[Mutant]()
    for rule, some in by_rule.items():
        walked = _judged(trial, walked_probes(trial, rule, draw))
        probes += len(walked)
        left.update(_alive(trial, some, walked))
    return probes, [one for one in survivors if one in left]


def _rule_names(source: str) -> dict[int, str]:
    """Which rule the text that begins at a line is of: what ``source`` names in a dict of texts."""
    return {
        value.lineno: str(key.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _line(mutant: Mutant) -> int:
    return int(mutant.description.partition(":")[0].removeprefix("line "))


def shown(source: str, survivors: Sequence[Mutant]) -> str:
    """Some survivors of a source, with the lines that they change."""
    lines = source.splitlines()
    found = []
    for one in survivors[:3]:
        line = " ".join(lines[_line(one) - 1].split())[:200]
        found.append(f"{one.description} in `{line}`")
    return "; ".join(found)


def _rebound(twin: Trial, source: str) -> str:
    """A mutant with the parameters of another re-seed."""
    return replace_params(source, twin.problem.params)


def _judged(trial: Trial, probes: Sequence[VerifierInput]) -> list[Judged]:
    """More probes, with what the draft's own verifier says of them."""
    return list(zip(probes, trial.verdicts(trial.draft.verifier, probes), strict=True))


def _alive(trial: Trial, candidates: Sequence[Mutant], pairs: Sequence[Judged]) -> list[Mutant]:
    """The mutants that no probe tells apart.

    The verifier that this envgen compiles does nothing but ask databases for rows, so one worker judges all
    its mutants. Any other is foreign code, and each of its mutants gets a worker of its own.
    """
    alive = list(candidates)
    for group in _groups(pairs):
        alive = (
            _apart(trial, alive, group) if trial.incomparable else _together(trial, alive, group)
        )
    return alive


def _groups(pairs: Sequence[Judged]) -> Iterator[list[Judged]]:
    """Probes in order, as many at a time as a worker can open the databases of."""
    group: list[Judged] = []
    files = set[Path | bytes]()
    for pair in pairs:
        more = {pair[0].initial, pair[0].final}
        if group and len(files | more) > WorkerVerifierHost.AT_LEAST:
            yield group
            group, files = [], set()
        group.append(pair)
        files |= more
    yield group


def _together(trial: Trial, candidates: Sequence[Mutant], pairs: Sequence[Judged]) -> list[Mutant]:
    """The mutants that no probe tells apart, judged by one worker as long as it lives."""
    alive, rest = list[Mutant](), list(candidates)
    while rest:
        sources = [trial.draft.verifier, *(mutant.source for mutant in rest)]
        verdicts = trial.hosts.verifier.told_apart(sources, pairs)
        known = [apart for apart in verdicts if apart is not None]
        alive += [mutant for mutant, apart in zip(rest, known, strict=False) if not apart]
        rest = rest[len(known) :]
        alive += _apart(trial, rest[:1] if known else rest, pairs)  # what ended the worker
        rest = rest[1:] if known else []
    return alive


def _apart(trial: Trial, candidates: Sequence[Mutant], pairs: Sequence[Judged]) -> list[Mutant]:
    """The mutants that no probe tells apart, each judged in a worker of its own."""
    order, alive = list(pairs), list[Mutant]()
    for mutant in candidates:
        killer = _killer(trial, mutant.source, order)
        if killer is None:
            alive.append(mutant)
        else:  # what told one mutant tells its neighbours: it goes first from now on
            order.insert(0, order.pop(killer))
    return alive


def _only_unused_params(source: str, mutant: str) -> bool:
    """Whether the fault is in a parameter that the verifier never reads (the solution does)."""
    try:
        before, after = params_of(source), params_of(mutant)
    except (ValueError, SyntaxError):
        return False
    changed = {name for name in before if name not in after or after[name] != before[name]}
    return bool(changed) and not any(
        f":param_{name}" in source or f'PARAMS["{name}"]' in source for name in changed
    )


def _killer(trial: Trial, source: str, pairs: Sequence[Judged]) -> int | None:
    """Position of a probe that tells ``source`` from the original; None if none does."""
    for start, stop in pairwise((0, *CHUNKS, len(pairs))):
        found = trial.verdicts(source, [probe for probe, _ in pairs[start:stop]])
        for i, verdict in enumerate(found):
            if verdict != pairs[start + i][1]:
                return start + i
    return None
