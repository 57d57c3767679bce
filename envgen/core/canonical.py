"""Canonical JSON and content hashes: the same value gives the same bytes everywhere."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel


def dumps(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN. Records are dumped whole."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def pretty(value: Any) -> str:
    """Canonical JSON for people: sorted keys, two-space indent, a newline at the end."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(content: bytes | str) -> str:
    """Hex SHA-256 of bytes, or of a text's UTF-8."""
    if isinstance(content, str):
        content = content.encode()
    return hashlib.sha256(content).hexdigest()


def content_hash(value: Any) -> str:
    """Hex SHA-256 of the canonical JSON of ``value``."""
    return sha256(dumps(value))


def compact(value: Any) -> str:
    """JSON without spaces that keeps the order of keys: what agents read."""
    return _COMPACT.encode(value)


_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
