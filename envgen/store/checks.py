"""Checks of a dataset folder before any of its records is read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from envgen.core.errors import DatasetError
from envgen.core.limits import fault
from envgen.store.folders import told_of
from envgen.store.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    Manifest,
    check_member_name,
    walk_files,
)

_MAX_MANIFEST = 512 * 1024 * 1024
_AGAIN = "get the dataset again from where it came from"
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def check_members(path: Path, manifest: Manifest) -> None:
    """Check that the folder holds what ``dataset.json`` lists, byte for byte, and no links.

    Raises:
        DatasetError: naming the first file that is missing, strange or changed.
    """
    present = set(walk_files(path)) - {MANIFEST}
    listed = set(manifest.members)
    for name in sorted(listed):
        check_member_name(name)
    if missing := sorted(listed - present):
        raise DatasetError(f"{path} is missing {missing[0]!r} ({len(missing)} files in all)")
    # An installer compiles the .py files of a package; what it leaves there is never read.
    strangers = sorted(
        name
        for name in present - listed
        if name.startswith("environments/") and "__pycache__" not in Path(name).parts
    )
    if strangers:
        raise DatasetError(f"{path} holds {strangers[0]!r}, which dataset.json doesn't list")
    for name in sorted(listed):
        if _file_hash(path / name) != manifest.members[name]:
            raise DatasetError(f"{path / name} does not match its hash in dataset.json", _AGAIN)


def read_manifest(path: Path) -> Manifest:
    """The content of ``dataset.json``.

    Raises:
        DatasetError: if there is none, or it is of a format this envgen does not know.
    """
    if not path.is_dir():
        raise DatasetError(f"no such dataset folder: {str(path)!r}")
    file = path / MANIFEST
    if file.is_symlink() or not file.is_file():
        raise DatasetError(f"{str(path)!r} is not a dataset: it has no {MANIFEST}{told_of(path)}")
    if file.stat().st_size > _MAX_MANIFEST:
        raise DatasetError(f"{file} is larger than {_MAX_MANIFEST} bytes")
    try:
        content = _JSON.validate_json(file.read_bytes())
    except (ValueError, RecursionError):
        raise DatasetError(f"{file} is corrupt: it is not a complete JSON text", _AGAIN) from None
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or version < 1:
        raise DatasetError(f"{file} is missing its format version")
    if version > FORMAT_VERSION:
        raise DatasetError(
            f"{path} has dataset format {version}; this envgen reads up to {FORMAT_VERSION}",
            "upgrade envgen",
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise DatasetError(f"{file} is corrupt: {fault(error)}", _AGAIN) from None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
