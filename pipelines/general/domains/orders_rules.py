"""What the sentences of the order domain mean: queries, policy rules, effects and the goal."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from envgen.core.ir import (
    All,
    Arith,
    Choice,
    Clause,
    Days,
    Equals,
    Expr,
    If,
    Order,
    Query,
    Reach,
    Slot,
    WriteSet,
)
from envgen.pipelines.general.domains.terms import (
    both,
    cmp,
    const,
    either,
    eq,
    get,
    minus,
    negate,
    new,
    none_of,
    old,
    param,
    times,
    var,
)
from envgen.pipelines.general.lexicon import Frame
from envgen.pipelines.general.wording import Fields

RULE_WORDS = {
    "window": "refund windows",
    "tier_window": "refund windows by tier",
    "short_window": "short refund windows",
    "final_sale": "final sale",
    "minimum": "small amounts",
}
"""Item rule -> how effects and the escalation rule name it."""
RULES = {words: rule for rule, words in RULE_WORDS.items()}
ESCALATED = "escalated"
_ITEM = var("i")


def item(column: str) -> Expr:
    """A cell of the order item in hand."""
    return get("order_items", _ITEM, column)


def _product(column: str) -> Expr:
    return get("products", item("product_id"), column)


def _by_tier(name: str) -> Expr:
    """``name_gold``, ``name_silver`` or ``name_standard``, by the tier of the item's customer."""
    tier = get("customers", get("orders", item("order_id"), "customer_id"), "tier")
    silver = If(
        test=eq(tier, const("silver")),
        then=param(f"{name}_silver"),
        other=param(f"{name}_standard"),
    )
    return If(test=eq(tier, const("gold")), then=param(f"{name}_gold"), other=silver)


def _paid() -> Expr:
    return times(item("unit_price"), item("quantity"))


def condition(rule: str) -> Expr:
    """When the policy rule ``rule`` allows a refund of the item in hand."""
    age = Days(left=item("delivered_on"), right=param("today"))
    if rule == "window":
        return cmp(age, "<=", param("window"))
    if rule == "tier_window":
        return cmp(age, "<=", _by_tier("window"))
    if rule == "short_window":
        other = cmp(_product("category"), "!=", param("category"))
        return either(other, cmp(age, "<=", param("short_window")))
    if rule == "final_sale":
        return eq(_product("final_sale"), const(False))
    if rule == "minimum":
        return cmp(_paid(), ">=", param("minimum"))
    raise ValueError(f"no rule {rule!r}")


def item_rule(rule: str) -> Clause:
    """No item is refunded against ``rule``."""
    refunded = const("refunded")
    fresh = both(cmp(old(item("status")), "!=", refunded), eq(new(item("status")), refunded))
    body = either(negate(fresh), condition(rule))
    expr = All(var="i", over=Query(var="i", relation="order_items"), body=body)
    return Clause(id=rule, family="policy_item", expr=expr, source="policy", text_key=rule)


def cancel_rule(_: Fields) -> Clause:
    """No order is cancelled too late."""
    order = var("o")
    cancelled = const("cancelled")
    status = get("orders", order, "status")
    fresh = both(cmp(old(status), "!=", cancelled), eq(new(status), cancelled))
    expr = All(
        var="o",
        over=Query(var="o", relation="orders"),
        body=either(negate(fresh), _cancellable()),
    )
    return Clause(
        id="cancel_window",
        family="policy_order",
        expr=expr,
        source="policy",
        text_key="cancel_window",
    )


def _cancellable() -> Expr:
    age = Days(left=get("orders", var("o"), "ordered_on"), right=param("today"))
    return cmp(age, "<=", param("cancel_days"))


def eligible(n: int, rules: Sequence[str]) -> Query:
    """Items of order ``n`` of the request that ``rules`` let one refund."""
    where = both(
        eq(item("order_id"), param(f"order_{n}")),
        eq(item("status"), const("delivered")),
        *(condition(rule) for rule in rules),
    )
    return Query(var="i", relation="order_items", where=where)


def _rules(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"no list of rules: {value!r}")
    return tuple(RULES[str(words)] for words in value)


def _number(value: JsonValue) -> int:
    if not isinstance(value, int):
        raise ValueError(f"no number: {value!r}")
    return value


def refund_effect(fields: Fields) -> Clause:
    """Every eligible item of order ``n`` is refunded in full."""
    return _refund(fields, eq(new(item("status")), const("refunded")))


def refund_fee_effect(fields: Fields) -> Clause:
    """Every eligible item of order ``n`` is refunded less the fee of the customer's tier."""
    fee = Arith(fn="//", left=times(_paid(), _by_tier("fee")), right=const(100))
    amount = minus(_paid(), fee)
    status = eq(new(item("status")), const("refunded"))
    return _refund(fields, both(status, eq(new(item("refund")), amount)))


def _refund(fields: Fields, body: Expr) -> Clause:
    n = _number(fields.get("n", 1))
    over = eligible(n, _rules(fields["rules"]))
    expr = All(var="i", over=over, body=body)
    return Clause(id=f"refund_{n}", family="refund", expr=expr, text_key="refund")


def _pending() -> Expr:
    order = var("o")
    return both(
        eq(get("orders", order, "customer_id"), param("customer")),
        eq(get("orders", order, "status"), const("pending")),
    )


def _cancel(where: Expr) -> Clause:
    over = Query(var="o", relation="orders", where=where)
    body = eq(new(get("orders", var("o"), "status")), const("cancelled"))
    expr = All(var="o", over=over, body=body)
    return Clause(id="cancel", family="cancel", expr=expr, text_key="cancel")


def cancel_effect(_: Fields) -> Clause:
    """Every pending order of the customer is cancelled."""
    return _cancel(_pending())


def cancel_allowed_effect(_: Fields) -> Clause:
    """Every pending order of the customer that is young enough is cancelled."""
    return _cancel(both(_pending(), _cancellable()))


def exchange_effect(_: Fields) -> Clause:
    """The named item is exchanged for the cheapest other product of its category."""
    row = param("item")
    own = get("order_items", row, "product_id")
    wanted = Query(
        var="p",
        relation="products",
        where=both(
            eq(get("products", var("p"), "category"), get("products", own, "category")),
            cmp(get("products", var("p"), "stock"), ">=", const(1)),
            cmp(get("products", var("p"), "id"), "!=", own),
        ),
        order=(Order(by=get("products", var("p"), "price")),),
        limit=1,
    )
    expr = both(
        eq(new(own), wanted),
        eq(new(get("order_items", row, "status")), const("exchanged")),
    )
    return Clause(id="exchange", family="exchange", expr=expr, text_key="exchange")


def escalation(fields: Fields) -> Expr:
    """When a request must be escalated: nothing of its main wish is possible."""
    if fields["opening"] == "cancel":
        return none_of(Query(var="o", relation="orders", where=_pending()))
    rules = _rules(fields["rules"])
    orders = (1, 2) if fields["opening"] == "refund_two" else (1,)
    return both(*(none_of(eligible(n, rules)) for n in orders))


def reach(fields: Fields, effects: tuple[Clause, ...]) -> Reach:
    """The goal of a workflow: what may change follows from its effects."""
    ids = [effect.id for effect in effects]
    asked = [i for i in ids if i.startswith("refund_")]
    write_set = []
    for i in asked:
        where = eq(item("order_id"), param(f"order_{i.removeprefix('refund_')}"))
        rows = Query(var="i", relation="order_items", where=where)
        write_set.append(WriteSet(relation="order_items", rows=rows, columns=("status", "refund")))
    if "cancel" in ids:
        where = eq(get("orders", var("o"), "customer_id"), param("customer"))
        rows = Query(var="o", relation="orders", where=where)
        write_set.append(WriteSet(relation="orders", rows=rows, columns=("status",)))
    if "exchange" in ids:
        where = eq(item("id"), param("item"))
        rows = Query(var="i", relation="order_items", where=where)
        columns = ("status", "product_id")
        write_set.append(WriteSet(relation="order_items", rows=rows, columns=columns))
    calls = 2 + 3 * len(asked) + 2 * ("cancel" in ids) + 2 * ("exchange" in ids)
    return Reach(
        effects=effects,
        write_set=tuple(write_set),
        escalate_when=escalation(fields),
        escalate_text_key="escalate" if asked else "escalate_cancel",
        max_calls=calls if asked else 2,
    )


def _best(relation: str, where: Expr, fields: Fields) -> Query:
    column = str(fields["attribute"])
    by = get(relation, var("r"), column)
    order = Order(by=by, descending=fields["sense"] == "highest")
    return Query(var="r", relation=relation, where=where, order=(order,), limit=1)


def rank_goal(fields: Fields) -> Equals:
    """The order with the best attribute."""
    return Equals(slot="order", query=_best("orders", const(True), fields), text_key="rank")


def filter_goal(fields: Fields) -> Equals:
    """The order with the best attribute among those of one status."""
    where = eq(get("orders", var("r"), "status"), param("status"))
    return Equals(slot="order", query=_best("orders", where, fields), text_key="filter")


def hop_goal(fields: Fields) -> Equals:
    """The item with the best attribute of a customer's latest or earliest order of one status."""
    order = var("o")
    start = Query(
        var="o",
        relation="orders",
        where=both(
            eq(get("orders", order, "customer_id"), param("customer")),
            eq(get("orders", order, "status"), param("status")),
        ),
        order=(
            Order(by=get("orders", order, "ordered_on"), descending=fields["pick"] == "latest"),
        ),
        limit=1,
    )
    where = eq(get("order_items", var("r"), "order_id"), start)
    return Equals(slot="item", query=_best("order_items", where, fields), text_key="hop")


def frame(fields: Fields) -> Frame:
    """Slots and layout of a request."""
    opening = fields["opening"]
    if opening in ("queue", "items"):
        name, relation = ("order", "orders") if opening == "queue" else ("item", "order_items")
        slot = Slot(name=name, kind="entity", domain=Query(var="r", relation=relation))
    else:
        name = "outcome"
        slot = Slot(name=name, kind="value", domain=Choice(values=("done", ESCALATED)))
    return Frame(slots=(slot,), layout={name: {"$slot": name}})
