from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from envgen.core.errors import PipelineError
from envgen.pipelines.general import variants as varying
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.programs import task_code
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.tables import (
    Tables,
    read_sqlite,
    sqlite_image,
    write_sqlite,
)
from envgen.pipelines.general.variants import VariantsConfig, VariantsSummary, variants
from envgen.sandboxes.solution import SolutionSeries

CONFIG = GenerateConfig(
    environments=3, tasks_per_environment=1, min_level=2, max_level=2, seed=5, agreement_episodes=16
)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parents") / "ds"
    generate(CONFIG, out, workers=1, backend="process")
    return out


def make(parents: Path, out: Path, workers: int = 1) -> VariantsSummary:
    config = VariantsConfig(per_task=5, seed=3)
    return variants(config, parents, out, workers=workers, backend="process")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_same_bytes_whoever_runs_them_and_in_however_many_forks(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(parents, tmp_path / "one").variants == 15
    make(parents, tmp_path / "two", workers=2)
    monkeypatch.setattr(SolutionSeries, "RUNS", 1)
    monkeypatch.setattr("envgen.pipelines.general.variants.CHUNK", 2)
    make(parents, tmp_path / "alone")
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "alone")


def refused(parents: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no variant could be made"):
        make(parents, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_solution_that_answers_wrong_gives_no_variant(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = "\n\ndef solve():\n    return {key: 'nobody' for key in honest()}\n"

    def lying(problem: object) -> str:
        return solution_source(problem).replace("def solve()", "def honest()") + lie  # type: ignore[arg-type]  # as called

    monkeypatch.setattr(task_code, "solution_source", lying)
    refused(parents, tmp_path)


def test_a_solution_that_fails_gives_no_variant(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "PARAMS = {}\n\ndef solve():\n    return 1 / 0\n"
    monkeypatch.setattr(task_code, "solution_source", lambda problem: broken)
    refused(parents, tmp_path)


def test_a_verifier_that_is_not_the_parent_s_gives_no_variant(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = "PARAMS = {}\n\ndef verify(answer, initial, final):\n    return []\n"
    monkeypatch.setattr(task_code, "verifier_source", lambda problem: lax)
    refused(parents, tmp_path)


def test_an_answer_that_the_ir_does_not_accept_gives_no_variant(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though solution and verifier agree: both lie, and only evaluating the IR tells."""
    lie = "\n\ndef solve():\n    return {key: 'nobody' for key in honest()}\n"
    lax = "\n\ndef verify(answer, initial, final):\n    return []\n"
    monkeypatch.setattr(
        task_code,
        "solution_source",
        lambda problem: solution_source(problem).replace("def solve()", "def honest()") + lie,
    )
    monkeypatch.setattr(
        task_code, "verifier_source", lambda problem: verifier_source(problem) + lax
    )
    monkeypatch.setattr(varying, "same_program", lambda *_: True)
    refused(parents, tmp_path)


def test_a_fault_that_a_fresh_fork_does_not_have_is_forgiven(
    parents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(parents, tmp_path / "calm")
    run = SolutionSeries.run
    seen: list[int] = []

    def dying(self: SolutionSeries, *arguments: object, **options: object) -> object:
        if self._worker is not None and len(seen) < 4:
            seen.append(1)
            self._worker._zygote.kill(self._worker._number)
        return run(self, *arguments, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(SolutionSeries, "run", dying)
    make(parents, tmp_path / "deaths")
    assert len(seen) == 4
    assert contents(tmp_path / "calm") == contents(tmp_path / "deaths")


def test_an_image_holds_what_the_file_holds(tmp_path: Path) -> None:
    from sample_problems import SAMPLES

    for name, sample in SAMPLES.items():
        relations, tables = sample.problem.relations, sample.tables
        write_sqlite(relations, tables, tmp_path / f"{name}.file")
        (tmp_path / f"{name}.image").write_bytes(sqlite_image(relations, tables))
        read: list[tuple[Tables, list[str]]] = []
        for kind in ("file", "image"):
            with closing(sqlite3.connect(tmp_path / f"{name}.{kind}")) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                schema = [
                    sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema ORDER BY name")
                ]
            read.append((read_sqlite(relations, tmp_path / f"{name}.{kind}"), schema))
        assert read[0] == read[1]
