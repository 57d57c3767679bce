"""The tools of code environments: a shell that keeps its state, and a file viewer and editor."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Protocol

from pydantic import JsonValue

from envgen.core.code_types import REPOSITORY
from envgen.core.errors import SandboxError, ToolsDiedError, WorkspaceError
from envgen.core.sampler import code_submit_spec
from envgen.core.types import ToolErrorSpec, ToolSpec
from envgen.environments.episodes import ToolResult
from envgen.sandboxes.base import WORK, Sandbox
from envgen.sandboxes.shell_session import ShellResult, ShellSession
from envgen.sandboxes.workspace import OpenWorkspace

SUBMIT = "submit"
"""The tool that ends a code episode: what is submitted is the working tree's diff."""
DEFAULT_S, MAX_S = 120.0, 900.0
MAX_FILE_BYTES = 4 << 20
MAX_LINES = 2_000
"""Lines that one look at a file shows at most."""
MAX_COMMAND = 60_000

_PATH = {
    "type": "string",
    "minLength": 1,
    "maxLength": 4_096,
    "description": f"A file; relative paths are taken from {REPOSITORY}.",
}
_NO_FILE = ToolErrorSpec(code="no_file", when="there is no such text file that may be used")
BASH = ToolSpec(
    name="bash",
    description=(
        "Run a command in a bash that stays open: the folder, variables and background programs last "
        "from call to call. Its stdin is empty, and there is no network. Gives the output (stdout and "
        "stderr as they came) and the exit code."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "maxLength": MAX_COMMAND,
                "description": "One or more lines of bash.",
            },
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_S,
                "description": f"Seconds after which it is stopped; {DEFAULT_S:g} by default.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    mutates=True,
)
VIEW = ToolSpec(
    name="view",
    description=f"Show a text file with line numbers, {MAX_LINES} lines at most.",
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "first_line": {"type": "integer", "minimum": 1, "description": "Default: 1."},
            "last_line": {"type": "integer", "minimum": 1, "description": "Default: the last."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    errors=(_NO_FILE,),
)
EDIT = ToolSpec(
    name="edit",
    description="Replace a text in a file by another. It must stand there exactly once.",
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "old": {"type": "string", "minLength": 1, "description": "What to replace."},
            "new": {"type": "string", "description": "What to put there."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
    mutates=True,
    errors=(
        _NO_FILE,
        ToolErrorSpec(code="not_found", when="the text does not stand in the file"),
        ToolErrorSpec(code="not_unique", when="it stands there more than once"),
    ),
)
WRITE = ToolSpec(
    name="write",
    description="Write a file, with the folders it needs; one that is there is replaced.",
    parameters={
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    mutates=True,
    errors=(ToolErrorSpec(code="no_file", when="no file may be written there"),),
)
CODE_TOOLS: tuple[ToolSpec, ...] = (BASH, VIEW, EDIT, WRITE)
"""What an environment of family code lists as its tools."""
SUBMIT_SPEC = code_submit_spec(SUBMIT)


class OpenPlace(Protocol):
    """The open workspace that tools work on."""

    sandbox: Sandbox

    @property
    def variables(self) -> dict[str, str]:
        """Variables of every command."""
        ...


class CodePlace:
    """The open repository of one episode and its tools. One thread at a time."""

    def __init__(self, opened: OpenWorkspace) -> None:
        self._opened = opened
        self._tools = CodeTools(opened)

    @property
    def cpu_s(self) -> float:
        """Seconds on the processor that all its programs have taken."""
        return self._opened.sandbox.cpu_s

    def run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool. Raises ToolsDiedError when the sandbox is dead."""
        try:
            return self._tools.run(name, arguments)
        except SandboxError as error:
            raise ToolsDiedError(str(error)) from error

    def diff(self) -> bytes:
        """Return the diff. Raises ToolsDiedError, or WorkspaceError when only the diff can't be taken."""
        try:
            try:
                return self._opened.diff()
            except WorkspaceError:
                require_alive(self._opened.sandbox)
                raise
        except SandboxError as error:
            raise ToolsDiedError(str(error)) from error

    def close(self) -> None:
        """End everything in it."""
        try:
            self._tools.close()
        except SandboxError:  # it is dead already
            pass
        finally:
            self._opened.close()


def require_alive(sandbox: Sandbox) -> None:
    """Raise SandboxError if no program runs in it any more."""
    if sandbox.exec(["true"], timeout_s=30.0).exit_code:
        raise SandboxError("the sandbox runs nothing any more")


class CodeTools:
    """The tools of one episode. Not thread-safe."""

    def __init__(self, place: OpenPlace) -> None:
        self._sandbox = place.sandbox
        self._shell = ShellSession(place.sandbox, cwd=REPOSITORY, env=place.variables)

    def run(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool whose arguments fit its schema.

        Raises:
            SandboxError: if the sandbox is dead.
        """
        if name == BASH.name:
            return self._bash(arguments)
        path = _inside(str(arguments["path"]))
        if path is None:
            message = f"only files below {WORK} can be used; bash may read others"
            return ToolResult(error="no_file", message=message)
        if name == WRITE.name:
            return self._write(path, str(arguments["content"]))
        content = self._read(path)
        if isinstance(content, ToolResult):
            return content
        return (
            _view(content, arguments) if name == VIEW.name else self._edit(path, content, arguments)
        )

    def close(self) -> None:
        """End the shell."""
        self._shell.close()

    def _bash(self, arguments: dict[str, JsonValue]) -> ToolResult:
        seconds = arguments.get("timeout_s", DEFAULT_S)
        assert isinstance(seconds, int | float)
        result = self._shell.run(str(arguments["command"]), float(seconds))
        if result.restarted:
            require_alive(self._sandbox)  # or it is more than the shell that has ended
        value: dict[str, JsonValue] = {
            "output": result.output.decode(errors="replace"),
            "exit_code": result.exit_code,
        }
        if note := _note(result, seconds):
            value["note"] = note
        return ToolResult(value)

    def _read(self, path: str) -> str | ToolResult:
        try:
            return self._sandbox.read_file(path, MAX_FILE_BYTES).decode()
        except UnicodeDecodeError:
            return ToolResult(error="no_file", message=f"{path} is not UTF-8 text; use bash")
        except SandboxError as error:
            return self._refused(error)

    def _write(self, path: str, content: str) -> ToolResult:
        try:
            self._sandbox.write_file(path, content.encode("utf-8", "replace"))
        except SandboxError as error:
            return self._refused(error)
        return ToolResult({"path": path, "lines": content.count("\n")})

    def _edit(self, path: str, content: str, arguments: dict[str, JsonValue]) -> ToolResult:
        old, new = str(arguments["old"]), str(arguments["new"])
        if "\r\n" in content and "\n" not in content.replace("\r\n", ""):
            old, new = (_CRLF.sub("\r\n", text) for text in (old, new))  # as the file has its lines
        times = content.count(old)
        if times != 1:
            code = "not_unique" if times else "not_found"
            message = f"the text stands {times} times in {path}; it must stand there once"
            return ToolResult(error=code, message=message)
        line = content[: content.index(old)].count("\n") + 1
        written = self._write(path, content.replace(old, new))
        return written if written.error else ToolResult({"path": path, "line": line})

    def _refused(self, error: SandboxError) -> ToolResult:
        """A file that can't be used, unless it is the sandbox that is dead: that is raised."""
        require_alive(self._sandbox)
        return ToolResult(error="no_file", message=str(error))


_CRLF = re.compile(r"\r?\n")


def _note(result: ShellResult, seconds: float) -> str:
    notes = []
    if result.timed_out:
        notes.append(f"stopped after {seconds:g} s")
    if result.restarted:
        notes.append(f"the shell ended and was started again in {REPOSITORY}; its state is lost")
    return "; ".join(notes)


def _inside(path: str) -> str | None:
    """An absolute path below the work folder, or None."""
    pure = PurePosixPath(REPOSITORY) / path
    if ".." in pure.parts or "\0" in path or not pure.is_relative_to(WORK):
        return None
    return str(pure)


def _view(content: str, arguments: dict[str, JsonValue]) -> ToolResult:
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    first, last = arguments.get("first_line", 1), arguments.get("last_line", len(lines))
    assert isinstance(first, int)
    assert isinstance(last, int)
    shown = lines[first - 1 : min(last, first - 1 + MAX_LINES)]
    width = len(str(first + len(shown)))
    text = "\n".join(f"{first + i:>{width}}  {line}" for i, line in enumerate(shown))
    return ToolResult({"text": text, "lines": len(lines)})
