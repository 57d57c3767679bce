from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.environments.hosts import close_hosts
from envgen.store.dataset import Dataset


@pytest.fixture(autouse=True, scope="session")
def _private_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test notes anything in the user's own folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny(_private_state: None, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_tiny_dataset(tmp_path_factory.mktemp("tiny") / "tiny", variant=True)


@pytest.fixture(scope="session", autouse=True)
def _closed_hosts(_private_state: None) -> Iterator[None]:
    yield
    close_hosts()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dataset"
