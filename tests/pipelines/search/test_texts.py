"""Files that a corpus is made of: what can't be read is named, with its place."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envgen.core.errors import ConfigError, DatasetError
from envgen.pipelines.search.sources import build_corpus
from envgen.pipelines.search.tables import read_tables

PAGE = """<html><head><title>Herons &amp;
 egrets</title><meta charset="{}"></head><body><nav>Menu Home</nav><main><h1>Birds</h1>
<p>The caf\u00e9 of the <b>heron</b>.</p><script>alert(1)</script></main></body></html>"""


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_html_gives_its_title_and_main_text(tmp_path: Path, encoding: str) -> None:
    pytest.importorskip("resiliparse", reason="pip install 'envgen-gym[search]'")
    (tmp_path / "birds.html").write_text(PAGE.format(encoding), encoding)
    (page,) = build_corpus([tmp_path / "birds.html"], tmp_path / "corpus").documents()
    assert page.title == "Herons & egrets"
    assert "The caf\u00e9 of the heron." in page.text
    assert "Menu" not in page.text
    assert "alert" not in page.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.html", PAGE.format("utf-8").encode("latin-1"), "'.*a.html' is not utf-8 at byte 133, line 3"),
        ("a.htm", PAGE.format("klingon").encode(), "unknown encoding, 'klingon'"),
        ("a.html", b"<div>" * 3_000, "3000 elements in one another"),
        ("a.html", b"x" * (9 << 20), "larger than 8 MiB"),
        ("a.txt", "one\ntwo caf\u00e9".encode("latin-1"), "'.*a.txt' is not UTF-8 at byte 11, line 2"),
        ("a.csv", b"title\n" + b"x\n" * 9_000 + b"\xe9", "not UTF-8 at byte 18006, line 9002"),
        ("a.jsonl", b"{}\n", "a.jsonl, line 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_place(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    if name.endswith(("html", "htm")):
        pytest.importorskip("resiliparse", reason="pip install 'envgen-gym[search]'")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        build_corpus([tmp_path / name], tmp_path / "corpus")


def test_tables_of_strangers_are_bounded(tmp_path: Path) -> None:
    """Generated columns and damaged pages are refused; ``test_parquet_rows`` covers Parquet's bombs."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute("CREATE TABLE t(a TEXT, b TEXT AS (hex(zeroblob(1000000))))")
        db.execute("INSERT INTO t VALUES ('x')")
        db.commit()
    with pytest.raises(DatasetError, match="generated columns"):
        list(read_tables(tmp_path / "a.db"))
    with closing(sqlite3.connect(tmp_path / "b.db")) as db:
        db.execute("CREATE TABLE t(a TEXT)")
        db.executemany("INSERT INTO t VALUES (?)", [("x" * 900,)] * 40)
        db.commit()
        root = db.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    pages = bytearray((tmp_path / "b.db").read_bytes())
    assert pages[(root - 1) * size] == 5  # an inner page: all its children become itself
    last = (root - 1) * size + 8
    pages[last : last + 4] = root.to_bytes(4, "big")
    (tmp_path / "b.db").write_bytes(pages)
    with pytest.raises(ConfigError, match=r"'.*b.db' can't be read: database disk image"):
        list(read_tables(tmp_path / "b.db"))
    pq.write_table(pa.table({"a": ["x", None], "b": [b"\xff", b""]}), tmp_path / "c.parquet")
    (table,) = read_tables(tmp_path / "c.parquet")
    assert table.rows == [{"a": "x", "b": ""}, {"a": "", "b": ""}]


@pytest.mark.parametrize("name", ["none.csv", "none", "none.exe"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"no file or folder '.*{name}'") as raised:
        build_corpus([tmp_path / name], tmp_path / "corpus")
    assert raised.value.hint == "name files, or a folder of files"


def test_html_without_its_package_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "birds.html").write_text(PAGE.format("utf-8"), "utf-8")
    code = (
        "import sys; sys.modules['resiliparse'] = None\n"
        "from envgen.core.errors import MissingExtraError\n"
        "from envgen.pipelines.search.sources import build_corpus\n"
        "try: build_corpus([sys.argv[1]], sys.argv[2])\n"
        "except MissingExtraError as error: print(error, error.hint)\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "birds.html"), str(tmp_path / "c")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "birds.html' is HTML, which needs resiliparse" in said
    assert "pip install 'envgen-gym[search]'" in said
