"""Which task of the order domain a problem is: all that its structure depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envgen.core.ir import Equals, Problem, Reach

Task = Literal["rank", "filter", "hop", "cancel", "refund"]
Sense = Literal["highest", "lowest"]

ATTRIBUTES = ("priority", "parcels", "days_waiting")
"""What rank and filter tasks compare."""
ITEM_ATTRIBUTES = ("unit_price", "quantity")
"""What hop tasks compare."""
ITEM_RULES = ("window", "tier_window", "short_window", "final_sale", "minimum")
"""Policy rules on refunded items, as clause ids, in the order of the policy."""
FEATURES = (
    "tier_window", "short_window", "final_sale", "minimum", "fee", "all_orders", "cancel",
    "exchange", "lookup",
)  # fmt: skip
"""What can be added to the plain refund task, in any combination."""


@dataclass(frozen=True)
class Recipe:
    """The structure of a task; everything else about it is rows and params."""

    task: Task
    attribute: str = ""
    """What rank, filter and hop compare."""
    sense: Sense = "highest"
    pick: Literal["latest", "earliest"] = "latest"
    """Which order a hop starts from."""
    features: frozenset[str] = frozenset()

    def has(self, feature: str) -> bool:
        """Whether the refund task has ``feature``."""
        return feature in self.features

    @property
    def item_rules(self) -> tuple[str, ...]:
        """Ids of the policy clauses on refunded items."""
        window = "tier_window" if self.has("tier_window") else "window"
        return (window, *(rule for rule in ITEM_RULES[2:] if self.has(rule)))


def recipe_of(problem: Problem) -> Recipe:
    """The recipe that ``problem`` was made from, read off its goal, clauses and tools."""
    goal = problem.goal
    if isinstance(goal, Equals):
        fields = goal.fields
        return Recipe(
            task=goal.text_key,  # type: ignore[arg-type]  # the keys of read goals are task names
            attribute=str(fields["attribute"]),
            sense="highest" if fields["sense"] == "highest" else "lowest",
            pick="earliest" if fields.get("pick") == "earliest" else "latest",
        )
    if not isinstance(goal, Reach):
        raise ValueError(f"no task of the order domain: {problem.id!r}")
    effects = {effect.id for effect in goal.effects}
    if "refund" not in effects:
        return Recipe(task="cancel")
    tools = {access.tool for access in problem.access}
    found = {clause.id for clause in problem.clauses} & set(ITEM_RULES[1:])
    signs = {
        "fee": "refund_amount" in tools,
        "all_orders": problem.fields["opening"] == "refund_all",
        "cancel": "cancel" in effects,
        "exchange": "exchange" in effects,
        "lookup": "get_item" in tools,
    }
    return Recipe(task="refund", features=frozenset(found | {f for f, on in signs.items() if on}))
