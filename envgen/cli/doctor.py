"""``envgen doctor``: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

import typer
from rich.text import Text

from envgen.cli.console import heading, out, say, table, write_json
from envgen.cli.options import Json, examples
from envgen.core.environ import cache_folder, secret
from envgen.core.errors import DISTRIBUTION, install_hint
from envgen.core.types import Record

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


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command("doctor", epilog=examples("envgen doctor", "envgen doctor --json health.json"))(
        doctor
    )


def doctor(json: Json = None) -> None:
    """Say what works here, and what to install for the rest.

    Sandboxes, extras, PyTorch and its devices, keys (set or not), caches, toolchains of code tasks.
    """
    found = health()
    sandboxes = table("sandbox", "works", "why not")
    for backend, reason in found.sandboxes.items():
        sandboxes.add_row(backend, "no" if reason else "yes", reason)
    out.print(sandboxes)
    isolated = not all(found.sandboxes.get(name, "?") for name in ("bubblewrap", "docker"))
    say(
        "code from elsewhere runs isolated"
        if isolated
        else "only trusted code runs here; for isolation: apt install bubblewrap"
    )
    heading("Extras")
    extras = table("extra", "installed", "missing", "to install")
    for one in found.extras:
        hint = Text(install_hint(one.name) if one.missing else "")
        extras.add_row(one.name, "no" if one.missing else "yes", ", ".join(one.missing), hint)
    out.print(extras)
    say(f"Python {found.python}, PyTorch {found.torch or 'not installed'}")
    say(f"accelerators: {', '.join(found.devices) or 'none; models run on the processor'}")
    heading("Keys")
    keys = table("variable", "set", "for")
    for name, known in found.keys.items():
        keys.add_row(name, "yes" if known else "no", KEYS[name])
    out.print(keys)
    heading("Toolchains of code tasks")
    tools = table("language", "layer", "on this machine", "missing here")
    for language, programs in found.toolchains.items():
        here = [name for name, known in programs.items() if known]
        missing = [name for name, known in programs.items() if not known]
        layer = "yes" if language in found.layers else "no"
        tools.add_row(language, layer, ", ".join(here), ", ".join(missing))
    out.print(tools)
    say("a layer that is missing: envgen images bootstrap LANGUAGE")
    heading("Caches")
    for folder, size in found.cache_bytes.items():
        say(f"{size / MIB:>8.0f} MiB  {Path(found.cache) / folder}")
    if not found.cache_bytes:
        say(f"nothing in {found.cache} yet (ENVGEN_CACHE names another place)")
    write_json(json, found)


def health() -> Health:
    """Look at this machine."""
    from envgen.sandboxes.base import available
    from envgen.sandboxes.workspace.layers import HOST, known_layers

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
    from envgen.sandboxes.workspace.store import size

    if not cache.is_dir():
        return {}
    return {folder.name: size(folder) for folder in sorted(cache.iterdir()) if folder.is_dir()}
