"""Export a run's episodes, one record each, straight from the run's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, ResumeError
from envgen.core.types import Message, Record, Style, ToolCall, Trajectory, TrajectoryError
from envgen.rollout.atif import atif
from envgen.rollout.task_tools import TaskTools
from envgen.rollout.traces import traces
from envgen.store.columns import episode_schema, tool_row, write_parquet
from envgen.store.dataset import Dataset
from envgen.store.one_file import one_file, text_lines
from envgen.store.runs import RunStore

EpisodeFormat = Literal["messages", "openai-sft", "atif", "verifiers", "parquet"]
FORMATS: tuple[EpisodeFormat, ...] = ("messages", "openai-sft", "atif", "verifiers", "parquet")


class CalledFunction(Record):
    """The function of a call."""

    name: str
    arguments: str
    """JSON text; what the model wrote, where that was no JSON object."""


class ChatCall(Record):
    """A tool call in OpenAI's form."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Record):
    """A message in OpenAI's form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ChatCall, ...] = ()
    tool_call_id: str | None = None


class ExportedEpisode(Record):
    """One episode as it is exported."""

    task_id: str
    sample: int
    policy: str
    policy_version: str
    seed: str
    """A decimal number of up to 64 bits, which not every reader of JSON has."""
    style: Style | None
    reward: float | None
    """The verifier's value, 0 to 1; None where an error spoiled the episode."""
    passed: bool | None
    reasons: tuple[str, ...]
    stop: str
    error: TrajectoryError | None
    num_calls: int
    reached_verifier: bool
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    wall_s: float
    messages: tuple[ChatMessage, ...]
    tools: tuple[dict[str, Any], ...] | None
    """In OpenAI's form; None where no dataset was given to look them up in."""


class EpisodeFilter(Record):
    """Which episodes are exported."""

    passed_only: bool = False
    min_reward: float | None = Field(default=None, ge=0, le=1)
    """Only episodes that were scored, with at least this; 0 leaves out errors alone."""

    def takes(self, trajectory: Trajectory) -> bool:
        """Whether an episode is among them."""
        score = trajectory.score if trajectory.error is None else None
        if self.passed_only and (score is None or not score.passed):
            return False
        return self.min_reward is None or (score is not None and score.value >= self.min_reward)


class Exported(NamedTuple):
    """The summary of an export."""

    written: int
    stored: int
    """Episodes of the run."""
    errors: int
    """Written ones that an error spoiled; they are marked."""


def export_run(
    run: str | Path,
    path: Path | None,
    format: str,
    *,
    chosen: EpisodeFilter | None = None,
    dataset: Dataset | None = None,
    db_url: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Exported:
    """Write a run's episodes to one file, by task and sample.

    Args:
        run: a run folder.
        path: the new file; None: standard output, which the line-based formats allow.
        format: ``messages`` and ``parquet`` (``docs/trajectories.md``), ``openai-sft``, ``atif``, or
            ``verifiers``.
        chosen: which episodes; None: all. Errors are never in ``openai-sft``.
        dataset: the one that was rolled out, which knows the tools; ``openai-sft`` needs it.
        db_url: the run's database, where it is not in the folder.
        progress: called with (done, total, what) now and then.

    Raises:
        ConfigError: if the format is unknown or needs a dataset.
        ResumeError: if the run is of another dataset.
        StoreError: if there is no run, or the file exists or can't be written.
    """
    if format not in FORMATS:
        raise ConfigError(
            f"a run can't be exported as {format!r}", f"choose from {', '.join(FORMATS)}"
        )
    if format == "openai-sft":
        if dataset is None:
            raise ConfigError("openai-sft needs the tools of the tasks", "say --data DATASET")
        chosen = chosen or EpisodeFilter()
        chosen = chosen.model_copy(update={"min_reward": chosen.min_reward or 0.0})
    with RunStore.read(run, db_url=db_url) as store:
        if dataset is not None and store.dataset_hash != dataset.manifest.content_hash:
            raise ResumeError(
                f"the run in {str(run)!r} is of another dataset", "give the one that was rolled out"
            )
        counts = store.counts().values()
        stored = sum(count.n + count.errors for count in counts)
        tally = _Tally(stored, progress)
        tools = None if dataset is None else TaskTools(dataset)
        picked = tally.count(store.trajectories(), chosen or EpisodeFilter())
        if format == "parquet":
            if path is None:
                raise ConfigError("Parquet can't go to standard output", "name a file with --out")
            with one_file(path) as partial:
                write_parquet((_columns(t, tools) for t in picked), partial, episode_schema())
        else:
            line = {"openai-sft": _sft, "atif": atif, "verifiers": traces}.get(
                format, _episode_line
            )
            with text_lines(path) as file:
                for trajectory in picked:
                    file.write(dumps(line(trajectory, tools)) + "\n")
        return Exported(tally.written, stored, tally.errors)


class _Tally:
    """Counts the episodes that pass through."""

    def __init__(self, stored: int, progress: Callable[[int, int, str], None] | None) -> None:
        self.written = self.errors = 0
        self._stored, self._progress = stored, progress

    def count(
        self, trajectories: Iterator[Trajectory], chosen: EpisodeFilter
    ) -> Iterator[Trajectory]:
        for done, trajectory in enumerate(trajectories):
            if self._progress and done % 200 == 0:
                self._progress(done, self._stored, "")
            if chosen.takes(trajectory):
                self.written += 1
                self.errors += trajectory.error is not None
                yield trajectory


def episode(trajectory: Trajectory, tools: TaskTools | None) -> ExportedEpisode:
    """An episode as it is exported."""
    score, usage = trajectory.score, trajectory.usage
    spoiled = trajectory.error is not None
    return ExportedEpisode(
        task_id=trajectory.task_id,
        sample=trajectory.sample,
        policy=trajectory.policy,
        policy_version=trajectory.policy_version,
        seed=str(trajectory.seed),
        style=trajectory.style,
        reward=None if score is None or spoiled else score.value,
        passed=None if score is None or spoiled else score.passed,
        reasons=() if score is None else score.reasons,
        stop=trajectory.stop.value,
        error=trajectory.error,
        num_calls=trajectory.num_calls,
        reached_verifier=trajectory.reached_verifier,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
        wall_s=trajectory.wall_s,
        messages=tuple(map(_message, trajectory.messages)),
        tools=_tools(trajectory, tools),
    )


def _message(message: Message) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=message.content,
        reasoning_content=message.reasoning,
        tool_calls=tuple(map(_call, message.tool_calls)),
        tool_call_id=message.tool_call_id,
    )


def _call(call: ToolCall) -> ChatCall:
    text = call.arguments_text or ""
    if call.arguments is not None:
        text = dumps(call.arguments)
    return ChatCall(id=call.id, function=CalledFunction(name=call.name, arguments=text))


def _tools(trajectory: Trajectory, tools: TaskTools | None) -> tuple[dict[str, Any], ...] | None:
    if tools is None:
        return None
    return tuple(dict(tool) for tool in tools.of(trajectory.task_id, trajectory.style))


def _episode_line(trajectory: Trajectory, tools: TaskTools | None) -> dict[str, Any]:
    """An episode as a JSON line; a message omits what it does not have."""
    record = episode(trajectory, tools).model_dump(mode="json")
    record["messages"] = [_bare(message) for message in record["messages"]]
    return record


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value not in (None, [])}


def _sft(trajectory: Trajectory, tools: TaskTools | None) -> dict[str, Any]:
    """An episode as a line of OpenAI's fine-tuning format, which has no reasoning and ends with a reply."""
    messages = _episode_line(trajectory, None)["messages"]
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    for message in messages:
        message.pop("reasoning_content", None)
    offered = _tools(trajectory, tools)
    return {"messages": messages, **({"tools": offered} if offered else {})}


def _columns(trajectory: Trajectory, tools: TaskTools | None) -> dict[str, Any]:
    """An episode as a row of Parquet."""
    record = episode(trajectory, tools).model_dump(mode="json")
    if record["tools"] is not None:
        record["tools"] = [tool_row(tool) for tool in record["tools"]]
    return record
