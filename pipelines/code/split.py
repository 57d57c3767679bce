"""Divide a change into the gold patch, the test patch and what neither needs.

Published collectors call a file a test when its path contains ``test`` anywhere, which makes
``src/latest.py`` a test and misses ``parser.spec.ts``. Here each language has its own rules on whole
path parts; what is neither source nor test (documentation, news, CI, lock files) is *neutral*: it
stays in the gold patch only where the build reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from envgen.core.code_types import CodeLanguage
from envgen.core.limits import Label
from envgen.core.patches import FilePatch, join_patches

Side = Literal["gold", "test", "neutral"]

_SCRIPT = (
    r"(^|/)(__tests__|__mocks__|__snapshots__)/",
    r"(^|/)(tests?|specs?|e2e)/",
    r"\.(test|tests|spec)(-d)?\.[cm]?[jt]sx?$",
    r"\.(test|spec)-d\.ts$",
    r"\.snap$",
    r"(^|/)tests?\.[cm]?[jt]sx?$",
)
_NATIVE = (
    r"(^|/)(tests?|unit_?tests?|gtest|regress)/",
    r"(_test|_tests|_unittest)\.(c|cc|cpp|cxx|h|hpp)$",
    r"(^|/)(test_[^/]*|tests?)\.(c|cc|cpp|cxx|h|hpp)$",
    r"^(?!latest|greatest|contest|protest|attest)\w+tests?\.(c|cc|cpp|cxx)$",
)
TEST_RULES: dict[CodeLanguage, tuple[str, ...]] = {
    "python": (
        r"(^|/)tests?/",
        r"^testing/",
        r"(^|/)(test_[^/]*|[^/]*_tests?|conftest)\.py$",
        r"^tests?\.py$",
    ),
    "java": (
        r"(^|/)src/(test|it|testFixtures|integrationTest)/",
        r"(Test|Tests|TestCase|IT)\.java$",
        r"(^|/)(tests?|junit)/",
    ),
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "go": (
        r"_test\.go$",
        r"(^|/)testdata/",
        r"(^|/)tests?/[^/]*(/[^/]*)*\.(?!go$)\w+$",
        r"(^|/)internal/([\w-]*[-_])?test(s|ing|utils?|data|env|helpers?)?/",
    ),
    "c": _NATIVE,
    "cpp": _NATIVE,
    "php": (r"(^|/)tests?(_old)?/", r"Test(Case)?\.php$", r"\.phpt$"),
}
"""Regular expressions on the path from the repository's root; the first list that matches wins."""
NEUTRAL_RULES: tuple[str, ...] = (
    r"(^|/)(docs?|documentation|\.github|\.gitlab|\.circleci|\.ci|\.buildkite|\.azure-pipelines)/",
    r"(^|/)(\.vscode|\.idea|\.changeset|changelogs?(\.d)?|changes|newsfragments?|news|\.changes)/",
    r"(^|/)(change(s|log|_log)?|history|news|authors|contributors|contributing|maintainers|readme"
    r"|licen[cs]e|copying|notice|security|code_of_conduct|todo|upgrading|release[-_]?notes)[^/]*$",
    r"\.(md|markdown|rst|adoc|textile|mdx|cff)$",
    r"(^|/)(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?)$",
    r"(^|/)(poetry|uv|pdm|composer|Pipfile|Cargo)\.lock$",
    r"(^|/)\.(travis|appveyor|readthedocs|pre-commit-config|codecov|gitlab-ci|cirrus|mailmap)[^/]*$",
    r"(^|/)(appveyor|azure-pipelines|codecov|renovate|mkdocs)[^/]*\.(ya?ml|json5?)$",
    r"(^|/)\.(gitignore|gitattributes|editorconfig|all-contributorsrc|git-blame-ignore-revs)$",
)
"""As ``TEST_RULES``, for every language; letter case is ignored."""
REQUIREMENTS = r"(^|/)requirements([-_.][^/]*)?\.(txt|in)$|(^|/)requirements/[^/]*\.(txt|in)$"
"""Lists of what development needs: neutral where no build file names them."""
SOURCE_SUFFIXES: dict[CodeLanguage, tuple[str, ...]] = {
    "python": (".py", ".pyi", ".pyx", ".pxd"),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "typescript": (".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs"),
    "c": (".c", ".h"),
    "cpp": (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h", ".ipp", ".inl"),
    "go": (".go",),
    "java": (".java",),
    "php": (".php",),
}
BUILD_FILES = re.compile(
    r"(^|/)(pyproject\.toml|setup\.(py|cfg)|MANIFEST\.in|package\.json|CMakeLists\.txt|pom\.xml"
    r"|meson\.build|Makefile(\.am)?|build\.gradle(\.kts)?|composer\.json|configure\.ac)$"
)


class SplitConfig(BaseModel):
    """What is told apart how, beyond the languages' own rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    test: tuple[Label, ...] = ()
    """More regular expressions for test files."""
    source: tuple[Label, ...] = ()
    """Regular expressions for files that are source whatever they look like; these come first."""
    neutral: tuple[Label, ...] = ()
    """More regular expressions for files that no build and no test reads."""


@dataclass(frozen=True)
class Split:
    """A change in two patches."""

    gold: tuple[FilePatch, ...]
    test: tuple[FilePatch, ...]
    neutral: tuple[FilePatch, ...]

    @property
    def gold_patch(self) -> str:
        """The gold patch as records hold it."""
        return join_patches(self.gold).decode()

    @property
    def test_patch(self) -> str:
        """The test patch as records hold it."""
        return join_patches(self.test).decode()


def classify(path: str, language: CodeLanguage, config: SplitConfig | None = None) -> Side:
    """What a path is by its name alone; ``gold`` means source, data and build files."""
    config = config or SplitConfig()
    if _search(config.source, path):
        return "gold"
    if _search((*TEST_RULES[language], *config.test), path):
        return "test"
    if _search((*NEUTRAL_RULES, REQUIREMENTS), path, re.IGNORECASE) or _search(
        config.neutral, path
    ):
        suffixes = SOURCE_SUFFIXES[language]
        in_folder = _search(NEUTRAL_RULES[:2], path, re.IGNORECASE)
        is_source = path.endswith(suffixes) and not in_folder
        return "gold" if is_source and not _search(config.neutral, path) else "neutral"
    return "gold"


def split_change(
    parts: Iterable[FilePatch],
    language: CodeLanguage,
    *,
    config: SplitConfig | None = None,
    separate: Callable[[FilePatch], Iterable[FilePatch]] | None = None,
    build_text: Callable[[], str] | None = None,
) -> Split:
    """Sort the parts of a change.

    Args:
        parts: the whole change.
        language: whose rules hold.
        config: rules of the caller's own.
        separate: gives a rename that crosses sides as a deletion and an addition; without it
            such a rename goes where its new path belongs.
        build_text: the text of the build files after the change; a neutral file that was added,
            deleted or renamed stays in the gold patch if they name it. Without it none does.
    """
    sides: dict[Side, list[FilePatch]] = {"gold": [], "test": [], "neutral": []}
    for part in parts:
        wanted = {classify(path, language, config) for path in part.paths}
        pieces = tuple(separate(part)) if len(wanted) > 1 and separate else (part,)
        for piece in pieces:
            side = classify(piece.path, language, config)
            if side == "neutral" and build_text and _is_read(piece, build_text):
                side = "gold"
            sides[side].append(piece)
    return Split(*(tuple(sides[name]) for name in ("gold", "test", "neutral")))


def main_language(files: dict[str, int]) -> CodeLanguage | None:
    """The language that most of a tree's bytes outside tests are written in; None for no known one.

    Args:
        files: path -> bytes.
    """
    totals: dict[CodeLanguage, int] = {}
    headers = 0
    for path, size in files.items():
        suffix = PurePosixPath(path).suffix.lower()
        found = _BY_SUFFIX.get(suffix)
        if _SKIPPED.search(path):
            continue
        headers += size if suffix == ".h" else 0
        if found:
            totals[found] = totals.get(found, 0) + size
    if headers:
        owner: CodeLanguage = "cpp" if totals.get("cpp", 0) > totals.get("c", 0) else "c"
        totals[owner] = totals.get(owner, 0) + headers
    return max(totals, key=totals.__getitem__, default=None)


_BY_SUFFIX: dict[str, CodeLanguage] = {
    **{s: "python" for s in (".py", ".pyx")},
    **{s: "javascript" for s in (".js", ".mjs", ".cjs", ".jsx")},
    **{s: "typescript" for s in (".ts", ".tsx", ".mts", ".cts")},
    **{s: "cpp" for s in (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx")},
    **{".c": "c", ".go": "go", ".java": "java", ".php": "php"},
}
_SKIPPED = re.compile(
    r"(^|/)(node_modules|vendor|third_party|dist|docs?|examples?|tests?|testdata|__tests__"
    r"|benchmarks?|cmake)/|\.min\.js$"
)


def _is_read(part: FilePatch, build_text: Callable[[], str]) -> bool:
    """Whether a build file names a neutral file that appears or vanishes, or lists what to install."""
    if part.old == part.new and not _search((REQUIREMENTS,), part.path):
        return False
    text = build_text()
    return any(PurePosixPath(path).name in text for path in part.paths)


def _search(rules: tuple[str, ...], path: str, flags: int = 0) -> bool:
    return bool(rules) and _compiled(rules, flags).search(path) is not None


@cache
def _compiled(rules: tuple[str, ...], flags: int) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{rule})" for rule in rules), flags)
