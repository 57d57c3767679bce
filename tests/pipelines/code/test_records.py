from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.pipelines.code import records
from envgen.pipelines.code.mine import Rejected
from envgen.pipelines.code.records import (
    import_file,
    read_instances,
    read_rows,
    write_instances,
    write_rows,
)

GOLD = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a\r\n+b\n"
ROW: dict[str, Any] = {
    **{"repo": "ada/calc", "instance_id": "ada__calc-7", "base_commit": "0" * 40, "patch": GOLD},
    **{"test_patch": GOLD, "problem_statement": "Sums \u2028 are wrong", "FAIL_TO_PASS": '["a"]'},
    **{"PASS_TO_PASS": "[]", "created_at": "2024-02-19T20:29:03Z", "hints_text": "", "version": ""},
}


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.json", "r.json.gz", "r.parquet"])
def test_every_kind_of_file_gives_the_same_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [ROW, {**ROW, "instance_id": "ada__calc-8"}]
    if name == "r.parquet":
        assert write_rows(path, rows) == 2
    else:
        text = "\n".join(map(json.dumps, rows)) if "jsonl" in name else json.dumps({"data": rows})
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert [dict(row) for row in read_rows(path)] == rows
    found = [i for i in import_file(path) if isinstance(i, Instance)]
    assert [i.id for i in found] == ["ada__calc-7", "ada__calc-8"]
    assert found[0].gold_patch == GOLD


def test_instances_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "instances.jsonl"
    instances = [i for i in _imported(tmp_path, [ROW, {**ROW, "instance_id": "b__c-1"}])]
    assert write_instances(path, instances) == 2
    assert list(read_instances(path)) == instances
    path.write_text('{"id": "x"}\n')
    with pytest.raises(ConfigError, match=r"instances\.jsonl:1 is not an instance: repo"):
        list(read_instances(path))


def _imported(folder: Path, rows: list[dict[str, Any]]) -> list[Instance]:
    write_rows(folder / "rows.jsonl", rows)
    return [i for i in import_file(folder / "rows.jsonl") if isinstance(i, Instance)]


def test_a_broken_record_is_rejected_and_the_rest_goes_on(tmp_path: Path) -> None:
    rows = [{**ROW, "patch": ""}, ROW, {"what": 1}, {**ROW, "repo_language": "rust"}]
    write_rows(tmp_path / "rows.jsonl", rows)
    results = list(import_file(tmp_path / "rows.jsonl", None))
    reasons = [r.reasons[0] if isinstance(r, Rejected) else "" for r in results]
    for reason, message in zip(reasons, ("no patch", "", "no known format", "'rust'"), strict=True):
        assert message in reason
    assert reasons[1] == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repo", "../.."), ("repo", "-c/x"), ("base_commit", "--upload-pack=x"), ("instance_id", "../x"),
        ("merge_commit", "HEAD"), ("version", "a\nb"), ("license", "x" * 5_000), ("pull_number", -1),
        ("instance_id", "x" * 5_000),
    ],
)  # fmt: skip
def test_a_record_that_would_lead_elsewhere_is_rejected(
    tmp_path: Path, field: str, value: object
) -> None:
    write_rows(tmp_path / "rows.jsonl", [{**ROW, field: value}, ROW])
    bad, good = import_file(tmp_path / "rows.jsonl", None)
    assert isinstance(bad, Rejected)
    assert bad.reasons[0].startswith("record ")
    assert isinstance(good, Instance)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            ("a.jsonl", b"{", "a.jsonl:1 is not valid JSON"),
            ("a.json", b"[1]", r"a.json\[0\] is a int"),
        ),
        *(("a.csv", b"", "not a file of records"), ("a.parquet", b"PAR1", "can't be read")),
        *(("a.jsonl.gz", b"\x1f\x8b\x08", "can't be read"), ("a.jsonl", b"\xff", "can't be read")),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        list(read_rows(tmp_path / name))
    with pytest.raises(ConfigError, match="can't be read"):
        list(read_rows(tmp_path / "missing.jsonl"))


def packed(path: Path, content: bytes, times: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(times):
            file.write(content)
    return path


def test_a_packed_line_without_end_costs_an_error(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.jsonl.gz", b" " * (1 << 20), 1 + (records.LINE_CHARS >> 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ConfigError, match="has a line above"):
        list(read_rows(path))


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_packed_document_without_end_costs_an_error(
    tmp_path: Path, ending: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "DOCUMENT_CHARS", 1 << 24)
    path = packed(tmp_path / "a.json.gz", b" " * (1 << 20) + ending, 17)
    with pytest.raises(ConfigError, match=f"above {1 << 24} characters"):
        list(read_rows(path))
