"""The gate of what a dataset says of itself as a whole: card, splits, licences, funnel, pass rates.

None of it stands in a task's files, so no task's proof covers it; all but pass rates follow from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envgen.core.families import find_family
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.boundary import guarded
from envgen.store.card import data_card
from envgen.store.dataset import Dataset
from envgen.store.manifest import CARD, FORMAT_VERSION
from envgen.store.splits import assign_splits
from envgen.store.sqlite_files import inspect


def said_of_itself(dataset: Dataset) -> GateResult:
    """What ``dataset.json`` and the data card say is what follows from the tasks, and no more."""
    return guarded("card", lambda: _compared(dataset))


def _compared(dataset: Dataset) -> GateResult:
    faults = [*_licences(dataset), *_funnel(dataset), *_splits(dataset), *_card(dataset)]
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


def _splits(dataset: Dataset) -> Iterator[str]:
    """Splits are dealt out by schema and seed, so whoever moves a task to another split shows."""
    own = [dataset.tasks[name] for name in dataset.own_task_ids]
    dealt = all(find_family(task.family).splits_by_schema for task in own)
    if not own or not dealt or dataset.manifest.counts.variants:
        return  # others are dealt out otherwise; variants by database, with a seed of their own
    schemas = {
        name: inspect(content, name).schema
        for name in dataset.environments
        if (content := dataset.environment_files(name).bundle().database) is not None
    }
    if len(schemas) < len(dataset.environments):
        return
    wanted = assign_splits(schemas, seed=dataset.manifest.seed)
    moved = [task.id for task in own if task.split != wanted[task.environment_id]]
    if moved and _is_whole(dataset):
        yield f"{moved[0]!r} is not in the split that its schema was dealt ({len(moved)} such tasks)"


def _is_whole(dataset: Dataset) -> bool:
    """Whether nothing was taken out since splits were dealt."""
    funnel = dataset.manifest.funnel
    return funnel.get("environments") == len(dataset.environments)


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


def unchecked(dataset: Dataset) -> str:
    """What no file can vouch for: pass rates, as whoever rolled out wrote them; empty without any."""
    policies = sorted(
        {p.policy for name in dataset.own_task_ids for p in dataset.tasks[name].pass_at}
    )
    names = ", ".join(policies[:4])
    return (
        f"pass rates of {names}: as they were written down; roll out to check them" if names else ""
    )
