"""What the test script of a package.json runs: the runner, its options, and what comes before it."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

_RUNNERS = {"jest": "jest", "vitest": "vitest", "mocha": "mocha", "_mocha": "mocha"}
_SPLIT = re.compile(r"\s*(?:&&|\|\||;)\s*")
_CALL = re.compile(
    r"^(?:npm(?:\s+run(?:-script)?)?|yarn(?:\s+run)?|pnpm(?:\s+run)?)\s+(?:-s\s+|--silent\s+)?([\w:.-]+)"
)
_VARIABLE = re.compile(r"^([A-Za-z_]\w*)=(.*)$")
_DROP = re.compile(
    r"^(--?(coverage|reporters?|watch(All)?|bail|ci|silent|verbose|outputFile|forceExit|u|w|b|"
    r"updateSnapshot|run|ui|allowOnly|no-watch)(=.*|\..*)?|--coverage\S*)$"
)
_TAKES_VALUE = re.compile(r"^(-R|--reporters?|--outputFile|--reporter-options?|-O|--bail)$")
_LINT = re.compile(
    r"lint|prettier|format|tsd|typecheck|type-check|coverage|clean|size|standard|audit"
)
_BUILDS = re.compile(r"build|compile|tsc|babel|rollup|bundle|prepare|generate|make")
_DEPTH = 5


class RunnerCall(NamedTuple):
    """How a package's tests are run."""

    runner: str
    options: str = ""
    variables: dict[str, str] = {}
    before: tuple[str, ...] = ()
    """Scripts that run before the tests and make something."""


def find_test_command(package: dict[str, Any]) -> RunnerCall | None:
    """The runner that ``npm test`` reaches; else the one among the dependencies; None: no known one."""
    scripts = {
        name: command
        for name, command in package.get("scripts", {}).items()
        if isinstance(command, str)
    }
    steps = [step for name in _test_scripts(scripts) for step in _expanded(scripts, name, _DEPTH)]
    before: list[str] = []
    for script, step in steps:
        if found := _command(step):
            return found._replace(before=tuple(dict.fromkeys(before)))
        if _BUILDS.search(f"{script} {step}") and not _LINT.search(f"{script} {step}"):
            before.append(script)
    dependencies = {**package.get("dependencies", {}), **package.get("devDependencies", {})}
    known = next((name for name in ("vitest", "jest", "mocha") if name in dependencies), None)
    return RunnerCall(known) if known else None


def _test_scripts(scripts: dict[str, str]) -> list[str]:
    """``test``, then other scripts that may run the tests; never linters."""
    rest = [name for name in scripts if re.match(r"^(test|unit|mocha|jest|vitest|node)\b", name)]
    return [
        name
        for name in dict.fromkeys(["test", *rest])
        if name in scripts and not _LINT.search(name)
    ]


def _expanded(scripts: dict[str, str], name: str, depth: int) -> list[tuple[str, str]]:
    """The steps of a script with the scripts it calls put in their place: (script, step)."""
    found: list[tuple[str, str]] = []
    for part in (f"pre{name}", name):
        for step in _SPLIT.split(scripts.get(part, "")):
            call = _CALL.match(step)
            called = call[1] if call else ""
            if called in ("t", "tst"):
                called = "test"
            if called in scripts and called != name and depth:
                below = _expanded(scripts, called, depth - 1)
                found += (
                    below if any(_command(s) for _, s in below) else [(called, scripts[called])]
                )
            elif step:
                found.append((part, step))
    return found


def _command(step: str) -> RunnerCall | None:
    try:
        words = shlex.split(step)
    except ValueError:
        return None
    variables: dict[str, str] = {}
    for place, word in enumerate(words):
        name = word.rpartition("/")[2].removesuffix(".js")
        if name in _RUNNERS:
            return RunnerCall(_RUNNERS[name], _options(words[place + 1 :]), variables)
        if name == "node" and any(other == "--test" for other in words[place + 1 : place + 8]):
            return RunnerCall("node-test", _node_options(words[place + 1 :]), variables)
        if (set_ := _VARIABLE.match(word)) and not word.startswith("-"):
            variables[set_[1]] = set_[2]
    return None


def _options(words: list[str]) -> str:
    """A runner's words without those about reports, coverage and watching."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif _TAKES_VALUE.match(word):
            skip = word != "--bail"
        elif word == "|" or word.startswith((">", "2>")):
            break
        elif word != "run" and not _DROP.match(word):
            kept.append(word)
    return shlex.join(kept)


def _node_options(words: list[str]) -> str:
    """Node's own options that load something; the files are found by the runner."""
    kept = []
    for place, word in enumerate(words):
        if word in ("-r", "--require", "--import", "--loader") and place + 1 < len(words):
            kept += [word, words[place + 1]]
        elif re.match(r"--(require|import|loader|experimental)[=-]", word):
            kept.append(word)
    return shlex.join(kept)
