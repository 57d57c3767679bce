"""Submissions on which verifiers are tried: on the task's own rows and on rows that sit where rules turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, zip_longest
from pathlib import Path
from random import Random

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.ir import Choice, Equals, Get, Intervals, IntRange, Problem, Reach, Slot, Var
from envgen.pipelines.general.difficulty.facts import facts
from envgen.pipelines.general.gates.nudges import nudged
from envgen.pipelines.general.gates.perturb import KINDS, edited, perturbed, touching, turns
from envgen.pipelines.general.gates.trial import Case, Trial, as_case
from envgen.pipelines.general.gates.walks import walks
from envgen.pipelines.general.semantics.calls import Plan
from envgen.pipelines.general.semantics.evaluate import as_told, rules_of
from envgen.pipelines.general.semantics.evaluator import elements
from envgen.pipelines.general.semantics.layout import fill_layout, match_layout
from envgen.pipelines.general.semantics.rewrite import slots_of
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import solve
from envgen.pipelines.general.space.near_misses import near_misses
from envgen.sandboxes.verifier import Judged, VerifierInput

SAMPLES = 1_000
DATABASES = 8
"""Databases with shuffled and boundary values on which verifiers are tried, too."""
CALM_TRIES = 30
"""Times that perturbed rows are drawn anew which call for escalation."""
ESCALATING, ESCALATING_TRIES, ESCALATING_MOST = 4, 60, 1_000
"""Databases that call for escalation, of so many perturbed ones; of more while there are fewer."""
LOOKUP_DATABASES = 32
"""The same for questions with one answer, where a rule shows only if it changes the winner."""


TIES = 6
"""Rows that are made as good as gold's, one after the other."""


def judged(trial: Trial) -> list[Judged]:
    """The probes with what the draft's own verifier says of them, found once for all gates."""
    if trial.judged is None:
        inputs = probes(trial)
        found = trial.verdicts(trial.draft.verifier, inputs)
        trial.judged = list(zip(inputs, found, strict=True))
    return trial.judged


def probes(trial: Trial) -> list[VerifierInput]:
    """Near-misses (spread over clauses), gold, alternatives: the most telling first."""
    by_clause: dict[str, list[Case]] = {}
    for miss in trial.near_misses:
        by_clause.setdefault(miss.clause, []).append(miss.case)
    spread = [case for layer in zip_longest(*by_clause.values()) for case in layer if case]
    cases = [trial.gold_case, *trial.alternatives[:4], *spread, *trial.alternatives[4:]]
    if trial.writes:
        plan = trial.gold_plan
        cases += [Case(trial.gold.answer, plan[:i]) for i in range(len(plan))]
    cases += [Case(a, trial.gold_plan) for a in wrong_forms(trial.problem, trial.gold.answer)]
    near = [case.answer for case in trial.ordinary]
    if near[:1] != [trial.gold.answer]:
        cases += [Case(answer) for answer in wrong_forms(trial.problem, near[0])] if near else []
    cases += map(Case, touching(trial.problem, near))
    own = _inputs(trial, cases)
    turned = [*_tied_probes(trial), *_turned_probes(trial)]
    return [*own, *turned, *perturbed_probes(trial), *edited_probes(trial)]


def _tied_probes(trial: Trial) -> Iterator[VerifierInput]:
    """Gold and another row on rows on which both are the best: one of them alone is right."""
    problem, tables, goal = trial.problem, trial.draft.tables, trial.problem.goal
    by = goal.query.order[0].by if isinstance(goal, Equals) and goal.query.order else None
    if not isinstance(goal, Equals) or not isinstance(by, Get) or goal.query.select is not None:
        return
    relation, compiler = goal.query.relation, rules_of(problem).compiler
    if by.relation != relation or by.entity != Var(name=goal.query.var):
        return
    every = goal.query.model_copy(update={"limit": None, "order": ()})
    values = match_layout(problem.layout, trial.gold.answer) or {}
    best = str(values.get(goal.slot))
    rivals = [key for key in elements(every, compiler)(compiler.frame(tables)) if key != best]
    for n, key in enumerate(rivals[:TIES] if best in tables[relation] else ()):
        row = {**tables[relation][key], by.column: tables[relation][best][by.column]}
        path = trial.stored({**tables, relation: {**tables[relation], key: row}}, f"tied-{n}")
        for value in (best, key):
            yield VerifierInput(fill_layout(problem.layout, {goal.slot: value}), path, path)


def _turned_probes(trial: Trial) -> list[VerifierInput]:
    """Submissions on rows of which one cell is set so that a comparison just turns."""
    if trial.writes:
        return list(_nudged_probes(trial))
    cases = (*trial.ordinary, *(miss.case for miss in trial.near_misses))
    files: dict[tuple[str, str, str, int], Path] = {}
    inputs = []
    for turn in turns(trial.problem, trial.draft.tables, [case.answer for case in cases]):
        if turn[1:] not in files:
            tables = turn.set_in(trial.draft.tables)
            files[turn[1:]] = trial.stored(tables, f"turned-{len(files)}")
        path = files[turn[1:]]
        inputs.append(VerifierInput(turn.answer, path, path))
    return inputs


def _nudged_probes(trial: Trial) -> Iterator[VerifierInput]:
    """Gold on rows on which it just is right and just is not; of each column once what is right instead."""
    rand, plan = trial.rng("nudges"), Plan(trial.gold_plan, trial.gold.answer)
    read = facts(trial.problem, trial.draft.tables, trial.gold)
    rows = nudged(trial.problem, trial.draft.tables, read, plan, rand)
    solved = set[tuple[str, str]]()
    for n, one in enumerate(rows):
        path = trial.stored(one.tables, f"nudged-{n}")
        cases, place = _as_told(trial, [trial.gold_case], one.tables), (one.cell[0], one.cell[2])
        if not one.right and place not in solved:  # to solve costs more than all else
            solved.add(place)
            cases += map(as_case, islice(solve(trial.problem, one.tables, rand), 1))
        yield from (VerifierInput(c.answer, path, trial.final(c.plan, path)) for c in cases)


def _as_told(trial: Trial, cases: Sequence[Case], tables: Tables) -> list[Case]:
    """Cases, and each as it is where it says what rules tell over these rows."""
    more = [Case(as_told(trial.problem, tables, case.answer), case.plan) for case in cases]
    return [*cases, *(one for one in more if one not in cases)]


def walked_probes(trial: Trial, clause: str, draw: int) -> list[VerifierInput]:
    """Answers on rows on both sides of where a clause's verdict turns; none for any other rule."""
    rules = {one.id: one.expr for one in trial.problem.clauses}
    if clause not in rules or (trial.writes and not slots_of(rules[clause])):
        return []
    rand, inputs = trial.rng("walks", draw, clause), list[VerifierInput]()
    right = [case.answer for case in trial.ordinary]
    wrong = [miss.case.answer for miss in trial.near_misses if miss.clause == clause]
    answers = [*rand.sample(right, min(len(right), len(wrong) or 8)), *wrong]
    answers += [same for answer in right[:2] for same in _with_the_same(trial.problem, answer)]
    for n, step in enumerate(walks(trial.problem, trial.draft.tables, answers, clause, rand)):
        for side, tables in enumerate((step.before, step.after)):
            path = trial.stored(tables, f"walked-{draw}-{clause}-{n}-{side}")
            inputs.append(VerifierInput(step.answer, path, path))
    return inputs


def _with_the_same(problem: Problem, answer: JsonValue) -> Iterator[JsonValue]:
    """The answer with one slot's value given to another slot of its kind, for each two of them."""
    values = match_layout(problem.layout, answer) or {}
    for one, other in permutations(problem.slots, 2):
        alike = (one.kind, one.domain) == (other.kind, other.domain)
        if alike and values and values[one.name] != values[other.name]:
            yield fill_layout(problem.layout, {**values, other.name: values[one.name]})


def perturbed_probes(trial: Trial, draw: int = 0) -> list[VerifierInput]:
    """Answers judged on other rows: what a comparison or bound does shows where values sit at it."""
    rand = trial.rng("perturb", draw)
    lookup = isinstance(trial.problem.goal, Equals)
    pool = [trial.gold_case, *trial.alternatives[:2]]
    marks = [n for case in trial.ordinary for n in _numbers(case.answer)]
    pool += [m.case for m in rand.sample(trial.near_misses, min(4, len(trial.near_misses)))]
    if trial.writes:
        pool += [Case(trial.gold.answer), *_other_outcomes(trial, pool[0])]
    inputs = []
    for i in range(LOOKUP_DATABASES if lookup else DATABASES):
        tables = _perturbed(trial, rand, marks, most=0 if i % 4 == 3 else CALM_TRIES)
        path = trial.stored(tables, f"perturbed-{draw}-{i}")
        found = list(map(as_case, islice(solve(trial.problem, tables, rand), 2)))
        cases = [*found, pool[0]] if lookup else [*found, *_as_told(trial, pool, tables)]
        if found and not lookup and not trial.writes:
            # Nearest to a bound first, a few of each rule.
            base, at = trial.problem, found[0].answer
            near = near_misses(base, tables, at, rand, per_clause=4, steps=4_000)
            cases += [Case(answer) for answer, _ in near]
        inputs += [VerifierInput(c.answer, path, trial.final(c.plan, path)) for c in cases]
    return inputs


def _perturbed(trial: Trial, rand: Random, marks: Sequence[int], *, most: int) -> Tables:
    """Perturbed rows, drawn again up to ``most`` times while they call for escalation: then no rule shows."""
    goal, rules = trial.problem.goal, rules_of(trial.problem)
    for left in range(most, -1, -1):
        tables = perturbed(trial.problem, trial.draft.tables, rand, marks)
        due = goal.escalate_when if isinstance(goal, Reach) else None
        if due is None or not left or rules.value(due, rules.compiler.frame(tables)) is not True:
            break
    return tables


def _numbers(answer: JsonValue) -> Iterator[int]:
    """The whole numbers in an answer."""
    if isinstance(answer, dict | list):
        for item in answer.values() if isinstance(answer, dict) else answer:
            yield from _numbers(item)
    elif type(answer) is int:
        yield answer


def _other_outcomes(trial: Trial, case: Case) -> list[Case]:
    """The other values of a workflow's outcome, with and without the writes."""
    values = match_layout(trial.problem.layout, case.answer)
    if values is None:
        return []
    return [
        Case(fill_layout(trial.problem.layout, {**values, slot.name: other}), plan)
        for slot in trial.problem.slots
        if isinstance(slot.domain, Choice)
        for other in slot.domain.values
        for plan in (case.plan, ())
    ]


def edited_probes(trial: Trial, draw: int = 0) -> list[VerifierInput]:
    """Edit gold's final state of a workflow, and one on which to escalate: one row more, less or other."""
    if not trial.writes:
        return []
    rand = trial.rng("edits", draw)
    cases = _other_outcomes(trial, trial.gold_case)[::2]
    answers = [case.answer for case in cases]
    escalating = _escalating(trial, draw)
    inputs = [
        VerifierInput(case.answer, path, path)
        for path in escalating
        for case in _as_told(trial, [Case(answer) for answer in answers], trial.rows(path))
    ]
    bases = [(trial.database, trial.final(trial.gold_plan)), *((e, e) for e in escalating[:1])]
    for n, (initial, base) in enumerate(bases):
        for relation in trial.draft.relations:
            for kind in KINDS:
                tables = edited(trial.rows(base), relation, kind, rand)
                if tables is not None:
                    path = trial.stored(tables, f"edited-{draw}-{n}-{relation.name}-{kind}")
                    inputs += [VerifierInput(answer, initial, path) for answer in answers]
    return inputs


def _escalating(trial: Trial, draw: int) -> list[Path]:
    """Some perturbed databases on which the right thing is to escalate.

    First those on which there would be something to do: where nothing is, "done" looks the same.
    """
    goal = trial.problem.goal
    if not isinstance(goal, Reach) or goal.escalate_when is None:
        return []
    rand = trial.rng("escalate", draw)
    found: list[tuple[bool, int, Tables]] = []
    rules = rules_of(trial.problem)
    for i in range(ESCALATING_MOST):
        if i >= ESCALATING_TRIES and len(found) >= ESCALATING:
            break
        tables = perturbed(trial.problem, trial.draft.tables, rand)
        frame = rules.compiler.frame(tables)
        if rules.value(goal.escalate_when, frame) is True:
            idle = all(rules.holds(effect.id, frame) for effect in goal.effects)
            found.append((idle, i, tables))
    found.sort(key=lambda one: one[:2])
    return [trial.stored(rows, f"escalating-{draw}-{i}") for _, i, rows in found[:ESCALATING]]


def wrong_forms(problem: Problem, answer: JsonValue) -> list[JsonValue]:
    """A right answer misshapen, and with a slot's value just outside its type: unknown keys, off the grid."""
    wrong = _misshapen(answer)
    values = match_layout(problem.layout, answer)
    if values is None:
        return wrong
    return wrong + [
        fill_layout(problem.layout, {**values, slot.name: other})
        for slot in problem.slots
        for other in _outside(slot, values[slot.name])
    ]


def _outside(slot: Slot, value: JsonValue) -> list[JsonValue]:
    if slot.kind == "set" and isinstance(value, list):
        entries: list[JsonValue] = ["no such key", 1, None, True, value, "\ud800", *value]
        swapped: list[JsonValue] = [[*value[:-1], entry] for entry in entries]
        added: list[JsonValue] = [[*value, entry] for entry in entries]
        return [
            *swapped,
            *added,
            value[:-1],
            [*value, *value],
            {"0": value},
            "".join(map(str, value)),
        ]
    match slot.domain:
        case IntRange(low=low, high=high, step=step):
            beyond = [low - step, high + step, low - 1, high + 1, low + step / 2]
            return [*beyond, float(low), str(low), True]
        case Intervals(low=low, high=high, step=step, length=length):
            starts = [low - step, high - length + step, low + 1, high - length, high, low]
            spans: list[tuple[float, float]] = [(start, start + length) for start in starts]
            spans += [(low, low + length + step), (low, low + length - 1), (low + step, low)]
            spans += [(float(low), low + length), (low, float(low + length))]
            extra = dict(value, extra=0) if isinstance(value, dict) else None
            found: list[JsonValue] = [{"start": a, "end": b} for a, b in spans]
            return [*found, extra, [low, low + length], {"start": low}, "start"]
        case _:
            return ["no such key", 1, True, None, [value], {"key": value}, "", "\ud800"]


def _misshapen(answer: JsonValue) -> list[JsonValue]:
    """Structurally wrong relatives of an answer."""
    wrong: list[JsonValue] = [None, [], {}, "", 0, [answer]]
    if isinstance(answer, list):
        wrong += [answer[:-1], [*answer, answer[-1] if answer else None]]
        for i, item in enumerate(answer):
            wrong += [[*answer[:i], other, *answer[i + 1 :]] for other in _misshapen(item)]
    elif isinstance(answer, dict):
        for key, item in answer.items():
            wrong.append({k: v for k, v in answer.items() if k != key})
            others: list[JsonValue] = [None, 0, True, "x", [], item and [item]]
            if isinstance(item, dict):
                others += _misshapen(item)
            if type(item) is int:
                others += [item + 1, item - 1]
            wrong += [{**answer, key: other} for other in others]
        wrong.append({**answer, "extra": 0})
    elif isinstance(answer, int):
        wrong += [answer + 1, answer - 1, str(answer), float(answer)]
    elif isinstance(answer, str):
        wrong += [answer + " ", answer.upper() + "x"]
    return wrong


def samples(trial: Trial) -> list[VerifierInput]:
    """1,000 answers that are right except for a few slots, drawn uniformly from their types."""
    rand = trial.rng("samples")
    cases = []
    if trial.writes:
        plans = [trial.gold_plan, *[miss.case.plan for miss in trial.near_misses]][:20]
        answers = [trial.gold.answer, *_misshapen(trial.gold.answer)]
        cases = [Case(rand.choice(answers), rand.choice(plans)) for _ in range(SAMPLES)]
        return _inputs(trial, cases)
    problem = trial.problem
    pool = [case.answer for case in trial.ordinary]
    pool += [miss.case.answer for miss in trial.near_misses]
    for _ in range(SAMPLES):
        values = match_layout(problem.layout, rand.choice(pool))
        if values is None:
            continue
        for slot in rand.sample(problem.slots, k=rand.randint(1, min(3, len(problem.slots)))):
            values[slot.name] = _draw(slot, trial.draft.tables, rand)
        cases.append(Case(fill_layout(problem.layout, values)))
    return _inputs(trial, cases)


def _draw(slot: Slot, tables: Tables, rand: Random) -> JsonValue:
    """A value of the slot's type, whatever the slot's domain condition says."""
    match slot.domain:
        case Choice(values=values):
            return rand.choice(values)
        case IntRange(low=low, high=high, step=step):
            return rand.randrange(low, high + 1, step)
        case Intervals(low=low, high=high, step=step, length=length):
            start = rand.randrange(low, high - length + 1, step)
            return {"start": start, "end": start + length}
        case query:
            keys = sorted(tables[query.relation])
            if slot.kind in ("set", "sequence"):
                most = (slot.length or 1) + (slot.kind == "set")  # one too many, or too few
                return list(rand.sample(keys, k=min(len(keys), rand.randint(0, most))))
            return rand.choice(keys)


def _inputs(trial: Trial, cases: Sequence[Case]) -> list[VerifierInput]:
    """The cases on the task's own rows, each once."""
    once: dict[str, Case] = {}
    for case in cases:
        once.setdefault(dumps(case), case)
    return [
        VerifierInput(case.answer, trial.database, trial.final(case.plan)) for case in once.values()
    ]
