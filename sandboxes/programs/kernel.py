"""A Jupyter kernel with its client, for the code interpreter; runs inside a sandbox.

Three processes: the *nursery* imports the libraries, keeps one thread and forks the other two; the *kernel*
is ipykernel; the *client* speaks Jupyter's protocol with it over ipc sockets, and with the host in lines of
JSON: a cell comes on stdin, what it gave goes to stdout. All three are at the mercy of the code that runs:
the host believes nothing that comes from here, and grades elsewhere.

Usage: kernel.py LIBRARIES FOLDER PRELOAD..., the folders of packages and of sockets, and modules.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import sys
import time
from collections import deque
from functools import partial
from typing import Any

Message = dict[str, Any]
MAX_OUTPUT = 32_768
"""Characters of a cell's output that are shown: its beginning and its end."""
TAIL = 8_192
MAX_ELSEWHERE = 1_000
"""Characters shown of what earlier cells go on printing."""
MAX_MESSAGE = 8 << 20
"""Bytes of a message; a larger one costs its output."""
QUEUED = 20_000
"""Messages that may wait on either side."""
QUIET_S = 10.0
"""A cell that has replied is waited for as long as its output comes in shorter gaps, up to its own limit."""
PORTS = {"shell": 1, "iopub": 2, "control": 4}
INTERRUPT_S, SIGNAL_S = 2.0, 1.0
"""Waits after Jupyter's interrupt and after SIGINT: each stops what the other can't."""
START_S = 60.0
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
BARE = re.compile(r"<[\w.]+( object)?( at 0x[0-9a-f]+)?>")
"""The text of something that has no text of its own."""
FONTS = '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig/>'
"""An empty Fontconfig configuration; without one, Fontconfig prints an error with the first plot."""


def main() -> None:
    """Import, fork the client, and then a kernel whenever it asks for one."""
    libraries, folder, *preload = sys.argv[1:]
    sys.path.append(libraries)
    os.environ.update(
        MPLBACKEND="module://matplotlib_inline.backend_inline", IPYTHONDIR=f"{folder}/ipython"
    )
    os.environ.update(PYDEVD_DISABLE_FILE_VALIDATION="1", MPLCONFIGDIR=f"{folder}/matplotlib")
    with open(f"{folder}/fonts.conf", "w") as file:
        file.write(FONTS)
    os.environ["FONTCONFIG_FILE"] = f"{folder}/fonts.conf"
    for name in ["ipykernel.kernelapp", "jupyter_client.session", "zmq", "site", *preload]:
        __import__(name)
    sys.modules["site"].sethelper()  # this runs without site, which defines help()
    gc.collect()
    gc.freeze()
    ask_read, ask_write = os.pipe()
    tell_read, tell_write = os.pipe()
    if os.fork() == 0:
        os.close(ask_read)
        os.close(tell_write)
        os._exit(client(folder, ask_write, tell_read))
    os.close(ask_write)
    os.close(tell_read)
    with open(os.devnull, "r+b", buffering=0) as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nursery(ask_read, tell_write)


def nursery(asked: int, told: int) -> None:
    """Fork a kernel for each connection file that is asked for; tell its process and, later, its end."""
    import select

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    alive = set[int]()
    rest = b""
    while True:
        ready, _, _ = select.select([asked, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        for pid in list(alive):
            if os.waitpid(pid, os.WNOHANG)[0]:
                alive.discard(pid)
                os.write(told, b"ended %d\n" % pid)
        if asked not in ready:
            continue
        part = os.read(asked, 4096)
        if not part:
            os._exit(0)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for file in (asked, told, woken, wake):
                    os.close(file)
                kernel(line.decode())
                os._exit(0)
            alive.add(pid)
            os.write(told, b"started %d\n" % pid)


def kernel(connection: str) -> None:
    """Be a kernel."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    import threading

    import zmq
    from ipykernel.kernelapp import launch_new_instance

    class RoomyContext(zmq.Context[Any]):
        """A context whose sockets queue more than the default 1,000 messages."""

        def socket(self, *args: Any, **kwargs: Any) -> Any:
            """A socket."""
            made = super().socket(*args, **kwargs)
            made.set_hwm(QUEUED)
            return made

    zmq.Context = RoomyContext  # type: ignore[misc]  # the application makes one of its own
    threading.Thread.start = started_here(threading.Thread.start)  # type: ignore[method-assign]
    flags = [
        "--HistoryManager.enabled=False",
        "--InteractiveShell.colors=NoColor",
        "--log-level=50",
    ]
    launch_new_instance(["-f", connection, *flags])


def started_here(start: Any) -> Any:
    """``Thread.start``, whose thread prints for the cell that started it, and not for the one that runs."""
    from contextvars import copy_context

    def wrapped(thread: Any) -> None:
        thread.run = partial(copy_context().run, thread.run)
        start(thread)

    return wrapped


def client(folder: str, ask: int, told: int) -> int:
    """Serve the host's requests until its end; a line tells that the first kernel is up."""
    wire = Client(folder, ask, told)
    wire.start()
    answer({"ready": True})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer({"id": request["id"], **wire.run(request["code"], request["limit_s"])})
    return 0


def answer(value: Message) -> None:
    """One line of JSON."""
    view = memoryview(json.dumps(value).encode() + b"\n")
    while view:
        view = view[os.write(1, view) :]


class Client:
    """The client of one kernel after another."""

    def __init__(self, folder: str, ask: int, told: int) -> None:
        import zmq

        self.folder, self.ask, self.told = folder, ask, told
        self.context = zmq.Context()
        self.sockets: dict[str, Any] = {}
        self.count, self.pid, self.rest = 0, 0, b""

    def start(self) -> None:
        """Start a kernel in place of the one before."""
        from jupyter_client.session import Session

        self.count += 1
        key = os.urandom(16).hex()
        place = f"{self.folder}/{self.count}"
        ports = {
            f"{name}_port": i
            for i, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)
        }
        info = {
            "transport": "ipc",
            "ip": place,
            "key": key,
            "signature_scheme": "hmac-sha256",
            **ports,
        }
        with open(f"{place}.json", "w") as file:
            json.dump(info, file)
        os.write(self.ask, f"{place}.json\n".encode())
        self.pid = self.word("started")
        until = time.monotonic() + START_S
        while not os.path.exists(f"{place}-5"):
            if time.monotonic() > until:
                raise TimeoutError("the kernel did not start")
            time.sleep(0.005)
        self.place, self.session = place, Session(key=key.encode(), username="agent")
        for name in PORTS:
            self.connect(name)
        self.settle()

    def connect(self, name: str) -> None:
        """Open a socket, in place of the one before."""
        import zmq

        if name in self.sockets:
            self.sockets[name].close(0)
        socket = self.context.socket(zmq.SUB if name == "iopub" else zmq.DEALER)
        socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE)
        socket.set(zmq.RCVHWM, QUEUED)
        if name == "iopub":
            socket.set(zmq.SUBSCRIBE, b"")
        socket.connect(f"ipc://{self.place}-{PORTS[name]}")
        self.sockets[name] = socket
        self.poller = zmq.Poller()
        self.poller.register(self.told, zmq.POLLIN)
        for one in set(self.sockets) - {"control"}:
            self.poller.register(self.sockets[one], zmq.POLLIN)

    def settle(self) -> None:
        """Wait until output comes through: the first of all may come before the subscription holds."""
        for _ in range(200):
            self.send("shell", "kernel_info_request", {})
            if any(name == "iopub" for name, _ in self.messages(0.1)):
                return
        raise TimeoutError("the kernel does not answer")

    def word(self, wanted: str) -> int:
        """The number in the nursery's next line of a kind."""
        while True:
            while b"\n" in self.rest:
                line, _, self.rest = self.rest.partition(b"\n")
                if line.startswith(wanted.encode()):
                    return int(line.split()[1])
            part = os.read(self.told, 4096)
            if not part:
                raise EOFError("the nursery is gone")
            self.rest += part

    def send(self, name: str, kind: str, content: Message) -> str:
        """Send a message; its id."""
        message = self.session.msg(kind, content)
        self.session.send(self.sockets[name], message)
        return str(message["header"]["msg_id"])

    def messages(self, wait_s: float, mine: str = "") -> list[tuple[str, Message]]:
        """What has come on any socket, as (socket, message); the end of the kernel as ("ended", {}).

        Of what was printed for another cell than ``mine`` the content is not read: ("elsewhere", it).
        """
        import zmq

        found: list[tuple[str, Message]] = []
        names = {socket: name for name, socket in self.sockets.items()}
        for socket, _ in self.poller.poll(max(0, int(wait_s * 1000))):
            if socket == self.told:
                while self.word("ended") != self.pid:
                    pass
                found.append(("ended", {}))
                continue
            for _ in range(1000):
                try:
                    parts = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                try:
                    frames: list[Any] = self.session.feed_identities(parts)[1]
                    header, parent, _, content = (bytes(frame) for frame in frames[1:5])
                    if names[socket] != "iopub" or mine.encode() in parent:
                        found.append((names[socket], self.session.deserialize(frames)))
                    elif b'"stream"' in header:
                        found.append(("elsewhere", {"content": content}))
                except (ValueError, TypeError, LookupError):  # the code that runs forged it
                    continue
        return found

    def run(self, code: str, limit_s: float) -> Message:
        """Run a cell; its status is ok, error, timeout, or lost: with all variables."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        mine = self.send(
            "shell", "execute_request", {**content, "allow_stdin": False, "stop_on_error": True}
        )
        cell = Shown()
        stages = [(limit_s, self.interrupt), (INTERRUPT_S, self.terminate), (SIGNAL_S, self.kill)]
        last, act = time.monotonic() + stages[0][0], 0
        until = last
        status, ended = "", False
        while not (status and (cell.idle or cell.exits)):
            for name, message in self.messages(min(0.2, max(0.0, until - time.monotonic())), mine):
                if name == "ended":
                    ended = True
                elif name == "elsewhere":
                    cell.elsewhere.append(message["content"])
                elif message.get("parent_header", {}).get("msg_id") != mine:
                    continue
                elif name == "iopub":
                    cell.take(message)
                elif message["msg_type"] == "execute_reply":
                    status = cell.reply(message["content"])
                if name != "elsewhere" and status:
                    until = time.monotonic() + QUIET_S
                    until = until if act else min(until, last)
            if ended:
                self.start()
                return cell.shown("lost")
            if time.monotonic() < until:
                continue
            if status:  # its last word was lost: too much output
                cell.add("\n[some output was lost: it was too much at once]")
                self.connect("iopub")  # a socket that refused a message never recovers
                self.settle()
                break
            stages[act][1]()
            act += 1
            until = time.monotonic() + (stages[act][0] if act < len(stages) else START_S)
        if cell.exits and not act:  # Jupyter ends the kernel a moment later
            with contextlib.suppress(ProcessLookupError):
                self.kill()
            while self.word("ended") != self.pid:
                pass
            self.start()
            return cell.shown("lost")
        return cell.shown("timeout" if act else status)

    def interrupt(self) -> None:
        """Ask the kernel to interrupt the cell."""
        self.send("control", "interrupt_request", {})

    def terminate(self) -> None:
        """Interrupt it as a terminal would."""
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End the kernel and what it started in its session."""
        os.killpg(self.pid, signal.SIGKILL)


class Shown:
    """What a cell gives, in order, as a notebook would show it: the text that stands there at last.

    Where there is much, what came early is fixed; only what came lately can be changed by updates,
    carriage returns and backspaces.
    """

    def __init__(self) -> None:
        self.images, self.idle, self.exits = 0, False, False
        self.elsewhere: deque[bytes] = deque(maxlen=256)
        """What was printed for earlier cells, at the end."""
        self.clear()

    def clear(self) -> None:
        """Nothing is shown any more."""
        self.head, self.tail, self.size = "", "", 0
        self.lately: list[list[str]] = []
        """Pairs: the display's id (empty for printed text), and its text."""
        self.room = 2 * MAX_OUTPUT
        """Characters that may still be changed."""
        self.clears = False
        """Whether the next output replaces everything shown so far."""

    def add(self, text: str, display: str = "") -> None:
        """More output."""
        if self.clears:
            self.clear()
        text = ANSI.sub("", text)
        if display or not self.lately or self.lately[-1][0]:
            self.lately.append([display, ""])
        self.change(self.lately[-1], text if display else printed(self.lately[-1][1], text))
        while self.room < 0:
            text = self.lately.pop(0)[1]
            self.room += len(text)
            self.fix(text)

    def change(self, one: list[str], text: str) -> None:
        """Another text in a place."""
        self.room += len(one[1]) - len(text)
        one[1] = text

    def fix(self, text: str) -> None:
        """Text that nothing can change any more: of all of it, the beginning and the end are kept."""
        self.size += len(text)
        room = MAX_OUTPUT - TAIL - len(self.head)
        self.head += text[: max(0, room)]
        self.tail = (self.tail + text[max(0, room) :])[-TAIL:]

    def take(self, message: Message) -> None:
        """A message of the kernel about the cell."""
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.add(content.get("text", ""))
        elif kind in ("execute_result", "display_data"):
            self.data(content)
        elif kind == "update_display_data":
            self.update(content)
        elif kind == "clear_output":
            self.clears = True
            if not content.get("wait"):
                self.clear()
        elif kind == "error":
            self.add("\n".join(content.get("traceback", ())) + "\n")
        elif kind == "status":
            self.idle = content.get("execution_state") == "idle"

    def data(self, content: Message) -> None:
        """Something shown: as text, and pictures counted."""
        data = content.get("data", {})
        self.images += any(kind.startswith("image/") for kind in data)
        if text := as_text(data):
            self.add(text + "\n", str(content.get("transient", {}).get("display_id") or " "))

    def update(self, content: Message) -> None:
        """Something else in the place of a display, wherever it is shown."""
        name = content.get("transient", {}).get("display_id")
        for one in self.lately:
            if name and one[0] == name:
                self.change(one, as_text(content.get("data", {})) + "\n")

    def reply(self, content: Message) -> str:
        """The cell's end: its status."""
        for one in content.get("payload", ()):
            self.exits |= one.get("source") == "ask_exit"
            self.data(one)
        return "ok" if content.get("status") == "ok" else "error"

    def shown(self, status: str) -> Message:
        """What the host is told."""
        for _, text in self.lately:
            self.fix(text.rstrip("\r"))
        if text := printed("", "".join(map(streamed, self.elsewhere))):
            more = "... " if len(text) > MAX_ELSEWHERE else ""
            text = f"{more}{text[-MAX_ELSEWHERE:]}"
            self.fix(f"\n[printed meanwhile by what an earlier cell started:]\n{text}")
        left_out = self.size - len(self.head) - len(self.tail)
        middle = f"\n[... {left_out} characters left out ...]\n" if left_out else ""
        return {"status": status, "output": self.head + middle + self.tail, "images": self.images}


def streamed(content: bytes) -> str:
    """What a message printed; nothing, if the code that runs forged it."""
    try:
        return ANSI.sub("", str(json.loads(content)["text"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""


def printed(before: str, text: str) -> str:
    """Text after more was printed.

    A carriage return goes back to the line's beginning, over which the rest is written, and a backspace one
    character back.
    """
    if not ("\r" in text or "\b" in text or before.endswith("\r")):
        return before + text
    start = before.rfind("\n") + 1
    lines = (before[start:] + text).replace("\r\n", "\n").split("\n")
    return before[:start] + "\n".join(overwritten(line) for line in lines)


def overwritten(line: str) -> str:
    """A line as it looks at last; a carriage return at its end is kept for what is printed next."""
    found: list[str] = []
    at = 0
    for part in re.split(r"([\r\b])", line):
        if part == "\r":
            at = 0
        elif part == "\b":
            at = max(0, at - 1)
        else:
            found[at : at + len(part)] = part
            at += len(part)
    return "".join(found) + "\r" * line.endswith("\r")


def as_text(data: Message) -> str:
    """Something shown, as text: what has none of its own by its Markdown, HTML or LaTeX."""
    plain = str(data.get("text/plain", ""))
    if plain and not BARE.fullmatch(plain):
        return plain
    if "text/markdown" in data:
        return str(data["text/markdown"])
    if "text/html" in data:
        return html_text(str(data["text/html"]))
    return str(data.get("text/latex", plain))


def html_text(source: str) -> str:
    """The words of HTML: a row of a table or a block a line, cells apart."""
    from html.parser import HTMLParser

    class HtmlWords(HTMLParser):
        hidden = 0
        words = ""

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.hidden += tag in ("style", "script")
            if tag in ("td", "th") and not self.words.endswith("\n"):
                self.words += "  "
            elif tag in ("br", "p", "div", "tr", "li", "h1", "h2", "h3", "pre"):
                self.words += "\n"

        def handle_endtag(self, tag: str) -> None:
            self.hidden -= tag in ("style", "script") and self.hidden > 0

        def handle_data(self, data: str) -> None:
            self.words += "" if self.hidden else re.sub(r"\s+", " ", data)

    reader = HtmlWords()
    reader.feed(source)
    reader.close()
    return "\n".join(line.strip() for line in reader.words.split("\n") if line.strip())


if __name__ == "__main__":
    main()
