"""Bounds just beyond the k-th best answer: find them, check that every rule binds, refuse easy tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Protocol

from envgen.core import ir
from envgen.core.ir import NEAREST, Scalar
from envgen.pipelines.general.authoring.edges import between, holds_below, just_met, other_side
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.space.elimination import nth_least
from envgen.pipelines.general.space.model import Model, OutOfStepsError, StepBudget, TooHardError
from envgen.pipelines.general.space.ranking import Ranking

Params = dict[str, Scalar]
_STEPS = 60_000
"""Step budget of the search for the k best answers, and for near-misses as good."""
_MORE = 3
"""Sums behind the k-th best that are looked at for a gap."""
_SPAN = 3
"""How far past the best answer a bound may lie that nothing keeps, where sums lie closer to one another."""
_LOOSE = 10**12
"""A bound on a sum that every answer keeps."""


class TightRules(Protocol):
    """What the bounds of a problem are, whatever the rows: an ``Analysis``."""

    edges: dict[str, ir.Cmp]
    best: dict[str, int]
    explains: bool
    optimum: bool
    failed: Counter[str]

    @property
    def parts(self) -> tuple[tuple[str, ir.Node], ...]:
        """(rule, conjunct) for each conjunct of every rule."""


class TightBounds:
    """Sets the edges with ``best`` of one task over given rows."""

    def __init__(
        self,
        analysis: TightRules,
        space: Model,
        groups: Sequence[Sequence[int]],
        model: Callable[[Params, Collection[str]], Model],
        rng: Random,
    ) -> None:
        """Prepare for one task.

        Args:
            analysis: of its rules.
            space: its bare model, with a compiler of free parameters.
            groups: positions of the slots of each item.
            model: gives the model of all rules but those about some parameters.
            rng: chooses a bound between two sums.
        """
        self.analysis, self.space, self.groups, self.model = analysis, space, groups, model
        self.rng = rng
        self.ranking: Ranking | None = None
        """Of the answers by the sum set last; None where elimination set it, or nothing did."""
        self.gap, self.spread = 0, 0
        """How many sums nothing has where the bound lies, and how far the last looked at is from the best."""
        self.bound, self.rule, self.name = 0, "", ""
        """The largest sum allowed (signed: less is better), the rule about it, its parameter."""

    def set(self, name: str, params: Params, later: Collection[str]) -> bool:
        """Add to ``params`` the bound that the k best of all answers keep; False if there is none.

        Args:
            name: of the bound.
            params: all that are known.
            later: bounds that are not known yet, ``name`` among them.

        Raises:
            OutOfStepsError: where neither search nor elimination finds that answer in time.
        """
        analysis = self.analysis
        edge, k = analysis.edges[name], analysis.best[name]
        sign = 1 if holds_below(edge, name) else -1
        open_ = [analysis.edges[other] for other in later]
        parts = [(rule, e) for rule, e in analysis.parts if all(e is not one for one in open_)]
        bound: int | None = None
        # The ranking comes first because it lists answers: ``binds`` and ``past`` ask it for near-misses
        # within the bound. Elimination gives nothing but the sum; it is for tasks where the search would be
        # too long.
        try:
            measure = (other_side(edge, name), sign)
            self.ranking = Ranking(self.space, self.groups, parts, measure, params)
            found = [one.total for one in self.ranking.best(k + _MORE, StepBudget(_STEPS))]
            bound = self._between(found, k)
        except (TooHardError, OutOfStepsError):
            self.ranking = None
            bound = self._eliminated(name, k, params, [o for o in later if o != name])
        if bound is None:
            analysis.failed[f"fewer than {k} answers keep all other rules"] += 1
            return False
        self.bound, self.name = bound, name
        self.rule = next(rule for rule, e in analysis.parts if e is edge)
        params[name] = just_met(edge, name, sign * bound)
        return True

    def _between(self, totals: Sequence[int], k: int) -> int | None:
        """A bound between the k-th best of these sums, or one of the next, and the one behind it.

        None if there are fewer than k. For an optimum, and where sums have no gap, it is the k-th itself.
        """
        if len(totals) < k:
            return None
        if self.analysis.optimum:
            return totals[k - 1]
        self.gap, self.spread = 0, totals[-1] - totals[0]
        for kept, beyond in zip(totals[k - 1 :], totals[k:], strict=False):
            if kept + 1 < beyond:
                self.gap = beyond - kept - 1
                return int(between(kept, beyond, self.rng))
        return totals[k - 1]

    def _eliminated(self, name: str, k: int, params: Params, later: list[str]) -> int | None:
        """The signed sum of the k-th best answer, by variable elimination."""
        edge = self.analysis.edges[name]
        loose = _LOOSE if holds_below(edge, name) else -_LOOSE
        model = self.model({**params, name: just_met(edge, name, loose)}, later)
        # What the terms leave out of the sum is known from the bound that they got.
        rest = _LOOSE - next((linear.bound for linear in model.linears), 0)
        try:
            totals: list[int] = []
            while (least := nth_least(model, k + len(totals))) is not None:
                totals.append(least + rest)
                if len(totals) > _MORE or totals[-1] - totals[0] > len(totals) - 1:
                    break
        except TooHardError:
            raise OutOfStepsError from None
        return self._between(totals, 1)

    def binds(self) -> bool:
        """Whether each rule is broken alone by some answer within the bound, and the bound by another."""
        assert self.ranking is not None
        analysis, ranking, budget = self.analysis, self.ranking, StepBudget(_STEPS)
        others = [rule for rule in dict.fromkeys(r for r, _ in analysis.parts) if rule != self.rule]
        missing = list[str]()
        # That nothing breaks a rule alone is told by a search to its end: where nobody asks for all that is
        # missing, the rule that was missing often goes first, and one is enough.
        if not analysis.explains:
            others.sort(key=lambda rule: -analysis.failed[alone(rule)])
        try:
            for rule in others:
                if analysis.explains or not missing:
                    missing += [] if ranking.near_miss(rule, self.bound, budget) else [rule]
            if analysis.explains or not missing:
                above = ranking.above(self.bound, StepBudget(_STEPS))
                missing += [] if above else [self.rule]
        except OutOfStepsError:
            analysis.failed["near-misses within the bound take too long to find"] += 1
            return False
        analysis.failed.update(map(alone, missing))
        return not missing

    def past(self, params: Params) -> Params | None:
        """``params`` with the bound past the best answer, which ``NEAREST`` tells.

        It lies in a gap as wide as that of the bound that it replaces, so that it is as round, and no further
        from the best than the sums behind. Each other rule is broken alone by something that is as near as
        the best. None where that takes too long to find.
        """
        if self.ranking is None:
            return None
        edge = self.analysis.edges[self.name]
        others = dict.fromkeys(rule for rule, _ in self.analysis.parts if rule != self.rule)
        ranking, budget = self.ranking, StepBudget(_STEPS)
        try:
            best = ranking.best(1, StepBudget(_STEPS))[0].total
            if not all(ranking.near_miss(rule, best, budget) for rule in others):
                return None
        except OutOfStepsError:
            return None
        below = holds_below(edge, self.name)
        sign = 1 if below else -1
        first = best - 1 - self.rng.randint(0, max(_SPAN, self.spread))
        past = between(first + 1, first - self.gap, self.rng) if self.gap else first
        met = {self.name: past, NEAREST: best}
        found = {name: just_met(edge, self.name, sign * at) for name, at in met.items()}
        for name, other in self.analysis.edges.items():  # the same sum, bounded from its other side
            if name != self.name and other_side(other, name) == other_side(edge, self.name):
                if (found[self.name] < params[name]) == below:
                    return None
        return params | found

    def too_easy(self, params: Params) -> bool:
        """Whether a player that looks no further than one slot at a time solves a task with such a bound."""
        if not self.analysis.best:
            return False
        compiler = self.space.compiler
        compiler.bind(params)
        game = AnswerGame(compiler.p, compiler.db, compiler)
        for player in (game.first_row, game.first_fit, game.greedy):
            if game.passes(player()):
                self.analysis.failed[f"{player.__name__} solves it"] += 1
                return True
        return False


def alone(rule: str) -> str:
    """Say why parameters won't do: ``rule``, or "" for all, has no submission that it needs."""
    return f"nothing breaks the rule {rule!r} alone" if rule else "no answer keeps all rules"
