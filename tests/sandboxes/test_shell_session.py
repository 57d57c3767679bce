from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envgen.core.errors import SandboxError
from envgen.sandboxes import shell as shell_module
from envgen.sandboxes import shell_session
from envgen.sandboxes.base import Sandbox, SandboxSpec, available, create
from envgen.sandboxes.shell import ShellSandbox
from envgen.sandboxes.shell_session import ShellSession

MISSING = available()


@pytest.fixture(scope="module", params=["bubblewrap", "docker"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if MISSING[request.param]:
        pytest.skip(MISSING[request.param])
    with create(SandboxSpec(), request.param) as found:
        yield found


@pytest.fixture
def shell(sandbox: Sandbox) -> Iterator[ShellSession]:
    session = ShellSession(sandbox, env={"GREETING": "hello"})
    yield session
    session.close()


def test_folder_variables_and_functions_last(shell: ShellSession) -> None:
    assert shell.run("mkdir -p a/b && cd a/b; X=1; f() { echo f$X; }", 10).exit_code == 0
    result = shell.run("pwd; f; echo $GREETING", 10)
    assert result.output == b"/work/a/b\nf1\nhello\n"
    assert result.exit_code == 0


def test_exit_codes_stderr_and_output_without_a_newline(shell: ShellSession) -> None:
    result = shell.run("printf out; printf err >&2; (exit 3)", 10)
    assert result == (b"outerr", 3, False, False)


@pytest.mark.parametrize("command", ["echo 'unbalanced", "if true", "cat <<E\nx", "}"])
def test_a_syntax_error_is_a_result(shell: ShellSession, command: str) -> None:
    result = shell.run(command, 10)
    assert not result.restarted
    assert shell.run("echo on", 10).output == b"on\n"


def test_heredocs_quotes_and_many_lines(shell: ShellSession) -> None:
    result = shell.run("cat <<'E'\n$a `b` \"c\" 'd' \\\nE\necho é", 10)
    assert result.output.decode() == "$a `b` \"c\" 'd' \\\né\n"


def test_stdin_is_empty(shell: ShellSession) -> None:
    assert shell.run("cat; read x; echo done", 10).output == b"done\n"


def test_a_command_that_hangs_is_stopped_and_the_state_is_kept(shell: ShellSession) -> None:
    shell.run("Y=kept", 10)
    started = time.monotonic()
    result = shell.run("echo begun; bash -c 'sleep 100 & sleep 100'", 1)
    assert time.monotonic() - started < 10
    assert result.timed_out
    assert not result.restarted
    assert result.output.startswith(b"begun\n")
    assert shell.run("echo $Y; jobs", 10).output == b"kept\n"


def test_a_busy_shell_is_started_again(shell: ShellSession) -> None:
    result = shell.run("while :; do :; done", 1)
    assert (result.timed_out, result.restarted) == (True, True)
    assert shell.run("echo on", 10).output == b"on\n"


@pytest.mark.parametrize("command", ["exit 4", "exec true", "kill -9 $$"])
def test_a_shell_that_ends_is_started_again(shell: ShellSession, command: str) -> None:
    assert shell.run(command, 10).restarted
    assert shell.run("echo on", 10).output == b"on\n"


def test_redirecting_the_shell_itself_does_not_lose_it(shell: ShellSession) -> None:
    assert shell.run("exec > /tmp/away 2>&1; echo hidden", 10).exit_code == 0
    assert shell.run("cat /tmp/away >&9", 10).output == b"hidden\n"


def test_long_output_loses_its_middle(sandbox: Sandbox) -> None:
    session = ShellSession(sandbox, output_bytes=1000)
    result = session.run("echo first; seq 1 200000; echo last", 20)
    session.close()
    assert result.output.startswith(b"first\n1\n2\n")
    assert result.output.endswith(b"200000\nlast\n")
    assert b"bytes cut" in result.output
    assert len(result.output) < 1200


def test_background_programs_go_on(shell: ShellSession) -> None:
    shell.run("(sleep 0.3; echo late > late) &", 10)
    assert shell.run("sleep 1; cat late", 10).output == b"late\n"


def test_bytes_that_are_no_text_come_back(shell: ShellSession) -> None:
    assert shell.run(r"printf '\xff\x00\x01x'", 10).output == b"\xff\x00\x01x"


def test_a_dead_sandbox_is_an_error() -> None:
    if MISSING["bubblewrap"]:
        pytest.skip(MISSING["bubblewrap"])
    with create(SandboxSpec(), "bubblewrap") as dead:
        session = ShellSession(dead)
    with pytest.raises(SandboxError):
        session.run("echo", 5)


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [below for child in map(int, children) for below in (child, *_below(child))]


def test_a_sandbox_that_starts_nothing_any_more_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where programs share the uid of what starts them, they can stop it, and ``sleep`` after that.

    The shell's pipes were closed then and read all the same: an OSError that made the episode vanish, or
    another episode's file where its number had been given away.
    """
    if MISSING["bubblewrap"]:
        pytest.skip(MISSING["bubblewrap"])
    monkeypatch.setattr(shell_session, "_GRACE_S", 0.3)
    monkeypatch.setattr(shell_module, "_GRACE_S", 0.5)
    with create(SandboxSpec(), "bubblewrap") as sandbox:
        assert isinstance(sandbox, ShellSandbox)
        session = ShellSession(sandbox)
        session.run("true", 10)
        for pid in _below(sandbox._zygote.pid):
            if b"zygote.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
        with pytest.raises(SandboxError, match="ended"):
            session.run("sleep 100", 0.5)
