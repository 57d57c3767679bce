"""Language layers: the operating system and compilers that a workspace stands on.

``host`` is this machine's own ``/usr``. Every other layer is a folder below ``layers/`` in the cache,
made by ``envgen images bootstrap``: a root file system for bubblewrap, a Docker image, or both.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from envgen.core.environ import cache_folder
from envgen.core.errors import MissingToolError, WorkspaceError
from envgen.core.limits import Label, Name
from envgen.core.types import Record
from envgen.sandboxes.base import Mount
from envgen.sandboxes.untrusted_files import read_owned

HOST = "host"
RECORD = "layer.json"
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_MAX_RECORD = 16 << 20
_ETC = (
    "alternatives",
    "java-*",
    "maven",
    "php",
    "php.ini",
    "composer",
    "gradle",
    "mime.types",
    "localtime",
    "timezone",
    "protocols",
    "services",
    "fonts",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",  # public; pygit2 and others don't load without
    "ssl/openssl.cnf",
    "pki/tls/certs",
)
"""Of this machine's ``/etc``: what programs of ``/usr`` read, and nothing that is secret."""


class Layer(Record):
    """A language layer."""

    name: Name
    identity: str = Field(pattern=r"^[a-z0-9]{1,64}$")
    """Hash of what it holds: another layer of the same name gives other workspaces."""
    root: Path | None = None
    """A root file system, for bubblewrap: the folder ``root`` beside the record."""
    image: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9._-]+$")
    """A Docker image."""
    packages: tuple[Label, ...] = ()
    """Distribution packages as ``name=version``."""
    pythons: dict[Label, Annotated[Label, Field(pattern=r"^/[\w./+-]+$")]] = Field(
        default_factory=dict
    )
    """CPython versions in it and their interpreters; the host's are looked for anew."""

    @property
    def is_host(self) -> bool:
        """Whether it is this machine's own ``/usr``."""
        return self.name == HOST


def layers_folder(cache_root: Path | None = None) -> Path:
    """Where the layers are."""
    return (cache_root or cache_folder()) / "layers"


def layer(name: str = HOST, cache_root: Path | None = None) -> Layer:
    """The layer called ``name``.

    Raises WorkspaceError when there is none, or what is there was not made by this user.
    """
    if name == HOST:
        return Layer(name=HOST, identity=_host_identity())
    place = place_of(name, cache_root)
    try:
        found = Layer.model_validate_json(read_owned(place, RECORD, _MAX_RECORD))
    except FileNotFoundError:
        known = ", ".join(known_layers(cache_root))
        raise MissingToolError(
            f"unknown language layer {name!r}; there are {known}",
            f"make it: envgen images bootstrap {name}",
        ) from None
    except (OSError, ValidationError) as error:
        raise _not_ours(name, str(error)) from error
    if found.name != name:
        raise _not_ours(name, f"its record is of {found.name!r}")
    if found.root is not None and found.root.resolve() != place / "root":
        raise _not_ours(name, f"its root is {str(found.root)!r}")
    return found


def place_of(name: str, cache_root: Path | None = None) -> Path:
    """The folder of a layer, links of the cache resolved. Raises WorkspaceError for what is no name."""
    if not _is_name(name):
        raise WorkspaceError(
            f"{name!r} is not a name for a language layer",
            "letters, digits, dots and dashes: envgen images list shows those there are",
        )
    return layers_folder(cache_root).resolve() / name


def _is_name(name: str) -> bool:
    try:
        return bool(_NAME.validate_python(name))
    except ValidationError:
        return False


def _not_ours(name: str, why: str) -> WorkspaceError:
    return WorkspaceError(
        f"the language layer {name!r} can't be trusted: {why}",
        f"make it anew: envgen images bootstrap {name}",
    )


def known_layers(cache_root: Path | None = None) -> list[str]:
    """Names of the layers that can be used here, ``host`` first."""
    records = layers_folder(cache_root).glob(f"*/{RECORD}")
    found = sorted(path.parent.name for path in records)
    return [HOST, *(name for name in found if _is_name(name))]


@cache
def _host_identity() -> str:
    """Return the identity of this machine's system."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.exists() else platform.platform()
    return hashlib.sha256(f"{platform.machine()}\n{text}".encode()).hexdigest()[:16]


def host_mounts() -> tuple[Mount, ...]:
    """Configuration of this machine that the programs of its ``/usr`` need."""
    found = sorted({path for name in _ETC for path in Path("/etc").glob(name)})
    return tuple(Mount(source=path, target=str(path)) for path in found)


def interpreter(version: str, base: Layer) -> str:
    """Path of a Python ``version`` in the layer, empty version: its own.

    Raises WorkspaceError when this machine has no such Python.
    """
    if not version:
        return "/usr/bin/python3"
    found = pythons() if base.is_host else base.pythons
    if version not in found:
        where = "here" if base.is_host else f"in the layer {base.name!r}"
        raise MissingToolError(
            f"Python {version} is not installed {where}; there are {', '.join(found)}",
            f"install it (pyenv install {version}; for a layer also envgen images bootstrap "
            f"{base.name} --copy FOLDER), or change the recipe's version",
        )
    return found[version]


@cache
def pythons() -> dict[str, str]:
    """CPython versions (``3.11``) of this machine and their interpreters, newest first."""
    return _pythons(Path("/"), [_pyenv()])


def pythons_in(root: Path) -> dict[str, str]:
    """CPython versions of a root file system and their interpreters, as seen inside it."""
    homes = [*root.glob("root/.pyenv"), *root.glob("home/*/.pyenv"), *root.glob("opt/pyenv")]
    found = _pythons(root, homes)
    return {version: f"/{Path(path).relative_to(root)}" for version, path in found.items()}


def _pythons(root: Path, homes: Sequence[Path]) -> dict[str, str]:
    places = [root / "usr/bin", root / "usr/local/bin"]
    places += [path for home in homes for path in sorted(home.glob("versions/3.*/bin"))]
    found: dict[tuple[int, int], str] = {}
    for place in places:
        for path in place.glob("python3.*"):
            words = path.name.removeprefix("python").split(".")
            if len(words) == 2 and words[1].isdigit() and path.is_file():
                found.setdefault((3, int(words[1])), str(path.resolve()))
    return {f"{key[0]}.{key[1]}": found[key] for key in sorted(found, reverse=True)}


def _pyenv() -> Path:
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return Path.home() / ".pyenv"
    return Path(os.path.realpath(pyenv)).parent.parent
