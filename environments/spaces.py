"""Bounded Unicode text spaces, also in the shared memory of vector environments.

gymnasium's own ``Text`` holds a charset and stores a character as an index into it; ours holds any
text that UTF-8 can. Equality and ``contains`` depend on the bound only; tools matter to ``sample``.
"""

from __future__ import annotations

import copy
import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_uint8
from types import ModuleType
from typing import Any, overload

import gymnasium
import numpy as np
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from envgen.core.sampler import sample_message_call, sample_schema
from envgen.core.turns import encode_message
from envgen.core.types import Message, Schema, ToolSpec

_HEADER = 8
_BYTES_PER_CHAR = 4
_WORDS = ("yes", "no", "hello", "I don't know.", "42", "\N{SNOWMAN}", "")


class UnicodeText(gymnasium.Space[str]):
    """All texts of at most ``max_length`` characters without lone surrogates."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be positive, not {max_length}")
        self.max_length = int(max_length)
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: texts stay texts."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text of this space."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        if x.isascii():
            return True
        try:
            x.encode()
        except UnicodeEncodeError:
            return False
        return True

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Draw a short text."""
        if mask is not None or probability is not None:
            raise ValueError("texts are sampled without mask and probability")
        return self._draw(random.Random(int(self.np_random.integers(2**62))))[: self.max_length]

    def _draw(self, rng: random.Random) -> str:
        return " ".join(rng.choices(_WORDS, k=rng.randint(1, 4)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((UnicodeText, self.max_length))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_length})"


class ToolCallText(UnicodeText):
    """Actions: any bounded text; ``sample()`` draws a schema-valid call of a tool.

    Args:
        max_length: in characters.
        catalogue: returns the tools (and the submit schema) to draw from until ``use`` names
            others; asked at the first sample. It must pickle.
        seed: of the samples.
    """

    def __init__(
        self,
        max_length: int,
        catalogue: Callable[[], tuple[Sequence[ToolSpec], Schema | None]] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(max_length, seed)
        self._catalogue = catalogue
        self._tools: tuple[ToolSpec, ...] | None = None
        self._submit_schema: Schema | None = None

    def use(self, tools: Sequence[ToolSpec], submit_schema: Schema | None) -> None:
        """Draw from these tools from now on."""
        self._tools, self._submit_schema = tuple(tools), submit_schema

    def _draw(self, rng: random.Random) -> str:
        if self._tools is None:
            self.use(*(self._catalogue() if self._catalogue is not None else ((), None)))
        tools = self._tools or ()
        if not tools or (not _has_submit(tools) and rng.randrange(len(tools) + 1) == 0):
            return str(sample_schema(self._submit_schema or {}, rng))
        call = sample_message_call(tools, rng, submit_schema=self._submit_schema)
        return encode_message(Message.model_construct(role="assistant", tool_calls=(call,)))

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolCallText:
        other = ToolCallText(self.max_length, self._catalogue)
        other._tools, other._submit_schema = self._tools, self._submit_schema
        other._np_random = copy.deepcopy(self._np_random, memo)
        return other


def _has_submit(tools: Sequence[ToolSpec]) -> bool:
    properties = tools[-1].parameters.get("properties")
    return isinstance(properties, dict) and "answer_text" in properties


class SharedTexts(Sequence[str]):
    """The texts in a shared buffer, decoded whenever they are read.

    ``AsyncVectorEnv`` reads its observations once, when it is built, and copies them after every
    step; so a deep copy is a tuple of what the buffer holds at that moment.
    """

    def __init__(self, buffer: Any, n: int, max_length: int) -> None:
        self._bytes = np.frombuffer(buffer.get_obj(), dtype=np.uint8)
        self._stride = _stride(max_length)
        self._n = n

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        """The text of one environment as it is now."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._n)))
        if not -self._n <= index < self._n:
            raise IndexError(index)
        start = (index % self._n) * self._stride
        size = int.from_bytes(self._bytes[start : start + _HEADER].tobytes(), "little")
        start += _HEADER
        return self._bytes[start : start + size].tobytes().decode()

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(self._n))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _stride(max_length: int) -> int:
    return _HEADER + _BYTES_PER_CHAR * max_length


@create_shared_memory.register(UnicodeText)
def _create_shared_texts(space: UnicodeText, n: int = 1, ctx: ModuleType = multiprocessing) -> Any:
    return ctx.Array(c_uint8, n * _stride(space.max_length))


@read_from_shared_memory.register(UnicodeText)
def _read_shared_texts(space: UnicodeText, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n, space.max_length)


@write_to_shared_memory.register(UnicodeText)
def _write_shared_text(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    content = value.encode()
    start = index * _stride(space.max_length)
    if len(content) > _BYTES_PER_CHAR * space.max_length:
        raise ValueError(f"a text of {len(content)} bytes does not fit {space}")
    target = np.frombuffer(shared_memory.get_obj(), dtype=np.uint8)
    block = len(content).to_bytes(_HEADER, "little") + content
    target[start : start + len(block)] = np.frombuffer(block, dtype=np.uint8)
