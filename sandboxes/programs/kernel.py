"""A Jupyter kernel with its client, for the code interpreter; runs inside a sandbox.

Three processes: the *nursery* imports the libraries, keeps one thread and forks the other two; the *kernel*
is ipykernel; the *client* speaks Jupyter's protocol with it over ipc sockets, and with the host in lines of
JSON: a cell comes on stdin, what it gave goes to stdout. All three are at the mercy of the code that runs:
the host believes nothing that comes from here, and grades elsewhere.

Usage: kernel.py LIBRARIES FOLDER PRELOAD..., the folders of packages and of sockets, and modules.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import time
from typing import Any

Message = dict[str, Any]
MAX_OUTPUT = 32_768
"""Characters of a cell's output that are shown: its beginning and its end."""
TAIL = 8_192
MAX_MESSAGE = 8 << 20
"""Bytes of a message; a larger one costs its output."""
PORTS = {"shell": 1, "iopub": 2, "control": 4}
INTERRUPT_S, SIGNAL_S = 2.0, 1.0
"""Waits after Jupyter's interrupt and after SIGINT: each stops what the other can't."""
START_S = 60.0
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def main() -> None:
    """Import, fork the client, and then a kernel whenever it asks for one."""
    libraries, folder, *preload = sys.argv[1:]
    sys.path.append(libraries)
    os.environ.update(
        MPLBACKEND="module://matplotlib_inline.backend_inline", IPYTHONDIR="/tmp/ipython"
    )
    os.environ.update(PYDEVD_DISABLE_FILE_VALIDATION="1", MPLCONFIGDIR="/tmp/matplotlib")
    for name in ["ipykernel.kernelapp", "jupyter_client.session", "zmq", *preload]:
        __import__(name)
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
    from ipykernel.kernelapp import launch_new_instance

    flags = [
        "--HistoryManager.enabled=False",
        "--InteractiveShell.colors=NoColor",
        "--log-level=50",
    ]
    launch_new_instance(["-f", connection, *flags])


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
        socket.set(zmq.RCVHWM, 200)
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

    def messages(self, wait_s: float) -> list[tuple[str, Message]]:
        """What has come on any socket, as (socket, message); the end of the kernel as ("ended", {})."""
        import zmq

        found: list[tuple[str, Message]] = []
        names = {socket: name for name, socket in self.sockets.items()}
        for socket, _ in self.poller.poll(max(0, int(wait_s * 1000))):
            if socket == self.told:
                while self.word("ended") != self.pid:
                    pass
                found.append(("ended", {}))
                continue
            for _ in range(100):
                try:
                    _, message = self.session.recv(socket, zmq.NOBLOCK)
                except zmq.Again:
                    break
                except (ValueError, TypeError, LookupError):  # the code that runs forged it
                    continue
                if message is None:
                    break
                found.append((names[socket], message))
        return found

    def run(self, code: str, limit_s: float) -> Message:
        """Run a cell; its status is ok, error, timeout, or lost: with all variables."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        mine = self.send(
            "shell", "execute_request", {**content, "allow_stdin": False, "stop_on_error": True}
        )
        cell = Shown()
        stages = [(limit_s, self.interrupt), (INTERRUPT_S, self.terminate), (SIGNAL_S, self.kill)]
        until, act = time.monotonic() + stages[0][0], 0
        status, ended = "", False
        while not (status and cell.idle):
            for name, message in self.messages(min(0.2, max(0.0, until - time.monotonic()))):
                if name == "ended":
                    ended = True
                elif message.get("parent_header", {}).get("msg_id") != mine:
                    continue
                elif name == "iopub":
                    cell.take(message)
                elif message["msg_type"] == "execute_reply":
                    status = cell.reply(message["content"])
                    until = (
                        min(until, time.monotonic() + 1.0) if act == 0 else time.monotonic() + 1.0
                    )
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
    """What a cell gives, in order."""

    def __init__(self) -> None:
        self.head, self.tail, self.size, self.images, self.idle = "", "", 0, 0, False

    def add(self, text: str) -> None:
        """More output."""
        text = ANSI.sub("", text)
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
            self.data(content.get("data", {}))
        elif kind == "error":
            self.add("\n".join(content.get("traceback", ())) + "\n")
        elif kind == "status":
            self.idle = content.get("execution_state") == "idle"

    def data(self, data: Message) -> None:
        """Something shown: as text, and pictures counted."""
        self.images += any(kind.startswith("image/") for kind in data)
        if "text/plain" in data:
            self.add(data["text/plain"] + "\n")

    def reply(self, content: Message) -> str:
        """The cell's end: its status."""
        for one in content.get("payload", ()):
            self.data(one.get("data", {}))
        return "ok" if content.get("status") == "ok" else "error"

    def shown(self, status: str) -> Message:
        """What the host is told."""
        left_out = self.size - len(self.head) - len(self.tail)
        middle = f"\n[... {left_out} characters left out ...]\n" if left_out else ""
        return {"status": status, "output": self.head + middle + self.tail, "images": self.images}


if __name__ == "__main__":
    main()
