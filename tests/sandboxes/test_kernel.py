"""The code interpreter's kernel: what is kept, what is told, and what hostile cells can't do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from envgen.core.errors import SandboxUnavailableError
from envgen.sandboxes.kernel import Kernel, SpareKernels, library_mounts
from envgen.sandboxes.zygote import WorkerBackend


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_a_kernel_dies_and_is_replaced_in_either_place(backend: WorkerBackend) -> None:
    with Kernel(backend) as kernel:
        assert kernel.run("x = 6 * 7\nx").output == "42\n"
        assert kernel.run("import time; time.sleep(60)", 0.5).status == "timeout"
        assert kernel.run("x").output == "42\n"
        assert kernel.run("import os, signal; os.kill(-1, signal.SIGKILL)", 10).status == "lost"
        assert "NameError" in kernel.run("x").output


@pytest.fixture(scope="module", params=[pytest.param("bubblewrap", marks=pytest.mark.bwrap)])
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel(request.param) as one:
        yield one


def test_variables_stay_and_everything_shown_is_told_in_order(kernel: Kernel) -> None:
    assert kernel.run("x = 6 * 7\nx").output == "42\n"
    cell = kernel.run("print('first'); import sys; print('second', file=sys.stderr); x + 1")
    assert (cell.status, cell.output) == ("ok", "first\nsecond\n43\n")
    shown = kernel.run("from IPython.display import display; display({'a': 1})\nlen?")
    assert shown.output.startswith("{'a': 1}\n")
    assert "Return the number of items" in shown.output
    assert kernel.run("!echo from the shell").output.split() == ["from", "the", "shell"]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("h = display('before', display_id=True); print('x'); h.update('AFTER')", "'AFTER'\nx\n"),
        ("for i in range(3):\n    clear_output(wait=True)\n    print(i)", "2\n"),
        ("print('gone'); clear_output(); print('stays')", "stays\n"),
        ("print('stays'); clear_output(wait=True)", "stays\n"),
        ("for i in range(3001): print(f'\\r{i:4} of 3000', end='')\nprint()", "3000 of 3000\n"),
        ("print('abcdef\\rXY'); print('one\\r\\ntwo'); print('a\\bb')", "XYcdef\none\ntwo\nb\n"),
        ("display(Markdown('**42**'))", "**42**\n"),
        ("display(HTML('<style>p{}</style><p>so <b>it</b> is</p><p>&lt;3'))", "so it is\n<3\n"),
        ("import pandas; pandas.DataFrame({'a': [1]})", "   a\n0  1\n"),
        ("class A: pass\nA", "__main__.A\n"),
        ("print('\\x1b[31mred\\x1b[0m')", "red\n"),
        ("help(len)", "Help on built-in function len in module builtins:\n\nlen(obj, /)\n"),
    ],
)
def test_what_stands_there_at_last_is_shown(kernel: Kernel, code: str, shown: str) -> None:
    cell = kernel.run("from IPython.display import *\n" + code)
    assert (cell.status, cell.output[: len(shown)]) == ("ok", shown)
    assert cell.output == shown or code.startswith("help")


def test_a_cell_that_exits_costs_the_kernel_and_no_cell(kernel: Kernel) -> None:
    for code in ("exit()", "x = 5\nquit()", "import sys; print('bye'); exit()"):
        cell = kernel.run(code)
        assert cell.status == "lost"
        assert kernel.run("6 * 7").output == "42\n"
    assert cell.output == "bye\n"
    assert kernel.run("import sys; sys.exit()").status == "error"


def test_late_output_is_waited_for(kernel: Kernel) -> None:
    cell = kernel.run("for i in range(10_000): print(i, flush=True)\nprint('THE-END')")
    assert cell.output.endswith("\n9999\nTHE-END\n")


def test_a_thread_that_prints_hides_no_cell_and_is_told(kernel: Kernel) -> None:
    started = kernel.run(
        "import threading, time\ngoes = True\ndef work():\n    while goes: print('noise', flush=True)\n"
        "t = threading.Thread(target=work); t.start()"
    )
    assert started.status == "ok"
    for i in range(5):
        cell = kernel.run(f"print('cell {i}'); time.sleep(.2); print('its end')")
        told = "\n[printed meanwhile by what an earlier cell started:]\n... "
        assert cell.output.startswith(f"cell {i}\nits end\n{told}")
        assert len(cell.output) < 2_000
    kernel.run("goes = False; t.join()")
    kernel.run("")
    assert kernel.run("1 + 1").output == "2\n"
    kernel.run("late = threading.Timer(.1, print, ('done',)); late.start()")
    told = kernel.run("late.join(); import sys; sys.stdout.flush()").output
    assert told == "\n[printed meanwhile by what an earlier cell started:]\ndone\n"


def test_children_that_end_leave_room_for_others(kernel: Kernel) -> None:
    cell = kernel.run("%%bash\nfor i in $(seq 500); do (true &); done; sleep .3; echo done")
    assert cell.output == "done\n"
    code = "import glob\nsum(' Z ' in open(p).read() for p in glob.glob('/proc/[0-9]*/stat'))"
    assert int(kernel.run(code).output) < 3


def test_a_plot_brings_no_complaints(kernel: Kernel) -> None:
    cell = kernel.run(
        "import matplotlib.pyplot as plt; plt.title('$x^2$'); plt.plot([1, 2]); plt.show()"
    )
    assert (cell.output, cell.images) == ("<Figure size 640x480 with 1 Axes>\n", 1)


def test_an_error_is_told_without_colours(kernel: Kernel) -> None:
    cell = kernel.run("1 / 0")
    assert cell.status == "error"
    assert "ZeroDivisionError: division by zero" in cell.output
    assert "\x1b" not in cell.output
    assert "StdinNotImplementedError" in kernel.run("input('name?')").output
    assert kernel.run("def f(:").status == "error"


def test_pictures_are_counted(kernel: Kernel) -> None:
    cell = kernel.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); 5")
    assert (cell.status, cell.images) == ("ok", 1)


@pytest.mark.parametrize(
    ("code", "loses"),
    [
        ("import time; time.sleep(60)", False),
        ("while True:\n    pass", False),
        ("import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", False),
        ("while True:\n  try:\n    while True: pass\n  except BaseException: pass", None),
        ("sum(range(10**11))", None),
    ],
    ids=["sleep", "loop", "no-gil", "catches-all", "c-loop"],
)  # fmt: skip
def test_a_cell_ends_at_its_time(kernel: Kernel, code: str, loses: bool | None) -> None:
    kernel.run("kept = 1")
    started = time.monotonic()
    cell = kernel.run(code, 0.5)
    assert cell.status in ("timeout", "lost")
    assert time.monotonic() - started < 30
    after = kernel.run("kept")
    assert after.output == "1\n" if loses is False else after.status in ("ok", "error")


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(3)",
        "import ctypes; ctypes.string_at(0)",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal; os.kill(-1, signal.SIGKILL)",
    ],
    ids=["exit", "segfault", "nursery", "everything"],
)
def test_a_kernel_that_dies_is_replaced_and_that_is_told(kernel: Kernel, code: str) -> None:
    kernel.run("kept = 1")
    # What kills the kernel's parent may still be answered before the kernel follows it.
    told = [kernel.run(code, 10).status, kernel.run("'next'").status]
    assert "lost" in told
    assert "NameError" in kernel.run("kept").output


def test_floods_are_cut_and_the_next_cell_works(kernel: Kernel) -> None:
    cell = kernel.run("for i in range(100_000): print(i)")
    assert cell.output.startswith("0\n1\n")
    assert "characters left out" in cell.output
    assert cell.output.endswith("99999\n")
    assert "lost" in kernel.run("print('x' * 50_000_000)").output
    assert kernel.run("'fine'").output == "'fine'\n"


def test_forged_messages_fool_nobody_but_their_author(kernel: Kernel) -> None:
    forge = """
from ipykernel.kernelbase import Kernel
k = get_ipython().kernel
k.session.send(k.iopub_socket, "status", {"execution_state": "idle"}, parent=k.get_parent())
k.session.send(k.iopub_socket, "stream", {"name": "stdout", "text": "never ran"}, parent={})
import os
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        try:
            open(f"/proc/{pid}/fd/1", "wb", buffering=0).write(b'{"id": "x", "status": "ok"}\\n')
        except OSError:
            pass
"""
    assert kernel.run(forge).status in ("ok", "error")
    assert kernel.run("2 + 2").output == "4\n"
    kernel._rest = b'{"id": "x", "status": "ok"}\nno JSON\n'  # had it reached the client's pipe
    assert kernel.run("2 + 3").output == "5\n"


def test_background_children_don_t_hold_a_cell(kernel: Kernel) -> None:
    started = time.monotonic()
    cell = kernel.run("import subprocess; p = subprocess.Popen(['sleep', '300']); p.poll()")
    assert cell.status == "ok"
    assert time.monotonic() - started < 20


def test_the_sandbox_holds(kernel: Kernel) -> None:
    net = kernel.run(
        "import socket\ns = socket.socket(); s.settimeout(2)\n"
        "try:\n    s.connect(('1.1.1.1', 80)); print('open')\nexcept OSError: print('shut')"
    )
    assert net.output == "shut\n"
    assert "ModuleNotFoundError" in kernel.run("import envgen").output
    assert "ModuleNotFoundError" in kernel.run("import torch").output
    assert (
        kernel.run("import os; os.getuid() == 0 or os.access('/etc/shadow', os.R_OK)").output
        == "False\n"
    )
    half = "open('/work/{}', 'wb').write(b'x' * (200 << 20))"  # one file may not be as large as all
    assert kernel.run(half.format("one"), 30).status == "ok"
    assert "No space left" in kernel.run(half.format("two"), 30).output
    kernel.run("import os; os.remove('/work/one'); os.remove('/work/two')")
    forks = "import os, time\nfor _ in range(4000):\n    if os.fork() == 0: time.sleep(60)"
    bomb = kernel.run(forks, 10)
    assert bomb.status in ("error", "lost", "timeout")
    assert kernel.run("import os; os.kill(-1, 9)", 10).status == "lost"  # room for the next test


@pytest.mark.bwrap
def test_memory_is_limited() -> None:
    with Kernel("bubblewrap", memory_bytes=512 << 20) as small:
        cell = small.run("x = bytearray(3 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1", 30)
        assert cell.status in ("error", "lost")
        assert small.run("1").output == "1\n"


@pytest.mark.bwrap
def test_nothing_is_left_running() -> None:
    kernel = Kernel("bubblewrap")
    kernel.run("import subprocess; subprocess.Popen(['sleep', '4321'], start_new_session=True)")
    kernel.close()
    deadline = time.monotonic() + 10
    while _running("4321") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running("4321")


def _running(word: str) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if file.read().split(b"\0")[:2] == [b"sleep", word.encode()]:
                        return True
            except OSError:
                continue
    return False


def test_a_plain_process_is_for_trusted_code_only() -> None:
    with pytest.raises(SandboxUnavailableError, match="not trusted"):
        Kernel("process")
    with Kernel("process", trusted=True) as kernel:
        assert kernel.run("40 + 2").output == "42\n"


@pytest.mark.bwrap
def test_spares_are_ready_ahead() -> None:
    spares = SpareKernels("bubblewrap", spares=1)
    first = spares.take()
    deadline = time.monotonic() + 60
    while not spares.ready and time.monotonic() < deadline:
        time.sleep(0.05)
    started = time.monotonic()
    with spares.take() as second:
        assert time.monotonic() - started < 0.5
        assert second.run("1").output == "1\n"
    first.close()
    spares.close()


def test_only_the_kernels_packages_are_shown() -> None:
    names = {mount.target.rpartition("/")[2] for mount in library_mounts()}
    assert {"ipykernel", "numpy", "sympy", "zmq"} <= names
    assert not {"torch", "pytest", "envgen", "_pytest"} & names
