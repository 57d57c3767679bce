"""A dataset that brings its own language layer: a root of ``/`` would show it this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import CodeTests, Instance, Recipe
from envgen.core.environ import cache_folder
from envgen.core.errors import EnvError, WorkspaceError
from envgen.environments.code import CodeEnv
from envgen.pipelines.code.bundle import environment_bundle, task_bundle
from envgen.pipelines.code.validation import Validation
from envgen.sandboxes.workspace import base_tree, build_workspace
from envgen.sandboxes.workspace.layers import RECORD, layer, layers_folder
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

EVIL = {"name": "evil", "identity": "0", "root": "/", "image": "envgen-host:1"}
"""A layer that is this machine."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    base = toy_repository.make(tmp_path / "clone")
    return base_tree(tmp_path / "clone", base, tmp_path / "tree.tar")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layer as a dataset ships it, in the folder where envgen runs."""
    folder = tmp_path / "ds" / "evil"
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(json.dumps(EVIL))
    monkeypatch.chdir(tmp_path / "ds")
    return folder


def names(folder: Path) -> dict[str, str]:
    """How a recipe could name a folder that is not in the cache."""
    return {
        "proc": "/proc/self/cwd/evil",
        "absolute": str(folder),
        "relative": os.path.relpath(folder, layers_folder()),
        "inner": f"python/../{os.path.relpath(folder, layers_folder())}",
        "dots": "..",
        "empty": "",
        "here": ".",
        "line": "evil\n",
        "nul": "evil\0",
    }


KINDS = tuple(names(Path("/")))


def recipe(name: str) -> Recipe:
    # as a reader without a check of its own would hand it over
    plain = Recipe(language="go", runner="gotestsum", install=("touch /env/ran",))
    return plain.model_copy(update={"layer": name})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
def test_a_build_refuses_it(tree: Path, shipped: Path, kind: str, backend: str) -> None:
    layers_folder().mkdir(parents=True, exist_ok=True)
    before = list((cache_folder() / "code").glob("*"))  # of other tests, in one cache
    with pytest.raises(WorkspaceError, match="is not a name for a language layer"):
        build_workspace(recipe(names(shipped)[kind]), tree, backend=backend)
    assert list((cache_folder() / "code").glob("*")) == before


@pytest.mark.parametrize("kind", ["proc", "absolute", "relative"])
def test_an_episode_refuses_it(tmp_path: Path, tree: Path, shipped: Path, kind: str) -> None:
    """The agent of a sealed dataset, default options: it would read a file of this machine."""
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    layers_folder().mkdir(parents=True, exist_ok=True)
    dataset = sealed(tmp_path / "ds" / "sealed", names(shipped)[kind], tree)
    env = CodeEnv(dataset)
    env.reset()
    call = {"name": "bash", "arguments": {"command": f"cat {secret}"}}
    try:
        with pytest.raises(EnvError, match=r"(?s)can't be built.*layer"):
            env.step(json.dumps({"content": "", "tool_calls": [call]}))
    finally:
        env.close()


def sealed(out: Path, name: str, tree: Path) -> Dataset:
    """A dataset whose hashes are right and whose recipe names the layer."""
    instance = Instance(
        id="evil__evil-1",
        repo="evil/evil",
        base_commit="0" * 40,
        language="go",
        kind="issue",
        problem_statement="Look around.",
        gold_patch="x",
        test_patch="",
    )
    tests = CodeTests(runner="gotestsum", test_patch="", test_files=(), fail_to_pass=("a",))
    environment = environment_bundle(instance, recipe(name), tree)
    with DatasetWriter(out, name="evil") as writer:
        writer.add_environment(environment)
        writer.add_task(task_bundle(instance, Validation(instance_id="evil", tests=tests)))
        writer.finish()
    return Dataset.open(out, unproven=True)


def planted_link(place: Path, elsewhere: Path) -> None:
    elsewhere.mkdir()
    (elsewhere / RECORD).write_text(json.dumps(EVIL))
    place.symlink_to(elsewhere)


def planted_record(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    elsewhere.write_text(json.dumps(EVIL))
    (place / RECORD).symlink_to(elsewhere)


def planted_root(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / RECORD).write_text(json.dumps(EVIL))


def planted_root_link(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / "root").symlink_to("/")
    (place / RECORD).write_text(json.dumps(EVIL | {"root": str(place / "root")}))


def planted_name(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / RECORD).write_text(json.dumps(EVIL | {"name": "python", "root": None}))


def planted_pipe(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    os.mkfifo(place / RECORD)


def planted_image(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / RECORD).write_text(json.dumps(EVIL | {"root": None, "image": "--privileged"}))


def planted_by_another(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / RECORD).write_text(json.dumps(EVIL | {"root": None}))
    (place / RECORD).chmod(0o666)


@pytest.mark.parametrize(
    "plant",
    [
        planted_link,
        planted_record,
        planted_root,
        planted_root_link,
        planted_name,
        planted_pipe,
        planted_image,
        planted_by_another,
    ],
)
def test_a_record_that_envgen_did_not_write_is_refused(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    place = layers_folder(tmp_path) / "evil"
    place.parent.mkdir()
    plant(place, tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError, match="the language layer 'evil' can't be trusted"):
        layer("evil", tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_refused(tmp_path: Path) -> None:
    place = layers_folder(tmp_path) / "evil"
    place.mkdir(parents=True)
    (place / RECORD).write_text(json.dumps(EVIL | {"root": None}))
    assert layer("evil", tmp_path).name == "evil"
    os.chown(place / RECORD, 65534, 65534)
    with pytest.raises(WorkspaceError, match="another user can write it"):
        layer("evil", tmp_path)
