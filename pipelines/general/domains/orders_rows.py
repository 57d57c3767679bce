"""Rows of the order domain: drawn without looking at the question, so that no row is a planted one."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from envgen.core.ir import Scalar
from envgen.pipelines.general.domains.orders_recipe import Recipe
from envgen.pipelines.general.tables import Row, Tables

_FIRST = """
Adela Alban Amira Anselm Arvid Beatrix Bela Bruna Callum Carina Cosima Dario Delia Edda Eloise Emre
Fabio Farah Fiona Gesa Greta Hanno Hedda Henrik Idris Ilka Imani Ines Iven Jarle Jonna Kaito Kalea
Keno Lasse Leonie Livia Lorcan Malin Marek Maren Mila Nadir Nele Noor Odile Orla Otis Paola Pavel
Quentin Rania Remy Rosa Runa Sami Selma Silas Sunniva Talia Tarek Thea Tilda Ulf Vera Vito Wanda
Xenia Yara Yusuf Zelda Zora
""".split()
_LAST = """
Aldersey Almqvist Ashgrove Balfrey Bergholt Bexley Birkmoor Brandvik Calderon Castwell Corvane
Dahlberg Delacrest Dunmore Eastmark Elvin Falkner Farnleigh Fjellmo Garrick Glenhall Greyford Halvary
Harcombe Heidmark Holloway Ivarsen Jorvik Kellner Kestrel Kingsmoor Larkfield Lindqvist Lorne Marchetti
Merrow Moorland Nordahl Oakhurst Okonda Ostermann Pellworth Quayle Ravenel Rosslyn Saltmarsh Sandvik
Selwick Stroud Tamsin Thornbury Tideman Umberto Valmont Varga Wexford Whitlock Winterbourne Yarrow
""".split()
_GOODS: dict[str, tuple[str, ...]] = {
    "audio": ("headphones", "speaker", "turntable", "microphone", "earbuds", "radio"),
    "books": ("atlas", "cookbook", "novel", "field guide", "sketchbook", "picture book"),
    "garden": ("watering can", "pruning shears", "planter", "rake", "hose reel", "bird feeder"),
    "kitchen": ("kettle", "saucepan", "bread knife", "teapot", "mixing bowl", "coffee grinder"),
    "lighting": ("desk lamp", "lantern", "floor lamp", "string lights", "torch", "night light"),
    "sports": ("yoga mat", "skipping rope", "tennis racket", "football", "rucksack", "helmet"),
    "toys": ("puzzle", "marble run", "kite", "building blocks", "board game", "toy train"),
    "wear": ("scarf", "rain jacket", "wool hat", "gloves", "sandals", "cardigan"),
}
_STYLES = (
    "Alder Basalt Borealis Cinder Cobalt Dovetail Elmwood Fjord Granite Halcyon Juniper Kelpie Larkspur "
    "Meridian Nimbus Ochre Pinecone Quartz Rowan Sable Tundra Umber Verdant Willow Zephyr"
).split()
QUEUE_STATUSES = ("new", "packed", "on hold", "ready")
TIERS = ("standard", "silver", "gold")
_QUEUE_RANGES = {"priority": 9, "parcels": 12, "days_waiting": 20}


def draw_tables(recipe: Recipe, rng: Random) -> Tables:
    """Rows for one task of ``recipe``; sizes depend on the recipe alone (rank draws 2 to 4 rows)."""
    if recipe.task in ("rank", "filter"):
        count = rng.randint(2, 4) if recipe.task == "rank" else rng.randint(8, 12)
        return {"orders": _queue(rng, count)}
    customers = _customers(rng, 4 if recipe.task == "cancel" else 3)
    if recipe.task == "cancel":
        orders = _orders(rng, customers, (2, 3))
        return {"tiers": _tiers(rng, {}, {}, {}), "customers": customers, "orders": orders}
    products = _products(rng, recipe)
    orders = _orders(rng, customers, _orders_each(recipe))
    items = _items(rng, orders, products, _items_each(recipe))
    return {
        "tiers": _tiers(rng, customers, orders, items),
        "customers": customers,
        "products": products,
        "orders": orders,
        "order_items": items,
    }


def _orders_each(recipe: Recipe) -> tuple[int, int]:
    """How many orders a customer has, from and to."""
    if recipe.task == "hop":
        return 3, 5
    extra = len(recipe.features & {"cancel", "exchange"})
    return 2 + extra, 3 + extra


def _items_each(recipe: Recipe) -> tuple[int, int]:
    """How many items an order has, from and to."""
    if recipe.task == "hop":
        return 3, 5
    extra = len(recipe.item_rules) - 1
    if recipe.has("all_orders"):
        return 2 + extra // 2, 4 + extra
    return 4 + extra, 5 + 2 * extra


def _ids(rng: Random, prefix: str, digits: int, count: int) -> list[str]:
    numbers = rng.sample(range(10 ** (digits - 1), 10**digits), count)
    return [f"{prefix}-{number}" for number in numbers]


def _queue(rng: Random, count: int) -> dict[str, Row]:
    columns = {
        name: rng.sample(range(1, max(high, count) + 1), count)
        for name, high in _QUEUE_RANGES.items()
    }
    rows: dict[str, Row] = {}
    for i, key in enumerate(_ids(rng, "O", 4, count)):
        rows[key] = {
            "id": key,
            "status": rng.choice(QUEUE_STATUSES[:3]),
            **{name: values[i] for name, values in columns.items()},
        }
    return rows


def _customers(rng: Random, count: int) -> dict[str, Row]:
    names = zip(rng.sample(_FIRST, count), rng.sample(_LAST, count), strict=True)
    rows: dict[str, Row] = {}
    for key, (first, last) in zip(_ids(rng, "C", 4, count), names, strict=True):
        rows[key] = {
            "id": key,
            "name": f"{first} {last}",
            "tier": rng.choice(TIERS),
            "on_hold": rng.random() < 0.2,
        }
    return rows


def _products(rng: Random, recipe: Recipe) -> dict[str, Row]:
    count = rng.randint(12, 16)
    kinds = rng.sample(sorted(_GOODS), 3)
    goods = rng.sample([(kind, name) for kind in kinds for name in _GOODS[kind]], count)
    share = 0.35 if recipe.has("final_sale") else 0.2
    rows: dict[str, Row] = {}
    for key, (kind, name), style in zip(
        _ids(rng, "P", 3, count), goods, rng.sample(_STYLES, count), strict=True
    ):
        rows[key] = {
            "id": key,
            "name": f"{style} {name}",
            "category": kind,
            "price": rng.randrange(495, 18_000, 5),
            "in_stock": rng.random() < 0.7,
            "final_sale": rng.random() < share,
        }
    return rows


def _orders(rng: Random, customers: dict[str, Row], each: tuple[int, int]) -> dict[str, Row]:
    owners = [key for key in customers for _ in range(rng.randint(*each))]
    first = date(2025, 1, 1) + timedelta(days=rng.randrange(700))
    days = rng.sample(range(max(60, 2 * len(owners))), len(owners))
    rows: dict[str, Row] = {}
    for key, owner, day in zip(_ids(rng, "O", 5, len(owners)), owners, days, strict=True):
        status = rng.choices(("pending", "shipped", "delivered"), (3, 1, 4))[0]
        rows[key] = {
            "id": key,
            "customer_id": owner,
            "status": status,
            "ordered_on": (first + timedelta(days=day)).isoformat(),
        }
    return rows


def _items(
    rng: Random, orders: dict[str, Row], products: dict[str, Row], each: tuple[int, int]
) -> dict[str, Row]:
    owners = [key for key in orders for _ in range(rng.randint(*each))]
    rows: dict[str, Row] = {}
    for key, owner in zip(_ids(rng, "I", 5, len(owners)), owners, strict=True):
        product = rng.choice(list(products.values()))
        price = product["price"]
        assert isinstance(price, int)
        quantity = rng.choices((1, 2, 3, 4), (5, 3, 2, 1))[0]
        status, delivered_on = _delivery(rng, orders[owner])
        rows[key] = {
            "id": key,
            "order_id": owner,
            "product_id": product["id"],
            "quantity": quantity,
            "unit_price": price - rng.choice((0, 0, 0, 50, 100, 200)),
            "status": status,
            "delivered_on": delivered_on,
            "refund": 0,
        }
    return rows


def _delivery(rng: Random, order: Row) -> tuple[str, Scalar]:
    """An item's status and day of delivery."""
    if order["status"] != "delivered":
        return ("ordered" if order["status"] == "pending" else "shipped"), None
    if rng.random() < 0.08:
        return "shipped", None
    ordered = date.fromisoformat(str(order["ordered_on"]))
    day = ordered + timedelta(days=2 + rng.choices(range(8), (5, 5, 4, 3, 2, 2, 1, 1))[0])
    return "delivered", day.isoformat()


def today_of(orders: dict[str, Row], items: dict[str, Row]) -> str:
    """The day after the last thing that happened."""
    days = [str(row["ordered_on"]) for row in orders.values()]
    days += [str(row["delivered_on"]) for row in items.values() if row["delivered_on"]]
    return (date.fromisoformat(max(days)) + timedelta(days=1)).isoformat()


def days_between(start: Scalar, end: Scalar) -> int:
    """Whole days from one date to another."""
    return (date.fromisoformat(str(end)) - date.fromisoformat(str(start))).days


def _tiers(
    rng: Random, customers: dict[str, Row], orders: dict[str, Row], items: dict[str, Row]
) -> dict[str, Row]:
    """Windows in the range of what the tier's customers could return; higher tiers pay lower fees."""
    fees = (rng.randint(12, 25), rng.randint(6, 11), rng.randint(1, 5))
    rows: dict[str, Row] = {}
    for name, fee in zip(TIERS, fees, strict=True):
        ages = [rng.randint(10, 60)]
        for row in items.values():
            owner = customers[str(orders[str(row["order_id"])]["customer_id"])]
            if owner["tier"] == name and row["delivered_on"]:
                ages.append(days_between(row["delivered_on"], today_of(orders, items)))
        rows[name] = {"name": name, "window_days": rng.choice(ages), "fee_percent": fee}
    return rows
