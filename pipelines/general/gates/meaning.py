"""Gates about what the task says: every rule is stated and binds, nothing leaks, the density is right."""

from __future__ import annotations

import ast
import re

from pydantic import JsonValue

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.ir import Choice, Equals, Problem, Reach
from envgen.core.types import GateResult
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.layout import match_layout
from envgen.pipelines.general.semantics.rewrite import unstated
from envgen.pipelines.general.space.answers import count
from envgen.pipelines.general.words.lexicon import lexicon
from envgen.pipelines.general.words.prompt import parse, prompt

COUNT_CAP = 200_000


def stated(trial: Trial) -> GateResult:
    """The prompt (with the policy text) says every tested rule: read back, it gives the same problem."""
    try:
        return _stated(trial)
    except (ConfigError, PipelineError):
        if trial.incomparable:
            return not_applicable("stated", "the prompt is in other words than this version's")
        raise


def _stated(trial: Trial) -> GateResult:
    draft, problem, words = trial.draft, trial.problem, lexicon(trial.problem.lexicon)
    rendered = prompt(problem, words)
    tested = rules_tested(problem)
    missing = [r for r in tested if not rendered.spans.get(r) and not rendered.policy_spans.get(r)]
    if loose := [f"{slot}: {columns}" for slot, columns in unstated(problem)]:
        reason = f"conditions on slots that no rule states: {'; '.join(loose)}"
        return outcome("stated", False, len(tested) + 1, reason=reason)
    same = rendered.text == draft.prompt and rendered.policy_text == draft.policy_text
    if missing or not (same or trial.incomparable):
        reason = f"no sentence for {missing}" if missing else "the prompt is not the IR's"
        return outcome("stated", False, len(tested) + 1, reason=reason)
    said = parse(draft.prompt, problem.relations, words, policy_text=draft.policy_text)
    parts = ("slots", "clauses", "goal")
    differing = [name for name in parts if getattr(said, name) != getattr(problem, name)]
    known = {"": said.params} | {
        f" of the {file}": params_of(getattr(draft, file)) for file in ("solution", "verifier")
    }
    differing += [
        f"{name}{where}"
        for where, params in known.items()
        for name, value in params.items()
        if problem.params.get(name) != value
    ]
    reason = f"read back, the prompt differs in {', '.join(differing)}"
    return outcome("stated", not differing, len(tested) + 1, reason=reason)


def rules_tested(problem: Problem) -> list[str]:
    """The ids of the clauses, and of a workflow's effects."""
    effects = problem.goal.effects if isinstance(problem.goal, Reach) else ()
    return [rule.id for rule in (*problem.clauses, *effects)]


def params_of(source: str) -> dict[str, JsonValue]:
    """The constants in a source's ``PARAMS`` line; {} if it has none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARAMS":
            found: dict[str, JsonValue] = ast.literal_eval(node.value)
            return found
    return {}


def binding(trial: Trial) -> GateResult:
    """Dropping any clause lets more answers in: a near-miss of it proves that, else exact counts do."""
    broken = {miss.clause for miss in trial.near_misses}
    if isinstance(trial.problem.goal, Equals):
        return outcome("binding", "goal" in broken, 1, reason="every in-domain value is right")
    rules = rules_tested(trial.problem)
    idle = [rule for rule in rules if rule not in broken and not _counts(trial, rule)]
    return outcome(
        "binding",
        not idle,
        len(rules),
        figure=float(len(idle)),
        reason=f"rules that never matter: {', '.join(idle)}",
    )


def _counts(trial: Trial, rule: str) -> bool:
    """Whether exact-enough counts in the unconditioned space show that ``rule`` binds."""
    if trial.writes:
        return False
    full, less = (
        count(problem, trial.draft.tables, COUNT_CAP, space="unconditioned")
        for problem in (trial.problem, trial.problem.without(rule))
    )
    return less.low > full.high


def leaks(trial: Trial) -> GateResult:
    """No value of gold stands in the prompt or the tools' documentation."""
    draft, problem = trial.draft, trial.draft.problem
    docs = " ".join(f"{tool.description} {tool.parameters}" for tool in draft.tools)
    text = f"{draft.prompt}\n{draft.policy_text}\n{docs}"
    values: list[JsonValue] = [trial.gold.answer]
    if problem is not None:
        found = match_layout(problem.layout, trial.gold.answer) or {}
        public = {slot.name for slot in problem.slots if isinstance(slot.domain, Choice)}
        values = [value for name, value in found.items() if name not in public]
    tokens = {token for value in values for token in _texts(value)}
    leaked = sorted(t for t in tokens if re.search(rf"(?<!\w){re.escape(t)}(?!\w)", text))
    if not tokens:
        return not_applicable("leaks", "gold holds no text")
    return outcome("leaks", not leaked, len(tokens), reason=f"given away: {leaked[:3]}")


def _texts(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value] if len(value) >= 3 else []
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def density_gate(trial: Trial) -> GateResult:
    """The density is known, with its method and interval, and is neither 0 nor 1."""
    found = trial.density
    return outcome(
        "density",
        found.high > 0.0 and found.low < 1.0,
        max(1, found.n),
        figure=found.value,
        reason="every answer is right" if found.low >= 1.0 else "no answer is right",
        method=found.method,
        low=found.low,
        high=found.high,
        space=found.space,
    )
