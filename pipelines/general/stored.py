"""Compare what a dataset stores of a task with what proving it derives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from envgen.core.canonical import dumps
from envgen.core.errors import PipelineError
from envgen.core.ir import Problem
from envgen.core.schema import Validator
from envgen.core.types import Density, Evidence, GateResult, GateStatus, Probe, Record
from envgen.core.version import VERSION
from envgen.pipelines.boundary import guarded
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.agreement import GATE as AGREEMENT
from envgen.pipelines.general.gates.agreement import random_valid_agreement
from envgen.pipelines.general.gates.probe_run import judge, probe_submissions
from envgen.pipelines.general.gates.probes import wrong_forms
from envgen.pipelines.general.gates.prove import Proof
from envgen.pipelines.general.gates.trial import Hosts, not_applicable, outcome
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import read_sqlite
from envgen.pipelines.general.synthesize import environment_bundle, task_bundle
from envgen.pipelines.general.words.lexicon import lexicon
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema
from envgen.store.bundles import PAGE, EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.sqlite_files import inspect

Origin = Callable[[Draft], Draft | None]
"""Gives the first draft of a draft's environment, made anew from the recipe; None if that gives none."""

SINCE_0_2 = frozenset(("compiled", "tools", "evaluation"))
"""Gates that datasets of older versions don't have."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
EPISODES = 128
"""Most random-valid episodes of the agreement gate, where the evidence doesn't say."""


def foreign(task: TaskBundle, draft: Draft) -> str:
    """Why a task's texts can't be compared with what this envgen compiles; empty if they can."""
    if draft.author != ProceduralAuthor.name:
        return f"its author is {draft.author!r}"
    if not task.spec.evidence:  # a draft that nobody has proven so far
        return ""
    found = [one.details.get("envgen") for one in task.spec.evidence if one.gate == "compiled"]
    if found != [VERSION]:
        return f"written by envgen {found[0]}" if found else "written by an older envgen"
    return ""


class StoredComparison:
    """One task as it is stored, beside what proving it has just derived.

    Args:
        dataset: where the task is stored.
        draft: the task, read from there.
        proof: what the gates found; it has passed.
        hosts: sandboxed interpreters.
        seed: of the proof. The stored figures are those of seed 0.
        origin: finds what the environment's recipe leads to.
    """

    def __init__(
        self,
        dataset: Dataset,
        draft: Draft,
        proof: Proof,
        hosts: Hosts,
        seed: int,
        origin: Origin,
    ) -> None:
        self.draft, self.proof, self.hosts, self.seed = draft, proof, hosts, seed
        self.dataset, self.origin = dataset, origin
        self.task = dataset.task_files(draft.task_id)
        self.foreign = foreign(self.task, draft)
        self.exact = seed == 0 and not self.foreign

    def evidence(self) -> Iterator[GateResult]:
        """What is found, a gate for each kind of thing that is stored."""
        if not self.task.spec.evidence:
            yield not_applicable("stored", "nobody has proven it so far: it carries no evidence")
            return
        yield guarded("stored", self._stored)
        yield guarded("recipe", self._recipe)
        yield guarded("form", self._form)
        yield guarded("probes", self._probes)
        yield guarded(AGREEMENT, self._agreement)

    def _stored(self) -> GateResult:
        """Fields of the task and the environment, gold and evidence are what follows from IR and proof."""
        derived = task_bundle(self.draft, self.proof)
        task, spec, other = self.task, self.task.spec, derived.spec
        pairs = [
            (name, getattr(spec, name), getattr(other, name))
            for name in ("family", "limits", "variant_of")
        ]
        pairs += _parts("difficulty", spec.difficulty, other.difficulty, skip=("density",))
        pairs += [("constraints", dumps(task.constraints), dumps(derived.constraints))]
        pairs += [("gold", task.gold, derived.gold), *self._environment()]
        differing = [name for name, stored, found in pairs if stored != found]
        if not _agree(spec.difficulty.density, other.difficulty.density, exact=self.exact):
            differing.append("density")
        if self.exact and task.probes != derived.probes:
            differing.append("probes")
        differing += self._evidence(other.evidence)
        return outcome(
            "stored",
            not differing,
            len(pairs) + 3,
            reason=f"stored otherwise than derived: {', '.join(differing)}",
        )

    def _environment(self) -> list[tuple[str, Any, Any]]:
        """What the environment's record says that no draft holds, and every byte of its database."""
        spec = self.dataset.environments[self.draft.environment_id]
        bundle = environment_bundle(self.draft)
        files = ("database", "tools_source", "blueprint")
        pairs = _parts("environment", spec, bundle.spec, skip=files)
        path = self.dataset.database(self.draft.task_id)
        assert path is not None
        assert bundle.database is not None
        return [*pairs, ("database", inspect(path), inspect(bundle.database))]

    def _evidence(self, derived: Evidence) -> list[str]:
        """Gates whose stored result is not the derived one, or (of another seed or version) is missing."""
        stored = {one.gate: one for one in self.task.spec.evidence if one.gate != AGREEMENT}
        wanted = {one.gate: one for one in derived}
        if self.exact:
            names = {*wanted, *stored}
            differing = {name for name in names if stored.get(name) != wanted.get(name)}
            return [f"evidence of {name}" for name in sorted(differing)]
        known = set(wanted) - (SINCE_0_2 if self.foreign else set())
        return [f"evidence of {name}" for name in sorted(known - set(stored))]

    def _recipe(self) -> GateResult:
        """Level and lineage are those of the recipe in blueprint.json, and it leads to this environment."""
        draft = self.draft
        assert draft.problem is not None  # it has an IR
        faults = []
        operators = [step.operator for step in draft.lineage]
        recipe = draft.blueprint if isinstance(draft.blueprint, dict) else {}
        if recipe.get("level", draft.level) != draft.level or draft.level != len(operators) + 1:
            faults.append("the level")
        if recipe.get("operators", operators) != operators:
            faults.append("the operators")
        if draft.lineage and draft.lineage[-1].problem_id != draft.problem.id:
            faults.append("the lineage's last problem")
        if not self.foreign:
            faults += self._drafted()
        reason = f"the recipe gives otherwise: {', '.join(faults)}"
        return outcome("recipe", not faults, 1 + len(draft.lineage), reason=reason)

    def _drafted(self) -> Iterator[str]:
        """What differs from a draft made anew; siblings share all but the last step."""
        draft, first = self.draft, self.origin(self.draft)
        if first is None or first.environment_id != draft.environment_id:
            yield "the environment"
        elif draft.lineage[:-1] != first.lineage[:-1]:
            yield "the lineage"
        elif draft.task_id == first.task_id and draft.lineage != first.lineage:
            yield "the lineage's last step"

    def _form(self) -> GateResult:
        """The submit schema takes what the IR's form takes; the public rules say what its clauses do."""
        if not self.foreign:
            return not_applicable("form", "compared with what is compiled")
        draft = self.draft
        assert draft.problem is not None  # it has an IR
        wanted = submit_schema(draft.problem, draft.tables)
        stored, derived = Validator(draft.submit_schema), Validator(wanted)
        gold = self.proof.gold.answer if self.proof.gold else None
        answers = [*(probe.answer for probe in self.task.probes), *wrong_forms(draft.problem, gold)]
        faults = [
            f"the schema of {dumps(answer)[:60]}"
            for answer in answers
            if (stored.fault(answer) is None) != (derived.fault(answer) is None)
        ]
        if draft.submit_schema.get("x-walk") != wanted.get("x-walk"):
            faults.append("the schema's x-walk")
        faults += self._rules(draft.problem)
        reason = f"not as the IR has it: {', '.join(faults[:3])}"
        return outcome("form", not faults, len(answers) + len(draft.rules), reason=reason)

    def _rules(self, problem: Problem) -> Iterator[str]:
        """Public rules whose sentences are not in the prompt, or whose parts are not those of the clauses."""
        text = f"{self.draft.prompt}\n{self.draft.policy_text}"
        for rule in self.draft.rules:
            if not all(sentence in text for sentence in _SENTENCE.split(rule.text)):
                yield f"the public rule {rule.text[:60]!r}"
        try:
            derived = public_rules(problem, prompt(problem, lexicon(problem.lexicon)))
        except PipelineError:  # other words than this version's: the gate ``stated`` says so
            return
        if len(derived) != len(self.draft.rules):
            yield "the number of public rules"
        for stored, wanted in zip(self.draft.rules, derived, strict=False):
            if stored.model_copy(update={"text": wanted.text}) != wanted:
                yield f"the parts of the public rule {stored.text[:60]!r}"

    def _probes(self) -> GateResult:
        """Each stored probe gets the stored verdict, from the verifier and from evaluating the IR."""
        draft, probes, problem = self.draft, self.task.probes, self.draft.problem
        database = self.dataset.database(draft.task_id)
        assert problem is not None
        assert database is not None
        with (
            TemporaryDirectory(prefix="envgen-validate-") as folder,
            closing(self.hosts.tools(draft, database)) as tools,
        ):
            submissions = probe_submissions(probes, draft.tools, database, Path(folder), tools)
            scores = judge(draft.verifier, submissions, self.hosts)
            finals = [read_sqlite(draft.relations, str(one.final)) for one in submissions]
        wrong = []
        for probe, score, final in zip(probes, scores, finals, strict=True):
            held = evaluate(problem, draft.tables, probe.answer, final)
            broken = {rule for rule in held if not held[rule]}
            if score.passed != probe.expected or broken != _broken(probe, broken):
                wrong.append(f"{probe.origin} {probe.clause or ''}".strip())
        return outcome(
            "probes",
            not wrong,
            len(probes),
            figure=1.0 - len(wrong) / max(1, len(probes)),
            reason=f"wrong verdicts on {', '.join(wrong[:3])}",
        )

    def _agreement(self) -> GateResult:
        """Random-valid plays again; with the same seed it does the very same."""
        stored = [one for one in self.task.spec.evidence if one.gate == AGREEMENT]
        said = stored[0].details.get("episodes") if stored else None
        bundle = self.dataset.environment_files(self.draft.environment_id)
        again = random_valid_agreement(
            EnvironmentBundle(
                spec=bundle.spec,
                database=bundle.database.read_bytes() if bundle.database else None,
                tools_source=bundle.tools_source,
                blueprint=bundle.blueprint,
            ),
            [self.task],
            episodes=said if type(said) is int else EPISODES,
            backend=self.hosts.backend,
            seed=self.seed,
            trusted=self.hosts.trusted,
        )
        if self.exact and stored != again:
            return outcome(AGREEMENT, False, 1, reason="the stored evidence says otherwise")
        if again[0].status is GateStatus.NOT_RUN:
            return not_applicable(AGREEMENT, again[0].reason)
        return again[0]


def origin_of() -> Origin:
    """A function that drafts an environment's first task from its recipe, once for siblings in a row."""
    kept: dict[str, Draft | None] = {}

    def origin(draft: Draft) -> Draft | None:
        recipe = draft.blueprint
        key = dumps(recipe)
        if key not in kept:
            kept.clear()
            kept[key] = None
            if isinstance(recipe, dict):
                page = str(recipe.get(PAGE, ""))
                request = DraftRequest.model_validate(
                    {"domain": recipe.get("domain"), "level": recipe.get("level"), "page": page}
                )
                found = ProceduralAuthor().draft(request, int(str(recipe.get("seed"))))
                kept[key] = found if isinstance(found, Draft) else None
        return kept[key]

    return origin


def _parts(
    name: str, stored: Record, derived: Record, skip: tuple[str, ...]
) -> list[tuple[str, Any, Any]]:
    """The fields of two records of one kind, side by side."""
    fields = [field for field in type(stored).model_fields if field not in skip]
    return [(f"{name}.{one}", getattr(stored, one), getattr(derived, one)) for one in fields]


def _agree(stored: Density | None, derived: Density | None, *, exact: bool) -> bool:
    """Whether two densities are one; of samples drawn anew, whether their intervals overlap."""
    if exact or stored is None or derived is None:
        return stored == derived
    overlap = stored.low <= derived.high and derived.low <= stored.high
    return overlap and stored.space == derived.space


def _broken(probe: Probe, found: set[str]) -> set[str]:
    """The rules that a probe must break: none, one, or for a probe of no clause any."""
    if probe.expected:
        return set()
    return found if probe.clause is None and found else {str(probe.clause)}
