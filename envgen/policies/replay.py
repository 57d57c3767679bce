"""Record what a policy replied and play it back without it: one JSON line per request.

A line is keyed by a hash of everything that the reply depends on (messages, tools, sampling, seed), so a
changed prompt or tool is a miss and never a wrong answer. What is recorded is not asked for again, so a run
that was stopped pays nothing twice. What ``bash`` printed may differ (a date, a process id): where nothing
else does, the conversation goes on as it was recorded.
"""

from __future__ import annotations

import base64
import io
import json
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from envgen.core.canonical import dumps, sha256
from envgen.core.errors import ConfigError, PolicyError
from envgen.core.limits import Label, Money, Sha256, Text, fault
from envgen.core.types import Message, PublicTask, Record, Sampling, Usage
from envgen.policies.base import Policy, PolicyReply, SamplingMask, Tokens, Tool
from envgen.policies.preflight import preflight

_ODD = "surrogatepass"
"""Models write lone surrogates, too."""
_MAX_LINE = 1 << 27
"""Characters; a file of zeros is one line."""
_MAX_TOKENS = 1 << 28
"""Bytes of the tokens of a reply: zeros compress to nearly nothing."""
_BROKEN = (
    ValueError,
    KeyError,
    EOFError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
)


def request_key(
    messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling, seed: int
) -> str:
    """The hash under which a reply is recorded."""
    asked = {
        "messages": [message.model_dump(mode="json") for message in messages],
        "tools": list(tools),
        "sampling": sampling.model_dump(mode="json"),
        "seed": seed,
    }
    return sha256(dumps(asked).encode("utf-8", _ODD))


UNSTEADY = "bash"
"""The tool that may print something else each time."""


def spoken_key(
    messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling, seed: int
) -> str:
    """The hash of a request without what ``bash`` printed; ``request_key`` where it printed nothing."""
    unsteady = {call.id for m in messages for call in m.tool_calls if call.name == UNSTEADY}
    said = [
        m.model_copy(update={"content": ""}) if m.tool_call_id in unsteady else m for m in messages
    ]
    return request_key(said, tools, sampling, seed)


class RecordedLine(Record):
    """A line of a recording."""

    key: Sha256
    spoken: Sha256 | None = None
    """See ``spoken_key``; None: as ``key``."""
    policy: Label = "replay"
    version: Label = ""
    task: Label = ""
    message: Message
    usage: Usage
    tokens: Text | None = None
    seconds: Money = 0.0
    """That the reply took."""


class RecordPolicy:
    """Passes requests on to ``policy`` and appends each reply to a JSONL file.

    A request that the file has is answered from there.

    Raises:
        ConfigError: if the file is no recording, or one of another policy.
    """

    def __init__(self, policy: Policy, path: Path) -> None:
        self.name = policy.name
        self.version = policy.version
        self._policy = policy
        self._path = path
        self._lock = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known: ReplayPolicy | None = None
        if path.exists():
            self._known = ReplayPolicy(path)
            known = self._known.name, self._known.version
            if known not in ((self.name, self.version), ("replay", "")):
                raise ConfigError(
                    f"{str(path)!r} is a recording of {' '.join(known)!r}, not of {self.name!r}",
                    "record in another file",
                )
            _cut_last_line(path)

    def close(self) -> None:
        """Close what the inner policy holds open."""
        getattr(self._policy, "close", lambda: None)()

    def preflight(self, sampling: Sampling, *, tools: bool) -> None:
        """Let the inner policy ask its server; nothing of it is recorded."""
        preflight(self._policy, sampling, tools=tools)

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """The recorded reply, or the inner policy's after it is on disk."""
        key = request_key(messages, tools, sampling, seed)
        spoken = spoken_key(messages, tools, sampling, seed)
        if self._known is not None and (known := self._known.find(key, spoken)) is not None:
            return known
        started = time.monotonic()
        reply = self._policy.respond(
            messages, tools, sampling, deadline=deadline, cancel=cancel, seed=seed, task=task
        )
        line = {
            "key": key,
            "spoken": None if spoken == key else spoken,
            "policy": self.name,
            "version": self.version,
            "task": task.id,
            "message": reply.message.model_dump(mode="json"),
            "usage": reply.usage.model_dump(mode="json"),
            "tokens": _packed(reply.tokens) if reply.tokens else None,
            "seconds": round(time.monotonic() - started, 3),
        }
        with self._lock, self._path.open("a", encoding="utf-8", errors=_ODD) as file:
            file.write(dumps(line) + "\n")
        return reply


class ReplayPolicy:
    """Plays recordings back. A request that was not recorded is a PolicyError.

    Args:
        path: a recording, or a folder of them: its ``.jsonl`` files, and ``replies.jsonl`` of batch folders
            in it.

    Raises:
        ConfigError: if there is none, or one can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = "replay"
        self.version = ""
        self._path = path
        self._lines: dict[str, RecordedLine] = {}
        self._spoken: dict[str, RecordedLine] = {}
        for file in _recordings(path):
            for line in _lines(file):
                self._lines[line.key] = self._spoken[line.spoken or line.key] = line
                self.name, self.version = line.policy, line.version

    def find(self, key: str, spoken: str) -> PolicyReply | None:
        """The recorded reply to the request with this ``request_key``, or else with this ``spoken_key``."""
        line = self._lines.get(key) or self._spoken.get(spoken)
        if line is None:
            return None
        tokens = _unpacked(line.tokens) if line.tokens else None
        return PolicyReply(line.message, line.usage, tokens)

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """The recorded reply to this very request."""
        asked = messages, tools, sampling, seed
        reply = self.find(request_key(*asked), spoken_key(*asked))
        if reply is None:
            raise PolicyError(
                f"{str(self._path)!r} holds no reply to this request of task {task.id!r}",
                "record again: prompt, tools, sampling or seed differ from the recording",
            )
        return reply


def _recordings(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.jsonl")) + sorted(path.glob("*/replies.jsonl"))
    if not found:
        raise ConfigError(f"the folder {str(path)!r} holds no recording", "it has no .jsonl file")
    return found


def _cut_last_line(path: Path) -> None:
    """Remove a last line that was not written whole, so that the next one begins anew."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        with path.open("r+b") as file:
            file.truncate(end)


def _lines(path: Path) -> list[RecordedLine]:
    """The recording's lines; a last one that was cut off is left out."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"the recording {str(path)!r} is no regular file")
    lines: list[RecordedLine] = []
    try:
        with path.open(encoding="utf-8", errors=_ODD) as file:
            while text := file.readline(_MAX_LINE):
                where = f"line {len(lines) + 1} of {str(path)!r}"
                try:
                    content = json.loads(text)
                except (ValueError, RecursionError) as error:
                    if len(text) < _MAX_LINE and not file.readline(1):
                        break
                    raise ConfigError(f"{where} is not valid JSON") from error
                try:
                    lines.append(RecordedLine.model_validate(content))
                except ValidationError as error:
                    raise ConfigError(f"{where} is not a recorded reply: {fault(error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the recording {str(path)!r} can't be read: {error}",
            "name a file that `--policy record:FILE:POLICY` wrote, or a folder of them",
        ) from error
    return lines


def _packed(tokens: Tokens) -> str:
    buffer = io.BytesIO()
    arrays: Mapping[str, NDArray[Any]] = {
        **tokens.arrays(),
        "stopped": np.array(tokens.stopped),
    }
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return base64.b64encode(buffer.getvalue()).decode()


def _unpacked(text: str) -> Tokens:
    """Raises PolicyError for what ``_packed`` would not have written."""
    try:
        content = io.BytesIO(base64.b64decode(text))
        with zipfile.ZipFile(content) as members:
            if sum(one.file_size for one in members.infolist()) > _MAX_TOKENS:
                raise PolicyError(f"recorded tokens are more than {_MAX_TOKENS >> 20} MiB")
        with np.load(content, allow_pickle=False) as arrays:
            return unpack_tokens({name: arrays[name] for name in arrays.files})
    except _BROKEN as error:
        raise PolicyError(f"recorded tokens can't be read: {error}", "record again") from error


def unpack_tokens(arrays: Mapping[str, NDArray[Any]]) -> Tokens:
    """The inverse of ``Tokens.arrays``."""
    mask = None
    if "mask_ids" in arrays:
        mask = SamplingMask(arrays["mask_offsets"], arrays["mask_ids"])
    return Tokens(
        prompt_ids=arrays["prompt_ids"],
        completion_ids=arrays["completion_ids"],
        logprobs=arrays.get("logprobs"),
        full_logprobs=arrays.get("full_logprobs"),
        mask=mask,
        routing=arrays.get("routing"),
        topk=arrays.get("topk"),
        captured_from=int(arrays.get("captured_from", 0)),
        policy_version=str(arrays["policy_version"]) if "policy_version" in arrays else "",
        raw_logprobs=bool(arrays.get("raw_logprobs", False)),
        stopped=bool(arrays.get("stopped", True)),
    )
