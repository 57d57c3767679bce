"""Lazy registries: a name stands for a class that is imported when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping

from envgen.core.errors import ConfigError


def near_names(name: str, known: Iterable[str]) -> str:
    """The end of an error message that lists what may have been meant, e.g. ``; did you mean 'a'?``."""
    names = sorted(known)
    near = difflib.get_close_matches(name[:80], names, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(repr(n) for n in near) + "?"
    if not names:
        return "; there are none"
    return "; there are " + ", ".join(repr(n) for n in names[:12]) + (", ..." * (len(names) > 12))


class Registry(Mapping[str, type]):
    """Maps an id to a class given as ``"module:Class"``, imported on first use."""

    def __init__(self, kind: str, entries: Mapping[str, str] | None = None) -> None:
        self._kind = kind
        self._paths: dict[str, str] = dict(entries or {})
        self._loaded: dict[str, type] = {}

    def register(self, name: str, path: str) -> None:
        """Add ``name`` as ``"module:Class"``.

        Raises:
            ConfigError: if the path has another form, or ``name`` stands for something else already.
        """
        module, _, attribute = path.partition(":")
        if not module or not attribute.isidentifier():
            raise ConfigError(f"{path!r} is not of the form 'module:Class'")
        if self._paths.setdefault(name, path) != path:
            raise ConfigError(f"{self._kind} {name!r} is already {self._paths[name]!r}")

    def __getitem__(self, name: str) -> type:
        """The class of ``name``.

        Raises:
            ConfigError: if the id is unknown (near ones are listed) or its class can't be imported.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> type:
        if name not in self._paths:
            hint = near_names(name, self._paths)
            raise ConfigError(f"unknown {self._kind} {name!r}{hint}")
        module, _, attribute = self._paths[name].partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self._kind} {name!r} can't be imported from {self._paths[name]!r}: {error}"
            ) from error
        if not isinstance(found, type):
            raise ConfigError(f"{self._kind} {name!r}: {self._paths[name]!r} is not a class")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._paths))

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths
