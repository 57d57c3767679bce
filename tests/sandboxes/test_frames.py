"""Frames of a worker that means harm: each is refused by type, in every backend that has workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_samples import SOURCE, TOOLS, make_database

from envgen.core.errors import ToolFaultError
from envgen.sandboxes.frames import fault, odd
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.sandboxes.verifier import VerifierInput, verifier_host

SEND = """
import struct, sys
frame = sys._getframe()
while "pipe" not in frame.f_locals: frame = frame.f_back
text = {text}
frame.f_locals["pipe"].write(struct.pack("!I", len(text)) + text)
import time
time.sleep(60)
"""
RAW = {
    "nothing": b"[]",
    "no value": b"[0]",
    "a value too many": b"[0, 1, 2]",
    "no message": b'[1, "not_found"]',
    "an error of lists": b"[1, [], {}]",
    "a fault that is a number": b"[2, 3]",
    "another kind": b"[7, 1]",
    "a kind that is true": b"[true, 1]",
    "a kind that is 0.0": b"[0.0, 1]",
    "no list": b'{"0": 1}',
    "no JSON": b"[0, NaN]",
    "infinity": b"[0, 1e400]",
    "infinity, deep": b'[0, {"price": [-1e400]}]',
    "half of a pair": b'[0, "\\ud800"]',
    "half of a pair, as a name": b'[0, {"\\uDFFF": 1}]',
    "a long integer": b"[0, " + b"9" * 4200 + b"]",
    "many levels": b"[0, " + b"[" * 900 + b"]" * 900 + b"]",
    "no UTF-8": b'[0, "\xff"]',
}
CASES = [
    *(("process", name) for name in RAW),
    *(pytest.param("bubblewrap", name, marks=pytest.mark.bwrap) for name in RAW),
    pytest.param("docker", "half of a pair", marks=pytest.mark.docker),
]
"""This process reads the frames, wherever they come from: one of a container's stands for all."""


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    database = make_database(tmp_path_factory.mktemp("frames") / "items.sqlite")
    started = tool_host(SOURCE, TOOLS, database, backend=request.param, trusted=True)
    yield started
    started.close()


@pytest.mark.parametrize(("host", "name"), CASES, indirect=["host"])
def test_a_frame_that_is_no_reply_is_the_environment_s_fault(host: ToolHost, name: str) -> None:
    session = host.open()
    with pytest.raises(ToolFaultError, match="nonsense"):
        session.call("run", {"code": SEND.format(text=repr(RAW[name]))})
    session.close()


@pytest.mark.parametrize(
    "value",
    ["10 ** 300", "1e308 * 10", "chr(0xd800)", "eval('[' * 90 + ']' * 90)", "{chr(0xdc00): 1}"],
)
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_values_that_can_t_be_used_are_faults(backend: Any, value: str, tmp_path: Path) -> None:
    database = make_database(tmp_path / "items.sqlite")
    host = tool_host(SOURCE, TOOLS, database, backend=backend, trusted=True)
    session = host.open()
    with pytest.raises(ToolFaultError):
        session.call("run", {"code": f"result = {value}"})
    session.close()
    host.close()


@pytest.mark.parametrize("name", RAW)
def test_a_verifier_s_frame_is_checked_too(name: str, tmp_path: Path) -> None:
    database = make_database(tmp_path / "items.sqlite")
    source = "def verify(answer, initial, final):\n    exec(answer)\n    return []\n"
    host = verifier_host(backend="process", trusted=True)
    answer = SEND.format(text=repr(RAW[name])).replace(
        '"pipe" not', '"code" not in frame.f_locals or "pipe" not'
    )
    (reply,) = host.verify_many(source, [VerifierInput(answer, database, database)])
    assert reply.broken is None
    assert reply.fault
    host.close()


def test_good_values_pass() -> None:
    for text, value in {
        '["caf\\u00e9", 12, 1.5e3, null, true]': ["café", 12, 1500.0, None, True],
        '"\\ud83d\\ude00"': "\U0001f600",
        "9223372036854775807": 2**63 - 1,
    }.items():
        assert not (odd(text) and fault(value))
