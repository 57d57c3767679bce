"""Params of the order domain: bounds and ids that make every rule of a task bind on given rows.

Each function looks for values under which each policy rule is the only one that forbids something a
customer could ask for, so that a policy can be broken in each of its rules, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from envgen.core.ir import Scalar
from envgen.pipelines.general.domains.orders_recipe import Recipe
from envgen.pipelines.general.domains.orders_rows import TIERS
from envgen.pipelines.general.tables import Row, Tables

Params = dict[str, Scalar]

_BOUND_TRIES = 40
_MAX_ELIGIBLE = 5
"""Items to refund plus orders to refund from, at most; each item doubles the states of random walks."""
_POLICY = ("today", "window", "category", "short_window", "minimum", "cancel_days")
_SHORTEST = 6
"""Days of the shortest refund window."""


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


def policy_of(params: Params) -> Params:
    """The params that the policy states, and the day it is read on."""
    return {name: value for name, value in params.items() if name.startswith(_POLICY)}


def bind_escalation(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    """Params for a task that must be escalated; None if these rows allow none."""
    if recipe.task == "cancel":
        return _bind_cancel(tables, rng, pending=0)
    if recipe.task != "refund":
        return None
    for params in _bind_refund(recipe, tables, rng):
        request = _request(recipe, tables, params)
        youngest = min(item.age for items in request for item in items)
        if youngest > _SHORTEST:
            return params | _windows(recipe, tables, params, youngest - 1, rng)
    return None


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
    """What the policy looks at in an item that was delivered and can still be refunded."""

    age: int
    category: str
    final_sale: bool
    paid: int

    def broken(self, rules: tuple[str, ...], bounds: Params, window: int) -> set[str]:
        """The rules that forbid a refund."""
        found = set()
        for rule in rules:
            if rule in ("window", "tier_window"):
                allowed = self.age <= window
            elif rule == "short_window":
                short = bounds["short_window"]
                assert isinstance(short, int)
                allowed = self.category != bounds["category"] or self.age <= short
            elif rule == "final_sale":
                allowed = not self.final_sale
            else:
                minimum = bounds["minimum"]
                assert isinstance(minimum, int)
                allowed = self.paid >= minimum
            if not allowed:
                found.add(rule)
        return found


def _today(tables: Tables) -> str:
    """The day after the last thing that happened."""
    days = [str(row["ordered_on"]) for row in tables["orders"].values()]
    days += [str(r["delivered_on"]) for r in tables["order_items"].values() if r["delivered_on"]]
    return (date.fromisoformat(max(days)) + timedelta(days=1)).isoformat()


def _days(start: Scalar, end: Scalar) -> int:
    return (date.fromisoformat(str(end)) - date.fromisoformat(str(start))).days


def _request(recipe: Recipe, tables: Tables, params: Params) -> list[list[_Item]]:
    """The refundable items of each order of the request."""
    request = []
    for n in recipe.orders:
        items = []
        for row in tables["order_items"].values():
            if row["order_id"] != params[f"order_{n}"] or row["status"] != "delivered":
                continue
            product = tables["products"][str(row["product_id"])]
            price, quantity = row["unit_price"], row["quantity"]
            assert isinstance(price, int)
            assert isinstance(quantity, int)
            items.append(
                _Item(
                    age=_days(row["delivered_on"], params["today"]),
                    category=str(product["category"]),
                    final_sale=bool(product["final_sale"]),
                    paid=price * quantity,
                )
            )
        request.append(items)
    return request


def _bind_refund(
    recipe: Recipe, tables: Tables, rng: Random, policy: Params | None = None
) -> Iterator[Params]:
    """Every request on these rows in which each rule binds, with one choice of bounds each."""
    today = policy["today"] if policy else _today(tables)
    for customer in _shuffled(rng, iter(tables["customers"])):
        own = [row for row in tables["orders"].values() if row["customer_id"] == customer]
        delivered = _shuffled(rng, (str(row["id"]) for row in own if row["status"] == "delivered"))
        for first in range(0, len(delivered) - len(recipe.orders) + 1):
            asked = delivered[first : first + len(recipe.orders)]
            params: Params = {"today": today, "customer": customer}
            params |= {f"order_{n}": key for n, key in zip(recipe.orders, asked, strict=True)}
            extras = _bind_extras(
                recipe, tables, params | (policy or {}), _without(delivered, asked), rng
            )
            if extras is None:
                continue
            bounds = _bind_bounds(recipe, tables, params, rng, policy)
            if bounds is not None:
                yield params | extras | bounds


def _without(items: list[str], others: list[str]) -> list[str]:
    return [item for item in items if item not in others]


def _bind_bounds(
    recipe: Recipe, tables: Tables, params: Params, rng: Random, policy: Params | None
) -> Params | None:
    """Bounds of the rules on items under which each of them alone forbids some refund."""
    request = _request(recipe, tables, params)
    items = [item for order in request for item in order]
    ages = sorted({item.age for item in items})
    rules = recipe.item_rules
    if policy:
        window = _own_window(recipe, tables, params, policy)
        bound = _binds(rules, request, policy, window)
        return policy | _fees(recipe, rng) if bound else None
    windows = [age for age in ages[:-1] if age >= _SHORTEST]
    for _ in range(_BOUND_TRIES if windows else 0):
        window = rng.choice(windows)
        bounds: Params = {}
        if "short_window" in rules:
            bounds["category"] = rng.choice(sorted({item.category for item in items}))
            younger = [age for age in ages if 2 <= age < window]
            bounds["short_window"] = rng.choice(younger) if younger else window
        if "minimum" in rules:
            paid = sorted(item.paid for item in items)
            bounds["minimum"] = paid[min(rng.randint(1, 2), len(paid) - 1)]
        if _binds(rules, request, bounds, window):
            return bounds | _windows(recipe, tables, params, window, rng) | _fees(recipe, rng)
    return None


def _binds(rules: tuple[str, ...], request: list[list[_Item]], bounds: Params, window: int) -> bool:
    """Whether each order has something to refund and each rule alone forbids something."""
    broken = [[item.broken(rules, bounds, window) for item in order] for order in request]
    alone = {next(iter(found)) for order in broken for found in order if len(found) == 1}
    eligible = [sum(not found for found in order) for order in broken]
    return (
        alone == set(rules) and all(eligible) and 2 <= sum(eligible) <= _MAX_ELIGIBLE - len(request)
    )


def _tier(tables: Tables, params: Params) -> str:
    return str(tables["customers"][str(params["customer"])]["tier"])


def _own_window(recipe: Recipe, tables: Tables, params: Params, policy: Params) -> int:
    tiered = recipe.has("tier_window")
    window = policy[f"window_{_tier(tables, params)}" if tiered else "window"]
    assert isinstance(window, int)
    return window


def _windows(recipe: Recipe, tables: Tables, params: Params, window: int, rng: Random) -> Params:
    """The refund window, or the one of each tier, such that the customer's is ``window``."""
    if not recipe.has("tier_window"):
        return {"window": window}
    own = TIERS.index(_tier(tables, params))
    windows = [window] * len(TIERS)
    for i in range(own + 1, len(TIERS)):
        windows[i] = windows[i - 1] + rng.randint(2, 9)
    for i in range(own - 1, -1, -1):
        windows[i] = max(1, windows[i + 1] - rng.randint(2, 9))
    return {f"window_{tier}": days for tier, days in zip(TIERS, windows, strict=True)}


def _fees(recipe: Recipe, rng: Random) -> Params:
    if not recipe.has("fee"):
        return {}
    fees = (rng.randint(12, 25), rng.randint(6, 11), rng.randint(1, 5))
    return {f"fee_{tier}": fee for tier, fee in zip(TIERS, fees, strict=True)}


def _bind_extras(
    recipe: Recipe, tables: Tables, params: Params, others: list[str], rng: Random
) -> Params | None:
    """Params of the wishes beyond refunds; ``others`` are the customer's other delivered orders."""
    found: Params = {}
    if recipe.has("cancel"):
        ages = sorted(
            _days(row["ordered_on"], params["today"])
            for row in tables["orders"].values()
            if row["customer_id"] == params["customer"] and row["status"] == "pending"
        )
        fixed = params.get("cancel_days")
        allowed = [
            age for age in ages[:-1][:2] if fixed is None or age <= int(str(fixed)) < ages[-1]
        ]
        if not allowed:
            return None
        found["cancel_days"] = rng.choice(allowed) if fixed is None else fixed
    if recipe.has("exchange"):
        pair = _exchange(tables, others, rng)
        if pair is None:
            return None
        found |= pair
    return found


def _exchange(tables: Tables, orders: list[str], rng: Random) -> Params | None:
    """A delivered item whose category holds several other products, one of them the cheapest."""
    rows = tables["order_items"].values()
    items = [r for r in rows if r["order_id"] in orders and r["status"] == "delivered"]
    for key in _shuffled(rng, (str(row["id"]) for row in items)):
        own = tables["products"][str(tables["order_items"][key]["product_id"])]
        wanted = [
            row
            for row in tables["products"].values()
            if row["category"] == own["category"] and row["stock"] and row is not own
        ]
        if len(wanted) >= 2 and _best(wanted, "price", "lowest") is not None:
            return {"item": key}
    return None
