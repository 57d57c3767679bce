"""Prove a packed task with every gate that needs no constraint IR, and say why the others can't run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, EnvError, VerifierError
from envgen.core.sampler import sample_call, sample_schema
from envgen.core.schema import Validator
from envgen.core.seeding import rng
from envgen.core.types import (
    Evidence,
    GateResult,
    GateStatus,
    GoldRun,
    Probe,
    Score,
    Submission,
    ToolSpec,
)
from envgen.environments.runner import toolbox_of
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates import execution, meaning, soundness
from envgen.pipelines.general.gates.mutation import shown
from envgen.pipelines.general.gates.trial import Calls, Case, Hosts, Trial, not_applicable, outcome
from envgen.pipelines.packed.extra_writes import ExtraWrite, extra_writes, unrequested
from envgen.pipelines.packed.nearby import nearby
from envgen.pipelines.packed.rows import OtherRows, OtherRowsDrawer
from envgen.sandboxes.tools import ToolHost
from envgen.store.sqlite_files import snapshot
from envgen.verifiers.attacks import attack
from envgen.verifiers.mutants import Mutant, mutants

CALLS = 20
"""Made of each tool, with arguments that fit its schema."""
GUESSES = 200
"""Answers that fit the submit schema, drawn at random."""
NEARBY = 48
"""Answers one change away from gold, on which faults in the verifier show."""
FEW = 8
"""States with one more write than gold's that mutants are tried on."""
FIRST = 24
"""Answers that a mutant is tried on first."""
MOST_MUTANTS = 160
"""Of a verifier with more, so many are drawn: its kill rate is then known to within 4 points, and verifiers
that search (a second a verdict, thousands of mutants) are judged in minutes."""
KILL_RATE = 0.6
"""Of a verifier's mutants. With an IR it is 0.95; here a person's wrong answers are all there is."""
ANY_ROWS_KILL_RATE = 0.75
"""The same where other rows can be drawn, too."""
BROKEN = "it breaks: "
"""Begins the reason where a verifier gives no verdict on other rows."""
LEAST_ROWS = 6
"""Databases on which the solution must find an answer, or nothing is said of other rows."""
MOST_REFUSED = 0.1
"""Of those answers: where a rule can't be kept at all, a solution may give the next best."""
NO_SOLUTION = "there is no solution.py: nobody has shown that the task can be solved"
HINTS = {
    "tools": "raise ToolError(code, message) for what an agent can do wrong; the rest is its own mistake",
    "restricted": "solution.py is def solve() in the small Python of docs/ir.md; what it names must stand in "
    "prompt, policy, submit.json or the tools' docstrings (what a tool returns, too): agents know no more",
    "gold": "fix solution.py, or the rule in verifier.py that it breaks",
    "leaks": "take the answer out of prompt, policy and docstrings (an example there may be it)",
    "empty": "make verifier.py return the name of the broken rule when nothing was submitted or done",
    "guesses": "ask for more than can be guessed, or make the rules in verifier.py stricter",
    "probes": "fix verifier.py or answers.json",
    "prefixes": "compare the database at final with the one at initial in verifier.py",
    "attacks": "compare whole values in verifier.py, and narrow submit.json (additionalProperties: false)",
    "unrequested": "compare whole tables at final with those at initial in verifier.py; or name the tools "
    "whose further calls are allowed in task.json, as allowed_writes",
    "reseeds": "work out what is right from the rows, in verifier.py and solution.py; have solve() return "
    "None where no answer is right",
    "mutants": "write answers to answers.json, each of which breaks one rule by as little as it can",
}
"""What to do about a gate that fails."""
NEEDS_IR = {
    "compiled": "a person wrote it, no compiler",
    "evaluation": "no constraint IR to evaluate",
    "rebuild": "the database is the author's own file",
    "stated": "no constraint IR to read the prompt back with",
    "density": "no constraint IR to count with",
    "certified": "no constraint IR to count with",
    "alternatives": "no constraint IR to solve",
    "near_misses": "no constraint IR; the author's wrong answers are tried instead (probes)",
    "binding": "no constraint IR",
    "collateral": "no constraint IR to tell what may change",
    "shortcuts": "nobody can draw new rows for it",
    "difficulty": "nobody can draw new rows for it",
}
"""Gates of generated tasks that a packed task can't be put through, and why."""


class PackedProof(NamedTuple):
    """The evidence of the gates, and what the dataset stores besides."""

    evidence: Evidence
    gold: GoldRun | None
    probes: tuple[Probe, ...]


class Elsewhere(NamedTuple):
    """A verdict on other rows."""

    what: str
    own: bool
    """Of what the solution answers there; else of what it answers on the task's own rows."""
    submission: Submission
    score: Score

    @property
    def broken(self) -> bool:
        """Whether the verifier gave no verdict."""
        return any(reason.startswith(BROKEN) for reason in self.score.reasons)


class PackedTrial(Trial):
    """A task under proof that comes with a database of its own and known answers.

    Args:
        draft: the task; it has neither relations nor tables.
        hosts: sandboxed interpreters.
        folder: an empty scratch folder.
        database: the initial database.
        tools: over it; the caller closes them.
        probes: answers that the author declared right or wrong.
        seed: seeds every random choice.
        any_rows: the author says that solution and verifier hold for other rows, too.
        allowed_writes: tools of which the author says that further calls are allowed.
    """

    def __init__(
        self,
        draft: Draft,
        hosts: Hosts,
        folder: Path,
        database: Path,
        tools: ToolHost,
        probes: Sequence[Probe],
        seed: int,
        any_rows: bool = False,
        allowed_writes: Sequence[str] = (),
    ) -> None:
        super().__init__(draft, hosts, folder, None, seed)
        self._own_database, self._own_tools = database, tools
        self.probes, self.any_rows, self.allowed_writes = probes, any_rows, tuple(allowed_writes)

    @cached_property
    def database(self) -> Path:
        """The initial database as a file."""
        return self._own_database

    @property
    def tools(self) -> ToolHost:
        """The draft's tools, ready to open episodes."""
        return self._own_tools

    @property
    def solved(self) -> bool:
        """Whether there is a solution to run."""
        return bool(self.draft.solution)

    @property
    def writes(self) -> bool:
        """Whether solving the task changes the database."""
        return self.solved and self.gold_result.changed

    @property
    def plan(self) -> Calls:
        """The write calls of gold, after which answers are judged."""
        return self.gold_plan if self.solved else ()

    @cached_property
    def guesses(self) -> tuple[JsonValue, ...]:
        """Distinct answers that fit the submit schema, without gold: the emptiest first, then random ones."""
        rand, schema = self.rng("guesses"), self.draft.submit_schema
        drawn = (sample_schema(schema, rand) for _ in range(GUESSES))
        gold = dumps(self.gold.answer) if self.solved else None
        found = {dumps(value): value for value in (*_emptiest(schema), *drawn)}
        return tuple(value for text, value in found.items() if text != gold)

    @cached_property
    def nearby(self) -> list[JsonValue]:
        """Answers one change away from gold, right or wrong."""
        texts = [
            {value for value in column if isinstance(value, str)}
            for rows in snapshot(self.database).tables.values()
            for column in zip(*rows, strict=True)
        ]
        return nearby(self.gold.answer, self._fits, texts, self.rng("nearby"), NEARBY)

    @cached_property
    def extra_writes(self) -> list[ExtraWrite]:
        """States that gold's calls and one more leave."""
        return list(extra_writes(self, self.rng("unrequested")))

    @cached_property
    def elsewhere(self) -> list[Elsewhere]:
        """What the verifier says on other rows, of gold's answer and of what the solution finds there."""
        drawer = OtherRowsDrawer(self.database, self.folder, self.rng("rows"))
        verifier, gold = self.verifier(check_schema=True), self.gold_case

        def judged(rows: OtherRows, case: Case, own: bool) -> Elsewhere:
            submission = self.submission(case, rows.path)
            try:
                score = verifier.verify(submission)
            except VerifierError as error:  # rows that nobody thought of; one of many may be so
                score = Score(value=0.0, passed=False, reasons=(f"{BROKEN}{error}",))
            return Elsewhere(rows.what, own, submission, score)

        def accepted(path: Path) -> bool:
            try:
                return verifier.verify(self.submission(gold, path)).passed
            except VerifierError:
                return False

        found: list[Elsewhere] = []
        for rows in (*drawer.shuffled(), *drawer.tied(), *drawer.edges(accepted)):
            found.append(judged(rows, gold, own=False))
            run = self.run_gold(database=rows.path)
            calls = (call for call in run.gold.calls if call.mutates and call.error is None)
            plan = tuple((call.name, dict(call.arguments)) for call in calls)
            if run.fault is None and self._fits.fault(run.gold.answer) is None:
                found.append(judged(rows, Case(run.gold.answer, plan), own=True))
        return found

    @cached_property
    def _fits(self) -> Validator:
        return Validator(self.draft.submit_schema)


def prove_packed(
    draft: Draft,
    hosts: Hosts,
    database: Path,
    tools: ToolHost,
    probes: Sequence[Probe] = (),
    *,
    seed: int = 0,
    any_rows: bool = False,
    allowed_writes: Sequence[str] = (),
    only: Collection[str] = (),
) -> PackedProof:
    """Run every gate that applies; after a failure the remaining ones are ``not_run``.

    ``only`` runs these alone, in a rehearsal that leaves no evidence. ``any_rows``: the author says that
    solution and verifier hold for other rows, too. ``allowed_writes``: tools of which he says that further
    calls are allowed.

    A tool or verifier that raises fails the gate that called it.
    """
    with TemporaryDirectory(prefix="envgen-proof-") as folder:
        trial = PackedTrial(
            draft, hosts, Path(folder), database, tools, probes, seed, any_rows, allowed_writes
        )
        evidence: list[GateResult] = []
        failed = ""
        for name, gate in GATES.items():
            if only and name not in only:
                continue
            evidence.append(_run(name, gate, trial, failed))
            if evidence[-1].status is GateStatus.FAILED:
                failed = name
        evidence += [not_applicable(name, reason) for name, reason in NEEDS_IR.items()]
        if failed or not trial.solved:
            return PackedProof(tuple(evidence), None, tuple(probes))
        gold = Probe(
            answer=trial.gold.answer,
            calls=tuple(c for c in trial.gold.calls if c.mutates and c.error is None) or None,
            expected=True,
            origin="gold",
        )
        return PackedProof(tuple(evidence), trial.gold, (gold, *probes))


Gate = Callable[[PackedTrial], GateResult]


def _run(name: str, gate: Gate, trial: PackedTrial, failed: str) -> GateResult:
    if failed:
        return GateResult(gate=name, status=GateStatus.NOT_RUN, reason=f"gate {failed} failed")
    try:
        return gate(trial)
    except (EnvError, VerifierError, ConfigError) as error:
        return GateResult(gate=name, status=GateStatus.FAILED, n=1, reason=str(error))


def _solved(gate: Gate, name: str) -> Gate:
    """A gate that needs a solution."""
    return lambda trial: gate(trial) if trial.solved else not_applicable(name, NO_SOLUTION)


def tools_hold(trial: PackedTrial) -> GateResult:
    """On arguments that fit its schema no tool raises, and none that claims to read changes the database.

    The arguments are drawn at random, from the prompt, and from other tools' results.
    """
    rand = trial.rng("tools")
    known = _words(trial.draft.prompt)
    n = 0
    for spec in trial.draft.tools:
        with closing(trial.session()) as session:
            for i in range(CALLS):
                arguments = _arguments(
                    spec, rand.choice(known) if known and i % 2 else None, i, trial
                )
                try:
                    session.call(spec.name, arguments)
                except EnvError as error:
                    return outcome(
                        "tools",
                        False,
                        n + 1,
                        reason=f"{error}, called with {dumps(arguments)[:200]}",
                    )
                n += 1
    return outcome("tools", True, n)


def empty(trial: PackedTrial) -> GateResult:
    """The emptiest answers that the submit schema accepts are refused if nothing was done."""
    answers = [one for one in _emptiest(trial.draft.submit_schema) if not _is_gold(trial, one)]
    if not answers:
        return not_applicable("empty", "the submit schema lets no empty answer through")
    scores = trial.judge([Case(one) for one in answers])
    passed = [dumps(a)[:80] for a, score in zip(answers, scores, strict=True) if score.passed]
    return outcome(
        "empty",
        not passed,
        len(answers),
        reason=f"the verifier accepts the empty answer {passed[:1]}",
    )


def guessing(trial: PackedTrial) -> GateResult:
    """At most half of the random answers that fit the submit schema are right."""
    cases = [Case(answer, trial.plan) for answer in trial.guesses]
    if not cases:
        return not_applicable("guesses", "the submit schema lets gold through only")
    passed = sum(score.passed for score in trial.judge(cases))
    return outcome(
        "guesses",
        2 * passed <= len(cases),
        len(cases),
        figure=passed / len(cases),
        reason=f"the verifier accepts {passed} of {len(cases)} random answers",
    )


def attacks(trial: PackedTrial) -> GateResult:
    """No malformed, mistyped or hostile submission passes when scored as episodes are: schema first."""
    verifier = trial.verifier(check_schema=True)
    report = attack(verifier, trial.gold.answer, trial.database, trial.final(trial.gold_plan))
    found = report.lines()
    return outcome(
        "attacks", report.ok, report.n, figure=float(len(found)), reason="; ".join(found[:3])
    )


def known_answers(trial: PackedTrial) -> GateResult:
    """The verifier agrees with the author on every answer of answers.json.

    Gold's own answer may be named as wrong: that is so where nothing was done.
    """
    if not trial.probes:
        return not_applicable("probes", "answers.json names no answer as right or wrong")
    scores = trial.judge(
        [
            Case(
                probe.answer,
                trial.plan if probe.expected or not _is_gold(trial, probe.answer) else (),
            )
            for probe in trial.probes
        ]
    )
    wrong = [
        f"{'refuses' if probe.expected else 'accepts'} {dumps(probe.answer)[:300]}"
        for probe, score in zip(trial.probes, scores, strict=True)
        if score.passed != probe.expected
    ]
    return outcome(
        "probes",
        not wrong,
        len(scores),
        figure=1.0 - len(wrong) / len(scores),
        reason=f"against answers.json, the verifier {'; '.join(wrong[:3])}",
    )


def mutants_seen(trial: PackedTrial) -> GateResult:
    """Enough small faults planted in the verifier change the verdict on a known answer.

    Known answers are gold, also on the untouched and the half-done database, those one change away from it,
    the author's, and random ones.
    """
    if trial.any_rows and trial.solved:
        seen = [one for one in trial.elsewhere if not one.broken]
        least = ANY_ROWS_KILL_RATE
    else:
        seen, least = [], KILL_RATE
    plans = [trial.plan[:i] for i in range(len(trial.plan) + 1)]
    beside = trial.nearby if trial.solved else []
    answers = [*beside, *(probe.answer for probe in trial.probes), *trial.guesses[:30]]
    cases = [Case(trial.gold.answer, plan) for plan in plans if trial.solved]
    cases += [Case(answer, trial.plan) for answer in answers]
    cases += [Case(answer) for answer in answers if trial.plan]
    submissions = [*(trial.submission(case) for case in cases), *(one.submission for one in seen)]
    if trial.solved:  # by which faults in what compares the database show
        gold, every = trial.submission(trial.gold_case), -(-len(trial.extra_writes) // FEW) or 1
        states = trial.extra_writes[::every]
        submissions += [gold.model_copy(update={"final": str(one.final)}) for one in states]
    first, rest = submissions[:FIRST], submissions[FIRST:]  # most faults show at once
    expected = [_verdicts(trial, trial.draft.verifier, some) for some in (first, rest)]
    planted = list(mutants(trial.draft.verifier))
    if len(planted) > MOST_MUTANTS:
        drawn = trial.rng("mutants").sample(range(len(planted)), MOST_MUTANTS)
        planted = [planted[i] for i in sorted(drawn)]
    tried, survivors = len(planted), list[Mutant]()
    for mutant in planted:
        found = (_verdicts(trial, mutant.source, some) for some in (first, rest))
        if all(a == b for a, b in zip(expected, found, strict=True)):
            survivors.append(mutant)
    rate = 1.0 - len(survivors) / tried if tried else 0.0
    return outcome(
        "mutants",
        rate >= least,
        tried,
        figure=round(rate, 4),
        reason=f"{len(survivors)} of {tried} faults planted in the verifier go unnoticed, e.g. "
        f"{shown(trial.draft.verifier, survivors)}: add answers that tell them apart to answers.json",
        survivors=[one.description for one in survivors],
        probes=len(submissions),
    )


def other_rows_hold(trial: PackedTrial) -> GateResult:
    """Where a task says that it holds for any rows, the verifier accepts what the solution finds on others.

    Rows are shuffled, tied, and taken from both sides of where the verdict on gold's answer turns
    (``rows.py``). An answer that is none (the solution finds nothing, or gives up) says nothing. Gold's own
    answer has to be refused somewhere: else the verifier does not read the rows.
    """
    if not trial.any_rows:
        return not_applicable("reseeds", "nothing says that the task holds for other rows")
    if not trial.solved:
        return not_applicable("reseeds", NO_SOLUTION)
    own = [one for one in trial.elsewhere if one.own]
    if len(own) < LEAST_ROWS:
        reason = f"the solution answers on {len(own)} other databases only"
        return not_applicable("reseeds", reason)
    refused = [one for one in own if one.score.reasons]
    by_gold = [one for one in trial.elsewhere if not one.own and not one.broken]
    if not any(one.score.reasons for one in by_gold):
        reason = "the verifier accepts the same answer whatever the rows are"
        return outcome("reseeds", False, len(own), reason=reason)
    shown = "; ".join(f"{', '.join(one.score.reasons)} ({one.what})" for one in refused[:3])
    return outcome(
        "reseeds",
        len(refused) <= MOST_REFUSED * len(own),
        len(own),
        figure=1.0 - len(refused) / len(own),
        reason=f"on {len(refused)} of {len(own)} other databases the verifier refuses what the solution "
        f"answers: {shown}",
        gold_refused=sum(bool(one.score.reasons) for one in by_gold),
    )


GATES: dict[str, Gate] = {
    "tools": tools_hold,
    "restricted": _solved(execution.restricted, "restricted"),
    "gold": _solved(execution.gold, "gold"),
    "leaks": _solved(meaning.leaks, "leaks"),
    "empty": empty,
    "guesses": guessing,
    "probes": known_answers,
    "prefixes": _solved(soundness.prefixes, "prefixes"),
    "attacks": lambda t: attacks(t) if t.solved else not_applicable("attacks", NO_SOLUTION),
    "reseeds": other_rows_hold,
    "unrequested": _solved(
        lambda trial: unrequested(trial, trial.extra_writes, trial.allowed_writes), "unrequested"
    ),
    "mutants": mutants_seen,
}
"""The gates of packed tasks, cheap ones first."""


def _verdicts(
    trial: PackedTrial, source: str, submissions: Sequence[Submission]
) -> list[tuple[str, ...] | None]:
    """The broken rules of each submission; None where the verifier raises."""
    verifier = trial.verifier(source)
    try:
        return [score.reasons for score in verifier.verify_many(submissions)]
    except VerifierError:
        return [None] * len(submissions)


def _is_gold(trial: PackedTrial, answer: JsonValue) -> bool:
    return trial.solved and dumps(answer) == dumps(trial.gold.answer)


def _emptiest(schema: JsonValue) -> list[JsonValue]:
    """Nothing, in every form that fits a schema."""
    validator = Validator(schema)  # type: ignore[arg-type]  # checked when the folder was read
    filled = _filled(schema)
    candidates: list[JsonValue] = [filled, None, "", 0, 0.0, False, [], {}, -1]
    found = {dumps(value): value for value in candidates if validator.fault(value) is None}
    return list(found.values())


def _filled(schema: JsonValue) -> JsonValue:
    """The emptiest value of a schema: "", 0, [] and false, down to its required properties."""
    if not isinstance(schema, dict):
        return None
    for key in ("enum", "anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            return options[0] if key == "enum" else _filled(options[0])
    if "const" in schema:
        return schema["const"]
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        names = required if isinstance(required, list) else []
        return {str(name): _filled(properties.get(str(name), {})) for name in names}
    kind, least = schema.get("type"), schema.get("minimum", 0)
    if kind in ("integer", "number"):
        return least if isinstance(least, int | float) else 0
    if kind == "array":
        count = schema.get("minItems", 0)
        return [_filled(schema.get("items", {}))] * (count if isinstance(count, int) else 0)
    plain: dict[str, JsonValue] = {"string": "", "boolean": False, "object": {}}
    return plain.get(str(kind))


def _words(text: str) -> list[str]:
    return sorted({word.strip(".,:;!?`'\"()") for word in text.split()} - {""})


def _arguments(
    spec: ToolSpec, word: str | None, i: int, trial: PackedTrial
) -> dict[str, JsonValue]:
    """Arguments that fit the tool's schema; texts are ``word`` where one is given."""
    _, arguments = sample_call(spec, rng(trial.seed, "tools", spec.name, i))
    if word is None:
        return arguments
    changed: dict[str, JsonValue] = {
        name: word if isinstance(value, str) else value for name, value in arguments.items()
    }
    fits = toolbox_of((spec,)).fault(spec.name, changed) is None
    return changed if fits else arguments


def gate_names() -> Iterator[str]:
    """All gates of a packed task's evidence, in order."""
    yield from GATES
    yield from NEEDS_IR
