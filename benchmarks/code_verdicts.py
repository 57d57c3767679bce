"""Attack the verdicts of real code tasks, and measure what proving them costs.

``python -m benchmarks.code_verdicts DATASET... --out FILE`` takes the tasks of datasets that
``envgen generate code`` made. Where a task has no verdicts yet they are proven first. Then the gold patch is
judged, and attacks of ``tests/helpers/verdict_zoo.py`` play (beyond Python, of ``spliced_cheats.py``): first
against a run of all tests, which believes the report, then against look-alikes and alarms.
``benchmarks.code_instances --verdicts FILE`` shows the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envgen.core.code_types import CodeTests
from envgen.core.errors import EnvgenError
from envgen.core.surrogates import to_bytes
from envgen.environments.code_hosts import CodeHosts
from envgen.pipelines.code.verdicts import REHEARSALS, prove_verdicts, verdict_gate
from envgen.sandboxes.workspace import Workspace
from envgen.store.dataset import Dataset
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import run_tests, touched_paths
from envgen.verifiers.lookalikes.gutting import changed_lines, gutted, touched_functions
from envgen.verifiers.lookalikes.judging import Examiner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import spliced_cheats
import verdict_zoo
from spliced_cheats import Splice

BELIEVING: dict[str, Any] = {"canary_files": (), "alarms": {}, "registered": {}}
SUFFIXES = (".js", ".cjs", ".mjs", ".ts", ".go", ".java", ".php", ".c", ".cc", ".cpp", ".h", ".hpp")
_TIMES = 3
ANYTHING = "a value equals everything"
ATTACKS = (
    "reports of the hidden file are flipped",
    "reports of parametrised tests are flipped",
    ANYTHING,
    "what is new is inverted",
    "the most usual words pass",
    "what the base lacks passes",
    "the report is mended at exit",
    "the centre of look-alikes passes",
    "one of the look-alikes is guessed",
    "the first run's tests are kept for the next",
)
"""The audit's three, then a few that know more."""


def main() -> None:
    """Write a row for each task, as they come."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=10**6, help="Tasks of each dataset.")
    parser.add_argument("--attacks", type=int, default=len(ATTACKS), help="The first so many.")
    parser.add_argument("--rehearsals", type=int, default=REHEARSALS)
    parser.add_argument("--anew", action="store_true", help="Prove what is proven, too.")
    parser.add_argument("--retime", action="store_true", help="Only time again what FILE knows.")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    known = {row["task"] for row in rows}
    for folder in options.datasets:
        dataset = Dataset.open(folder)
        hosts = CodeHosts(dataset)
        names = [name for name in dataset.own_task_ids if (name in known) is options.retime]
        for name in names[: options.most]:
            try:
                if options.retime:
                    task = hosts.task(name)
                    workspace = hosts.workspace(task.public.environment_id)
                    found = next(row for row in rows if row["task"] == name)
                    found |= timed(workspace, task.tests, to_bytes(task.gold_patch))
                else:
                    chosen = ATTACKS[: options.attacks]
                    found = row(hosts, name, chosen, options.rehearsals, options.anew)
                    rows.append(found)
            except EnvgenError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            print(json.dumps(found), flush=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


def row(
    hosts: CodeHosts, name: str, attacks: Sequence[str], rehearsals: int, anew: bool
) -> dict[str, Any]:
    """What one task's verdicts are worth."""
    task = hosts.task(name)
    workspace = hosts.workspace(task.public.environment_id)
    gold, tests = to_bytes(task.gold_patch), task.tests
    spent = 0.0
    if anew or not tests.verdicts:
        tests = tests.model_copy(update={"questions": (), "verdicts": {}, "canary_files": ()})
        proven = prove_verdicts(workspace, tests, gold, rehearsals=rehearsals)
        tests, spent = proven.tests, proven.tests_s
    gate = verdict_gate(tests)
    return {
        "task": name,
        "language": workspace.recipe.language,
        "fail_to_pass": gate.n,
        "proven": int(gate.figure or 0),
        "kinds": {key: n for key, n in gate.details.items() if n and key not in ("runs", "odds")},
        "odds": gate.details["odds"],
        "copies": tests.copies,
        "proving_s": round(spent, 2),
        **timed(workspace, tests, gold),
        "attacks": dict(attacked(workspace, tests, gold, attacks)),
    }


def timed(workspace: Workspace, tests: CodeTests, gold: bytes) -> dict[str, Any]:
    """Medians of plain runs and judgements, in turns: other work on the machine slows both."""
    plain, judged, scores = [], [], []
    for _ in range(_TIMES):
        plain.append(run_tests(workspace, exam_of(tests).model_copy(update=BELIEVING), gold).wall_s)
        started = time.monotonic()
        scores.append(CodeVerifier(workspace, tests).verify_patch(gold))
        judged.append(time.monotonic() - started)
    worst = min(scores, key=lambda score: score.value)
    return {
        "gold": worst.value,
        "gold_reasons": list(worst.reasons[:2]),
        "plain_s": round(statistics.median(plain), 2),
        "judged_s": round(statistics.median(judged), 2),
    }


def attacked(
    workspace: Workspace, tests: CodeTests, gold: bytes, attacks: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Attack -> ``believed`` (by look-alikes, too), ``caught``, or ``idle``: it fools nobody here."""
    python = workspace.recipe.language == "python"
    cheats: dict[str, Splice | None] = dict.fromkeys(attacks) if python else {
        one.name: one for one in spliced_cheats.SPLICES[workspace.recipe.language]
    }  # fmt: skip
    for attack, splice in cheats.items():
        change = (
            patch(workspace, tests, gold, attack)
            if splice is None
            else spliced(workspace, tests, gold, splice)
        )
        run = run_tests(workspace, exam_of(tests).model_copy(update=BELIEVING), change)
        statuses = {} if run.report is None else run.report.statuses()
        if not any(statuses.get(test) == "pass" for test in tests.fail_to_pass):
            yield attack, "idle"
            continue
        whole = score_run(run, tests).passed
        examiner = Examiner(workspace, tests, exam_of(tests))
        alarmed = (
            run_tests(workspace, exam_of(tests), change).report is None if not python else False
        )
        caught = alarmed or next(examiner.faults(change), None) is not None
        yield attack, f"{'caught' if caught else 'believed'}{'' if whole else ' of some tests'}"


def spliced(workspace: Workspace, tests: CodeTests, gold: bytes, cheat: Splice) -> bytes:
    """What a trick submits: its code in the first source file of the gold patch, which stays unmended."""
    touched = [path for path in touched_paths(gold) if path not in tests.test_files]
    files = touched_paths(to_bytes(tests.test_patch))
    told = " ".join(tests.fail_to_pass)
    own = next((file for file in files if Path(file).stem in told), files[0])
    with workspace.open() as opened:
        for path in touched:
            if path.endswith(SUFFIXES) and opened.shell(f"test -f '{path}'").exit_code == 0:
                source = opened.read(path).decode("utf-8", "surrogateescape")
                made = cheat.into(source, own).encode("utf-8", "surrogateescape")
                opened.write(path, made)
                break
        return opened.diff()


def patch(workspace: Workspace, tests: CodeTests, gold: bytes, attack: str) -> bytes:
    """What an attack submits: its code behind the first file of the gold patch, which stays unmended."""
    code = next(one.code for one in verdict_zoo.ATTACKS if one.name == attack)
    own = tests.fail_to_pass[0].partition("::")[0]
    code = code.replace("tests/test_forms.py", own).replace("test_forms", Path(own).stem)
    with workspace.open() as opened:
        opened.apply(gold)
        touched = {
            path: touched_functions(opened.read(path), lines)
            for path, lines in changed_lines(gold).items()
            if path.endswith(".py") and path not in tests.test_files
        }
    with workspace.open() as opened:
        paths = [path for path in touched if opened.shell(f"test -f '{path}'").exit_code == 0]
        for path in paths:
            source = opened.read(path)
            if attack == ANYTHING:
                anything = code.partition("\n\ndef double")[0].encode()
                source = gutted(source, touched[path]).replace(
                    b"raise NotImplementedError", b"return _ANY"
                )
                opened.write(path, source + b"\n" + anything + _ANY_NAME)
            elif path == paths[0]:
                opened.write(path, source + b"\n\n" + code.encode() + _ANY_NAME)
        return opened.diff()


_ANY_NAME = b"""

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *given, **named: None
"""
"""What a new test imports is there."""


if __name__ == "__main__":
    main()
