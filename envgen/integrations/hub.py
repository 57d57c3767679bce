"""Datasets on the Hugging Face Hub: ``envgen push ds/ me/my-dataset``, ``envgen pull me/my-dataset``.

The client is ``huggingface_hub``. What was pulled is a stranger's: it is opened, with all hashes checked,
before it has its name, and its code runs in sandboxes alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from envgen.core.errors import ConfigError, MissingExtraError, StoreError, install_hint
from envgen.core.limits import Count, Label
from envgen.core.types import Record
from envgen.store.dataset import Dataset

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""``owner/name``."""
_BESIDE = (".gitattributes", ".cache")
"""What the Hub and its client put beside a dataset."""


class Pushed(Record):
    """Where a dataset is now."""

    repo: Label
    url: Label
    commit: Label
    tasks: Count


class Pulled(Record):
    """What came from the Hub."""

    path: Label
    repo: Label
    commit: Label
    environments: Count
    tasks: Count


def push(
    dataset: Dataset,
    repo: str,
    *,
    private: bool = False,
    endpoint: str | None = None,
    token: str | None = None,
) -> Pushed:
    """Make the Hub's dataset ``repo`` hold this one, as one commit; what else was in it is removed.

    Args:
        dataset: what is pushed, whole: solutions and verifiers, too.
        repo: ``owner/name``; made if it is not there.
        private: if it is made: for its owner alone.
        endpoint: another Hub than Hugging Face's.
        token: who pushes; None: whoever logged in with ``hf auth login``.

    Raises:
        StoreError: if the Hub refuses, or can't be reached.
        MissingExtraError: if ``huggingface_hub`` is not installed.
    """
    api = _api(endpoint, token)
    with _told(repo):
        api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=str(dataset.path),
            delete_patterns=["*"],
            commit_message=f"{dataset.manifest.name}: {len(dataset.tasks)} tasks, made by envgen",
        )
    tasks = len(dataset.tasks)
    return Pushed(repo=repo, url=f"{api.endpoint}/datasets/{repo}", commit=commit.oid, tasks=tasks)


def pull(
    repo: str,
    out: str | Path,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    unproven: bool = False,
) -> Pulled:
    """Download a dataset into a new folder, and check it.

    Args:
        repo: ``owner/name``.
        out: the new folder.
        revision: branch, tag or commit; None: the newest.
        endpoint: another Hub than Hugging Face's.
        token: who asks, where it is private.
        unproven: accept tasks whose evidence is missing or negative.

    Raises:
        StoreError: if the folder is there, or the Hub has no such dataset or can't be reached.
        DatasetError: if what came is damaged, hostile, or no dataset of envgen.
        MissingExtraError: if ``huggingface_hub`` is not installed.
    """
    out = Path(out)
    if out.exists():
        raise StoreError(f"{str(out)!r} exists already", "choose another folder with --out")
    api = _api(endpoint, token)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            folder = Path(scratch) / "dataset"
            with _told(repo):
                commit = str(api.dataset_info(repo, revision=revision).sha)
                api.snapshot_download(
                    repo,
                    repo_type="dataset",
                    revision=commit,
                    local_dir=folder,
                    ignore_patterns=[".gitattributes"],
                )
            for name in _BESIDE:
                shutil.rmtree(folder / name, ignore_errors=True)
            counts = Dataset.open(folder, unproven=unproven).manifest.counts
            folder.rename(out)
    except OSError as error:
        raise StoreError(
            f"can't write {str(out)!r}: {error.strerror or error}", "choose another folder"
        ) from error
    return Pulled(
        path=str(out),
        repo=repo,
        commit=commit,
        environments=counts.environments,
        tasks=counts.tasks,
    )


def _api(endpoint: str | None, token: str | None) -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingExtraError("the Hub needs huggingface_hub", install_hint("hub")) from error
    return HfApi(endpoint=endpoint, token=token, library_name="envgen")


def _network(status: type[Exception]) -> type[Exception]:
    """The base of all errors of the HTTP library that the client uses, of which it has had several."""
    return next(one for one in reversed(status.__mro__) if one.__name__ == "HTTPError")


@contextmanager
def _told(repo: str) -> Iterator[None]:
    """The client's errors in our words; a name that is none is refused before anybody is asked."""
    if not _ID.fullmatch(repo):
        raise ConfigError(f"{repo[:100]!r} is no name of a dataset", "write OWNER/NAME")
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except LocalTokenNotFoundError as error:
        raise ConfigError("nobody is logged in", "`hf auth login`, or set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise StoreError(
            f"{repo!r} has no such revision", "name a branch, tag or commit"
        ) from error
    except RepositoryNotFoundError as error:
        raise StoreError(
            f"the Hub has no dataset {repo!r} for you", "look at its name; if it is private, log in"
        ) from error
    except HfHubHTTPError as error:
        raise StoreError(f"the Hub refuses {repo!r}: {str(error).splitlines()[0][:300]}") from error
    except ValueError as error:  # the client refuses names of files that would leave the folder
        raise StoreError(f"{repo!r} can't be taken: {str(error)[:300]}") from error
    except RuntimeError as error:  # an upload that failed; the client tells why in the cause
        raise StoreError(f"the upload broke: {error.__cause__ or error}", "push again") from error
    except (_network(HfHubHTTPError), ConnectionError) as error:
        raise StoreError(
            f"the Hub can't be reached: {error}", "look at the network and --endpoint"
        ) from error
