"""Types for the leaves of records: they check what a file or a request holds before anything uses it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    StringConstraints,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class AtMost:
    """A limit on a text's length that accepts lone surrogates, which ``max_length`` refuses.

    Surrogates stand for bytes of patches and file names that are not UTF-8; models write them, too.
    """

    max_length: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema of the annotated type, followed by the check."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str) -> str:
        if len(value) > self.max_length:
            raise ValueError(f"longer than {self.max_length} characters")
        return value


LARGEST = 1 << 64
"""Of whole numbers: seeds have 63 bits."""

Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""Names environments and tasks; may stand in a path."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""A name that may stand in a path: one part of it, never hidden, ``.`` or ``..``."""
RelativePath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$", max_length=512),
]  # fmt: skip
"""A path below the folder of the record that holds it: no ``..``, never absolute."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""An identifier: what may stand in generated code and SQL."""
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$", max_length=4_096)]
"""One line without control characters."""
Label = Annotated[str, AtMost(4_096)]
"""A short text."""
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]
"""A commit by its hash, or by the first digits of it; never a name that git would look up."""
Revision = Annotated[
    str, StringConstraints(pattern=r"^[\w](\.?[\w/+@~^#-])*$", max_length=255)
]  # fmt: skip
"""A branch, tag or commit as git takes it: no option, no range of two."""
Repository = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_](\.?[\w-]){0,99}/\.?[\w-](\.?[\w-]){0,99}$")
]  # fmt: skip
"""``owner/name``; joined to a folder it stays below."""
InstanceId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_](\.?[\w-])*$", max_length=255)]
"""``owner__name-12``: names a published instance; may stand in a path."""
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]
Instant = Annotated[
    str,
    StringConstraints(pattern=r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?$"),
]  # fmt: skip
"""An ISO 8601 date, or a date and time."""
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}$")]
"""A language that people speak, as a BCP 47 tag."""
Release = Annotated[str, StringConstraints(pattern=r"^(\d[\w.+-]{0,63})?$")]
"""A version that may stand in a command; empty for none."""
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]{0,127}(=[\w.+:~-]+)?$")]
"""A distribution's package, perhaps with its version."""


def _in_repository(path: str) -> str:
    """Refuse a path that leads out of a repository, or that no file can have."""
    if "\0" in path or path.startswith("/") or {"", ".", "..", ".git"} & set(path.split("/")):
        raise ValueError(f"{path[:80]!r} must be a relative path inside the repository")
    return path


RepositoryFile = Annotated[str, AtMost(4_096), AfterValidator(_in_repository)]
"""A file of a repository by its path; surrogates stand for bytes that are not UTF-8."""
Text = Annotated[str, AtMost(1 << 26)]
"""A long text: 64 M characters."""
Blob = Annotated[bytes, Field(max_length=1 << 32)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e10)]
Money = Annotated[float, Field(ge=0, le=1e12)]


def _finite(value: JsonValue) -> JsonValue:
    """Refuse NaN and infinities, which JSON does not have, anywhere in a value."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list):
            todo += one
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("a number is not finite")
    return value


Json = Annotated[JsonValue, AfterValidator(_finite)]
"""JSON without NaN and infinities."""
Object = dict[Label, Json]


def fault(error: ValidationError) -> str:
    """One line about the first wrong field: its name, why it is refused, and what it held."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "it"
    given = first["input"]
    shown = f" (given {given[:80]!r})" if isinstance(given, str) else ""
    return f"{where}: {first['msg']}{shown}"
