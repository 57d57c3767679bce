"""The Debian packages of each language layer."""

from __future__ import annotations

import re

from envgen.core.code_types import Recipe
from envgen.core.errors import WorkspaceError

COMMON = (
    "bash", "bzip2", "ca-certificates", "curl", "diffutils", "file", "findutils", "gawk", "git", "less",
    "make", "openssl", "patch", "procps", "python3", "ripgrep", "sed", "tar", "tzdata",
    "unzip", "xz-utils", "zip",
)  # fmt: skip
"""What agents and recipes use in every language."""
_C = ("build-essential", "pkg-config")
LAYERS: dict[str, tuple[str, ...]] = {
    "python": (*_C, "python3-dev", "python3-venv", "libffi-dev", "libssl-dev"),
    "node": (*_C, "nodejs", "npm"),
    "cpp": (
        *_C, "cmake", "ninja-build", "meson", "libgtest-dev", "libgmock-dev", "catch2", "doctest-dev",
        "check", "autoconf", "automake", "libtool",
    ),
    "go": ("golang-go", "gotestsum", "golang-github-stretchr-testify-dev"),
    "java": (
        "default-jdk-headless", "maven", "junit4", "junit5", "libsurefire-java", "libmockito-java",
        "libassertj-core-java", "libhamcrest-java", "libcommons-lang3-java", "libcommons-io-java",
        "libcommons-codec-java", "libcommons-csv-java", "libcommons-text-java", "libtruth-java",
        "libh2-java", "libjsonpath-java",
    ),
    "php": ("php-cli", "php-xml", "php-mbstring", "php-curl", "phpunit", "composer"),
}  # fmt: skip
BY_LANGUAGE = {
    "python": "python", "javascript": "node", "typescript": "node", "c": "cpp", "cpp": "cpp",
    "go": "go", "java": "java", "php": "php",
}  # fmt: skip
"""Language -> the layer that builds it."""
_CXX = ("cc", "c++")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "gotestsum": ("go", "gotestsum"),
    "junit-console": ("java", "javac"), "surefire": ("java", "javac", "mvn"),
    "gradle": ("java", "javac"),
    "node-test": ("node", "npm"), "jest": ("node", "npm"), "mocha": ("node", "npm"),
    "vitest": ("node", "npm"),
    "ctest": (*_CXX, "cmake", "ctest"), "meson": (*_CXX, "meson", "ninja"), "make": ("cc", "make"),
    "googletest": _CXX, "catch2": _CXX,
    "phpunit": ("php",),
}  # fmt: skip
"""Runner -> the programs without which nothing of its language builds or runs."""
INSTALLERS = {"php": "composer"}
"""Language -> the program that installs packages; a recipe whose commands don't call it goes without."""


def programs(recipe: Recipe) -> tuple[str, ...]:
    """Return the programs that a recipe needs. Without them it fails as if the project were broken."""
    needed = PROGRAMS.get(recipe.runner, ())
    installer = INSTALLERS.get(recipe.language)
    called = re.findall(r"[\w.+-]+", " ".join(recipe.install))
    return (*needed, installer) if installer and installer in called else needed


def packages(name: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Packages of the layer called ``name``, sorted. Raises WorkspaceError for an unknown name."""
    if name not in LAYERS:
        raise WorkspaceError(
            f"unknown layer {name!r}; there are {', '.join(LAYERS)}", "choose one of them"
        )
    return tuple(sorted({*COMMON, *LAYERS[name], *more}))
