"""``batch``: a model without a live endpoint. Requests and answers are files in OpenAI's batch format.

A folder is one model's::

    requests/0001.jsonl   {"custom_id", "method", "url", "body"} a line, as vLLM's run-batch reads them
    answers/*.jsonl       {"custom_id", "response": {"status_code", "body"}, "error"} a line, in any order
    replies.jsonl         what came of them, as ``replay`` reads it

Requests that come together are written together, once nobody has asked for ``gather_s``. Whoever asked waits
until a file in ``answers`` has the line. A run that was stopped goes on: what was asked is not asked again,
what was answered is taken from the files. An answer that is an error fails its request in this run, and is
asked for again by the next.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.limits import Json, Line, Text, Whole, fault
from envgen.core.types import Message, PublicTask, Record, Sampling
from envgen.policies.base import (
    CancelledPolicyError,
    DeadlineExceededError,
    PolicyReply,
    Tool,
    tool_name,
)
from envgen.policies.budget import Budget
from envgen.policies.http import TransientError
from envgen.policies.openai import (
    count_usage,
    first_choice,
    read_message,
    request_body,
    require_price,
)
from envgen.policies.replay import request_key
from envgen.policies.wire import OpenAIConfig, checked

logger = logging.getLogger(__name__)

REQUESTS, ANSWERS, REPLIES = "requests", "answers", "replies.jsonl"
URL = "/v1/chat/completions"
MAX_LINE_BYTES = 64 << 20
_LOOK_S = 0.25
"""Between two looks into the folder of answers."""


class BatchConfig(OpenAIConfig):
    """A model behind files."""

    stream: Literal[False] = False
    gather_s: float = Field(default=1.0, ge=0, le=3600)
    """Requests that come within so many seconds of one another stand in one file."""


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    status_code: Whole
    body: Json = None


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    custom_id: Annotated[str, Field(max_length=200)]
    response: _Response | None = None
    error: Json = None


class _Request(Record):
    custom_id: Annotated[str, Field(max_length=200)]
    method: Literal["POST"] = "POST"
    url: Line = URL
    body: dict[Text, Json]


class BatchPolicy:
    """Asks by files; thread-safe. See the module for the folder."""

    def __init__(self, config: BatchConfig, folder: Path, *, budget: Budget | None = None) -> None:
        self.name = f"batch:{config.model}"
        self.version = ""
        self._config = config
        self._budget = budget or Budget()
        require_price(config.price, self._budget)
        self._folder = BatchFolder(folder, config.model, config.gather_s)

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
        """One chat completion, whenever it comes."""
        self._budget.check()
        config = self._config
        body = request_body(config, messages, tools, sampling, seed)
        key = request_key(messages, tools, sampling, seed)
        answer = self._folder.ask(key, body, deadline=deadline, cancel=cancel)
        names = [tool_name(tool) for tool in tools]
        message = read_message(
            first_choice(answer), messages, names, read_text=config.tool_mode != "native"
        )
        usage = count_usage(dict(answer.get("usage") or {}), messages, message, config.price)
        self._budget.charge(usage)
        return PolicyReply(message, usage)


class BatchFolder:
    """The files of one model.

    Args:
        folder: made if it is not there.
        model: whose requests it holds.
        gather_s: see ``BatchConfig``.

    Raises:
        ConfigError: if the folder is another model's, or can't be read.
    """

    def __init__(self, folder: Path, model: str, gather_s: float) -> None:
        self._folder, self._model, self._gather_s = folder, model, gather_s
        self._lock = Lock()
        self._asked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._faults: dict[str, str] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._new: list[_Request] = []
        self._last_new = self._looked = float("-inf")
        self._read: dict[Path, tuple[int, int]] = {}
        self._known: set[Path] = set()
        try:
            for name in (REQUESTS, ANSWERS):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._learn()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the batch folder {str(folder)!r} can't be used: {error}") from error

    def ask(
        self,
        key: str,
        body: Mapping[str, Any],
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
    ) -> dict[str, Any]:
        """The completion that answers a request, once it is there.

        Raises:
            PolicyError: if its answer is an error.
            CancelledPolicyError, DeadlineExceededError: as a policy has them.
        """
        with self._lock:
            self._look()
            before = self._failed[key]
            if key not in self._answers and self._asked[key] <= before:
                self._asked[key] += 1
                self._new.append(_Request(custom_id=key, body=dict(body)))
                self._last_new = time.monotonic()
        while True:
            with self._lock:
                now = time.monotonic()
                if self._new and now - self._last_new >= self._gather_s:
                    self._write()
                if now - self._looked >= _LOOK_S:
                    self._look()
                if key in self._answers:
                    return self._answers[key]
                if self._failed[key] > before:
                    raise PolicyError(
                        f"the batch {str(self._folder)!r} gave no reply: {self._faults[key]}",
                        "run again: what failed is asked once more",
                    )
            if cancel is not None and cancel.is_set():
                raise CancelledPolicyError("cancelled while a batch was waited for")
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceededError("no answer of the batch came in time")
            time.sleep(_LOOK_S / 2)

    def _write(self) -> None:
        """Write the new requests as one file, whole from the moment on that it is there."""
        folder = self._folder / REQUESTS
        lines = "".join(one.model_dump_json() + "\n" for one in self._new)
        unfinished = folder / f".{uuid4().hex}"
        unfinished.write_text(lines, "utf-8")
        number = len(list(folder.glob("*.jsonl")))
        while True:
            number += 1
            path = folder / f"{number:04}.jsonl"
            try:
                path.hardlink_to(unfinished)  # unlike a rename, never over another process's
            except FileExistsError:
                continue
            break
        unfinished.unlink()
        self._known.add(path)
        logger.warning(
            "%d new requests in %s; answers are awaited in %s",
            len(self._new), path, self._folder / ANSWERS,
        )  # fmt: skip
        self._new = []

    def _learn(self) -> None:
        """Take in requests that are in the folder: of an earlier run, or of another process."""
        for path in sorted((self._folder / REQUESTS).glob("*.jsonl")):
            if path not in self._known:
                self._known.add(path)
                self._take_requests(path)

    def _take_requests(self, path: Path) -> None:
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                request = _Request.model_validate_json(text)
            except ValidationError as error:
                raise ConfigError(
                    f"line {number} of {str(path)!r} is not a request: {fault(error)}",
                    "remove the line, or take another folder",
                ) from None
            if request.body.get("model") != self._model:
                raise ConfigError(
                    f"{str(self._folder)!r} holds requests to another model than {self._model!r}, "
                    f"{str(request.body.get('model'))[:80]!r}",
                    "take a folder for each model",
                )
            self._asked[request.custom_id] += 1

    def _look(self) -> None:
        """Take in whole lines that came since the last look."""
        self._looked = time.monotonic()
        for path in sorted((self._folder / ANSWERS).glob("*.jsonl")):
            for number, line in self._new_lines(path):
                self._take_answer(line, f"line {number} of {str(path)!r}")

    def _new_lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """Lines of a file that were not read before; the last one may still be being written."""
        start, number = self._read.get(path, (0, 0))
        size = path.stat().st_size
        if size == start:
            return
        if size < start:
            logger.warning("%s is shorter than it was: it is read again", path)
            start = number = 0
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n") and not _is_json(line):
                    break
                start, number = start + len(line), number + 1
                self._read[path] = start, number
                if line.strip():
                    yield number, line

    def _take_answer(self, line: bytes, place: str) -> None:
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"it has {len(line)} bytes, {MAX_LINE_BYTES} are the most")
            answer = _Answer.model_validate_json(line)
        except ValidationError as error:
            logger.warning("%s is no answer and left out: %s", place, fault(error))
            return
        except ValueError as error:
            logger.warning("%s is no answer and left out: %s", place, error)
            return
        key = answer.custom_id
        if key not in self._asked:
            self._learn()
        if key not in self._asked:
            logger.warning("%s answers what nobody asked here, %.80r", place, key)
            return
        try:
            body = _completion(answer)
        except (TransientError, PolicyError) as error:
            self._failed[key] += 1
            self._faults[key] = str(error)
            logger.warning("%s is an error: %s", place, error)
            return
        known = self._answers.setdefault(key, body)
        if known != body:
            logger.warning("%s is a second answer to %s and left out", place, key)


def _completion(answer: _Answer) -> dict[str, Any]:
    """The completion in an answer.

    Raises:
        PolicyError, TransientError: if there is none.
    """
    response = answer.response
    if answer.error is not None or response is None or response.status_code != 200:
        status = f"status {response.status_code}, " if response else ""
        told = json.dumps(answer.error or (response and response.body))
        raise PolicyError(f"{status}{told[:300]}")
    if not isinstance(response.body, dict):
        raise PolicyError("the response has no body")
    body = dict(checked(response.body))
    first_choice(body)
    return body


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
