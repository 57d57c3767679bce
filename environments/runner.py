"""Gold runs: a solution that can only call tools, and a host that writes down what it called.

solution process -> this host -> tools worker. The log is the host's, so a solution can't forge it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.errors import EnvError
from envgen.core.types import CallRecord, EnvironmentSpec, GoldRun, ToolSpec
from envgen.environments.toolbox import Toolbox
from envgen.sandboxes.solution import SolutionRunner
from envgen.sandboxes.tools import ToolHost, ToolSession

MAX_GOLD_CALLS = 20_000


class GoldResult(NamedTuple):
    """The result of a solution's run.

    Attributes:
        gold: the host's log and the answer; the log also of a run that failed.
        changed: whether the run wrote to the database.
        fault: why there is no answer, or None.
        wall_s: how long it took.
    """

    gold: GoldRun
    changed: bool
    fault: str | None
    wall_s: float


class Broker:
    """Answers tool calls in an episode's session as the environment would, and logs them.

    Args:
        toolbox: checks names and arguments; the submit tool is not among what can be called.
        session: the episode.
    """

    def __init__(self, toolbox: Toolbox, session: ToolSession) -> None:
        self._toolbox = toolbox
        self._session = session
        self.calls: list[CallRecord] = []

    def call(self, name: str, arguments: dict[str, JsonValue]) -> JsonValue:
        """Make one call; a refused or failed one gives ``{"error", "message"}``.

        Raises:
            EnvError: if the environment broke.
        """
        value: JsonValue
        mutates = False
        if name == self._toolbox.submit:
            found: tuple[str, str] | None = ("unknown_tool", "a solution returns its answer")
        else:
            found = self._toolbox.fault(name, arguments)
        if found is not None:
            error: str | None = found[0]
            value = {"error": found[0], "message": found[1]}
        else:
            reply = self._session.call(name, arguments)
            error, value = reply.error, reply.value
            mutates = self._toolbox.mutates(name)
            if error is not None:
                value = {"error": error, "message": reply.message}
        self.calls.append(
            CallRecord.model_construct(
                name=name, arguments=arguments, result=value, error=error, mutates=mutates
            )
        )
        return value


def run_gold(
    solution: str,
    tools: Sequence[ToolSpec],
    tool_host: ToolHost,
    solution_host: SolutionRunner,
    *,
    toolbox: Toolbox | None = None,
    database: Path | None = None,
    final: Path | None = None,
    max_calls: int = MAX_GOLD_CALLS,
    cpu_s: float = 5.0,
) -> GoldResult:
    """Run a ``solution.py`` on fresh tools.

    Args:
        solution: its text; ``check_solution`` is not called here.
        tools: the environment's, without the submit tool.
        tool_host: where the tools run.
        solution_host: where the solution runs, a fresh fork or one of its series.
        toolbox: ``toolbox_of(tools)``, from whoever has it already.
        database: another initial database than the tool host's own.
        final: where to write the database as the solution left it; nothing is written when it
            changed nothing.
        max_calls: more end the run.
        cpu_s: more CPU time ends the run.

    Raises:
        EnvError: if the environment broke.
        SandboxError: if a sandbox broke.
    """
    session = tool_host.open(database)
    try:
        broker = Broker(toolbox or toolbox_of(tools), session)
        run = solution_host.run(solution, broker.call, tools, max_calls=max_calls, cpu_s=cpu_s)
        if final is not None and session.changed and run.fault is None:
            session.snapshot(final)
        gold = GoldRun(calls=tuple(broker.calls), answer=run.answer)
        return GoldResult(gold, session.changed, run.fault, run.wall_s)
    finally:
        session.close()


def replay(
    calls: Sequence[CallRecord],
    tools: Sequence[ToolSpec],
    tool_host: ToolHost,
    *,
    database: Path | None = None,
    final: Path | None = None,
) -> tuple[CallRecord, ...]:
    """Make the given calls on fresh tools (a gold log, a probe) and return the new log.

    Raises:
        EnvError: if the environment broke.
    """
    session = tool_host.open(database)
    try:
        broker = Broker(toolbox_of(tools), session)
        for one in calls:
            broker.call(one.name, one.arguments)
        if final is not None and session.changed:
            session.snapshot(final)
        return tuple(broker.calls)
    finally:
        session.close()


def toolbox_of(tools: Sequence[ToolSpec]) -> Toolbox:
    """The compiled checks of tools alone, without an environment around them."""
    try:
        return Toolbox(
            EnvironmentSpec.model_construct(
                id="tools", category="tools", title="", tools=tuple(tools), submit_tool=None
            )
        )
    except ValueError as error:
        raise EnvError(f"a tool's parameters must be a usable schema: {error}") from error
