"""A task and some of its trajectories as an inspector reads them: numbered turns, each between marks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from envgen.core.types import Message, ToolCall, Trajectory
from envgen.policies.agent import cut
from envgen.policies.ask import block
from envgen.store.dataset import Dataset

TEXT_CHARS = (4_000, 1_200, 400)
"""Of one text of a turn; the smaller ones are for trajectories that would be too long."""
_TEXTS = 4
"""As long as so many texts a turn may be."""
MOST_CHARS = 48_000
"""Of a trajectory, at about."""
MOST_TURNS = 60
"""Of a longer trajectory the middle is left out."""
_TOLD_CHARS = 60_000
_SUBMITTED = "answer_text"


class ShownTrajectory(NamedTuple):
    """One trajectory."""

    sample: int
    turns: dict[int, str]
    """Number -> text, from 1 on; the last one is the verdict. Turn 0 is what agents are told."""
    left_out: str
    """Which turns are not shown."""


class ShownTask(NamedTuple):
    """What an inspector sees of a task."""

    told: str
    """Turn 0 of every trajectory: policy, task, tools, form of the answer."""
    trajectories: tuple[ShownTrajectory, ...]
    secret: str = ""
    """Checker and solution, where they are shown."""

    def turns(self, sample: int) -> dict[int, str] | None:
        """All turns of a trajectory; None if there is none of this number."""
        found = next((one for one in self.trajectories if one.sample == sample), None)
        return None if found is None else {0: self.told, **found.turns}

    @property
    def text(self) -> str:
        """All of it, each part between marks that what stands inside can't imitate."""
        parts = [block("turn 0", self.told, _TOLD_CHARS)]
        if self.secret:
            parts.append(block("checker and solution", self.secret, _TOLD_CHARS))
        for one in self.trajectories:
            parts.append(f"Trajectory {one.sample}{one.left_out}:")
            parts += [
                block(f"turn {number}", text, len(text)) for number, text in one.turns.items()
            ]
        return "\n\n".join(parts)


def shown_task(
    dataset: Dataset, task_id: str, episodes: Sequence[Trajectory], *, secrets: bool = False
) -> ShownTask:
    """A task of a dataset and episodes of it.

    Args:
        dataset: the one that was rolled out.
        task_id: the task.
        episodes: those to show.
        secrets: show the checker and the reference solution, too.
    """
    bundle = dataset.task_files(task_id)
    spec = bundle.spec
    public = spec.public(dataset.environments[spec.environment_id])
    fields = ("name", "description", "parameters", "returns", "errors")
    tools = [
        one.model_dump(mode="json", exclude_none=True, include={*fields}) for one in public.tools
    ]
    known = (public.policy_text.strip(), public.prompt.strip(), "")
    said = [one.content.strip() for one in _before(episodes[0].messages)]
    told = (
        f"policy: {known[0] or '(none)'}",
        f"task: {known[1]}",
        *(f"also said to the agent: {one}" for one in said if one not in known),
        f"schema of the answer (agents see only what the task says of it): {_json(public.submit_schema)}",
        "tools, as they are documented:\n" + "\n".join(map(_json, tools)),
    )
    secret = f"checker:\n{bundle.verifier}\n\nsolution:\n{bundle.solution}" if secrets else ""
    return ShownTask("\n\n".join(told), tuple(map(_shown, episodes)), secret)


def chosen(episodes: Iterable[Trajectory], most: int) -> list[Trajectory]:
    """Up to ``most`` episodes, passed and failed in turn; of episodes with the same conversation one."""
    passed: list[Trajectory] = []
    failed: list[Trajectory] = []
    seen: set[object] = set()
    for one in episodes:
        said = tuple(
            (m.content, *((c.name, json.dumps(c.arguments)) for c in m.tool_calls))
            for m in one.messages
        )
        if said in seen:
            continue
        seen.add(said)
        good = one.score is not None and one.error is None and one.score.passed
        (passed if good else failed).append(one)
    pairs = zip_longest(failed, passed)
    mixed = [one for pair in pairs for one in pair if one is not None]
    return sorted(mixed[:most], key=lambda one: one.sample)


def _json(value: object) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """A schema without our own hints, which are for programs."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if not str(key).startswith("x-")}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _before(messages: Sequence[Message]) -> list[Message]:
    """What an agent was told before its first reply."""
    first = next((i for i, one in enumerate(messages) if one.role == "assistant"), len(messages))
    return list(messages[:first])


def _shown(episode: Trajectory) -> ShownTrajectory:
    """An episode, its texts cut so far that it is not too long."""
    for most in TEXT_CHARS:
        turns = list(_turns(episode.messages, most))
        first, last = MOST_TURNS // 2, len(turns) - MOST_TURNS // 2
        numbered = {n: text for n, text in enumerate(turns, 1) if n <= first or n > last}
        if sum(map(len, numbered.values())) <= MOST_CHARS:
            break
    left_out = f" (turns {first + 1} to {last} are left out)" if last > first else ""
    numbered[len(turns) + 1] = _verdict(episode)
    return ShownTrajectory(episode.sample, numbered, left_out)


def _turns(messages: Sequence[Message], most: int) -> Iterator[str]:
    """Each reply of the agent with what it called and what came back."""
    results = {one.tool_call_id: one.content for one in messages if one.role == "tool"}
    lines: list[str] = []
    for message in messages[len(_before(messages)) :]:
        if message.role == "assistant":
            if lines:
                yield cut("\n".join(lines), _TEXTS * most)
            lines = (
                [f"the agent thinks: {cut(message.reasoning, most)}"] if message.reasoning else []
            )
            lines += [f"the agent says: {cut(message.content, most)}"] if message.content else []
            for call in message.tool_calls:
                lines.append(f"call: {call.name} {cut(_arguments(call), most)}")
                if call.id in results:
                    lines.append(f"reply: {cut(results[call.id], most)}")
            lines = lines or ["the agent says nothing"]
        elif message.role != "tool":
            lines.append(f"told to the agent: {cut(message.content, most)}")
    if lines:
        yield cut("\n".join(lines), _TEXTS * most)


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.arguments_text or ""
    if set(call.arguments) == {_SUBMITTED}:
        return str(call.arguments[_SUBMITTED])
    return json.dumps(call.arguments, ensure_ascii=False)


def _verdict(episode: Trajectory) -> str:
    """How the episode ended, and what the checker said."""
    ended = f"the episode ended: {episode.stop.value}"
    if episode.error is not None:
        return (
            f"{ended}\nno verdict: {episode.error.kind}: {cut(episode.error.text, TEXT_CHARS[1])}"
        )
    score = episode.score
    if score is None:
        return f"{ended}\nno verdict"
    told = "accepted" if score.passed else "refused"
    broken = (
        f"\nbroken rules: {cut(', '.join(score.reasons), TEXT_CHARS[1])}" if score.reasons else ""
    )
    return f"{ended}\nverdict: {told}, score {score.value:g}{broken}"
