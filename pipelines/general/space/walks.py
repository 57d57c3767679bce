"""Random walks of write calls: how likely one ends in an accepted state with an accepted submission.

A walk: draw m uniformly in 0..max_calls, then m calls (each a uniform tool, then each argument uniform);
a call that fails changes nothing; then every slot of the submission is drawn uniformly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from math import log10, sqrt
from random import Random
from typing import Any, NamedTuple

from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Reach
from envgen.core.types import Density
from envgen.pipelines.general.semantics.calls import Call, Plan
from envgen.pipelines.general.semantics.evaluator import Memo
from envgen.pipelines.general.semantics.judge import MAX_SUBMISSIONS, Judge
from envgen.pipelines.general.semantics.machine import (
    Diff,
    Group,
    Machine,
    RowId,
    RowRead,
    Tool,
    among,
)
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.model import OutOfStepsError, StepBudget

Z = 3.2905
"""Two-sided 99.9 %."""


class Edge(NamedTuple):
    """A call that leads on to a state from which acceptance is still possible."""

    call: Call
    to: Diff
    weight: float


@dataclass
class WalkState:
    """A state on the way: how calls act in it."""

    diff: Diff
    failing: float = 0.0
    """Share of calls that leave the state as it is."""
    edges: list[Edge] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    """Accepted submissions, empty where the state itself is not accepted."""
    lost: bool = False


class Walks:
    """The graph of states that a problem's write calls reach, without hopeless ones.

    A dozen calls out of thousands reach more states than can be listed; the few from which acceptance is
    still possible are left by three prunings, each worth a factor of three on the shipped domains: what
    was changed against the write set and no tool undoes (``Judge.intruding``), the same seen from the
    leading arguments alone (``Group.doomed``), and rows that break a rule for good (``cores``).
    """

    def __init__(self, p: Problem, db: Tables, budget: StepBudget) -> None:
        assert isinstance(p.goal, Reach)
        self.p, self.goal, self.budget = p, p.goal, budget
        self.machine = Machine(p, db)
        self.judge = Judge(p, self.machine)
        self.num_submissions = self.judge.num_submissions
        if self.num_submissions > MAX_SUBMISSIONS:
            raise OutOfStepsError
        self.base: list[Group] = []
        for group in self.machine.groups(db):
            budget.spend(1 + len(group.moves))
            self.base.append(group)
        # A changed row makes those groups act otherwise that read it: only they are looked at again.
        self.readers: dict[tuple[str, str | None], list[int]] = {}
        self.writers: dict[RowId, list[int]] = {}
        self.loose: set[str] = set()
        for i, group in enumerate(self.base):
            for at in group.reads:
                self.readers.setdefault(at, []).append(i)
            if not group.tool.fixed_keys:
                self.loose |= {effect.relation for effect in group.tool.effects}
                continue
            for target in set(self.machine.targets(group)):
                self.writers.setdefault(target, []).append(i)
        self.only_updates = all(
            e.kind == "update" for tool in self.machine.tools for e in tool.effects
        )
        self.base_failing = sum(group.failing for group in self.base)
        self.base_moves = [i for i, group in enumerate(self.base) if group.moves]
        self.nodes: dict[Diff, WalkState] = {}
        self.acted: dict[int, dict[frozenset[RowRead], dict[Diff, Group]]] = {}
        """Groups as they acted in states, by what they read and what of it was changed there."""
        self._intrudes = cache(self.judge.intruding)
        self.cores: dict[Any, list[frozenset[Any]]] = {}
        """By changed row the sets of changes with it that alone make a state hopeless."""

    def node(self, diff: Diff) -> WalkState:
        """The state ``diff``, worked out on first use."""
        if diff not in self.nodes:
            self.nodes[diff] = self._work_out(diff)
        return self.nodes[diff]

    def _work_out(self, diff: Diff) -> WalkState:
        node = WalkState(diff)
        state = self.machine.tables(diff)
        near = {at for at, _ in diff} | self.judge.looked_at(diff, state)
        affected = self._affected(diff)
        writing = {i for at in near for i in self.writers.get(at, ())}
        memo: Memo = {}
        fresh = self._acting([i for i in affected if i in writing], diff, state, memo)
        frozen = self._frozen(near, fresh)
        broken = self.judge.lost(diff, state, frozen)
        if broken is not None:
            node.lost = True
            self._remember(diff, broken, fresh)
            return node
        fresh |= self._acting([i for i in affected if i not in fresh], diff, state, memo)
        if self.judge.allowed(diff) and self.judge.rules_hold(diff, state):
            node.answers = list(self.judge.submissions(state))
        node.failing = self.base_failing
        for i, group in fresh.items():
            node.failing += group.failing - self.base[i].failing
        for i in self.base_moves:
            if i not in fresh:
                self._add_moves(node, self.base[i])
        for group in fresh.values():
            self._add_moves(node, group)
        return node

    def _add_moves(self, node: WalkState, group: Group) -> None:
        for move in group.moves:
            self.budget.spend()
            to = self.machine.after(node.diff, move.writes)
            if to == node.diff:
                node.failing += move.weight
            elif not self._intrudes(to) and not self._known_lost(node.diff, to):
                node.edges.append(Edge(move.call, to, move.weight))

    def _remember(self, diff: Diff, broken: set[RowId], fresh: dict[int, Group]) -> None:
        """Note the changed rows that alone make a state hopeless: wherever they turn up, it is."""
        core, todo = set(broken), list(broken)
        while todo:
            for i in self.writers.get(todo.pop(), ()):
                group = fresh.get(i, self.base[i])
                for relation, key in () if self._useless(group) else group.reads:
                    at = (relation, key or "")
                    if relation in self.machine.mutable and at not in core:
                        core.add(at)
                        todo.append(at)
        # What froze those rows takes part: without it some call could still put them right.
        items = frozenset(item for item in diff if item[0] in core)
        kept = core - {at for at, _ in items}
        if any(not self._useless(self.base[i]) for at in kept for i in self.writers.get(at, ())):
            return  # another way here may have changed a row that is as it was
        for item in items:
            self.cores.setdefault(item, []).append(items)

    def _known_lost(self, before: Diff, diff: Diff) -> bool:
        """Whether ``diff`` holds a hopeless core that ``before`` didn't."""
        known, whole = set(before), set(diff)
        return any(
            core <= whole for item in diff if item not in known for core in self.cores.get(item, ())
        )

    def _affected(self, diff: Diff) -> list[int]:
        """The groups that may act otherwise than at the start."""
        found: dict[int, None] = {}
        for (relation, key), _ in diff:
            near = (*self.readers.get((relation, key), ()), *self.readers.get((relation, None), ()))
            found |= dict.fromkeys((*near, *self.writers.get((relation, key), ())))
        return list(found)

    def _acting(self, groups: list[int], diff: Diff, state: Tables, memo: Memo) -> dict[int, Group]:
        """Some groups as they act in ``state``, as ``diff`` tells it."""
        found: dict[int, Group] = {}
        for i in groups:
            found[i] = group = self._acted(i, diff) or self._act(i, diff, state, memo)
            self.budget.spend(1 + len(group.moves))
        return found

    def _acted(self, i: int, diff: Diff) -> Group | None:
        """A group as it acted in another state in which the rows that it read were the same."""
        known = self.acted.get(i, {})
        for reads, groups in known.items():
            group = groups.get(among(diff, reads))
            if group is not None:
                return group
        return None

    def _act(self, i: int, diff: Diff, state: Tables, memo: Memo) -> Group:
        """A group as it acts in a state, kept for others that are the same to it."""
        base = self.base[i]
        group = Group(base.tool, base.lead, base.weight)
        self.machine.act(group, state, memo)
        reads = frozenset(group.reads)
        self.acted.setdefault(i, {}).setdefault(reads, {})[among(diff, reads)] = group
        return group

    def _frozen(self, near: set[RowId], fresh: dict[int, Group]) -> set[RowId]:
        """Those of some rows that no call can change any more.

        A row is frozen if every group that may ever write it fails now, and for reasons that lie in
        frozen or immutable rows: the largest such set, since rows may hold each other fast. Calls after
        which nothing is accepted count as failing: a walk that makes one is lost anyway.
        """
        writers = {
            at: [fresh.get(i, self.base[i]) for i in self.writers.get(at, ())]
            for at in near
            if at[0] not in self.loose
        }
        frozen = set(writers)
        while True:
            kept = {at for at in frozen if all(self._fails(g, frozen) for g in writers[at])}
            if kept == frozen:
                return frozen
            frozen = kept

    def _fails(self, group: Group, frozen: set[RowId]) -> bool:
        """Whether the calls of a group fail as long as ``frozen`` rows stay as they are."""
        mutable = self.machine.mutable
        if self._useless(group):
            return True
        held = all(at in frozen or at[0] not in mutable for at in group.reads)
        return held and not group.moves and not group.doomed

    def _useless(self, group: Group) -> bool:
        """Whether the calls of a group fail or are the end, in whatever state."""
        return bool(group.doomed) and group.tool.fixed_keys and self.only_updates

    def chance(self) -> float:
        """The probability that a walk is accepted."""
        spread: dict[Diff, float] = {(): 1.0}
        total = 0.0
        for _ in range(self.goal.max_calls + 1):
            after: dict[Diff, float] = {}
            for diff, mass in spread.items():
                node = self.node(diff)
                if node.lost:
                    continue
                total += mass * len(node.answers) / self.num_submissions
                if node.failing:
                    after[diff] = after.get(diff, 0.0) + mass * node.failing
                for edge in node.edges:
                    after[edge.to] = after.get(edge.to, 0.0) + mass * edge.weight
            spread = after
        return total / (self.goal.max_calls + 1)


def walk_density(p: Problem, db: Tables, rng: Random, *, steps: int, samples: int) -> Density:
    """The chance of an accepted walk: exact over the graph of states, else sampled."""
    assert isinstance(p.goal, Reach)
    try:
        walks = Walks(p, db, StepBudget(steps))
        share = walks.chance()
    except OutOfStepsError:
        return _sampled(p, db, rng, samples)
    except ConfigError:
        return Density(value=0.0, low=0.0, high=1.0, method="unknown", space=0.0)
    space = num_walks(walks.machine, p.goal) * walks.num_submissions
    return Density(value=share, low=share, high=share, method="exact", space=space)


def num_walks(machine: Machine, goal: Reach) -> float:
    """How many different walks there are; at most 1e300."""
    num_calls = 0.0
    for tool in machine.tools:
        ways = 1.0
        for name, choices in tool.domains.items():
            span = tool.spans.get(name)
            ways *= len(choices) if span is None else span.high - span.low + 1
        num_calls += ways
    if goal.max_calls * log10(max(num_calls, 1.0)) > 290:
        return 1e300
    return sum(num_calls**m for m in range(goal.max_calls + 1))


def _sampled(p: Problem, db: Tables, rng: Random, samples: int) -> Density:
    assert isinstance(p.goal, Reach)
    machine = Machine(p, db)
    judge = Judge(p, machine)
    hits, n = 0.0, 0
    num_submissions = judge.num_submissions
    exact_end = num_submissions <= MAX_SUBMISSIONS
    for _ in range(samples):
        n += 1
        diff = _walk(machine, p.goal, rng)
        state = machine.tables(diff)
        if exact_end and judge.allowed(diff) and judge.rules_hold(diff, state):
            accepted = sum(1 for _ in judge.submissions(state))
            hits += rng.random() < accepted / num_submissions
    low, high = wilson(int(hits), n)
    space = num_walks(machine, p.goal) * num_submissions
    return Density(value=hits / n, low=low, high=high, method="sampled", space=space, n=n)


def _walk(machine: Machine, goal: Reach, rng: Random) -> Diff:
    diff: Diff = ()
    state = machine.db
    for _ in range(rng.randint(0, goal.max_calls)):
        tool = rng.choice(machine.tools)
        writes = machine.call(tool, _draw(tool, rng), state)
        if writes:
            diff = machine.after(diff, writes)
            state = machine.tables(diff)
    return diff


def _draw(tool: Tool, rng: Random) -> dict[str, Any]:
    args = {}
    for name, choices in tool.domains.items():
        span = tool.spans.get(name)
        if span is not None:
            args[name] = rng.randint(span.low, span.high)
        else:
            args[name] = rng.choice(choices).value
    return args


def plans(walks: Walks, rng: Random) -> Iterator[Plan]:
    """Accepted plans without idle calls, short ones first, in random order within a length."""
    for length in range(walks.goal.max_calls + 1):
        yield from _paths(walks, (), length, (), rng, {})


def _paths(
    walks: Walks,
    diff: Diff,
    length: int,
    calls: tuple[Call, ...],
    rng: Random,
    dead: dict[tuple[Diff, int], bool],
) -> Iterator[Plan]:
    """Plans from ``diff`` with exactly ``length`` more calls; ``dead`` remembers fruitless states."""
    if dead.get((diff, length)):
        return
    node = walks.node(diff)
    found = False
    if node.lost:
        pass
    elif length == 0:
        for answer in rng.sample(node.answers, len(node.answers)):
            found = True
            yield Plan(calls, answer)
    else:
        for edge in rng.sample(node.edges, len(node.edges)):
            for plan in _paths(walks, edge.to, length - 1, (*calls, edge.call), rng, dead):
                found = True
                yield plan
    if not found:
        dead[diff, length] = True


def wilson(hits: int, n: int, z: float = Z) -> tuple[float, float]:
    """Score interval for a proportion (Wilson 1927); without hits its upper end is at least 3 / n."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if hits == 0 else max(middle - half, 0.0)
    return low, min(max(middle + half, 3 / n), 1.0)
