"""Run tools.py (load it, call its functions on a guarded database) and verifier.py. Standard library only.

The same code runs in the forked workers and, for trusted code, in the host's own process.
"""

from __future__ import annotations

import builtins
import sqlite3
from typing import Any, NoReturn

VALUE, ERROR, FAULT = 0, 1, 2
"""Kinds of a reply: ``[VALUE, value]``, ``[ERROR, code, message]``, ``[FAULT, text]``."""

SAVEPOINT = "envgen_call"
_DENIED = frozenset(
    getattr(sqlite3, name)
    for name in (
        "SQLITE_TRANSACTION", "SQLITE_ATTACH", "SQLITE_DETACH", "SQLITE_PRAGMA",
        "SQLITE_CREATE_INDEX", "SQLITE_CREATE_TABLE", "SQLITE_CREATE_TEMP_INDEX",
        "SQLITE_CREATE_TEMP_TABLE", "SQLITE_CREATE_TEMP_TRIGGER", "SQLITE_CREATE_TEMP_VIEW",
        "SQLITE_CREATE_TRIGGER", "SQLITE_CREATE_VIEW", "SQLITE_CREATE_VTABLE",
        "SQLITE_DROP_INDEX", "SQLITE_DROP_TABLE", "SQLITE_DROP_TEMP_INDEX",
        "SQLITE_DROP_TEMP_TABLE", "SQLITE_DROP_TEMP_TRIGGER", "SQLITE_DROP_TEMP_VIEW",
        "SQLITE_DROP_TRIGGER", "SQLITE_DROP_VIEW", "SQLITE_DROP_VTABLE",
        "SQLITE_ALTER_TABLE", "SQLITE_REINDEX", "SQLITE_ANALYZE",
    )
)  # fmt: skip


def _authorize(action: int, first: Any, second: Any, *_: Any) -> int:
    if action in _DENIED or (action == sqlite3.SQLITE_SAVEPOINT and second != SAVEPOINT):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class Database(sqlite3.Connection):
    """The ``db`` of tools: autocommit, and the host owns every transaction."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise sqlite3.ProgrammingError("the host owns the connection and its transactions")

    commit = rollback = executescript = close = backup = _refuse
    serialize = deserialize = set_authorizer = enable_load_extension = _refuse
    load_extension = setconfig = __enter__ = __exit__ = _refuse

    @property
    def isolation_level(self) -> None:  # type: ignore[override]  # narrowed: it never changes
        """Always None: every statement commits by itself."""
        return None

    @property
    def autocommit(self) -> int:
        """Always sqlite3.LEGACY_TRANSACTION_CONTROL (Python 3.12 and later)."""
        return -1


def open_database(content: Any) -> Database:
    """A private in-memory copy of a database file's content (bytes or a memory map)."""
    if content[:16] != b"SQLite format 3\0":
        raise sqlite3.DatabaseError("file is not a database")
    if content[18:20] == b"\x02\x02":  # a WAL header can't be opened in memory
        content = content[:18] + b"\x01\x01" + content[20:]
    db = sqlite3.connect(
        ":memory:", factory=Database, check_same_thread=False, isolation_level=None
    )
    raw = sqlite3.Connection
    raw.deserialize(db, content)
    for pragma in ("temp_store=MEMORY", "trusted_schema=OFF"):
        raw.execute(db, f"PRAGMA {pragma}")
    raw.execute(db, "SELECT count(*) FROM sqlite_master").fetchone()
    raw.set_authorizer(db, _authorize)
    return db


def image(db: Database) -> bytes:
    """The database as the content of a file."""
    return sqlite3.Connection.serialize(db)


def dispose(db: Database) -> None:
    """Close ``db`` (its own ``close`` refuses)."""
    sqlite3.Connection.close(db)


def explain(error: BaseException, filename: str) -> str:
    """One line about an exception: its type, text and last line in ``filename``."""
    try:
        text = str(error)[:2000]
    except BaseException:  # the text of a hostile exception is its own code
        text = "(no text)"
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" ({filename}, line {line})" if line else ""
    return f"{type(error).__name__}: {text}{where}"


class ToolFunctions:
    """The functions of one tools.py."""

    def __init__(self, source: str, tools: dict[str, bool]) -> None:
        """Execute ``source``; ``tools`` names its functions and whether each mutates."""
        space: dict[str, Any] = {"__name__": "tools", "__builtins__": builtins}
        exec(compile(source, "tools.py", "exec", dont_inherit=True), space)
        error = space.get("ToolError")
        known = isinstance(error, type) and issubclass(error, Exception)
        self.error: Any = error if known else ()
        missing = [name for name in tools if not callable(space.get(name))]
        if missing:
            raise LookupError(f"tools.py is missing {', '.join(sorted(missing))}")
        self.functions = {name: (space[name], mutates) for name, mutates in tools.items()}

    def call(self, db: Database, name: str, arguments: dict[str, Any]) -> list[Any]:
        """Call a tool; a documented error and a fault leave the database as it was."""
        function, mutates = self.functions[name]
        before = db.total_changes
        try:
            if mutates:
                return self._call_in_savepoint(db, function, arguments)
            value = function(db, **arguments)
        except self.error as error:
            reply = _documented(error)
        except KeyboardInterrupt:  # in the host's own process: the user's
            raise
        except BaseException as error:  # whatever a tool raises is the environment's fault
            return [FAULT, f"{name}: {explain(error, 'tools.py')}"]
        else:
            reply = [VALUE, value]
        if not mutates and db.total_changes != before:
            return [FAULT, f"{name}: a tool that is not declared to mutate changed the database"]
        return reply

    @staticmethod
    def _call_in_savepoint(db: Database, function: Any, arguments: dict[str, Any]) -> list[Any]:
        run = sqlite3.Connection.execute
        run(db, f"SAVEPOINT {SAVEPOINT}")
        try:
            value = function(db, **arguments)
        except BaseException:
            run(db, f"ROLLBACK TO {SAVEPOINT}")
            run(db, f"RELEASE {SAVEPOINT}")
            raise
        run(db, f"RELEASE {SAVEPOINT}")
        return [VALUE, value]


def _documented(error: Exception) -> list[Any]:
    code = str(error.args[0])[:200] if error.args else type(error).__name__
    return [ERROR, code, str(error.args[1])[:2000] if len(error.args) > 1 else code]


def compiled_verifier(source: str) -> Any:
    """A verifier.py as code, or as the text that says why it does not compile."""
    try:
        return compile(source, "verifier.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"does not compile: {explain(error, 'verifier.py')}"


def verdict(code: Any, answer: Any, initial: str, final: str) -> list[Any]:
    """Run a compiled verifier in a fresh namespace: ``[VALUE, broken rules]`` or ``[FAULT, text]``."""
    if isinstance(code, str):
        return [FAULT, code]
    space: dict[str, Any] = {"__name__": "verifier", "__builtins__": builtins}
    try:
        exec(code, space)
        broken = space["verify"](answer, initial, final)
    except KeyboardInterrupt:  # in the host's own process: the user's
        raise
    except BaseException as error:  # a verifier that raises is broken, whatever it raises
        return [FAULT, explain(error, "verifier.py")]
    if type(broken) is not list or not all(type(rule) is str for rule in broken):
        return [FAULT, "verify() must return a list of str"]
    return [VALUE, broken]
