"""The mutation gate: break the verifier in every small way and see whether the probes notice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pydantic import JsonValue

from envgen.core.types import GateResult
from envgen.pipelines.general.gates.meaning import params_of
from envgen.pipelines.general.gates.probes import (
    SAMPLES,
    edited_probes,
    judged,
    perturbed_probes,
    samples,
)
from envgen.pipelines.general.gates.trial import Judged, Trial, outcome
from envgen.sandboxes.verifier import VerifierInput
from envgen.verifiers.mutants import mutants

KILL_RATE = 0.95
CHUNKS = (3, 16, 64)
"""Probes are tried in this many at a time; most mutants die early, survivors see all of them."""
DRAWS = 4
"""The most times that they are drawn: an unlucky draw says nothing about the verifier."""


def mutants_killed(trial: Trial) -> GateResult:
    """At least 95 % of the verifier's mutants are told apart by the probes; survivors are equivalent.

    A mutant is killed when some probe gets another verdict (or a crash). Probes are gold, alternatives,
    near-misses and misshapen answers on the task's own rows, and right and wrong answers on perturbed
    rows (values shuffled, or set to a bound or one off it); more such rows are drawn while too many
    survive. Survivors must agree with the original on 1,000 sampled answers, and are listed.
    """
    pairs = list(judged(trial))
    if not pairs:
        return outcome("mutants", False, 0, reason="no probes")
    survivors: list[tuple[str, str]] = []
    tried = 0
    for name, source in mutants(trial.draft.verifier):
        if _only_unused_params(trial.draft.verifier, source):
            continue
        tried += 1
        killer = _killer(trial, source, pairs)
        if killer is None:
            survivors.append((name, source))
        else:  # what told one mutant tells its neighbours: it goes first from now on
            pairs.insert(0, pairs.pop(killer))
    n_probes = len(pairs)
    for draw in range(1, DRAWS):
        if len(survivors) <= (1.0 - KILL_RATE) * tried:
            break
        probes = [*perturbed_probes(trial, draw), *edited_probes(trial, draw)]
        n_probes += len(probes)
        survivors = _alive(trial, survivors, probes)
    distinct = 0
    if survivors:
        drawn = samples(trial)
        distinct = len(drawn)
        survivors = _alive(trial, survivors, drawn)
    names: list[JsonValue] = [name for name, _ in survivors]
    rate = 1.0 - len(survivors) / tried if tried else 0.0
    return outcome(
        "mutants",
        rate >= KILL_RATE,
        tried,
        figure=round(rate, 4),
        reason=f"{len(survivors)} of {tried} mutants of verifier.py survive, e.g. {names[:2]}",
        survivors=names,
        probes=n_probes,
        sampled=SAMPLES if distinct else 0,
        sampled_distinct=distinct,
    )


def _alive(
    trial: Trial, survivors: list[tuple[str, str]], probes: Sequence[VerifierInput]
) -> list[tuple[str, str]]:
    """The mutants (name, source) that more probes don't tell apart, either."""
    found = trial.verdicts(trial.draft.verifier, probes)
    pairs = list(zip(probes, found, strict=True))
    return [one for one in survivors if _killer(trial, one[1], pairs) is None]


def _only_unused_params(source: str, mutant: str) -> bool:
    """Whether the fault is in a parameter that the verifier never reads (the solution does)."""
    try:
        before, after = params_of(source), params_of(mutant)
    except (ValueError, SyntaxError):
        return False
    changed = {name for name in before if name not in after or after[name] != before[name]}
    return bool(changed) and not any(f":param_{name}" in source for name in changed)


def _killer(trial: Trial, source: str, pairs: Sequence[Judged]) -> int | None:
    """Position of a probe that tells ``source`` from the original; None if none does."""
    for start, stop in pairwise((0, *CHUNKS, len(pairs))):
        found = trial.verdicts(source, [probe for probe, _ in pairs[start:stop]])
        for i, verdict in enumerate(found):
            if verdict != pairs[start + i][1]:
                return start + i
    return None
