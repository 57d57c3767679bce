"""The test runners of eight languages: ``runner(name)`` runs one and leaves JUnit XML."""

from typing import cast

from envgen.core.registry import Registry
from envgen.verifiers.runners.base import Canaries, Files, Runner

_HERE = "envgen.verifiers.runners"
RUNNERS = Registry(
    "test runner",
    {
        "pytest": f"{_HERE}.pytest:Pytest",
        "unittest": f"{_HERE}.unittest:Unittest",
        "surefire": f"{_HERE}.surefire:Surefire",
        "junit-console": f"{_HERE}.junit_console:JUnitConsole",
        "gradle": f"{_HERE}.gradle:Gradle",
        "node-test": f"{_HERE}.node_test:NodeTest",
        "jest": f"{_HERE}.jest:Jest",
        "mocha": f"{_HERE}.mocha:Mocha",
        "vitest": f"{_HERE}.vitest:Vitest",
        "ctest": f"{_HERE}.ctest:CTest",
        "meson": f"{_HERE}.meson:Meson",
        "make": f"{_HERE}.make:Make",
        "googletest": f"{_HERE}.googletest:GoogleTest",
        "catch2": f"{_HERE}.catch2:Catch2",
        "gotestsum": f"{_HERE}.gotestsum:Gotestsum",
        "phpunit": f"{_HERE}.phpunit:PHPUnit",
    },
)
"""Every runner's name; ``Recipe.runner`` is one of them."""


def runner(name: str) -> Runner:
    """The runner of this name.

    Raises:
        ConfigError: if there is none; near names are listed.
    """
    return cast("Runner", RUNNERS[name]())


__all__ = ["Canaries", "Files", "RUNNERS", "Runner", "runner"]
