"""Gates about a dataset as a whole: gold rows stand nowhere special, and tasks differ.

Both need many tasks; below ``MIN_TASKS`` they are ``not_run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from envgen.core.canonical import content_hash
from envgen.core.ir import Problem, Query, Reach
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.pipelines.boundary import guarded
from envgen.pipelines.general.semantics.layout import match_layout
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite
from envgen.store.bundles import EnvironmentBundle, TaskBundle

MIN_TASKS = 100
P_VALUE = 0.001
TOP_SHARE = 0.5


def dataset_evidence(
    pairs: Iterable[tuple[EnvironmentBundle, Sequence[TaskBundle]]],
) -> Evidence:
    """Evidence for ``dataset.json`` from environments and their tasks."""
    pairs = list(pairs)
    tasks = [task for _, group in pairs for task in group]
    if len(tasks) < MIN_TASKS:
        reason = f"needs {MIN_TASKS} tasks, there are {len(tasks)}"
        return tuple(
            GateResult(gate=gate, status=GateStatus.NOT_RUN, reason=reason)
            for gate in ("planted_rows", "diversity")
        )
    return (
        guarded("planted_rows", lambda: planted_rows(pairs)),
        guarded("diversity", lambda: diversity(tasks)),
    )


def planted_rows(pairs: Sequence[tuple[EnvironmentBundle, Sequence[TaskBundle]]]) -> GateResult:
    """Gold's rows are spread evenly over their tables (Kolmogorov-Smirnov against uniform).

    Tables are stored in key order, so key rank is id, insertion and name rank at once. Of each task
    one row counts, because rows of one answer are not independent. Where many answers are right, the
    row comes from one that the independent solver drew (the gold solution takes the first it finds, which
    says nothing about the rows).
    """
    ranks = []
    for environment, tasks in pairs:
        for task in tasks:
            ranks += _gold_rank(environment, task)
    if len(ranks) < 30:
        reason = f"only {len(ranks)} gold answers name a row"
        return GateResult(gate="planted_rows", status=GateStatus.NOT_RUN, reason=reason)
    from scipy.stats import kstest  # half a second that no worker needs to spend

    p_value = float(kstest(ranks, "uniform").pvalue)
    return GateResult(
        gate="planted_rows",
        status=GateStatus.PASSED if p_value >= P_VALUE else GateStatus.FAILED,
        n=len(ranks),
        figure=p_value,
        reason="" if p_value >= P_VALUE else "gold rows cluster by key rank",
    )


def _gold_rank(environment: EnvironmentBundle, task: TaskBundle) -> list[float]:
    if task.constraints is None or task.gold is None or environment.database is None:
        return []
    problem = Problem.model_validate(task.constraints)
    right = [probe.answer for probe in task.probes if probe.origin == "alternative"]
    values = match_layout(problem.layout, right[0] if right else task.gold.answer) or {}
    slots = [
        (slot.domain.relation, values[slot.name])
        for slot in problem.slots
        if slot.kind == "entity" and isinstance(slot.domain, Query) and slot.name in values
    ]
    if not slots:
        return []
    relation, key = slots[int(content_hash(task.spec.id)[:8], 16) % len(slots)]
    keys = sorted(_tables(problem, environment.database)[relation])
    if key not in keys:
        return []
    # A point drawn inside the row's bin (by hash) makes ranks of small tables comparable to uniform.
    inside = int(content_hash([task.spec.id, "rank"])[:12], 16) / 16**12
    return [(keys.index(str(key)) + inside) / len(keys)]


def _tables(problem: Problem, database: bytes) -> Tables:
    with TemporaryDirectory(prefix="envgen-ranks-") as folder:
        path = Path(folder) / "database.sqlite"
        path.write_bytes(database)
        return read_sqlite(problem.relations, path)


def diversity(tasks: Sequence[TaskBundle]) -> GateResult:
    """No environment asks the same twice; no one kind of task, and no repeated prompt, makes up half.

    The same words over another database are another task (its answer differs), but a dataset that
    mostly repeats its words is not diverse.
    """
    prompts = Counter(task.spec.prompt for task in tasks)
    pairs = Counter((task.spec.environment_id, task.spec.prompt) for task in tasks)
    kinds = Counter(signature(task) for task in tasks)
    twice = sum(n - 1 for n in pairs.values())
    repeated = sum(n - 1 for n in prompts.values())
    top = max(kinds.values()) / len(tasks)
    passed = twice == 0 and top <= TOP_SHARE and repeated / len(tasks) <= TOP_SHARE
    reason = f"{twice} tasks twice, {repeated} repeated prompts, commonest kind {top:.0%}"
    return GateResult(
        gate="diversity",
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        n=len(tasks),
        figure=round(top, 4),
        reason="" if passed else reason,
        details={"kinds": len(kinds), "repeated_prompts": repeated, "asked_twice": twice},
    )


def signature(task: TaskBundle) -> str:
    """What kind of task this is: tables, slots, rule families and goal, but no values."""
    if task.constraints is None:
        return content_hash([task.spec.environment_id])
    problem = Problem.model_validate(task.constraints)
    return content_hash(list(_parts(problem)))


def _parts(problem: Problem) -> Iterator[object]:
    yield problem.shape
    yield sorted(relation.name for relation in problem.relations)
    yield [[slot.kind, slot.name] for slot in problem.slots]
    yield sorted(f"{clause.family}:{clause.text_key}" for clause in problem.clauses)
    goal = problem.goal
    yield goal.kind
    yield getattr(goal, "text_key", "")
    if isinstance(goal, Reach):
        yield sorted(effect.text_key for effect in goal.effects)
