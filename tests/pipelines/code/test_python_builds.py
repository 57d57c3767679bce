"""Python recipes for real: uv, in a sandbox, against an index that tells when files were uploaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import package_index
import pytest
import toy_repository
from package_index import Wheel

from envgen.core.code_types import Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes import detect_recipe
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace

pytestmark = pytest.mark.bwrap
BACKEND = """
import os, zipfile
def _wheel(folder, editable):
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("thing.pth", os.getcwd() + "/src\\n" if editable else "")
        z.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n"
            "Requires-Dist: dep\\nProvides-Extra: test\\nRequires-Dist: helper ; extra == 'test'\\n")
        z.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\n"
            "Tag: py3-none-any\\n")
        z.writestr("thing-1.0.dist-info/RECORD", "")
    return name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, False)
def build_editable(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, True)
"""
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "backend"
[project]
name = "thing"
dynamic = ["version", "dependencies", "optional-dependencies"]
[project.optional-dependencies]
test = []
"""
OLD, BASE, NEW = "2023-01-01", "2023-06-01", "2024-01-01"
WHEELS = [
    *(Wheel(name, "1.0", OLD) for name in ("pip", "wheel", "setuptools", "iniconfig")),
    Wheel("pytest", "7.0", OLD, {"pytest.py": "VERSION = 7\n"}, ("iniconfig", "thing>=1")),
    Wheel("pytest", "8.0", NEW, {"pytest.py": "VERSION = 8\n"}),
    Wheel("dep", "1.0", OLD, {"dep.py": "VERSION = 1\n"}),
    Wheel("dep", "2.0", NEW, {"dep.py": "VERSION = 2\n"}),
    Wheel("helper", "1.0", OLD),
    Wheel("thing", "0.9", OLD, {"thing.py": "WHERE = 'a release'\n"}),
    Wheel("thing", "2.0", NEW, {"thing.py": "WHERE = 'a later release'\n"}),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    files = {
        "pyproject.toml": PYPROJECT.encode(),
        "src/thing.py": b"WHERE = 'the repository'\n",
        "tests/test_thing.py": b"",
    }
    base = toy_repository.make(folder / "clone", files)
    return base_tree(folder / "clone", base, folder / "tree.tar")


@pytest.fixture
def index() -> Iterator[str]:
    backend = Wheel("hatchling", "1.0", OLD, {"backend.py": BACKEND})
    with package_index.serve([*WHEELS, backend]) as url:
        yield url


def _build(recipe: Recipe, tree: Path, cache: Path, index: str) -> Workspace:
    return build_workspace(
        recipe,
        tree,
        backend="bubblewrap",
        cache_root=cache,
        variables={"UV_DEFAULT_INDEX": index, "UV_CONCURRENT_DOWNLOADS": "2"},
        reach=(urlsplit(index).netloc,),
    )


def _versions(built: Workspace) -> list[str]:
    program = "import thing, dep, pytest; print(thing.WHERE, dep.VERSION, pytest.VERSION, sep='|')"
    with built.open() as place:
        result = place.shell(f'python -c "{program}"')
        assert result.exit_code == 0, result.stderr
        return result.text.strip().split("|")


def test_dependencies_are_of_the_day_of_the_base_commit(
    tree: Path, tmp_path: Path, index: str
) -> None:
    built = _build(detect_recipe(tree, "python", BASE), tree, tmp_path, index)
    assert _versions(built) == ["the repository", "1", "7"]
    assert "helper==1.0" in built.recipe.pins
    assert "dep==1.0" in built.recipe.pins
    assert not any(pin.startswith("thing") for pin in built.recipe.pins)
    assert index not in (built.folder / "workspace.json").read_text()


def test_without_a_cut_today_is_taken_and_the_project_stays_itself(
    tree: Path, tmp_path: Path, index: str
) -> None:
    assert _versions(_build(detect_recipe(tree, "python"), tree, tmp_path, index)) == [
        "the repository",
        "2",
        "8",
    ]


def test_pins_bring_the_same_again_without_a_cut(tree: Path, tmp_path: Path, index: str) -> None:
    dated = _build(detect_recipe(tree, "python", BASE), tree, tmp_path, index)
    recipe = detect_recipe(tree, "python").model_copy(update={"pins": dated.recipe.pins})
    again = _build(recipe, tree, tmp_path, index)
    assert again.recipe.pins == dated.recipe.pins
    assert _versions(again) == ["the repository", "1", "7"]


def test_a_backend_of_today_builds_what_none_of_that_day_could(tree: Path, tmp_path: Path) -> None:
    old = Wheel("hatchling", "0.1", OLD, {"backend.py": "raise SystemExit('too old')\n"})
    new = Wheel("hatchling", "9.0", NEW, {"backend.py": BACKEND})
    with package_index.serve([*WHEELS, old, new]) as url:
        built = _build(detect_recipe(tree, "python", BASE), tree, tmp_path, url)
    assert _versions(built) == ["the repository", "1", "7"]


@pytest.mark.parametrize(
    ("pyproject", "setup"),
    [
        ("", "import pkg_resources\n"),
        ('[build-system]\nrequires = ["setuptools<64", "wheel"]\n', ""),
    ],
    ids=["its setup.py imports what today's setuptools lacks", "it pins setuptools before 64"],
)
def test_old_setuptools_projects_become_editable(
    pyproject: str, setup: str, tmp_path: Path
) -> None:
    files = {"pyproject.toml": pyproject.encode(), "setup.py": setup.encode()}
    files["src/thing.py"] = b"WHERE = 'the repository'\n"
    base = toy_repository.make(tmp_path / "clone", files)
    tree = base_tree(tmp_path / "clone", base, tmp_path / "tree.tar")
    wheels = [wheel for wheel in WHEELS if wheel.name != "setuptools"]
    runs_setup = "exec(open('setup.py').read())\n" + BACKEND
    for version, day, more, backend in (
        ("63.0", OLD, {"pkg_resources.py": ""}, runs_setup.partition("def build_editable")[0]),
        ("80.9", "2025-05-27", {"pkg_resources.py": ""}, runs_setup),
        ("82.0", "2026-02-08", {}, runs_setup),
    ):
        legacy = f"{backend}\nimport sys\n__legacy__ = sys.modules[__name__]\n"
        parts = {"setuptools/__init__.py": "", "setuptools/build_meta.py": legacy, **more}
        wheels.append(Wheel("setuptools", version, day, parts))
    with package_index.serve(wheels) as url:
        built = _build(detect_recipe(tree, "python", BASE), tree, tmp_path, url)
        assert _versions(built) == ["the repository", "1", "7"]
        # what builds is newer, what tests import is not
        assert "setuptools==63.0" in built.recipe.pins
        assert _build(built.recipe, tree, tmp_path / "again", url).recipe.pins == built.recipe.pins


def test_extras_that_can_not_be_had_are_left_out_and_said(tree: Path, tmp_path: Path) -> None:
    wheels = [wheel for wheel in WHEELS if wheel.name != "helper"]
    with package_index.serve(
        [*wheels, Wheel("hatchling", "1.0", OLD, {"backend.py": BACKEND})]
    ) as url:
        built = _build(detect_recipe(tree, "python", BASE), tree, tmp_path, url)
    assert _versions(built) == ["the repository", "1", "7"]
    log = (built.folder / "build.log").read_text()
    assert "\nleft out: -e .[test]\n" in log


def test_a_dependency_that_can_not_be_had_ends_the_build(tree: Path, tmp_path: Path) -> None:
    wheels = [wheel for wheel in WHEELS if wheel.name != "dep"]
    backend = Wheel("hatchling", "1.0", OLD, {"backend.py": BACKEND})
    with (
        package_index.serve([*wheels, backend]) as url,
        pytest.raises(WorkspaceError, match="dep was not found"),
    ):
        _build(detect_recipe(tree, "python", BASE), tree, tmp_path, url)
