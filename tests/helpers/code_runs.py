"""Run a project's tests in a sandbox with a runner's shell line; what it needs is looked for first."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from envgen.core.code_types import REPOSITORY, Recipe, TestReport
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

_MAVEN_REPO = "/usr/share/maven-repo/org"
_MAVEN_PARTS = (
    "junit/jupiter/junit-jupiter",
    *(f"apache/maven/plugins/maven-{one}-plugin" for one in ("compiler", "resources", "surefire")),
    "apache/maven/surefire/surefire-junit-platform",
)
MAVEN = (
    ("mvn", "javac", *(f"{_MAVEN_REPO}/{part}" for part in _MAVEN_PARTS)),
    "maven default-jdk-headless junit5 libsurefire-java libmaven-compiler-plugin-java "
    "libmaven-resources-plugin-java",
)
"""What an offline Maven build of a toy needs, and where it comes from: Maven alone builds nothing."""


class SuiteRun(NamedTuple):
    """What a run left: how its shell line ended, and its report files."""

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
    lacking(f"{', '.join(missing)} not found: apt install {apt}")


def lacking(reason: str) -> NoReturn:
    """Skip for a reason; fail instead where services are required."""
    if os.environ.get("ENVGEN_REQUIRE_SERVICES") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def node_packages(folder: Path, *packages: str) -> Path:
    """A folder with npm packages in ``node_modules``; skips, or fails, where npm can't get them."""
    need("node", "npm", apt="nodejs npm")
    folder.chmod(0o755)  # the sandbox has a uid of its own
    (folder / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    if done.returncode:
        lacking(f"npm can't install {', '.join(packages)}: {done.stderr.strip()[-300:]}")
    return folder


def folder_files(folder: Path) -> dict[str, bytes]:
    """Paths below a folder -> contents."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


class Toy(NamedTuple):
    """One of the projects in ``tests/data/code``."""

    language: str
    recipe: Recipe
    states: dict[str, dict[str, str]]
    """Of ``base``, ``tests`` (test.patch applied) and ``gold`` (both): test id -> status."""

    def tree(self, folder: Path, state: str) -> dict[str, bytes]:
        """The project's files in a state; the patches are applied by git in an empty folder."""
        shutil.copytree(CODE / self.language / "base", folder, dirs_exist_ok=True)
        for patch in {"base": [], "tests": ["test"], "gold": ["test", "gold"]}[state]:
            command = ["git", "apply", str(CODE / self.language / f"{patch}.patch")]
            subprocess.run(command, cwd=folder, check=True, env={**os.environ, "GIT_DIR": "/none"})
        return folder_files(folder)


def toy(language: str) -> Toy:
    """The toy project of a language."""
    recipe = Recipe.model_validate_json((CODE / language / "recipe.json").read_text())
    states = json.loads((CODE / language / "expected.json").read_text())
    return Toy(language, recipe, states)


def run_tests(
    files: Mapping[str, bytes],
    commands: Sequence[str],
    *,
    env: Path | None = None,
    variables: Mapping[str, str] | None = None,
    backend: str = "bubblewrap",
) -> SuiteRun:
    """Put files at the repository's place, run shell lines there, bring the reports back."""
    mounts = [Mount(source=path, target=str(path)) for path in _configuration()]
    mounts += [Mount(source=HOSTS, target="/etc/hosts")] if backend == "bubblewrap" else []
    mounts += [] if env is None else [Mount(source=env, target="/env")]
    spec = SPEC.model_copy(update={"mounts": tuple(mounts)})
    with create(spec, backend) as sandbox:
        unpack(sandbox, files)
        all_variables = {
            "PATH": PATH,
            "HOME": "/tmp",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **(variables or {}),
        }
        for command in commands:
            result = sandbox.exec(["sh", "-c", command], env=all_variables, cwd=REPOSITORY)
        return SuiteRun(result, _reports(sandbox))


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
