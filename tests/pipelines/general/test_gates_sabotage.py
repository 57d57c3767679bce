"""Each gate catches what it is there for: something is broken on purpose, and it must fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from drafts import attempted
from ladders import page_of
from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.ir import Clause, Cmp, Const, Query, Reach, WriteSet
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates import (
    execution,
    meaning,
    mutation,
    probes,
    shortcuts,
    soundness,
    unrequested,
)
from envgen.pipelines.general.gates.prove import GATES, prove
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.evaluate import accepted, as_told, rules_of
from envgen.pipelines.general.semantics.tables import read_sqlite
from envgen.sandboxes.verifier import VerifierInput

ACCEPT_ALL = "def verify(answer, initial, final):\n    return []\n"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(backend="process", trusted=True) as started:
        yield started


@cache
def draft_of(domain: str, level: int) -> Draft:
    """The first draft of a level that passes every gate."""
    author, found = ProceduralAuthor(), page_of(domain)
    request = DraftRequest(domain=found.id, page=found.text, level=level)
    with Hosts(backend="process", trusted=True) as started:
        for seed in range(20):
            draft = author.draft(request, seed)
            if isinstance(draft, Draft) and prove(draft, started, author=author, seed=seed).passed:
                return draft
    raise AssertionError(f"no {domain} draft of level {level} passes")


@pytest.fixture
def run(hosts: Hosts, tmp_path: Path) -> Callable[..., GateResult]:
    """Run one gate over one draft."""

    def gate_result(
        gate: Callable[[Trial], GateResult], draft: Draft, author: object = None
    ) -> GateResult:
        with TemporaryDirectory(dir=tmp_path) as folder:
            trial = Trial(draft, hosts, Path(folder), author or ProceduralAuthor(), seed=1)  # type: ignore[arg-type]  # sabotaged authors
            with closing(trial):
                return gate(trial)

    return gate_result


def workflow() -> Draft:
    return draft_of("orders", 5)


def search() -> Draft:
    return draft_of("office", 5)


def lookup() -> Draft:
    return draft_of("trip", 1)


@pytest.mark.parametrize("name", [name for name, _ in GATES])
@pytest.mark.parametrize(
    "make",
    [
        lookup,
        pytest.param(search, marks=pytest.mark.slow),  # ``draft_of`` returns what passes every gate
        pytest.param(workflow, marks=pytest.mark.slow),
    ],
)
def test_sound_drafts_pass(
    name: str, make: Callable[[], Draft], run: Callable[..., GateResult]
) -> None:
    gate = dict(GATES)[name]
    assert run(gate, make()).status in (GateStatus.PASSED, GateStatus.NOT_APPLICABLE)


def test_restricted_catches_an_import(run: Callable[..., GateResult]) -> None:
    broken = replace(lookup(), solution="import os\n" + lookup().solution)
    assert run(execution.restricted, broken).status is GateStatus.FAILED


def test_restricted_catches_a_hard_coded_answer(
    run: Callable[..., GateResult], hosts: Hosts, tmp_path: Path
) -> None:
    folder = tmp_path / "gold"
    folder.mkdir()
    with closing(Trial(lookup(), hosts, folder, None, seed=1)) as trial:
        answer = trial.gold.answer
    broken = replace(lookup(), solution=f"def solve():\n    return {answer!r}\n")
    assert run(execution.restricted, broken).status is GateStatus.FAILED


def test_rebuild_catches_rows_that_do_not_survive(run: Callable[..., GateResult]) -> None:
    draft = lookup()
    relation = next(r for r in draft.relations if draft.tables[r.name])
    rows = dict(draft.tables[relation.name])
    rows["misfiled"] = rows.pop(min(rows))
    broken = replace(draft, tables={**draft.tables, relation.name: rows})
    assert run(execution.rebuild, broken).status is GateStatus.FAILED


def test_gold_catches_a_wrong_solution(run: Callable[..., GateResult]) -> None:
    broken = replace(lookup(), solution='def solve():\n    return "no such thing"\n')
    assert run(execution.gold, broken).status is GateStatus.FAILED


def test_gold_catches_a_solution_that_depends_on_the_hash_seed(
    run: Callable[..., GateResult],
) -> None:
    source = 'def solve():\n    return [name for name in {"a", "b", "c", "d", "e", "f", "g"}]\n'
    assert "differ" in run(execution.gold, replace(lookup(), solution=source)).reason


def test_stated_catches_a_rule_that_the_prompt_omits(run: Callable[..., GateResult]) -> None:
    draft = search()
    sentences = re.split(r"(?<=\.)\s", draft.prompt)
    broken = replace(draft, prompt=draft.prompt.replace(sentences[len(sentences) // 2], ""))
    assert run(meaning.stated, broken).status is GateStatus.FAILED


def test_stated_catches_a_number_that_differs(run: Callable[..., GateResult]) -> None:
    draft = draft_of("trip", 3)
    assert draft.problem is not None
    name = next(k for k, v in draft.problem.params.items() if isinstance(v, int))
    params = {**draft.problem.params, name: int(str(draft.problem.params[name])) + 1}
    broken = replace(draft, problem=draft.problem.model_copy(update={"params": params}))
    assert run(meaning.stated, broken).status is GateStatus.FAILED


def test_stated_catches_a_condition_on_a_slot_that_no_rule_repeats(
    run: Callable[..., GateResult],
) -> None:
    page = page_of("trip")
    draft = ProceduralAuthor().draft(DraftRequest(domain=page.id, page=page.text, level=6), 0)
    assert isinstance(draft, Draft)
    assert run(meaning.stated, draft).status is GateStatus.PASSED
    assert draft.problem is not None
    clauses = tuple(c for c in draft.problem.clauses if not c.text_key.startswith("located"))
    assert len(clauses) == len(draft.problem.clauses) - 1
    found = run(
        meaning.stated,
        replace(draft, problem=draft.problem.model_copy(update={"clauses": clauses})),
    )
    assert found.status is GateStatus.FAILED
    assert found.reason.startswith("conditions on slots that no rule states: hotel_1: city")


def test_leaks_catches_the_answer_in_a_tool_description(
    run: Callable[..., GateResult], hosts: Hosts, tmp_path: Path
) -> None:
    folder = tmp_path / "gold"
    folder.mkdir()
    draft = lookup()
    with closing(Trial(draft, hosts, folder, None, seed=1)) as trial:
        answer = str(trial.gold.answer)
    tool = draft.tools[0].model_copy(update={"description": f"Lists rows such as {answer}."})
    broken = replace(draft, tools=(tool, *draft.tools[1:]))
    assert run(meaning.leaks, broken).status is GateStatus.FAILED


def test_density_catches_a_task_without_rules(run: Callable[..., GateResult]) -> None:
    draft = search()
    assert draft.problem is not None
    broken = replace(draft, problem=draft.problem.model_copy(update={"clauses": ()}))
    assert run(meaning.density_gate, broken).status is GateStatus.FAILED


def test_binding_catches_a_rule_that_never_matters(run: Callable[..., GateResult]) -> None:
    draft = search()
    assert draft.problem is not None
    always = Cmp(fn="=", left=Const(value=1), right=Const(value=1))
    idle = Clause(id="idle", family="x", expr=always, text_key="x")
    problem = draft.problem.model_copy(update={"clauses": (*draft.problem.clauses, idle)})
    result = run(meaning.binding, replace(draft, problem=problem))
    assert result.status is GateStatus.FAILED
    assert "idle" in result.reason


def test_attacks_catches_a_verifier_that_takes_anything(run: Callable[..., GateResult]) -> None:
    broken = replace(lookup(), verifier=ACCEPT_ALL)
    assert run(soundness.attacks, broken).status is GateStatus.FAILED


def test_prefixes_catches_a_verifier_that_ignores_the_state(
    run: Callable[..., GateResult],
) -> None:
    broken = replace(workflow(), verifier=ACCEPT_ALL)
    assert run(soundness.prefixes, broken).status is GateStatus.FAILED


def test_collateral_catches_a_verifier_without_a_write_set(run: Callable[..., GateResult]) -> None:
    draft = workflow()
    wrapped = (
        draft.verifier.replace("def verify(", "def strict(")
        + "\n\ndef verify(answer, initial, final):\n"
        + '    return [rule for rule in strict(answer, initial, final) if rule != "write_set"]\n'
    )
    assert run(soundness.collateral, replace(draft, verifier=wrapped)).status is GateStatus.FAILED


def test_unrequested_catches_a_write_set_that_is_too_wide(run: Callable[..., GateResult]) -> None:
    """Asked to drop one section, an agent dropped another one, too: every other gate judges by the IR."""
    draft = draft_of("orders", 5)
    problem = draft.problem
    assert problem is not None
    assert isinstance(problem.goal, Reach)
    assert run(unrequested.unrequested, draft).status is GateStatus.PASSED
    wide = tuple(
        WriteSet(
            relation=part.relation,
            rows=Query(var="row", relation=part.relation),
            columns=tuple(c.name for c in problem.relation(part.relation).columns)[1:],
        )
        for part in problem.goal.write_set
    )
    loose = problem.model_copy(update={"goal": problem.goal.model_copy(update={"write_set": wide})})
    broken = replace(draft, problem=loose, verifier=verifier_source(loose))
    for gate in (soundness.prefixes, soundness.collateral, soundness.evaluation):
        assert run(gate, broken).status is GateStatus.PASSED
    found = run(unrequested.unrequested, broken)
    assert found.status is GateStatus.FAILED
    assert "which came" in found.reason


def test_unrequested_catches_a_verifier_that_breaks(run: Callable[..., GateResult]) -> None:
    broken = replace(
        workflow(), verifier="def verify(answer, initial, final):\n    return [1 / 0]\n"
    )
    found = run(unrequested.unrequested, broken)
    assert found.status is GateStatus.FAILED
    assert "break the verifier" in found.reason


@pytest.mark.parametrize("make", [search, workflow])
def test_near_misses_catches_a_verifier_that_forgets_a_rule(
    make: Callable[[], Draft], run: Callable[..., GateResult]
) -> None:
    draft = make()
    assert draft.problem is not None
    rules = [*draft.problem.clauses, *getattr(draft.problem.goal, "effects", ())]
    rule = rules[-1].id
    wrapped = (
        draft.verifier.replace("def verify(", "def strict(")
        + "\n\ndef verify(answer, initial, final):\n"
        + f"    return [rule for rule in strict(answer, initial, final) if rule != {rule!r}]\n"
    )
    result = run(soundness.near_misses, replace(draft, verifier=wrapped))
    assert result.status is GateStatus.FAILED
    assert rule in result.reason


def test_alternatives_catches_a_verifier_that_knows_one_answer(
    run: Callable[..., GateResult], hosts: Hosts, tmp_path: Path
) -> None:
    folder = tmp_path / "gold"
    folder.mkdir()
    with closing(Trial(search(), hosts, folder, None, seed=1)) as trial:
        answer = trial.gold.answer
    source = (
        f"def verify(answer, initial, final):\n    return [] if answer == {answer!r} else ['x']\n"
    )
    assert (
        run(soundness.alternatives, replace(search(), verifier=source)).status is GateStatus.FAILED
    )


def test_reseeds_catches_a_solution_for_one_database(
    run: Callable[..., GateResult], hosts: Hosts, tmp_path: Path
) -> None:
    folder = tmp_path / "gold"
    folder.mkdir()
    with closing(Trial(lookup(), hosts, folder, None, seed=1)) as trial:
        answer = trial.gold.answer
    hard_coded = f"\n\ndef solve():\n    return {answer!r}\n"

    class Author(ProceduralAuthor):
        def reseed(self, draft: Draft, seed: int) -> Draft | None:
            child = super().reseed(draft, seed)
            return None if child is None else replace(child, solution=child.solution + hard_coded)

    broken = replace(lookup(), solution=lookup().solution + hard_coded)
    assert run(execution.reseeds, broken, Author()).status is GateStatus.FAILED


def test_reseeds_catches_a_verifier_changed_beyond_its_parameters(
    run: Callable[..., GateResult],
) -> None:
    class Author(ProceduralAuthor):
        def reseed(self, draft: Draft, seed: int) -> Draft | None:
            child = super().reseed(draft, seed)
            return None if child is None else replace(child, verifier=child.verifier + "# more\n")

    assert "PARAMS" in run(execution.reseeds, lookup(), Author()).reason


def test_shortcuts_catches_a_winner_that_is_always_first(run: Callable[..., GateResult]) -> None:
    """Re-seeds whose right row is always listed first make "submit the first row" a solution."""

    class Author(ProceduralAuthor):
        def reseed(self, draft: Draft, seed: int) -> Draft | None:
            for i in range(200):
                child = super().reseed(draft, seed + i)
                if child is not None and first_wins(child):
                    return child
            return None

    def first_wins(child: Draft) -> bool:
        from envgen.core.seeding import rng
        from envgen.pipelines.general.semantics.layout import match_layout
        from envgen.pipelines.general.space.answers import solve

        assert child.problem is not None
        slot = child.problem.slots[0]
        relation = getattr(slot.domain, "relation", "")
        answer = next(iter(solve(child.problem, child.tables, rng(0))), None)
        values = match_layout(child.problem.layout, answer) or {}
        return bool(values) and values[slot.name] == min(child.tables[relation])

    assert run(shortcuts.shortcuts, lookup(), Author()).status is GateStatus.FAILED


def test_shortcuts_catches_parts_that_are_always_first(run: Callable[..., GateResult]) -> None:
    """The same for answers of several parts: the first room and the first time are right every time."""

    class Author(ProceduralAuthor):
        def reseed(self, draft: Draft, seed: int) -> Draft | None:
            children = (super(Author, self).reseed(draft, seed + i) for i in range(400))
            return next((child for child in children if child and first_parts_fit(child)), None)

    def first_parts_fit(child: Draft) -> bool:
        assert child.problem is not None
        properties: Any = child.submit_schema["properties"]
        room, time = properties.values()
        relation = room["x-source"].partition(".")[0]
        start = time["x-intervals"]["low"]
        slot = {"start": start, "end": start + time["x-intervals"]["length"]}
        answer: JsonValue = {"room": min(child.tables[relation]), "time": slot}
        return accepted(child.problem, child.tables, answer)

    def gate(trial: Trial) -> GateResult:
        meaning.density_gate(trial)  # what chance would do
        return shortcuts.shortcuts(trial)

    honest = run(gate, search())
    assert (honest.status, honest.n) == (GateStatus.PASSED, 2), honest
    caught = run(gate, search(), Author())
    assert caught.status is GateStatus.FAILED
    assert "each part's first value" in caught.reason


def test_mutation_catches_code_that_no_probe_reaches(run: Callable[..., GateResult]) -> None:
    draft = lookup()
    dead = "".join(f"    if answer == 'backdoor {i}':\n        return []\n" for i in range(12))
    broken = draft.verifier.replace(
        "def verify(answer, initial, final):\n", f"def verify(answer, initial, final):\n{dead}"
    )
    assert broken != draft.verifier
    assert run(mutation.mutants_killed, replace(draft, verifier=broken)).status is GateStatus.FAILED


@cache
def held() -> Draft:
    """Refunds are due, unless some delivered item cost too much."""
    drafts = (attempted("orders", 5, n) for n in range(99))
    return next(d for d in drafts if isinstance(d, Draft) and "Escalation" in d.policy_text)


def test_mutation_probes_databases_on_which_to_escalate(hosts: Hosts, tmp_path: Path) -> None:
    """Not those on which there is merely nothing to do: they leave half of the verifier untried."""
    draft = held()
    assert draft.problem is not None
    goal = draft.problem.goal
    assert isinstance(goal, Reach)
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with closing(Trial(draft, hosts, folder, ProceduralAuthor(), seed=seed)) as trial:
            tried = {(dumps(p.answer), p.initial, p.final) for p in probes.edited_probes(trial)}
            paths = sorted(folder.glob("escalating-*"))
            assert paths
            for path in paths:
                told = as_told(draft.problem, trial.rows(path), {"outcome": "", "dearest": ""})
                assert isinstance(told, dict)
                plain = [
                    VerifierInput({**told, "outcome": o}, path, path) for o in ("escalated", "done")
                ]
                assert {(dumps(one.answer), path, path) for one in plain} <= tried
                right, wrong = hosts.verifier.verify_many(draft.verifier, plain)
                assert right.broken == ()
                assert wrong.broken is not None
                assert "goal" in wrong.broken
            states = [read_sqlite(draft.relations, path) for path in paths]
            rules = rules_of(draft.problem)
            frames = [rules.compiler.frame(tables) for tables in states]
            pending = [not all(rules.holds(e.id, f) for e in goal.effects) for f in frames]
            assert any(pending)


def test_gates_after_a_failure_are_not_run(hosts: Hosts) -> None:
    evidence: Evidence = prove(replace(lookup(), solution="import os\n"), hosts).evidence
    assert evidence[0].status is GateStatus.FAILED
    assert {result.status for result in evidence[1:]} == {GateStatus.NOT_RUN}


VERIFIERS = (
    ("a tie broken the other way", lookup, r"ORDER BY ([^,]+), (x\.name)",
     r"ORDER BY \1, \2 DESC"),
    ("a touching meeting refused", search, r"<= b\.start_min", "< b.start_min"),
    ("a meeting before another refused", search, r">= b\.end_min", "> b.end_min"),
    ("a bound moved", lambda: draft_of("trip", 3), r" (<|>)= :param", r" \1 :param"),
    ("a bound let go", search, r">= \(SELECT COUNT\(\*\)", ">= -1 + (SELECT COUNT(*)"),
    ("a rule that nobody stated", search, r"return broken$",
     'return broken or (["early"] if answer["time"]["start"] < 780 else [])'),
    ("a rule about names that nobody stated", search, r"return broken$",
     'return broken or (["room"] if answer["room"] > "P" else [])'),
    ("a state that does not matter", workflow, r"AND o\.status = '\w+'", ""),
    ("an escalation that is never due", workflow, r"NOT\s+EXISTS \((.*?)TRUE\s+\)", "FALSE"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "make", "pattern", "replacement"), VERIFIERS)
def test_evaluation_catches_a_verifier_that_nothing_can_be_compared_with(
    name: str,
    make: Callable[[], Draft],
    pattern: str,
    replacement: str,
    run: Callable[..., GateResult],
) -> None:
    """Both ways: right answers that fail, wrong ones that pass. No source is compared."""
    draft = make()
    broken = re.sub(pattern, replacement, draft.verifier, flags=re.DOTALL | re.MULTILINE)
    assert broken != draft.verifier
    result = run(soundness.evaluation, replace(draft, verifier=broken, author="model"))
    assert result.status is GateStatus.FAILED


def test_compiled_catches_every_part_that_is_not_compiled(run: Callable[..., GateResult]) -> None:
    draft = lookup()
    assert draft.problem is not None
    changes: tuple[dict[str, Any], ...] = (
        {"title": "Another"},
        {"description": "Another."},
        {"licence": "MIT"},
        {"tools_source": draft.tools_source + "\n"},
        {"tools": draft.tools[::-1] if len(draft.tools) > 1 else ()},
        {"policy_text": "Be kind."},
        {"prompt": draft.prompt + " "},
        {"submit_schema": {}},
        {"rules": ()},
        {"solution": draft.solution + "\n"},
        {"verifier": draft.verifier + "\n"},
        {"environment_id": "elsewhere"},
        {"task_id": "t-other"},
        {"blueprint": {"domain": "trip", "level": 2, "operators": [], "seed": draft.seed}},
    )
    for change in changes:
        result = run(execution.compiled, replace(draft, **change))
        assert result.status is GateStatus.FAILED, change
        assert next(iter(change)) in result.reason
