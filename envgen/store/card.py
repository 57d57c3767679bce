"""The data card: ``README.md`` of a dataset folder, made from its content alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from pydantic import JsonValue

from envgen.core.families import find_family
from envgen.core.types import EnvironmentSpec, GateResult, TaskSpec
from envgen.store.hub_card import front_matter
from envgen.store.manifest import TABLES, Manifest

_INTENDED_USE = """\
Training and evaluating tool-using language-model agents by reinforcement learning. Each task comes
with an executable verifier, and with evidence that a solution passes it and wrong answers don't. Do not put
this dataset into pre-training text: search for the canary below to find out whether somebody did."""

_PASS_KS = (1, 10, 100)


def data_card(
    manifest: Manifest,
    environments: Sequence[EnvironmentSpec],
    tasks: Sequence[TaskSpec],
    variant_splits: Mapping[str, int],
) -> str:
    """The Markdown text of the card; the same dataset gives the same text."""
    families = [find_family(name) for name in sorted({task.family for task in tasks})]
    measured = not tasks or any(family.measured for family in families)
    by_schema = not tasks or any(family.splits_by_schema for family in families)
    parts = [
        front_matter(manifest, environments, tasks),
        f"# {_cell(manifest.name)} (version {manifest.version})",
        _INTENDED_USE,
        *(family.about for family in families),
        _reading(tasks),
        "## What is in it\n\n" + _counts(manifest, tasks),
        "## Environments, authors, licences and sources\n\n" + _environments(environments),
        "## Splits\n\n"
        + "No database and no schema stands in two splits; variants are split by database.\n\n"
        * by_schema
        + _splits(tasks, variant_splits),
        "## Funnel\n\n" + _funnel(manifest.funnel),
        "## Difficulty\n\n" + _levels(tasks),
        "## Proof\n\n" + _gates(tasks),
        *(_measured(tasks) if measured else ()),
        "## pass@k by policy\n\n" + _pass_rates(tasks),
        "## Evidence about the dataset\n\n" + _dataset_gates(manifest),
        "## Identity\n\n"
        + _table(
            ("what", "value"),
            [
                ("format version", manifest.format_version),
                ("content hash", f"`{manifest.content_hash}`"),
                ("config hash", f"`{manifest.config_hash or '-'}`"),
                ("seed", manifest.seed),
                ("canary", f"envgen canary GUID {manifest.canary}"),
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _reading(tasks: Sequence[TaskSpec]) -> str:
    """How to get at the tasks; there are tables only where there are tasks."""
    if not tasks:
        return "There are no tasks in it."
    return (
        f"`datasets.load_dataset(FOLDER)` reads the tasks' public side ({TABLES}/*.parquet: prompts, tools, "
        "answer schemas, rules; JSON Schemas, rules' values and the like are JSON texts). To play them: "
        "`envgen.load(FOLDER)`; variants are played, too, but have no rows in these tables."
    )


def _measured(tasks: Sequence[TaskSpec]) -> tuple[str, str]:
    """What is measured of tasks whose verifier is a program."""
    return (
        "## Kill rate of verifier mutants\n\n" + _kill_rates(tasks),
        "## Density (share of the answer space that is accepted)\n\n" + _densities(tasks),
    )


def kill_rate(task: TaskSpec) -> float | None:
    """The share of verifier mutants that the task's probes killed, if that was measured."""
    rates = [gate.figure for gate in task.evidence if "mutant" in gate.gate and gate.n]
    return next((rate for rate in rates if rate is not None), None)


def _counts(manifest: Manifest, tasks: Sequence[TaskSpec]) -> str:
    families = Counter(task.family for task in tasks)
    rows: list[tuple[object, ...]] = [
        ("environments", manifest.counts.environments),
        ("tasks", manifest.counts.tasks),
        ("variants (re-seeded tasks, not counted as tasks)", manifest.counts.variants),
    ]
    rows += [(f"tasks of family {name}", n) for name, n in sorted(families.items())]
    return _table(("what", "number"), rows)


def _environments(environments: Sequence[EnvironmentSpec]) -> str:
    groups: dict[tuple[str, ...], int] = Counter(
        (x.category, x.author, x.licence, "; ".join(x.sources) or "generated, no outside source")
        for x in environments
    )
    rows = [(key[0], n, *key[1:]) for key, n in sorted(groups.items())]
    return _table(("category", "environments", "author", "licence", "sources"), rows)


def _splits(tasks: Sequence[TaskSpec], variants: Mapping[str, int]) -> str:
    own = Counter(task.split for task in tasks)
    rows = [(x, own.get(x, 0), variants.get(x, 0)) for x in ("train", "validation", "test")]
    return _table(("split", "tasks", "variants"), rows)


def _funnel(funnel: Mapping[str, JsonValue]) -> str:
    if not funnel:
        return "Not recorded."
    return _table(("stage", "outcome"), [(name, _flat(value)) for name, value in funnel.items()])


def _flat(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_flat(item)}" for name, item in sorted(value.items())) or "-"
    if isinstance(value, list):
        return "; ".join(map(_flat, value)) or "-"
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _levels(tasks: Sequence[TaskSpec]) -> str:
    rows: list[tuple[object, ...]] = []
    for level in sorted({task.difficulty.level for task in tasks}):
        same = [task.difficulty for task in tasks if task.difficulty.level == level]
        calls = sum(x.gold_calls for x in same) / len(same)
        tools = sum(x.distinct_tools for x in same) / len(same)
        measured = (
            _median(x.calls_upper_bound for x in same),
            _median(x.facts_upper_bound for x in same),
            _median(x.gold_tokens for x in same),
            _largest(x.shortcuts.best for x in same if x.shortcuts is not None),
        )
        rows.append((level, len(same), f"{calls:.1f}", f"{tools:.1f}", *measured))
    heads = (
        "level", "tasks", "calls of the gold run (mean)", "distinct tools (mean)",
        "calls that suffice (median)", "facts that suffice (median)", "tokens of gold (median)",
        "best shortcut (largest pass rate)",
    )  # fmt: skip
    return _table(heads, rows)


def _median(values: Iterable[int | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):g}" if known else "-"


def _largest(rates: Iterable[float]) -> str:
    known = list(rates)
    return f"{max(known):.2f}" if known else "-"


def _gates(tasks: Sequence[TaskSpec]) -> str:
    found: dict[str, Counter[str]] = {}
    for task in tasks:
        for gate in task.evidence:
            found.setdefault(gate.gate, Counter())[gate.status.value] += 1
    columns = ("passed", "failed", "not_applicable", "not_run")
    rows = [(name, *(n[x] for x in columns)) for name, n in sorted(found.items())]
    return _table(("gate", *(x.replace("_", " ") for x in columns)), rows)


def _kill_rates(tasks: Sequence[TaskSpec]) -> str:
    rates = [rate for rate in map(kill_rate, tasks) if rate is not None]
    bounds = [(0.0, 0.95), (0.95, 0.97), (0.97, 0.99), (0.99, 1.0)]
    rows = [(f"{a:g} to below {b:g}", sum(a <= x < b for x in rates)) for a, b in bounds]
    rows += [("1", sum(x >= 1 for x in rates)), ("not measured", len(tasks) - len(rates))]
    return _table(("kill rate", "tasks"), rows)


def _densities(tasks: Sequence[TaskSpec]) -> str:
    known = [x.difficulty.density.value for x in tasks if x.difficulty.density is not None]
    powers = Counter(-99 if x <= 0 else math.floor(math.log10(x)) for x in known)
    names = {-99: "0"}
    rows: list[tuple[object, ...]] = [
        (names.get(p, f"1e{p} to below 1e{p + 1}"), n)
        for p, n in sorted(powers.items(), reverse=True)
    ]
    return _table(("density", "tasks"), [*rows, ("not measured", len(tasks) - len(known))])


def _pass_rates(tasks: Sequence[TaskSpec]) -> str:
    rates: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        for rate in task.pass_at:
            rates.setdefault(rate.policy, []).append((rate.n, rate.c))
    if not rates:
        return "Not measured."
    rows = []
    for policy, pairs in sorted(rates.items()):
        cells = [_mean(_pass_at(n, c, k) for n, c in pairs if n >= k) for k in _PASS_KS]
        rows.append((policy, len(pairs), *cells))
    return _table(("policy", "tasks", *(f"pass@{k}" for k in _PASS_KS)), rows)


def _pass_at(n: int, c: int, k: int) -> float:
    """Unbiased pass@k (Chen et al. 2021, eq. 1)."""
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _mean(values: Iterable[float]) -> str:
    known = list(values)
    return f"{sum(known) / len(known):.3f}" if known else "-"


def _dataset_gates(manifest: Manifest) -> str:
    def outcome(gate: GateResult) -> str:
        return gate.status.value.replace("_", " ")

    if not manifest.evidence:
        return "None recorded."
    rows = [(x.gate, outcome(x), x.n, _flat(x.figure), x.reason) for x in manifest.evidence]
    return _table(("gate", "outcome", "n", "figure", "reason"), rows)


def _cell(value: object) -> str:
    text = " ".join(str(value).split())
    for sign in "\\|<[*_":
        text = text.replace(sign, "\\" + sign)
    return text or "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "None."
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines)
