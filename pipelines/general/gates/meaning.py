"""Gates about what the task says: every rule is stated and binds, nothing leaks, the density is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping

from pydantic import JsonValue

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.ir import NEAREST, Choice, Cmp, Equals, Optimise, Param, Problem, Reach
from envgen.core.types import GateResult
from envgen.pipelines.general.gates.trial import Trial, not_applicable, outcome, twin_of
from envgen.pipelines.general.semantics.layout import match_layout
from envgen.pipelines.general.semantics.rewrite import hidden, unstated
from envgen.pipelines.general.space.answers import count
from envgen.pipelines.general.words.lexicon import lexicon
from envgen.pipelines.general.words.prompt import parse, prompt
from envgen.store.sqlite_files import snapshot

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
    parsed = parse(draft.prompt, problem.relations, words, policy_text=draft.policy_text)
    parts = ("slots", "clauses", "goal")
    differing = [name for name in parts if getattr(parsed, name) != getattr(problem, name)]
    told = {name: value for name, value in problem.params.items() if name not in hidden(problem)}
    known: list[tuple[str, Mapping[str, JsonValue], Mapping[str, JsonValue]]] = [
        ("", parsed.params, told),
        (" of the solution", params_of(draft.solution), told),
        (" of the verifier", params_of(draft.verifier), problem.params),
    ]
    differing += [
        f"{name}{where}"
        for where, params, own in known
        for name, value in params.items()
        if name not in own or own[name] != value
    ]
    reason = f"read back, the prompt differs in {', '.join(differing)}"
    return outcome("stated", not differing, len(tested) + 1, reason=reason)


def rules_tested(problem: Problem) -> list[str]:
    """The ids of the clauses, of a workflow's effects, and ``goal`` where something is to be best."""
    effects = problem.goal.effects if isinstance(problem.goal, Reach) else ()
    best = ["goal"] if isinstance(problem.goal, Optimise) else []
    return [*(rule.id for rule in (*problem.clauses, *effects)), *best]


def params_of(source: str) -> dict[str, JsonValue]:
    """The constants in a source's ``PARAMS`` line; {} if it has none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARAMS":
            found: dict[str, JsonValue] = ast.literal_eval(node.value)
            return found
    return {}


def binding(trial: Trial) -> GateResult:
    """Dropping any clause lets more answers in: a near-miss of it proves that, else exact counts do.

    Where the request must be escalated nothing else may be done, whatever the other rules say: they are
    held against a re-seed of the task on which nothing must be escalated.
    """
    if trial.escalated:
        other = twin_of(trial)
        if other is None:
            reason = "no re-seed shows what the rules forbid when nothing must be escalated"
            return outcome("binding", False, 1, reason=reason)
        return binding(other)
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


def certified(trial: Trial) -> GateResult:
    """The bound of an ``Optimise`` goal is the optimum: an answer reaches it, and none is better.

    So is what a rule that gives way is held to, if no answer keeps all; else that is the bound stated.
    Both are exact counts: by elimination, or by a complete search. What tuned the bound plays no part.
    """
    problem, goal, rule = trial.problem, trial.problem.goal, trial.problem.giving_way
    if rule is not None:
        own, edge = str(rule.gives_way), rule.expr
        assert isinstance(edge, Cmp)
        stated, name = problem.params.get(own), NEAREST
        below = (edge.fn in ("<=", "<")) == (edge.right == Param(name=own))
    elif isinstance(goal, Optimise):
        name, below, stated = goal.bound.name, goal.sense == "min", None
    else:
        return not_applicable("certified", "nothing is to be best")
    bound = problem.params.get(name)
    if type(bound) is not int or (isinstance(goal, Optimise) and goal.eps):
        return outcome("certified", False, 1, reason=f"{bound!r} is not an optimum")
    if rule is not None and bound == stated:
        kept = count(problem, trial.draft.tables, COUNT_CAP, space="unconditioned").low
        reason = "no answer keeps all rules"
        return outcome("certified", kept > 0, 1, reason=reason, answers=kept, method="search")
    if rule is not None and (type(stated) is not int or (bound < stated) == below):
        return outcome("certified", False, 1, reason=f"the rule gives way to {bound!r}: it is kept")
    better = bound - 1 if below else bound + 1
    reached, beaten = (
        count(
            problem.model_copy(update={"params": {**problem.params, name: value}}),
            trial.draft.tables,
            COUNT_CAP,
            space="unconditioned",
        )
        for value in (bound, better)
    )
    reason = "" if reached.low else "no answer reaches the bound"
    if beaten.high:
        reason = (
            "an answer is better" if beaten.low else "whether one is better takes too long to tell"
        )
    return outcome(
        "certified",
        not reason,
        2,
        reason=reason,
        optimum=bound,
        answers=reached.low,
        method="exact count",
    )


def leaks(trial: Trial) -> GateResult:
    """No value of gold stands in the prompt or the tools' documentation, but for what one chooses from."""
    draft, problem = trial.draft, trial.draft.problem
    docs = " ".join(f"{tool.description} {tool.parameters}" for tool in draft.tools)
    text = f"{draft.prompt}\n{draft.policy_text}\n{docs}"
    values: list[JsonValue] = [trial.gold.answer]
    if problem is not None:
        found = match_layout(problem.layout, trial.gold.answer) or {}
        public = {slot.name for slot in problem.slots if isinstance(slot.domain, Choice)}
        values = [value for name, value in found.items() if name not in public]
    options = set() if problem is not None else set(_options(draft.submit_schema, _cells(trial)))
    tokens = {token for value in values for token in _texts(value)} - options
    leaked = sorted(t for t in tokens if re.search(rf"(?<!\w){re.escape(t)}(?!\w)", text))
    if not tokens:
        return not_applicable("leaks", "gold holds no text")
    return outcome("leaks", not leaked, len(tokens), reason=f"given away: {leaked[:3]}")


def _cells(trial: Trial) -> set[str]:
    """All texts of the database."""
    tables = snapshot(trial.database).tables.values()
    return {cell for rows in tables for row in rows for cell in row if isinstance(cell, str)}


def _options(schema: JsonValue, cells: Collection[str]) -> list[str]:
    """The texts among which a schema has one choose: of an enum, or of branches.

    A text beside a branch that takes others, too (a date or "none"), is one only if it is no value of the
    database: else a schema could name the answer that way.
    """
    if isinstance(schema, list):
        return [text for item in schema for text in _options(item, cells)]
    if not isinstance(schema, dict):
        return []
    listed = schema.get("enum")
    found = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    found = found if len(found) > 1 else []
    for name in ("anyOf", "oneOf"):
        branches = schema.get(name)
        if isinstance(branches, list) and len(branches) > 1:
            told = [text for branch in branches for text in _fixed(branch)]
            closed = len(told) > 1 and all(_fixed(branch) for branch in branches)
            found += told if closed else [text for text in told if text not in cells]
    return found + _options(list(schema.values()), cells)


def _fixed(branch: JsonValue) -> list[str]:
    """The texts that are all that a branch takes, for itself or for one of its properties."""
    if not isinstance(branch, dict):
        return []
    listed, parts = branch.get("enum"), branch.get("properties")
    own = [*(listed if isinstance(listed, list) else []), branch.get("const")]
    inner = [
        text
        for part in (parts.values() if isinstance(parts, dict) else ())
        for text in _fixed(part)
    ]
    return [one for one in own if isinstance(one, str)] + inner


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
