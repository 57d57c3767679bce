"""The formats by name, and which one a record is of."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from envgen.core.errors import ConfigError
from envgen.pipelines.code.formats.base import RecordFormat, Row
from envgen.pipelines.code.formats.multi_swe_bench import MultiSweBench
from envgen.pipelines.code.formats.swe_bench import SweBench, unwrapped
from envgen.pipelines.code.formats.swe_smith import SweSmith

FORMATS: Mapping[str, RecordFormat] = {
    format_.name: format_
    for format_ in (
        SweBench("swe-bench"),
        SweBench("swe-bench-live", lists="list"),
        SweBench("swe-rebench", lists="list", dates="milliseconds"),
        SweSmith(),
        SweBench("swe-gym", lists="list", dates="space"),
        MultiSweBench(),
    )
}


def record_format(name: str) -> RecordFormat:
    """The format of a name.

    Raises:
        ConfigError: if there is none, with near names.
    """
    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, FORMATS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(FORMATS)}"
    raise ConfigError(f"unknown format {name!r}", hint)


def detect_format(row: Row) -> RecordFormat:
    """The format that a record's fields show.

    Raises:
        ConfigError: if they show none.
    """
    row = unwrapped(row)
    if "fix_patch" in row and "org" in row:
        return FORMATS["multi-swe-bench"]
    if "patch" in row and "test_patch" not in row and "instance_id" in row:
        if "base_commit" in row:
            raise ConfigError(
                f"record {row['instance_id']!r} has no test_patch", "nothing can prove it"
            )
        return FORMATS["swe-smith"]
    if {"patch", "test_patch", "instance_id", "base_commit"} <= row.keys():
        if isinstance(row.get("created_at"), int) or "install_config" in row:
            return FORMATS["swe-rebench"]
        if "test_cmds" in row or "log_parser" in row:
            return FORMATS["swe-bench-live"]
        in_lists = not isinstance(row.get("FAIL_TO_PASS"), str)
        return FORMATS["swe-gym" if in_lists else "swe-bench"]
    raise ConfigError(
        f"a record with the fields {sorted(row)[:8]} is of no known format",
        f"name one of {', '.join(FORMATS)}",
    )
