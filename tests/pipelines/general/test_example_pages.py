"""The pages in ``examples/pages``, which ``docs/domains.md`` teaches from: each level passes every gate."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from cli_runs import ROOT

from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest, failure
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts

PAGES = sorted((ROOT / "examples" / "pages").glob("*.toml"))


def test_there_are_pages() -> None:
    assert [page.stem for page in PAGES] == ["greenhouse"]


@pytest.mark.parametrize(("page", "level"), list(product(PAGES, range(1, 6))))
def test_every_level_of_a_page_is_proven(page: Path, level: int) -> None:
    domain = page_file(page)
    assert tasks_from(domain.text).domain == domain
    author = ProceduralAuthor()
    request = DraftRequest(domain=domain.id, page=domain.text, level=level)
    reasons = []
    with Hosts(trusted=True) as hosts:
        for seed in range(3):  # the gates may refuse a draft; generation then tries the next
            draft = author.draft(request, seed)
            assert isinstance(draft, Draft), draft
            proof = prove(draft, hosts, author=author)
            if proof.passed:
                return
            reasons.append(failure(proof.evidence))
    pytest.fail(f"no draft of level {level} was proven: {reasons}")
