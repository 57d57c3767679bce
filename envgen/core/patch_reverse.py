"""Turn a git diff around: SWE-smith publishes the bug, and the fix is its reverse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envgen.core.errors import ConfigError
from envgen.core.patches import FilePatch, split_patch

_HUNK = re.compile(rb"@@ -(\d+(?:,(\d+))?) \+(\d+(?:,(\d+))?) @@(.*)", re.DOTALL)
_BINARY = b"GIT binary patch"
_PAIRS = (
    (b"new file mode ", b"deleted file mode "),
    (b"old mode ", b"new mode "),
    (b"rename from ", b"rename to "),
)


def reverse_patch(patch: bytes) -> bytes:
    """The patch that undoes ``patch``.

    Raises:
        ConfigError: if the patch is broken, copies a file, or holds a binary file without its old bytes.
    """
    return b"".join(_reversed(part) for part in split_patch(patch))


def _reversed(part: FilePatch) -> bytes:
    lines = part.text.rstrip(b"\n").split(b"\n") if part.binary else part.text.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    start = next(
        (i for i, line in enumerate(lines) if line.startswith((b"@@ ", _BINARY))), len(lines)
    )
    out = _head(lines[:start], part)
    if part.binary:
        out += _binary(lines[start:], part)
    else:
        out += _hunks(lines[start:])
    return b"\n".join(out) + b"\n"


def _head(lines: list[bytes], part: FilePatch) -> list[bytes]:
    if any(line.startswith((b"copy from ", b"Binary files ")) for line in lines):
        raise ConfigError(
            f"{part.path!r} can't be turned around", "give a diff of 'git diff --binary' without -C"
        )
    fields = {
        name: line[len(name) :] for line in lines for name in _names() if line.startswith(name)
    }
    return [_head_line(line, fields) for line in lines]


def _names() -> Iterator[bytes]:
    for pair in _PAIRS:
        yield from pair
    yield from (b"--- ", b"+++ ")


def _head_line(line: bytes, fields: dict[bytes, bytes]) -> bytes:
    if line.startswith(b"diff --git ") and b"rename to " in fields:
        old, new = fields[b"rename from "], fields[b"rename to "]
        return b"diff --git " + _with(new, b"a/") + b" " + _with(old, b"b/")
    if line.startswith(b"index "):
        match = re.match(rb"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)", line, re.DOTALL)
        return b"index %s..%s%s" % (match[2], match[1], match[3]) if match else line
    if line.startswith(b"--- "):
        return b"--- " + _side(fields[b"+++ "], b"b/", b"a/")
    if line.startswith(b"+++ "):
        return b"+++ " + _side(fields[b"--- "], b"a/", b"b/")
    if line.startswith((b"new file mode ", b"deleted file mode ")):
        was, now = _PAIRS[0] if line.startswith(b"new") else _PAIRS[0][::-1]
        return now + line[len(was) :]
    for first, second in _PAIRS[1:]:
        if line.startswith(first):
            return first + fields[second]
        if line.startswith(second):
            return second + fields[first]
    return line


def _with(path: bytes, prefix: bytes) -> bytes:
    return b'"' + prefix + path[1:] if path.startswith(b'"') else prefix + path


def _side(path: bytes, was: bytes, now: bytes) -> bytes:
    """A path of one side as the other side writes it."""
    quote = b'"' if path.startswith(b'"') else b""
    bare = path[len(quote) :]
    return quote + now + bare[2:] if bare.startswith(was) else path


def _hunks(lines: list[bytes]) -> list[bytes]:
    """Hunks with sides swapped: in each run of changes the additions, now removals, come first."""
    out: list[bytes] = []
    removed: list[bytes] = []
    added: list[bytes] = []
    last = out
    for line in lines:
        sign = line[:1]
        if sign in (b"-", b"+"):
            last = added if sign == b"-" else removed
            last.append((b"+" if sign == b"-" else b"-") + line[1:])
        elif sign == b"\\":
            last.append(line)
        else:
            out += [*removed, *added, _swapped(line) if sign == b"@" else line]
            removed, added = [], []
            last = out
    return [*out, *removed, *added]


def _swapped(line: bytes) -> bytes:
    match = _HUNK.match(line)
    assert match  # split_patch has read it
    return b"@@ -%s +%s @@%s" % (match[3], match[1], match[5])


def _binary(lines: list[bytes], part: FilePatch) -> list[bytes]:
    """The two halves of a binary patch, swapped."""
    blocks = [block for block in b"\n".join(lines[1:]).split(b"\n\n") if block.strip()]
    if len(blocks) != 2:
        raise ConfigError(
            f"{part.path!r} has no old bytes in the patch", "give a diff of 'git diff --binary'"
        )
    return [_BINARY, blocks[1], b"", blocks[0], b""]
