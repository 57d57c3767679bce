from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from git_history import History

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.pipelines.code.formats import FORMATS, detect_format, record_format
from envgen.pipelines.code.formats.base import instant

GOLD = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a\n+b\n"
TEST = GOLD.replace("calc.py", "tests/test_calc.py")
CORE: dict[str, Any] = {
    **{"repo": "ada/calc", "instance_id": "ada__calc-7", "base_commit": "0" * 40},
    **{"patch": GOLD, "test_patch": TEST, "problem_statement": "Sums are wrong", "hints_text": "+"},
}
SAMPLES: dict[str, dict[str, Any]] = {
    "swe-bench": {
        **CORE,
        **{"created_at": "2024-02-19T20:29:03Z", "version": "1.0", "environment_setup_commit": "1"},
        **{
            "FAIL_TO_PASS": '["t.py::a"]',
            "PASS_TO_PASS": '["t.py::b"]',
            "difficulty": "<15 min fix",
        },
    },
    "swe-bench-live": {
        **CORE,
        **{"created_at": "2024-02-19T20:29:03Z", "version": "", "FAIL_TO_PASS": ["t.py::a"]},
        **{"PASS_TO_PASS": ["t.py::b"], "test_cmds": ["pytest"], "log_parser": "def f(): ...\n"},
    },
    "swe-rebench": {
        **CORE,
        **{"created_at": 1708374543000, "version": "", "FAIL_TO_PASS": ["t.py::a"]},
        **{"PASS_TO_PASS": ["t.py::b"], "install_config": {"test_cmd": ["pytest"], "n": None}},
        **{"meta": {"llm_metadata": [{"code": "A", "confidence": 0.9}]}},
    },
    "swe-gym": {
        **CORE,
        **{"created_at": "2024-02-19 20:29:03", "version": "", "FAIL_TO_PASS": ["t.py::a"]},
        "PASS_TO_PASS": ["t.py::b"],
    },
    "swe-smith": {
        **{
            "instance_id": "ada__calc.01234567.func_basic__x1",
            "repo": "swesmith/ada__calc.01234567",
        },
        **{"patch": GOLD, "FAIL_TO_PASS": ["t.py::a"], "PASS_TO_PASS": ["t.py::b"]},
        **{"problem_statement": "Sums are wrong", "created_at": "", "image_name": "x"},
    },
    "multi-swe-bench": {
        **{"org": "ada", "repo": "calc", "number": 7, "state": "closed", "title": "T", "body": "B"},
        **{"base": {"label": "ada:main", "ref": "main", "sha": "0" * 40}, "fix_patch": GOLD},
        **{"resolved_issues": [{"number": 5, "title": "Sums", "body": "are wrong"}]},
        **{"test_patch": TEST, "lang": "py", "instance_id": "ada__calc-7", "hints": ""},
        "fixed_tests": {"t.py::a": {"run": "NONE", "test": "FAIL", "fix": "PASS"}},
        "f2p_tests": {"t.py::a": {"run": "NONE", "test": "FAIL", "fix": "PASS"}},
        "p2p_tests": {"t.py::b": {"run": "PASS", "test": "PASS", "fix": "PASS"}},
        **{"s2p_tests": {}, "n2p_tests": {}, "run_result": {"passed_count": 1}},
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_record_is_read_written_and_read_again(name: str) -> None:
    row = SAMPLES[name]
    assert detect_format(row).name == name
    instance = record_format(name).read(row)
    assert instance.repo == "ada/calc"
    assert instance.language == "python"
    assert instance.expected_fail_to_pass == ("t.py::a",)
    assert instance.expected_pass_to_pass == ("t.py::b",)
    assert Instance.model_validate_json(instance.model_dump_json()) == instance
    written = record_format(name).write(
        instance, instance.expected_fail_to_pass, instance.expected_pass_to_pass
    )
    assert record_format(name).read(json.loads(json.dumps(written))) == instance
    changed = {"lang", "f2p_tests", "fixed_tests", "pull_number"}  # said in another way, or added
    assert {k: v for k, v in written.items() if k in row and k not in changed} == {
        k: v for k, v in row.items() if k not in changed
    }


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("swe-smith",)])
def test_a_mined_instance_survives_each_format(name: str) -> None:
    mined = Instance(
        **{"id": "ada__calc-7", "repo": "ada/calc", "base_commit": "0" * 40, "language": "go"},
        **{"kind": "issue", "pull_number": 7, "issue_numbers": (5,), "gold_patch": GOLD},
        **{"problem_statement": "Sums\n\nare wrong", "hints": "plus", "test_patch": TEST},
        **{"created_at": "2024-02-19T20:29:03Z"},
    )
    back = record_format(name).read(record_format(name).write(mined, ["a"], ["b"]))
    kept = back.model_copy(
        update={"expected_fail_to_pass": (), "expected_pass_to_pass": (), "extra": {}}
    )
    assert kept == mined
    assert (back.expected_fail_to_pass, back.expected_pass_to_pass) == (("a",), ("b",))


def test_swe_smiths_patch_is_the_bug(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    history.commit("base", {"calc.py": "a\n"})
    instance = FORMATS["swe-smith"].read(SAMPLES["swe-smith"])
    assert instance.base_commit == "01234567"
    for text in (instance.base_patch, instance.gold_patch):
        history.git("apply", "-", stdin=text.encode())
    assert (history.folder / "calc.py").read_text() == "a\n"
    with pytest.raises(ConfigError, match="has a test patch"):
        record_format("swe-smith").write(FORMATS["swe-bench"].read(SAMPLES["swe-bench"]), [], [])


def test_nemotrons_rows_hold_a_record(tmp_path: Path) -> None:
    inner = SAMPLES["swe-gym"]
    row = {"responses_create_params": {"metadata": {"instance_dict": json.dumps(inner)}}}
    for wrapped in (row, {"instance": inner, "metadata": {}}):
        assert detect_format(wrapped).name == "swe-gym"
        assert detect_format(wrapped).read(wrapped).id == "ada__calc-7"


@pytest.mark.parametrize(
    ("value", "iso"),
    [
        *(("2024-02-19T20:29:03Z", "2024-02-19T20:29:03Z"), (None, ""), ("", "")),
        *(
            ("2024-02-19T21:29:03+01:00", "2024-02-19T20:29:03Z"),
            (1708374543, "2024-02-19T20:29:03Z"),
        ),
        *(("2024-02-19 20:29:03", "2024-02-19T20:29:03Z"), (1708374543000, "2024-02-19T20:29:03Z")),
    ],
)
def test_dates_come_in_many_forms(value: object, iso: str) -> None:
    assert instant(value) == iso


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({"patch": ""}, "no patch"),
            ({"patch": GOLD[:-4]}, "lines early"),
            ({"repo": None}, "no 'repo'"),
        ),
        *(
            ({"created_at": "soon"}, "not a date"),
            ({"FAIL_TO_PASS": "x"}, "must be a list of texts"),
        ),
        *(
            ({"FAIL_TO_PASS": [1]}, "must be a list of texts"),
            ({"language": "rust"}, "is in 'rust'"),
        ),
        *(({"patch": GOLD + "\ud83d"}, "half a character"), ({"created_at": True}, "not a date")),
        *(({"repo": 3}, "is int, not text"), ({"patch": "--- a\n+++ b\n"}, "no 'diff --git'")),
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FORMATS["swe-bench"].read({**SAMPLES["swe-bench"], **change})


def test_unknown_formats_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown format") as caught:
        record_format("swe-bnch")
    assert "swe-bench" in caught.value.hint
    with pytest.raises(ConfigError, match="of no known format"):
        detect_format({"question": "?"})


def test_reading_needs_no_heavy_module() -> None:
    code = "import sys, envgen.pipelines.code.records as r; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_a_record_without_a_test_patch_is_told_so() -> None:
    row = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "0" * 40, "patch": "x"}
    with pytest.raises(ConfigError, match=r"'a__b-1' has no test_patch"):
        detect_format(row)
