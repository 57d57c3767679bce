"""Relations and tools of the order domain, as far as a recipe needs them."""

from __future__ import annotations

from envgen.core.ir import Access, Arg, Column, Precondition, Relation, Write
from envgen.pipelines.general.domains.orders_recipe import Recipe
from envgen.pipelines.general.domains.terms import cmp, const, eq, get, times

_TEXT = "str"
QUEUE = Relation(
    name="orders",
    key="id",
    columns=(
        Column(name="id", type=_TEXT),
        Column(name="status", type=_TEXT),
        Column(name="priority", type="int"),
        Column(name="parcels", type="int"),
        Column(name="days_waiting", type="int"),
    ),
)
"""The orders of rank and filter tasks: a dispatch queue without customers."""
CUSTOMERS = Relation(
    name="customers",
    key="id",
    columns=(
        Column(name="id", type=_TEXT),
        Column(name="name", type=_TEXT),
        Column(name="tier", type="entity:tiers"),
        Column(name="on_hold", type="bool"),
    ),
)
TIERS = Relation(
    name="tiers",
    key="name",
    columns=(
        Column(name="name", type=_TEXT),
        Column(name="window_days", type="int"),
        Column(name="fee_percent", type="int"),
    ),
)
PRODUCTS = Relation(
    name="products",
    key="id",
    columns=(
        Column(name="id", type=_TEXT),
        Column(name="name", type=_TEXT),
        Column(name="category", type=_TEXT),
        Column(name="price", type="int", unit="cents"),
        Column(name="in_stock", type="bool"),
        Column(name="final_sale", type="bool"),
    ),
)
ORDERS = Relation(
    name="orders",
    key="id",
    columns=(
        Column(name="id", type=_TEXT),
        Column(name="customer_id", type="entity:customers"),
        Column(name="status", type=_TEXT),
        Column(name="ordered_on", type="date"),
    ),
)
ITEMS = Relation(
    name="order_items",
    key="id",
    columns=(
        Column(name="id", type=_TEXT),
        Column(name="order_id", type="entity:orders"),
        Column(name="product_id", type="entity:products"),
        Column(name="quantity", type="int"),
        Column(name="unit_price", type="int", unit="cents"),
        Column(name="status", type=_TEXT),
        Column(name="delivered_on", type="date", nullable=True),
        Column(name="refund", type="int", unit="cents"),
    ),
)
MAX_REFUND = 1_000_000
"""Largest amount, in cents, that ``refund_amount`` takes."""


def relations(recipe: Recipe) -> tuple[Relation, ...]:
    """The tables of a task."""
    if recipe.task in ("rank", "filter"):
        return (QUEUE,)
    if recipe.task == "cancel":
        return (TIERS, CUSTOMERS, ORDERS)
    return (TIERS, CUSTOMERS, PRODUCTS, ORDERS, ITEMS)


def access(recipe: Recipe) -> tuple[Access, ...]:
    """The tools of a task: enough to read what it needs, and to do it."""
    if recipe.task == "rank":
        return (
            _list("list_orders", "orders", "All orders in the queue.", ("id", recipe.attribute)),
        )
    if recipe.task == "filter":
        columns = ("status", *(c.name for c in QUEUE.columns[2:]))
        return (
            _list("list_orders", "orders", "The ids of all orders in the queue.", ("id",)),
            _one("get_order", "orders", "order_id", "Facts about an order.", columns),
        )
    customers = _list("list_customers", "customers", "The ids of all customers.", ("id",))
    by_customer = _list(
        "list_orders_by_customer",
        "orders",
        "The orders of a customer.",
        ("id", "status", "ordered_on"),
        {"customer_id": "customer_id"},
    )
    if recipe.task == "cancel":
        return (customers, by_customer, CANCEL_ORDER)
    if recipe.task == "hop":
        items = _items_access(ids_only=True)
        return (customers, by_customer, *items)
    return (customers, by_customer, *_refund_access(recipe))


def _refund_access(recipe: Recipe) -> tuple[Access, ...]:
    tools = list(_items_access(ids_only=recipe.has("lookup")))
    columns: tuple[str, ...] = ("name", "tier", "on_hold")
    text = "Facts about a customer."
    tools.append(_one("get_customer", "customers", "customer_id", text, columns))
    if recipe.features & {"tier_window", "fee"}:
        columns = ("customer_id", "status", "ordered_on")
        tools.append(_one("get_order", "orders", "order_id", "Facts about an order.", columns))
        columns = ("window_days", "fee_percent")
        text = "Refund window, in days, and handling fee, in percent, of a customer tier."
        tools.append(_one("get_tier", "tiers", "tier", text, columns))
    if recipe.features & {"short_window", "final_sale", "exchange"}:
        columns = ("name", "category", "price", "in_stock", "final_sale")
        tools.append(
            _one("get_product", "products", "product_id", "Facts about a product.", columns)
        )
    if recipe.has("exchange"):
        tools.append(_list("list_products", "products", "The ids of all products.", ("id",)))
    tools.append(REFUND_AMOUNT if recipe.has("fee") else REFUND_ITEM)
    if recipe.has("cancel"):
        tools.append(CANCEL_ORDER)
    if recipe.has("exchange"):
        tools.append(EXCHANGE_ITEM)
    return tuple(tools)


def _items_access(*, ids_only: bool) -> tuple[Access, ...]:
    columns = tuple(c.name for c in ITEMS.columns if c.name not in ("id", "order_id", "refund"))
    args = {"order_id": "order_id"}
    if not ids_only:
        text = "The items of an order."
        return (_list("list_items_by_order", "order_items", text, ("id", *columns), args),)
    text = "The ids of the items of an order."
    return (
        _list("list_items_by_order", "order_items", text, ("id",), args),
        _one("get_item", "order_items", "item_id", "Facts about an item.", ("order_id", *columns)),
    )


def _list(
    tool: str,
    relation: str,
    text: str,
    columns: tuple[str, ...],
    args: dict[str, str] | None = None,
) -> Access:
    return Access(
        tool=tool,
        relation=relation,
        mode="list",
        description=text,
        args=args or {},
        returned_columns=columns,
    )


def _one(tool: str, relation: str, arg: str, text: str, columns: tuple[str, ...]) -> Access:
    return Access(
        tool=tool,
        relation=relation,
        mode="inverse",
        description=text,
        args={arg: "name" if relation == "tiers" else "id"},
        returned_columns=columns,
    )


def _item_arg(column: str) -> Precondition:
    return Precondition(
        expr=eq(get("order_items", Arg(name="item_id"), column), const("delivered")),
        code="wrong_status",
        text="The item is not in the status delivered.",
    )


_ITEM = Arg(name="item_id")
_PAID = times(get("order_items", _ITEM, "unit_price"), get("order_items", _ITEM, "quantity"))
_AMOUNT = Arg(name="amount")

CANCEL_ORDER = Access(
    tool="cancel_order",
    relation="orders",
    mode="write",
    description="Cancel an order that is still pending.",
    args={"order_id": "orders.id"},
    pre=(
        Precondition(
            expr=eq(get("orders", Arg(name="order_id"), "status"), const("pending")),
            code="wrong_status",
            text="The order is not in the status pending.",
        ),
    ),
    effects=(
        Write(
            kind="update",
            relation="orders",
            key=Arg(name="order_id"),
            set={"status": const("cancelled")},
        ),
    ),
)
REFUND_ITEM = Access(
    tool="refund_item",
    relation="order_items",
    mode="write",
    description="Refund a delivered item in full (unit price times quantity).",
    args={"item_id": "order_items.id"},
    pre=(_item_arg("status"),),
    effects=(
        Write(
            kind="update",
            relation="order_items",
            key=_ITEM,
            set={"status": const("refunded"), "refund": _PAID},
        ),
    ),
)
REFUND_AMOUNT = Access(
    tool="refund_amount",
    relation="order_items",
    mode="write",
    description="Refund a given amount, in cents, for a delivered item.",
    args={"item_id": "order_items.id", "amount": "int"},
    pre=(
        _item_arg("status"),
        Precondition(
            expr=cmp(_AMOUNT, ">=", const(1)),
            code="bad_amount",
            text="The amount is less than 1.",
        ),
        Precondition(
            expr=cmp(_AMOUNT, "<=", const(MAX_REFUND)),
            code="bad_amount",
            text=f"The amount is more than {MAX_REFUND}.",
        ),
    ),
    effects=(
        Write(
            kind="update",
            relation="order_items",
            key=_ITEM,
            set={"status": const("refunded"), "refund": _AMOUNT},
        ),
    ),
)
EXCHANGE_ITEM = Access(
    tool="exchange_item",
    relation="order_items",
    mode="write",
    description="Exchange a delivered item for a product of the same category that is in stock.",
    args={"item_id": "order_items.id", "product_id": "products.id"},
    pre=(
        _item_arg("status"),
        Precondition(
            expr=eq(get("products", Arg(name="product_id"), "in_stock"), const(True)),
            code="out_of_stock",
            text="The product is not in stock.",
        ),
        Precondition(
            expr=eq(
                get("products", Arg(name="product_id"), "category"),
                get("products", get("order_items", _ITEM, "product_id"), "category"),
            ),
            code="other_category",
            text="The product is of another category than the item's.",
        ),
    ),
    effects=(
        Write(
            kind="update",
            relation="order_items",
            key=_ITEM,
            set={"status": const("exchanged"), "product_id": Arg(name="product_id")},
        ),
    ),
)
