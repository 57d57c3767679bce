"""How C and C++ projects are built: CMake, Meson, Automake or a Makefile, with their tests switched on.

The first of them that has tests is taken. What a project fetches while it is configured (FetchContent,
Meson's wraps) is fetched in the install, where the network is open, or found among the system's packages.
Later builds fetch nothing.
"""

from __future__ import annotations

import re
import shlex

from envgen.core.code_types import CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles

_OPTION = re.compile(r"\b(?:cmake_dependent_)?option\s*\(\s*([\w${}]+)", re.IGNORECASE)
_IS_TEST = re.compile(r"(^|_)(build_?|enable_?|with_?)?\w*?tests?(ing|suite)?$", re.IGNORECASE)
_NOT_WANTED = re.compile(
    r"valgrind|cuda|fuzz|without|(^|_)no_|coverage|single|example|install|bench|perf|fast|32|_ho$|disable"
    r"|skip|gpu|android|sanitiz|expensive|memcheck",
    re.IGNORECASE,
)
_DISCOVERS = re.compile(
    r"gtest_discover_tests|gtest_add_tests|catch_discover_tests|doctest_discover"
)
_REGISTERS = re.compile(
    r"\badd_test\b|gtest_(?:discover|add)_tests|(?:catch|doctest)_discover_tests|ParseAndAddCatchTests",
    re.IGNORECASE,
)
"""What registers a test with CTest; ``enable_testing`` alone registers none."""
_TARGET = re.compile(r"^(check|tests?|unittests?)(?:[ \t]+[\w.-]+)*[ \t]*:(?!=)", re.M)
_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Debug -DBUILD_TESTING=ON -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w "
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=ALWAYS"
)
"""``-w``: warnings that old code gives to a newer compiler must not be errors."""
_C_FLAGS = "CFLAGS='-g -O0 -w' CXXFLAGS='-g -O0 -w'"


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from the project's build files. Raises WorkspaceError where none of them tells of tests."""
    lists = _lists(files)
    if lists and _has_cmake_tests(files):
        return _cmake(files, language, cutoff)
    if re.search(r"\btest\s*\(", _text_of(files, "meson.build", "*/meson.build")):
        return _meson(language, cutoff)
    if "TESTS" in _text_of(files, "Makefile.am", "*/Makefile.am"):
        return _automake(files, language, cutoff)
    for name in files.matching("GNUmakefile", "makefile", "Makefile", "*/Makefile"):
        target = _TARGET.search(files.text(name))
        if target and name.count("/") <= 1:
            return _make(name.rpartition("/")[0], target[1], language, cutoff)
    if lists:
        raise WorkspaceError(
            "no CMakeLists.txt tells CTest of a test (add_test, gtest_discover_tests, ...)",
            "tests that are programs of their own need a recipe by hand",
        )
    raise WorkspaceError(
        "no CMakeLists.txt, meson.build, Makefile.am or Makefile tells of tests",
        "other build systems need a recipe by hand",
    )


def _text_of(files: TreeFiles, *globs: str) -> str:
    names = [name for name in files.matching(*globs) if name.count("/") <= 3]
    return "\n".join(files.text(name) for name in names)


def _has_cmake_tests(files: TreeFiles) -> bool:
    names = files.matching("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake")
    return any(_REGISTERS.search(files.text(name)) for name in names)


def _cmake(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    folder = _project(files)
    text = "\n".join(files.text(name) for name in _cmake_files(files, folder))
    build = "cmake-build" if f"{folder}/build".lstrip("./") in _folders(files) else "build"
    generator = "-G Ninja" if language == "cpp" else "-G 'Unix Makefiles'"
    switches = " ".join(f"-D{name}=ON" for name in test_options(text))
    configure = f"cmake -S {folder} -B {build} {generator} {_FLAGS} {switches}".rstrip()
    return Recipe(
        language=language,
        runner=_runner(files, text),
        install=(configure,),
        build=(
            f"{configure} -DFETCHCONTENT_FULLY_DISCONNECTED=ON > /dev/null",
            f'cmake --build {build} -j "$(nproc)"',
        ),
        variables={
            "BUILD_DIR": build,
            "CTEST_OUTPUT_ON_FAILURE": "1",
            "GIT_CEILING_DIRECTORIES": "/work",
        },
        cutoff=cutoff,
    )


def _meson(language: CodeLanguage, cutoff: str | None) -> Recipe:
    flags = "-Dwerror=false --wrap-mode=nodownload"
    return Recipe(
        language=language,
        runner="meson",
        install=("meson subprojects download || true",),
        build=(
            f"[ -f build/build.ninja ] || meson setup build {flags} > /dev/null",
            "ninja -C build",
        ),
        packages=("meson", "ninja-build", "build-essential"),
        variables={"BUILD_DIR": "build", "GIT_CEILING_DIRECTORIES": "/work"},
        cutoff=cutoff,
    )


def _automake(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """Configured where its sources are: not every project can be built elsewhere."""
    ready = "[ -f configure ] || autoreconf -fi"
    return Recipe(
        language=language,
        runner="make",
        install=(f"{ready} > /dev/null",),
        build=(
            f"{{ {ready}; }} > /dev/null 2>&1; [ -f Makefile ] || "
            f"./configure --disable-dependency-tracking {_C_FLAGS} > /dev/null",
            'make -s -j "$(nproc)"',
        ),
        packages=("autoconf", "automake", "libtool", "make", "build-essential"),
        variables={"BUILD_DIR": ".", "MAKE_TARGET": "check"},
        cutoff=cutoff,
    )


def _make(folder: str, target: str, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """What ``make`` makes by itself, then the target that tests; it alone is known to be there."""
    return Recipe(
        language=language,
        runner="make",
        build=(f'make -C {shlex.quote(folder or ".")} -k -s -j "$(nproc)" || true',),
        packages=("make", "build-essential"),
        variables={"BUILD_DIR": folder or ".", "MAKE_TARGET": target},
        cutoff=cutoff,
    )


def _lists(files: TreeFiles) -> list[str]:
    """Where a project of CMake's may begin."""
    names = files.matching("CMakeLists.txt", "*/CMakeLists.txt")
    return [name for name in names if name.count("/") <= 1]


def _project(files: TreeFiles) -> str:
    """The folder of the top CMakeLists.txt: the root, or one folder below it."""
    found = _lists(files)
    if "CMakeLists.txt" in found:
        return "."
    tested = [name for name in found if re.search(r"\badd_test|enable_testing", files.text(name))]
    return (tested or found)[0].partition("/")[0]


def _cmake_files(files: TreeFiles, folder: str) -> list[str]:
    start = "" if folder == "." else f"{folder}/"
    names = files.matching("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake")
    return [name for name in names if name.startswith(start) and name.count("/") <= 3]


def _folders(files: TreeFiles) -> set[str]:
    return {name.rpartition("/")[0].partition("/")[0] for name in files.names}


def test_options(text: str) -> list[str]:
    """The switches of a project that build its tests."""
    names = dict.fromkeys(_OPTION.findall(text))
    return [name for name in names if _IS_TEST.search(name) and not _NOT_WANTED.search(name)]


def _runner(files: TreeFiles, text: str) -> str:
    """The framework's own reports where CTest would show one case for a program of many."""
    if _DISCOVERS.search(text):
        return "ctest"
    sources = "\n".join(
        files.text(name) for name in files.matching("*test*.cc", "*test*.cpp", "*test*.cxx")[:40]
    )
    if re.search(r"#include\s*[<\"]gtest/|#include\s*\"gtest-extra|gmock/gmock", sources):
        return "googletest"
    if re.search(r"#include\s*[<\"](catch2/)?catch(_all|_test_macros)?\.hpp", sources):
        return "catch2"
    return "ctest"
