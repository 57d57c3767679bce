"""Run a project's tests in a sandbox with a runner's shell line; what it needs is looked for first."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from envgen.core.code_types import REPOSITORY, TestReport
from envgen.sandboxes.base import ExecResult, Mount, Sandbox, SandboxSpec, create
from envgen.sandboxes.workspace.parts import ADDRESS_BYTES
from envgen.verifiers.junit import read_junit

REPORTS = "/work/reports"
CONFIGURATION = ("alternatives", "java-*", "maven", "php", "ssl/openssl.cnf")
"""Of this machine's ``/etc``: what the toolchains in its ``/usr`` read."""
CODE = Path(__file__).resolve().parents[1] / "data" / "code"
SPEC = SandboxSpec(
    memory_bytes=4 << 30,
    address_bytes=ADDRESS_BYTES,
    disk_bytes=512 << 20,
    output_bytes=32 << 20,
    pids=512,
    wall_s=240,
    cpu=240,
)
HOSTS = CODE / "hosts"
"""What names this machine has in a sandbox: vitest looks up localhost."""
PATH = "/env/bin:/env/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"


class TestRun(NamedTuple):
    """What a run left: how its shell line ended, and its report files."""

    __test__ = False

    result: ExecResult
    reports: dict[str, bytes]

    @property
    def output(self) -> str:
        return (self.result.stdout + self.result.stderr).decode(errors="replace")

    def report(self) -> TestReport:
        try:
            return read_junit(self.reports)
        except Exception:
            print(self.output)
            raise


def need(*programs: str, apt: str) -> None:
    """Skip without these programs; fail instead where services are required."""
    missing = [program for program in programs if not _found(program)]
    if not missing:
        return
    reason = f"{', '.join(missing)} not found: apt install {apt}"
    if os.environ.get("ENVGEN_REQUIRE_SERVICES") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def folder_files(folder: Path) -> dict[str, bytes]:
    """Paths below a folder -> contents."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def run_tests(
    files: Mapping[str, bytes],
    commands: Sequence[str],
    *,
    env: Path | None = None,
    variables: Mapping[str, str] | None = None,
    backend: str = "bubblewrap",
    image: str | None = None,
) -> TestRun:
    """Put files at the repository's place, run shell lines there, bring the reports back."""
    mounts = [] if image else [Mount(source=path, target=str(path)) for path in _configuration()]
    mounts += [] if image else [Mount(source=HOSTS, target="/etc/hosts")]
    mounts += [] if env is None else [Mount(source=env, target="/env")]
    spec = SPEC.model_copy(update={"mounts": tuple(mounts), "image": image})
    with create(spec, backend) as sandbox:
        unpack(sandbox, files)
        all_variables = {"PATH": PATH, "HOME": "/tmp", **(variables or {})}
        for command in commands:
            result = sandbox.exec(["sh", "-c", command], env=all_variables, cwd=REPOSITORY)
        return TestRun(result, _reports(sandbox))


def unpack(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    """Write files below the repository's place."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o755 if content[:2] == b"#!" else 0o644
            archive.addfile(member, io.BytesIO(content))
    line = f"mkdir -p {REPOSITORY} && tar -x -C {REPOSITORY}"
    result = sandbox.exec(["sh", "-c", line], stdin=packed.getvalue())
    assert result.exit_code == 0, result


def _reports(sandbox: Sandbox) -> dict[str, bytes]:
    listed = sandbox.exec(["sh", "-c", f"cd {REPORTS} 2>/dev/null && tar -c *.xml"])
    if listed.exit_code:
        return {}
    with tarfile.open(fileobj=io.BytesIO(listed.stdout)) as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
    return {name: file.read() for name, file in found.items() if file is not None}


def _configuration() -> list[Path]:
    return sorted({path for name in CONFIGURATION for path in Path("/etc").glob(name)})


def _found(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else bool(shutil.which(program))
