"""A small Python project with an issue, its fix and its tests, built without any network."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import toy_repository
from shared import recalled, remember

from envgen.core.code_types import Instance, Recipe
from envgen.environments.code_hosts import RECIPE as RECIPE_KEY
from envgen.environments.code_hosts import TREE
from envgen.pipelines.code.clone import Clone
from envgen.pipelines.code.generate import CodeConfig, CodeSummary, generate_code
from envgen.pipelines.code.prove import BuildConfig, Job
from envgen.pipelines.code.split import split_change
from envgen.pipelines.code.validation import ValidateConfig
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace
from envgen.store.dataset import Dataset

CART = '''\
"""A shopping cart."""


class Cart:
    def __init__(self):
        self.lines = []

    def add(self, name, price, count=1):
        self.lines.append((name, price, count))

    def total(self):
        return sum(price for name, price, count in self.lines)

    def names(self):
        return [name for name, price, count in self.lines]
'''
FIXED = (
    CART.replace("sum(price for", "sum(price * count for")
    + """

def count(cart, name):
    return sum(count for line, price, count in cart.lines if line == name)
"""
)
TESTS = """\
import pytest

from shop.cart import Cart


def test_empty():
    cart = Cart()
    assert cart.total() == 0


def test_names(cart):
    cart.add("tea", 3)
    assert cart.names() == ["tea"]


@pytest.mark.parametrize("price", [1, 2])
def test_one_line(cart, price):
    cart.add("tea", price)
    assert cart.total() == price


@pytest.mark.skip(reason="later")
def test_later():
    assert False


@pytest.mark.xfail(strict=True)
def test_known():
    assert Cart().total() == 1
"""
NEW_TESTS = (
    TESTS
    + """

def test_total_counts(cart):
    cart.add("tea", 3, count=2)
    cart.add("milk", 1)
    assert cart.total() == 7
"""
)
COUNT_TESTS = """\
from shop.cart import Cart, count


def test_count():
    cart = Cart()
    cart.add("tea", 3, count=2)
    cart.add("tea", 3)
    assert count(cart, "tea") == 3
"""
BASE: dict[str, bytes] = {
    "src/shop/__init__.py": b"",
    "src/shop/cart.py": CART.encode(),
    "src/shop/prices.py": b"def euro(cents):\n    return f'{cents / 100:.2f} EUR'\n",
    "tests/conftest.py": (
        b"import pytest\n\nfrom shop.cart import Cart\n\n\n"
        b"@pytest.fixture\ndef cart():\n    return Cart()\n"
    ),
    "tests/test_cart.py": TESTS.encode(),
    "tests/test_prices.py": (
        b"from shop.prices import euro\n\n\ndef test_euro():\n    assert euro(150) == '1.50 EUR'\n"
    ),
    "setup.cfg": b"[tool:pytest]\ntestpaths = tests\n",
    "build.py": b"print('nothing to build')\n",
    ".gitignore": b"__pycache__/\n",
}
FIX: dict[str, bytes] = {
    "src/shop/cart.py": FIXED.encode(),
    "tests/test_cart.py": NEW_TESTS.encode(),
    "tests/test_count.py": COUNT_TESTS.encode(),
    "CHANGELOG.md": b"Totals count.\n",
}
FAIL_TO_PASS = (
    "tests/test_cart.py::tests.test_cart::test_total_counts",
    "tests/test_count.py::tests.test_count::test_count",
)
PASS_TO_PASS = (
    "tests/test_cart.py::tests.test_cart::test_empty",
    "tests/test_cart.py::tests.test_cart::test_known",
    "tests/test_cart.py::tests.test_cart::test_names",
    "tests/test_cart.py::tests.test_cart::test_one_line[1]",
    "tests/test_cart.py::tests.test_cart::test_one_line[2]",
    "tests/test_prices.py::tests.test_prices::test_euro",
)
_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
RECIPE = Recipe(
    language="python",
    runner="pytest",
    install=(
        '"$PYTHON" -m venv --without-pip /env',
        "cd /env/lib/python3*/site-packages && cp -r --preserve=timestamps "  # or each run compiles
        f"{' '.join(f'/site/{p}' for p in _PACKAGES)} . && echo /work/repo/src > shop.pth "
        "&& echo pytest==0 > /env/pins.txt",
    ),
    build=("python build.py",),
    memory_bytes=1 << 30,
    disk_bytes=64 << 20,
    test_s=60,
)


def clone(folder: Path, fix: Mapping[str, bytes] = FIX, base: Mapping[str, bytes] = BASE) -> Path:
    """A clone with a base commit and a commit that fixes the issue, tagged ``base`` and ``fix``."""
    folder.mkdir(parents=True)
    toy_repository.git(folder, "init", "-q", "-b", "main")
    for name, files in (("base", base), ("fix", fix)):
        for path, content in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        toy_repository.git(folder, "add", "-A")
        message = "Totals ignore counts (#7)" if name == "fix" else "Begin"
        toy_repository.git(folder, "commit", "-qm", message)
        toy_repository.git(folder, "tag", name)
    return folder


def instance(repo: Path, **more: object) -> Instance:
    """The instance of a clone that ``clone`` made."""
    git = Clone(repo)
    base, head = git.tip("base"), git.tip("fix")
    split = split_change(git.diff(base, head), "python")
    found = Instance(
        id="toy__shop-7",
        repo="toy/shop",
        base_commit=base,
        head_commit=head,
        language="python",
        kind="issue",
        pull_number=7,
        problem_statement="Cart.total() ignores how many of each thing are in the cart.",
        gold_patch=split.gold_patch,
        test_patch=split.test_patch,
        recipe=RECIPE,
        licence="MIT",
    )
    return found.model_copy(update=more)


def mounts() -> tuple[Mount, ...]:
    """What an install copies pytest from."""
    spec = importlib.util.find_spec("pytest")
    assert spec is not None
    assert spec.origin is not None
    return (Mount(source=Path(spec.origin).parents[1], target="/site"),)


def workspace(repo: Path, folder: Path, recipe: Recipe = RECIPE) -> Workspace:
    """The built workspace of a clone's base commit."""
    tree = base_tree(repo, "base", folder / "tree.tar")
    return build_workspace(
        recipe, tree, backend="bubblewrap", cache_root=folder / "cache", mounts=mounts()
    )


def generated(repo: Path, out: Path, *jobs: Job) -> CodeSummary:
    """A dataset of the toy's instance (or of ``jobs``), in as few runs as possible."""
    config = CodeConfig(validation=ValidateConfig(repeats=1, more=1))
    return generate_code(
        config,
        out,
        jobs=jobs or (Job(instance(repo), repo),),
        build=BuildConfig(backend="bubblewrap", mounts=mounts()),
    )


def dataset(folder: Path) -> Path:
    """The toy's one task, proven, at ``folder/code``: the processes of a run prove it once."""
    out = folder / "code"
    known: dict[str, bytes] | None = recalled("toy-python")
    if known is None:
        assert generated(clone(folder / "toy-clone"), out).tasks == 1
        files = (path for path in out.rglob("*") if path.is_file())
        remember("toy-python", {str(path.relative_to(out)): path.read_bytes() for path in files})
        return out
    for name, content in known.items():
        place = out / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    kept = Dataset.open(out)
    (desk,) = map(kept.environment_files, kept.environments)
    assert isinstance(desk.blueprint, dict)
    frozen = Recipe.model_validate(desk.blueprint[RECIPE_KEY])
    # Only the process that proved it has it built, and an install without the mount fails.
    build_workspace(frozen, desk.attachments[TREE], backend="bubblewrap", mounts=mounts())
    return out
