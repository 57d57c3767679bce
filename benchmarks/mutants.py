"""How much one worker that remembers saves on the mutants of a compiled verifier, against a worker for each.

``python -P benchmarks/mutants.py [DOMAIN LEVEL] ...``; both find the same survivors, or it says so and fails.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest, as_stored
from envgen.pipelines.general.gates import mutation
from envgen.pipelines.general.gates.probes import judged
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.sandboxes.verifier import Judged
from envgen.verifiers.mutants import Mutant, mutants


def main(cases: Sequence[tuple[str, int]]) -> None:
    """Print both times and their ratio for one task of each case."""
    print("domain       level  mutants  probes   each s   one s  ratio")
    for domain, level in cases:
        drafts = (
            ProceduralAuthor().draft(DraftRequest(domain=domain, level=level), n) for n in range(20)
        )
        draft = as_stored(next(draft for draft in drafts if isinstance(draft, Draft)))
        with Hosts(trusted=True) as hosts, TemporaryDirectory() as folder:
            with closing(Trial(draft, hosts, Path(folder), ProceduralAuthor(), seed=0)) as trial:
                made, pairs = list(mutants(draft.verifier)), judged(trial)
                one, few = _timed(mutation._alive, trial, made, pairs)
                each, same = _timed(mutation._apart, trial, made, pairs)
        if few != same:
            sys.exit(f"{domain} {level}: the survivors differ")
        print(
            f"{domain:12} {level:5}  {len(made):7}  {len(pairs):6}  {each:7.2f} {one:7.2f}"
            f"  {each / one:5.1f}",
            flush=True,
        )


def _timed(
    run: Callable[[Trial, Sequence[Mutant], Sequence[Judged]], list[Mutant]],
    trial: Trial,
    made: Sequence[Mutant],
    pairs: Sequence[Judged],
) -> tuple[float, list[Mutant]]:
    started = time.monotonic()
    found = run(trial, made, pairs)
    return time.monotonic() - started, found


if __name__ == "__main__":
    words = sys.argv[1:] or ["meetings", "5", "orders", "5", "menu", "6"]
    main([(domain, int(level)) for domain, level in zip(words[::2], words[1::2], strict=True)])
