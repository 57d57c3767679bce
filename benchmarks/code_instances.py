"""Which instances of real repositories were proven here, and why the others were not.

``python -m benchmarks.code_instances FOLDER`` reads what ``envgen generate code`` has left below FOLDER
(datasets, ``OUT.outcomes.jsonl``, ``OUT.json``) and writes ``docs/figures/code_instances.json`` and
``docs/code_instances.md``; nothing in them is typed by hand. With ``--tricks FILE`` (repeatable) it adds what
``benchmarks.code_tricks`` found. No code of the repositories is written, only ids, counts and times.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.surrogates import from_json
from envgen.pipelines.code.bundle import INSTANCE, task_id
from envgen.pipelines.code.prove import Outcome
from envgen.store.dataset import Dataset

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures" / "code_instances.json"
PAGE = ROOT / "docs" / "code_instances.md"
ENDING = ".outcomes.jsonl"
WANTED = {"python": 40} | dict.fromkeys(
    ("javascript", "typescript", "c", "cpp", "go", "java", "php"), 3
)
"""How many kept instances of each language are aimed at."""


class Source(NamedTuple):
    """One run of ``envgen generate code``."""

    out: Path
    outcomes: list[Outcome]
    date: str
    """Day on which it ended (UTC)."""


def main() -> None:
    """Write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="Without: its figures stay.")
    parser.add_argument("--tricks", type=Path, action="append", default=[])
    parser.add_argument("--verdicts", type=Path, help="What benchmarks.code_verdicts wrote.")
    parser.add_argument("--yields", type=Path, help="What benchmarks.code_yield wrote.")
    options = parser.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures = collect(options.folder, options.tricks) if options.folder else known
    found = known.get("verdicts", [])
    if options.verdicts:  # of other tasks, what is known stays
        found += json.loads(options.verdicts.read_text())
    figures["verdicts"] = list({row["task"]: row for row in found}.values())
    if options.yields or "yields" in known:
        figures["yields"] = (
            json.loads(options.yields.read_text()) if options.yields else known["yields"]
        )
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(figures))
    kept = Counter(row["language"] for row in figures["kept"])
    print(", ".join(f"{name} {kept[name]}/{wanted}" for name, wanted in WANTED.items()))


def collect(folder: Path, tricks: list[Path]) -> dict[str, Any]:
    """The figures of every run below ``folder``."""
    kept: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    runs = []
    for source in sources(folder):
        records = instances(source.out)
        language = source.out.parent.name
        summary = source.out.with_name(f"{source.out.name}.json")
        mined = json.loads(summary.read_text())["mined"] if summary.exists() else {}
        runs.append({"run": source.out.name, "language": language, "mined": mined})
        for outcome in source.outcomes:
            row = figures_of(outcome, language, source.date)
            record = records.get(task_id(outcome.validation.instance_id))
            if outcome.validation.kept and record is not None:
                kept.append(row | change(record))
            elif not outcome.validation.kept:
                rejected.append(row | {"reason": str(outcome.validation.reason)})
    return {
        "command": "envgen generate code --clone CLONE --repo OWNER/NAME --repeats 3 --more 10",
        "kept": sorted(kept, key=lambda row: (row["language"], row["repository"], row["id"])),
        "rejected": sorted(rejected, key=lambda row: (row["language"], row["id"])),
        "runs": sorted(runs, key=lambda row: (row["language"], row["run"])),
        "tricks": [row for path in tricks for row in json.loads(path.read_text())],
    }


def sources(folder: Path) -> Iterator[Source]:
    """Every run below ``folder``, by its outcomes; of an unfinished one, those known so far."""
    for path in sorted(folder.rglob(f"*{ENDING}")):
        lines = [line for line in path.read_text().splitlines() if line]
        out = path.with_name(path.name.removesuffix(ENDING))
        yield Source(out, [from_json(Outcome, line) for line in lines], _day(path))
    for path in sorted(folder.rglob("*.partial/outcomes")):
        out = path.parent.with_suffix("")
        files = sorted(path.glob("*.json"))
        if files and not out.with_name(out.name + ENDING).exists():
            found = [from_json(Outcome, file.read_text()) for file in files]
            yield Source(out, found, _day(files[-1]))


def _day(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()


def instances(out: Path) -> dict[str, dict[str, Any]]:
    """Task id -> what the dataset at ``out`` says of its instance; empty without a dataset."""
    if not (out / "dataset.json").exists():
        return {}
    dataset = Dataset.open(out)
    found = {}
    for name in dataset.own_task_ids:
        record = dataset.task_files(name).constraints
        assert isinstance(record, dict)
        instance = record[INSTANCE]
        assert isinstance(instance, dict)
        found[name] = instance
    return found


def figures_of(outcome: Outcome, language: str, date: str) -> dict[str, Any]:
    """What proving one instance took and gave."""
    found = outcome.validation
    return {
        "id": found.instance_id,
        "language": language,
        "fail_to_pass": len(found.tests.fail_to_pass) if found.tests else 0,
        "pass_to_pass": len(found.tests.pass_to_pass) if found.tests else 0,
        "unstable": len(found.tests.unstable) if found.tests else 0,
        "canary_files": len(found.tests.canary_files) if found.tests else 0,
        "runs": found.runs,
        "build_s": round(outcome.build_s, 1),
        "tests_s": round(found.tests_s, 1),
        "proof_s": round(found.wall_s, 1),
        "date": date,
    }


def change(record: dict[str, Any]) -> dict[str, Any]:
    """Where an instance comes from."""
    return {
        "repository": record["repo"],
        "pull_request": record["pull_number"],
        "base_commit": record["base_commit"][:12],
        "kind": record["kind"],
        "landed": record["created_at"][:10],
    }


def page(figures: dict[str, Any]) -> str:
    """The figures as a page of documentation."""
    kept, rejected = figures["kept"], figures["rejected"]
    parts = [_HEAD, _languages(kept, rejected), "## Kept\n", _kept(kept)]
    parts += ["## Not kept\n", _rejected(rejected), _HOW]
    if figures.get("verdicts"):
        parts += ["## Verdicts\n", _VERDICTS, _verdicts(figures["verdicts"])]
    if figures.get("yields"):
        parts += ["## Yield\n", _YIELDS, _yields(figures["yields"])]
    if figures["tricks"]:
        parts += ["## Tricks\n", _TRICKS, _tricks(figures["tricks"])]
    return "\n".join(parts)


_HEAD = """\
# Real instances

Changes of public repositories that `envgen generate code` has proven, from clones with their whole
history: each state (base, test patch, test patch and gold patch) run three times, then the frozen
recipe built anew and ten more runs of what was kept. `docs/figures/code_instances.json` holds the
same figures; `python -m benchmarks.code_instances FOLDER` writes both.
"""
_HOW = """\
`canaries` is the number of test files that have canaries inside; without one, only the two tests
beside the project's watch. What each reason means stands in `docs/code.md`; `mined` in the figures
tells which changes were no instances at all. Two runs went on at once, on the two threads of one
core, with other work beside them: times are upper bounds, not speeds. Of some Python repositories
only the test files of the test patch were run. Repositories were chosen for dependencies that can
be had from PyPI, npm and Debian alone; candidates are the newest changes that mining found in the
days asked for, in their order.
"""
_TRICKS = """\
For a sample of kept instances: the score of the gold patch, of no change, of the test patch alone,
and how many tricks (`benchmarks.code_tricks`: tests deleted, emptied, linked, ignored; runners
configured, shadowed and patched; processes that leave; reports forged) scored anything but 0.
"""


_VERDICTS = """\
What look-alikes prove (`benchmarks.code_verdicts`; kinds and odds: `docs/code.md`). An attack stands in a
file of the gold patch, which is not mended; it counts where at least one fail-to-pass test passes when the
report is believed, and is caught if the task then scores 0. `cost` is the time of judging the gold patch
over that of a plain run of its tests. Those of ufo, picomatch, cookie and Python, but for pluggy-504, -545,
flask-c17f and cachetools, are medians of three pairs on two quiet cores; the others were timed once, beside
other work at a load of 5-25: ratios say more than seconds. Beyond Python the instances were proven by one or
two runs of each state and one more. An attack that fools
nobody even where the report is believed says nothing of look-alikes: on tasks without one that does, the
verdicts were proven and never attacked.
"""


_YIELDS = """\
What became of the same published pull requests (of repositories of SWE-bench and SWE-Gym) in version 0.1.0
(`before`) and at 8db3138 (`after`; what was lost there, and four controls, again at 6eae1f0): `kept`, or why
not. `benchmarks.code_yield` compared the outcomes of `envgen generate code --instances FILE --only-touched
--allow-missing --repeats 1 --more 0`; the statements are those of the pull requests' own commits.
"""


def _languages(kept: list[dict[str, Any]], rejected: list[dict[str, Any]]) -> str:
    rows = []
    for language, wanted in WANTED.items():
        own = [row for row in kept if row["language"] == language]
        reasons = Counter(row["reason"] for row in rejected if row["language"] == language)
        told = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
        repositories = len({row["repository"] for row in own})
        tried = len(own) + reasons.total()
        rows.append([language, tried, f"{len(own)} (aim: {wanted})", repositories, told])
    return _table(["language", "tried", "kept", "repositories", "not kept"], rows)


def _kept(kept: list[dict[str, Any]]) -> str:
    head = ["language", "repository", "change", "kind", "F2P", "P2P", "canaries", "runs"]
    head += ["build s", "proof s"]
    rows = [
        [
            row["language"],
            row["repository"],
            f"#{row['pull_request']}" if row["pull_request"] else row["id"].rpartition("-")[2],
            row["kind"].replace("_", " "),
            row["fail_to_pass"],
            row["pass_to_pass"],
            row["canary_files"],
            row["runs"],
            row["build_s"],
            row["proof_s"],
        ]
        for row in kept
    ]
    return _table(head, rows)


def _rejected(rejected: list[dict[str, Any]]) -> str:
    rows = [[row["language"], row["id"], row["reason"], row["runs"]] for row in rejected]
    return _table(["language", "instance", "reason", "runs"], rows)


def _verdicts(rows: list[dict[str, Any]]) -> str:
    head = ["language", "task", "proven", "kinds", "odds", "gold", "plain s", "judged s", "cost"]
    head += ["attacks that fool a report", "caught", "believed"]
    lines = []
    rows = [{"language": "python"} | row for row in rows]
    for row in sorted(rows, key=lambda row: (row["language"], row["task"])):
        said = [told for told in row["attacks"].values() if told != "idle"]
        lost = [name for name, told in row["attacks"].items() if told.startswith("believed")]
        lines.append(
            [
                row["language"],
                row["task"],
                f"{row['proven']} of {row['fail_to_pass']}",
                ", ".join(f"{n} {kind}" for kind, n in row["kinds"].items()),
                f"1/{1 / row['odds']:.0f}",
                row["gold"],
                row["plain_s"],
                row["judged_s"],
                f"{row['judged_s'] / row['plain_s']:.1f}",
                len(said),
                len(said) - len(lost),
                ", ".join(lost) or "none",
            ]
        )
    return _table(head, lines)


def _yields(rows: list[dict[str, str]]) -> str:
    kept = [sum(row[side] == "kept" for row in rows) for side in ("before", "after")]
    lines = [[row["instance"], row["before"], row["after"]] for row in rows]
    lines.append([f"kept of {len(rows)}", *kept])
    return _table(["instance", "before", "after"], lines)


def _tricks(tricks: list[dict[str, Any]]) -> str:
    head = ["language", "instance", "gold", "no change", "tests alone", "tricks", "that scored"]
    rows = []
    for row in tricks:
        scores = row["tricks"]
        won = [name for name, value in scores.items() if value]
        rows.append(
            [
                row["language"],
                row["id"],
                row["gold"],
                row["empty"],
                row["tests_alone"],
                len(scores),
                ", ".join(won) or "none",
            ]
        )
    return _table(head, rows)


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    main()
