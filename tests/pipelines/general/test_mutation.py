"""Mutants that one worker judges fare as each does in a worker of its own."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from ladders import page_of

from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates import mutation
from envgen.pipelines.general.gates.probes import judged
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.sandboxes.verifier import WorkerVerifierHost
from envgen.verifiers.mutants import mutants


@pytest.mark.parametrize(("domain", "level"), [("trip", 2), ("office", 4), ("orders", 4)])
def test_one_worker_finds_what_many_find(
    domain: str, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, author = page_of(domain), ProceduralAuthor()
    drafts = map(
        partial(author.draft, DraftRequest(domain=page.id, page=page.text, level=level)), range(9)
    )
    draft = next(draft for draft in drafts if isinstance(draft, Draft))
    with Hosts(backend="process", trusted=True) as hosts:
        with closing(Trial(draft, hosts, tmp_path, author, seed=1)) as trial:
            candidates, pairs = list(mutants(draft.verifier))[::4], judged(trial)
            for some in (pairs[:4], pairs):  # few leave many alive
                together = mutation._together(trial, candidates, some)
                assert together == mutation._apart(trial, candidates, some)
                assert len(together) < len(candidates) / 2 or some is not pairs
                assert together or some is pairs
            files = {path for pair, _ in pairs for path in (pair.initial, pair.final)}
            monkeypatch.setattr(WorkerVerifierHost, "AT_LEAST", max(2, len(files) // 3))
            assert mutation._alive(trial, candidates, pairs) == together
