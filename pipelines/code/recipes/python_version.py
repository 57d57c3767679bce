"""Which Python a project of some day is tested with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles

RELEASED = {
    "3.6": "2016-12-23", "3.7": "2018-06-27", "3.8": "2019-10-14", "3.9": "2020-10-05",
    "3.10": "2021-10-04", "3.11": "2022-10-24", "3.12": "2023-10-02", "3.13": "2024-10-07",
    "3.14": "2025-10-07",
}  # fmt: skip
"""Day of each version's first release (PEPs 494 to 745)."""
_SETTLED = timedelta(days=180)
"""Time after a release by which most packages have wheels for it."""
_NOT_EDITABLE = "3.6"
"""No setuptools for it makes editable installs in the way of PEP 660; what it runs, 3.7 runs as well."""
_REQUIRES = re.compile(
    r"python[-_]requires\s*=\s*['\"]?([^'\"\n]+)|requires-python\s*=\s*['\"]([^'\"]+)"
)
_CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*(\d+)(?:\.(\d+|\*))?")


def choose_version(files: TreeFiles, cutoff: str | None, here: Sequence[str]) -> str:
    """Return the newest Python that is ``here``, suits the project and was half a year old at ``cutoff``.

    Where none was that old, one that was released by then will do, or the oldest that suits.

    Raises WorkspaceError when none that is here is allowed.
    """
    text = "\n".join(files.text(name) for name in ("pyproject.toml", "setup.cfg", "setup.py"))
    fit = [version for version in here if version in RELEASED and allowed(version, requires(text))]
    if not fit:
        raise WorkspaceError(
            f"the project requires Python {requires(text)!r}; available are {', '.join(here)}",
            "install one that fits (pyenv install ...)",
        )
    fit = [version for version in fit if version != _NOT_EDITABLE] or fit
    settled = {v: str(date.fromisoformat(RELEASED[v]) + _SETTLED) for v in fit}
    then = (
        [v for v in fit if cutoff is None or settled[v] <= cutoff]
        or [v for v in fit if RELEASED[v] <= (cutoff or "")]
        or fit[-1:]
    )
    named = set(_CLASSIFIER.findall(text))
    return next((version for version in then if version in named), then[0])


def requires(text: str) -> str:
    """The text of ``requires-python``; empty when there is none."""
    found = _REQUIRES.search(text)
    return (found[1] or found[2]).strip() if found else ""


def allowed(version: str, wanted: str) -> bool:
    """Whether ``3.N`` fulfils every clause (PEP 440, as far as minor versions tell)."""
    minor = int(version.split(".")[1])
    for sign, major_text, minor_text in _CLAUSE.findall(wanted):
        if minor_text == "*" or not minor_text:
            exact = int(major_text) == 3
            if (sign == "==" and not exact) or (sign == "<" and int(major_text) <= 3):
                return False
            continue
        if int(major_text) != 3:
            if (sign in ("<", "<=", "==") and int(major_text) < 3) or (
                sign in (">", ">=") and int(major_text) > 3
            ):
                return False
            continue
        limit = int(minor_text)
        holds = {
            ">=": minor >= limit, "~=": minor >= limit, ">": minor >= limit, "<=": minor <= limit,
            "<": minor < limit, "==": minor == limit, "!=": True,
        }[sign]  # fmt: skip
        if not holds:
            return False
    return True
