"""``envgen doctor`` and ``envgen images``: what works on this machine, and what was built on it."""

from __future__ import annotations

import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import heading, say, show_rows
from envgen.core.environ import cache_folder, secret
from envgen.core.errors import DISTRIBUTION, ConfigError, install_hint
from envgen.core.types import Record
from envgen.sandboxes.base import available
from envgen.sandboxes.workspace.bootstrap import LayerConfig, bootstrap
from envgen.sandboxes.workspace.inventory import clean, inventory
from envgen.sandboxes.workspace.layers import HOST, known_layers
from envgen.sandboxes.workspace.store import size

KEYS = {
    "OPENAI_API_KEY": "model servers (--option api_key_env=NAME names another)",
    "GITHUB_TOKEN": "generate code --repo (--token-env names another)",
}
TOOLCHAINS = {
    "python": ("uv",),
    "node": ("node", "npm"),
    "go": ("go",),
    "java": ("javac", "mvn", "gradle"),
    "php": ("php", "composer"),
    "cpp": ("cc", "cmake", "meson"),
}
"""Programs of this machine that code tasks of a language need, where they use no layer."""
OF_DEVELOPERS = {"all", "dev"}
MIB = 1 << 20


class Extra(Record):
    """An extra, and which of its distributions are missing."""

    name: str
    missing: tuple[str, ...]


class Health(Record):
    """What this machine has."""

    sandboxes: dict[str, str]
    """Why each can't be used; empty: it works."""
    extras: tuple[Extra, ...]
    python: str
    torch: str | None
    devices: tuple[str, ...]
    """Accelerators that PyTorch can use."""
    keys: dict[str, bool]
    """Whether each is set; what it is set to is nobody's business."""
    cache: str
    cache_bytes: dict[str, int]
    toolchains: dict[str, dict[str, bool]]
    """Language -> program -> whether it is installed."""
    layers: tuple[str, ...]
    """Language layers that were made with ``envgen images bootstrap``."""


class Doctor(Command):
    """Say what works here, and what to install for the rest.

    Sandboxes, extras, PyTorch and its devices, keys (set or not), caches, toolchains of code tasks.
    """

    examples = ("envgen doctor", "envgen doctor --json health.json")

    def execute(self) -> None:
        """Look, and tell."""
        found = health()
        reasons = found.sandboxes
        rows = ((backend, "no" if why else "yes", why) for backend, why in reasons.items())
        show_rows(("sandbox", "works", "why not"), rows)
        isolated = not all(reasons.get(name, "?") for name in ("bubblewrap", "docker"))
        alone = "only trusted code runs here; for isolation: apt install bubblewrap"
        say("code from elsewhere runs isolated" if isolated else alone)
        _show_packages(found)
        heading("Keys")
        keys = ((name, "yes" if known else "no", KEYS[name]) for name, known in found.keys.items())
        show_rows(("variable", "set", "for"), keys)
        _show_toolchains(found)
        heading("Caches")
        for folder, taken in found.cache_bytes.items():
            say(f"{taken / MIB:>8.0f} MiB  {Path(found.cache) / folder}")
        if not found.cache_bytes:
            say(f"nothing in {found.cache} yet (ENVGEN_CACHE names another place)")
        self.tell(found)


def _show_packages(found: Health) -> None:
    heading("Extras")
    rows = (
        (one.name, "no", ", ".join(one.missing), install_hint(one.name))
        if one.missing
        else (one.name, "yes", "", "")
        for one in found.extras
    )
    show_rows(("extra", "installed", "missing", "to install"), rows)
    say(f"Python {found.python}, PyTorch {found.torch or 'not installed'}")
    say(f"accelerators: {', '.join(found.devices) or 'none; models run on the processor'}")


def _show_toolchains(found: Health) -> None:
    heading("Toolchains of code tasks")
    rows = []
    for language, programs in found.toolchains.items():
        here = ", ".join(name for name, known in programs.items() if known)
        missing = ", ".join(name for name, known in programs.items() if not known)
        rows.append((language, "yes" if language in found.layers else "no", here, missing))
    show_rows(("language", "layer", "on this machine", "missing here"), rows)
    say("a layer that is missing: envgen images bootstrap LANGUAGE")


def health() -> Health:
    """Look at this machine."""
    torch, devices = _torch()
    cache = cache_folder()
    return Health(
        sandboxes=available(),
        extras=tuple(Extra(name=name, missing=missing(name)) for name in extras()),
        python=platform.python_version(),
        torch=torch,
        devices=devices,
        keys={name: secret(name) is not None for name in KEYS},
        cache=str(cache),
        cache_bytes=_sizes(cache),
        toolchains={
            language: {name: shutil.which(name) is not None for name in programs}
            for language, programs in TOOLCHAINS.items()
        },
        layers=tuple(name for name in known_layers() if name != HOST),
    )


def extras() -> list[str]:
    """Names of the extras that a user may want."""
    try:
        found = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return []
    return [name for name in found if name not in OF_DEVELOPERS]


def missing(extra: str) -> tuple[str, ...]:
    """Distributions of an extra that are not installed."""
    gone: list[str] = []
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        if not re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker):
            continue
        name, _, nested = re.split(r"[<>=!~ ]", requirement.strip(), maxsplit=1)[0].partition("[")
        if name == DISTRIBUTION:
            for other in nested.rstrip("]").split(","):
                gone += missing(other)
        elif not _installed(name):
            gone.append(name)
    return tuple(gone)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _torch() -> tuple[str | None, tuple[str, ...]]:
    """PyTorch's version, and the accelerators that it sees."""
    try:
        import torch
    except ImportError:
        return None, ()
    found = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return torch.__version__, tuple(found)


def _sizes(cache: Path) -> dict[str, int]:
    """The size of each folder of the cache, in bytes."""
    if not cache.is_dir():
        return {}
    return {folder.name: size(folder) for folder in sorted(cache.iterdir()) if folder.is_dir()}


class Bootstrap(LayerConfig, Command):
    """Make a language layer: a root file system and a Docker image of it."""

    places = {"LANGUAGE": "name"}
    names = {
        "--for LIST": "backends",
        "--package NAME": "more_packages",
        "--copy DIR": "copies",
        "--base IMAGE": "base",
    }
    examples = (
        "envgen images bootstrap python",
        "envgen images bootstrap cpp --for bubblewrap --package libboost-dev",
        "envgen images bootstrap java --base debian:bookworm",
    )

    def execute(self) -> None:
        """Make it, and say what is done meanwhile."""
        for path in (*((self.sources,) if self.sources else ()), *self.copies):
            if not path.exists():  # else one would learn it after minutes of building
                raise ConfigError(f"there is no {str(path)!r}", "check --sources and --copy")
        layer = bootstrap(self.part(LayerConfig), log=say)
        say(f"layer {layer.name!r} is ready: {len(layer.packages)} packages")
        self.tell(layer)


class ListImages(Command):
    """List language layers, built workspaces and images, with their sizes."""

    examples = ("envgen images list", "envgen images list --json images.json")

    def execute(self) -> None:
        """Print a row for each."""
        found = inventory()
        self.tell([item.model_dump(mode="json") for item in found])
        if not found:
            say("nothing is built yet; envgen images bootstrap makes a layer")
            return
        rows = ((i.kind, i.name, f"{i.bytes / MIB:.0f}", i.used[:10], i.about) for i in found)
        show_rows(("kind", "name", "MiB", "last used", "what"), rows)


class Clean(Command):
    """Remove what killed builds have left, and what you say is old."""

    names = {"--older-than DAYS": "older_than"}
    examples = ("envgen images clean", "envgen images clean --older-than 30 --layers --dry-run")

    older_than: float | None = Field(default=None, ge=0)
    """Also workspaces not used for so many days."""
    layers: bool = False
    """Also every language layer."""
    dry_run: bool = False
    """Only say what would go."""

    def execute(self) -> None:
        """Remove, and say what."""
        gone = clean(older_than_days=self.older_than, layers=self.layers, dry_run=self.dry_run)
        for item in gone:
            say(f"{'would remove' if self.dry_run else 'removed'} {item.kind} {item.name}")
        say(f"{len(gone)} things, {sum(item.bytes for item in gone) / MIB:.0f} MiB")
        self.tell([item.model_dump(mode="json") for item in gone])
