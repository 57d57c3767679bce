"""The words of the order domain."""

from __future__ import annotations

from functools import partial

from envgen.core.ir import Clause
from envgen.pipelines.general.domains import orders_rules as rules
from envgen.pipelines.general.lexicon import Lexicon, Phrase
from envgen.pipelines.general.wording import Fields, Words

_DESK = "You work at the service desk of an online shop"
_DONE = "When all of it is done, the outcome is done."


def _rule(rule: str, _: Fields) -> Clause:
    return rules.item_rule(rule)


def _policy(rule: str, template: str) -> Phrase:
    return Phrase(template, partial(_rule, rule))


_ALLOWED = "refund every delivered item that the rules about {rules:list} allow"
_ORDER = f"For order {{param:order}}: {_ALLOWED}"
_ALL = f"For all orders of customer {{param:customer}}: {_ALLOWED}"
_IN_FULL = "; the amount is what was paid (unit price times quantity)"
_FEE = (
    f"{_IN_FULL} minus a handling fee: the fee percentage of the customer's tier, taken of what was paid "
    "and rounded down to whole cents."
)


def _refund(template: str, whose: str, fee: str) -> Phrase:
    return Phrase(template, partial(rules.refund_effect, whose, fee), kind="effect")


LEXICON = Lexicon(
    id="orders",
    title="Order management",
    openings={
        "queue": "You look after the queue of open orders of an online shop.",
        "items": f"{_DESK} and look something up for a colleague.",
        "cancel": (
            f"{_DESK}. Customer {{param:customer}} writes: I changed my mind, please stop whatever you "
            f"have not shipped yet. {_DONE}"
        ),
        "refund_order": (
            f"{_DESK}; today is {{param:today|date}}. Customer {{param:customer}} wants to return what "
            f"came with order {{param:order}}. {_DONE}"
        ),
        "refund_all": (
            f"{_DESK}; today is {{param:today|date}}. Customer {{param:customer}} wants to return all that "
            f"was delivered so far, whatever the order. {_DONE}"
        ),
    },
    frame=rules.frame,
    reach=rules.reach,
    phrases={
        "rank": Phrase(
            "Which order has the {sense} {attribute:word}?", rules.rank_goal, kind="goal"
        ),
        "filter": Phrase(
            "Among the orders with the status {param:status}, which one has the {sense} {attribute:word}?",
            rules.filter_goal,
            kind="goal",
        ),
        "hop": Phrase(
            "Take the {pick} order (by the day it was placed) with the status {param:status} of customer "
            "{param:customer}: which of its items has the {sense} {attribute:word}?",
            rules.hop_goal,
            kind="goal",
        ),
        "cancel": Phrase(
            "Cancel every order of customer {param:customer} that is still pending.",
            rules.cancel_effect,
            kind="effect",
        ),
        "cancel_allowed": Phrase(
            "Cancel every order of customer {param:customer} that is still pending and that the rule "
            "about cancelling allows.",
            rules.cancel_allowed_effect,
            kind="effect",
        ),
        "refund_order": _refund(f"{_ORDER}{_IN_FULL}.", "order", ""),
        "refund_all": _refund(f"{_ALL}{_IN_FULL}.", "customer", ""),
        "refund_order_fee": _refund(f"{_ORDER}{_FEE}", "order", "fee"),
        "refund_all_fee": _refund(f"{_ALL}{_FEE}", "customer", "fee"),
        "exchange": Phrase(
            "Exchange item {param:item} for the cheapest other product of the same category that is in "
            "stock.",
            rules.exchange_effect,
            kind="effect",
        ),
        "window": _policy(
            "window",
            "Refund windows: an item can be refunded up to {param:window} days after its delivery, the "
            "last day included.",
        ),
        "tier_window": _policy(
            "tier_window",
            "Refund windows by tier: an item can be refunded up to as many days after its delivery as the "
            "window of the customer's tier says, the last day included.",
        ),
        "short_window": _policy(
            "short_window",
            "Short refund windows: an item whose product is of the category {param:category} can be "
            "refunded only up to {param:short_window} days after its delivery, the last day included.",
        ),
        "final_sale": _policy(
            "final_sale",
            "Final sale: an item whose product is marked as final sale can't be refunded.",
        ),
        "minimum": _policy(
            "minimum",
            "Small amounts: an item for which less than {param:minimum} cents were paid (unit price times "
            "quantity) can't be refunded.",
        ),
        "cancel_window": Phrase(
            "Cancelling: an order can be cancelled up to {param:cancel_days} days after it was placed, the "
            "last day included.",
            rules.cancel_rule,
        ),
        "escalate": Phrase(
            "Escalation: if the customer's account is marked as on hold, change nothing, whatever was "
            "asked, and give the outcome {escalation}.",
            rules.escalation,
            kind="escalate",
        ),
        "escalate_cancel": Phrase(
            "Escalation: if there is nothing to cancel, change nothing and give the outcome {escalation}.",
            rules.escalation,
            kind="escalate",
        ),
    },
    words=Words(
        nouns={
            "priority": "priority number",
            "parcels": "number of parcels",
            "days_waiting": "number of days in the queue",
            "unit_price": "unit price",
            "orders.id": "order id",
            "order_items.id": "item id",
        },
    ),
    units={"cents": "Prices, amounts and refunds are whole cents."},
    placeholders={"order": "order id", "item": "item id"},
)
"""How order tasks are worded."""
