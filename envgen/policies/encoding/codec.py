"""Between ids and grammar: control tokens stay apart from text in both directions.

Writing, an encoding makes a list of parts: ``Control`` for a control token, a plain ``str`` for text. Text is
encoded plain, so nothing in it becomes a control token. Neighbouring texts are encoded as one, as a
tokenizer would that sees the whole rendered string.

Reading, ids become *marked text*: each control token is one character from U+D800 to U+DBFF, each byte
that is no UTF-8 one from U+DC80 to U+DCFF. Proper text has neither, so a grammar over marked text can't
mistake one for the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envgen.core.errors import ConfigError
from envgen.core.jsonvalues import clean_text
from envgen.policies.encoding.base import EncodingError

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer

_FIRST_MARK, _LAST_MARK = 0xD800, 0xDBFF
_CONTROL = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]")
_MARK = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Control:
    """A control token, by its text."""

    text: str


Part = Control | str


class Codec:
    """Parts to ids, ids to marked text.

    Raises:
        ConfigError: if the tokenizer lacks one of ``controls``, or has more than 1,024 control tokens.
    """

    def __init__(self, tokenizer: Tokenizer, controls: Sequence[Control]) -> None:
        missing = [c.text for c in controls if c.text not in tokenizer.control]
        if missing:
            raise ConfigError(
                f"the tokenizer has no control tokens {' '.join(missing)}",
                "train it with control_tokens=encoding.control_tokens(config)",
            )
        if len(tokenizer.control) > _LAST_MARK - _FIRST_MARK + 1:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer.control)} control tokens, not 1024"
            )
        self._tokenizer = tokenizer
        self._ids = tokenizer.control
        self._texts = list(tokenizer.control)
        self._marks = {text: chr(_FIRST_MARK + i) for i, text in enumerate(self._texts)}
        self._by_id = {i: self._marks[text] for text, i in tokenizer.control.items()}

    def id(self, control: Control) -> int:
        """The control token's id."""
        return self._ids[control.text]

    def mark(self, control: Control) -> str:
        """The character that stands for the control token in marked text."""
        return self._marks[control.text]

    def ids(self, parts: Iterable[Part]) -> list[int]:
        """Ids of the parts.

        Raises:
            EncodingError: if a text holds a lone surrogate.
        """
        found: list[int] = []
        run: list[str] = []
        for part in parts:
            if isinstance(part, str):
                run.append(part)
                continue
            found += self._plain(run)
            run.clear()
            found.append(self._ids[part.text])
        return found + self._plain(run)

    def marked(self, ids: Iterable[int]) -> str:
        """The marked text of ids; an id without a token counts as a broken byte."""
        pieces: list[str] = []
        run: list[bytes] = []
        for token in ids:
            mark = self._by_id.get(token)
            if mark is None:
                run.append(self._tokenizer.token_bytes(token))
                continue
            pieces += (_decoded(run), mark)
            run.clear()
        return "".join([*pieces, _decoded(run)])

    def unmarked(self, marked: str) -> str:
        """Marked text as clean text: control tokens by their texts, broken bytes as U+FFFD."""
        text = _CONTROL.sub(lambda m: self._texts[ord(m.group()) - _FIRST_MARK], marked)
        return clean_text(text, max(1, len(text)))

    def stray(self, marked: str) -> str | None:
        """Why ``marked`` is not all text, read on after its name; None if it is."""
        found = _MARK.search(marked)
        if found is None:
            return None
        number = ord(found.group()) - _FIRST_MARK
        if number < len(self._texts):
            return f"holds a stray {self._texts[number]}"
        return "contains bytes that are not valid UTF-8"

    def _plain(self, run: list[str]) -> list[int]:
        text = "".join(run)
        if not text:
            return []
        if _MARK.search(text):
            raise EncodingError(f"{text[:60]!a} holds a lone surrogate", "clean the text first")
        return self._tokenizer.encode_plain(text)


def _decoded(run: list[bytes]) -> str:
    return b"".join(run).decode("utf-8", "surrogateescape")
