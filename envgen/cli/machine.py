"""``envgen doctor`` and ``envgen images``: what works on this machine, and what was built on it."""

from __future__ import annotations

import platform
import re
import shutil
from importlib import metadata
from typing import Any

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import OnProgress, say
from envgen.cli.records import number, show_record, show_rows, write_json
from envgen.core.environ import cache_folder, secret
from envgen.core.errors import DISTRIBUTION, ConfigError, install_hint
from envgen.core.types import Record
from envgen.sandboxes.base import available
from envgen.sandboxes.workspace.bootstrap import LayerConfig
from envgen.sandboxes.workspace.forget import may_drop
from envgen.sandboxes.workspace.layers import HOST, known_layers
from envgen.sandboxes.workspace.store import size

KEYS = ("OPENAI_API_KEY", "GITHUB_TOKEN")
TOOLCHAINS = {
    "python": ("uv",),
    "node": ("node", "npm"),
    "go": ("go",),
    "java": ("javac", "mvn", "gradle"),
    "php": ("php", "composer"),
    "cpp": ("cc", "cmake", "meson"),
}
"""Programs of this machine that code tasks of a language need, where they use no layer."""
OF_EXTRA = re.compile(r"(?P<name>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)['\"]")
"""A distribution that an extra needs, as wheels write it."""
OF_DEVELOPERS = {"all", "dev"}
WORKS = "works"


class Health(Record):
    """What this machine has."""

    sandboxes: dict[str, str]
    """"works", or why it can't be used."""
    missing: dict[str, tuple[str, ...]]
    """Extra -> its distributions that are not installed."""
    python: str
    torch: str | None
    devices: tuple[str, ...]
    """Accelerators that PyTorch can use."""
    keys: dict[str, bool]
    """Whether each is set; its value is never read out."""
    cache: str
    cache_bytes: dict[str, int]
    toolchains: dict[str, dict[str, bool]]
    """Language -> program -> whether it is installed."""
    layers: tuple[str, ...]
    """Language layers that were made with ``envgen images bootstrap``."""
    forgets: bool
    """Whether this process may drop the kernel's caches between judgements of code tasks."""


class Doctor(Command):
    """Say what works here, and what to install for the rest.

    Sandboxes, extras, PyTorch and its devices, caches, toolchains of code tasks, and whether keys are set:
    OPENAI_API_KEY for model servers (--option api_key_env=NAME names another), GITHUB_TOKEN for
    `generate code --repo` (--token-env names another).
    """

    examples = ("envgen doctor", "envgen doctor --json health.json")

    def execute(self) -> None:
        """Look, and tell."""
        found = health()
        show_record(found)
        isolated = {"bubblewrap", "docker"} & {n for n, s in found.sandboxes.items() if s == WORKS}
        alone = "only trusted code runs here; for isolation: apt install bubblewrap"
        say("code from elsewhere runs isolated" if isolated else alone)
        if not found.forgets:
            say(
                "a patch of a code task may remember what tests of earlier judgements looked up: docs/code.md"
            )
        for name, distributions in found.missing.items():
            if distributions:
                say(f"for the extra {name}: {install_hint(name)}")
        say("for a layer of a language: envgen images bootstrap LANGUAGE")
        write_json(self.figures, found)


def health() -> Health:
    """Look at this machine."""
    torch, devices = _torch()
    cache = cache_folder()
    folders = sorted(one for one in cache.iterdir() if one.is_dir()) if cache.is_dir() else []
    return Health(
        sandboxes={name: why or WORKS for name, why in available().items()},
        missing=missing(),
        python=platform.python_version(),
        torch=torch,
        devices=devices,
        keys={name: secret(name) is not None for name in KEYS},
        cache=str(cache),
        cache_bytes={folder.name: size(folder) for folder in folders},
        toolchains={
            language: {name: shutil.which(name) is not None for name in programs}
            for language, programs in TOOLCHAINS.items()
        },
        layers=tuple(name for name in known_layers() if name != HOST),
        forgets=may_drop(),
    )


def missing() -> dict[str, tuple[str, ...]]:
    """Each extra that a user may want, with its distributions that are not installed."""
    gone: dict[str, tuple[str, ...]] = {}
    for line in metadata.requires(DISTRIBUTION) or ():
        if (found := OF_EXTRA.match(line)) and found["extra"] not in OF_DEVELOPERS:
            here = found["name"] == DISTRIBUTION or any(metadata.distributions(name=found["name"]))
            lacking = gone.setdefault(found["extra"], ())
            gone[found["extra"]] = lacking if here else (*lacking, found["name"])
    return gone


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
    verb = "envgen.sandboxes.workspace.bootstrap:bootstrap"

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Files that are not there are told now, not after minutes of building."""
        for path in (*((self.sources,) if self.sources else ()), *self.copies):
            if not path.exists():
                raise ConfigError(
                    f"no such file or folder: {str(path)!r}", "check --sources and --copy"
                )
        return {"log": say}

    def tell(self, summary: Any) -> None:
        """That it is ready."""
        say(f"layer {summary.name!r} is ready: {len(summary.packages)} packages")


class ListImages(Command):
    """List language layers, built workspaces and images, with their sizes."""

    examples = ("envgen images list", "envgen images list --json images.json")
    verb = "envgen.sandboxes.workspace.inventory:inventory"

    def tell(self, summary: Any) -> None:
        """Print a row for each."""
        rows = [(i.kind, i.name, i.bytes, i.used[:10], i.about) for i in summary]
        if rows:
            show_rows(("kind", "name", "bytes ", "last used", "what"), rows)
        else:
            say("nothing is built yet; envgen images bootstrap makes a layer")


class Clean(Command):
    """Remove what killed builds have left, and what you say is old."""

    names = {"--older-than DAYS": "older_than_days"}
    examples = ("envgen images clean", "envgen images clean --older-than 30 --layers --dry-run")
    verb = "envgen.sandboxes.workspace.inventory:clean"

    older_than_days: float | None = Field(default=None, ge=0)
    """Also workspaces not used for so many days."""
    layers: bool = False
    """Also every language layer."""
    dry_run: bool = False
    """Only say what would go."""

    def tell(self, summary: Any) -> None:
        """Say what was removed."""
        for item in summary:
            say(f"{'would remove' if self.dry_run else 'removed'} {item.kind} {item.name}")
        say(f"{len(summary)} things, {number(sum(item.bytes for item in summary))} bytes")
