"""Compare what a dataset stores of a task with what proving it derives, and play what it stores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, DatasetError, PipelineError
from envgen.core.ir import Problem
from envgen.core.schema import Validator
from envgen.core.types import (
    Density,
    Difficulty,
    Evidence,
    GateResult,
    GateStatus,
    Limits,
    Probe,
    Record,
)
from envgen.core.version import VERSION
from envgen.environments.runner import run_gold
from envgen.pipelines.boundary import guarded
from envgen.pipelines.evidence import differing_gates
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.draft import (
    FEWEST_TOKENS,
    Draft,
    DraftRequest,
    Proof,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.gates.dataset import AGREEMENT, random_valid_agreement
from envgen.pipelines.general.gates.probes import wrong_forms
from envgen.pipelines.general.gates.trial import (
    Hosts,
    gold_probe,
    judge,
    not_applicable,
    outcome,
    probe_submissions,
)
from envgen.pipelines.general.rendered import differences, differing_texts
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import read_sqlite
from envgen.pipelines.general.words.lexicon import lexicon
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.store.bundles import PAGE, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.manifest import SINCE_3
from envgen.store.sqlite_files import inspect
from envgen.verifiers.holes import is_unsolvable

SINCE_0_2 = frozenset(("compiled", "tools", "evaluation", "difficulty", "unrequested"))
"""Gates that datasets of 0.2 and before don't have."""
EPISODES = 128
"""Most random-valid episodes of the agreement gate, where the evidence doesn't say."""
_WIDEST = 0.5
"""Of the interval of a sampled density, as a share of its upper end."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_FILES = ("solution", "verifier", "constraints", "gold", "probes")
_ELSEWHERE = (*_FILES, "split", "pass_at", "difficulty", "evidence", "limits")
"""Fields of a task that no proof decides, or that are compared on their own."""


def incomparable(task: TaskBundle, draft: Draft, author: str) -> str:
    """The reason why a task's texts can't be compared with what ``author`` compiles; empty if they can."""
    if draft.author != author:
        return f"its author is {draft.author!r}"
    if not task.spec.evidence:  # a draft that nobody has proven so far
        return ""
    found = [one.details.get("envgen") for one in task.spec.evidence if one.gate == "compiled"]
    if found != [VERSION]:
        return f"written by envgen {found[0]}" if found else "written by an older envgen"
    return ""


@lru_cache(maxsize=1)
def first_draft(recipe: str) -> Draft | None:
    """Draft an environment's first task anew from its recipe, a JSON text; None if that gives none.

    Siblings are validated in a row, so the last one is kept.
    """
    found = json.loads(recipe)
    if not isinstance(found, dict):
        return None
    request = {name: found.get(name) for name in ("domain", "level", PAGE)}
    draft = ProceduralAuthor().draft(
        DraftRequest.model_validate(request), int(str(found.get("seed")))
    )
    return draft if isinstance(draft, Draft) else None


@dataclass(frozen=True)
class StoredComparison:
    """One task as it is stored, beside what proving it has just derived."""

    dataset: Dataset
    draft: Draft
    """The task, read from the dataset."""
    proof: Proof
    """The findings of the gates, which have all passed."""
    hosts: Hosts
    seed: int
    """The seed of the proof. The stored figures are those of seed 0."""
    incomparable: str
    """The reason why the task's texts can't be compared; empty if they can."""

    @cached_property
    def task(self) -> TaskBundle:
        """The files of the task."""
        return self.dataset.task_files(self.draft.task_id)

    @property
    def problem(self) -> Problem:
        """The IR behind the task, which has been proven."""
        assert self.draft.problem is not None
        return self.draft.problem

    @property
    def exact(self) -> bool:
        """Whether the stored figures must be those just found."""
        return self.seed == 0 and not self.incomparable

    @property
    def unproven(self) -> bool:
        """Whether nobody says that it was proven: what a proof measures may then be missing."""
        return not self.task.spec.evidence

    @property
    def _unplayed(self) -> bool:
        """Whether nobody says that gold was played: what follows from its calls is then not known."""
        return self.unproven and self.task.gold is None

    def evidence(self) -> Iterator[GateResult]:
        """Compare each kind of thing that is stored, a gate for each."""
        if self.incomparable:
            yield guarded("differences", lambda: differences(self.draft, self._unjudged()))
        yield guarded("stored", self._stored)
        if self._unplayed:
            return
        yield guarded("recipe", self._recipe)
        yield guarded("form", self._form)
        yield guarded("probes", self._probes)
        yield guarded(AGREEMENT, self._agreement)

    def _stored(self) -> GateResult:
        """Fields of the task and the environment, gold and evidence are what follows from IR and proof."""
        task, derived = self.task, task_bundle(self.draft, self.proof)
        spec, other = task.spec, derived.spec
        files = self.dataset.environment_files(self.draft.environment_id)
        bundle = environment_bundle(self.draft)
        database = self.dataset.database(self.draft.task_id)
        assert database is not None
        assert bundle.database is not None
        same = {
            # Another version's IR may say less: fields that it lacks have their defaults.
            "constraints": bool(self.incomparable)
            or dumps(task.constraints) == dumps(derived.constraints),
            "gold": self._unplayed or task.gold == derived.gold,
            "probes": self._probes_agree(task.probes, derived.probes),
            "density": (self.unproven and spec.difficulty.density is None)
            or _agree(spec.difficulty.density, other.difficulty.density, self.exact),
            "database": inspect(database) == inspect(bundle.database),
        }
        differing = [
            *(name for name, holds in same.items() if not holds),
            *_differing(spec, other, skip=_ELSEWHERE),
            *self._difficulty(spec.difficulty, other.difficulty),
            *self._limits(spec.limits, other.limits),
            *_differing(files.spec, bundle.spec, skip=("database", "tools_source", "blueprint")),
            *(f"evidence of {gate}" for gate in self._evidence(other.evidence)),
        ]
        reason = f"stored otherwise than derived: {', '.join(differing)}"
        return outcome("stored", not differing, len(same) + len(other.evidence), reason=reason)

    def _probes_agree(self, stored: Sequence[Probe], derived: Sequence[Probe]) -> bool:
        """Whether these are the probes; of another seed or version, one that breaks each rule is enough."""
        if self.unproven and not stored:
            return True
        if self.exact:
            return stored == derived
        return {probe.clause for probe in derived} <= {probe.clause for probe in stored}

    def _unjudged(self) -> Iterator[str]:
        """Yield the figures that another version may have derived otherwise, and differ."""
        stored, derived = self.task.spec, task_bundle(self.draft, self.proof)
        for name in _differing(stored.difficulty, derived.spec.difficulty, skip=("density",)):
            values = getattr(stored.difficulty, name), getattr(derived.spec.difficulty, name)
            yield f"{name}: {str(values[0])[:60]} in place of {str(values[1])[:60]}"
        if self.task.probes != derived.probes:
            yield f"probes: {len(self.task.probes)} in place of {len(derived.probes)}"
        if ProceduralAuthor().has_recipe(self.draft):
            yield from (f"recipe: {what}" for what in self._drafted())

    def _difficulty(self, stored: Difficulty, derived: Difficulty) -> list[str]:
        """Fields of ``Difficulty`` that differ, density apart.

        Of another seed the shortcuts play other re-seeds. An older format has no such fields.
        """
        skip = {"density"} | (set() if self.exact else {"shortcuts"})
        if self._unplayed:
            skip |= {"gold_calls", "distinct_tools"}
        if self.incomparable or self.unproven:
            skip |= {name for name in SINCE_3 if getattr(stored, name) is None}
        return _differing(stored, derived, skip=tuple(skip))

    def _limits(self, stored: Limits, derived: Limits) -> list[str]:
        """Limits that differ. Up to format 2 of datasets every task had the same number of tokens."""
        old = self.incomparable and stored.tokens == FEWEST_TOKENS
        skip = ("tokens", "turns") if self._unplayed else ("tokens",) if old else ()
        return _differing(stored, derived, skip=skip)

    def _evidence(self, derived: Evidence) -> list[str]:
        """Gates whose stored result is not the derived one, or (of another seed or version) is missing."""
        if self.unproven:
            return []
        stored = tuple(one for one in self.task.spec.evidence if one.gate != AGREEMENT)
        optional = SINCE_0_2 if self.incomparable else ()
        return differing_gates(stored, derived, "results" if self.exact else "names", optional)

    def _recipe(self) -> GateResult:
        """Level and lineage are those of the recipe in blueprint.json, and it leads to this environment."""
        draft = self.draft
        operators = [step.operator for step in draft.lineage]
        recipe = draft.blueprint if isinstance(draft.blueprint, dict) else {}
        faults = []
        if recipe.get("level", draft.level) != draft.level or draft.level != len(operators) + 1:
            faults.append("the level")
        if recipe.get("operators", operators) != operators:
            faults.append("the operators")
        if draft.lineage and draft.lineage[-1].problem_id != self.problem.id:
            faults.append("the lineage's last problem")
        if not self.incomparable:
            faults += self._drafted()
        reason = f"the recipe gives otherwise: {', '.join(faults)}"
        return outcome("recipe", not faults, 1 + len(draft.lineage), reason=reason)

    def _drafted(self) -> Iterator[str]:
        """Yield what differs from a draft made anew; siblings share all but the last step."""
        draft, first = self.draft, first_draft(dumps(self.draft.blueprint))
        if first is None or first.environment_id != draft.environment_id:
            yield "the environment"
        elif draft.lineage[:-1] != first.lineage[:-1]:
            yield "the lineage"
        elif draft.task_id == first.task_id and draft.lineage != first.lineage:
            yield "the lineage's last step"

    def _form(self) -> GateResult:
        """The submit schema takes what the IR's form takes; the public rules say what its clauses do."""
        if not self.incomparable:
            return not_applicable("form", "compared with what is compiled")
        wanted = submit_schema(self.problem, self.draft.tables)
        stored, derived = Validator(self.draft.submit_schema), Validator(wanted)
        gold = self.proof.gold.answer if self.proof.gold else None
        answers = [*(probe.answer for probe in self.task.probes), *wrong_forms(self.problem, gold)]
        faults = [
            f"the schema of {dumps(answer)[:60]}"
            for answer in answers
            if (stored.fault(answer) is None) != (derived.fault(answer) is None)
        ]
        if self.draft.submit_schema.get("x-walk") != wanted.get("x-walk"):
            faults.append("the schema's x-walk")
        faults += self._rules()
        reason = f"not as the IR has it: {', '.join(faults[:3])}"
        return outcome("form", not faults, len(answers) + len(self.draft.rules), reason=reason)

    def _rules(self) -> Iterator[str]:
        """Public rules whose sentences are not in the prompt, or whose parts are not those of the clauses."""
        text = f"{self.draft.prompt}\n{self.draft.policy_text}"
        for rule in self.draft.rules:
            if not all(sentence in text for sentence in _SENTENCE.split(rule.text)):
                yield f"the public rule {rule.text[:60]!r}"
        try:
            derived = public_rules(
                self.problem, prompt(self.problem, lexicon(self.problem.lexicon))
            )
        except (ConfigError, PipelineError):  # other words than this version's: ``stated`` says so
            return
        if len(derived) != len(self.draft.rules):
            yield "the number of public rules"
        for stored_rule, wanted in zip(self.draft.rules, derived, strict=False):
            if stored_rule.model_copy(update={"text": wanted.text}) != wanted:
                yield f"the parts of the public rule {stored_rule.text[:60]!r}"

    def _probes(self) -> GateResult:
        with closing(_tools(self.dataset, self.draft.task_id, self.hosts)) as tools:
            return probes_hold(self.dataset, self.draft.task_id, tools, self.hosts, self.problem)

    def _agreement(self) -> GateResult:
        """Random-valid plays again; with the same seed it does the very same."""
        stored = [one for one in self.task.spec.evidence if one.gate == AGREEMENT]
        episodes = stored[0].details.get("episodes") if stored else None
        again = random_valid_agreement(
            self.dataset.environment_files(self.draft.environment_id).bundle(),
            [self.task],
            episodes=episodes if type(episodes) is int else EPISODES,
            backend=self.hosts.backend,
            seed=self.seed,
            trusted=self.hosts.trusted,
        )
        if self.exact and not self.unproven and stored != again:
            return outcome(AGREEMENT, False, 1, reason="the stored evidence says otherwise")
        if again[0].status is GateStatus.NOT_RUN:
            return not_applicable(AGREEMENT, again[0].reason)
        return again[0]


def replayed(dataset: Dataset, task_id: str, hosts: Hosts) -> Iterator[GateResult]:
    """Run gold again and put every stored probe to the verifier."""
    task = dataset.task_files(task_id)
    specs = dataset.environments[task.spec.environment_id].tools
    if dataset.database(task_id) is None or task.gold is None:
        yield outcome("gold", False, 1, reason="no database or gold")
        return
    with closing(_tools(dataset, task_id, hosts)) as tools:
        run = run_gold(task.solution, specs, tools, hosts.solutions())
        same = run.fault is None and dumps(run.gold.answer) == dumps(task.gold.answer)
        reason = "the solution gives another answer than gold.jsonl"
        yield outcome("gold", same, 1, reason=reason)
        yield probes_hold(dataset, task_id, tools, hosts)


def variant_texts(dataset: Dataset, task_id: str) -> GateResult:
    """A variant asks what its parent asks, over other rows: its texts follow from its own parameters."""
    of = dataset.tasks[task_id].variant_of
    draft, parent = draft_of(dataset, task_id), draft_of(dataset, of) if of else None
    if draft is None or parent is None or draft.problem is None or parent.problem is None:
        return not_applicable("stored", "its parent has no constraint IR to render it from")
    faults = list(differing_texts(draft))
    bound: dict[str, object] = {"params": {}, "id": ""}
    if draft.problem.model_copy(update=bound) != parent.problem.model_copy(update=bound):
        faults.append("its constraint IR is not its parent's")
    reason = f"stored otherwise than derived: {'; '.join(faults[:6])}"
    return outcome("stored", not faults, 1, reason=reason)


def probes_hold(
    dataset: Dataset, task_id: str, tools: ToolHost, hosts: Hosts, problem: Problem | None = None
) -> GateResult:
    """Each stored probe (gold, where none is) gets its verdict from the verifier, and from a given IR."""
    task, database = dataset.task_files(task_id), dataset.database(task_id)
    assert database is not None
    probes = task.probes
    if not probes and task.gold is not None:
        probes = (gold_probe(task.gold, expected=not is_unsolvable(task.spec)),)
    specs = dataset.environments[task.spec.environment_id].tools
    with TemporaryDirectory(prefix="envgen-validate-") as folder:
        submissions = probe_submissions(probes, specs, database, Path(folder), tools)
        scores = judge(task.verifier, submissions, hosts)
        evaluated = [
            problem is None or _as_evaluated(problem, probe, database, Path(str(done.final)))
            for probe, done in zip(probes, submissions, strict=True)
        ]
    wrong = [
        f"{probe.origin} {probe.clause or ''}".strip()
        for probe, score, right in zip(probes, scores, evaluated, strict=True)
        if score.passed != probe.expected or not right
    ]
    return outcome(
        "probes",
        not wrong,
        len(probes),
        figure=1.0 - len(wrong) / max(1, len(probes)),
        reason=f"wrong verdicts on {', '.join(wrong[:3])}",
    )


def _as_evaluated(problem: Problem, probe: Probe, database: Path, final: Path) -> bool:
    """Whether a probe breaks the rules that it is said to: none, one, or for one of no clause any."""
    initial, after = (read_sqlite(problem.relations, path) for path in (database, final))
    held = evaluate(problem, initial, probe.answer, after)
    broken = {rule for rule in held if not held[rule]}
    if probe.expected or not broken:
        return probe.expected and not broken
    return probe.clause is None or broken == {probe.clause}


def _tools(dataset: Dataset, task_id: str, hosts: Hosts) -> ToolHost:
    """The task's tools as they are stored; the caller closes them."""
    files = dataset.environment_files(dataset.tasks[task_id].environment_id)
    database = dataset.database(task_id)
    if database is None:
        raise DatasetError(f"task {task_id!r} has no database")
    return tool_host(
        files.tools_source,
        files.spec.tools,
        database,
        backend=hosts.backend,
        trusted=hosts.trusted,
    )


def _differing(stored: Record, derived: Record, skip: tuple[str, ...]) -> list[str]:
    """The fields in which two records of one kind differ."""
    fields = (field for field in type(stored).model_fields if field not in skip)
    return [name for name in fields if getattr(stored, name) != getattr(derived, name)]


def _agree(stored: Density | None, derived: Density | None, exact: bool) -> bool:
    """Whether two densities are one; of samples drawn anew, whether their intervals overlap."""
    if exact or stored is None or derived is None:
        return stored == derived
    overlap = stored.low <= derived.high and derived.low <= stored.high
    # An interval that says nothing agrees with everything.
    width, own = stored.high - stored.low, derived.high - derived.low
    telling = width <= max(4 * own, _WIDEST * derived.high)
    return overlap and telling and stored.space == derived.space
