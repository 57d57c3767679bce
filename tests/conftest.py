"""Skip what needs a missing service, with the reason; fail instead when ENVGEN_REQUIRE_SERVICES=1."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

os.environ.pop("COLUMNS", None)  # xdist sets it for its workers; pipes have no width

import hypothesis
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # a process a core: more threads would wait in turns
    os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("shared", deadline=None)  # time limits fail on busy machines
hypothesis.settings.load_profile("shared")


@cache
def _bwrap() -> str:
    from envgen.sandboxes import bubblewrap

    return bubblewrap.unavailable()


@cache
def _docker() -> str:
    from envgen.sandboxes import docker

    return docker.unavailable()


@cache
def _postgres() -> str:
    return "" if os.environ.get("ENVGEN_TEST_POSTGRES") else "ENVGEN_TEST_POSTGRES is not set"


def _reasoning_gym() -> str:
    return "" if find_spec("reasoning_gym") else "pip install 'envgen-gym[reasoning-gym]'"


SERVICES: dict[str, Callable[[], str]] = {
    "bwrap": _bwrap,
    "docker": _docker,
    "postgres": _postgres,
    "reasoning_gym": _reasoning_gym,
}


ALONE = ("postgres", "ray", "browser", "gpu")
"""Markers of services that two tests at a time would fight over: one process runs all tests of each."""


@pytest.hookimpl(tryfirst=True)  # xdist's own hook reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``slow_tests.txt`` lists; keep the ids that the file ENVGEN_TESTS_ONLY names, if it is set.

    Under ``-n N --dist loadgroup``: a file's tests share its fixtures, and so do its slow ones. Groups with
    slow tests go first, or one process would be left alone with the last of them.
    """
    lines = (Path(__file__).parent / "slow_tests.txt").read_text("utf-8").splitlines()
    slow_ones = {line.partition(" ")[2] for line in lines if not line.startswith("#")}
    for item in items:
        if item.nodeid in slow_ones:
            item.add_marker(pytest.mark.slow)
    if only := os.environ.get("ENVGEN_TESTS_ONLY"):
        wanted = set(Path(only).read_text("utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]
    if not config.pluginmanager.hasplugin("xdist"):
        return
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    slow = {group for item, group in groups.items() if item.get_closest_marker("slow")}
    items.sort(key=lambda item: groups[item] not in slow)


def _group(item: pytest.Item) -> str:
    """The name of the tests that run in one process with this one."""
    if named := item.get_closest_marker("xdist_group"):  # files that share a fixture
        return str(named.args[0])
    markers = {marker.name for marker in item.iter_markers()}
    for service in ALONE:
        if service in markers:
            return service
    file = item.nodeid.partition("::")[0]
    apart = next((f" {name}" for name in ("slow", "docker") if name in markers), "")
    return file + apart  # every sandbox is told apart by its owner's process: files don't meet


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look at the service that a marker names before the test's fixtures run."""
    for name, reason_of in SERVICES.items():
        if item.get_closest_marker(name) is None:
            continue
        if reason := reason_of():
            if os.environ.get("ENVGEN_REQUIRE_SERVICES") == "1":
                pytest.fail(f"{name} is required: {reason}", pytrace=False)
            pytest.skip(f"{name}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust and caches of the tests, apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        own = tmp_path_factory.getbasetemp()
        shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
        shared.mkdir(exist_ok=True)
        patch.setenv("ENVGEN_TESTS_SHARED", str(shared))  # see helpers/shared.py
        yield


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    """Leave PyTorch's threads as they were: one too many makes all later tests of a process wait."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """URL of a PostgreSQL server for tests marked ``postgres``."""
    return os.environ["ENVGEN_TEST_POSTGRES"]
