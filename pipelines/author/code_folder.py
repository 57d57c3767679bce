"""A world that a model made, as the folder that ``envgen pack`` takes; and what is wrong with it."""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, EnvError, SandboxError
from envgen.core.limits import Count, Json, Label, Real, Text
from envgen.core.types import Record, ToolSpec, Usage
from envgen.pipelines.author.code_prompts import HandedChecks, HandedTest
from envgen.pipelines.author.page_agent import Round
from envgen.pipelines.author.taxonomy import Category
from envgen.pipelines.packed.folder import EnvironmentFolder
from envgen.pipelines.packed.specs import derived_specs
from envgen.policies.agent import AgentTool
from envgen.sandboxes.base import Sandbox
from envgen.sandboxes.tools import tool_host
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.sqlite_files import open_database, snapshot, tables_of

TASK = "main"
ROWS = 4
"""Of each table, that a reviewer sees."""
FILES = ("tools.py", "database.sql", "policy.md", "prompt.md", "submit.json")
"""What a builder writes, in /work."""
_MAX_FILE = 1 << 20
IMPORTS = frozenset(
    "collections datetime decimal fractions functools itertools json math re sqlite3 statistics".split()
)
"""What checks may import."""
FORM = """
The answer is JSON that fits this schema:
```json
{schema}
```
"""
"""Ends each prompt: agents see no schema but what they are told."""
NO_VERIFIER = 'def verify(answer, initial, final):\n    return ["nobody has written the checks"]\n'
"""Stands in the folder while there is no verifier."""

UNCHANGED = "database_unchanged"
"""The rule of a task that asks for no change, over tools that make some."""
_UNCHANGED = f"""def {UNCHANGED}(answer, before, after):
    return list(before.iterdump()) == list(after.iterdump())"""


class World(Record):
    """What a builder made."""

    files: dict[Label, Text]
    rules: tuple[tuple[Label, Text], ...]
    """Name and sentence."""
    tests: tuple[HandedTest, ...] = ()
    """Of the tools."""


class CodeRun(Record):
    """What came of the three conversations."""

    world: World | None = None
    verifier: Text = ""
    wrong: tuple[Json, ...] = ()
    """Answers that were frozen as wrong before there was a solution."""
    solution: Text = ""
    why: Text = ""
    """Why there is no environment; empty: there is one."""
    turns: Count = 0
    amendments: tuple[Label, ...] = ()
    """What came of each time that the checker was asked again."""
    augmented: tuple[Label, ...] = ()
    """What tools did not tell, as the solver said, and what came of it."""
    rounds: tuple[Round, ...] = ()
    """What the panel made of each environment that was whole."""
    rate: Real | None = None
    """How often the panel solves the task."""
    usage: Usage = Usage()


class Playing:
    """An environment's tools on copies of its database: for who looks around, and for tests."""

    def __init__(self, folder: EnvironmentFolder, backend: WorkerBackend) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="envgen-play-")
        database = Path(self._scratch.name) / "database.sqlite"
        database.write_bytes(folder.database)
        self._host = tool_host(folder.tools_source, folder.tools, database, backend=backend)
        self._session = self._host.open()
        self.tools = [self._tool(spec) for spec in folder.tools]

    def fresh(self) -> None:
        """Begin anew, on the initial database."""
        self._session.close()
        self._session = self._host.open()

    def call(self, name: str, arguments: dict[str, Any]) -> JsonValue:
        """What a tool returns, or its error as agents see it.

        Raises:
            EnvError: if it breaks.
        """
        reply = self._session.call(name, arguments)
        return {"error": reply.error, "message": reply.message} if reply.error else reply.value

    def _tool(self, spec: ToolSpec) -> AgentTool:
        def run(arguments: dict[str, Any]) -> str:
            try:
                return dumps(self.call(spec.name, arguments))
            except EnvError as error:
                self.fresh()
                return f"the tool broke: {error}"

        return AgentTool(spec.name, spec.description, spec.parameters, run)

    def close(self) -> None:
        """End the tools."""
        self._session.close()
        self._host.close()
        self._scratch.cleanup()


def files_of(place: Sandbox) -> dict[str, str]:
    """A builder's files.

    Raises:
        ConfigError: if one is missing or no text.
    """
    found = {}
    for name in FILES:
        try:
            found[name] = place.read_file(name, _MAX_FILE).decode("utf-8")
        except SandboxError as error:
            if name != "policy.md":
                raise ConfigError(
                    f"/work/{name} can't be read: {error}", "write it with bash"
                ) from error
            found[name] = ""
        except UnicodeDecodeError as error:
            raise ConfigError(f"/work/{name} is no UTF-8", "write it anew") from error
    return found


def write_folder(
    folder: Path,
    category: Category,
    world: World,
    verifier: str,
    *,
    answers: str = "",
    solution: str = "",
) -> None:
    """Write the folder that ``envgen pack`` takes."""
    task = folder / "tasks" / TASK
    task.mkdir(parents=True)
    for name in ("tools.py", "database.sql", "policy.md"):
        (folder / name).write_text(world.files[name], "utf-8")
    (task / "submit.json").write_text(world.files["submit.json"], "utf-8")
    form = FORM.format(schema=_short(world.files["submit.json"]))
    (task / "prompt.md").write_text(f"{world.files['prompt.md'].strip()}\n{form}", "utf-8")
    (task / "verifier.py").write_text(verifier, "utf-8")
    (task / "task.json").write_text('{"any_rows": true}', "utf-8")
    if answers:
        (task / "answers.json").write_text(answers, "utf-8")
    if solution:
        (task / "solution.py").write_text(solution, "utf-8")
    settings = {
        "id": category.id,
        "category": category.id,
        "title": category.name,
        "licence": "CC0-1.0",
    }
    (folder / "environment.json").write_text(json.dumps(settings), "utf-8")


def _short(schema: str) -> str:
    """A schema without line breaks, if it is JSON; whoever reads the folder tells if not."""
    try:
        return json.dumps(json.loads(schema), ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.strip()


def write_code(folder: Path, category: Category, found: CodeRun) -> None:
    """Write the folder of an environment that is done."""
    assert found.world is not None
    answers = json.dumps({"wrong": list(found.wrong)}, indent=1)
    write_folder(
        folder, category, found.world, found.verifier, answers=answers, solution=found.solution
    )


def rows_of(database: Path | None) -> Iterator[str]:
    """The first rows of each table, as texts; whoever wrote the database chose all names and values."""
    assert database is not None
    with open_database(database) as db:
        heads = {one.name: [column[0] for column in one.columns] for one in tables_of(db)}
    for name, rows in snapshot(database).tables.items():
        yield json.dumps([name, heads[name]], ensure_ascii=False)
        yield from (json.dumps(row, ensure_ascii=False) for row in rows[:ROWS])


def check_faults(given: HandedChecks, world: World) -> Iterator[str]:
    """What is wrong with checks, as texts."""
    wanted = {name for name, _ in world.rules}
    if sorted(one.rule for one in given.checks) != sorted(wanted):
        yield f"give one check for each of the rules {', '.join(sorted(wanted))}"
    trees = list[ast.Module]()
    for what, code in (
        *((f"check {c.rule!r}", c.code) for c in given.checks),
        ("shared", given.shared),
    ):
        try:
            trees.append(ast.parse(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield f"{what} is not valid Python: {error}"
            return
        if foreign := _foreign(trees[-1]):
            yield f"{what} imports {foreign!r}; there are {', '.join(sorted(IMPORTS))}"
    *checks, shared = trees
    for one, tree in zip(given.checks, checks, strict=True):
        if [type(node) for node in tree.body] != [ast.FunctionDef]:
            yield f"check {one.rule!r} must be one function, imports inside it"
        elif _head(tree.body[0]) != (one.rule, ["answer", "before", "after"]):
            yield f"write def {one.rule}(answer, before, after)"
    if any(type(node) is not ast.FunctionDef for node in shared.body):
        yield "shared must be functions alone, imports inside them"
    names = [_head(node)[0] for node in shared.body]
    if clash := sorted(set(names) & {*wanted, "verify", "RULES", "sqlite3", UNCHANGED}):
        yield f"shared may not define {clash[0]!r}: it has that name already"
    called = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if idle := sorted(set(names) - called):
        yield f"nobody calls {idle[0]!r} of shared"


def _head(node: ast.stmt) -> tuple[str, list[str]]:
    """Name and parameters of a function."""
    if not isinstance(node, ast.FunctionDef):
        return "", []
    return node.name, [one.arg for one in node.args.args]


def _foreign(tree: ast.Module) -> str:
    """The first module that may not be imported; empty: none."""
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["." if node.level else node.module or ""]
        for name in names:
            if name.partition(".")[0] not in IMPORTS:
                return name
    return ""


def verifier(given: HandedChecks, world: World) -> str:
    """The verifier that runs each check: rules that are not kept are named.

    Where tools write and no check looks at the database at the end, nothing was to be written: whoever
    changes it breaks a rule of its own.
    """
    own = given.checks
    rules = "".join(f"    {one.rule!r}: {one.rule},\n" for one in own)
    parts = [given.shared, *(one.code for one in own)]
    if _looks_at_no_end(given) and any(
        one.mutates for one in derived_specs(world.files["tools.py"])
    ):
        rules += f"    {UNCHANGED!r}: {UNCHANGED},\n"
        parts.append(_UNCHANGED)
    code = "\n\n\n".join(part.strip() for part in parts if part.strip())
    return f"""import sqlite3


{code}


RULES = {{
{rules}}}


def verify(answer, initial, final):
    broken = []
    for name, check in RULES.items():
        before, after = (sqlite3.connect(f"file:{{path}}?mode=ro", uri=True) for path in (initial, final))
        if check(answer, before, after) is not True:
            broken.append(name)
    return broken
"""


def _looks_at_no_end(given: HandedChecks) -> bool:
    """Whether no check reads the database as it was at the end."""
    trees = (ast.walk(ast.parse(one.code)) for one in given.checks)
    names = (node.id for tree in trees for node in tree if isinstance(node, ast.Name))
    return "after" not in names


def shown(folder: EnvironmentFolder) -> str:
    """What agents are told."""
    (task,) = folder.tasks
    tools = "\n".join(dumps(one.model_dump(mode="json", exclude_none=True)) for one in folder.tools)
    return "\n\n".join(
        (
            f"Policy: {folder.policy_text}",
            f"Task: {task.prompt}",
            f"Tools:\n{tools}",
        )
    )


def plain(text: str) -> str:
    """A text in small letters and single spaces, to be looked for in another."""
    return re.sub(r"\s+", " ", text).strip().casefold()
