"""Datasets on a Hub: pushed and pulled by the Hub's own client, checked when they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, StoreError
from envgen.integrations.hub import pull, push
from envgen.store.dataset import Dataset

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=")  # huggingface_hub's, of its client
REPO = "me/tiny"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_tiny_dataset(tmp_path_factory.mktemp("hub") / "ds", register=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with HubServer() as server:
        yield server


def there(hub: HubServer, dataset: Dataset) -> None:
    push(dataset, REPO, endpoint=hub.url, token=hub.token)


def test_what_was_pushed_comes_back_whole(hub: HubServer, dataset: Dataset, tmp_path: Path) -> None:
    pushed = push(dataset, REPO, endpoint=hub.url, token=hub.token)
    assert pushed.commit == hub.sha(REPO)
    pulled = pull(REPO, tmp_path / "back", endpoint=hub.url)
    assert (pulled.tasks, pulled.commit) == (len(dataset.tasks), pushed.commit)
    back = Dataset.open(tmp_path / "back")
    assert back.manifest == dataset.manifest
    files = {one.relative_to(dataset.path) for one in dataset.path.rglob("*") if one.is_file()}
    assert files == {one.relative_to(back.path) for one in back.path.rglob("*") if one.is_file()}
    assert back.trusted == Dataset.open(dataset.path).trusted  # by its hash, and nothing else


def test_a_second_push_leaves_nothing_of_the_first(hub: HubServer, dataset: Dataset) -> None:
    there(hub, dataset)
    hub.files[REPO]["old/leftover.json"] = b"{}"
    there(hub, dataset)
    assert "old/leftover.json" not in hub.files[REPO]


@pytest.mark.parametrize("spoil", ["environments/tiny_hotels/tools.py", "dataset.json"])
def test_what_was_changed_on_the_way_is_refused(
    hub: HubServer, dataset: Dataset, tmp_path: Path, spoil: str
) -> None:
    there(hub, dataset)
    hub.files[REPO][spoil] += b"\n# changed"
    with pytest.raises(StoreError):
        pull(REPO, tmp_path / "back", endpoint=hub.url)
    assert not list(tmp_path.glob("*back*"))


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "..\\escaped", "a\0b"])
def test_names_that_leave_the_folder_are_refused(
    hub: HubServer, dataset: Dataset, tmp_path: Path, name: str
) -> None:
    there(hub, dataset)
    hub.files[REPO][name] = b"x"
    with pytest.raises(StoreError, match="can't be taken"):
        pull(REPO, tmp_path / "a" / "back", endpoint=hub.url)
    assert not list(tmp_path.rglob("*escaped*"))


def test_what_is_wrong_is_told(hub: HubServer, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no dataset 'me/none' for you"):
        pull("me/none", tmp_path / "x", endpoint=hub.url)
    with pytest.raises(StoreError, match=r"refuses|no dataset"):
        push(dataset, REPO, endpoint=hub.url, token="wrong")
    there(hub, dataset)
    with pytest.raises(StoreError, match="no such revision"):
        pull(REPO, tmp_path / "x", endpoint=hub.url, revision="v9")
    with pytest.raises(ConfigError, match="no name of a dataset"):
        pull("a/b/c", tmp_path / "x", endpoint=hub.url)
    with pytest.raises(StoreError, match="can't be reached"):
        pull(REPO, tmp_path / "x", endpoint="http://127.0.0.1:9")
    (tmp_path / "x").mkdir()
    with pytest.raises(StoreError, match="exists already"):
        pull(REPO, tmp_path / "x", endpoint=hub.url)
