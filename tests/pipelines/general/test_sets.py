"""Slots that hold sets of rows, from a page to every gate: ``tests/data/pages/settle.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from cli_runs import ROOT
from oracle import evaluate as judged

from envgen.core.errors import ConfigError
from envgen.core.ir import Problem, Slot
from envgen.core.seeding import rng
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import Hardened, Tasks, tasks_from
from envgen.pipelines.general.difficulty.answers import AnswerGame
from envgen.pipelines.general.difficulty.recipes import fitted
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts
from envgen.pipelines.general.semantics.evaluate import accepted
from envgen.pipelines.general.space.answers import count, solve
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema

PAGE = ROOT / "tests/data/pages/settle.toml"


@cache
def tasks() -> Tasks:
    return tasks_from(page_file(PAGE).text)


@cache
def task(scene: str, seed: int = 0) -> Hardened:
    draws = rng(seed, scene)
    found = tasks()._over_rows(tasks().blueprint.begin(scene, draws), draws, 1.0)
    assert found is not None
    return found


def changed(**parts: Any) -> Tasks:
    """The page with some parts, named ``part__name__field``, replaced."""
    page = tomllib.loads(PAGE.read_text())
    for path, value in parts.items():
        *at, last = path.split("__")
        place = page
        for step in at:
            place = place[step]
        place[last] = value
    return Tasks(Domain.model_validate(page))


@pytest.mark.parametrize("level", [1, 2, 4])
def test_every_level_is_proven(level: int) -> None:
    domain, author, reasons = page_file(PAGE), ProceduralAuthor(), []
    with Hosts(trusted=True) as hosts:
        for seed in range(3):
            request = DraftRequest(domain=domain.id, page=domain.text, level=level)
            draft = author.draft(request, seed)
            assert isinstance(draft, Draft), draft
            proof = prove(draft, hosts, author=author)
            if proof.passed:
                return
            reasons.append(failure(proof.evidence))
    pytest.fail(f"no draft of level {level} was proven: {reasons}")


def test_a_set_is_asked_for_by_its_size() -> None:
    draft = task("match")
    assert draft.problem.shape == "F"
    rendered = prompt(draft.problem, tasks().lexicon)
    note = "the invoices of transfer 1 and the invoices of transfer 2: a list of 1 to 3 different entries"
    assert note in rendered.text
    schema: Any = submit_schema(draft.problem, draft.tables)
    assert schema["properties"]["transfer_1"]["properties"]["pays"] == {
        "type": "array", "uniqueItems": True, "minItems": 1, "maxItems": 3,
        "items": {"type": "string", "x-source": "invoices.id"},
    }  # fmt: skip
    kinds = [(rule.kind, rule.slots, rule.column) for rule in public_rules(draft.problem, rendered)]
    assert ("different", ("/transfer_1/pays", "/transfer_2/pays"), None) in kinds
    assert ("compare", ("/transfer_1/pays",), "open") in kinds


def test_a_set_may_depend_on_an_earlier_slot() -> None:
    draft = task("remind")
    schema: Any = submit_schema(draft.problem, draft.tables)
    assert schema["properties"]["bills"]["items"]["x-where"] == {"customer": "/who"}
    assert count(draft.problem, draft.tables).low == len(right(draft.problem, draft.tables))


def right(problem: Problem, tables: Any) -> set[tuple[str, frozenset[str]]]:
    """By brute force: the customer and the sets of bills that the independent judge accepts."""
    found = set()
    for who, size in product(sorted(tables["customers"]), (2, 3)):
        for bills in combinations(sorted(tables["invoices"]), size):
            answer = {"who": who, "bills": list(bills)}
            if all(judged(problem, tables, answer, tables).values()):
                found.add((who, frozenset(bills)))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_what_is_solved_is_what_brute_force_accepts(seed: int) -> None:
    draft = task("remind", seed)
    found = {
        (a["who"], frozenset(a["bills"])) for a in solve(draft.problem, draft.tables, Random(1))
    }
    assert found == right(draft.problem, draft.tables)


def test_order_says_nothing_and_repeats_are_refused() -> None:
    draft = task("match")
    answer: Any = next(solve(draft.problem, draft.tables, Random(2)))
    longest = max(answer, key=lambda part: len(answer[part]["pays"]))
    pays = answer[longest]["pays"]
    for changed_pays, right_form in ((pays[::-1], True), ([*pays, pays[0]], False), ([], False)):
        other = {**answer, longest: {"pays": changed_pays}}
        assert accepted(draft.problem, draft.tables, other) is right_form


def test_players_choose_sets() -> None:
    games = [AnswerGame(*task("match", seed)) for seed in range(3)]
    recipe = fitted(games[:2])
    for game in games:
        for values in (game.first_row(), game.greedy(), game.first_fit(), recipe(game)):
            assert values is None or all(rows is None or 1 <= len(rows) <= 3 for rows in values)
        assert game.passes(game.first_fit()) or game.first_fit() is None
        found = game.local_search(Random(4), 3_000)
        assert found is not None
        start = game.first_row()
        assert start is not None
        assert not set(start[0]) & set(start[1])
        drawn = [game._near(0, start, Random(seed)) for seed in range(30)]
        assert all(len(set(start[0]).symmetric_difference(rows)) in (1, 2) for rows in drawn)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"scenes__match__slots": {"pays": "some(invoices, 0, 3)"}}, "can't be asked for"),
        ({"scenes__match__slots": {"pays": "some(invoices, 3, 2)"}}, "can't be asked for"),
        ({"scenes__match__slots": {"pays": "some(amounts, 3)"}}, "amounts"),
        ({"tables__invoices__rows": "40"}, "at most 20,000 can be listed"),
        ({"phrases__once__means": "different([pays[k] for k in range(1, n + 1)])"}, "as a whole"),
        ({"phrases__once__means": "pays[1] != pays[2]"}, "as a whole"),
        (
            {"phrases__early__means": "min(i.week for i in pays[k]) <= param.early[k]"},
            "min can't be taken",
        ),
        ({"phrases__once__means": "disjoint([1, 2])"}, "not a list of sets"),
        ({"phrases__open_one__means": "all(i.week >= 1 for i in late)"}, "states its condition"),
    ],
)
def test_what_a_page_may_not_say_of_sets(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        changed(**parts)


def test_a_slot_without_a_least_number_is_stored_as_ever() -> None:
    """Ids of tasks are hashes of what is stored."""
    domain = task("first").problem.slots[0].domain
    assert "least" not in Slot(name="late", kind="set", domain=domain).model_dump()
    slot = Slot(name="late", kind="set", domain=domain, least=2, length=3)
    assert Slot.model_validate_json(slot.model_dump_json()) == slot
