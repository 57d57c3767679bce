"""Byte-level BPE tokenizers: trained on a dataset's text, or loaded from any Hugging Face ``tokenizer.json``.

Three kinds of tokens:

* *control tokens* (``<|user|>``, ``<think>``): found in ``encode``, never in ``encode_plain``. Whatever a
  user or a tool writes is encoded plain, so it can't inject one: a control token is its id, not its text;
* *words* (``TokenizerConfig.single_tokens``): one token each, in ``encode`` and in ``encode_plain``. A word
  is matched exactly (no case folding, no normalising, no spaces eaten) and only where neither side touches a
  letter, digit or underscore: ``name`` is matched in ``{"name":1}``, never in ``names`` or ``hotel_name``. Of
  words that start at the same place the longest is tried, and no shorter one;
* *bytes and merges*: byte-level BPE over all else. Each byte is a token, so nothing is unknown.

So ``decode(encode(text)) == decode(encode_plain(text)) == text`` for every text without lone surrogates.

In a ``tokenizer.json`` words are added tokens with ``single_word``; every other added token is a control
token, also where the file does not call it special (DeepSeek's ``<think>``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from envgen.core.errors import ConfigError, MissingExtraError, install_hint
from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.model.texts import dataset_lines, dataset_names, dataset_texts, dataset_values

try:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
except ImportError as error:
    raise MissingExtraError(
        "the tokenizers package is not installed", install_hint("train")
    ) from error

__all__ = [
    "Tokenizer",
    "TokenizerConfig",
    "dataset_lines",
    "dataset_names",
    "dataset_texts",
    "dataset_values",
    "train_tokenizer",
]

TOKENIZER_FILE = "tokenizer.json"
NUM_BYTES = 256
MOST_IDS = 1 << 24
"""Of a tokenizer: a table of all ids is kept."""
UNKNOWN = b"\xff"
"""Stands for an id that has no token; no UTF-8, so it decodes to U+FFFD."""
_PIECES = r" ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Letters, or signs, each with a space in front; white space. What merges never cross."""


class TokenizerConfig(Record):
    """The settings of a tokenizer's training."""

    vocab_size: int = Field(default=4096, gt=NUM_BYTES)
    """Tokens of all kinds; fewer come out when the texts hold fewer merges."""
    control_tokens: tuple[Label, ...] = ()
    """Special tokens, such as the ones an encoding needs (``encoding.control_tokens``)."""
    single_tokens: tuple[Label, ...] = ()
    """Texts that are one token each: tool and field names (``dataset_names``), tags, whole lines. ASCII."""
    split_digits: bool = True
    """Each digit is a token; else up to three digits may merge."""
    min_frequency: int = Field(default=2, ge=1)
    """A pair seen less often is never merged."""

    @field_validator("single_tokens")
    @classmethod
    def _whole_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not re.fullmatch(r"(?!\d)[!-~](?:[ -~]*[!-~])?", word):
                raise ValueError(
                    f"{word!r} can't be a single token: use printable ASCII without spaces around it "
                    "that does not start with a digit"
                )
        return words

    @model_validator(mode="after")
    def _room(self) -> TokenizerConfig:
        listed = [*self.control_tokens, *self.single_tokens]
        twice = sorted({token for token in listed if listed.count(token) > 1})
        if twice or "" in listed:
            raise ValueError(f"tokens are empty or listed twice: {twice}")
        least = NUM_BYTES + len(listed)
        if self.vocab_size < least:
            raise ValueError(
                f"vocab_size {self.vocab_size} has no room for 256 bytes, {len(self.control_tokens)} control "
                f"tokens and {len(self.single_tokens)} words; give at least {least}"
            )
        return self


class TextTooLongError(ConfigError):
    """Raised by a tokenizer made by ``Tokenizer.limited``."""


class Tokenizer:
    """Texts to ids and back; safe to share between threads, and survives pickling.

    Args:
        text: the content of a ``tokenizer.json`` with a byte-level BPE model.

    Attributes:
        control: text -> id of every control token.
        words: text -> id of every word.
        vocab_size: the highest id plus 1.

    Raises:
        ConfigError: when the text describes no byte-level BPE.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._full = _build(text)
        description = json.loads(text)
        _require_byte_level(description)
        added = description.get("added_tokens") or []
        self.words = {t["content"]: int(t["id"]) for t in added if _is_word(t)}
        self.control = {t["content"]: int(t["id"]) for t in added if not _is_word(t)}
        self._plain = _build(json.dumps(_without(description, self.control), ensure_ascii=False))
        self._bytes = _token_bytes(self._full, {**self.words, **self.control})
        self.vocab_size = len(self._bytes)
        self._longest = max(map(len, self._bytes))
        self._bytes_left: float = math.inf

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer, (self._text,)

    def limited(self, max_tokens: int) -> Tokenizer:
        """A copy for one prompt, which refuses what must have more than ``max_tokens`` before it looks at it.

        No token stands for more bytes than the longest one, so that no prompt which fits is refused.
        ``encode`` and ``encode_plain`` raise ``TextTooLongError`` once all their texts together are too long.
        """
        bounded = object.__new__(Tokenizer)
        bounded.__dict__.update(self.__dict__)
        bounded._bytes_left = max_tokens * self._longest
        return bounded

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a model folder.

        Raises:
            ConfigError: when there is none, or it is no byte-level BPE.
        """
        path = Path(folder) / TOKENIZER_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"can't read the tokenizer {str(path)!r}: {error}", "give a model folder"
            ) from error
        return cls(text)

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` into ``folder``, which is made if need be."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / TOKENIZER_FILE).write_text(self._text, encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids of trusted text: control tokens in it become their ids.

        Raises:
            ConfigError: if the text holds a lone surrogate, which has no UTF-8.
        """
        return self._encode(self._full, text)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of any text; none is a control token's, whatever the text says.

        Raises:
            ConfigError: if the text holds a lone surrogate, which has no UTF-8.
        """
        return self._encode(self._plain, text)

    def _encode(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        if self._bytes_left < math.inf:
            self._bytes_left -= len(text.encode(errors="surrogatepass"))
            if self._bytes_left < 0:
                raise TextTooLongError("the text is too long for the model", "make it shorter")
        try:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise ConfigError(f"{text[:40]!a} must be text without lone surrogates") from error
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``, control tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for; ``UNKNOWN`` for an id without a token."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else UNKNOWN

    def token_id(self, text: str) -> int:
        """The id of the one token whose text is exactly ``text``.

        Raises:
            ConfigError: when there is no such token.
        """
        for known in (self.control, self.words):
            if text in known:
                return known[text]
        ids = self.encode_plain(text)
        if len(ids) != 1:
            raise ConfigError(
                f"{text!r} is not one token but {len(ids)}", "train with it among single_tokens"
            )
        return ids[0]


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn merges from ``texts``. The same texts and settings give the same ``tokenizer.json``.

    Ids: merges and bytes first, then words, then control tokens. Words and control tokens are cut out of
    the texts, so that no merge is spent on them.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    digits = r"\p{N}" if config.split_digits else r"\p{N}{1,3}"
    pieces = pre_tokenizers.Split(tokenizers.Regex(f"{digits}|{_PIECES}"), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size - len(config.control_tokens) - len(config.single_tokens),
        min_frequency=config.min_frequency,
        initial_alphabet=sorted(_BYTE_CHARS.values()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_cut(texts, config), trainer)
    tokenizer.add_tokens(
        [
            tokenizers.AddedToken(word, single_word=True, normalized=False)
            for word in config.single_tokens
        ]
    )
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(token, normalized=False) for token in config.control_tokens]
    )
    return Tokenizer(tokenizer.to_str(pretty=True))


def _cut(texts: Iterable[str], config: TokenizerConfig) -> Iterator[str]:
    """Return the rest of the texts, without words and control tokens."""
    patterns = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in _longest(config.single_tokens)]
    patterns += [re.escape(token) for token in _longest(config.control_tokens)]
    if not patterns:
        yield from texts
        return
    known = re.compile("|".join(patterns))
    for text in texts:
        yield from filter(None, known.split(text))


def _longest(tokens: Sequence[str]) -> list[str]:
    return sorted(tokens, key=len, reverse=True)


def _byte_chars() -> dict[int, str]:
    """GPT-2's map from bytes to printable characters, in which byte-level vocabularies are written."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(NUM_BYTES) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {
        byte: chr(NUM_BYTES + i) for i, byte in enumerate(others)
    }


_BYTE_CHARS = _byte_chars()
_CHAR_BYTES = {char: byte for byte, char in _BYTE_CHARS.items()}


def _build(text: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"the tokenizer.json can't be read: {error}") from error


def _is_word(added: dict[str, Any]) -> bool:
    return bool(added.get("single_word")) and not added.get("special")


def _require_byte_level(description: dict[str, Any]) -> None:
    model = description["model"].get("type", "BPE")
    if model != "BPE" or '"ByteLevel"' not in json.dumps(description.get("decoder")):
        raise ConfigError(
            f"the model in tokenizer.json must be a byte-level BPE, got {model!r}",
            "give a tokenizer whose decoder is ByteLevel, such as DeepSeek's",
        )


def _without(description: dict[str, Any], control: dict[str, int]) -> dict[str, Any]:
    """The same tokenizer, ignorant of control tokens."""
    model = description["model"]
    vocab = {token: i for token, i in model["vocab"].items() if token not in control}
    added = [token for token in description.get("added_tokens") or [] if _is_word(token)]
    return {**description, "added_tokens": added, "model": {**model, "vocab": vocab}}


def _token_bytes(tokenizer: tokenizers.Tokenizer, added: dict[str, int]) -> list[bytes]:
    """Each id's bytes; the text of an added token is meant as it stands, not as mapped bytes."""
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    highest = max([*vocab.values(), *added.values()])
    if highest >= MOST_IDS:
        raise ConfigError(
            f"this tokenizer.json has a token {highest}", f"ids end at {MOST_IDS - 1}"
        )
    table = [UNKNOWN] * (1 + highest)
    for token, i in vocab.items():
        table[i] = bytes(_CHAR_BYTES[char] for char in token if char in _CHAR_BYTES)
    for token, i in added.items():
        table[i] = token.encode()
    return table
