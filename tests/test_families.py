"""Families of other packages, and datasets of several: the example package, installed, in every verb."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import ROOT, CommandResult, envgen
from tiny_dataset import write_tiny_dataset

from envgen.core import families
from envgen.core.errors import ConfigError, StoreError
from envgen.core.families import EVERYWHERE, INWARD, OWN, find_family
from envgen.core.types import Record
from envgen.environments.hosts import PACKAGE_DATA
from envgen.pipelines import assemble as assembling
from envgen.pipelines.code.revalidate import PROVEN_BY
from envgen.pipelines.general.gates.dataset import AGREEMENT
from envgen.pipelines.general.gates.prove import GATES
from envgen.pipelines.packed import gates as packed
from envgen.pipelines.validate import validate
from envgen.store.dataset import Dataset
from envgen.store.subset import merge
from envgen.store.writer import DatasetWriter


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example family, installed as users install it."""
    folder = tmp_path_factory.mktemp("site")
    source = ROOT / "examples" / "arithmetic"
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, *command, "--target", str(folder), str(source)],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def both(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two families: six sums, and the tiny dataset's general tasks."""
    place = tmp_path_factory.mktemp("families")
    result = run(package, "generate", "arithmetic", "--tasks", 6, "--out", place / "sums")
    assert result.code == 0, result.err
    tiny = write_tiny_dataset(place / "tiny").path
    merged = run(package, "merge", place / "sums", tiny, "--out", place / "both")
    assert merged.code == 0, merged.err
    return place / "both"


def run(package: Path, *arguments: object) -> CommandResult:
    return envgen(*arguments, PYTHONPATH=f"{ROOT}:{package}")


def test_every_verb_takes_a_dataset_of_two_families(
    package: Path, both: Path, tmp_path: Path
) -> None:
    listed = run(package, "list", both)
    assert "sum-0" in listed.out
    assert "tiny-cheapest" in listed.out
    shown = run(package, "show", both, "sum-0", "--secrets").out
    assert "steps.json" in shown
    played = run(
        package, "rollout", both, "--policy", "gold", "--n", 2, "--concurrency", 2,
        "--backend", "process", "--trust", "--out", tmp_path / "run", "--json", tmp_path / "f.json",
    )  # fmt: skip
    assert played.code == 0, played.err
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["errors"] == 0
    assert figures["passed"] == figures["samples"] == 2 * len(Dataset.open(both).tasks)
    kept = ("--rollouts", tmp_path / "run", "--pass-at", 1, "--out", tmp_path / "kept")
    assert run(package, "filter", both, *kept).code == 0
    assert run(package, "export", both, "--out", tmp_path / "x.jsonl").code == 0
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert {row["family"] for row in rows} == {"general", "arithmetic"}
    sums = [row["tools"] for row in rows if row["family"] == "arithmetic"]
    assert all(tools[-1]["function"]["name"] == "submit_result" for tools in sums)


def test_validate_gives_each_task_to_its_family(package: Path, both: Path, tmp_path: Path) -> None:
    validated = run(package, "validate", both, "--trust", "--json", tmp_path / "v.json")
    report = json.loads((tmp_path / "v.json").read_text())
    methods = {task["task_id"]: task["method"] for task in report["tasks"]}
    assert methods["sum-3"] == "recomputed"
    assert "recomputed from their steps" in validated.out.splitlines()[0]
    sums = [task for task in report["tasks"] if task["task_id"].startswith("sum")]
    assert len(sums) == 6
    assert all(task["passed"] for task in sums)


def test_worker_processes_find_what_one_process_finds(
    package: Path, both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{package}")
    monkeypatch.setattr("envgen.pipelines.validate._ALONE_S", 0.0)
    find_family.cache_clear()
    families._installed.cache_clear()
    try:
        alone = validate(both, trust=True, workers=1)
        assert validate(both, trust=True, workers=2) == alone
        assert (both / "environments" / "desk" / "tasks.pack").exists()
    finally:
        find_family.cache_clear()
        families._installed.cache_clear()


SPOILED = {
    "result": "task = task.model_copy(update={'verifier': '7'})",
    "prompt": "task = task.model_copy(update={'spec': spec.model_copy(update={'prompt': 'Say 7.'})})",
    "steps": "task = task.model_copy(update={'solution': '{'})",
    "tool": "desk = desk.model_copy(update={'spec': desk.spec.model_copy(update={'tools': ("
    "desk.spec.tools[0].model_copy(update={'description': 'It is 7.'}),)})})",
}
"""What somebody writes into a copy of a dataset: statements over ``task``, its ``spec`` and ``desk``."""


@pytest.mark.parametrize("what", SPOILED)
def test_what_somebody_changed_is_found_and_fails_that_task_alone(
    package: Path, both: Path, tmp_path: Path, what: str
) -> None:
    code = (
        "import sys\n"
        "from envgen.pipelines.validate import validate\n"
        "from envgen.store.dataset import Dataset\n"
        "from envgen.store.writer import DatasetWriter\n"
        "old = Dataset.open(sys.argv[1])\n"
        "desk, task = old.environment_files('desk').bundle(), old.task_files('sum-1')\n"
        "spec = task.spec\n"
        f"{SPOILED[what]}\n"
        "with DatasetWriter(sys.argv[2], name='bad') as writer:\n"
        "    writer.add_environment(desk)\n"
        "    writer.add_task(task)\n"
        "    writer.add_task(old.task_files('sum-2'))\n"
        "    writer.finish()\n"
        "found = {one.task_id: one.passed for one in validate(sys.argv[2]).tasks}\n"
        f"assert found == {{'sum-1': False, 'sum-2': {what != 'tool'}}}, found\n"
    )
    in_python(package, code, both, tmp_path / "bad")


def test_what_breaks_in_the_host_is_an_observation_or_scores_0(package: Path, both: Path) -> None:
    """Whatever an agent sends, its episode ends as an episode."""
    code = (
        "import json, sys\n"
        "from envgen_arithmetic.family import ArithmeticEnv\n"
        "class Broken(ArithmeticEnv):\n"
        "    def call(self, name, arguments):\n"
        "        return 1 // 0\n"
        "    def judge(self, files, answer):\n"
        "        return 1 // 0 if answer == '0' else super().judge(files, answer)\n"
        "env = Broken(sys.argv[1])\n"
        "env.reset(options={'task_id': 'sum-0'})\n"
        "def act(name, **arguments):\n"
        "    return env.step(json.dumps({'tool_calls': [{'name': name, 'arguments': arguments}]}))\n"
        "assert 'tool_failed' in act('calculate', left=1, sign='+', right=1)[0]\n"
        "_, reward, terminated, _, info = act('submit_result', answer_text='0')\n"
        "assert (reward, terminated) == (0.0, True)\n"
        "assert 'verifier_broke: ZeroDivisionError' in info['reasons'][0], info['reasons']\n"
    )
    in_python(package, code, both)


def in_python(package: Path, code: str, *arguments: Path) -> None:
    """Run code in a process that finds the package."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{package}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_gym_ids_and_the_python_api_know_it(package: Path, both: Path) -> None:
    code = (
        "import sys, gymnasium, envgen\n"
        "env = gymnasium.make('envgen/Arithmetic-v0', dataset=sys.argv[1])\n"
        "text, info = env.reset(seed=1)\n"
        "assert text.startswith('Work out'), text\n"
        "assert env.unwrapped.task_ids == tuple(f'sum-{i}' for i in range(6))\n"
        "report = envgen.validate(sys.argv[1], trust=True)\n"
        "assert {task.method for task in report.tasks} >= {'recomputed'}\n"
    )
    in_python(package, code, both)


def test_a_family_that_is_not_installed_is_named(both: Path) -> None:
    result = envgen("rollout", both, "--policy", "gold", "--out", both.parent / "no")
    assert result.code == 2
    assert "unknown family 'arithmetic'" in result.err
    assert "install the package that plays it" in result.err
    with pytest.raises(ConfigError, match="unknown family 'x'"):
        find_family("x")


def test_merge_refuses_two_things_of_one_id_and_copies_equal_ones_once(tmp_path: Path) -> None:
    one = write_tiny_dataset(tmp_path / "one")
    again = merge([one, write_tiny_dataset(tmp_path / "two")], tmp_path / "same")
    assert (again.tasks, again.twice) == (len(one.own_task_ids), len(one.own_task_ids))
    assert validate(tmp_path / "same", trust=True).path == str(tmp_path / "same")
    name = one.own_task_ids[0]
    held = _with_spec(one, tmp_path / "held", name, id="tiny-held", split="test")
    moved = merge([one, held], tmp_path / "moved")  # one schema in train and test
    assert moved.moved > 0
    merged = Dataset.open(tmp_path / "moved", unproven=True)
    assert {merged.facts(each).split for each in ("tiny-held", name)} == {"test"}
    back = merge([merged, one], tmp_path / "again", unproven=True)
    assert (back.twice, back.tasks) == (len(one.own_task_ids), moved.tasks)
    other = _with_spec(one, tmp_path / "other", name, prompt="another")
    with pytest.raises(StoreError, match=f"a different task '{name}'"):
        merge([one, other], tmp_path / "clash")
    assert not (tmp_path / "clash").exists()
    with pytest.raises(ConfigError, match="two datasets or more"):
        merge([one], tmp_path / "alone")


def _with_spec(source: Dataset, path: Path, name: str, **changed: str) -> Dataset:
    """A dataset of one task of another, with something changed."""
    with DatasetWriter(path, name=path.name) as writer:
        for env_id in source.environments:
            writer.add_environment(source.environment_files(env_id).bundle())
        files = source.task_files(name)
        spec = files.spec.model_copy(update=changed)
        writer.add_task(files.model_copy(update={"spec": spec}))
        return writer.finish()


def test_the_witness_table_names_every_gate() -> None:
    """``docs/design.md`` holds what the families' records say, and these name every gate that there is."""
    known = {name: {*EVERYWHERE, *find_family(name).gates} for name in OWN}
    general = {AGREEMENT, *dict(GATES), *packed.GATES, *packed.NEEDS_IR}
    assert general <= known["general"]
    assert set(PROVEN_BY) <= known["code"]
    for shipped in ("trip_planning", "search_questions", "interpreter_problems", "proofs"):
        for task in Dataset.open(PACKAGE_DATA / shipped).tasks.values():
            assert {gate.gate for gate in task.evidence} <= known[task.family]
    written = {name for path in (ROOT / "pipelines").rglob("*.py") for name in _gates(path)}
    assert written - set().union(*known.values()) == set()
    table = _witness_table()
    assert table in (ROOT / "docs/design.md").read_text(), f"it should hold:\n{table}"


def _gates(path: Path) -> Iterator[str]:
    """Gate names that a module passes as literals."""
    makers = {"passed", "failed", "_passed", "_failed", "outcome", "not_applicable", "_gate"}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        named = node.args[:1] if called in makers else []
        named += [k.value for k in node.keywords if called == "GateResult" and k.arg == "gate"]
        yield from (n.value for n in named if isinstance(n, ast.Constant) and type(n.value) is str)


def _witness_table() -> str:
    """One row per outward gate, and one row for all inward gates of a family."""
    lines = ["| family | gates | what they read that the generator did not |", "|---|---|---|"]
    for family, gates in [("every", EVERYWHERE), *((n, find_family(n).gates) for n in OWN)]:
        inward = ", ".join(f"`{gate}`" for gate, reads in gates.items() if reads == INWARD)
        lines += [
            f"| {family} | `{g}` | {reads} |" for g, reads in gates.items() if reads != INWARD
        ]
        lines += [f"| {family} | {inward} | inward |"] if inward else []
    return "\n".join(lines) + "\n"


def test_a_gate_that_no_record_names_makes_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing(Record):
        """A config without settings."""

    untold = dataclasses.replace(find_family("proof"), gates={"checked": INWARD})
    monkeypatch.setattr(assembling, "find_family", lambda name: untold)
    proofs = Dataset.open(PACKAGE_DATA / "proofs")
    name = next(iter(proofs.own_task_ids))
    files = proofs.task_files(name)
    environment = proofs.environment_files(files.spec.environment_id).bundle()
    draft = assembling.TaskDraft(environment, files, group=name)
    with pytest.raises(ConfigError, match=r"'proof' says nothing of its gates .*'near_proofs'"):
        assembling.assemble(Nothing(), tmp_path / "out", [draft], name="untold", workers=1)
