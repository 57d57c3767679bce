from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_root
import toy_repository

from envgen.core.code_types import Recipe
from envgen.core.errors import WorkspaceError
from envgen.sandboxes.workspace import base_tree, bootstrap, build_workspace, images
from envgen.sandboxes.workspace.inventory import clean, inventory
from envgen.sandboxes.workspace.layers import (
    HOST,
    RECORD,
    Layer,
    interpreter,
    known_layers,
    layer,
    pythons,
    pythons_in,
)

RECIPE = Recipe(
    language="go",
    runner="unittest",
    layer="tiny",
    install=("echo one > /env/one; echo pin > /env/pins.txt",),
    build=("cat /env/one > built.log",),
    memory_bytes=1 << 30,
    disk_bytes=64 << 20,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    return base_tree(folder / "clone", toy_repository.make(folder / "clone"), folder / "tree.tar")


@pytest.fixture
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A cache with a layer ``tiny``: a root, and an image where Docker is asked for."""
    place = tmp_path / "layers" / "tiny"
    root, owner = tiny_root.make(place / "root"), images.cache_id(tmp_path)
    docker = request.node.get_closest_marker("docker") is not None
    image = images.import_root(root, "tiny", "test", owner) if docker else None
    layer = Layer(name="tiny", identity="test", root=root, image=image, packages=("tiny=1.0-1",))
    (place / RECORD).write_text(layer.model_dump_json())
    yield tmp_path
    if docker:
        for item in sorted(images.ours(owner), key=lambda item: item.kind):
            images.remove(item.name)
        assert images.ours(owner) == []


BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_workspace_stands_on_a_layer(cache: Path, tree: Path, backend: str) -> None:
    built = build_workspace(RECIPE, tree, backend=backend, cache_root=cache)
    assert built.recipe.pins == ("pin",)
    assert (built.image is not None) is (backend == "docker")
    with built.open() as place:
        assert place.read("built.log") == b"one\n"
        assert place.shell("ls /usr/bin | wc -l; ls /root /home").exit_code != 0
        assert place.shell("command -v python3").exit_code == 1
        for path in ("/usr/x", "/etc/x", "/env/x", "/x"):
            assert place.shell(f"touch {path}").exit_code != 0
        assert place.shell("whoami").text in ("dev\n", "nobody\n")
        place.write("adder.py", b"changed\n")
        diff = place.diff()
    with built.open() as fresh:
        fresh.apply(diff)
        assert fresh.read("adder.py") == b"changed\n"
        fresh.restore(["adder.py"])
        assert fresh.diff() == b""
    again = build_workspace(RECIPE, tree, backend=backend, cache_root=cache)
    assert again == built


def is_cached(path: Path) -> bool:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_sandboxes_have_read_is_forgotten(cache: Path, tree: Path, backend: str) -> None:
    built = build_workspace(RECIPE, tree, backend=backend, cache_root=cache)
    roots = [built.layer.root] if built.image is None else images.folders(built.image)
    layer = max(
        (path for root in roots if root for path in root.rglob("usr/*/*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    read = [layer] if built.image else [layer, built.tree]
    os.sync()  # what is not on the disk yet can't be dropped
    for path in read:
        path.read_bytes()
    assert all(map(is_cached, read))
    built.forget()
    assert not any(map(is_cached, read))


@pytest.mark.docker
def test_commits_with_the_same_dependencies_share_the_repository_layer(
    cache: Path, tree: Path
) -> None:
    import docker

    one = build_workspace(RECIPE, tree, backend="docker", cache_root=cache)
    changed = RECIPE.model_copy(update={"build": ("echo two > built.log",)})
    two = build_workspace(changed, tree, backend="docker", cache_root=cache)
    assert one.image is not None
    assert two.image is not None
    engine = docker.from_env()
    first, second = (
        engine.images.get(name).attrs["RootFS"]["Layers"] for name in (one.image, two.image)
    )
    engine.close()
    assert first[:-1] == second[:-1]
    assert first != second
    assert {item.kind for item in inventory(cache)} >= {"layer", "workspace", "image"}


@pytest.mark.docker
def test_an_image_that_is_gone_is_made_again(cache: Path, tree: Path) -> None:
    built = build_workspace(RECIPE, tree, backend="docker", cache_root=cache)
    assert built.image is not None
    images.remove(built.image)
    assert not images.exists(built.image)
    again = build_workspace(RECIPE, tree, backend="docker", cache_root=cache)
    assert images.exists(str(again.image))
    with again.open() as place:
        assert place.read("built.log") == b"one\n"


@pytest.mark.bwrap
def test_a_dry_run_only_tells(cache: Path, tree: Path) -> None:
    build_workspace(RECIPE, tree, backend="bubblewrap", cache_root=cache)
    rest = cache / "code" / ".0123.part"
    (rest / "env" / "deep").mkdir(parents=True)
    mine = [item for item in clean(cache_root=cache, dry_run=True)]
    assert [(item.kind, item.name) for item in mine] == [("rest", ".0123.part")]
    assert rest.exists()


@pytest.mark.bwrap
def test_clean_goes_as_far_as_it_is_told(cache: Path, tree: Path) -> None:
    built = build_workspace(RECIPE, tree, backend="bubblewrap", cache_root=cache)
    (cache / "code" / ".0123.part").mkdir()
    kept = clean(cache_root=cache, older_than_days=1.0)
    assert [item.kind for item in kept] == ["rest"]
    assert built.folder.exists()
    gone = clean(cache_root=cache, older_than_days=0.0, layers=True)
    assert {item.kind for item in gone} >= {"workspace", "layer"}
    assert not built.folder.exists()
    assert known_layers(cache) == [HOST]
    assert [item for item in inventory(cache)] == []


def test_an_unknown_layer_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="unknown language layer 'x'; there are host") as error:
        layer("x", tmp_path)
    assert "envgen images bootstrap x" in error.value.hint


def test_a_layer_is_used_only_where_it_was_made_for(tmp_path: Path, tree: Path) -> None:
    layer = Layer(name="tiny", identity="test", image="nothing:1")
    (tmp_path / "layers" / "tiny").mkdir(parents=True)
    (tmp_path / "layers" / "tiny" / RECORD).write_text(layer.model_dump_json())
    with pytest.raises(WorkspaceError, match="layer 'tiny' was not made for bubblewrap") as error:
        build_workspace(RECIPE, tree, backend="bubblewrap", cache_root=tmp_path)
    assert "--for bubblewrap" in error.value.hint
    with pytest.raises(WorkspaceError, match="unknown backend of workspaces 'process'"):
        build_workspace(RECIPE, tree, backend="process", cache_root=tmp_path)


def test_a_layer_must_have_what_the_recipe_names(tmp_path: Path, tree: Path) -> None:
    layer = Layer(name="tiny", identity="test", image="nothing:1", packages=("git=1:2.39",))
    (tmp_path / "layers" / "tiny").mkdir(parents=True)
    (tmp_path / "layers" / "tiny" / RECORD).write_text(layer.model_dump_json())
    recipe = RECIPE.model_copy(update={"packages": ("git", "libpq-dev")})
    with pytest.raises(WorkspaceError, match="layer 'tiny' is missing libpq-dev") as error:
        build_workspace(recipe, tree, cache_root=tmp_path)
    assert "--package libpq-dev" in error.value.hint


def test_interpreters_are_found_in_a_root_as_on_this_machine(tmp_path: Path) -> None:
    for place in ("usr/bin/python3.11", "opt/pyenv/versions/3.9.18/bin/python3.9"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    (tmp_path / "usr/bin/python3.11-config").touch()
    found = pythons_in(tmp_path)
    assert found == {
        "3.11": "/usr/bin/python3.11",
        "3.9": "/opt/pyenv/versions/3.9.18/bin/python3.9",
    }
    tiny = Layer(name="tiny", identity="test", pythons=found)
    assert interpreter("3.9", tiny) == found["3.9"]
    assert interpreter("", tiny) == "/usr/bin/python3"
    with pytest.raises(WorkspaceError, match=r"Python 3\.10 is not installed in the layer 'tiny'"):
        interpreter("3.10", tiny)
    host = layer()
    assert {version: interpreter(version, host) for version in pythons()} == pythons()


def test_an_image_with_links_to_this_machine_is_no_layer(tmp_path: Path) -> None:
    """The files that a layer gets would be written through them."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "hosts").write_text("mine")
    root = tmp_path / "root"
    root.mkdir()
    (root / "etc").symlink_to(here)
    with pytest.raises(WorkspaceError, match="/etc of the image is a link"):
        bootstrap._prepare(root)
    assert (here / "hosts").read_text() == "mine"
