"""Params of the order domain: bounds and ids that make every rule of a task bind on given rows.

Each function looks for values under which each policy rule is the only one that forbids something a
customer could ask for, so that a policy can be broken in each of its rules, one at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from envgen.core.ir import Scalar
from envgen.pipelines.general.domains.orders_recipe import Recipe
from envgen.pipelines.general.domains.orders_rows import days_between, today_of
from envgen.pipelines.general.tables import Row, Tables

Params = dict[str, Scalar]

_BOUND_TRIES = 60
_MAX_ELIGIBLE = 4
"""Items to refund at most; each one doubles the states of random walks."""
_POLICY = ("today", "window", "category", "short_window", "minimum", "cancel_days")
_MAX_ITEMS = 12
"""Delivered items in a request at most, for the same reason."""
_BOUNDED = ("window", "short_window", "minimum")
_SHORTEST = 6
"""Days of the shortest general refund window."""


def bind(
    recipe: Recipe, tables: Tables, rng: Random, policy: Params | None = None
) -> Params | None:
    """Params for a task that can be done, under ``policy`` if given; None if these rows allow none."""
    if recipe.task == "rank":
        return {}
    if recipe.task == "filter":
        return _bind_filter(recipe, tables, rng)
    if recipe.task == "hop":
        return _bind_hop(recipe, tables, rng)
    if recipe.task == "cancel":
        return _bind_cancel(tables, rng, pending=1)
    return next(_bind_refund(recipe, tables, rng, policy), None)


def has_other(recipe: Recipe, tables: Tables, params: Params, rng: Random) -> bool:
    """Whether these rows, and the policy in ``params``, allow another request by another customer."""
    if recipe.task == "cancel":
        own = params["customer"]
        return any(
            _bind_cancel({**tables, "customers": {key: row}}, rng, pending=1) is not None
            for key, row in tables["customers"].items()
            if key != own
        )
    if recipe.task != "refund":
        return True
    found = _bind_refund(recipe, tables, rng, policy_of(params))
    return any(other["customer"] != params["customer"] for other in found)


def policy_of(params: Params) -> Params:
    """The params that the policy states, and the day it is read on."""
    return {name: value for name, value in params.items() if name.startswith(_POLICY)}


def bind_escalation(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    """Params for a task that must be escalated; None if these rows allow none."""
    if recipe.task == "cancel":
        return _bind_cancel(tables, rng, pending=0)
    if recipe.task != "refund":
        return None
    return next(_bind_refund(recipe, tables, rng, None, on_hold=True), None)


def _shuffled(rng: Random, keys: Iterator[str]) -> list[str]:
    found = sorted(keys)
    rng.shuffle(found)
    return found


def _best(rows: list[Row], column: str, sense: str) -> str | None:
    """Key of the row with the best value, None if there is no row or no single best."""
    values = [row[column] for row in rows]
    if not values:
        return None
    best = max(values) if sense in ("highest", "latest") else min(values)  # type: ignore[type-var]  # no None here
    return str(rows[values.index(best)]["id"]) if values.count(best) == 1 else None


def _bind_filter(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    rows = list(tables["orders"].values())
    overall = _best(rows, recipe.attribute, recipe.sense)
    for status in _shuffled(rng, iter({str(row["status"]) for row in rows})):
        kept = [row for row in rows if row["status"] == status]
        if len(kept) >= 2 and _best(kept, recipe.attribute, recipe.sense) != overall:
            return {"status": status}
    return None


def _bind_hop(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    orders = list(tables["orders"].values())
    for customer in _shuffled(rng, iter(tables["customers"])):
        own = [row for row in orders if row["customer_id"] == customer]
        for status in _shuffled(rng, iter({str(row["status"]) for row in own})):
            kept = [row for row in own if row["status"] == status]
            start = _best(kept, "ordered_on", recipe.pick)
            if len(kept) < 2 or start == _best(own, "ordered_on", recipe.pick):
                continue
            items = [row for row in tables["order_items"].values() if row["order_id"] == start]
            if len(items) >= 2 and _best(items, recipe.attribute, recipe.sense) is not None:
                return {"customer": customer, "status": status}
    return None


def _bind_cancel(tables: Tables, rng: Random, *, pending: int) -> Params | None:
    for customer in _shuffled(rng, iter(tables["customers"])):
        own = [row for row in tables["orders"].values() if row["customer_id"] == customer]
        if sum(row["status"] == "pending" for row in own) == pending:
            return {"customer": customer}
    return None


@dataclass(frozen=True)
class _Item:
    """What the policy looks at in an item that was delivered."""

    id: str
    age: int
    category: str
    final_sale: bool
    paid: int

    def broken(self, rules: tuple[str, ...], bounds: Mapping[str, Scalar], window: int) -> set[str]:
        """The rules that forbid a refund."""
        kept = {
            "window": self.age <= window,
            "tier_window": self.age <= window,
            "short_window": self.category != bounds.get("category")
            or self.age <= _number(bounds.get("short_window", 0)),
            "final_sale": not self.final_sale,
            "minimum": self.paid >= _number(bounds.get("minimum", 0)),
        }
        return {rule for rule in rules if not kept[rule]}


def _number(value: Scalar) -> int:
    assert isinstance(value, int)
    return value


def _delivered(tables: Tables, today: Scalar, orders: Collection[str]) -> list[_Item]:
    """The delivered items of ``orders``."""
    items = []
    for key, row in tables["order_items"].items():
        if row["order_id"] not in orders or row["delivered_on"] is None:
            continue
        product = tables["products"][str(row["product_id"])]
        items.append(
            _Item(
                id=key,
                age=days_between(row["delivered_on"], today),
                category=str(product["category"]),
                final_sale=bool(product["final_sale"]),
                paid=_number(row["unit_price"]) * _number(row["quantity"]),
            )
        )
    return items


def _bind_refund(
    recipe: Recipe,
    tables: Tables,
    rng: Random,
    policy: Params | None,
    *,
    on_hold: bool = False,
) -> Iterator[Params]:
    """Every request on these rows in which each rule binds, with one choice of bounds each."""
    today = policy["today"] if policy else today_of(tables["orders"], tables["order_items"])
    for customer in _shuffled(rng, iter(tables["customers"])):
        row = tables["customers"][customer]
        if row["on_hold"] != on_hold:
            continue
        orders = tables["orders"].values()
        own = _shuffled(rng, (str(o["id"]) for o in orders if o["customer_id"] == customer))
        window = _number(tables["tiers"][str(row["tier"])]["window_days"])
        for asked in [own] if recipe.has("all_orders") else [[order] for order in own]:
            items = _delivered(tables, today, asked)
            if on_hold:  # nothing will be done, so no rule needs to bind
                bounds = _bounds(recipe.item_rules, items, rng)[0] if items else None
            else:
                bounds = _bind_bounds(recipe, items, window, policy, rng)
            if bounds is None:
                continue
            params: Params = {"today": today, "customer": customer, **bounds}
            if not recipe.has("all_orders"):
                params["order"] = asked[0]
            spare = _delivered(tables, today, own)
            if not on_hold:
                spare = _spare(recipe.item_rules, items, spare, bounds, window)
            extras = _bind_extras(recipe, tables, params, [item.id for item in spare], rng)
            if extras is not None:
                yield params | extras


def _bind_bounds(
    recipe: Recipe, items: list[_Item], window: int, policy: Params | None, rng: Random
) -> Params | None:
    """Bounds under which each rule alone forbids some refund.

    Without a ``policy`` each bound is one that something to be refunded just meets.
    """
    rules = recipe.item_rules
    if policy is not None:
        return None if _eligible(rules, items, policy, window) is None else policy
    for _ in range(_BOUND_TRIES if 0 < len(items) <= _MAX_ITEMS else 0):
        bounds, edges = _bounds(rules, items, rng)
        found = _eligible(rules, items, bounds, window)
        shortest = _number(bounds.get("window", window))
        if found is not None and shortest >= _SHORTEST and all(item in found for item in edges):
            return bounds
    return None


def _spare(
    rules: tuple[str, ...],
    items: list[_Item],
    delivered: list[_Item],
    bounds: Params,
    window: int,
) -> list[_Item]:
    """Delivered items that the refunds of ``items`` and the rules on them can do without."""
    taken = _eligible(rules, items, bounds, window) or []
    return [
        item
        for item in delivered
        if item not in taken
        and _eligible(rules, [i for i in items if i.id != item.id], bounds, window) is not None
    ]


def _bounds(rules: tuple[str, ...], items: list[_Item], rng: Random) -> tuple[Params, list[_Item]]:
    """Bounds that some items just meet, and those items."""
    edge = {rule: rng.choice(items) for rule in rules if rule in _BOUNDED}
    bounds: Params = {}
    if "window" in edge:
        bounds["window"] = edge["window"].age
    if "short_window" in edge:
        bounds["category"] = edge["short_window"].category
        bounds["short_window"] = edge["short_window"].age
    if "minimum" in edge:
        bounds["minimum"] = edge["minimum"].paid
    return bounds, list(edge.values())


def _eligible(
    rules: tuple[str, ...], items: list[_Item], bounds: Params, window: int
) -> list[_Item] | None:
    """What can be refunded; None if that is too little or too much, or a rule forbids nothing alone.

    ``window`` is that of the customer's tier; a general one in ``bounds`` goes before it.
    """
    window = _number(bounds.get("window", window))
    broken = [item.broken(rules, bounds, window) for item in items]
    alone = {next(iter(found)) for found in broken if len(found) == 1}
    found = [item for item, rules_ in zip(items, broken, strict=True) if not rules_]
    return found if alone == set(rules) and 2 <= len(found) <= _MAX_ELIGIBLE else None


def _bind_extras(
    recipe: Recipe, tables: Tables, params: Params, spare: list[str], rng: Random
) -> Params | None:
    """Params of the wishes beyond refunds; ``spare`` are delivered items that are not refunded."""
    found: Params = {}
    if recipe.has("cancel"):
        ages = sorted(
            days_between(row["ordered_on"], params["today"])
            for row in tables["orders"].values()
            if row["customer_id"] == params["customer"] and row["status"] == "pending"
        )
        fixed = params.get("cancel_days")
        allowed = [a for a in ages[:-1][:2] if fixed is None or a <= _number(fixed) < ages[-1]]
        if not allowed:
            return None
        found["cancel_days"] = rng.choice(allowed) if fixed is None else fixed
    if recipe.has("exchange"):
        pair = _exchange(tables, spare, rng)
        if pair is None:
            return None
        found |= pair
    return found


def _exchange(tables: Tables, spare: list[str], rng: Random) -> Params | None:
    """An item to exchange: there is a cheapest other product, and a cheaper one out of stock."""
    products = list(tables["products"].values())
    for key in _shuffled(rng, iter(spare)):
        own = tables["products"][str(tables["order_items"][key]["product_id"])]
        same = [row for row in products if row["category"] == own["category"]]
        wanted = [row for row in same if row["in_stock"] and row is not own]
        if len(wanted) < 2 or _best(wanted, "price", "lowest") is None:
            continue
        price = min(_number(row["price"]) for row in wanted)
        if any(_number(row["price"]) < price and not row["in_stock"] for row in same):
            return {"item": key}
    return None
