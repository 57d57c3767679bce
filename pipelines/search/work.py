"""Questions at work, several at a time: what the kinds of questions that models write have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from itertools import islice
from random import Random
from threading import Lock
from typing import NamedTuple

from envgen.core.errors import PolicyError, SearchEngineError
from envgen.core.seeding import rng
from envgen.core.threads import Threads
from envgen.core.types import Sampling, Usage
from envgen.pipelines.boundary import spared
from envgen.pipelines.search.config import WrittenConfig, bounds
from envgen.pipelines.search.open_questions import OpenQuestion
from envgen.pipelines.search.roles import Library, Role
from envgen.pipelines.search.web.engines import KeyRefusedError, QuotaSpentError
from envgen.pipelines.search.written import WrittenQuestion
from envgen.policies.base import BudgetExceededError, Policy
from envgen.policies.repeats import Repeats
from envgen.verifiers.answers import fold

Progress = Callable[[int, int, str], None]
Asked = WrittenQuestion | OpenQuestion
_NOT_BEGUN = "not begun"
VERIFIER = Role(sampling=Sampling(temperature=0.7), turns=30)


class QuestionOutcome(NamedTuple):
    """A question that is kept, or why there is none."""

    question: Asked | None
    why: str = ""


class Agents(NamedTuple):
    """The models of all roles."""

    writer: Policy
    answerers: tuple[tuple[Policy, Role], ...]
    verifier: Policy


class Asking(NamedTuple):
    """What one question is to be like."""

    number: int
    seed: str
    """The document to begin at."""
    depth: int
    breadth: int
    language: str


class QuestionWork(ABC):
    """Questions at work, several at a time."""

    def __init__(
        self, config: WrittenConfig, library: Library, agents: Agents, seeds: Sequence[str]
    ) -> None:
        self.config, self.library, self.agents, self.seeds = config, library, agents, seeds
        self.dropped: Counter[str] = Counter()
        self.usage, self.conversations, self.begun, self.stopped = Usage(), 0, 0, ""
        self._lock = Lock()
        self._repeats = Repeats(5)
        self._fatal: PolicyError | SearchEngineError | None = None
        self._over = False
        self.beside: Threads

    def questions(self, concurrency: int, progress: Progress | None) -> Iterator[Asked]:
        """The questions that were kept, in the order of their numbers, until there are enough."""
        wanted, kept, seen = self.config.questions, 0, set[str]()
        for outcome in self._outcomes(concurrency):
            if outcome.why == _NOT_BEGUN:
                continue
            self.begun += 1
            question = outcome.question
            if question is None or fold(question.question) in seen:
                self.dropped[outcome.why or "asked twice"] += 1
            else:
                seen.add(fold(question.question))
                kept += 1
                yield question
            if progress:
                progress(kept, wanted, f"{self.begun} tried, {self.usage.cost_usd:.2f} USD")
            if kept == wanted:
                break
        if self._fatal is not None and not kept:
            raise self._fatal

    def _outcomes(self, concurrency: int) -> Iterator[QuestionOutcome]:
        """What became of each question, in order; some later ones are at work meanwhile."""
        numbers = iter(range(self.config.questions * self.config.attempts))
        # Two pools: a question waits for its answerers and verifiers, who never wait for one another.
        beside = Threads(concurrency * max(self.config.passes, len(self.agents.answerers)))
        with Threads(concurrency, beside.over) as pool, beside as self.beside:
            waiting = deque(pool.submit(self._guarded, one) for one in islice(numbers, concurrency))
            try:
                while waiting:
                    yield waiting.popleft().result()
                    if not self.stopped:  # what is at work then may still be kept
                        waiting += (pool.submit(self._guarded, one) for one in islice(numbers, 1))
            finally:
                self._over = True
                for one in waiting:
                    one.cancel()

    def _guarded(self, number: int) -> QuestionOutcome:
        """One question. What breaks in it drops it alone, but for a model or engine that keeps failing so."""
        if self.stopped or self._over:
            return QuestionOutcome(None, _NOT_BEGUN)
        try:
            outcome = self.question(self._asking(number))
        except BudgetExceededError as error:
            self.stopped = str(error)
            return QuestionOutcome(None, "the budget was spent")
        except (PolicyError, SearchEngineError) as error:
            hopeless = isinstance(error, KeyRefusedError | QuotaSpentError)
            refused = isinstance(error, PolicyError) and error.status == HTTPStatus.UNAUTHORIZED
            if hopeless or refused or self._repeats.too_many(str(error)):
                self._fatal, self.stopped = error, f"stopped, since this will not pass: {error}"
            return QuestionOutcome(None, f"no reply: {str(error)[:200]}")
        except Exception as error:  # the boundary: one question is dropped, the run goes on
            return QuestionOutcome(None, spared(f"question {number}", error))
        self._repeats.clear()
        return outcome

    @abstractmethod
    def question(self, asking: Asking) -> QuestionOutcome:
        """Have one question written and proven."""

    def _asking(self, number: int) -> Asking:
        config = self.config
        draws: Random = rng(config.seed, "written", number)
        languages = config.language.split(",")
        depth, breadth = (draws.choice(bounds(one)) for one in (config.depth, config.breadth))
        language = languages[number % len(languages)]
        return Asking(number, draws.choice(self.seeds), depth, breadth, language)

    def name(self, *parts: int | str) -> str:
        """Of a conversation: its draws follow from it."""
        return "/".join(map(str, ("search", self.config.seed, *parts)))

    def count(self, usage: Usage) -> None:
        """Count a conversation and what it cost."""
        with self._lock:
            self.usage += usage
            self.conversations += 1


def without_names(why: str) -> str:
    """A reason that can be counted: without numbers, answers and names."""
    return re.sub(r"\d+|'.*'|of .* was", "", why)
