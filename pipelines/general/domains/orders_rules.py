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


def _by_tier(column: str) -> Expr:
    """A cell of the tier of the item's customer."""
    customer = get("orders", item("order_id"), "customer_id")
    return get("tiers", get("customers", customer, "tier"), column)


def _paid() -> Expr:
    return times(item("unit_price"), item("quantity"))


def condition(rule: str) -> Expr:
    """When the policy rule ``rule`` allows a refund of the item in hand."""
    age = Days(left=item("delivered_on"), right=param("today"))
    if rule == "window":
        return cmp(age, "<=", param("window"))
    if rule == "tier_window":
        return cmp(age, "<=", _by_tier("window_days"))
    if rule == "short_window":
        other = cmp(_product("category"), "!=", param("category"))
        return either(other, cmp(age, "<=", param("short_window")))
    if rule == "final_sale":
        return eq(_product("final_sale"), const(False))
    if rule == "minimum":
        return cmp(_paid(), ">=", param("minimum"))
    raise ValueError(f"no rule {rule!r}")


def item_rule(rule: str) -> Clause:
    """No item is refunded against ``rule``; no row starts out as refunded."""
    fresh = eq(new(item("status")), const("refunded"))
    body = either(negate(fresh), condition(rule))
    expr = All(var="i", over=Query(var="i", relation="order_items"), body=body)
    return Clause(id=rule, family="policy_item", expr=expr, source="policy", text_key=rule)


def cancel_rule(_: Fields) -> Clause:
    """No order is cancelled too late."""
    fresh = eq(new(get("orders", var("o"), "status")), const("cancelled"))
    body = either(negate(fresh), _cancellable())
    expr = All(var="o", over=Query(var="o", relation="orders"), body=body)
    name = "cancel_window"
    return Clause(id=name, family="policy_order", expr=expr, source="policy", text_key=name)


def _cancellable() -> Expr:
    age = Days(left=get("orders", var("o"), "ordered_on"), right=param("today"))
    return cmp(age, "<=", param("cancel_days"))


def _asked(whose: str) -> Expr:
    """Whether the item in hand belongs to the request: to its order, or to any of the customer's."""
    if whose == "order":
        return eq(item("order_id"), param("order"))
    return eq(get("orders", item("order_id"), "customer_id"), param("customer"))


def _eligible(whose: str, rules: Sequence[str]) -> Query:
    """Items of the request that ``rules`` let one refund; what was not delivered has no known age."""
    where = both(_asked(whose), *(condition(rule) for rule in rules))
    return Query(var="i", relation="order_items", where=where)


def _rules(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"no list of rules: {value!r}")
    return tuple(RULES[str(words)] for words in value)


def refund_effect(whose: str, fee: str, fields: Fields) -> Clause:
    """Every eligible item is refunded: in full, or less the fee of the customer's tier."""
    amount: Expr = _paid()
    if fee:
        share = Arith(fn="//", left=times(_paid(), _by_tier("fee_percent")), right=const(100))
        amount = minus(amount, share)
    body = both(eq(new(item("status")), const("refunded")), eq(new(item("refund")), amount))
    expr = All(var="i", over=_eligible(whose, _rules(fields["rules"])), body=body)
    return Clause(id="refund", family="refund", expr=expr, text_key="refund")


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
    """The named item is exchanged for the cheapest other product of its category (no other tool sets it)."""
    row = param("item")
    own = get("order_items", row, "product_id")
    wanted = Query(
        var="p",
        relation="products",
        where=both(
            eq(get("products", var("p"), "category"), get("products", own, "category")),
            eq(get("products", var("p"), "in_stock"), const(True)),
            cmp(get("products", var("p"), "id"), "!=", own),
        ),
        order=(Order(by=get("products", var("p"), "price")),),
        limit=1,
    )
    expr = eq(new(own), wanted)
    return Clause(id="exchange", family="exchange", expr=expr, text_key="exchange")


def escalation(fields: Fields) -> Expr:
    """When a request must be escalated."""
    if fields["opening"] == "cancel":
        return none_of(Query(var="o", relation="orders", where=_pending()))
    return eq(get("customers", param("customer"), "on_hold"), const(True))


def reach(fields: Fields, effects: tuple[Clause, ...]) -> Reach:
    """The goal of a workflow: what may change follows from its effects."""
    ids = [effect.id for effect in effects]
    write_set = []
    if "refund" in ids:
        where = _asked("customer" if fields["opening"] == "refund_all" else "order")
        rows = Query(var="i", relation="order_items", where=where)
        write_set.append(WriteSet(relation="order_items", rows=rows, columns=("status", "refund")))
    if "cancel" in ids:
        where = eq(get("orders", var("o"), "customer_id"), param("customer"))
        rows = Query(var="o", relation="orders", where=where)
        write_set.append(WriteSet(relation="orders", rows=rows, columns=("status",)))
    if "exchange" in ids:
        rows = Query(var="i", relation="order_items", where=eq(item("id"), param("item")))
        columns = ("status", "product_id")
        write_set.append(WriteSet(relation="order_items", rows=rows, columns=columns))
    return Reach(
        effects=effects,
        write_set=tuple(write_set),
        escalate_when=escalation(fields),
        escalate_text_key="escalate" if "refund" in ids else "escalate_cancel",
        max_calls=(3 if "refund" in ids else 0) + 2 * len(ids),
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
