"""Drafts of the real domains, which several files of tests look at: the processes of a run make each once."""

from __future__ import annotations

from functools import cache

from shared import recalled, remember

from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest, NoDraft


@cache
def attempted(domain: str, level: int, seed: int = 0) -> Draft | NoDraft:
    """What the author drafts, or why it drafts nothing."""
    name = f"draft-{domain}-{level}-{seed}"
    found: Draft | NoDraft | None = recalled(name)
    if found is None:
        found = ProceduralAuthor().draft(DraftRequest(domain=domain, level=level), seed)
        remember(name, found)
    return found


def drafted(level: int, seed: int = 0, domain: str = "trip") -> Draft:
    """The draft of a level; an error where there is none."""
    found = attempted(domain, level, seed)
    assert isinstance(found, Draft), found
    return found
