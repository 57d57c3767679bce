"""Cheap reasons not to build a change: each is a threshold of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from envgen.core.code_types import CodeLanguage
from envgen.core.limits import Label
from envgen.core.patches import FilePatch
from envgen.pipelines.code.split import SOURCE_SUFFIXES, Split, SplitConfig, classify

CHORES = (
    r"^(build\(deps\)|chore(\([^)]*\))?!?:|ci(\([^)]*\))?:|docs?(\([^)]*\))?:|style(\([^)]*\))?:)",
    r"^(bump|release|version|prepare|update (pre-commit|dependenc|requirement|copyright|license))\b",
    r"^\[?pre-commit|\bautoupdate\b|^apply (black|isort|ruff)|^(re)?format|^fix(ed|es)? (typo|lint)",
    r"^v?\d+\.\d+(\.\d+)?\b|^revert\b|^merge (branch|remote|tag|commit|upstream|master|main)\b",
)
BOTS = re.compile(
    r"\[bot\]$|^(dependabot|renovate|pyup|greenkeeper|pre-commit-ci|github-actions)", re.I
)


class ChangeFilter(BaseModel):
    """Which changes are worth building. ``LITE`` holds the thresholds of SWE-bench Lite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_files: int = Field(default=200, ge=1)
    """Files of the change, documentation included: more are not looked at."""
    max_gold_files: int = Field(default=20, ge=1)
    """Files of the gold patch."""
    max_gold_lines: int = Field(default=500, ge=1)
    """Lines that the gold patch adds or removes."""
    max_hunks: int = Field(default=100, ge=1)
    """Hunks of the gold patch."""
    max_test_lines: int = Field(default=2_000, ge=1)
    """Lines that the test patch adds or removes."""
    max_patch_bytes: int = Field(default=1_000_000, ge=1)
    """Bytes of both patches."""
    min_words: int = Field(default=3, ge=0)
    """Words of the problem statement."""
    max_statement_chars: int = Field(default=100_000, ge=1)
    """Characters of the problem statement."""
    same_files: bool = False
    """Whether adding, deleting or renaming source files rules a change out."""
    binary_gold: bool = False
    """Whether the gold patch may hold binary files."""
    chores: tuple[Label, ...] = CHORES
    """Regular expressions on the title, letter case ignored: what is no change of behaviour."""
    bots: bool = False
    """Whether changes of bots count."""
    links: bool = True
    """Whether the statement may hold web addresses."""
    images: bool = True
    """Whether the statement may hold images."""
    references: bool = True
    """Whether the statement may name commits (40 hex digits) or ``#12``."""
    exact_messages: bool = True
    """Whether the test patch may match error messages (``pytest.raises(..., match=)``)."""


LITE = ChangeFilter(
    max_gold_files=1,
    max_hunks=3,
    max_gold_lines=25,
    same_files=True,
    min_words=41,
    links=False,
    images=False,
    references=False,
    exact_messages=False,
)
"""SWE-bench Lite's criteria."""


def title_reason(title: str, author: str, config: ChangeFilter) -> str | None:
    """Why a change is ruled out by its title or author; None if it is not."""
    if not config.bots and BOTS.search(author):
        return "made by a bot"
    if any(re.search(rule, title, re.IGNORECASE) for rule in config.chores):
        return "a chore by its title"
    return None


def path_reasons(
    paths: Sequence[str],
    language: CodeLanguage,
    config: ChangeFilter,
    split: SplitConfig | None = None,
) -> Iterator[str]:
    """Why a change is ruled out by the paths that it touches: every reason that holds."""
    if len(paths) > config.max_files:
        yield f"over {config.max_files} files"
        return
    sides = [(path, classify(path, language, split)) for path in paths]
    suffixes = SOURCE_SUFFIXES[language]
    if not any(side == "gold" and path.endswith(suffixes) for path, side in sides):
        yield f"no {language} source file in the gold patch"
    if not any(side == "test" for _, side in sides):
        yield "no tests in the change"


def patch_reasons(split: Split, config: ChangeFilter) -> Iterator[str]:
    """Why a change is ruled out by its patches: every reason that holds."""
    yield from _unbuildable((*split.gold, *split.test))
    gold, test = split.gold, split.test
    if not any(part.added or part.binary for part in test):
        yield "tests are only removed"
    if len(gold) > config.max_gold_files:
        yield f"over {config.max_gold_files} gold files"
    if _lines(gold) > config.max_gold_lines:
        yield f"over {config.max_gold_lines} gold lines"
    if sum(part.hunks for part in gold) > config.max_hunks:
        yield f"over {config.max_hunks} hunks"
    if _lines(test) > config.max_test_lines:
        yield f"over {config.max_test_lines} test lines"
    if sum(len(part.text) for part in (*gold, *test)) > config.max_patch_bytes:
        yield f"over {config.max_patch_bytes} bytes of patches"
    if config.same_files and any(part.old != part.new for part in gold):
        yield "source files added, deleted or renamed"
    if not config.binary_gold and any(part.binary for part in gold):
        yield "binary files in the gold patch"
    if not config.exact_messages and any(_EXACT.search(part.text) for part in test):
        yield "tests match error messages"


def statement_reasons(statement: str, config: ChangeFilter) -> Iterator[str]:
    """Why a change is ruled out by its problem statement: every reason that holds."""
    if len(statement.split()) < config.min_words:
        yield f"statement under {config.min_words} words"
    if len(statement) > config.max_statement_chars:
        yield f"statement over {config.max_statement_chars} characters"
    if not config.images and _IMAGE.search(statement):
        yield "images in the statement"
    if not config.links and _LINK.search(statement):
        yield "web addresses in the statement"
    if not config.references and _REFERENCE.search(statement):
        yield "commits or issues named in the statement"


_EXACT = re.compile(rb"^\+.*\b(raises|assertRaisesRegex|warns)\b.*(match|Regex)", re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\]]*\]\(|<img\b", re.IGNORECASE)
_LINK = re.compile(r"https?://|\]\(", re.IGNORECASE)
_REFERENCE = re.compile(r"\b[0-9a-f]{40}\b|(?<!\w)#\d+\b")


def _unbuildable(parts: Iterable[FilePatch]) -> Iterator[str]:
    parts = tuple(parts)
    if any(part.submodule for part in parts):
        yield "a submodule changed"
    if any(part.lfs for part in parts):
        yield "a git LFS pointer changed"


def _lines(parts: Iterable[FilePatch]) -> int:
    return sum(part.added + part.removed for part in parts)
