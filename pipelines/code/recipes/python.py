"""How Python projects are built: a virtual environment at ``/env``, the project installed editable.

Dependencies are cut at the base commit's day. The cut holds for what builds the project too; where
no build backend of that day can make an editable install (setuptools before 64), the backends alone
are newer, and where the project pins an old one, its pin is passed over.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterable
from typing import Any

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles
from envgen.pipelines.code.recipes.python_version import choose_version
from envgen.sandboxes.workspace.layers import HOST, pythons
from envgen.sandboxes.workspace.layers import layer as find_layer

BACKENDS = (
    "setuptools", "wheel", "setuptools-scm", "hatchling", "hatch-vcs", "flit-core", "flit",
    "poetry-core", "poetry-dynamic-versioning", "pdm-backend", "pdm-pep517", "cython", "pbr",
    "versioneer", "meson-python", "scikit-build-core", "editables", "trove-classifiers", "calver",
)  # fmt: skip
"""Build backends and what they load: newer ones build old projects, where old ones can't."""
EXTRAS = re.compile(
    r"^(tests?|testing|unittests?|dev(elop(ment)?)?|pytest|ci|check)$", re.IGNORECASE
)
REQUIREMENTS = re.compile(
    r"^((requirements|reqs?)[-_./])?(tests?|testing|dev|development|ci)([-_.]?(requirements|reqs?))?"
    r"\.(txt|in)$"
)
_EXTRAS_REQUIRE = re.compile(r"extras_require\s*=\s*\{(.*?)\n?\s*\}", re.DOTALL | re.IGNORECASE)
_CONSTRAINTS = f"{DEPENDENCIES}/constraints.txt"
"""The recipe's pins; empty when it is installed for the first time."""
_LOOSE = f"{DEPENDENCIES}/loose.toml"
_BACKENDS = "/tmp/backends"
"""Where backends are put that the project's pins don't allow: what is built imports them, no test does."""
_PKG_RESOURCES = "2025-06-01"
"""Day of the last setuptools that every old ``setup.py`` can import: later ones lack ``pkg_resources``."""
_REQUIRED = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?")
_RELEASE = re.compile(r"^\W*(?:version\s+|v|release\s+)?(\d+\.\d+(?:\.\d+)*)", re.IGNORECASE | re.M)
_TOOLS = re.compile(
    r"^(black|ruff|flake8.*|mypy|pylint|isort|pre-commit|tox.*|twine|build|towncrier|sphinx.*|furo|"
    r"bump.*|pyright|bandit|codespell|nox|coveralls|codecov|wheel|pip|check-manifest)\b",
    re.IGNORECASE,
)
"""Development tools that no test needs and that drag half an index in."""


def recipe(
    files: TreeFiles, language: CodeLanguage, cutoff: str | None, layer: str = "host"
) -> Recipe:
    """A recipe from pyproject.toml, setup.cfg, setup.py, tox.ini and requirements files."""
    project = files.toml("pyproject.toml")
    packaged = "setup.py" in files or "setup.cfg" in files or _can_build(project)
    if not packaged and not files.matching("*.py"):
        raise WorkspaceError("no Python file in the repository", "choose another language")
    variables = {"VIRTUAL_ENV": DEPENDENCIES, **_version(files, project)}
    if not packaged:
        variables["PYTHONPATH"] = ":".join(
            f"{REPOSITORY}/{folder}".rstrip("/") for folder in ("", "src", "lib")
        )
    version = choose_version(files, cutoff, _pythons(layer))
    return Recipe(
        language=language,
        version=version,
        runner="pytest",
        install=_install(files, project, packaged, cutoff, version),
        variables=variables,
        cutoff=cutoff,
    )


def _pythons(name: str) -> list[str]:
    return list(pythons() if name == HOST else find_layer(name).pythons)


def _compile(version: str) -> str:
    """Compile modules, as pip does: old ones warn then, and tests may turn warnings into errors.

    What is compiled holds no time of its source (PEP 552), so that it is the same in each workspace.
    """
    check = "" if version == "3.6" else "--invalidation-mode unchecked-hash "
    return (
        f"{DEPENDENCIES}/bin/python -W ignore -m compileall -q -j 0 {check}{DEPENDENCIES}/lib || :"
    )


def _can_build(project: dict[str, Any]) -> bool:
    return "project" in project or "build-system" in project or "poetry" in project.get("tool", {})


def _install(
    files: TreeFiles, project: dict[str, Any], packaged: bool, cutoff: str | None, version: str
) -> tuple[str, ...]:
    """First what must succeed, then what tests may want, one group at a time."""
    itself = ["-e", "."] if packaged else []
    backends = _backends(project) if packaged and cutoff else []
    first = _pip(cutoff, [*itself, "pytest", "pip", "setuptools<81", "wheel"], backends)
    if cutoff:
        # What builds may be newer, but what tests import is of the day: setuptools of today brings a
        # plugin that an old pytest can't load.
        first = f"uv pip install -q --exclude-newer {cutoff} 'setuptools<81' || :; {first}"
    commands = [
        f'uv venv -q --allow-existing --python "$PYTHON" {DEPENDENCIES}',
        *([_loose_file(cutoff)] if cutoff else []),
        f"if [ -s {_CONSTRAINTS} ]; then {_frozen(cutoff, itself, backends)}; else {first}; fi",
    ]
    for words in _groups(files, project):
        # the project stays in the command, or its own release could be put in its place
        left_out = shlex.quote(f"left out: {' '.join(words)}")
        group = f"{_pip(cutoff, [*itself, *words], backends)} || echo {left_out}"
        commands.append(f"[ -s {_CONSTRAINTS} ] || {group}")
    if packaged:
        commands.append("uv pip list -q --editable --format=freeze | grep -q . # stays editable")
    commands.append(f"uv pip freeze -q --exclude-editable > {DEPENDENCIES}/pins.txt")
    commands.append(_compile(version))
    return tuple(commands)


def _loose_file(cutoff: str) -> str:
    """The command that writes uv's settings under which build backends are not cut at the day."""
    days = dict.fromkeys(BACKENDS, "false")
    days["setuptools"] = f'"{max(cutoff, _PKG_RESOURCES)}"'
    lines = "".join(f"{name} = {day}\\n" for name, day in days.items())
    return f"printf '[exclude-newer-package]\\n{lines}' > {_LOOSE}"


def _backends(project: dict[str, Any]) -> list[str]:
    """What builds the project, whatever versions it asks for."""
    asked = project.get("build-system", {}).get("requires", [])
    names = [found[0] for one in asked if (found := _REQUIRED.match(str(one)))]
    others = [name for name in names if name != "setuptools"]
    return list(dict.fromkeys(["setuptools<81", "wheel", *others]))


def _pip(cutoff: str | None, words: list[str], backends: list[str]) -> str:
    """Install with everything cut at the day; where that fails, with newer backends.

    The third way passes over the project's pins of its backends.
    """
    arguments = shlex.join(words)
    install = "pip install -q"
    if not cutoff:
        return f"uv {install} {arguments}"
    cut = f"{install} --exclude-newer {cutoff} {arguments}"
    ways = [f"uv {cut}", f"uv --config-file {_LOOSE} {cut}"]
    if backends:
        put = f"env -u UV_EXCLUDE_NEWER uv {install} --target {_BACKENDS} {shlex.join(backends)}"
        have = f"{{ [ -d {_BACKENDS} ] || {put}; }}"
        ways.append(f"{{ {have} && PYTHONPATH={_BACKENDS} uv {cut} --no-build-isolation; }}")
    return " || ".join(ways)


def _frozen(cutoff: str | None, itself: list[str], backends: list[str]) -> str:
    """Install the pins as they are, whatever they say of each other.

    Groups were resolved one after the other, so all pins together may contradict what one of them asks for.
    """
    pins = f"env -u UV_EXCLUDE_NEWER uv pip install -q --no-deps -r {_CONSTRAINTS}"
    again = _pip(cutoff, ["--no-deps", *itself], backends)
    return f"{pins} && {{ {again}; }}" if itself else pins


def _groups(files: TreeFiles, project: dict[str, Any]) -> list[list[str]]:
    """What tests may want beside the project: extras, dependency groups, requirements, tox."""
    found: list[list[str]] = []
    for extras in _extras(files, project):
        found.append(["-e", f".[{','.join(extras)}]"])
    for name in project.get("dependency-groups", {}):
        if EXTRAS.match(name):
            found.append(["--group", name])
    found += [["-r", name] for name in files.names if REQUIREMENTS.match(name)]
    if loose := _without_tools([*_poetry(project), *_tox(files)]):
        found.append(loose)
    if "requirements.txt" in files:
        found.append(["-r", "requirements.txt"])
    return found


def _extras(files: TreeFiles, project: dict[str, Any]) -> list[list[str]]:
    """Those whose names say that they are for tests, then what else tox's test environment names."""
    table = project.get("project", {}).get("optional-dependencies", {})
    poetry = project.get("tool", {}).get("poetry", {}).get("extras", {})
    setup = _EXTRAS_REQUIRE.search(files.text("setup.py"))
    in_setup = re.findall(r"['\"]([\w-]+)['\"]\s*:", setup[1]) if setup else []
    in_config = _ini(files, "setup.cfg").get("options.extras_require", {})
    in_tox = re.findall(r"[\w-]+", _ini(files, "tox.ini").get("testenv", {}).get("extras", ""))
    names = dict.fromkeys([*table, *poetry, *in_setup, *in_config, *in_tox])
    tests = [name for name in names if EXTRAS.match(name)]
    return [group for group in (tests, [one for one in in_tox if one not in tests]) if group]


def _ini(files: TreeFiles, name: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(files.text(name))
        return {section: dict(parser.items(section)) for section in parser.sections()}
    except configparser.Error:
        return {}


def _poetry(project: dict[str, Any]) -> list[str]:
    """Development dependencies of a poetry project, without their versions: the cut dates them."""
    poetry = project.get("tool", {}).get("poetry", {})
    tables = [poetry.get("dev-dependencies", {})]
    for name, group in poetry.get("group", {}).items():
        if EXTRAS.match(name):
            tables.append(group.get("dependencies", {}))
    return [name for table in tables for name in table if name != "python"]


def _tox(files: TreeFiles) -> list[str]:
    """The plain requirements of tox's test environment."""
    lines = _ini(files, "tox.ini").get("testenv", {}).get("deps", "").splitlines()
    plain = (re.sub(r"^\s*[\w{},!-]+:\s+", "", line).strip() for line in lines)
    return [
        line for line in plain if re.match(r"^[A-Za-z][\w.-]*(\[[\w,-]+\])?\s*([<>=!~;].*)?$", line)
    ]


def _without_tools(words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if not _TOOLS.match(word)]


def _version(files: TreeFiles, project: dict[str, Any]) -> dict[str, str]:
    """What version tools are told where no tag of the base commit can tell them."""
    text = f"{project.get('build-system', {}).get('requires', '')}{files.text('setup.py')}"
    text += files.text("setup.cfg")
    if files.tags or not re.search(r"setuptools[-_]scm|hatch-vcs|pbr|versioningit|pdm", text):
        return {}
    for name in files.matching("CHANGE*", "HISTORY*", "NEWS*", "RELEASE*", "docs/change*"):
        if found := _RELEASE.search(files.text(name)):
            version = found[1]
            return {"SETUPTOOLS_SCM_PRETEND_VERSION": version, "PBR_VERSION": version}
    return {}
