"""Tasks and episodes as Parquet with nested columns, which ``datasets.load_dataset`` reads as it is.

A value with fixed fields is a struct or a list of structs. A free-form value is a JSON text, since
Parquet has one set of columns for all rows: JSON Schemas (``submit_schema``, a tool's ``parameters``),
the ``value`` of a rule and the ``arguments`` of a call. The metadata of these columns say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.families import find_family
from envgen.core.types import EnvironmentSpec, TaskSpec, ToolSpec, published

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 500
"""Rows of a row group: an episode may hold a megabyte of messages."""


def task_schema() -> pa.Schema:
    """The columns of public tasks."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    rule = pa.struct(
        [
            ("text", text), ("kind", text), ("slots", texts), ("column", text), ("cmp", text),
            json_field("value"),
        ]
    )  # fmt: skip
    limits = pa.struct([("turns", pa.int64()), ("tokens", pa.int64()), ("seconds", pa.float64())])
    return pa.schema(
        [
            *((name, text) for name in ("id", "environment_id", "family", "prompt", "policy_text")),
            json_field("submit_schema"),
            ("rules", pa.list_(rule)),
            ("tools", pa.list_(_tool())),
            ("limits", limits),
            ("split", text),
            ("level", pa.int64()),
        ]
    )


def public_row(task: TaskSpec, environment: EnvironmentSpec) -> dict[str, JsonValue]:
    """The public side of a task as JSON: tools in OpenAI's form, the submit tool last if it has one."""
    public = task.public(environment)
    row: dict[str, JsonValue] = public.model_dump(mode="json")
    row["tools"] = [tool.openai() for tool in (*public.tools, *_submit(task, environment))]
    row["submit_schema"] = public.submit_schema and published(public.submit_schema)
    return row


def _submit(task: TaskSpec, environment: EnvironmentSpec) -> tuple[ToolSpec, ...]:
    if (name := environment.submit_tool) is None:
        return ()
    return (find_family(task.family).submit(name),)


def task_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a ``public_row`` into a row of ``task_schema``."""
    return {
        **row,
        "submit_schema": json_text(row["submit_schema"]),
        "rules": [{**rule, "value": json_text(rule["value"])} for rule in row["rules"]],
        "tools": [tool_row(tool) for tool in row["tools"]],
    }


def episode_schema() -> pa.Schema:
    """The columns of exported episodes; see ``docs/trajectories.md``."""
    import pyarrow as pa

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    function = pa.struct([("name", text), json_field("arguments")])
    call = pa.struct([("id", text), ("type", text), ("function", function)])
    message = pa.struct(
        [
            ("role", text), ("content", text), ("reasoning_content", text),
            ("tool_calls", pa.list_(call)), ("tool_call_id", text),
        ]
    )  # fmt: skip
    return pa.schema(
        [
            ("task_id", text), ("sample", whole), ("policy", text), ("policy_version", text),
            ("seed", text), ("style", text), ("reward", real), ("passed", pa.bool_()),
            ("reasons", pa.list_(text)), ("stop", text),
            ("error", pa.struct([("kind", text), ("text", text)])),
            ("num_calls", whole), ("reached_verifier", pa.bool_()), ("prompt_tokens", whole),
            ("completion_tokens", whole), ("cost_usd", real), ("wall_s", real),
            ("messages", pa.list_(message)), ("tools", pa.list_(_tool())),
        ]
    )  # fmt: skip


def tool_row(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in OpenAI's form, its JSON Schema as text."""
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": json_text(function["parameters"])}}


def json_text(value: Any) -> str | None:
    """A free-form value as JSON text; None stays None."""
    return None if value is None else dumps(value)


def json_field(name: str) -> pa.Field:
    """A column of JSON texts."""
    import pyarrow as pa

    return pa.field(name, pa.string(), metadata={"content": "JSON"})


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path, schema: pa.Schema) -> None:
    """Write rows to a file, one row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while batch := list(islice(waiting, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _tool() -> pa.DataType:
    import pyarrow as pa

    function = [("name", pa.string()), ("description", pa.string()), json_field("parameters")]
    return pa.struct([("type", pa.string()), ("function", pa.struct(function))])
