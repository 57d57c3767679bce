"""``envgen list`` and ``envgen show``: a dataset's tasks, to be read by a person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, JsonValue
from rich.syntax import Syntax
from rich.text import Text

from envgen.cli.columns import CUT
from envgen.cli.command import ReadsDataset
from envgen.cli.console import heading, out, prose, remark, require, say
from envgen.cli.records import percent, show_record, show_records, show_rows, write_json
from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, StoreError
from envgen.core.families import Family, find_family
from envgen.core.limits import Label
from envgen.core.registry import near_names
from envgen.core.types import TaskSpec, ToolSpec
from envgen.store.run_folder import RUN_FILE

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
        what = ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in held.items())
        out.print(Text(f"{opened.manifest.name}: {what}", style="bold"), soft_wrap=True)
        tasks = [opened.tasks[task_id] for task_id in opened.own_task_ids]
        families = [find_family(name) for name in sorted({task.family for task in tasks})]
        columns = {head: (x.name, show) for x in families for head, show in x.columns.items()}
        heads = ("task", "category", "split", *FIGURES)
        rows = [
            (
                task.id,
                opened.environments[task.environment_id].category,
                task.split,
                *figures(task),
                *(show(task) if task.family == name else "-" for name, show in columns.values()),
                task.prompt,
            )
            for task in sorted(tasks, key=lambda task: (task.difficulty.level, task.id))
        ]
        show_rows((*heads, *columns, f"prompt{CUT}"), rows, spare=SPARE)
        say("calls, facts: upper bounds on what is needed; best: share of re-seeds that")
        say("the best simple player solves; killed: share of wrong verifiers told apart")
        for line in (line for one in families for line in one.legend):
            say(line)
        for line in funnel_lines(opened.manifest.funnel):
            say(line)
        if told := opened.manifest.funnel.get("models"):
            say(f"models: {told}")
        if opened.manifest.funnel:
            from envgen.pipelines.card import FUNNEL

            say(f"unchecked: {FUNNEL}")
        write_json(self.figures, tasks)
        require(len(tasks), None, "tasks in the dataset")


FIGURES = ("level ", "density ", "calls ", "facts ", "best ", "killed ", "pass@1")
"""Columns of ``figures``."""
SPARE = ("split", "facts", "density")
"""Columns that a narrow terminal leaves out first."""


def funnel_lines(funnel: Mapping[str, JsonValue]) -> list[str]:
    """What was drafted, rejected and proven: a line for each domain and stage, where that is kept."""
    domains, found = funnel.get("domains"), []
    for domain, stages in domains.items() if isinstance(domains, dict) else ():
        for name, stage in stages.items() if isinstance(stages, dict) else ():
            if isinstance(stage, dict) and stage.get("tried"):
                rejected = stage.get("rejected")
                reasons = rejected.items() if isinstance(rejected, dict) else ()
                why = ", ".join(f"{reason} {n}" for reason, n in reasons)
                suffix = f"; rejected: {why}" if why else ""
                found.append(
                    f"{domain}: {stage.get('proven')} of {stage['tried']} {name} proven{suffix}"
                )
    return found


def figures(task: TaskSpec) -> tuple[object, ...]:
    """What is measured of a task, by ``FIGURES``."""
    how = task.difficulty
    kill = next((one.figure for one in task.evidence if one.gate == "mutants"), None)
    density = f"{how.density.value:.3g}" if how.density else None
    rates = ", ".join(f"{one.policy} {one.c}/{one.n}" for one in task.pass_at)
    calls = how.gold_calls if how.calls_upper_bound is None else how.calls_upper_bound
    best = None if how.shortcuts is None else f"{how.shortcuts.best:.2f}"
    return how.level, density, calls, how.facts_upper_bound, best, percent(kill), rates


class Show(ReadsDataset):
    """Read one task: prompt, tools, rules and evidence; of a run its figures, or one episode.

    In place of a dataset DATASET may be a run of `envgen rollout`: with TASK, one of its episodes is shown
    turn by turn; with --html, all of them as a page.
    """

    places = {"[TASK]": "task"}
    examples = (
        "envgen show ds/ TASK",
        "envgen show ds/ TASK --secrets | less",
        "envgen show runs/x",
        "envgen show runs/x TASK --sample 3 --full",
        "envgen show runs/x --failed --html failed.html",
    )

    task: Label | None = None
    """A task id, or its beginning; else the first."""
    secrets: bool = False
    """Also show the answer, solution and verifier."""
    sample: int | None = Field(default=None, ge=0)
    """Of a run: which episode of the task; else the first."""
    full: bool = False
    """Of a run: show long texts whole."""
    failed: bool = False
    """Of a run: episodes that did not pass; without TASK a line for each."""
    html: Path | None = None
    """Of a run: write the conversations to this page, at most 200 of them."""

    def execute(self) -> None:
        """Print the task or the episode, part by part."""
        if (self.dataset / RUN_FILE).is_file():
            from envgen.cli.show_run import show_run

            shown = show_run(
                self.dataset, self.task, self.sample,
                full=self.full, failed=self.failed, page=self.html,
            )  # fmt: skip
            write_json(self.figures, shown)
            return
        if self.sample is not None or self.full or self.failed or self.html:
            options = "--sample, --full, --failed and --html are for runs"
            what = f"{str(self.dataset)!r} is not a run: {options}"
            raise ConfigError(what, "give a run folder of `envgen rollout`, or leave them out")
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
        ConfigError: if there is none; similar ids are named.
    """
    own, see = dataset.own_task_ids, f"`envgen list {dataset.path}` names them all"
    if task_id in dataset.tasks:
        return dataset.tasks[str(task_id)]
    begins = [one for one in own if one.startswith(task_id or "")]
    if task_id is None and own:
        remark(f"the first of {len(own)} tasks; {see}")
    elif len(begins) != 1:
        near = near_names(task_id or "", begins or own)
        raise ConfigError(f"no task {task_id or ''!r} in {str(dataset.path)!r}{near}", see)
    return dataset.tasks[begins[0]]


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
    match schema:
        case {"const": value}:
            return dumps(value)
        case {"enum": values}:
            return " | ".join(map(dumps, values))
        case {"anyOf": kinds}:
            return " | ".join(map(outline, kinds))
        case {"type": "object"}:
            fields = schema.get("properties", {}).items()
            return "{" + ", ".join(f'"{name}": {outline(one)}' for name, one in fields) + "}"
        case {"prefixItems": items}:
            return "[" + ", ".join(map(outline, items)) + "]"
        case {"type": "array"}:
            item = outline(schema.get("items") or {})
            low, high = schema.get("minItems", 0), schema.get("maxItems")
            most = "" if high is None else f" at most {high}"
            return f"[{item}] x {low}" if low == high else f"[{item}, ...]{most}"
        case {"minimum": low, "maximum": high}:
            return f"{low}..{high}"
        case {"x-source": source}:
            return f"<{source}>"
    return str(schema.get("type") or "any")


def _secrets(dataset: Dataset, task_id: str) -> None:
    files = dataset.task_files(task_id)
    if files.gold is not None:
        heading("Gold answer")
        say("  " + dumps(files.gold.answer))
    family = find_family(files.spec.family)
    if family.readable:
        _readable(family, dataset, task_id)
    parts = ((family.solution_file, files.solution), (family.verifier_file, files.verifier))
    for title, source in parts:
        heading(title)
        if out.is_terminal:
            lexer = Syntax.guess_lexer(title, source)
            out.print(Syntax(source, lexer, theme="ansi_dark", background_color="default"))
        else:
            say(source)


def _readable(family: Family, dataset: Dataset, task_id: str) -> None:
    try:
        parts: dict[str, list[str]] = family.load("readable")(dataset, task_id)
    except StoreError as error:
        remark(f"{error}: {error.hint}")
        return
    for title, lines in parts.items():
        heading(title)
        for line in lines:
            prose(line, indent=2)
