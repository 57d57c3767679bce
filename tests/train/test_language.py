"""Prose and its language, on a fixture of assistant replies whose tables stand in ``docs/rewards.md``."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from assistant_prose import KINDS, confusion, consistency, items, verdicts
from cli_runs import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.core.errors import MissingExtraError
from envgen.train import language
from envgen.train.language import language_consistency, language_of, passages, prose

PAGE = ROOT / "docs" / "rewards.md"


def test_the_fixture_is_what_it_says() -> None:
    found = items()
    assert len(found) >= 200
    assert len({item.text for item in found}) == len(found) == len({item.id for item in found})
    assert {item.kind for item in found} == set(KINDS)
    assert len({item.language for item in found} - {None}) >= 20


def test_the_page_s_tables_are_true() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in (confusion(), consistency()):
        assert "\n".join(table) in page, "run tests/helpers/assistant_prose.py"


def test_language_is_told_on_the_fixture() -> None:
    own, other = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for item, asked, verdict in verdicts():
        mine = asked == {"da": "no"}.get(item.prompt, item.prompt)
        (own if mine else other)[item.kind, verdict] += 1
    judged = [kind for kind in KINDS if kind not in ("mixed", "neutral")]
    false_alarms = sum(own[kind, v] for kind in judged for v in ("none", "part"))
    assert false_alarms <= 1
    missed = sum(other[kind, v] for kind in judged for v in ("all", "part"))
    assert missed / sum(other[kind, v] for kind in judged for v in ("all", "part", "none")) < 0.005
    assert own["mixed", "part"] == sum(own["mixed", v] for v in ("all", "part", "none", "neutral"))
    assert own["neutral", "neutral"] == sum(item.kind == "neutral" for item in items())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Use `list_hotels` now.", "Use now"),
        ('Here:\n```json\n{"a": 1}\n```\ndone', "Here\ndone"),
        ("cut off ```python\nfor x in y:", "cut off"),
        ('the answer is {"hotel": "Lotus Inn", "list": [1, 2]} as asked', "the answer is as asked"),
        ('cut {"hotel": "Lotus', "cut"),
        ("python's {'a': 'b', 'c': 2} is data", "python's is data"),
        ("see [the first one] there", "see the first one there"),
        ("a set {of words} stays out of code", "a set stays out of code"),
        (
            "look at https://a.example/b?c=d,and www.b.example/x or mail me@b.example",
            "look at or mail",
        ),
        ('he said "guten Tag" and « bonjour » and „hallo“ and 《书名》', "he said and and and"),
        ("> quoted line\nmine", "mine"),
        ("costs $5 and $10 more", "costs and more"),
        ("so $x^2 + y$ and \\(a_1\\) and $$z\n+1$$ hold", "so and and hold"),
        ('<function_calls><invoke name="x">hello</invoke></function_calls>bye', "bye"),
        ("<|DSML|function_calls>some words that were cut", ""),
        ("<think>so</think> yes", "so yes"),
        ("call max_tokens or a/b or x=3 twice", "call or or twice"),
        ("It's 9:30, isn't it?", "It's , isn't it?"),
        ("价格是 180 元。", "价格是 元。"),
        ("दो रातों के लिए", "दो रातों के लिए"),
        ("123 + 456 = 579", ""),
        ("", ""),
    ],
)
def test_only_prose_is_kept(text: str, kept: str) -> None:
    assert prose(text) == kept


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_has_prose_and_passages(text: str) -> None:
    found = prose(text)
    assert not any(char.isdigit() for char in found if char.isascii())
    for part in passages(found):
        assert part.weight >= 20
        assert any(map(str.isalpha, part.text))
    share = language_consistency(text, "en")
    assert share is None or 0 <= share <= 1
    if len(found) < 20:
        assert share is None
        assert language_of(text) is None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", ["[", "]", "{", '{"a":', "[1,", "`", "``", "```", "$", "$$", "\\[", "\\(",
    "<", "</", "<|", "<tool", "<tools", "a", "a.", "a@", "_", '"', "\u201c", "\u00ab", "\u300a", "> ", "www.",
    "a://", "~~~", "\n", " ", "\u3042", "."])  # fmt: skip
def test_hostile_texts_take_no_time(unit: str) -> None:
    assert len(prose(unit * (50_000 // len(unit)))) <= 50_000


def test_an_open_bracket_is_data_only_if_it_looks_so() -> None:
    assert prose("some [ text {that goes on") == "some text goes on"
    assert prose('mine {"a": {"b": [1, 2') == "mine"


def test_passages_are_cut_where_the_script_changes() -> None:
    english, chinese = "The first hotel is near the lake, ", "但是第二家酒店离车站更近一些。"
    parts = passages(english + chinese)
    assert [part.text for part in parts] == [english.strip(), chinese]
    assert parts[1].weight == 2 * len(chinese)
    # A name is no passage, and short sentences make one together.
    assert len(passages("我选择了 Lotus Inn 因为它比其他的酒店都便宜。")) == 1
    assert [p.text for p in passages("Yes. It is open. We can go there.")] == [
        "Yes. It is open. We can go there."
    ]
    assert passages("Too short.") == []


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language._identifier.cache_clear()
    with pytest.raises(MissingExtraError) as caught:
        language_of("This is certainly long enough to be told.")
    assert "envgen-gym[train]" in caught.value.hint
    monkeypatch.undo()
    assert language_of("This is certainly long enough to be told.") == "en"
