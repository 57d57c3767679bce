"""List what is built with its size, and remove what nobody needs any more."""

from __future__ import annotations

import datetime
import fcntl
import os
import time
from pathlib import Path

from envgen.core.errors import WorkspaceError
from envgen.core.limits import Count, Label
from envgen.core.types import Record
from envgen.sandboxes import docker
from envgen.sandboxes.workspace import images, pool, store
from envgen.sandboxes.workspace.layers import HOST, RECORD, known_layers, layer, layers_folder
from envgen.sandboxes.workspace.open import load

_PART = ".part"


class StoredItem(Record):
    """A layer, a workspace, an image, or the rest of a killed build."""

    kind: Label
    """``layer``, ``workspace``, ``image`` or ``rest``."""
    name: Label
    bytes: Count
    used: Label = ""
    """Day and time of its last use, UTC, ISO."""
    about: Label = ""
    path: Path | None = None


def inventory(cache_root: Path | None = None) -> list[StoredItem]:
    """Everything there is, layers first."""
    return [
        *_layers(cache_root),
        *_workspaces(cache_root),
        *_images(cache_root),
        *_rests(cache_root),
    ]


def clean(
    *,
    older_than_days: float | None = None,
    layers: bool = False,
    dry_run: bool = False,
    cache_root: Path | None = None,
) -> list[StoredItem]:
    """Remove rests of killed builds, images that no layer or workspace names, and what is asked for.

    Args:
        older_than_days: also workspaces that nobody has opened a build of for so long.
        layers: also every language layer; its workspaces stay until they are old.
        dry_run: remove nothing.
        cache_root: instead of the user's cache folder.

    Returns:
        What was removed, or would have been.
    """
    gone = _rests(cache_root)
    if older_than_days is not None:
        line = time.time() - older_than_days * 86_400
        gone += [item for item in _workspaces(cache_root) if _seconds(item) < line]
    if layers:
        gone += _layers(cache_root)
    names = {item.name for item in gone}
    gone += [item for item in _images(cache_root) if not _needed(item.name, names, cache_root)]
    if not dry_run:
        for item in gone:
            if item.path is not None:
                (store.discard if item.kind == "workspace" else store.remove)(item.path)
            else:
                images.remove(item.name)
        pool.sweep(pool.place(cache_root))
        if not docker.unavailable():
            docker.reap()
    return gone


def _layers(cache_root: Path | None) -> list[StoredItem]:
    found = []
    for name in known_layers(cache_root):
        if name == HOST:
            continue
        known = layer(name, cache_root)
        place = layers_folder(cache_root) / name
        kinds = [kind for kind, it in (("root", known.root), ("image", known.image)) if it]
        about = f"{' and '.join(kinds)}, {len(known.packages)} packages"
        used = _used(place / RECORD)
        found.append(
            StoredItem(
                kind="layer", name=name, bytes=store.size(place), used=used, about=about, path=place
            )
        )
    return found


def _workspaces(cache_root: Path | None) -> list[StoredItem]:
    found = []
    for record in sorted(store.code_folder(cache_root).glob(f"*/{store.RECORD}")):
        if record.parent.name.startswith("."):
            continue
        try:
            recipe = load(record.parent).recipe
            about = f"{recipe.language} on {recipe.layer}, {len(recipe.pins)} pins"
        except WorkspaceError as error:
            about = str(error)
        place = record.parent
        found.append(
            StoredItem(
                kind="workspace",
                name=place.name,
                bytes=store.size(place),
                used=_used(record),
                about=about,
                path=place,
            )
        )
    return found


def _images(cache_root: Path | None) -> list[StoredItem]:
    return [
        StoredItem(kind="image", name=image.name, bytes=image.bytes, about=f"{image.kind} layer")
        for image in images.ours(images.cache_id(cache_root))
    ]


def _rests(cache_root: Path | None) -> list[StoredItem]:
    """Folders of builds that no process is at work on."""
    found = []
    for folder in (store.code_folder(cache_root), layers_folder(cache_root)):
        for part in sorted(folder.glob(f".*{_PART}")):
            place = folder / part.name.removeprefix(".").removesuffix(_PART)
            if not _at_work(place):
                item = StoredItem(kind="rest", name=part.name, bytes=store.size(part), path=part)
                found.append(item)
    return found


def _at_work(place: Path) -> bool:
    """Whether a process holds the lock of a build."""
    try:
        file = os.open(f"{place}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _needed(image: str, gone: set[str], cache_root: Path | None) -> bool:
    """Whether a layer or a workspace that stays names the image."""
    kind, _, key = image.partition(":")
    if kind.startswith("envgen-instance-"):
        return key not in gone and (store.code_folder(cache_root) / key).exists()
    for name in known_layers(cache_root):
        if name != HOST and name not in gone and layer(name, cache_root).image == image:
            return True
    return False


def _used(record: Path) -> str:
    moment = datetime.datetime.fromtimestamp(record.stat().st_mtime, datetime.UTC)
    return moment.isoformat(timespec="seconds")


def _seconds(item: StoredItem) -> float:
    return datetime.datetime.fromisoformat(item.used).timestamp()
