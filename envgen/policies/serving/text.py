"""Text as it comes, token by token: whole characters only, and never past a stop sequence."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

_ODD = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Characters:
    """Bytes to characters: a character comes out once all its bytes are there.

    Broken bytes and NUL become U+FFFD one by one, as in a lenient reading of the whole.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, piece: bytes, *, final: bool = False) -> str:
        """The characters that ``piece`` completes."""
        return _ODD.sub(REPLACEMENT, self._decoder.decode(piece, final))


class StopText:
    """Text that may be sent, held back where a stop sequence (or a tail) may have begun.

    Args:
        stops: sequences that end the text; they are not part of it.
        tail: matches what else must not be sent while it stands at the end.

    Attributes:
        stopped: a stop sequence was found; nothing comes after that.
    """

    def __init__(self, stops: Sequence[str], tail: re.Pattern[str] | None = None) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._tail = tail
        self._held = ""

    def feed(self, text: str) -> str:
        """What may be sent now."""
        return self._take(self._held + text, final=False)

    @property
    def held(self) -> str:
        """What was fed and not sent."""
        return self._held

    def settle(self, rest: str) -> str:
        """What may be sent of ``rest``, which is what really stands behind all that was sent."""
        return self._take(rest, final=True)

    def _take(self, whole: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        found = [at for at in (whole.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return whole[: min(found)]
        kept = 0 if final else max(self._begun(whole), self._tailing(whole))
        self._held = whole[len(whole) - kept :]
        return whole[: len(whole) - kept]

    def _begun(self, text: str) -> int:
        """Characters at the end of ``text`` that a stop sequence may begin with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0

    def _tailing(self, text: str) -> int:
        found = self._tail.search(text) if self._tail is not None else None
        return len(text) - found.start() if found else 0
