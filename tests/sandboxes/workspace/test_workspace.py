from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.core.errors import MissingToolError, SandboxError, WorkspaceError
from envgen.sandboxes.workspace import (
    Halt,
    Workspace,
    WorkspaceLimits,
    base_tree,
    build_workspace,
    load,
    packages,
    store,
)

BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
over_local = pytest.mark.parametrize("built", BACKENDS[:1], indirect=True)
"""For what git and this process decide, which are the same around a container."""
LISTING = "rm -f noise.log; find . -path ./.git -prune -o -printf '%M %p %l\\n' | sort"
RECIPE = Recipe(
    language="python",
    runner="unittest",
    install=(
        '"$PYTHON" -m venv --without-pip /env',
        "echo dependency==1.0 > /env/pins.txt; mkdir built; echo made > built/thing; echo x > loose",
    ),
    build=("cat built/thing > built/copy; ! touch /env/no 2>/dev/null",),
    variables={"SAID": "yes"},
    memory_bytes=1 << 30,
    disk_bytes=64 << 20,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    base = toy_repository.make(folder / "clone")
    return base_tree(folder / "clone", base, folder / "tree.tar")


@pytest.fixture(scope="module", params=BACKENDS)
def built(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Workspace:
    cache = tmp_path_factory.mktemp("cache")
    return build_workspace(RECIPE, tree, backend=request.param, cache_root=cache)


def test_tests_run_against_the_tree(built: Workspace) -> None:
    with built.open() as place:
        result = place.shell(
            "python -m unittest -q; echo $SAID $HOME $USER; whoami; cat built/copy"
        )
        assert b"FAILED (failures=1)" in result.stderr
        assert result.text.split() == ["yes", "/work", "dev", "dev", "made"]
        place.apply(
            b"--- a/adder.py\n+++ b/adder.py\n@@ -2 +2 @@\n-    return a - b\n+    return a + b\n"
        )
        assert place.shell("python -m unittest -q").exit_code == 0


@over_local
def test_pins_are_frozen(built: Workspace, tree: Path, tmp_path: Path) -> None:
    assert built.recipe.pins == ("dependency==1.0",)
    recipe = RECIPE.model_copy(
        update={"pins": built.recipe.pins, "install": ("cp /env/constraints.txt /env/pins.txt",)}
    )
    again = build_workspace(recipe, tree, backend=built.backend, cache_root=tmp_path)
    assert again.recipe.pins == ("dependency==1.0",)


@over_local
def test_a_workspace_is_built_once(built: Workspace, tree: Path) -> None:
    lines: list[str] = []
    cache = built.folder.parent.parent
    again = build_workspace(RECIPE, tree, backend=built.backend, cache_root=cache, log=lines.append)
    assert (again, lines) == (built, [])
    assert load(built.folder) == built
    assert pickle.loads(pickle.dumps(built)) == built
    left = {path.name for path in built.folder.parent.iterdir()}
    assert left - {f"{built.key}.used"} == {built.key, f"{built.key}.lock"}


@pytest.mark.parametrize("holder", ["claim", "sandbox"])
def test_a_workspace_in_use_is_not_discarded(
    built: Workspace, tree: Path, tmp_path: Path, holder: str
) -> None:
    """A run that had finished with a workspace removed it while another run used it."""
    claims: list[store.Claim] = []
    mine = build_workspace(RECIPE, tree, backend=built.backend, cache_root=tmp_path, claims=claims)
    opened = mine.open() if holder == "sandbox" else None
    if opened is not None:
        claims[0].close()
    assert not store.discard(mine.folder)
    with mine.open() as box:
        assert box.read("adder.py")
    if opened is not None:
        opened.close()
    claims[0].close()
    assert store.discard(mine.folder)
    with pytest.raises(WorkspaceError, match="none any more"):
        mine.open()


def test_episodes_share_nothing_and_reach_nothing(built: Workspace) -> None:
    with built.open() as one, built.open() as other:
        one.write("adder.py", b"changed")
        assert other.read("adder.py") == toy_repository.FILES["adder.py"]
        for command in ("touch /env/x", "touch /tree.tar", "echo > /dev/tcp/192.0.2.1/80"):
            assert one.shell(command).exit_code != 0
        assert toy_repository.SECRET not in one.shell("cat .git/* .git/*/* 2>/dev/null").text
    with pytest.raises(SandboxError):
        one.shell("true")


def test_a_diff_holds_what_was_changed_and_nothing_else(built: Workspace) -> None:
    with built.open() as place:
        assert place.diff() == b""
        place.write("adder.py", b"def add(a, b):\n    return a + b\n")
        place.write("new/file.txt", b"no newline at the end")
        place.write("data/picture.bin", bytes(reversed(range(256))))
        place.write("noise.log", b"ignored")
        place.shell("rm windows.txt; chmod +x commit.id; ln -s adder.py other; rm run.sh")
        diff = place.diff()
        after = place.shell(LISTING).text
    for mark in (b"new/file.txt", b"GIT binary patch", b"old mode", b"deleted file", b"120000"):
        assert mark in diff
    assert b"noise" not in diff
    assert b"built/" not in diff
    assert b"loose" not in diff
    with built.open() as fresh:
        fresh.apply(diff)
        assert fresh.diff() == diff
        assert fresh.shell(LISTING).text == after


@over_local
@pytest.mark.parametrize(
    "trick",
    [
        "rm -rf .git",
        "git -c user.name=x -c user.email=x@y commit -qam mine",
        "git config core.fsmonitor 'touch /tmp/owned'; git config diff.external 'echo nothing'",
        "echo '* diff=evil -text' > .git/info/attributes; git config diff.evil.textconv 'echo same'",
        "echo adder.py >> .git/info/exclude; git update-index --assume-unchanged adder.py",
        "printf '[core]\\n excludesFile = /tmp/all\\n' > ~/.gitconfig; echo '*' > /tmp/all",
    ],
)
def test_a_diff_can_not_be_bent(built: Workspace, trick: str) -> None:
    with built.open() as place:
        place.write("adder.py", b"def add(a, b):\n    return a + b\n")
        place.shell(trick)
        diff = place.diff()
        assert b"+    return a + b" in diff
        assert diff.count(b"diff --git") == 1
        assert place.shell("ls /tmp/owned").exit_code != 0


@over_local
def test_restore_brings_back_what_was_there(built: Workspace) -> None:
    with built.open() as place:
        place.write("tests/test_adder.py", b"")
        place.write("tests/conftest.py", b"cheat")
        place.write("conftest.py", b"cheat")
        place.write("deep/er/conftest.py", b"cheat")
        place.shell("mkdir $'a\\nb'; echo cheat > $'a\\nb/conftest.py'; echo changed > built/thing")
        place.write("adder.py", b"kept\n")
        place.shell("rm run.sh; mkdir run.sh; touch run.sh/x")
        place.restore(["**/conftest.py", "tests", "run.sh", "loose", "built/*"])
        assert place.shell("find . -name conftest.py").text == ""
        assert place.read("tests/test_adder.py") == toy_repository.FILES["tests/test_adder.py"]
        assert place.read("run.sh") == toy_repository.FILES["run.sh"]
        assert place.read("loose") == b"x\n"
        assert place.shell("cat built/copy").text == "made\n"
        changed = place.shell("git status --short").text.split()
        assert changed[:2] == ["M", "adder.py"]
        place.restore(["*.py", "tests"])
        assert place.diff() == b""
        place.restore([])


@over_local
def test_more_paths_than_fit_into_a_command_line_are_restored(built: Workspace) -> None:
    """git is asked several times then, and may name a file in each answer."""
    with built.open() as place:
        place.write("tests/test_adder.py", b"")
        many = [f"tests/fixtures/{'x' * 100}/{n}.yml" for n in range(4000)]
        place.restore(["**/test_adder.py", *many, "tests/test_adder.py"])
        assert place.read("tests/test_adder.py") == toy_repository.FILES["tests/test_adder.py"]
        assert place.diff() == b""


def test_certificates_of_authorities_are_there(built: Workspace) -> None:
    """Some libraries don't load without."""
    code = "import os, ssl; print(os.path.isdir(ssl.get_default_verify_paths().openssl_capath))"
    with built.open() as place:
        assert place.shell(f"/usr/bin/python3 -c '{code}'").text == "True\n"


def test_temporary_files_may_lie_in_var(built: Workspace) -> None:
    with built.open() as place:
        assert place.shell("echo a > /var/tmp/b && cat /var/tmp/b").text == "a\n"


@over_local
def test_restore_brings_the_old_times_too(built: Workspace) -> None:
    """A build after it makes anew what was made from other files, and nothing else."""
    times = "stat -c '%n %Y' tests/test_adder.py run.sh adder.py"
    with built.open() as place:
        before = place.shell(times).text
        place.shell("touch run.sh; sleep 1.1")
        place.write("tests/test_adder.py", b"other\n")
        place.write("adder.py", b"other\n")
        place.restore(["tests", "run.sh"])
        after = place.shell(times).text
        assert after.splitlines()[:2] == before.splitlines()[:2]
        assert after.splitlines()[2] != before.splitlines()[2]


@over_local
def test_restore_goes_through_no_link(built: Workspace) -> None:
    with built.open() as place:
        place.shell("mkdir /tmp/out; mv tests /tmp/out/tests; ln -s /tmp/out/tests tests")
        place.shell("echo outside > /tmp/out/tests/test_adder.py")
        place.restore(["tests"])
        assert place.shell("cat /tmp/out/tests/test_adder.py").text == "outside\n"
        assert place.shell("test -L tests").exit_code == 1
        assert place.diff() == b""


@over_local
@pytest.mark.parametrize("path", ["../x", "/etc/passwd", ":(exclude)x", "a/../../b"])
def test_restore_stays_in_the_repository(built: Workspace, path: str) -> None:
    with built.open() as place, pytest.raises(WorkspaceError, match="not a path in the repository"):
        place.restore([path])


@over_local
def test_a_patch_that_does_not_fit_is_refused_whole(built: Workspace) -> None:
    patch = b"--- a/adder.py\n+++ b/adder.py\n@@ -2 +2 @@\n-    return a - b\n+    return a + b\n"
    wrong = b"--- a/windows.txt\n+++ b/windows.txt\n@@ -1 +1 @@\n-three\n+four\n"
    with built.open() as place:
        for bad in (
            patch + wrong,
            b"nonsense",
            b"--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n",
        ):
            with pytest.raises(WorkspaceError, match="can't apply the patch"):
                place.apply(bad)
            assert place.diff() == b""
        place.apply(b"")
        place.apply(patch.rstrip(b"\n"))
        assert b"a + b" in place.read("adder.py")


LIMITS: dict[str, dict[str, object]] = {
    "stopped after": {"install": ("sleep 60",)},
    "disk_bytes": {
        "install": ("for i in `seq 40`; do head -c 9M /dev/zero >/env/$i; sleep .1; done",)
    },
    "No space left|File too large|write error": {
        "install": ("head -c 90000000 /dev/zero > /work/x",)
    },
    "exit code|memory": {"install": ("python3 -c 'x=bytearray(3<<30)'",)},
    "can't build": {"build": ("curl -sS http://192.0.2.1/",)},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"install": ("echo tried; echo no such thing >&2; exit 3",)}, "exit code 3(.|\n)*no such thing"),
        *((change, message) for message, change in LIMITS.items()),
        ({"version": "3.99"}, r"Python 3\.99 is not installed"),
        ({"layer": "nowhere"}, "unknown language layer 'nowhere'"),
    ],
)  # fmt: skip
@pytest.mark.bwrap
def test_a_build_that_fails_says_why_and_leaves_nothing(
    tree: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    fails(tree, tmp_path, "bubblewrap", change, message)


@pytest.mark.docker
@pytest.mark.parametrize("message", LIMITS)
def test_a_build_in_a_container_is_limited(tree: Path, tmp_path: Path, message: str) -> None:
    fails(tree, tmp_path, "docker", LIMITS[message], message)


def fails(tree: Path, cache: Path, backend: str, change: dict[str, object], message: str) -> None:
    recipe = RECIPE.model_copy(update=change)
    limit = 1.0 if "stopped" in message else 120.0
    with pytest.raises(WorkspaceError, match=message) as error:
        build_workspace(recipe, tree, backend=backend, cache_root=cache, install_s=limit)
    assert error.value.hint
    assert [path for path in cache.glob("code/*") if path.is_dir()] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_settings_of_the_host_reach_installs_and_are_not_kept(
    tree: Path, tmp_path: Path, backend: str
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("CERT")
    command = "cat $SSL_CERT_FILE > /env/seen; echo $NPM_TOKEN >> /env/seen"
    recipe = RECIPE.model_copy(
        update={"install": (command,), "build": ("echo [$NPM_TOKEN] > token",)}
    )
    built = build_workspace(
        recipe,
        tree,
        backend=backend,
        cache_root=tmp_path / "cache",
        certificates=bundle,
        variables={"NPM_TOKEN": "abc"},
    )
    assert (built.folder / "env" / "seen").read_text() == "CERTabc\n"
    assert "abc" not in (built.folder / "workspace.json").read_text()
    with built.open(WorkspaceLimits(memory_bytes=256 << 20)) as place:
        assert place.read("token") == b"[]\n"
        assert place.sandbox.spec.memory_bytes == 256 << 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_downloads_are_kept_between_builds(tree: Path, tmp_path: Path, backend: str) -> None:
    recipe = RECIPE.model_copy(
        update={
            "install": ("echo more >> $npm_config_cache.log; cp $npm_config_cache.log /env/seen",)
        }
    )
    for times in (1, 2):
        cache = tmp_path / f"cache{times}"
        built = build_workspace(
            recipe, tree, backend=backend, cache_root=cache, downloads=tmp_path / "downloads"
        )
        assert (built.folder / "env" / "seen").read_text() == "more\n" * times


@pytest.mark.parametrize("backend", BACKENDS)
def test_builds_at_once_share_downloads_in_turn(tree: Path, tmp_path: Path, backend: str) -> None:
    """As root, each install runs as its own user: a later build leaves the folder to the one under way."""
    install = (
        "for i in 1 2 3; do touch $npm_config_cache.$$.$i && sleep .5 || exit 1; done; echo {}"
    )
    recipes = [RECIPE.model_copy(update={"install": (install.format(i),)}) for i in range(2)]

    def build(recipe: Recipe) -> Workspace:
        return build_workspace(
            recipe, tree, backend=backend, cache_root=tmp_path, downloads=tmp_path / "downloads"
        )

    with ThreadPoolExecutor(2) as pool:
        assert len({built.key for built in pool.map(build, recipes)}) == 2


@pytest.mark.bwrap
def test_a_program_that_commands_name_and_the_layer_lacks_is_told(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing composer used to count as the project's own `install` failure, so no run tried it again."""
    monkeypatch.setitem(packages.INSTALLERS, "python", "composer-of-nobody")
    calls = ("timeout 60 composer-of-nobody install -q || true",)
    recipe = RECIPE.model_copy(update={"install": calls})
    with pytest.raises(MissingToolError, match="composer-of-nobody: not found in the layer"):
        build_workspace(recipe, tree, backend="bubblewrap", cache_root=tmp_path)
    other = RECIPE.model_copy(update={"install": ("cat composer-of-nobody.lock || true",)})
    build_workspace(other, tree, backend="bubblewrap", cache_root=tmp_path)
    elsewhere = recipe.model_copy(update={"language": "java", "runner": "pytest"})
    assert (
        packages.programs(elsewhere) == ()
    )  # a word among its commands, which another language has


@pytest.mark.parametrize("whole", [True, False])
def test_a_halt_ends_its_own_workspaces_and_those_of_its_parts(
    built: Workspace, whole: bool
) -> None:
    outer = Halt()
    with outer.covering():
        inner = Halt()
        with inner.covering(), built.open() as place, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(place.shell, "sleep 300")
            (outer if whole else inner).set()
            with pytest.raises(SandboxError):
                waiting.result()
        assert outer.is_set is whole
        if not whole:
            with built.open() as place:
                assert place.shell("echo on").text == "on\n"


@pytest.mark.bwrap
def test_two_builds_at_once_build_once(tree: Path, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"install": ("sleep .5; date +%N > /env/when",)})
    steps: list[str] = []

    def build(_: int) -> Workspace:
        return build_workspace(
            recipe, tree, backend="bubblewrap", cache_root=tmp_path, log=steps.append
        )

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(build, range(3)))
    assert found[0] == found[1] == found[2]
    assert len([step for step in steps if step.startswith("install")]) == 1


@pytest.mark.bwrap
def test_a_build_that_was_killed_is_made_again(tree: Path, tmp_path: Path) -> None:
    built = build_workspace(RECIPE, tree, backend="bubblewrap", cache_root=tmp_path)
    part = built.folder.with_name(f".{built.key}.part")
    built.folder.rename(part)  # as a kill before the last step leaves it
    (part / "workspace.json").unlink()
    with pytest.raises(WorkspaceError, match="is not a workspace"):
        load(part)
    again = build_workspace(RECIPE, tree, backend="bubblewrap", cache_root=tmp_path)
    assert again.baseline == built.baseline
    assert not part.exists()
