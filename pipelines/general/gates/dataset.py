"""Gates about what tasks share: an environment that is played at random, and a dataset as a whole.

Agreement: the policy ``random-valid``, through environment, tools and verifier, meets the computed density.
The density comes from the tables; the policy knows neither and plays through the agent's own interface. If
their intervals don't overlap, one of density, environment and verifier is wrong.

Of a whole dataset: gold rows stand nowhere special, and tasks differ. No environment may ask the same
twice; what needs many tasks is ``not_run``, or not judged, below ``MIN_TASKS``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from envgen.core.canonical import content_hash
from envgen.core.ir import Problem, Query, Reach
from envgen.core.seeding import derive
from envgen.core.types import Evidence, GateResult
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts
from envgen.pipelines.boundary import broken, guarded
from envgen.pipelines.general.gates.trial import outcome
from envgen.pipelines.general.semantics.identity import identity
from envgen.pipelines.general.semantics.layout import match_layout
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite
from envgen.policies.random_valid import RandomValidPolicy
from envgen.rollout.bootstrap import clopper_pearson
from envgen.rollout.episode import run_episode
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

AGREEMENT = "agreement"
CONFIDENCE = 0.999
MIN_TASKS = 100
P_VALUE = 0.001
TOP_SHARE = 0.5
Group = tuple[EnvironmentBundle, Sequence[TaskBundle]]
"""An environment with its tasks."""


def random_valid_agreement(
    environment: EnvironmentBundle,
    tasks: Sequence[TaskBundle],
    *,
    episodes: int,
    backend: WorkerBackend,
    seed: int = 0,
    trusted: bool = True,
) -> list[GateResult]:
    """One result per task: passed where the intervals overlap, failed where something breaks.

    A task whose density would need more than ``episodes`` episodes (3 / n <= density) is ``not_run``.
    Episodes are drawn from ``seed`` and the task's id alone, so that ``validate`` plays the same again.
    ``trusted`` says that the code may run without isolation.
    """
    needed = [_episodes_needed(task, episodes) for task in tasks]
    found = [_not_run(task, episodes) for task in tasks]
    try:
        if any(needed):
            with TemporaryDirectory(prefix="envgen-agreement-") as folder:
                dataset = _dataset(environment, tasks, Path(folder) / "dataset", seed, trusted)
                try:
                    with closing(GeneralEnv(dataset, backend=backend, unproven=True)) as env:
                        for i, n in enumerate(needed):
                            if n:
                                play = partial(agreement, env, tasks[i], n, seed)
                                found[i] = guarded(AGREEMENT, play)
                finally:
                    close_hosts(dataset)
    except Exception as error:  # the boundary: these tasks fail, the run goes on
        return [broken(AGREEMENT, error) for _ in tasks]
    return [
        one.model_copy(update={"details": {**one.details, "episodes": episodes}}) for one in found
    ]


def agreement(env: GeneralEnv, task: TaskBundle, n: int, seed: int) -> GateResult:
    """Play ``n`` random-valid episodes of one task and compare with its density."""
    density = task.spec.difficulty.density
    assert density is not None  # n is 0 without one
    policy = RandomValidPolicy()
    passed = 0
    for i in range(n):
        result = run_episode(
            env, policy, task.spec.id, sample=i, seed=derive(seed, task.spec.id, AGREEMENT, i)
        )
        error = result.trajectory.error
        if error is not None:
            reason = f"episode {i} broke: {error.kind}: {error.text}"
            return outcome(AGREEMENT, False, i + 1, reason=reason)
        score = result.trajectory.score
        passed += score is not None and score.passed
    low, high = clopper_pearson(n, passed, CONFIDENCE)
    return outcome(
        AGREEMENT,
        low <= density.high and density.low <= high,
        n,
        figure=passed / n,
        reason=f"random-valid passes {passed}/{n}, the density is {density.value:.3g}",
        low=low,
        high=high,
        density=density.value,
        confidence=CONFIDENCE,
    )


def _episodes_needed(task: TaskBundle, most: int) -> int:
    """Enough episodes that 3 / n <= density, at least a quarter of ``most``; 0 if ``most`` won't do."""
    density = task.spec.difficulty.density
    if density is None or density.value <= 0 or 3 / density.value > most:
        return 0
    return max(most // 4, math.ceil(3 / density.value))


def _not_run(task: TaskBundle, episodes: int) -> GateResult:
    density = task.spec.difficulty.density
    known = "unknown" if density is None else f"{density.value:.2g}"
    reason = f"{episodes} episodes are too few for a density of {known}"
    return outcome(AGREEMENT, False, 0, reason=reason)


def _dataset(
    environment: EnvironmentBundle,
    tasks: Sequence[TaskBundle],
    path: Path,
    seed: int,
    trusted: bool,
) -> Dataset:
    writer = DatasetWriter(path, name=AGREEMENT, seed=seed)
    writer.add_environment(environment)
    for task in tasks:
        writer.add_task(task)
    writer.finish(funnel={})
    return Dataset.open(path, unproven=True, trust=trusted)


def dataset_evidence(groups: Iterable[Group]) -> Evidence:
    """Evidence for ``dataset.json`` from environments and their tasks."""
    groups = list(groups)
    tasks = [task for _, group in groups for task in group]
    return (_planted(groups, len(tasks)), guarded("diversity", lambda: diversity(tasks)))


def _planted(groups: Sequence[Group], tasks: int) -> GateResult:
    if tasks < MIN_TASKS:
        reason = f"needs {MIN_TASKS} tasks, there are {tasks}"
        return outcome("planted_rows", False, 0, reason=reason)
    return guarded("planted_rows", lambda: planted_rows(groups))


def planted_rows(groups: Sequence[Group]) -> GateResult:
    """Gold's rows are spread evenly over their tables (Kolmogorov-Smirnov against uniform).

    Tables are stored in key order, so key rank is id, insertion and name rank at once. Of each task
    one row counts, because rows of one answer are not independent. Where many answers are right, the
    row comes from one that the independent solver drew (the gold solution takes the first it finds, which
    says nothing about the rows).
    """
    found = (_gold_rank(environment, task) for environment, tasks in groups for task in tasks)
    ranks = [rank for rank in found if rank is not None]
    if len(ranks) < 30:
        reason = f"only {len(ranks)} gold answers name a row"
        return outcome("planted_rows", False, 0, reason=reason)
    from scipy.stats import kstest  # half a second that no worker needs to spend

    p_value = float(kstest(ranks, "uniform").pvalue)
    reason = "gold rows cluster by key rank"
    return outcome("planted_rows", p_value >= P_VALUE, len(ranks), figure=p_value, reason=reason)


def _gold_rank(environment: EnvironmentBundle, task: TaskBundle) -> float | None:
    """The rank of a row of gold in its table, in 0..1; None if gold names none."""
    if task.constraints is None or task.gold is None or environment.database is None:
        return None
    problem = Problem.model_validate(task.constraints)
    right = [probe.answer for probe in task.probes if probe.origin == "alternative"]
    values = match_layout(problem.layout, right[0] if right else task.gold.answer) or {}
    slots = [
        (slot.domain.relation, values[slot.name])
        for slot in problem.slots
        if slot.kind == "entity" and isinstance(slot.domain, Query) and slot.name in values
    ]
    if not slots:
        return None
    relation, key = slots[int(content_hash(task.spec.id)[:8], 16) % len(slots)]
    keys = sorted(_tables(problem, environment.database)[relation])
    if key not in keys:
        return None
    # A point drawn inside the row's bin (by hash) makes ranks of small tables comparable to uniform.
    inside = int(content_hash([task.spec.id, "rank"])[:12], 16) / 16**12
    return (keys.index(str(key)) + inside) / len(keys)


def _tables(problem: Problem, database: bytes) -> Tables:
    with TemporaryDirectory(prefix="envgen-ranks-") as folder:
        path = Path(folder) / "database.sqlite"
        path.write_bytes(database)
        return read_sqlite(problem.relations, path)


def diversity(tasks: Sequence[TaskBundle]) -> GateResult:
    """No environment asks the same twice, in whatever words.

    From ``MIN_TASKS`` on, no one kind of task, and no repeated problem, makes up half: the same problem over
    another database is another task (its answer differs), but a dataset that mostly repeats itself is
    not diverse. Tasks without a constraint IR, such as canaries, are not compared.
    """
    problems = [(task, _problem(task)) for task in tasks]
    asked = [(task, identity(problem)) for task, problem in problems if problem is not None]
    pairs = len({(task.spec.environment_id, problem) for task, problem in asked})
    kinds = Counter(signature(task) for task in tasks)
    twice, repeated = len(asked) - pairs, len(asked) - len({problem for _, problem in asked})
    top = max(kinds.values(), default=0) / max(len(tasks), 1)
    few = len(tasks) < MIN_TASKS
    return outcome(
        "diversity",
        twice == 0 and (few or (top <= TOP_SHARE and repeated / len(tasks) <= TOP_SHARE)),
        len(tasks),
        figure=round(top, 4),
        reason=f"{twice} tasks twice, {repeated} repeated problems, commonest kind {top:.0%}",
        kinds=len(kinds),
        repeated_problems=repeated,
        asked_twice=twice,
    )


def _problem(task: TaskBundle) -> Problem | None:
    """The problem of a task; None without one, or with one that its own proof refuses."""
    try:
        return None if task.constraints is None else Problem.model_validate(task.constraints)
    except ValidationError:
        return None


def signature(task: TaskBundle) -> str:
    """Hash the kind of a task: tables, slots, rule families and goal, but no values."""
    problem = _problem(task)
    if problem is None:
        return content_hash([task.spec.environment_id])
    goal = problem.goal
    effects = goal.effects if isinstance(goal, Reach) else ()
    return content_hash(
        [
            problem.shape,
            sorted(relation.name for relation in problem.relations),
            [[slot.kind, slot.name] for slot in problem.slots],
            sorted(f"{clause.family}:{_phrase(clause.text_key)}" for clause in problem.clauses),
            goal.kind,
            _phrase(getattr(goal, "text_key", "")),
            sorted(_phrase(effect.text_key) for effect in effects),
        ]
    )


def _phrase(key: str) -> str:
    """The phrase of a sentence, without the way in which it is said."""
    return key.partition("~")[0]
