"""Categories at work, several at a time: each written, proven, read and played; what came of it is kept."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import EnvgenError, PolicyError
from envgen.core.limits import Seconds, Text
from envgen.core.seeding import derive
from envgen.core.threads import Threads
from envgen.core.types import Message, PublicTask, Record, Sampling, Usage
from envgen.environments.search import open_corpus
from envgen.pipelines.author.code_folder import CodeRun, rows_of, shown, write_code
from envgen.pipelines.author.code_form import CodeAuthors
from envgen.pipelines.author.config import AuthorConfig
from envgen.pipelines.author.page_agent import MOST_CHARS, PageRun, Round, said, write_page
from envgen.pipelines.author.panel import band, play
from envgen.pipelines.author.panel import told as told_rate
from envgen.pipelines.author.review import ReviewFinding, review, review_texts, told
from envgen.pipelines.author.taxonomy import Category
from envgen.pipelines.boundary import spared
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.packed.folder import EnvironmentFolder
from envgen.pipelines.packed.pack import pack
from envgen.pipelines.search.roles import CorpusLibrary
from envgen.policies.agent import AgentConfig
from envgen.policies.base import BudgetExceededError, Policy, PolicyReply, Tool
from envgen.policies.budget import Budget
from envgen.policies.preflight import preflight
from envgen.policies.registry import PolicyConfig, parse_policy, unknown_policy
from envgen.policies.repeats import Repeats
from envgen.policies.replay import RecordPolicy
from envgen.rollout.gold import POLICY_KINDS
from envgen.sandboxes.base import Sandbox, SandboxSpec, create
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.corpus import Corpus
from envgen.store.corpus_lines import package_corpus
from envgen.store.dataset import Dataset

logger = logging.getLogger(__name__)
Progress = Callable[[int, int, str], None]
TRIAL_DRAFTS = 2
"""Of each level, that are tried before an author is told why none was proven."""
_MUTANTS = (
    "Mutants are small faults planted in the verifier, in the rule that is named; those that survive "
    "change no verdict on any answer and rows that were tried. Often the rule says one thing several "
    "times: where it adds up what items share once for each item (all(total(slot[k].rack) <= ... for k "
    "in range(1, n + 1))), another item's turn covers each fault; ask once for each of what they share "
    "(all(... for r in racks)). Or its bound is hardly ever met: draw coarser numbers, or more rows "
    "near it."
)
"""Advice on the gate ``mutants``."""
_MOST_REASONS = 6
_REASON_CHARS = 500
_RECORDED = ("replay:", "record:", "batch:")


class CategoryOutcome(Record):
    """What became of a category."""

    category: Category
    kept: bool
    why: Text = ""
    """Why not."""
    run: PageRun | None = None
    code: CodeRun | None = None
    """In form code."""
    reviews: tuple[tuple[ReviewFinding, ...], ...] = ()
    """Of each page that was proven."""
    usage: Usage = Usage()
    """Of author and reviewer."""
    proving_seconds: Seconds = 0.0


class _Metered:
    """Counts what a policy's replies cost, whatever becomes of the conversation.

    Not thread-safe: a category is made by one thread.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name = policy, policy.name
        self.usage = Usage()

    @property
    def version(self) -> str:
        """The policy's."""
        return self._policy.version

    def respond(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling, *,
        deadline: float | None = None, cancel: Event | None = None, seed: int, task: PublicTask,
    ) -> PolicyReply:  # fmt: skip
        """The policy's reply."""
        reply = self._policy.respond(
            messages, tools, sampling, deadline=deadline, cancel=cancel, seed=seed, task=task
        )
        self.usage += reply.usage
        return reply


class Authoring:
    """Categories at work, several at a time; one of them is proven at a time, on all cores."""

    def __init__(
        self, config: AuthorConfig, making: GenerateConfig, out: Path, budget: Budget, check: bool,
        workers: int | None, backend: WorkerBackend,
    ) -> None:  # fmt: skip
        self.config, self.making = config, making
        self.workers, self.backend = workers, backend
        self.pages = out.with_name(f"{out.name}.pages")
        self.stopped, self.fatal = "", None  # type: str, PolicyError | None
        self._calls, self._budget = out.with_name(f"{out.name}.calls"), budget
        self._proving, self._repeats = Lock(), Repeats(5)
        corpus = package_corpus() if config.corpus is None else Corpus(config.corpus)
        corpus.remember()
        self.library = CorpusLibrary(open_corpus(corpus.hash))
        for spec in config.panel:
            if spec.partition(":")[0] not in POLICY_KINDS:
                raise unknown_policy(spec)
        self.author = self._policy(config.author, check)
        self.reviewer = self._policy(config.reviewer, check) if config.reviewer else self.author

    def _policy(self, spec: str, check: bool) -> Policy:
        policy = parse_policy(
            PolicyConfig(spec=spec, options=self.config.options), budget=self._budget
        )
        if check:
            preflight(policy, Sampling())
        return policy

    def all(
        self, found: Sequence[Category], concurrency: int, progress: Progress | None
    ) -> list[CategoryOutcome]:
        """What became of each category."""
        outcomes: list[CategoryOutcome] = []
        with Threads(concurrency) as pool:
            for outcome in pool.map(self._guarded, found):
                outcomes.append(outcome)
                if progress:
                    kept = sum(one.kept for one in outcomes)
                    cost = sum(one.usage.cost_usd for one in outcomes)
                    text = f"{kept} of {len(outcomes)} categories kept, {cost:.2f} USD"
                    progress(len(outcomes), len(found), text)
        return outcomes

    def _guarded(self, category: Category) -> CategoryOutcome:
        """One category; what breaks in it drops it alone, but for a model that keeps failing so."""
        known = self._known(category)
        if known is not None:
            return known
        if self.stopped:
            return CategoryOutcome(category=category, kept=False, why="not begun")
        author, reviewer = self._recorded(category)
        make = self._coded if self.config.form == "code" else self._category
        outcome = None
        try:
            outcome = make(category, author, reviewer)
        except BudgetExceededError as error:
            self.stopped = str(error)
            why = "the budget was spent"
        except PolicyError as error:
            if self._repeats.too_many(str(error)):
                self.fatal, self.stopped = error, f"stopped, since this will not pass: {error}"
            why = f"no reply: {str(error)[:200]}"
        except Exception as error:  # the boundary; not kept: a mended envgen does it again
            why = spared(category.id, error)
        spent = author.usage + reviewer.usage
        if outcome is None:
            return CategoryOutcome(category=category, kept=False, why=why, usage=spent)
        outcome = outcome.model_copy(update={"usage": spent})
        self._repeats.clear()
        self._keep(outcome)
        return outcome

    def _category(self, category: Category, author: Policy, reviewer: Policy) -> CategoryOutcome:
        config, levels = self.config, self.making.max_level
        seed = derive(self.making.seed, "category", category.id)
        name = f"author/{self.making.seed}/{category.id}"
        reviews: list[tuple[ReviewFinding, ...]] = []
        seconds = [0.0]

        def judge(domain: Domain) -> Round:
            with tempfile.TemporaryDirectory(prefix="envgen-author-") as folder:
                started = time.monotonic()
                with self._proving:
                    trial, finding = self._proven(domain, Path(folder) / "trial", seed)
                seconds[0] += time.monotonic() - started
                if finding or trial is None:
                    return Round(stage="proof", finding=finding[:MOST_CHARS])
                which = f"{name}/review/{len(reviews)}"
                read = review(reviewer, category, trial, name=which, seed=seed)
                if read.answer is None:  # see ``why`` below
                    return Round(stage="review")
                reviews.append(tuple(read.answer.findings))
                if any(one.blocking for one in read.answer.findings):
                    text = "A reader of the tasks says:\n" + told(read.answer.findings)
                    return Round(stage="review", finding=text[:MOST_CHARS])
                return self._solved(trial, category, Path(folder))

        agent = AgentConfig(
            turns=config.turns, submissions=config.submissions,
            tokens=config.max_tokens_per_category, seed=seed,
        )  # fmt: skip
        with _place(self.backend) as place:
            run = write_page(author, category, levels, place, self.library, judge, agent, name=name)
        why = "" if run.page else _why(run)
        if run.page and not reviews:
            run, why = run.model_copy(update={"page": None}), "no review could be read"
        return CategoryOutcome(
            category=category, kept=not why, why=why, run=run, reviews=tuple(reviews),
            proving_seconds=seconds[0],
        )  # fmt: skip

    def _coded(self, category: Category, author: Policy, reviewer: Policy) -> CategoryOutcome:
        """An environment in code: built, checked and solved in conversations of their own."""
        config, started = self.config, time.monotonic()
        seed = derive(self.making.seed, "category", category.id)
        name = f"author/{self.making.seed}/{category.id}/code"
        reviews: list[tuple[ReviewFinding, ...]] = []

        def read(folder: EnvironmentFolder) -> str:
            with tempfile.TemporaryDirectory(prefix="envgen-author-") as scratch:
                database = Path(scratch) / "database.sqlite"
                database.write_bytes(folder.database)
                text = f"{shown(folder)}\n\nrows:\n" + "\n".join(rows_of(database))
            which = f"{name}/review/{len(reviews)}"
            found = review_texts(reviewer, category, [text], name=which, seed=seed)
            if found.answer is None:
                return "the reviewer's words can't be read; hand in again"
            reviews.append(tuple(found.answer.findings))
            if any(one.blocking for one in found.answer.findings):
                return "A reader says:\n" + told(found.answer.findings)
            return ""

        agent = AgentConfig(
            turns=config.turns, submissions=config.submissions,
            tokens=config.max_tokens_per_category, seed=seed,
        )  # fmt: skip
        code = CodeAuthors(
            author, category, agent, name=name, backend=self.backend,
            place=lambda: _place(self.backend), read=read,
            played=lambda found: self._played(found, category),
        ).run()  # fmt: skip
        return CategoryOutcome(
            category=category, kept=not code.why, why=code.why, code=code, reviews=tuple(reviews),
            proving_seconds=time.monotonic() - started,
        )  # fmt: skip

    def _played(self, found: CodeRun, category: Category) -> Round:
        """What the panel makes of an environment in code."""
        if not self.config.panel:
            return Round(stage="review")
        with tempfile.TemporaryDirectory(prefix="envgen-author-") as scratch:
            folder = Path(scratch) / category.id
            write_code(folder, category, found)
            summary = pack(folder, Path(scratch) / "trial", backend=self.backend)
            return self._solved(Dataset.open(summary.path), category, Path(scratch))

    def _proven(self, domain: Domain, out: Path, seed: int) -> tuple[Dataset | None, str]:
        """A dataset with a task of each level, and what is wrong with those that are missing."""
        levels = self.making.max_level
        trial = GenerateConfig(
            pages=(domain,), environments=levels, tasks_per_environment=1, max_level=levels,
            seed=derive(seed, "trial"),
        )  # fmt: skip
        try:
            made = generate(
                trial, out, workers=self.workers, backend=self.backend, attempts=TRIAL_DRAFTS
            )
        except EnvgenError as error:
            return None, _compact(f"no task was proven. {said(error)}")
        dataset = Dataset.open(out)
        have = {dataset.facts(name).level for name in dataset.tasks}
        missing = sorted(set(trial.levels) - have)
        if not missing:
            return dataset, ""
        wanted = tuple(f" level {level}: " for level in missing)
        reasons = [one for one in made.reasons if any(level in one for level in wanted)]
        lines = [f"Proven are the levels {sorted(have)}; not: {missing}."]
        lines += [_compact(one) for one in reasons[:_MOST_REASONS]]
        lines += [_MUTANTS] if any(": mutants: " in one for one in reasons) else []
        return None, "\n".join(lines)

    def _solved(self, trial: Dataset, category: Category, folder: Path) -> Round:
        """What the panel makes of it, if there is one."""
        if not self.config.panel:
            return Round(stage="review")
        players = [
            PolicyConfig(
                spec=self._kept(spec, category, number),
                options=self.config.options if "@" in spec else {},
            )
            for number, spec in enumerate(self.config.panel, 1)
        ]
        found = play(trial, players, self.config.panel_episodes, folder / "runs", self._budget)
        wanted = band(self.config.target_pass)
        return Round(
            stage="panel",
            finding=told_rate(found, wanted),
            rate=found.rate,
            missed=found.distance(wanted),
        )

    def _kept(self, spec: str, category: Category, number: int) -> str:
        """A model of the panel, what it says kept; players of this process need no record."""
        if "@" not in spec or spec.startswith(_RECORDED):
            return spec
        return f"record:{self._calls / category.id / f'panel-{number}.jsonl'}:{spec}"

    def _recorded(self, category: Category) -> tuple[_Metered, _Metered]:
        """Author and reviewer, what they say kept in a file of the category's own."""

        def of(policy: Policy, spec: str, role: str) -> _Metered:
            if spec.startswith(_RECORDED):
                return _Metered(policy)
            return _Metered(RecordPolicy(policy, self._calls / category.id / f"{role}.jsonl"))

        return (
            of(self.author, self.config.author, "author"),
            of(self.reviewer, self.config.reviewer or self.config.author, "reviewer"),
        )

    def _file(self, category: Category) -> Path:
        key = {
            "category": category.model_dump(mode="json"), "levels": self.making.max_level,
            "author": self.config.model_dump(mode="json", exclude={"options"}), "seed": self.making.seed,
        }  # fmt: skip
        return self.pages / f"{category.id}.{content_hash(key)[:12]}.json"

    def _known(self, category: Category) -> CategoryOutcome | None:
        """What became of a category in an earlier run of the same configuration."""
        path = self._file(category)
        if not path.is_file():
            return None
        try:
            return CategoryOutcome.model_validate_json(path.read_text("utf-8"))
        except ValueError:
            logger.warning("%s can't be read; its category is done again", path)
            return None

    def _keep(self, outcome: CategoryOutcome) -> None:
        path = self._file(outcome.category)
        path.parent.mkdir(parents=True, exist_ok=True)
        if outcome.code is not None and outcome.kept:
            shutil.rmtree(self.pages / outcome.category.id, ignore_errors=True)
            write_code(self.pages / outcome.category.id, outcome.category, outcome.code)
        if outcome.run is not None and outcome.run.page:
            (self.pages / f"{outcome.category.id}.toml").write_text(outcome.run.page, "utf-8")
        path.write_text(pretty(outcome), "utf-8")


def _place(backend: WorkerBackend) -> Sandbox:
    """Where an author's bash runs: no network, nothing of this machine."""
    name = backend if backend in ("bubblewrap", "docker") else "auto"
    return create(SandboxSpec(memory_bytes=1 << 30, disk_bytes=64 << 20, wall_s=60.0), name)


def _why(run: PageRun) -> str:
    """Why an author's page was not kept, to be counted."""
    last = run.rounds[-1].stage if run.rounds else ""
    return f"the author: {run.ended}" + (f", the last page refused by the {last}" if last else "")


def _compact(reason: str) -> str:
    return reason if len(reason) <= _REASON_CHARS else f"{reason[:_REASON_CHARS]} ..."
