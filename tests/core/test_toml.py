from __future__ import annotations

import time

import pytest

from envgen.core import toml
from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page_files import read_page

HOSTILE = {
    "a key of very many parts": "a" + ".a" * 50_000 + " = 1",
    "a number without end": "a = " + "9" * 10_000,
    "tables in tables": "a = " + "{a = " * 5_000 + "1" + "}" * 5_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_toml_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match=r"dots|digits|deep"):
        toml.loads(text)
    with pytest.raises(ConfigError, match="the page is not valid TOML"):
        read_page(text, "")
    assert time.process_time() - started < 5


def test_what_is_in_order_is_read() -> None:
    assert toml.loads("a.b.c = 1") == {"a": {"b": {"c": 1}}}
