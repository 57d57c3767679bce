from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import toy_python

from envgen.core.code_types import Instance, VerdictKind
from envgen.core.patches import join_patches, split_patch
from envgen.core.types import GateStatus
from envgen.pipelines.code import verdicts
from envgen.pipelines.code.export import published_names
from envgen.pipelines.code.split import TEST_RULES, classify
from envgen.pipelines.code.validate import validate_instance
from envgen.pipelines.code.validation import Reason, ValidateConfig, Validation
from envgen.sandboxes.workspace import Workspace, WorkspaceLimits
from envgen.verifiers.code import CodeVerifier

pytestmark = pytest.mark.bwrap
QUICK = ValidateConfig(repeats=2, more=1)
ONCE = ValidateConfig(repeats=1, more=0)
"""For tests of what a single run of each state shows."""
UNTESTED = {path: text for path, text in toy_python.BASE.items() if "tests/test_" not in path}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_python.clone(tmp_path_factory.mktemp("toy") / "clone")


@pytest.fixture(scope="module")
def built(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return toy_python.workspace(repo, tmp_path_factory.mktemp("built"))


def validate(
    instance: Instance, workspace: Workspace, config: ValidateConfig = QUICK, **more: object
) -> Validation:
    limits = more.pop("limits", None)
    assert limits is None or isinstance(limits, WorkspaceLimits)
    base = more.pop("base", toy_python.BASE)
    assert isinstance(base, dict)
    return validate_instance(
        instance,
        workspace,
        config,
        test_files=[path for path in base if classify(path, "python") == "test"],
        test_paths=TEST_RULES["python"],
        limits=limits,
    )


def other(
    tmp_path: Path, fix: Mapping[str, bytes], base: Mapping[str, bytes] = toy_python.BASE
) -> tuple[Instance, Workspace]:
    repo = toy_python.clone(tmp_path / "clone", fix, base)
    return toy_python.instance(repo), toy_python.workspace(repo, tmp_path)


def test_the_toy_is_kept_with_its_tests(repo: Path, built: Workspace) -> None:
    found = validate(toy_python.instance(repo), built)
    assert found.reason is None, found.details
    assert found.tests is not None
    assert found.tests.fail_to_pass == toy_python.FAIL_TO_PASS
    assert found.tests.pass_to_pass == toy_python.PASS_TO_PASS
    assert found.tests.unstable == ()
    assert found.counts["not_built"] == 1
    assert found.runs == 8 + 6  # the last ones prove the verdicts
    assert all(gate.status is GateStatus.PASSED and gate.n for gate in found.evidence)
    verifier = CodeVerifier(built, found.tests)
    gold = verifier.verify_patch(toy_python.instance(repo).gold_patch.encode())
    assert gold.passed, gold.reasons
    assert set(gold.tests) == {*toy_python.FAIL_TO_PASS, *toy_python.PASS_TO_PASS}
    empty = verifier.verify_patch(b"")
    assert empty.value == 0
    assert len(empty.reasons) == 2
    tests_alone = verifier.verify_patch(toy_python.instance(repo).test_patch.encode())
    assert tests_alone.value == 0
    half = toy_python.FIXED.replace("price * count", "price")
    assert verifier.verify_patch(diff_of(built, {"src/shop/cart.py": half.encode()})).value == 0


WAITS = """\
import time

import pytest

from shop.cart import Cart, count


@pytest.mark.parametrize("wanted", [3])
def test_count(wanted):
    cart = Cart()
    cart.add("tea", 3, count=wanted)
    while count(cart, "tea") != wanted:
        time.sleep(0.01)


@pytest.mark.parametrize("wanted", ["milk"])
def test_waits(wanted):
    cart = Cart()
    cart.add("milk", 3)
    while wanted not in cart.names():
        time.sleep(0.01)
    assert count(cart, "milk") == 1
    assert cart.names() == [wanted]
"""


@pytest.mark.slow
def test_look_alikes_that_wait_for_ever_cost_a_minute_not_the_recipes_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "LEAST_WAIT_S", 6.0)
    instance, workspace = other(tmp_path, toy_python.FIX | {"tests/test_count.py": WAITS.encode()})
    patient = workspace.recipe.model_copy(update={"test_s": 900.0})
    workspace = workspace.model_copy(update={"recipe": patient})
    found = validate(instance, workspace)
    assert found.tests is not None, found.details
    kinds = {test.rpartition("::")[2]: one.kind for test, one in found.tests.verdicts.items()}
    assert kinds["test_total_counts"] is VerdictKind.MANY
    assert kinds["test_waits[milk]"] is VerdictKind.MANY
    assert kinds["test_count[3]"] not in verdicts.STRONG
    assert found.tests_s < 250


@pytest.mark.slow
def test_a_test_that_waits_for_the_fix_costs_a_minute_not_the_recipes_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "LEAST_WAIT_S", 4.0)
    waits = toy_python.NEW_TESTS.replace(
        "    assert cart.total() == 7", "    while cart.total() != 7: pass"
    )
    instance, workspace = other(tmp_path, toy_python.FIX | {"tests/test_cart.py": waits.encode()})
    patient = workspace.recipe.model_copy(update={"test_s": 900.0})
    found = validate(instance, workspace.model_copy(update={"recipe": patient}))
    assert found.reason is Reason.BEFORE_RUN
    assert found.tests_s < 200


def test_plugins_that_want_a_cache_have_one(tmp_path: Path) -> None:
    wants = b"def pytest_configure(config):\n    config.cache.set('own/key', 1)\n\n\n"
    base = toy_python.BASE | {"tests/conftest.py": wants + toy_python.BASE["tests/conftest.py"]}
    found = validate(*other(tmp_path, toy_python.FIX, base), ONCE)
    assert found.tests is not None, found.details
    assert found.tests.fail_to_pass == toy_python.FAIL_TO_PASS


def test_only_touched_files_are_run(repo: Path, built: Workspace) -> None:
    config = ONCE.model_copy(update={"only_touched": True})
    known = toy_python.instance(repo)
    split = {part.path: part for part in split_patch(known.test_patch.encode())}
    old = join_patches([split["tests/test_cart.py"]]).decode()
    found = validate(known.model_copy(update={"test_patch": old}), built, config)
    assert found.tests is not None, found.details
    assert found.tests.only == ("tests/test_cart.py",)
    assert found.tests.fail_to_pass == toy_python.FAIL_TO_PASS[:1]
    assert found.tests.pass_to_pass == toy_python.PASS_TO_PASS[:-1]
    renamed = "diff --git a/tests/test_prices.py b/tests/test_money.py\nsimilarity index 100%\n"
    renamed += "rename from tests/test_prices.py\nrename to tests/test_money.py\n"
    data = "diff --git a/tests/a.toml b/tests/a.toml\nnew file mode 100644\n--- /dev/null\n"
    data += "+++ b/tests/a.toml\n@@ -0,0 +1 @@\n+a = 1\n"
    more = old + renamed + data
    found = validate(known.model_copy(update={"test_patch": more}), built, config)
    assert found.tests is not None, found.details
    assert found.tests.only == ("tests/test_cart.py", "tests/test_money.py")
    new = join_patches([split["tests/test_count.py"]]).decode()
    found = validate(known.model_copy(update={"test_patch": new}), built, config)
    assert found.tests is not None, found.details
    assert found.tests.only == ("tests/test_count.py",)
    assert found.tests.fail_to_pass == toy_python.FAIL_TO_PASS[1:]
    assert found.tests.pass_to_pass == ()


def diff_of(workspace: Workspace, files: Mapping[str, bytes]) -> bytes:
    with workspace.open() as opened:
        for path, content in files.items():
            opened.write(path, content)
        return opened.diff()


def test_a_gold_patch_that_changes_nothing_tested(repo: Path, built: Workspace) -> None:
    gold = diff_of(built, {"src/shop/prices.py": toy_python.BASE["src/shop/prices.py"] + b"# x\n"})
    instance = toy_python.instance(repo, gold_patch=gold.decode())
    found = validate(instance, built)
    assert found.reason is Reason.NO_FAIL_TO_PASS


def test_a_gold_patch_that_no_test_imports(repo: Path, built: Workspace) -> None:
    gold = diff_of(built, {"src/shop/unused.py": b"x = 1\n"})
    instance = toy_python.instance(repo, gold_patch=gold.decode())
    found = validate(instance, built)
    assert found.reason is Reason.NOT_IMPORTED
    assert "src/shop/unused.py" in found.details


def test_an_installed_copy_that_the_patch_does_not_reach(repo: Path, tmp_path: Path) -> None:
    """Trap 2 of the field: ``pip install .`` instead of ``-e``."""
    copied = (
        "cp -r src/shop /env/lib/python3*/site-packages/; rm /env/lib/python3*/site-packages/*.pth"
    )
    recipe = toy_python.RECIPE.model_copy(update={"install": (*toy_python.RECIPE.install, copied)})
    workspace = toy_python.workspace(repo, tmp_path, recipe)
    assert validate(toy_python.instance(repo), workspace).reason is Reason.NOT_IMPORTED


def test_tests_that_the_runner_does_not_find(tmp_path: Path) -> None:
    fix = {path.replace("/test_", "/check_"): text for path, text in toy_python.FIX.items()}
    found = validate(*other(tmp_path, fix, UNTESTED))
    assert found.reason is Reason.NO_TESTS
    assert "no test file of 'pytest'" in found.details


def test_a_patch_that_brings_the_only_test_files(tmp_path: Path) -> None:
    found = validate(*other(tmp_path, toy_python.FIX, UNTESTED), ValidateConfig(repeats=1, more=1))
    assert found.tests is not None, found.details
    assert set(toy_python.FAIL_TO_PASS) <= {*found.tests.fail_to_pass}


ARRAYS = {f"tests/arrays/test_{n}.py": b"def test_n():\n    pass\n" for n in range(4)} | {
    "tests/arrays/conftest.py": b"import no_such_library\n"
}


@pytest.mark.slow
def test_canaries_go_elsewhere_where_the_largest_folder_can_not_be_imported(tmp_path: Path) -> None:
    base = {**toy_python.BASE, **ARRAYS}
    instance, workspace = other(tmp_path, toy_python.FIX, base)
    found = validate(instance, workspace, ValidateConfig(repeats=1, more=1), base=base)
    assert found.tests is not None, found.details
    assert found.tests.near == ("tests/test_cart.py",)
    gold = CodeVerifier(workspace, found.tests).verify_patch(instance.gold_patch.encode())
    assert gold.passed, gold.reasons


def test_an_import_error_is_told_as_one_where_no_folder_holds_canaries(tmp_path: Path) -> None:
    found = validate(*other(tmp_path, toy_python.FIX, {**UNTESTED, **ARRAYS}))
    assert found.reason is Reason.CANARIES
    assert found.details.startswith("not_loaded: the runner can't load 'tests/arrays'")
    assert "No module named 'no_such_library'" in found.details


def test_a_gold_patch_that_breaks_a_test(tmp_path: Path) -> None:
    fix = {**toy_python.FIX, "src/shop/prices.py": b"def euro(cents):\n    return 'no'\n"}
    found = validate(*other(tmp_path, fix), ONCE)
    assert found.reason is Reason.PASS_TO_FAIL
    assert found.details == "tests/test_prices.py::tests.test_prices::test_euro"


@pytest.mark.slow
def test_times_in_names_and_flaky_tests_are_left_out(tmp_path: Path) -> None:
    flaky = (
        "import random, time, pytest\n\n\n"
        "@pytest.mark.parametrize('now', [f't{time.time_ns()}'])\n"
        "def test_now(now):\n    pass\n\n\n"
        "@pytest.mark.parametrize('path', ['/tmp/cache/x'])\n"
        "def test_path(path):\n    pass\n\n\n"
        "@pytest.mark.parametrize('it', [f'0x7f{random.SystemRandom().randrange(16**10):010x}'])\n"
        "def test_it(it):\n    pass\n\n\n"
        "def test_flaky():\n    assert random.SystemRandom().random() < 0.5\n"
    )
    fix = {**toy_python.FIX, "tests/test_flaky.py": flaky.encode()}
    found = validate(*other(tmp_path, fix), ValidateConfig(repeats=5, more=3))
    assert found.reason is None, found.details
    assert found.tests is not None
    assert found.tests.fail_to_pass == toy_python.FAIL_TO_PASS
    module = "tests/test_flaky.py::tests.test_flaky"
    path, address = f"{module}::test_path[<tmp>/x]", f"{module}::test_it[<address>]"
    assert {*found.tests.pass_to_pass} == {*toy_python.PASS_TO_PASS, path, address}
    assert found.tests.printed == {path: f"{module}::test_path[/tmp/cache/x]", address: ""}
    names = published_names([address, path], found.tests)
    assert names == ["tests/test_flaky.py::test_path[/tmp/cache/x]"]
    assert f"{module}::test_flaky" in found.tests.unstable


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ({"tests/test_exit.py": b"import os\nos._exit(0)\n"}, Reason.BASE_RUN),
        ({"tests/test_hang.py": b"import time\ntime.sleep(600)\n"}, Reason.BASE_RUN),
        ({"setup.cfg": b"[tool:pytest]\npython_files = prices_*.py\n"}, Reason.CANARIES),
        ({"build.py": b"raise SystemExit('no compiler')\n"}, None),
    ],
)
def test_suites_that_cannot_be_judged(
    base: dict[str, bytes], reason: Reason | None, tmp_path: Path
) -> None:
    patience = 2.0 if "tests/test_hang.py" in base else 5.0  # a run that hangs is tried three times
    recipe = toy_python.RECIPE.model_copy(update={"test_s": patience, "build": ()})
    repo = toy_python.clone(tmp_path / "clone", base={**toy_python.BASE, **base})
    workspace = toy_python.workspace(repo, tmp_path, recipe)
    assert validate(toy_python.instance(repo), workspace, ONCE).reason is reason


def test_a_full_disk_is_a_run_error(tmp_path: Path) -> None:
    fill = b"def test_fill(tmp_path):\n    (tmp_path / 'x').write_bytes(bytes(1 << 27))\n"
    fix = {**toy_python.FIX, "tests/test_fill.py": fill}
    limits = WorkspaceLimits(disk_bytes=64 << 20)
    found = validate(*other(tmp_path, fix), ONCE, limits=limits)
    assert found.reason is None
    assert found.counts["fails"] == 1


@pytest.mark.parametrize(
    ("field", "reason"),
    [("gold_patch", Reason.GOLD_PATCH), ("test_patch", Reason.TEST_PATCH)],
)
def test_patches_that_do_not_apply(
    field: str, reason: Reason, repo: Path, built: Workspace
) -> None:
    patch = (
        "diff --git a/src/shop/gone.py b/src/shop/gone.py\n--- a/src/shop/gone.py\n"
        "+++ b/src/shop/gone.py\n@@ -1 +1 @@\n-old\n+new\n"
    )
    instance = toy_python.instance(repo, **{field: patch})
    assert validate(instance, built).reason is reason
