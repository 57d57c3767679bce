from __future__ import annotations

import json
from typing import Any

import pytest
from encoding_samples import values
from hypothesis import given

from envgen.core.canonical import dumps
from envgen.policies.encoding.tables import as_table, short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"a": 1, "b": "x y"}, {"a": 2, "b": "z"}], "[a,b;1,x y;2,z]"),
        ([{"a": 1}], "[{a:1}]"),
        ([{"a": 1}, {"b": 1}], "[{a:1},{b:1}]"),
        ([{}, {}], "[{},{}]"),
        ([1, "1", True, "true", None, "null", ""], '[1,"1",true,"true",null,"null",""]'),
        ({"error": "not_found", "at": [], "n": 1.5}, "{error:not_found,at:[],n:1.5}"),
        ("a, b", '"a, b"'),
        ("line\n", '"line\\n"'),
        ("\u676d\u5dde", "\u676d\u5dde"),
        ("2024-01-05", '"2024-01-05"'),
    ],
)
def test_values_in_short(value: Any, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize("text", ["sunny", "{broken", "12", '"a"', "", "[1,", '{"a":1,"a":2}'])
def test_what_is_no_json_object_or_list_stays(text: str) -> None:
    assert as_table(text) == text


def test_json_is_shortened() -> None:
    assert as_table('{"name": "Lotus Inn", "price": 180}') == "{name:Lotus Inn,price:180}"


class Reader:
    """Reads the short form back: proof that different values have different texts."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def value(self) -> Any:
        char = self.text[self.at]
        if char == "{":
            return self.object()
        if char == "[":
            return self.list()
        return self.scalar()

    def scalar(self) -> Any:
        if self.text[self.at] == '"':
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
            return value
        end = self.at
        while end < len(self.text) and self.text[end] not in ",:;]}":
            end += 1
        bare, self.at = self.text[self.at : end], end
        try:
            return json.loads(bare)
        except ValueError:
            return bare

    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while self.text[self.at] != "}":
            key = self.value()
            self.at += 1
            found[key] = self.value()
            self.at += self.text[self.at] == ","
        self.at += 1
        return found

    def list(self) -> Any:
        rows: list[Any] = [[]]
        self.at += 1
        while self.text[self.at] != "]":
            if self.text[self.at] == ";":
                rows.append([])
                self.at += 1
            rows[-1].append(self.value())
            self.at += self.text[self.at] == ","
        self.at += 1
        if len(rows) == 1:
            return rows[0]
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@given(value=values)
def test_different_values_have_different_texts(value: Any) -> None:
    reader = Reader(short(value))
    assert dumps(reader.value()) == dumps(value)
    assert reader.at == len(reader.text)
