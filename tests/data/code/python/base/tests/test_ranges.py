import pytest

from ranges import expand


@pytest.mark.parametrize(("text", "numbers"), [("7", [7]), ("1-3", [1, 2, 3]), ("1-2,7", [1, 2, 7])])
def test_numbers_and_ranges(text, numbers):
    assert expand(text) == numbers


@pytest.mark.skip(reason="open ranges are not decided on")
def test_open_range():
    assert expand("3-") == [3]


def test_negative_numbers():  # a known bug
    assert expand("-1") == [-1]


@pytest.fixture
def long_list():
    with open("lists/long.txt") as file:
        yield file.read()


def test_long_list(long_list):  # its file was never committed
    assert len(expand(long_list)) == 1000
