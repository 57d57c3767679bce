"""The packaged corpus is what its schema says, and every fact stands where it says."""

from __future__ import annotations

import json
import lzma
import re
import tomllib
import unicodedata
from functools import cache
from typing import Any

import pytest

from envgen.store.corpus_lines import DATA, PACKAGE_CORPUS, package_corpus

TYPES: dict[str, type | tuple[type, ...]] = {"year": int, "number": (int, float)}


@cache
def documents() -> tuple[dict[str, Any], ...]:
    text = lzma.decompress((DATA / "corpus.jsonl.xz").read_bytes()).decode("utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


@cache
def schema() -> dict[str, Any]:
    return tomllib.loads((DATA / "corpus.toml").read_text("utf-8"))


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def test_it_is_large_and_its_file_small() -> None:
    assert len(documents()) > 10_000
    assert len((DATA / "corpus.jsonl.xz").read_bytes()) <= 2_600_000


def test_ids_and_titles_are_of_one_document() -> None:
    ids = [one["id"] for one in documents()]
    assert len(set(ids)) == len(ids)
    assert len({(one["class"], one["title"]) for one in documents()}) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", one) for one in ids)
    languages = {one["language"] for one in documents()}
    assert not any(languages & set(re.split(r"[_-]", one)[:-1]) for one in ids)


def test_every_fact_stands_where_it_says() -> None:
    for one in documents():
        for fact in one["facts"]:
            shown = one["text"][fact["start"] : fact["end"]]
            assert shown, fact
            assert folded(shown) == fact["value"] or not isinstance(fact["value"], str), fact


def test_every_fact_is_of_the_kind_of_its_attribute() -> None:
    by_id = {one["id"]: one for one in documents()}
    for one in documents():
        values: dict[str, list[Any]] = {}
        for fact in one["facts"]:
            spec = schema()["attribute"][f"{one['class']}.{fact['attribute']}"]
            assert type(fact["value"]) in (int, float, str)
            assert isinstance(fact["value"], TYPES.get(spec["kind"], str)), fact
            values.setdefault(fact["attribute"], []).append(fact["value"])
            assert (spec["kind"] == "entity") == ("ref" in fact), fact
            if "ref" in fact:
                named = by_id[fact["ref"]]
                assert (named["class"], named["title"]) == (spec["of"], fact["value"])
        for name, said in values.items():
            assert len(set(said)) == len(said), (one["id"], name)
            assert len(said) == 1 or schema()["attribute"][f"{one['class']}.{name}"].get("many")


@pytest.mark.parametrize("source", schema()["source"], ids=lambda source: str(source["name"]))
def test_the_notice_names_each_source(source: dict[str, str]) -> None:
    notice = (DATA / "NOTICE.md").read_text("utf-8")
    assert source["url"] in notice
    assert source["commit"] in notice
    assert source["name"] in {one["source"] for one in documents()}


def test_its_hash_is_the_one_in_the_source() -> None:
    """If the corpus was changed on purpose: note the new hash, and make the shipped questions anew."""
    assert package_corpus().hash == PACKAGE_CORPUS
