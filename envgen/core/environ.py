"""The one place that reads environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from envgen.core.errors import ConfigError


def secret(name: str | None, *, required: bool = False) -> str | None:
    """The value of environment variable ``name``; None when there is none or it is empty.

    Raises:
        ConfigError: when it is required and missing.
    """
    value = os.environ.get(name, "").strip() if name else ""
    if required and not value:
        raise ConfigError(
            f"environment variable {name!r} is not set", f"export {name}=... and run again"
        )
    return value or None


def cache_folder() -> Path:
    """Where built things are kept: ``ENVGEN_CACHE``, or ``envgen`` in the user's cache folder."""
    if named := secret("ENVGEN_CACHE"):
        return Path(named).expanduser().absolute()
    base = secret("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "envgen"
