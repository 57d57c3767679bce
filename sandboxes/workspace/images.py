"""Docker images of layers and workspaces: language, repository, instance, one on top of the other.

The legacy builder suffices. Every image carries the label ``envgen.workspace``, by which it is found
and removed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envgen.core.errors import WorkspaceError
from envgen.core.types import Record
from envgen.sandboxes import docker

LABEL = "envgen.workspace"
DOCKERFILES = Path(__file__).parent / "dockerfiles"
_TIMEOUT_S = 3600.0


class Image(Record):
    """An image of ours."""

    name: str
    kind: str
    """``language``, ``repository`` or ``instance``."""
    bytes: int


def build_language(base: str, packages: Sequence[str]) -> str:
    """The language layer on an image that has apt; the new image's id."""
    with tempfile.TemporaryDirectory() as empty:
        return _build("language", Path(empty), {"BASE": base, "PACKAGES": " ".join(packages)})


def build_instance(folder: Path, layer_image: str, key: str) -> str:
    """The repository and instance layers of a built workspace; the image's name.

    Args:
        folder: holds ``env`` and ``tree.tar``.
        layer_image: the language layer.
        key: the workspace's.
    """
    repository = _build("repository", folder, {"BASE": layer_image}, ignore=("tree.tar", "*.log"))
    name = f"envgen-instance:{key}"
    _build("instance", folder, {"BASE": repository}, name=name, ignore=("env", "*.log"))
    return name


def import_root(root: Path, name: str, identity: str) -> str:
    """An image of a root file system; its name."""
    image = f"envgen-layer-{name}:{identity}"
    words = ["docker", "import", "--change", f"LABEL {LABEL}=language", "-", image]
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
    for name in ("etc/hosts", "etc/resolv.conf", "etc/hostname"):
        (root / name).touch()
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")


def exists(image: str) -> bool:
    """Whether the engine has the image."""
    return any(image in (found.get("RepoTags") or ()) for found in _ours())


def ours() -> list[Image]:
    """Images that were made here; none where no engine answers."""
    if docker.unavailable():
        return []
    return [
        Image(name=name, kind=found["Labels"][LABEL], bytes=found["Size"])
        for found in _ours()
        for name in found.get("RepoTags") or [found["Id"]]
        if name != "<none>:<none>"
    ]


def _ours() -> list[dict[str, Any]]:
    with docker.engine_errors("list images"):
        found: list[dict[str, Any]] = docker.client().api.images(filters={"label": LABEL})
    return found


def remove(image: str) -> None:
    """Remove an image and the layers that nothing else needs; none: nothing happens."""
    import docker as sdk

    with docker.engine_errors("remove an image"):
        try:
            docker.client().api.remove_image(image)
        except sdk.errors.ImageNotFound:
            return


def _build(
    kind: str,
    context: Path,
    arguments: Mapping[str, str],
    *,
    name: str | None = None,
    ignore: Sequence[str] = (),
) -> str:
    """Build one layer; its id. Raises WorkspaceError with the builder's last lines."""
    (context / ".dockerignore").write_text("\n".join(ignore))
    words = ["docker", "build", "-q", "-f", str(DOCKERFILES / f"{kind}.Dockerfile")]
    words += ["--label", f"{LABEL}={kind}"]
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
