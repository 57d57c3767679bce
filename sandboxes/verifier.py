"""Run verifiers: any source, many submissions in one forked worker, faults told from verdicts."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue

from envgen.core.errors import SandboxError, SandboxTimeoutError, WorkerDiedError
from envgen.sandboxes.bwrap import Layout
from envgen.sandboxes.channel import Channel
from envgen.sandboxes.folders import PrivateFolder, overwrite
from envgen.sandboxes.frames import require_reply
from envgen.sandboxes.programs import toolbox, wire
from envgen.sandboxes.runtime import INSIDE
from envgen.sandboxes.zygote import WorkerBackend, Zygote, choose

logger = logging.getLogger(__name__)

AHEAD, AHEAD_BYTES = 4, 32_768
"""Inputs that wait in a worker while it judges one, and their size: well below a socket's buffer."""
FAILURES = (
    SandboxTimeoutError, WorkerDiedError, ValueError, TypeError, LookupError, RecursionError,
)  # fmt: skip
"""What sending to a worker or reading from it may raise."""


class VerifierInput(NamedTuple):
    """One submission to judge. A database is a file, or the bytes of one that is needed this once."""

    answer: JsonValue
    initial: Path | bytes
    final: Path | bytes


class VerifierReply(NamedTuple):
    """A verdict or a fault: exactly one is not None."""

    broken: tuple[str, ...] | None
    """Ids of the broken rules; empty when the submission passes."""
    fault: str | None
    """What is wrong with the verifier itself."""


Judged = tuple[VerifierInput, tuple[str, ...] | None]
"""An input and a verifier's verdict of it; None for a fault."""


class _Pair(NamedTuple):
    """File names for databases given as bytes."""

    initial: str
    final: str


class VerifierHost(Protocol):
    """Judges submissions with the verifiers it is given. Thread-safe."""

    def verify_many(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float = 10
    ) -> list[VerifierReply]:
        """One reply per input, in order; ``timeout_s`` bounds each input.

        Raises SandboxError when the sandbox fails or a database can't be copied into it.
        """

    def close(self) -> None:
        """End everything."""


def verifier_host(*, backend: WorkerBackend = "auto", trusted: bool = False) -> VerifierHost:
    """A host for verifiers; databases reach them as files on a read-only mount.

    ``inline`` runs trusted verifiers in this very process, without a limit of time. Raises
    SandboxUnavailableError when no backend fits.
    """
    chosen = choose(backend, trusted)
    if chosen == "inline":
        return InlineVerifierHost()
    return WorkerVerifierHost(chosen)


class WorkerVerifierHost:
    """Verifiers in a generic zygote."""

    SOURCES = 32
    """Sources kept compiled; fewer than the zygote keeps."""
    DATABASES = 256
    """Databases kept for the next submission, as long as they take up little room."""
    ROOM_BYTES = 512 << 20
    AT_LEAST = 64
    """So many are kept in any case: other threads may be using them."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._lock = threading.Lock()
        self._folder = PrivateFolder()
        self._scratch = self._folder.shown("scratch")
        self._inside = Path(INSIDE) / "scratch" if backend != "process" else self._scratch
        self._names = itertools.count()
        self._known: dict[tuple[str, int, int, int, int], str] = {}
        self._sent: set[str] = set()
        self._pairs = itertools.count()
        self._free: list[_Pair] = []
        self._closed = False
        try:
            self._zygote = self._start()
        except BaseException:
            self._folder.remove()
            raise

    def _start(self) -> Zygote:
        self._sent.clear()
        layout = Layout(scratch=self._scratch)
        return Zygote("verifier", backend=self.backend, layout=layout)

    def verify_many(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float = 10,
        *, bounded: bool = False,
    ) -> list[VerifierReply]:  # fmt: skip
        """Judge all inputs in one worker.

        An input that kills it, or faults after others have been judged in it, is judged again as
        the first of a fresh one: only a fault there is its own. ``bounded`` breaks queries off after as many
        steps as ``told_apart`` does, so that both say the same on every machine.
        """
        replies: list[VerifierReply] = []
        while len(replies) < len(inputs):
            done, death = self._batch(source, inputs[len(replies) :], timeout_s, bounded)
            replies += done
            if death is not None and not done:
                replies.append(VerifierReply(None, death))
        return replies

    def _batch(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float, bounded: bool
    ) -> tuple[list[VerifierReply], str | None]:
        """Replies until the worker dies or a later input faults, and how it died."""
        replies: list[VerifierReply] = []
        zygote, number, channel = self._fork(source, timeout_s, bounded)
        pairs = [self._pair() for _ in range(min(AHEAD, len(inputs)))]
        asked = self._asked(channel, inputs, pairs)
        try:
            for problem in asked:
                reply = problem or _answered(channel)
                if isinstance(reply, str):
                    return replies, reply
                if reply.fault is not None and replies:
                    return replies, None
                replies.append(reply)
        finally:
            asked.close()
            channel.close()
            zygote.kill(number)
            with self._lock:
                self._free += pairs
        return replies, None

    def _pair(self) -> _Pair:
        """Names of two files that no other batch uses."""
        with self._lock:
            if self._free:
                return self._free.pop()
            number = next(self._pairs)
            return _Pair(f"bytes-{number}-initial.sqlite", f"bytes-{number}-final.sqlite")

    def _asked(
        self, channel: Channel, inputs: Sequence[VerifierInput], pairs: Sequence[_Pair]
    ) -> Generator[str]:
        """Send the inputs, some ahead of the replies, and yield when the next reply is due.

        What is yielded is "" or why that input could not be sent. So little is ahead that no send waits
        for a worker that waits for us to read.
        """
        sizes: list[int] = []
        frame, problem = b"", ""
        for due in range(len(inputs)):
            while not problem and len(sizes) < min(due + len(pairs), len(inputs)):
                number = len(sizes)
                try:
                    frame = frame or self._frame(inputs[number], pairs[number % len(pairs)])
                    if number > due and sum(sizes[due:]) + len(frame) > AHEAD_BYTES:
                        break
                    channel.write(frame)
                except FAILURES as error:
                    problem = _explained(error)
                else:
                    sizes.append(len(frame))
                    frame = b""
            yield "" if due < len(sizes) else problem

    def _frame(self, item: VerifierInput, pair: _Pair) -> bytes:
        """An input as it is sent, its databases where the worker can read them."""
        return wire.pack(self._shown(item, pair))

    def _shown(self, item: VerifierInput, pair: _Pair) -> list[JsonValue]:
        """An input with its databases where the worker can read them."""
        initial = self._known_as(item.initial, pair.initial)
        same = item.final is item.initial or item.final == item.initial
        final = initial if same else self._known_as(item.final, pair.final)
        return [item.answer, str(self._inside / initial), str(self._inside / final)]

    def told_apart(
        self, versions: Sequence[str], judged: Sequence[Judged], timeout_s: float = 600
    ) -> list[bool | None]:
        """Whether each version of a verifier gives another verdict somewhere; None: not known.

        One worker judges them all and remembers what each query found (``programs/recall.py``), so a version
        costs what it changed. This is for verifiers that do nothing but ask fixed databases for rows.

        Args:
            versions: sources; the first is the verifier itself. Where the worker does not find its verdicts
                again, nothing is known of the others.
            judged: inputs whose databases are files, ``AT_LEAST`` at most, with the verdicts of the first.
            timeout_s: for each version.
        """
        request = {"probes": len(judged), "cpu_s": 3600}
        zygote, number, channel = self._forked(timeout_s, request)
        apart: list[bool | None] = []
        try:
            for item, verdict in judged:
                shown = self._shown(item, _Pair("", ""))
                channel.send([*shown, None if verdict is None else sorted(verdict)])
            for version in versions:
                channel.send(version)
                apart.append(require_reply(channel.recv())[1] is True)
                if apart == [True]:
                    break
        except FAILURES as error:
            logger.info("versions of a verifier are judged one by one: %s", _explained(error))
        finally:
            channel.close()
            zygote.kill(number)
        known = apart[1:] if apart[:1] == [False] else []
        return [*known, *[None] * (len(versions) - 1 - len(known))]

    def _fork(self, source: str, timeout_s: float, bounded: bool) -> tuple[Zygote, int, Channel]:
        """A worker that judges by one source."""
        key = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()
        request = {"key": key, "bounded": bounded}
        if bounded:
            request["cpu_s"] = 3600
        return self._forked(timeout_s, request, source)

    def _forked(
        self, timeout_s: float, request: Mapping[str, Any], source: str | None = None
    ) -> tuple[Zygote, int, Channel]:
        for attempt in (1, 2):
            with self._lock:
                if self._closed:
                    raise SandboxError("the verifier host is closed")
                try:
                    if not self._zygote.alive:
                        raise WorkerDiedError("the zygote is gone")
                    if source is not None and request["key"] not in self._sent:
                        if len(self._sent) >= self.SOURCES:
                            self._sent.clear()
                        self._zygote.tell({"op": "source", **request, "source": source})
                        self._sent.add(request["key"])
                    number, channel = self._zygote.fork(timeout_s, request)
                    return self._zygote, number, channel
                except WorkerDiedError:
                    self._zygote.close()
                    if attempt == 2:
                        raise
                    self._zygote = self._start()
        raise AssertionError("unreachable")

    def _known_as(self, database: Path | bytes, name: str) -> str:
        if not isinstance(database, bytes):
            return self._shared(Path(database))
        target = self._scratch / name
        try:
            overwrite(target, database)
            os.chmod(target, 0o644)
        except OSError as error:
            raise SandboxError(f"can't hand a database to the verifier: {error}") from error
        return name

    def _shared(self, path: Path) -> str:
        """Copy a database once; the copy is known by its path, size and times."""
        try:
            info = path.stat()
        except OSError as error:
            raise SandboxError(f"can't hand {path} to the verifier: {error}") from error
        key = (str(path), info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        with self._lock:
            known = self._known.pop(key, None)
            if known is None:
                known = f"database-{next(self._names)}.sqlite"
                self._copy(path, known)
            self._known[key] = known  # the latest used is the last to go
            self._make_room()
        return known

    def _make_room(self) -> None:
        """Delete the copies that were used longest ago, once there are many or they are large."""
        sizes = sum(key[2] for key in self._known)
        while len(self._known) > self.AT_LEAST:
            if len(self._known) <= self.DATABASES and sizes <= self.ROOM_BYTES:
                return
            key = next(iter(self._known))
            (self._scratch / self._known.pop(key)).unlink(missing_ok=True)
            sizes -= key[2]

    def _copy(self, path: Path, name: str) -> None:
        target = self._scratch / name
        try:
            shutil.copyfile(path, target)
            os.chmod(target, 0o444)
        except OSError as error:
            target.unlink(missing_ok=True)
            raise SandboxError(f"can't hand {path} to the verifier: {error}") from error

    def close(self) -> None:
        """End the zygote and delete the scratch folder."""
        with self._lock:
            self._closed = True
            self._zygote.close()
        self._folder.remove()


def _answered(channel: Channel) -> VerifierReply | str:
    """The next reply, or how the worker ended."""
    try:
        return read_reply(channel.recv())
    except FAILURES as error:
        return _explained(error)


def _explained(error: Exception) -> str:
    if isinstance(error, SandboxTimeoutError | WorkerDiedError):
        return str(error)
    return f"the worker answered nonsense: {error}"


def read_reply(reply: Any) -> VerifierReply:
    """Read the worker's answer. Raises ValueError when it means nothing."""
    kind, value, *_ = require_reply(reply)
    if kind == 1:
        raise ValueError("the verdict is missing")
    if kind == 2:
        return VerifierReply(None, value[:4000])
    if not isinstance(value, list) or not all(isinstance(rule, str) for rule in value):
        raise ValueError("the rules must be a list")
    return VerifierReply(tuple(value), None)


class InlineVerifierHost:
    """Trusted verifiers in this process: nothing bounds their time."""

    SOURCES = 256
    """Sources kept compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, Any] = {}
        self._closed = False

    def verify_many(
        self, source: str, inputs: Sequence[VerifierInput], timeout_s: float = 10
    ) -> list[VerifierReply]:
        """Judge all inputs, each in a fresh namespace; ``timeout_s`` is not kept."""
        if self._closed:
            raise SandboxError("the verifier host is closed")
        code = self._compiled(source)
        return [_judged(code, item) for item in inputs]

    def _compiled(self, source: str) -> Any:
        with self._lock:
            if source not in self._codes:
                while len(self._codes) >= self.SOURCES:
                    self._codes.pop(next(iter(self._codes)))
                self._codes[source] = toolbox.compiled_verifier(source)
            return self._codes[source]

    def close(self) -> None:
        """Refuse what comes after."""
        self._closed = True


def _judged(code: Any, item: VerifierInput) -> VerifierReply:
    """One verdict; the answer goes through JSON, as on the way to a worker."""
    try:
        answer = wire.decode(wire.encode(item.answer))
    except (TypeError, ValueError, RecursionError) as error:
        return VerifierReply(None, f"the answer is not valid JSON: {error}")
    with ExitStack() as stack:
        initial = _file(item.initial, stack)
        final = initial if item.final is item.initial else _file(item.final, stack)
        return read_reply(toolbox.verdict(code, answer, initial, final))


def _file(database: Path | bytes, stack: ExitStack) -> str:
    """The path of a database; bytes become a file for as long as ``stack`` lasts."""
    if isinstance(database, bytes):
        file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="envgen-", suffix=".sqlite"))
        file.write(database)
        file.flush()
        return file.name
    if not database.is_file():
        raise SandboxError(f"no such database: {database}")
    return str(database)
