"""``envgen list`` and ``envgen show``: a dataset's tasks, to be read by a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rich.syntax import Syntax
from rich.text import Text

from envgen.cli.command import ReadsDataset
from envgen.cli.console import heading, out, prose, remark, require, say
from envgen.cli.records import show_record, show_records, show_rows, write_json
from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.core.limits import Label
from envgen.core.types import TaskSpec, ToolSpec

if TYPE_CHECKING:
    from envgen.store.dataset import Dataset


class List(ReadsDataset):
    """List a dataset's tasks: how hard, how well proven."""

    examples = ("envgen list ds/", "envgen list package:trip_planning --json tasks.json")

    def execute(self) -> None:
        """Print a row for each task."""
        opened = self.opened()
        counts = opened.manifest.counts
        held = {
            "environment": counts.environments,
            "task": counts.tasks,
            "variant": counts.variants,
        }
        numbers = ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for word, n in held.items())
        out.print(Text(f"{opened.manifest.name}: {numbers}", style="bold"), soft_wrap=True)
        tasks = [opened.tasks[task_id] for task_id in opened.own_task_ids]
        code = any(task.family == "code" for task in tasks)
        heads = ("task", "split", "level ", "density ", "calls ", "killed ", "pass@1")
        show_rows(
            (*heads, *(("verdicts proven",) if code else ())),
            (
                (task.id, task.split, *figures(task), *((proof(task),) if code else ()))
                for task in sorted(tasks, key=lambda t: (t.difficulty.level, t.id))
            ),
        )
        say("calls: tool calls of the solution; killed: share of wrong verifiers told apart")
        if code:
            what = "fail-to-pass tests that only code which computes the answer passes"
            say(f"verdicts proven: {what}, of all")
        write_json(self.figures, tasks)
        require(len(tasks), None, "tasks in the dataset")


def figures(task: TaskSpec) -> tuple[str, str, str, str, str]:
    """Level, density, gold calls, kill rate and pass@1 of a task, as text."""
    difficulty = task.difficulty
    kill = next((r.figure for r in task.evidence if r.gate == "mutants"), None)
    rates = ", ".join(f"{p.policy} {p.c}/{p.n}" for p in task.pass_at)
    return (
        str(difficulty.level),
        density_text(difficulty.density.value) if difficulty.density else "-",
        str(difficulty.minimum_calls),
        "-" if kill is None else f"{math.floor(100 * kill)}%",  # one survivor is not 100 %
        rates or "-",
    )


def proof(task: TaskSpec) -> str:
    """How many verdicts of a code task are proven, and the chance of a blind guess at one of them."""
    if task.family != "code":
        return "-"
    gate = next((result for result in task.evidence if result.gate == "verdicts"), None)
    if gate is None or not gate.figure:
        return "none: report believed"
    odds = gate.details.get("odds")
    guess = f", odds <= 1/{1 / odds:.0f}" if isinstance(odds, float) and odds else ""
    return f"{gate.figure:.0f} of {gate.n}{guess}"


class Show(ReadsDataset):
    """Read one task: prompt, tools, rules and evidence."""

    places = {**ReadsDataset.places, "[TASK]": "task"}
    examples = ("envgen show ds/ TASK", "envgen show ds/ TASK --secrets | less")

    task: Label | None = None
    """A task id, or its beginning; else the first."""
    secrets: bool = False
    """Also show the answer, solution and verifier."""

    def execute(self) -> None:
        """Print the task, part by part."""
        opened = self.opened()
        spec = find_task(opened, self.task)
        _prompt(opened, spec)
        heading("Difficulty")
        show_record(spec.difficulty)
        heading("Evidence")
        if spec.evidence:
            show_records(spec.evidence)
        if self.secrets:
            _secrets(opened, spec.id)
        write_json(self.figures, spec)


def _prompt(dataset: Dataset, spec: TaskSpec) -> None:
    """What an agent is told: prompt, policy, tools, form of the answer; and the rules."""
    environment = dataset.environments[spec.environment_id]
    out.print(Text.assemble((spec.id, "bold"), f"  {environment.title}"), soft_wrap=True)
    prose(
        f"{environment.category}, level {spec.difficulty.level}, {spec.split} split, "
        f"at most {spec.limits.turns} turns",
        style="dim",
    )
    heading("Prompt")
    prose(spec.prompt, indent=2)
    if environment.policy_text:
        heading("Policy")
        prose(environment.policy_text, indent=2)
    heading("Tools")
    for tool in environment.tools:
        _tool(tool)
    if spec.submit_schema is not None:
        heading("Answer" + (f" (to {environment.submit_tool})" if environment.submit_tool else ""))
        prose(outline(spec.submit_schema), indent=2)
    if spec.rules:
        heading("Rules")
        for i, rule in enumerate(spec.rules, 1):
            prose(f"{i}. {rule.text}", indent=2)


def find_task(dataset: Dataset, task_id: str | None) -> TaskSpec:
    """The task of this id or of the only id that begins so; None: the first.

    Raises:
        ConfigError: if there is none; its hint names similar ids.
    """
    own = dataset.own_task_ids
    if task_id is None:
        if not own:
            raise ConfigError(f"there is no task in {str(dataset.path)!r}")
        remark(f"the first of {len(own)} tasks; `envgen list {dataset.path}` names them all")
        return dataset.tasks[own[0]]
    if task_id in dataset.tasks:
        return dataset.tasks[task_id]
    begins = [one for one in own if one.startswith(task_id)]
    if len(begins) == 1:
        return dataset.tasks[begins[0]]
    near = begins[:3] or get_close_matches(task_id, own, n=3, cutoff=0.3)
    raise ConfigError(
        f"no task {task_id!r} in {str(dataset.path)!r}",
        f"did you mean {', '.join(near)}?" if near else f"see `envgen list {dataset.path}`",
    )


def _tool(tool: ToolSpec) -> None:
    properties = tool.parameters.get("properties", {})
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    line = Text.assemble("  ", (tool.name, "cyan"), f"({names})")
    if tool.mutates:
        line.append("  writes", style="yellow")
    out.print(line, soft_wrap=True)
    prose(tool.description, indent=6, style="dim")


def outline(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in short: ``[{"city": text, "price": 1..9}, ...]``."""
    if "const" in schema:
        return dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(outline(one) for one in schema["anyOf"])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        return "{" + ", ".join(f'"{name}": {outline(one)}' for name, one in fields.items()) + "}"
    if kind == "array":
        return _array(schema)
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']}..{schema['maximum']}"
    if "x-source" in schema:
        return f"<{schema['x-source']}>"
    return str(kind or "any")


def _array(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return "[" + ", ".join(outline(one) for one in schema["prefixItems"]) + "]"
    item = outline(schema.get("items") or {})
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    if low == high:
        return f"[{item}] x {low}"
    return f"[{item}, ...]" + (f" at most {high}" if high is not None else "")


def density_text(value: float) -> str:
    """A share of the answer space in few characters."""
    if value >= 0.001:
        return f"{value:.3f}"
    return f"{value:.0e}".replace("e-0", "e-")


def _secrets(dataset: Dataset, task_id: str) -> None:
    files = dataset.task_files(task_id)
    if files.gold is not None:
        heading("Gold answer")
        say("  " + dumps(files.gold.answer))
    for title, source in (("solution.py", files.solution), ("verifier.py", files.verifier)):
        heading(title)
        if out.is_terminal:
            out.print(Syntax(source, "python", theme="ansi_dark", background_color="default"))
        else:
            say(source)
