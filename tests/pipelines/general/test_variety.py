"""What differs between tasks, and what does not: near-copies are no tasks of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ladders import ladder, page_of

from envgen.core.seeding import rng
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import DOMAINS, load_tasks, page
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.dataset import diversity
from envgen.pipelines.general.generate import _short
from envgen.pipelines.general.semantics.identity import identity
from envgen.pipelines.general.synthesize import EnvironmentJob, Stage, Yield, synthesize
from envgen.pipelines.general.variety import variety


@pytest.mark.parametrize("name", DOMAINS)
def test_domains_of_the_package_reach_their_targets(name: str) -> None:
    found = variety(load_tasks(name))
    assert found.reached, found


def test_a_page_without_choices_does_not_reach_them() -> None:
    """The counts fall where variety is taken away: one step, one way to say things."""
    domain = page_of("office").model_dump(mode="json", exclude_defaults=True)
    for rule in domain["phrases"].values():
        rule["texts"] = rule["texts"][:1]
        rule["choose"] = {name: values[:1] for name, values in rule.get("choose", {}).items()}
    domain["steps"] = [step for step in domain["steps"] if step["name"] != "add_rule"]
    for scene in domain["scenes"].values():
        scene["opening"] = scene["opening"][:1]
        scene["opening_one"] = scene.get("opening_one", [])[:1]
    asked = {key for scene in domain["scenes"].values() for key in scene["asks"]}
    kept = asked | {"apart", "rooms_once"}
    domain["phrases"] = {key: rule for key, rule in domain["phrases"].items() if key in kept}
    domain["id"], domain["max_level"] = "bare", 8
    found = variety(tasks_from(Domain.model_validate(domain).text), drafts=100)
    assert not found.reached
    assert (found.structures < 20, found.sentences < 30, found.phrasings) == (True, True, 1)


def test_variety_is_the_same_for_the_same_seed() -> None:
    tasks = load_tasks("orders")
    assert variety(tasks, 20, seed=1) == variety(tasks, 20, seed=1)


@pytest.mark.parametrize(
    ("name", "level"), [("trip", 3), ("trip", 7), ("orders", 5), ("meetings", 5)]
)
def test_other_words_are_the_same_problem(name: str, level: int) -> None:
    tasks, problem = load_tasks(name), ladder(name, 1, level)[-1].problem
    worded = [tasks.worded(problem, rng(seed, "words")) for seed in range(5)]
    assert len({one.model_dump_json() for one in worded}) > 1
    assert {identity(one) for one in worded} == {identity(problem)}
    if "who" in problem.fields:
        persona = {**problem.fields, "who": "Somebody Else"}
        assert identity(problem.model_copy(update={"fields": persona})) == identity(problem)


def test_other_parameters_rules_or_layouts_are_other_problems() -> None:
    problem = ladder("trip", 1, 7)[-1].problem
    params = {**problem.params, "luxury_ticket": 7}
    changes: tuple[dict[str, object], ...] = (
        {"params": params},
        {"clauses": problem.clauses[1:]},
        {"layout": []},
    )
    for change in changes:
        assert identity(problem.model_copy(update=change)) != identity(problem)


class _Repeating(ProceduralAuthor):
    """An author whose siblings say the first task in other words, in another person's name."""

    def sibling(self, draft: Draft, seed: int) -> Draft:
        assert draft.problem is not None
        fields = {**draft.problem.fields, "who": "Somebody Else"}
        problem = draft.problem.model_copy(update={"fields": fields})
        return replace(draft, problem=problem, prompt=f"{draft.prompt} again", task_id="other")


def test_a_sibling_in_other_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.pipelines.general.synthesize.ProceduralAuthor", _Repeating)
    job = EnvironmentJob(
        index=0, domain="trip", level=1, tasks=2, seed=3, backend="process", agreement_episodes=0
    )
    found = synthesize(job)
    assert (len(found.tasks), found.drafts.proven, found.siblings.proven) == (1, 1, 0)
    assert found.siblings.rejected == {"sibling: repeated": found.siblings.tried}
    short = _short([found], 2)
    tried = found.siblings.tried
    assert f"trip: 0 of {tried} siblings proven (sibling: repeated {tried} times)" in short


def test_the_gate_compares_problems_in_small_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    job = EnvironmentJob(
        index=0, domain="trip", level=3, tasks=2, seed=3, backend="process", agreement_episodes=0
    )
    found = synthesize(job)
    one, other = found.tasks
    assert diversity([one, other]).status.value == "passed"
    assert isinstance(one.constraints, dict)
    own = one.constraints["fields"]
    assert isinstance(own, dict)
    fields = {**own, "who": "Somebody Else"}
    spec = one.spec.model_copy(update={"id": "t-copy", "prompt": f"{one.spec.prompt} again"})
    copy = one.model_copy(
        update={"spec": spec, "constraints": {**one.constraints, "fields": fields}}
    )
    result = diversity([one, other, copy])
    assert result.status.value == "failed"
    assert "1 tasks twice" in result.reason
    canary = copy.model_copy(update={"constraints": None})
    assert diversity([one, other, canary]).status.value == "passed"


def test_drafts_and_siblings_are_counted_apart() -> None:
    drafts = Stage(tried=3, rejected={"density": 2}, proven=1)
    siblings = Stage(tried=8, rejected={"sibling: tuning": 8})
    one = Yield(index=0, domain="trip", drafts=drafts, siblings=siblings)
    short = _short([one, Yield(index=1, domain="orders")], 3)
    assert "trip: 1 of 3 drafts proven (density 2 times)" in short
    assert "trip: 0 of 8 siblings proven (sibling: tuning 8 times)" in short
    assert _short([one], 0) == ""


def test_wording_draws_nothing_that_rows_or_rules_depend_on() -> None:
    """A page with a lexicon file and one without make the same problems of a seed."""
    domain = page("meetings").model_dump(mode="json", exclude_defaults=True)
    for rule in domain["phrases"].values():
        rule["texts"] = rule["texts"][:1]
    bare = Domain.model_validate(domain)
    author, found = ProceduralAuthor(), []
    for text in (bare.text, page("meetings").text):
        draft = author.draft(DraftRequest(domain="meetings", page=text, level=4), seed=11)
        assert isinstance(draft, Draft)
        assert draft.problem is not None
        found.append((identity(draft.problem), draft.tables))
    assert found[0] == found[1]
