"""The gate of what a dataset says of itself as a whole: card, splits, licences, funnel, pass rates.

None of it stands in a task's files, so no task's proof covers it; all but pass rates, and what was dropped,
follow from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import guarded
from envgen.store.card import data_card
from envgen.store.dataset import Dataset
from envgen.store.manifest import CARD, FORMAT_VERSION
from envgen.store.splits import assign_splits

FUNNEL = "how many were drafted, and why others were dropped (the funnel), is the word of whoever made it"


class Dealt(NamedTuple):
    """What splits were dealt out by."""

    by: Literal["tasks", "environments", ""]
    """What was dealt out; empty: nothing tells."""
    groups: Mapping[str, str]
    """Task id -> what tasks of one split share."""


def said_of_itself(dataset: Dataset, dealt: Dealt) -> GateResult:
    """What ``dataset.json`` and the data card say is what follows from the tasks, and no more."""
    return guarded("card", lambda: _compared(dataset, dealt))


def _compared(dataset: Dataset, dealt: Dealt) -> GateResult:
    faults = [*_licences(dataset), *_funnel(dataset), *_splits(dataset, dealt), *_card(dataset)]
    return GateResult(
        gate="card",
        status=GateStatus.FAILED if faults else GateStatus.PASSED,
        n=4,
        reason="; ".join(faults)[:1_000],
    )


def _licences(dataset: Dataset) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for name in sorted(dataset.environments):
        found.setdefault(dataset.environments[name].licence, []).append(name)
    if {licence: list(names) for licence, names in dataset.manifest.licences.items()} != found:
        yield "the licences are not those of the environments"


def _funnel(dataset: Dataset) -> Iterator[str]:
    """The numbers of what was kept; what was rejected is in no file, and a subset keeps its source's."""
    tasks, funnel = len(dataset.own_task_ids), dataset.manifest.funnel
    for name, found in (("tasks", tasks), ("environments", len(dataset.environments))):
        number = funnel.get(name, found)
        if type(number) is not int or number < found:
            yield f"the funnel says {number!r} {name}; there are {found}"
    drafted, rejected = funnel.get("drafted"), funnel.get("rejected")
    if isinstance(drafted, int) and isinstance(rejected, dict):
        numbers = [number for number in rejected.values() if isinstance(number, int)]
        if drafted < tasks or drafted < sum(numbers):
            yield f"the funnel says {drafted} drafts, {sum(numbers)} rejected and {tasks} kept"


def _splits(dataset: Dataset, dealt: Dealt) -> Iterator[str]:
    """Splits are dealt out by group and seed, so whoever moves a task to another split shows."""
    shared: dict[str, str] = {}
    for name, group in dealt.groups.items() if dealt.by else ():
        if shared.setdefault(group, dataset.facts(name).split) != dataset.facts(name).split:
            yield f"{name!r} is in another split than tasks that share its {group[:60]!r}"
            return
    if not _derivable(dataset, dealt):
        return
    wanted = assign_splits(
        {_item(dataset, dealt, name): group for name, group in dealt.groups.items()},
        seed=dataset.manifest.seed,
    )
    moved = [
        name
        for name in dealt.groups
        if dataset.facts(name).split != wanted[_item(dataset, dealt, name)]
    ]
    if moved:
        yield f"{moved[0]!r} is not in the split that its group was dealt ({len(moved)} such tasks)"


def _item(dataset: Dataset, dealt: Dealt, task_id: str) -> str:
    return task_id if dealt.by == "tasks" else dataset.facts(task_id).environment_id


def _derivable(dataset: Dataset, dealt: Dealt) -> bool:
    """Whether splits follow from groups: nothing was taken out since they were dealt.

    Variants are dealt out by database, with a seed of their own.
    """
    numbers = {"tasks": len(dataset.own_task_ids), "environments": len(dataset.environments)}
    whole = dealt.by and dataset.manifest.funnel.get(dealt.by) == numbers[dealt.by]
    return bool(whole) and not dataset.manifest.counts.variants


def _card(dataset: Dataset) -> Iterator[str]:
    if dataset.manifest.format_version < FORMAT_VERSION:
        return  # in other words than this version's
    tasks = [dataset.tasks[name] for name in sorted(dataset.own_task_ids)]
    environments = [dataset.environments[name] for name in sorted(dataset.environments)]
    variants = Counter(
        str(dataset.facts(name).split) for name in set(dataset.tasks) - set(dataset.own_task_ids)
    )
    wanted = data_card(dataset.manifest, environments, tasks, variants)
    stored = (dataset.path / CARD).read_text(encoding="utf-8")
    if stored != wanted:
        ours, theirs = wanted.splitlines(), stored.splitlines()
        line = next((b for a, b in zip(ours, theirs, strict=False) if a != b), "its length")
        yield f"{CARD} is not made from the tasks: {line[:120]!r}"


def unchecked(dataset: Dataset, dealt: Dealt) -> str:
    """What no file can vouch for: the funnel, pass rates as whoever rolled out wrote them, splits by hand."""
    policies = sorted(
        {p.policy for name in dataset.own_task_ids for p in dataset.tasks[name].pass_at}
    )
    found = []
    if dataset.manifest.funnel:
        found.append(f"UNCHECKED: {FUNNEL}")
    if policies:
        names = ", ".join(policies[:4])
        found.append(f"pass rates of {names}: as they were written down; roll out to check them")
    splits = {dataset.facts(name).split for name in dataset.own_task_ids}
    if len(splits) > 1 and not _derivable(dataset, dealt):
        found.append(
            "splits: as they were written down; only a whole dataset shows how they were dealt"
        )
    return "; ".join(found)
