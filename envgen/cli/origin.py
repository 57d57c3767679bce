"""How a dataset came about: its funnel, and what became of the categories that a model wrote pages for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from envgen.cli.console import require, say
from envgen.cli.records import show_record, show_rows
from envgen.cli.show import funnel_lines
from envgen.environments.hosts import open_dataset

SPARE = ("tokens", "rate")


def show_origin(folder: Path) -> dict[str, Any]:
    """Print it, and return the funnel.

    Raises:
        DatasetError: if the dataset can't be read.
    """
    dataset = open_dataset(str(folder), unproven=True)
    require(len(dataset.tasks), None, "tasks in the dataset")
    funnel: dict[str, Any] = dict(dataset.manifest.funnel)
    plain = {name: one for name, one in funnel.items() if isinstance(one, int | float | str)}
    show_record({"dataset": dataset.manifest.name, "tasks": len(dataset.tasks), **plain}, folder)
    for line in funnel_lines(funnel):
        say(line)
    authored: list[dict[str, Any]] = funnel.get("authored") or []
    if not authored:
        return funnel
    rows = []
    for one in authored:
        refused = Counter(step["stage"] for step in one["rounds"] if step["finding"])
        why = ", ".join(f"{stage} {n}" for stage, n in refused.items())
        rate = "" if one.get("rate") is None else f"{one['rate']:.2f}"
        kept = "kept" if one["kept"] else one["why"]
        rows.append((one["category"], kept, why, rate, one["tokens"], f"{one['cost_usd']:.2f}"))
    heads = ("category", "came to", "refused by", "rate ", "tokens ", "USD ")
    show_rows(heads, rows, "pages that a model wrote", SPARE)
    cost, tokens = (sum(one[name] for one in authored) for name in ("cost_usd", "tokens"))
    kept_tasks = max(1, len(dataset.tasks))
    say(f"for each kept task: {tokens / kept_tasks:,.0f} tokens, {cost / kept_tasks:.3f} USD")
    for text, n in Counter(text for one in authored for text in one["cannot"]).most_common():
        say(f"the page language can't say ({n}): {text}")
    return funnel
