"""Read git diffs: which files a patch touches and how. Bytes in, bytes out; nothing is applied here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from envgen.core.errors import ConfigError

SUBMODULE_MODE = "160000"
LFS_HEADER = b"version https://git-lfs.github.com/spec/"
_START = b"diff --git "
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True)
class FilePatch:
    """One file's part of a git diff."""

    old: str | None
    """Path before; None when the file is new. Bytes that are no UTF-8 are surrogate-escaped."""
    new: str | None
    """Path after; None when the file is deleted."""
    text: bytes
    """The part itself, from ``diff --git`` to the next one."""
    modes: frozenset[str] = frozenset()
    """Octal file modes that the header names."""
    binary: bool = False
    added: int = 0
    """Lines."""
    removed: int = 0
    hunks: int = 0

    @property
    def path(self) -> str:
        """Where the file lies after the change, or lay before it was deleted."""
        path = self.old if self.new is None else self.new
        assert path is not None
        return path

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it touches: two for a rename."""
        return tuple(dict.fromkeys(p for p in (self.old, self.new) if p is not None))

    @property
    def submodule(self) -> bool:
        """Whether it moves a submodule to another commit."""
        return SUBMODULE_MODE in self.modes

    @property
    def lfs(self) -> bool:
        """Whether what it writes is a pointer of git LFS and no content."""
        return b"\n+" + LFS_HEADER in self.text or b"\n " + LFS_HEADER in self.text


def split_patch(patch: bytes) -> tuple[FilePatch, ...]:
    """The parts of a git diff, in order; whatever stands before the first (a mail's head) is dropped.

    Raises:
        ConfigError: if there is text but no ``diff --git`` line, or a part is cut off.
    """
    starts = [m.start() for m in re.finditer(rb"^diff --git ", patch, re.MULTILINE)]
    if not starts and patch.strip():
        raise ConfigError(
            f"no 'diff --git' line in a patch that begins {patch[:60]!r}",
            "give a patch as 'git diff --binary' writes it",
        )
    ends = [*starts, len(patch)][1:]
    return tuple(_file(patch[a:b]) for a, b in zip(starts, ends, strict=True))


def join_patches(parts: Iterable[FilePatch]) -> bytes:
    """One patch of several parts, each ended by a newline as ``git apply`` wants it."""
    return b"".join(p.text if p.text.endswith(b"\n") else p.text + b"\n" for p in parts)


def _file(text: bytes) -> FilePatch:
    head, body = _cut_head(text)
    fields = _header(head)
    first = head[0][len(_START) :]
    old, new = fields.get(b"--- "), fields.get(b"+++ ")
    old_path = _prefixed(old) if old is not None else _same_path(first)
    new_path = _prefixed(new) if new is not None else _same_path(first)
    for verb in (b"rename", b"copy"):
        if (verb + b" from " in fields) != (verb + b" to " in fields):
            raise ConfigError(
                f"half of a {verb.decode()} in {head[0][:200]!r}", "write it with git diff"
            )
    if b"rename from " in fields:
        old_path, new_path = _plain(fields[b"rename from "]), _plain(fields[b"rename to "])
    elif b"copy from " in fields:
        old_path, new_path = None, _plain(fields[b"copy to "])
    if b"new file mode " in fields:
        old_path = None
    if b"deleted file mode " in fields:
        new_path = None
    if old_path is None and new_path is None:
        raise ConfigError(
            f"the patch is missing a file name in {head[0][:200]!r}", "write it with git diff"
        )
    binary = any(h.startswith((b"GIT binary patch", b"Binary files ")) for h in head)
    added, removed, hunks = (0, 0, 0) if binary else _count(body)
    return FilePatch(old_path, new_path, text, _modes(fields), binary, added, removed, hunks)


def _cut_head(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """(header lines, the lines from the first hunk on)."""
    lines = text.removesuffix(b"\n").split(b"\n")
    for i, line in enumerate(lines):
        if line.startswith(b"@@ "):
            return lines[:i], lines[i:]
        if line.startswith(b"GIT binary patch"):
            return lines[: i + 1], []
    return lines, []


def _header(head: list[bytes]) -> dict[bytes, bytes]:
    names = (
        *(b"--- ", b"+++ ", b"rename from ", b"rename to ", b"copy from ", b"copy to "),
        *(b"new file mode ", b"deleted file mode ", b"old mode ", b"new mode ", b"index "),
    )
    fields: dict[bytes, bytes] = {}
    for line in head[1:]:
        for name in names:
            if line.startswith(name):
                fields.setdefault(name, line[len(name) :])
    return fields


def _modes(fields: dict[bytes, bytes]) -> frozenset[str]:
    found = {
        fields[name].decode("ascii", "replace").strip()
        for name in (b"new file mode ", b"deleted file mode ", b"old mode ", b"new mode ")
        if name in fields
    }
    index = fields.get(b"index ", b"").decode("ascii", "replace").split()
    return frozenset(found | set(index[1:]))


def _count(body: list[bytes]) -> tuple[int, int, int]:
    """(added lines, removed lines, hunks); the counts of each @@ line say where a hunk ends."""
    added = removed = hunks = 0
    left = right = 0
    for line in body:
        if left <= 0 and right <= 0:
            match = _HUNK.match(line)
            if match:
                left, right = (int(n) if n is not None else 1 for n in match.groups())
                hunks += 1
            continue
        sign = line[:1]
        added, removed = added + (sign == b"+"), removed + (sign == b"-")
        left -= sign in (b" ", b"-", b"")
        right -= sign in (b" ", b"+", b"")
    if left > 0 or right > 0:
        raise ConfigError(
            f"a hunk ends {max(left, right)} lines early", "the patch is cut off: get it again"
        )
    return added, removed, hunks


def _prefixed(value: bytes) -> str | None:
    """The path of a ``---`` or ``+++`` line, without ``a/`` or ``b/``; None for /dev/null."""
    if value.split(b"\t")[0].strip() == b"/dev/null":
        return None
    path = _plain(value)
    return path[2:] if path[:2] in ("a/", "b/") else path


def _plain(value: bytes) -> str:
    """A path as git writes it: plain, or quoted where it holds odd bytes."""
    value = value.rstrip(b"\r")
    if not value.startswith(b'"'):
        return value.split(b"\t")[0].decode("utf-8", "surrogateescape")
    return unquote(value.decode("utf-8", "surrogateescape"))[0]


def unquote(text: str) -> tuple[str, str]:
    """(the path that git's C-style quotes hold, what stands after the closing quote)."""
    out, i = bytearray(), 1
    while i < len(text) and text[i] != '"':
        if text[i] != "\\":
            out += text[i].encode("utf-8", "surrogateescape")
            i += 1
        elif text[i + 1 : i + 2] in _ESCAPES:
            out.append(_ESCAPES[text[i + 1]])
            i += 2
        else:
            octal = re.match(r"[0-3][0-7]{2}", text[i + 1 :])
            if octal is None:
                raise ConfigError(f"a path in a patch is badly quoted: {text[:80]!r}")
            out.append(int(octal.group(), 8))
            i += 4
    return out.decode("utf-8", "surrogateescape"), text[i + 1 :]


def _same_path(first: bytes) -> str | None:
    """The path of ``a/X b/X`` where no other line of the header names it; None if they differ."""
    text = first.decode("utf-8", "surrogateescape").rstrip("\r")
    if text.startswith('"'):
        left, rest = unquote(text)
        right = unquote(rest.strip())[0] if rest.strip().startswith('"') else rest.strip()
    else:
        half = (len(text) - 1) // 2
        left, right = text[:half], text[half + 1 :]
    return left[2:] if left[2:] == right[2:] else None
