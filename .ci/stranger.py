"""envgen as a stranger meets it: an ordinary user with Python, git, make and Debian's essential programs.

    python3 .ci/stranger.py wheel        build the wheel, install it with no extra, run README's blocks,
                                         every --help and all exports: what needs an extra says so
    python3 .ci/stranger.py tests [...]  run the tests (of ROOMS, or those named): none fails for want of
                                         more; MORE="bwrap gcc" are programs that are there besides

Started by root, it gives up all rights first. The project is read where it stands; nothing is written there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from readme import BLOCK

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("PIP_", "UV_", "SSL_", "REQUESTS_", "NODE_", "npm_")
"""Prefixes of variables that configure package indexes and certificates."""
USER = 23456
"""Any number that no account has."""
EXTRA = re.compile(r"error: [^\n]+\nhint: pip install '[\w-]+\[[\w-]+\]'\n")
ROOMS = """tests/cli tests/environments tests/integrations tests/pipelines/author tests/pipelines/code
tests/pipelines/test_evidence.py tests/sandboxes tests/test_examples.py tests/test_hostile.py tests/verifiers
""".split()
"""Where tests start programs of the machine."""
FORMATS = "jsonl parquet verifiers trl verl inspect openenv harbor nemo".split()
HELPS = """
import sys
from envgen.cli.app import COMMANDS, run
for name in ("", *COMMANDS):
    code = run([*name.split(), "--help"])
    if code:
        sys.exit(f"envgen {name} --help: exit code {code}")
"""


def main() -> int:
    """Become nobody in particular, and do what was asked for."""
    if os.geteuid() == 0 and closed_folders():
        if "INSIDE" not in os.environ:  # mounts of its own, which end with it
            command = ["unshare", "--mount", sys.executable, *sys.argv]
            with tempfile.TemporaryDirectory(prefix="stranger-") as stash:
                environ = {**os.environ, "INSIDE": stash}
                return subprocess.run(command, env=environ, check=False).returncode
        open_folders(Path(os.environ["INSIDE"]))
    match sys.argv[1:]:
        case ["wheel"]:
            work = wheel
        case ["tests", *rooms]:

            def work(folder: Path, environ: dict[str, str]) -> bool:
                return tests(folder, environ, rooms)
        case _:
            sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="stranger-") as place:
        folder = Path(place)
        programs = folder / "bin"
        programs.mkdir()
        for program in essential():
            (programs / program.name).symlink_to(program)
        for name in os.environ.get("MORE", "").split():
            (programs / name).symlink_to(shutil.which(name) or sys.exit(f"{name} is not here"))
        (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
        environ = {"PATH": str(programs), "HOME": place, "LANG": "C.UTF-8", "TMPDIR": place}
        environ |= {key: value for key, value in os.environ.items() if key.startswith(KEPT)}
        return 0 if work(folder, environ) else 1


NEEDED = (Path(sys.base_prefix), ROOT)


def closed_folders() -> list[Path]:
    """The folders on the way to Python and the project that others may not enter, such as root's home."""
    first = (
        next((p for p in [*reversed(one.parents), one] if not p.stat().st_mode & 1), None)
        for one in NEEDED
    )
    return list(dict.fromkeys(folder for folder in first if folder is not None))


def open_folders(stash: Path) -> None:
    """Show what is needed in those folders, and nothing else that is there; ``stash`` is an empty folder."""
    hidden = [
        one for one in NEEDED if any(one.is_relative_to(folder) for folder in closed_folders())
    ]
    for i, one in enumerate(hidden):
        (stash / str(i)).mkdir()
        _output(["mount", "--bind", str(one), str(stash / str(i))])
    for folder in closed_folders():
        _output(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(folder)])
    for i, one in enumerate(hidden):
        one.mkdir(parents=True, exist_ok=True)
        _output(["mount", "--bind", str(stash / str(i)), str(one)])


def essential() -> list[Path]:
    """The programs of Debian's essential packages, of git and of make."""
    listed = _output(["dpkg-query", "--show", "--showformat=${Package} ${Essential}\n"])
    names = [line.split()[0] for line in listed.splitlines() if line.endswith(" yes")]
    files = [
        Path(line) for line in _output(["dpkg", "--listfiles", *names, "git", "make"]).split("\n")
    ]
    return [path for path in files if path.parent.name in ("bin", "sbin") and path.is_file()]


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(
    command: list[str], folder: Path, environ: dict[str, str], *, show: bool = True
) -> tuple[int, str]:
    """Run a command as an ordinary user, and return its exit code and output."""
    rights = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    root = os.geteuid() == 0
    if root:
        os.chown(folder, USER, USER)
        command = ["/usr/bin/setpriv", *rights, "--", *command]
    print(f"\n-- {shlex.join(command[5 * root + root :])[:300]}", flush=True)
    kept: list[str] = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kept.append(line)
            if show:
                print(line, end="", flush=True)
    return process.returncode, "".join(kept)


def wheel(folder: Path, environ: dict[str, str]) -> bool:
    """Whether the plain wheel does what README says, and tells what else it needs."""
    source = folder / "source"
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True
    )
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", source], check=True)
    made = [
        ["python3", "-m", "venv", "venv"],
        ["venv/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels", "./source"],
        ["bash", "-c", "venv/bin/pip install --quiet wheels/*.whl && rm -r source"],
    ]
    if any(run(command, folder, environ)[0] for command in made):
        return False
    environ = {**environ, "PATH": f"{folder}/venv/bin:{environ['PATH']}"}
    empty = folder / "empty"
    empty.mkdir()
    held = _readme(empty, environ)
    code, told = run(["python", "-c", HELPS], empty, environ, show=False)
    held &= _fine(code, told, "every --help")
    for name in FORMATS:
        command = f"envgen export package:trip_planning --format {name} --out exported-{name}"
        held &= _fine(*run(command.split(), empty, environ), command)
    command = "envgen model info ."
    code, told = run(command.split(), empty, environ)
    return held & _fine(0 if EXTRA.fullmatch(told) else 1, told, command)


def _readme(folder: Path, environ: dict[str, str]) -> bool:
    """README's blocks, each up to the first command that needs an extra."""
    held, stopped = True, 0
    for language, text in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        if language == "python":
            held &= _fine(*run(["python", "-c", text], folder, environ), "a block of Python")
        if language != "sh":
            continue
        for line in text.splitlines():
            code, told = run(["bash", "-euo", "pipefail", "-c", line], folder, environ)
            if (
                code
                and "Traceback" not in told
                and (needs := EXTRA.search(told))
                and told.endswith(needs[0])
            ):
                stopped += 1
                break
            held &= _fine(code, told, line)
    print(f"README: {stopped} blocks end where an extra is needed", flush=True)
    return held


def _fine(code: int, told: str, what: str) -> bool:
    """Whether a command succeeded; say so if it did not."""
    if fine := code == 0 and "Traceback" not in told:
        return fine
    print(f"FAILED on the plain wheel: {what}: exit code {code}\n{told[-2000:]}", flush=True)
    return False


def tests(folder: Path, environ: dict[str, str], rooms: list[str]) -> bool:
    """Whether no test of those rooms fails for want of a program or a right."""
    python = ROOT / ".venv" / "bin" / "python"
    command = [str(python), "-P", "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command += ["-c", str(ROOT / "pyproject.toml"), "-m", "not slow", "-n", "2"]
    command += ["--dist", "loadgroup", "--no-loadscope-reorder"]
    return run([*command, *(str(ROOT / one) for one in rooms or ROOMS)], folder, environ)[0] == 0


if __name__ == "__main__":
    sys.exit(main())
