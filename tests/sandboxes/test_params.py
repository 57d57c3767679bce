from __future__ import annotations

import pytest

from envgen.sandboxes.programs.params import same_program, split

SOURCE = "X = 1\nPARAMS = {'a': 1}\n\ndef solve():\n    return PARAMS\n"


def test_a_source_is_split_around_its_line() -> None:
    parts = split(SOURCE)
    assert parts is not None
    assert parts.line == "PARAMS = {'a': 1}"
    assert "".join(parts) == SOURCE


@pytest.mark.parametrize(
    "source", ["", "x = 1\n", "  PARAMS = {}\n", "PARAMS = {}\nPARAMS = {}\n", "PARAMS={}\n"]
)
def test_no_line_or_several_is_no_split(source: str) -> None:
    assert split(source) is None


def test_programs_are_the_same_up_to_the_line() -> None:
    assert same_program(SOURCE, SOURCE.replace("1}", "2, 'b': 'x'}"))
    assert same_program("x = 1\n", "x = 1\n")
    assert not same_program(SOURCE, SOURCE.replace("X = 1", "X = 2"))
    assert not same_program(SOURCE, SOURCE + "PARAMS = {}\n")
    assert not same_program(SOURCE, SOURCE.replace("    return", "    return not"))
    assert not same_program("x = 1\n", "x = 2\n")
