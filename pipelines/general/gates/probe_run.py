"""Put probes to a verifier: their calls are made on fresh tools, then the answer is judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envgen.core.canonical import dumps
from envgen.core.types import GoldRun, Probe, Score, Submission, ToolSpec
from envgen.environments.runner import replay
from envgen.pipelines.general.gates.trial import Hosts
from envgen.sandboxes.tools import ToolHost
from envgen.verifiers.general import GeneralVerifier


def gold_probe(gold: GoldRun, *, expected: bool = True) -> Probe:
    """The probe that does what gold does: its writes, then its answer."""
    writes = tuple(call for call in gold.calls if call.mutates and call.error is None)
    return Probe(answer=gold.answer, calls=writes or None, expected=expected, origin="gold")


def probe_submissions(
    probes: Sequence[Probe],
    specs: Sequence[ToolSpec],
    database: Path,
    folder: Path,
    tools: ToolHost,
) -> list[Submission]:
    """What an agent that does as the probes say would leave behind.

    Args:
        probes: what is done.
        specs: of the tools.
        database: before.
        folder: where the databases after go; read by the verifier later.
        tools: over ``database``.
    """
    submissions = []
    for i, probe in enumerate(probes):
        final = database
        if probe.calls:
            final = folder / f"{i}.sqlite"
            replay(probe.calls, specs, tools, final=final)
            final = final if final.exists() else database
        submissions.append(
            Submission(
                answer=probe.answer,
                raw=dumps(probe.answer),
                initial=str(database),
                final=str(final),
            )
        )
    return submissions


def judge(verifier: str, submissions: Sequence[Submission], hosts: Hosts) -> list[Score]:
    """What a ``verifier.py`` says of them, its schema check left out.

    Raises:
        VerifierError: if it breaks.
    """
    checked = GeneralVerifier(verifier, None, hosts.verifier, check_schema=False)
    return checked.verify_many(submissions)
