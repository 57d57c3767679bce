from __future__ import annotations

import ast
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envgen.core.errors import ConfigError, WorkerDiedError
from envgen.core.executor import LocalExecutor, WorkerSpec

SQUARES = WorkerSpec("workers:squares")
FORMS = [LocalExecutor(), LocalExecutor(threads=3), LocalExecutor(processes=2, threads=2)]


@pytest.mark.parametrize("executor", FORMS, ids=str)
def test_every_item_has_one_outcome(executor: LocalExecutor, tmp_path: Path) -> None:
    spec = WorkerSpec("workers:squares", {"folder": str(tmp_path)})
    outcomes = list(executor.run(spec, iter([*range(30), -1])))
    values = {o.item: o.value[0] for o in outcomes if o.error is None}
    assert values == {i: i * i for i in range(30)}
    errors = [o for o in outcomes if o.error is not None]
    assert [o.item for o in errors] == [-1]
    assert isinstance(errors[0].error, ValueError)
    pids = {o.value[1] for o in outcomes if o.error is None}
    assert len(pids) == max(1, executor.processes)
    assert {int(path.name) for path in tmp_path.iterdir()} == pids  # each worker was closed


@pytest.mark.parametrize("executor", FORMS, ids=str)
def test_items_are_taken_lazily_and_work_can_be_stopped(executor: LocalExecutor) -> None:
    taken = itertools.count()
    running = executor.run(SQUARES, taken)
    for _ in range(5):
        next(running)
    running.close()
    assert next(taken) < 60


def test_a_dead_worker_costs_its_items_only() -> None:
    outcomes = list(LocalExecutor(processes=1).run(SQUARES, [1, 2, 666, *range(10, 30)]))
    assert len(outcomes) == 23
    died = [o for o in outcomes if isinstance(o.error, WorkerDiedError)]
    assert 666 in [o.item for o in died]
    assert len(died) <= 6


@pytest.mark.slow  # 23 processes start
def test_however_many_workers_die_every_item_has_an_outcome() -> None:
    items = [666] * 21
    outcomes = list(LocalExecutor(processes=2, ahead=0).run(SQUARES, [*items, 3]))
    assert [o.item for o in outcomes if isinstance(o.error, WorkerDiedError)] == items
    assert [o.value[0] for o in outcomes if o.error is None] == [9]


def test_workers_that_die_before_they_are_open_are_this_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envgen.core.executor._MAX_UNOPENED", 4)
    spec = WorkerSpec("workers:stillborn", {"folder": str(tmp_path), "births": 3})
    outcomes = list(LocalExecutor(processes=1).run(spec, [1, 2]))
    assert sorted((o.item, o.value) for o in outcomes) == [(1, 1), (2, 2)]
    spec = WorkerSpec("workers:stillborn", {"folder": str(tmp_path), "births": 1000})
    with pytest.raises(WorkerDiedError, match=r"4 worker processes in a row .* exit code 7"):
        list(LocalExecutor(processes=2).run(spec, [1, 2]))


@pytest.mark.parametrize("executor", FORMS, ids=str)
def test_a_worker_that_cannot_open_is_an_error(executor: LocalExecutor) -> None:
    with pytest.raises(RuntimeError, match="no luck"):
        list(executor.run(WorkerSpec("workers:broken"), [1]))


def test_results_that_cannot_travel_say_so() -> None:
    outcomes = list(LocalExecutor(processes=1).run(WorkerSpec("workers:unpicklable"), [1]))
    assert isinstance(outcomes[0].error, ConfigError)


def test_specs_travel() -> None:
    assert pickle.loads(pickle.dumps(SQUARES)) == SQUARES


def test_impossible_forms_are_refused() -> None:
    with pytest.raises(ConfigError):
        LocalExecutor(processes=-1)


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from envgen.core.executor import LocalExecutor, WorkerSpec\n"
        "import itertools\n"
        "spec = WorkerSpec('workers:squares')\n"
        "for o in LocalExecutor(processes=2).run(spec, itertools.count()):\n"
        "    print(o.value[1], flush=True)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=_with_helpers()
    )
    assert parent.stdout is not None
    pids: set[int] = set()
    for line in parent.stdout:
        pids.add(int(line))
        if len(pids) == 2:
            break
    parent.send_signal(signal.SIGKILL)
    parent.wait(5)
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def test_workers_import_nothing_of_the_callers(tmp_path: Path) -> None:
    """A script needs no guard: it is not run again in the workers. Its path and options are theirs."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.path.append('/nowhere/else')\n"
        "from envgen.core.executor import LocalExecutor, WorkerSpec\n"
        "spec = WorkerSpec('workers:surroundings')\n"
        "print(*[o.value for o in LocalExecutor(processes=1).run(spec, [0])])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-O", str(script)],
        capture_output=True,
        text=True,
        env=_with_helpers(),
        timeout=60,
    )
    assert ran.stderr == ""
    main, last, optimised, stdin = ast.literal_eval(ran.stdout)
    assert Path(main).name == "worker_main.py"
    assert (last, optimised, stdin) == ("/nowhere/else", 1, "")


def _with_helpers() -> dict[str, str]:
    paths = [*sys.path, str(Path(__file__).parents[1] / "helpers")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
