"""Recipes whose commands leave traps in the folders that envgen reads, moves and mounts afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.core.errors import WorkspaceError
from envgen.sandboxes.workspace import base_tree, build_workspace, layers, parts, store

BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
SECRET = "of this machine"
LONG = ["d" * 250] * 20
"""Names of folders inside one another: no path is so long."""
FAKE = """mkdir /env/bin
cat > /env/bin/tar <<'E'
#!/bin/sh
case $1 in -cf) ln -sf {secret} /out/tree.tar ;; *) exec /usr/bin/${{0##*/}} "$@" ;; esac
E
chmod 755 /env/bin/tar; cd /env/bin; for name in git rm sh tail find; do cp tar $name; done"""
"""Programs of envgen's own commands, first on ``PATH``."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    return base_tree(folder / "clone", toy_repository.make(folder / "clone"), folder / "tree.tar")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A tar of a file of this machine."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "secret").write_text(SECRET)
    packed = tmp_path / "secret.tar"
    subprocess.run(["tar", "-cf", packed, "-C", tmp_path, "repo"], check=True)
    return packed


def recipe(install: str, build: str = "true") -> Recipe:
    return Recipe(
        language="go",
        runner="unittest",
        install=(install,),
        build=(build,),
        memory_bytes=1 << 30,
        disk_bytes=64 << 20,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_link_in_place_of_the_tree_is_refused(
    tree: Path, secret: Path, tmp_path: Path, backend: str
) -> None:
    inside = "touch /work/x; ln -s /work/x"  # what is written through it is written
    for number, command in enumerate((f"ln -s {secret}", "mkfifo", inside)):
        plain = recipe(f"{command} /out/tree.tar; chmod a-w /out", "cat secret; false")
        with pytest.raises(WorkspaceError, match=r"not a regular file|can't keep") as error:
            build_workspace(plain, tree, backend=backend, cache_root=tmp_path / f"{number}")
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fake_tar_first_on_the_path_is_not_run(
    tree: Path, secret: Path, tmp_path: Path, backend: str
) -> None:
    plain = recipe(FAKE.format(secret=secret), "/bin/test ! -e secret; /bin/test -e adder.py")
    built = build_workspace(plain, tree, backend=backend, cache_root=tmp_path / "cache")
    assert not built.tree.is_symlink()
    with built.open() as place:
        place.write("adder.py", b"changed\n")
        assert place.diff().count(b"diff --git") == 1
        place.restore(["adder.py"])
        assert place.read("adder.py") == toy_repository.FILES["adder.py"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_link_in_place_of_what_was_built_is_refused(
    tree: Path, secret: Path, tmp_path: Path, backend: str
) -> None:
    hook = "git config core.fsmonitor 'ln -sf {} /out/tree.tar; chmod a-w /out; false'"
    plain = recipe("true", hook.format(secret))
    with pytest.raises(WorkspaceError, match=r"not a regular file|can't freeze") as error:
        build_workspace(plain, tree, backend=backend, cache_root=tmp_path / "cache")
    assert SECRET not in str(error.value)


@pytest.mark.bwrap
def test_pins_are_read_from_a_small_regular_file(tree: Path, secret: Path, tmp_path: Path) -> None:
    for number, command in enumerate(
        (f"ln -s {secret} /env/pins.txt", "mkfifo /env/pins.txt", "truncate -s 60M /env/pins.txt")
    ):
        with pytest.raises(WorkspaceError, match=r"pins\.txt can't be read"):
            build_workspace(
                recipe(command), tree, backend="bubblewrap", cache_root=tmp_path / f"cache{number}"
            )


@pytest.mark.bwrap
def test_folders_too_deep_to_name_are_counted_and_removed(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    built = build_workspace(
        recipe(deep("/env", LONG)), tree, backend="bubblewrap", cache_root=cache
    )
    store.remove(built.folder)
    assert not built.folder.exists()
    fill = deep("/env", LONG, "open(str(n), 'wb').write(bytes(40 << 20))")
    with pytest.raises(WorkspaceError, match="disk_bytes"):
        build_workspace(recipe(fill), tree, backend="bubblewrap", cache_root=cache)
    assert [path for path in cache.glob("code/*") if path.is_dir()] == []


@pytest.mark.bwrap
def test_downloads_too_deep_for_python_stop_no_later_build(tree: Path, tmp_path: Path) -> None:
    for number, command in enumerate((deep("/downloads", ["d"] * 1100), "true")):
        build_workspace(
            recipe(command),
            tree,
            backend="bubblewrap",
            cache_root=tmp_path / f"cache{number}",
            downloads=tmp_path / "downloads",
        )
    store.remove(tmp_path / "downloads")


def deep(folder: str, names: list[str], then: str = "pass") -> str:
    """A command that makes folders inside one another, and twice does something in the innermost."""
    lines = f"""import os
os.chdir({folder!r})
for name in {names}:
    os.mkdir(name)
    os.chdir(name)
for n in range(2):
    {then}"""
    return f"python3 - <<'E'\n{lines}\nE"


@pytest.mark.bwrap
def test_a_recipe_gets_no_more_memory_than_the_machine_can_spare() -> None:
    """Its folders are memory, too: a petabyte of each would end everything else on the machine."""
    wanted = Recipe(language="c", runner="ctest", memory_bytes=1 << 50, disk_bytes=1 << 50)
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with parts.Box(layers.layer(), "bubblewrap", wanted) as box:
        assert box.sandbox.spec.memory_bytes <= has * 3 // 4
        assert box.sandbox.spec.disk_bytes <= has // 2
        output = box.sandbox.exec(["df", "--output=size", "-B1", "/work"]).text
    assert int(output.split()[-1]) <= has // 2 + (1 << 20)
