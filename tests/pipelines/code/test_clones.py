from __future__ import annotations

from pathlib import Path

import pytest
import toy_python

from envgen.core.errors import ConfigError
from envgen.pipelines.code.clones import find_clone, jobs_of
from envgen.pipelines.code.records import write_instances


@pytest.mark.parametrize(
    "place", ["toy/shop", "toy__shop", "toy+shop/repo", "shop", "toy/shop.git", "toy-shop"]
)
def test_clones_are_found_by_their_usual_names(place: str, tmp_path: Path) -> None:
    if place.endswith(".git"):
        (tmp_path / place / "objects").mkdir(parents=True)
    else:
        (tmp_path / place / ".git").mkdir(parents=True)
    assert find_clone(tmp_path, "toy/shop") == tmp_path / place


def test_a_missing_clone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no clone of 'toy/shop'") as caught:
        find_clone(tmp_path, "toy/shop")
    assert str(tmp_path / "toy" / "shop") in caught.value.hint


def test_instances_come_with_their_clones_once(tmp_path: Path) -> None:
    repo = toy_python.clone(tmp_path / "clones" / "toy" / "shop")
    instance = toy_python.instance(repo)
    write_instances(tmp_path / "one.jsonl", [instance])
    write_instances(tmp_path / "two.jsonl", [instance.model_copy(update={"hints": "later"})])
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    (job,) = jobs_of(files, tmp_path / "clones")
    assert (job.instance, job.clone) == (instance, repo)
    with pytest.raises(ConfigError, match="instances need their clones"):
        jobs_of(files, None)
