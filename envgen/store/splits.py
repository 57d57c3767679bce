"""Train, validation and test splits, by database and schema, so that none leaks into another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envgen.core.seeding import derive
from envgen.core.types import Split


class SplitUse(NamedTuple):
    """One task's split with what it was made from."""

    task_id: str
    split: Split
    database: str
    """Content hash of the task's database; empty if it has none."""
    schema: str
    """Schema hash of the environment; empty for variants, which are split by database only."""


def draw_split(key: str, *, seed: int = 0, validation: float = 0.05, test: float = 0.05) -> Split:
    """The split of everything that shares ``key``: a fixed function of key and seed."""
    point = derive(seed, "split", key) / 2**63
    if point < test:
        return "test"
    return "validation" if point < test + validation else "train"


def assign_splits(
    schemas: Mapping[str, str], *, seed: int = 0, validation: float = 0.1, test: float = 0.1
) -> dict[str, Split]:
    """A split per environment such that environments of one schema share it.

    Whole schemas are dealt out, smallest hash first, until each share is filled; with a single
    schema everything is ``train``.

    Args:
        schemas: environment id -> schema hash (``sqlite_files.inspect(...).schema``).
        seed: deals the schemas out differently.
        validation: the share of environments to aim at.
        test: likewise.
    """
    groups: dict[str, list[str]] = {}
    for env_id, schema in sorted(schemas.items()):
        groups.setdefault(schema, []).append(env_id)
    order = sorted(groups, key=lambda schema: derive(seed, "schema", schema))
    result: dict[str, Split] = dict.fromkeys(schemas, "train")
    kept_for_train = len(groups) - 1
    wanted: list[tuple[Split, float]] = [("test", test), ("validation", validation)]
    for split, share in wanted:
        filled = 0
        while (
            order and kept_for_train and filled + len(groups[order[0]]) / 2 < share * len(schemas)
        ):
            schema = order.pop(0)
            kept_for_train -= 1
            filled += len(groups[schema])
            result.update(dict.fromkeys(groups[schema], split))
    return result


def held_out(uses: Sequence[SplitUse]) -> dict[str, Split]:
    """The splits of merged tasks: those of one database or schema share the strictest that one of them had.

    A task of ``train`` that is like one of ``test`` moves there, never the other way: what was held out
    stays so.

    Args:
        uses: every task with the split that it had; one that stands in several datasets, several times.

    Returns:
        Task id -> split.
    """
    groups: dict[str, str] = {}  # a forest: key -> the key above it

    def top(key: str) -> str:
        while groups.setdefault(key, key) != key:
            groups[key] = key = groups[groups[key]]
        return key

    strictest: dict[str, Split] = {}
    for use in uses:
        own = f"task {use.task_id}"
        for kind, key in (("database", use.database), ("schema", use.schema)):
            if key:
                groups[top(f"{kind} {key}")] = top(own)
    for use in uses:
        group = top(f"task {use.task_id}")
        strictest[group] = max(strictest.get(group, use.split), use.split, key=_STRICTNESS.index)
    return {use.task_id: strictest[top(f"task {use.task_id}")] for use in uses}


_STRICTNESS: tuple[Split, ...] = ("train", "validation", "test")


def crossings(uses: Iterable[SplitUse]) -> list[str]:
    """List what stands in more than one split, as sentences; empty when the splits are clean."""
    first: dict[tuple[str, str], SplitUse] = {}
    found = []
    for use in uses:
        for kind, key in (("database", use.database), ("schema", use.schema)):
            if not key:
                continue
            seen = first.setdefault((kind, key), use)
            if seen.split != use.split:
                found.append(
                    f"{kind} {key[:12]} is in split {seen.split!r} (task {seen.task_id!r}) "
                    f"and in split {use.split!r} (task {use.task_id!r})"
                )
    return found
