import unittest

import pytest


def test_pass():
    pass


def test_fail():
    print("printed \x1b[31mred\x1b[0m \x00")
    assert "\x1b[31m" == "a", "control \x1b and \x00"


def test_raises():
    raise ValueError("an exception in the body is a failure")


@pytest.fixture
def broken():
    raise RuntimeError("setup")


@pytest.fixture
def breaks_later():
    yield
    raise RuntimeError("teardown")


def test_setup_error(broken):
    pass


def test_teardown_error(breaks_later):
    pass


def test_fails_and_teardown_error(breaks_later):
    raise AssertionError("body")


@pytest.mark.skip(reason="not today")
def test_skip():
    pass


@pytest.mark.xfail(reason="known")
def test_xfail():
    raise AssertionError


@pytest.mark.xfail(reason="known")
def test_xpass():
    pass


@pytest.mark.xfail(reason="known", strict=True)
def test_strict_xpass():
    pass


@pytest.mark.parametrize("value", ["a b", "\xfc", "new\nline", "a::b", "<&>", ""])
def test_param(value):
    pass


@pytest.mark.parametrize("value", [object()], ids=repr)
def test_address(value):
    pass


class TestClass:
    def test_method(self):
        pass


class TestCase(unittest.TestCase):
    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()
