"""Which slow proofs are due: those of rooms that commits of the last two days touched, within a budget.

    python3 .ci/slow.py                     print the test folders of those rooms
    python3 .ci/slow.py pick SECONDS        print their slow tests, at most so many processor seconds
    python3 .ci/slow.py measure FILE.xml    update tests/slow_tests.txt from JUnit results

Tests of no room are always due, and without git history all are. What a budget leaves out differs from commit
to commit. Results to measure come from ``make test`` and ``make test-slow``, run with
``PYTEST_ADDOPTS="-o junit_duration_report=call --junitxml FILE.xml"``.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

DAYS = 2
SPLIT = ("pipelines", "verifiers", "sandboxes")
"""Rooms whose parts have test folders of their own."""
ROOT = Path(__file__).parents[1]
LIST = Path("tests", "slow_tests.txt")
LIMIT_S = 1.5
"""What takes longer is slow, on a machine where all of ``make test`` should take eight minutes."""


def due(root: Path) -> list[str]:
    """Folders below ``root``, sorted; ``tests`` alone: all of them."""
    told = _git(root, "log", f"--since={DAYS}.days", "--format=", "--name-only")
    if told is None or _git(root, "rev-parse", "--is-shallow-repository") != "false":
        return ["tests"]
    found = {place for name in told.split() if (place := _tests_of(root, Path(name)))}
    return sorted(str(one) for one in found if not found & set(one.parents))


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
    )
    return None if done.returncode else done.stdout.strip()


def _tests_of(root: Path, changed: Path) -> Path | None:
    """The tests of a changed file's room, where it has any."""
    if changed.parts[0] == "examples":
        return Path("tests/test_examples.py")
    parts = [part for part in changed.parent.parts if part not in ("envgen", "tests")]
    if not parts or parts[0] in ("helpers", "data"):
        return None
    place = Path("tests", *parts[: 2 if parts[0] in SPLIT else 1])
    place = place if (root / place).is_dir() else place.parent
    return place if place != Path("tests") and (root / place).is_dir() else None


def listed(root: Path) -> dict[str, float]:
    """The slow tests by their ids, and the seconds that they took."""
    lines = (root / LIST).read_text("utf-8").splitlines()
    rows = (line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in rows}


def pick(root: Path, budget_s: float) -> list[str]:
    """Slow tests of the rooms that are due, drawn by the commit until a budget is spent."""
    rooms = due(root)
    own = {
        name: seconds
        for name, seconds in listed(root).items()
        if name.count("/") == 1 or any(name.startswith((f"{room}/", f"{room}::")) for room in rooms)
    }
    order = sorted(own)
    random.Random(_git(root, "rev-parse", "HEAD") or "").shuffle(order)
    found: list[str] = []
    for name in order:
        if own[name] <= budget_s:
            budget_s -= own[name]
            found.append(name)
    left = len(own) - len(found)
    print(
        f"slow proofs of {', '.join(rooms) or 'no room'}: {len(found)} of {len(own)} tests"
        + (f", {left} more than the budget allows (make test-slow runs all)" if left else ""),
        file=sys.stderr,
    )
    return sorted(found)


_AUTHOR = "tests/pipelines/author/test_"
KEPT = (
    "tests/environments/test_code.py::test_an_agent_that_mends_the_fault_is_paid",
    "tests/pipelines/code/test_import_records.py::test_what_is_not_proven_is_compared_too",
    "tests/pipelines/search/test_agents.py::test_models_write_questions_that_are_proven_played_and_paid_once",
    "tests/pipelines/search/test_agents.py::test_no_bad_question_is_kept[a verifier that says yes]",
    "tests/pipelines/search/test_agents.py::test_recorded_models_give_what_they_gave[715133]",
    _AUTHOR + "authored.py::test_no_bad_page_is_kept[a reader who is never content]",
    _AUTHOR + "code_form.py::test_no_bad_environment_is_kept[checks that accept everything]",
    "tests/core/test_borders.py::test_every_leaf_states_a_limit",
    "tests/core/test_borders.py::test_the_walk_finds_what_is_read",
    "tests/test_structure.py::test_one_class_has_one_name",
)
"""Over the limit, and not slow all the same: of 24 mutants the first two alone saw one each; the others are
the whole path of questions that models write, and what any change may break."""


def measure(root: Path, *results: str) -> None:
    """Add what took long to the list, and write the seconds of what is in it anew."""
    found = {}
    for file in results:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            if not case.get("classname"):  # a file that was skipped whole
                continue
            name = case.get("name", "")
            name = name.rpartition("@")[0] or name  # xdist's group
            module, _, rest = case.get("classname", "").partition(".Test")
            path = f"{module.replace('.', '/')}.py"
            found[f"{path}::{'Test' + rest + '::' if rest else ''}{name}"] = float(
                case.get("time", "0")
            )
    old = listed(root) if (root / LIST).is_file() else {}
    slow = old | {name: s for name, s in found.items() if s >= LIMIT_S or name in old}
    slow = {name: s for name, s in slow.items() if name not in KEPT}
    head = "# Tests that are slow, with seconds; written by `python3 .ci/slow.py measure`.\n"
    lines = "".join(f"{slow[name]:.1f} {name}\n" for name in sorted(slow))
    (root / LIST).write_text(head + lines, "utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(*due(ROOT))
        case ["pick", seconds]:
            print(*pick(ROOT, float(seconds)), sep="\n")
        case ["measure", *files] if files:
            measure(ROOT, *files)
        case _:
            sys.exit(__doc__)
