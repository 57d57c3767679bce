"""Order management: look-ups in an order desk, then refunds, exchanges and cancellations by policy.

Levels 1 to 3 ask for one row (shape B), 4 for one write, 5 for all refunds that a one-rule policy
allows, 6 to 10 add rules and wishes to that, in any order (shape C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from pydantic import JsonValue

from envgen.core.ir import Clause, Goal, Problem
from envgen.pipelines.general.blueprint import Hardened, Operator
from envgen.pipelines.general.domains.orders_bind import (
    Params,
    bind,
    bind_escalation,
    has_other,
    policy_of,
)
from envgen.pipelines.general.domains.orders_lexicon import LEXICON
from envgen.pipelines.general.domains.orders_recipe import (
    ATTRIBUTES,
    FEATURES,
    ITEM_ATTRIBUTES,
    Recipe,
    Sense,
    recipe_of,
)
from envgen.pipelines.general.domains.orders_rows import draw_tables
from envgen.pipelines.general.domains.orders_rules import ESCALATED, RULE_WORDS
from envgen.pipelines.general.domains.orders_schema import access, relations
from envgen.pipelines.general.tables import Tables

_DRAWS = 400
"""Tables drawn before a recipe is given up."""
_REBINDS = 10
"""Searches for params on rows that are known to allow some."""
_ESCALATED_SHARE = 0.15
"""Share of re-seeded requests that must be escalated."""
_OPENINGS = {"rank": "queue", "filter": "queue", "hop": "items", "cancel": "cancel"}


def statement(recipe: Recipe, params: Params) -> Problem:
    """The problem of ``recipe``; everything but ``params`` follows from the recipe alone."""
    fields = _fields(recipe)
    frame = LEXICON.frame(fields)
    clauses, goal = _asked(recipe, fields)
    return Problem(
        id="-".join(["orders", recipe.task, *sorted(recipe.features)]),
        shape="B" if recipe.task in ("rank", "filter", "hop") else "C",
        relations=relations(recipe),
        access=access(recipe),
        slots=frame.slots,
        clauses=clauses,
        goal=goal,
        layout=frame.layout,
        params=params,
        lexicon=LEXICON.id,
        fields=fields,
    )


def _fields(recipe: Recipe) -> dict[str, JsonValue]:
    if recipe.task != "refund":
        fields: dict[str, JsonValue] = {"opening": _OPENINGS[recipe.task]}
        return fields | ({"escalation": ESCALATED} if recipe.task == "cancel" else {})
    opening = "refund_all" if recipe.has("all_orders") else "refund_order"
    return {"opening": opening, "escalation": ESCALATED}


def _rule_words(recipe: Recipe) -> list[JsonValue]:
    return [RULE_WORDS[rule] for rule in recipe.item_rules]


def _asked(recipe: Recipe, fields: dict[str, JsonValue]) -> tuple[tuple[Clause, ...], Goal]:
    """Policy clauses and goal."""
    if recipe.task in ("rank", "filter", "hop"):
        said: dict[str, JsonValue] = {"sense": recipe.sense, "attribute": recipe.attribute}
        if recipe.task == "hop":
            said["pick"] = recipe.pick
        return (), LEXICON.goal(recipe.task, **said)
    if recipe.task == "cancel":
        return (), LEXICON.reach_goal(fields, (LEXICON.clause("cancel"),))
    key = str(fields["opening"]) + ("_fee" if recipe.has("fee") else "")
    effects = [LEXICON.clause(key, rules=_rule_words(recipe))]
    clauses = [LEXICON.clause(rule) for rule in recipe.item_rules]
    if recipe.has("cancel"):
        effects.append(LEXICON.clause("cancel_allowed"))
        clauses.append(LEXICON.clause("cancel_window"))
    if recipe.has("exchange"):
        effects.append(LEXICON.clause("exchange"))
    return tuple(clauses), LEXICON.reach_goal(fields, tuple(effects))


def _build(recipe: Recipe, rng: Random) -> Hardened | None:
    """Rows and params for ``recipe``; rows that allow a sibling, if some of the draws do."""
    found = None
    for _ in range(_DRAWS):
        tables = draw_tables(recipe, rng)
        params = bind(recipe, tables, rng)
        if params is None:
            continue
        found = found or Hardened(statement(recipe, params), tables)
        if has_other(recipe, tables, params, rng):
            return Hardened(statement(recipe, params), tables)
    return found


def _step(
    change: Callable[[Recipe, Random], Recipe | None],
    problem: Problem,
    tables: Tables,
    rng: Random,
) -> Hardened | None:
    recipe = change(recipe_of(problem), rng)
    return None if recipe is None else _build(recipe, rng)


def _filter(recipe: Recipe, _: Random) -> Recipe | None:
    return replace(recipe, task="filter")


def _hop(recipe: Recipe, rng: Random) -> Recipe:
    attribute = rng.choice(ITEM_ATTRIBUTES)
    return replace(recipe, task="hop", attribute=attribute, pick=rng.choice(("latest", "earliest")))


def _cancel(_: Recipe, __: Random) -> Recipe | None:
    return Recipe(task="cancel")


def _refund(_: Recipe, __: Random) -> Recipe | None:
    return Recipe(task="refund")


def _add(feature: str, recipe: Recipe, _: Random) -> Recipe | None:
    if recipe.task != "refund" or recipe.has(feature):
        return None
    return replace(recipe, features=recipe.features | {feature})


_OPERATORS = (
    Operator("filter_by_status", partial(_step, _filter), (1,)),
    Operator("follow_references", partial(_step, _hop), (2,)),
    Operator("write_once", partial(_step, _cancel), (3,)),
    Operator("refund_by_policy", partial(_step, _refund), (4,)),
    *(
        Operator(f"add_{feature}", partial(_step, partial(_add, feature)), (5, 6, 7, 8, 9))
        for feature in FEATURES
    ),
)


class Orders:
    """The blueprint of order management."""

    category = "order-management"
    title = "Order management"
    description = (
        "The order desk of an online shop: customers, orders, their items and products, with tools to "
        "look them up, refund, exchange and cancel, under a written policy."
    )
    lexicon = LEXICON
    operators: Sequence[Operator] = _OPERATORS
    max_level = 10
    licence = "CC0-1.0"
    sources: tuple[str, ...] = ()

    def tables(self, rng: Random, level: int) -> Tables:
        """A queue of 2 to 4 orders."""
        return draw_tables(Recipe(task="rank"), rng)

    def problem(self, rng: Random, tables: Tables) -> Problem | None:
        """Which order of the queue has the highest or lowest of one small number."""
        attribute = rng.choice(ATTRIBUTES)
        recipe = Recipe(task="rank", attribute=attribute, sense=rng.choice(("highest", "lowest")))
        return statement(recipe, {})

    def reseed(self, rng: Random, problem: Problem, level: int) -> Tables:
        """New rows on which ``problem`` can be re-bound."""
        recipe = recipe_of(problem)
        for _ in range(_DRAWS):
            tables = draw_tables(recipe, rng)
            if bind(recipe, tables, rng) is not None:
                break
        return tables

    def rebind(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """``problem`` with params for ``tables``; now and then a request that must be escalated."""
        recipe = recipe_of(problem)
        params = None
        if rng.random() < _ESCALATED_SHARE:
            params = bind_escalation(recipe, tables, rng)
        for _ in range(_REBINDS):
            params = params or bind(recipe, tables, rng)
        return None if params is None else problem.model_copy(update={"params": params})

    def sibling(self, rng: Random, problem: Problem, tables: Tables) -> Problem | None:
        """Another question to the same desk: same rows, tools and policy; None if there is none."""
        recipe = recipe_of(problem)
        other = _other_question(recipe, rng)
        policy = policy_of(problem.params) if recipe.task == "refund" else None
        params = bind(other, tables, rng, policy)
        if params is None:
            return None
        found = statement(other, params)
        return None if found == problem.model_copy(update={"id": found.id}) else found


def _other_question(recipe: Recipe, rng: Random) -> Recipe:
    senses: tuple[Sense, ...] = ("highest", "lowest")
    if recipe.task == "rank":
        return replace(recipe, sense=senses[recipe.sense == "highest"])
    if recipe.task == "filter":
        return replace(recipe, sense=rng.choice(senses), attribute=rng.choice(ATTRIBUTES))
    return _hop(replace(recipe, sense=rng.choice(senses)), rng) if recipe.task == "hop" else recipe
