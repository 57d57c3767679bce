"""Make a language layer: a root file system, and a Docker image of it.

Where images can be pulled, the layer is built on one (``base``) by ``language.Dockerfile``. Where none
can, debootstrap makes the base and the packages are installed in a chroot; both need root. Nothing of
this machine's settings stays in the layer: certificates, resolver and package sources are lent.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from envgen.core.errors import WorkspaceError
from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.sandboxes.workspace import images, store
from envgen.sandboxes.workspace.layers import RECORD, Layer, place_of, pythons_in
from envgen.sandboxes.workspace.packages import packages

_TIMEOUT_S = 3600.0
_INSTALL = """set -e
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
mount -t proc proc "$1/proc"
chroot "$1" apt-get update -q
root=$1; shift
chroot "$root" apt-get install -q -y --no-install-recommends "$@"
chroot "$root" apt-get clean
"""


class LayerConfig(Record):
    """How a language layer is made."""

    name: Label
    """python, node, cpp, go, java or php."""
    suite: Label = "bookworm"
    """The Debian release for debootstrap."""
    mirror: Label | None = None
    """Where debootstrap gets packages; None: its own default."""
    sources: Path | None = None
    """A sources.list lent to apt while packages are installed."""
    base: Label | None = None
    """A Docker image to build on instead of debootstrap's."""
    more_packages: tuple[Label, ...] = ()
    """Further Debian packages."""
    copies: tuple[Path, ...] = ()
    """Folders of this machine that are copied to the same place, e.g. an interpreter's prefix."""
    backends: tuple[Literal["bubblewrap", "docker"], ...] = Field(
        default=("bubblewrap", "docker"), min_length=1
    )
    """Whom the layer is for: a root file system, an image, or both."""


def bootstrap(
    config: LayerConfig,
    *,
    cache_root: Path | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Layer:
    """Make the layer, or make it anew.

    Raises:
        WorkspaceError: a tool or a right is missing, or a package can't be had.
    """
    names = packages(config.name, config.more_packages)
    place = place_of(config.name, cache_root)
    place.parent.mkdir(parents=True, exist_ok=True)
    owner = images.cache_id(cache_root)
    with store.locked(place, _TIMEOUT_S), store.building(place, replace=True) as folder:
        root = folder / "root"
        if config.base is None:
            _debootstrap(config, names, root, log)
        else:
            log(f"build on the image {config.base}")
            images.export(images.build_language(config.base, names, owner), root)
        for source in config.copies:
            log(f"copy {source}")
            _copy(source, root)
        _prepare(root)
        layer = _record(config, root, place, owner, log)
        if "bubblewrap" not in config.backends:
            store.remove(root)
        (folder / RECORD).write_text(layer.model_dump_json(indent=1))
    return layer


def _prepare(root: Path) -> None:
    """Files over which sandboxes lay their own. An image could have links to this machine's there."""
    for name in ("etc", "etc/ssl"):
        if (root / name).is_symlink():
            raise WorkspaceError(f"/{name} of the image is a link", "build on another image")
    (root / "etc/ssl").mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("hostname", "sandbox\n"),
        ("resolv.conf", ""),
    ):
        (root / "etc" / name).unlink(missing_ok=True)
        (root / "etc" / name).write_text(text)


def _record(
    config: LayerConfig, root: Path, place: Path, owner: str, log: Callable[[str], None]
) -> Layer:
    installed = _installed(root)
    contents = "\n".join([*installed, *map(str, config.copies)])
    identity = hashlib.sha256(contents.encode()).hexdigest()[:16]
    image = None
    if "docker" in config.backends:
        log("import as a Docker image")
        image = images.import_root(root, config.name, identity, owner)
    return Layer(
        name=config.name,
        identity=identity,
        root=place / "root" if "bubblewrap" in config.backends else None,
        image=image,
        packages=installed,
        pythons=pythons_in(root),
    )


def _installed(root: Path) -> tuple[str, ...]:
    """The installed packages as ``name=version``, from dpkg's own list."""
    found, name = [], ""
    for line in (root / "var/lib/dpkg/status").read_text(errors="replace").splitlines():
        if line.startswith("Package: "):
            name = line.removeprefix("Package: ")
        elif line.startswith("Version: "):
            found.append(f"{name}={line.removeprefix('Version: ')}")
    return tuple(sorted(found))


def _debootstrap(
    config: LayerConfig, names: Sequence[str], root: Path, log: Callable[[str], None]
) -> None:
    if os.geteuid() != 0:
        raise WorkspaceError(
            "debootstrap needs root", "run as root, or build on an image: --base debian:bookworm"
        )
    if shutil.which("debootstrap") is None:
        raise WorkspaceError(
            "debootstrap is not installed",
            "apt install debootstrap, or build on an image: --base debian:bookworm",
        )
    log(f"debootstrap {config.suite}")
    words = [
        "debootstrap",
        "--variant=minbase",
        "--include=ca-certificates",
        config.suite,
        str(root),
    ]
    _run([*words, *([config.mirror] if config.mirror else [])], "debootstrap")
    log(f"install {len(names)} packages and what they need")
    with _lent(root, config.sources):
        script = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _INSTALL, "sh"]
        _run([*script, str(root), *names], "install packages")
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)


@contextmanager
def _lent(root: Path, sources: Path | None) -> Iterator[None]:
    """This machine's resolver and package sources, for as long as packages are installed."""
    listed, resolver = root / "etc/apt/sources.list", root / "etc/resolv.conf"
    policy = root / "usr/sbin/policy-rc.d"
    before = listed.read_bytes() if listed.exists() else b""
    resolver.unlink(missing_ok=True)
    resolver.write_bytes(Path("/etc/resolv.conf").read_bytes())
    policy.write_text("#!/bin/sh\nexit 101\n")  # no package starts a service
    policy.chmod(0o755)
    if sources is not None:
        listed.write_bytes(sources.read_bytes())
    try:
        yield
    finally:
        listed.write_bytes(before)
        resolver.write_text("")
        policy.unlink(missing_ok=True)


def _copy(source: Path, root: Path) -> None:
    """Copy a folder of this machine to the same place in the layer."""
    target = root / source.absolute().relative_to("/")
    for parent in reversed(target.relative_to(root).parents):
        folder = root / parent
        if not folder.exists():
            folder.mkdir()
        if parent != Path("."):
            folder.chmod(folder.stat().st_mode | 0o555)
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def _run(words: Sequence[str], what: str) -> None:
    """Run a program of this machine. Raises WorkspaceError with its last lines."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        tail = done.stdout.decode(errors="replace").strip()[-1500:]
        raise WorkspaceError(f"can't {what}: exit code {done.returncode}\n{tail}", "see above")
