"""Judge patches with envgen and with SWE-bench's harness: do they agree, and what does it cost?

    python -m benchmarks.swebench_peer DATASET --peer PYTHON [--task ID ...] [--patches DIR]

PYTHON is an interpreter that has ``swebench`` (5.0 or later). DATASET holds Python code tasks. Theirs are
``load_instances``, ``make_test_spec``, ``run_instance`` (container, patch, eval script, log), the log parser
``parse_log_pytest`` and the grading. Set up here: the image (our layers, the tree at ``/testbed``), the eval
script (SWE-bench's form: test files checked out, test patch applied, ``pytest -rA``, between their marks) and
the record, with the tests that envgen proved. An empty patch is unresolved to them without a run, as in their
``main``. Patches are ``benchmarks.swebench_patches`` and DIR/TASK/*.patch.

A run's overhead is all of its seconds less those of the test command: in envgen from opening the
workspace to the score, in the harness those of ``run_instance``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.swebench_patches import patches
from envgen.core.code_types import DEPENDENCIES, REPOSITORY, CodeTests, Recipe
from envgen.core.surrogates import to_bytes
from envgen.environments.code_hosts import RECIPE, TREE, host_certificates
from envgen.pipelines.code.export import instance_of
from envgen.pipelines.code.formats.ids import published_id
from envgen.sandboxes.workspace import Workspace, build_workspace
from envgen.sandboxes.workspace.parts import environment
from envgen.store.dataset import Dataset
from envgen.verifiers.code import exam_of, score_run
from envgen.verifiers.code_run import run_tests, touched_paths

BACKENDS = ("bubblewrap", "docker")
OVERHEAD_S = {"bubblewrap": 1.0, "docker": 5.0}
"""Targets."""
PLACE = "/testbed"
_SILENT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
DRIVER = """
import contextlib, json, sys, time
from swebench.harness.run_evaluation import _docker_client, load_instances, run_instance
from swebench.harness.utils import make_test_spec
[instance] = load_instances("instance.json", "test", None, None)
client, spec = _docker_client(), make_test_spec(instance)
for line in sys.stdin:
    prediction = json.loads(line)
    began = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        done = prediction["model_patch"] and run_instance(spec, prediction, client, "peer", 1800)
    resolved = bool(done and done[1][spec.instance_id]["resolved"])
    print(json.dumps([resolved, time.monotonic() - began]), flush=True)
"""
EVAL = """#!/bin/bash
set -uxo pipefail
{variables}
cd {place}
git config --global --add safe.directory '*'
git status
git show --stat
{checkout}
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
began=$(date +%s.%N)
: '>>>>> Start Test Output'
python -m pytest -rA -p no:cacheprovider {options} {files}
: '>>>>> End Test Output'
echo "seconds of the tests: $began $(date +%s.%N)"
{checkout}
"""


class Verdict(NamedTuple):
    """What one side said of one patch."""

    resolved: bool
    wall_s: float
    tests_s: float | None
    """None: the tests never ran."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--peer", required=True, help="a Python with swebench")
    parser.add_argument("--layer", default="python", help="language layer, for both sides")
    parser.add_argument("--task", action="append", help="only this one; repeatable")
    parser.add_argument("--patches", type=Path, help="more patches: DIR/TASK/*.patch")
    parser.add_argument("--patch", action="append", help="only this one; repeatable")
    parser.add_argument(
        "--backend", action="append", choices=BACKENDS, help="of ours; default: both"
    )
    parser.add_argument("--json", type=Path, help="also write every verdict to this file")
    options = parser.parse_args()
    dataset = Dataset.open(options.dataset)
    names = options.task or [n for n, task in dataset.tasks.items() if task.family == "code"]
    print(f"load {os.getloadavg()[0]:.1f}")
    rows: list[dict[str, Any]] = []
    for name in names:
        for row in judged(dataset, name, options):
            rows.append(row)
            show(row)
    summary(rows)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


def judged(dataset: Dataset, task: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every patch of a task, judged by both in turns."""
    instance, tests = instance_of(dataset, task)
    image = workspace(dataset, task, options.layer, "docker")
    built = {"docker": image, "bubblewrap": workspace(dataset, task, options.layer, "bubblewrap")}
    folder = options.patches / task if options.patches else None
    wanted = dict(patches(built["bubblewrap"], instance.gold_patch, folder))
    chosen = {name: wanted[name] for name in options.patch or wanted if name in wanted}
    with Harness(options.peer, image, instance.id, tests) as theirs:
        for name, patch in chosen.items():
            ours = options.backend or BACKENDS
            sides = {backend: envgen(built[backend], tests, patch) for backend in ours}
            sides["swebench"] = theirs.judge(name, patch)
            yield {
                "task": task,
                "patch": name,
                "agree": len({verdict.resolved for verdict in sides.values()}) == 1,
                **{side: verdict._asdict() for side, verdict in sides.items()},
            }


def workspace(dataset: Dataset, task: str, layer: str, backend: str) -> Workspace:
    """The task's repository, built on a layer that both sides can use."""
    files = dataset.environment_files(dataset.tasks[task].environment_id)
    assert isinstance(files.blueprint, dict)
    recipe = Recipe.model_validate(files.blueprint[RECIPE]).model_copy(update={"layer": layer})
    tree = files.attachments[TREE]
    return build_workspace(recipe, tree, backend=backend, certificates=host_certificates())


def envgen(place: Workspace, tests: CodeTests, patch: bytes) -> Verdict:
    """Our verdict."""
    began = time.monotonic()
    run = run_tests(place, exam_of(tests), patch)
    resolved = score_run(run, tests).passed
    return Verdict(resolved, time.monotonic() - began, run.tests_s or None)


class Harness:
    """The peer's harness on one task, in a process of its Python."""

    def __init__(self, python: str, place: Workspace, instance: str, tests: CodeTests) -> None:
        self._instance = instance
        self._image = f"sweb.eval.x86_64.{instance.lower()}:latest"
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        known = record(place, instance, self._image, tests)
        (self._folder / "instance.json").write_text(json.dumps([known]))
        self._build(place)
        self._process = subprocess.Popen(
            [python, "-c", DRIVER],
            cwd=self._folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _build(self, place: Workspace) -> None:
        """The image that their record names, from ours."""
        dockerfile = (
            f"FROM {place.image}\nRUN mkdir -p /work && tar -xf /tree.tar -C /work --no-same-owner "
            f"&& ln -s {REPOSITORY} {PLACE}\n"
        )
        command = ["docker", "build", "-q", "-t", self._image, "-"]
        legacy = {**os.environ, "DOCKER_BUILDKIT": "0"}
        subprocess.run(command, input=dockerfile.encode(), check=True, env=legacy, **_SILENT)
        remove = ["docker", "rmi", self._image]
        self._stack.callback(lambda: subprocess.run(remove, check=False, **_SILENT))

    def judge(self, name: str, patch: bytes) -> Verdict:
        """Their verdict on a patch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        prediction = {
            "instance_id": self._instance,
            "model_name_or_path": name,
            "model_patch": patch.decode("utf-8", "surrogateescape"),
        }
        self._process.stdin.write(json.dumps(prediction) + "\n")
        self._process.stdin.flush()
        resolved, wall = json.loads(self._process.stdout.readline())
        return Verdict(resolved, wall, self._tests_s(name))

    def _tests_s(self, name: str) -> float | None:
        """Seconds of the test command, which the eval script has written into their log."""
        place = self._folder / "logs/run_evaluation/peer" / name.replace("/", "__") / self._instance
        log = place / "test_output.txt"
        for line in log.read_text().splitlines() if log.exists() else ():
            if line.startswith("seconds of the tests: "):
                began, ended = map(float, line.split()[-2:])
                return ended - began
        return None

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._stack.close()


def record(place: Workspace, instance: str, image: str, tests: CodeTests) -> dict[str, Any]:
    """What SWE-bench 5 knows of an instance."""
    variables = {**environment(place.recipe), "HOME": "/root"}
    lines = [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    lines.append(f"export PATH={DEPENDENCIES}/bin:$PATH")
    known = " ".join(shlex.quote(path) for path in touched_paths(to_bytes(tests.test_patch)))
    checkout = f"for f in {known}; do git checkout -q HEAD -- $f 2>/dev/null || rm -f $f; done"
    script = EVAL.format(
        variables="\n".join(lines),
        place=PLACE,
        checkout=checkout,
        test_patch=tests.test_patch.rstrip("\n"),
        options=place.recipe.options,
        files=" ".join(shlex.quote(path) for path in tests.only),
    )
    return {
        "instance_id": instance,
        "image": image,
        "repo": instance.rsplit("-", 1)[0].replace("__", "/"),
        "version": "",
        "FAIL_TO_PASS": [published_id(test) for test in tests.fail_to_pass],
        "PASS_TO_PASS": [published_id(test) for test in tests.pass_to_pass],
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "eval_script": script,
    }


def _sides(row: dict[str, Any]) -> list[str]:
    return [side for side in (*BACKENDS, "swebench") if side in row]


def show(row: dict[str, Any]) -> None:
    """Print one patch's verdicts."""
    sides = []
    for side in _sides(row):
        verdict = Verdict(**row[side])
        ran = "" if verdict.tests_s is None else f"{verdict.wall_s - verdict.tests_s:6.2f} s over"
        sides.append(
            f"{side} {'yes' if verdict.resolved else 'no ':<3} {verdict.wall_s:6.2f} s {ran:<13}"
        )
    print(
        f"{row['task']:<28} {row['patch']:<34} {' | '.join(sides)} {'agree' if row['agree'] else 'DISAGREE'}",
        flush=True,
    )


def summary(rows: list[dict[str, Any]]) -> None:
    """Print how often they agree, and each side's overhead."""
    agree = [row["agree"] for row in rows]
    resolved = sum(row["swebench"]["resolved"] for row in rows)
    print(f"{sum(agree)} of {len(rows)} agree; {resolved} resolved, {len(rows) - resolved} not")
    for side in _sides(rows[0]) if rows else ():
        over = [
            row[side]["wall_s"] - row[side]["tests_s"]
            for row in rows
            if row[side]["tests_s"] is not None
        ]
        if over:
            target = OVERHEAD_S.get(side)
            told = (
                ""
                if target is None
                else f", target {target:g} s: {'met' if statistics.median(over) <= target else 'MISSED'}"
            )
            print(
                f"{side:>12} overhead: median {statistics.median(over):.2f} s, worst {max(over):.2f} s{told}"
            )


if __name__ == "__main__":
    main()
