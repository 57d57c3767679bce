"""A world that a model made, as the folder that ``envgen pack`` takes; and what is wrong with it."""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, EnvError, SandboxError
from envgen.core.limits import Count, Json, Label, Real, Text
from envgen.core.types import Record, ToolSpec, Usage
from envgen.pipelines.author.code_prompts import HandedCheck, HandedTest
from envgen.pipelines.author.page_agent import Round
from envgen.pipelines.author.taxonomy import Category
from envgen.pipelines.packed.folder import EnvironmentFolder
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
NO_VERIFIER = 'def verify(answer, initial, final):\n    return ["nobody has written the checks"]\n'
"""Stands in the folder while there is no verifier."""


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
    for name in ("prompt.md", "submit.json"):
        (task / name).write_text(world.files[name], "utf-8")
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


def check_faults(checks: Sequence[HandedCheck], world: World) -> Iterator[str]:
    """What is wrong with checks, as texts."""
    wanted = {name for name, _ in world.rules}
    given = [one.rule for one in checks]
    if sorted(given) != sorted(wanted):
        yield f"give one check for each of the rules {', '.join(sorted(wanted))}"
    for one in checks:
        try:
            tree = ast.parse(one.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield f"check {one.rule!r} is not valid Python: {error}"
            continue
        if [type(node) for node in tree.body] != [ast.FunctionDef]:
            yield f"check {one.rule!r} must be one function, imports inside it"
            continue
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        names = [argument.arg for argument in function.args.args]
        if function.name != one.rule or names != ["answer", "before", "after"]:
            yield f"write def {one.rule}(answer, before, after)"
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [n.name for n in node.names]
                )
                if foreign := [name for name in modules if name.partition(".")[0] not in IMPORTS]:
                    yield f"check {one.rule!r} imports {foreign[0]!r}; there are {', '.join(sorted(IMPORTS))}"


def verifier(checks: Sequence[HandedCheck]) -> str:
    """The verifier that runs each check: rules that are not kept are named."""
    rules = "".join(f"    {one.rule!r}: {one.rule},\n" for one in checks)
    code = "\n\n\n".join(one.code.strip() for one in checks)
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


def shown(folder: EnvironmentFolder) -> str:
    """What agents are told, and what may be submitted."""
    (task,) = folder.tasks
    tools = "\n".join(dumps(one.model_dump(mode="json", exclude_none=True)) for one in folder.tools)
    return "\n\n".join(
        (
            f"Policy: {folder.policy_text}",
            f"Task: {task.prompt}",
            f"Answer: {dumps(task.submit_schema)}",
            f"Tools:\n{tools}",
        )
    )


def plain(text: str) -> str:
    """A text in small letters and single spaces, to be looked for in another."""
    return re.sub(r"\s+", " ", text).strip().casefold()
