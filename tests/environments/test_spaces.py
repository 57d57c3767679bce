from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from typing import Any, cast

import pytest
from gymnasium.vector.utils import (
    batch_space,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import plain_text, wild_text
from tiny_dataset import TOOLS

from envgen.core.sampler import submit_tool_spec
from envgen.core.schema import argument_fault, compile_schema
from envgen.environments.spaces import SharedTexts, ToolCallText, UnicodeText

SPECS = (*TOOLS, submit_tool_spec())


def test_bounds_and_unicode() -> None:
    space = UnicodeText(5)
    assert all(text in space for text in ("", "a b\n", "\N{GRINNING FACE}" * 5, "\0"))
    assert all(text not in space for text in ("toolong", "\ud800", 3, None, b"a", ["a"]))
    with pytest.raises(ValueError, match="max_length"):
        UnicodeText(0)


def test_equality_depends_on_the_bound_only() -> None:
    plain, calls = UnicodeText(5), ToolCallText(5)
    calls.use(SPECS, None)
    assert plain == calls == ToolCallText(5)
    assert plain != UnicodeText(6)
    assert len({plain, calls}) == 1


def test_samples_are_schema_valid_calls_and_repeat() -> None:
    space = ToolCallText(1000, seed=3)
    space.use(SPECS, {"enum": ["done"]})
    other = copy.deepcopy(space)
    checks = {spec.name: compile_schema(spec.parameters) for spec in SPECS}
    seen = set()
    for _ in range(60):
        text = space.sample()
        assert text == other.sample()
        assert text in space
        (call,) = json.loads(text)["tool_calls"]
        seen.add(call["name"])
        assert argument_fault(checks[call["name"]], call["arguments"]) is None
        if call["name"] == "submit_result":
            assert json.loads(call["arguments"]["answer_text"]) == "done"
    assert seen == set(checks)


def test_samples_without_tools_are_texts() -> None:
    space = ToolCallText(8, seed=0)
    assert all(space.sample() in space for _ in range(20))


def test_spaces_pickle_and_batch() -> None:
    space = ToolCallText(1000)
    space.use(SPECS, None)
    assert pickle.loads(pickle.dumps(space)) == space
    batch = batch_space(space, 3)
    batch.seed(1)
    texts = batch.sample()
    assert len(texts) == 3
    assert texts in batch


@settings(max_examples=50, deadline=None)
@given(st.lists(plain_text, min_size=2, max_size=2))
def test_shared_memory_gives_back_what_was_written(texts: list[str]) -> None:
    space = UnicodeText(8)
    shared: Any = create_shared_memory(space, n=2, ctx=multiprocessing)
    view: Any = read_from_shared_memory(space, shared, n=2)
    assert isinstance(view, SharedTexts)
    assert view == ("", "")
    for i, text in enumerate(texts):
        write_to_shared_memory(space, i, cast("Any", text), shared)
    assert view == tuple(texts)
    kept = copy.deepcopy(view)
    write_to_shared_memory(space, 0, cast("Any", "changed"), shared)
    assert kept == tuple(texts)
    assert view[0] == "changed"
    assert view[-1] == view[1:][0] == texts[1]
    with pytest.raises(IndexError):
        view[2]


@settings(max_examples=50, deadline=None)
@given(wild_text)
def test_contains_never_raises(text: str) -> None:
    space = UnicodeText(40)
    assert (text in space) == (not any("\ud800" <= char <= "\udfff" for char in text))
