"""How C and C++ projects are built: CMake, in ``build``, with their tests switched on.

What a project fetches while it is configured (FetchContent) is fetched in the install, where the
network is open, or found among the system's packages. Later builds fetch nothing.
"""

from __future__ import annotations

import re

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
_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Debug -DBUILD_TESTING=ON -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w "
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=ALWAYS"
)
"""``-w``: warnings that old code gives to a newer compiler must not be errors."""


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from CMakeLists.txt. Raises WorkspaceError where there is none."""
    folder = _project(files)
    said = "\n".join(files.text(name) for name in _cmake_files(files, folder))
    build = "cmake-build" if f"{folder}/build".lstrip("./") in _folders(files) else "build"
    generator = "-G Ninja" if language == "cpp" else "-G 'Unix Makefiles'"
    switches = " ".join(f"-D{name}=ON" for name in test_options(said))
    configure = f"cmake -S {folder} -B {build} {generator} {_FLAGS} {switches}".rstrip()
    return Recipe(
        language=language,
        runner=_runner(files, said),
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


def _project(files: TreeFiles) -> str:
    """The folder of the top CMakeLists.txt: the root, or one folder below it."""
    found = [
        name
        for name in files.matching("CMakeLists.txt", "*/CMakeLists.txt")
        if name.count("/") <= 1
    ]
    if not found:
        raise WorkspaceError(
            "no CMakeLists.txt in the repository", "other build systems need a recipe by hand"
        )
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


def _runner(files: TreeFiles, said: str) -> str:
    """The framework's own reports where CTest would show one case for a program of many."""
    if _DISCOVERS.search(said):
        return "ctest"
    sources = "\n".join(
        files.text(name) for name in files.matching("*test*.cc", "*test*.cpp", "*test*.cxx")[:40]
    )
    if re.search(r"#include\s*[<\"]gtest/|#include\s*\"gtest-extra|gmock/gmock", sources):
        return "googletest"
    if re.search(r"#include\s*[<\"](catch2/)?catch(_all|_test_macros)?\.hpp", sources):
        return "catch2"
    return "ctest"
