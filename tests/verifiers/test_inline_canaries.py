from __future__ import annotations

import random

import pytest

from envgen.core.code_types import Status
from envgen.verifiers.inline_canaries import Inline, inline_canaries

SOURCE = b"""\
import pytest


@pytest.mark.parametrize("x", [1])
def test_decorated(x):
    assert x == 1


def test_early():
    return
    assert 1 == 2


def test_plain():
    x = 1
    assert x + 1 == 2


class TestGroup:
    def test_longer(self):
        x = 1
        y = 2
        z = 3
        assert x + y == z
"""
UNITTEST = b"""\
import unittest


class T(unittest.TestCase):
    def test_in(self):
        self.assertIn(1, [1, 2])
"""


def only(content: bytes, path: str = "tests/test_a.py") -> Inline:
    (found,) = inline_canaries("python", {path: content}, random.Random(1))
    return found


def test_the_shortest_plain_test_is_copied_and_turned_round() -> None:
    canary = only(SOURCE)
    assert canary.original == "test_plain"
    scope: dict[str, object] = {"pytest": pytest}
    exec(compile(canary.content, "x", "exec"), scope)  # our own text
    scope["test_plain"]()  # type: ignore[operator]  # functions of the text above
    with pytest.raises(AssertionError):
        scope[canary.name]()  # type: ignore[operator]
    assert (
        canary.content.replace(b"x + 1 == 2", b"").count(b"assert") == SOURCE.count(b"assert") + 1
    )


def test_unittest_assertions_are_turned_round() -> None:
    canary = only(UNITTEST)
    assert b"self.assertNotIn(1, [1, 2])" in canary.content
    assert b"self.assertIn(1, [1, 2])" in canary.content


def test_the_same_test_is_copied_each_time_under_another_name() -> None:
    one = inline_canaries("python", {"test_a.py": SOURCE})[0]
    two = inline_canaries("python", {"test_a.py": SOURCE})[0]
    assert one.original == two.original
    assert one.name != two.name


@pytest.mark.parametrize(
    "content",
    [b"", b"def test_x(:", b"\xff\xfe", b"def test_x():\n    pass\n", b"def f():\n    assert 1\n"],
)
def test_files_without_a_fit_test_get_none(content: bytes) -> None:
    assert inline_canaries("python", {"test_a.py": content}) == ()


def test_other_languages_get_none() -> None:
    assert inline_canaries("go", {"a_test.go": b"def test_x():\n    assert 1\n"}) == ()


def test_a_test_and_its_negation_cannot_both_pass() -> None:
    canary = only(SOURCE)
    path = "tests/test_a.py::tests.test_a::"
    P, F = Status.PASS, Status.FAIL
    assert canary.fault({path + "test_plain": P, path + canary.name: F}) == ""
    assert canary.fault({path + "test_plain": F, path + canary.name: P}) == ""
    assert canary.fault({path + "other": P}) == ""
    assert "did, too" in canary.fault({path + "test_plain": P, path + canary.name: P})
    assert "missing" in canary.fault({path + "test_plain": P})
    assert canary.names(path + canary.name + "[1]")
    assert not canary.names(path + "test_plain")
