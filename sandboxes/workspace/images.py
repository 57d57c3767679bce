"""Docker images of layers and workspaces: language, repository, instance, one on top of the other.

The legacy builder suffices. Every image carries the label ``envgen.workspace``, by which it is found
and removed, and ``envgen.cache``: which cache folder it belongs to.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envgen.core.environ import cache_folder
from envgen.core.errors import WorkspaceError
from envgen.core.limits import Count, Label
from envgen.core.types import Record
from envgen.sandboxes import docker

LABEL = "envgen.workspace"
CACHE_LABEL = "envgen.cache"
DOCKERFILES = Path(__file__).parent / "dockerfiles"
_TIMEOUT_S = 3600.0


class Image(Record):
    """An image of ours."""

    name: Label
    kind: Label
    """``language``, ``repository`` or ``instance``."""
    bytes: Count


def cache_id(cache_root: Path | None = None) -> str:
    """Return the tag that tells the images of one cache folder from another's."""
    place = str(cache_root or cache_folder()).encode()
    return hashlib.sha256(place).hexdigest()[:8]


def build_language(base: str, packages: Sequence[str], owner: str) -> str:
    """The language layer on an image that has apt; the new image's id."""
    with tempfile.TemporaryDirectory() as empty:
        return _build(
            "language", Path(empty), {"BASE": base, "PACKAGES": " ".join(packages)}, owner
        )


def build_instance(folder: Path, layer_image: str, key: str, owner: str) -> str:
    """The repository and instance layers of a built workspace; the image's name.

    Args:
        folder: holds ``env`` and ``tree.tar``.
        layer_image: the language layer.
        key: the workspace's.
        owner: whose cache it belongs to (``cache_id``).
    """
    repository = _build(
        "repository", folder, {"BASE": layer_image}, owner, ignore=("tree.tar", "*.log")
    )
    name = f"envgen-instance-{owner}:{key}"
    _build("instance", folder, {"BASE": repository}, owner, name=name, ignore=("env", "*.log"))
    return name


def import_root(root: Path, name: str, identity: str, owner: str) -> str:
    """An image of a root file system; its name."""
    image = f"envgen-layer-{name}-{owner}:{identity}"
    labels = f"LABEL {LABEL}=language {CACHE_LABEL}={owner}"
    words = ["docker", "import", "--change", labels, "-", image]
    pack = ["tar", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", "-", "."]
    with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        _docker(words, stdin=packing.stdout)
    if packing.returncode:
        raise WorkspaceError(f"can't pack {root}", "read all of it: run as root")
    return image


def export(image: str, root: Path) -> None:
    """An image's files as a root file system. Needs root, or owners are lost."""
    root.mkdir()
    container = _docker(["docker", "create", image, "true"]).strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as exporting:
            unpack = ["tar", "--numeric-owner", "-C", str(root), "-xpf", "-", "--exclude=dev/*"]
            subprocess.run(unpack, stdin=exporting.stdout, check=False, timeout=_TIMEOUT_S)
    finally:
        _docker(["docker", "rm", "-f", container])


def exists(image: str) -> bool:
    """Whether the engine has the image."""
    return any(image in (found.get("RepoTags") or ()) for found in _labelled(LABEL))


def folders(image: str) -> list[Path]:
    """Where the engine keeps the files of an image's layers; root alone can read them."""
    with docker.engine_errors("look at an image"):
        found = docker.client().api.inspect_image(image)["GraphDriver"]["Data"] or {}
    paths = f"{found.get('UpperDir', '')}:{found.get('LowerDir', '')}".split(":")
    return [Path(path) for path in paths if path]


def ours(owner: str) -> list[Image]:
    """Images of one cache folder (``cache_id``); none where no engine answers."""
    if docker.unavailable():
        return []
    return [
        Image(name=name, kind=found["Labels"][LABEL], bytes=found["Size"])
        for found in _labelled(f"{CACHE_LABEL}={owner}")
        for name in found.get("RepoTags") or [found["Id"]]
        if name != "<none>:<none>"
    ]


def _labelled(label: str) -> list[dict[str, Any]]:
    with docker.engine_errors("list images"):
        found: list[dict[str, Any]] = docker.client().api.images(filters={"label": label})
    return found


def remove(image: str, wait_s: float = 10.0) -> None:
    """Remove an image and the layers that nothing else needs; none: nothing happens.

    A container that has been closed may hold its image for a moment. Raises SandboxError when one
    still does after ``wait_s``.
    """
    import docker as sdk

    deadline = time.monotonic() + wait_s
    with docker.engine_errors("remove an image"):
        while True:
            try:
                docker.client().api.remove_image(image)
                return
            except sdk.errors.ImageNotFound:
                return
            except sdk.errors.APIError as error:
                if error.status_code != 409 or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def _build(
    kind: str,
    context: Path,
    arguments: Mapping[str, str],
    owner: str,
    *,
    name: str | None = None,
    ignore: Sequence[str] = (),
) -> str:
    """Build one layer; its id. Raises WorkspaceError with the builder's last lines."""
    (context / ".dockerignore").write_text("\n".join(ignore))
    words = ["docker", "build", "-q", "-f", str(DOCKERFILES / f"{kind}.Dockerfile")]
    words += ["--label", f"{LABEL}={kind}", "--label", f"{CACHE_LABEL}={owner}"]
    for key, value in arguments.items():
        words += ["--build-arg", f"{key}={value}"]
    words += ["-t", name] if name else []
    try:
        return _docker([*words, str(context)]).strip().splitlines()[-1]
    finally:
        (context / ".dockerignore").unlink()


def _docker(words: Sequence[str], stdin: object = subprocess.DEVNULL) -> str:
    if reason := docker.unavailable():
        raise WorkspaceError(f"no Docker Engine: {reason}", "start it, or use bubblewrap")
    done = subprocess.run(
        words,
        stdin=stdin,  # type: ignore[call-overload]  # a pipe or DEVNULL
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    if done.returncode:
        tail = done.stderr.decode(errors="replace").strip()[-1500:]
        raise WorkspaceError(
            f"{' '.join(words[:2])} failed: {tail}", "see above; docker info tells more"
        )
    return str(done.stdout.decode(errors="replace"))
