"""Any record as a person reads it: its figures as a table, then its parts.

The words are the names of its fields, as in what ``--json`` writes, so that no command has a table of its own
for what the room's record already says. Headings are the first line of a part's docstring.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.text import Text

from envgen.cli.columns import CUT, TableColumn, columns_that_fit, row_lines, widths_of
from envgen.cli.console import STDOUT, heading, out, prose, remark, say
from envgen.core.canonical import pretty

MOST = 8
"""Names and reasons that one list shows; ``--json`` has all."""
LONGEST = 32
"""Texts that are longer stand on lines of their own."""
STYLES = {"passed": "green", "failed": "red", "not run": "yellow", "not applicable": "dim"}
UNITS = (("T", 10**12), ("G", 10**9), ("M", 10**6))


def number(value: float) -> str:
    """A number in at most five digits: 0.3333, 512, 1.14 M, 671.9 G."""
    for unit, size in UNITS:
        if abs(value) >= size:
            return f"{value / size:.{1 if abs(value) >= 100 * size else 2}f} {unit}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def interval(low: float | None, high: float | None) -> str:
    """The ends of an interval; ``-`` where there is none."""
    return "-" if low is None or high is None else f"{low:.3f}..{high:.3f}"


def percent(share: float | None) -> str | None:
    """A share, rounded down: of a hundred wrong verifiers one survivor is not 100%."""
    return None if share is None else f"{math.floor(100 * share)}%"


def cell(value: object) -> Text:
    """A value in a table. An estimate brings its interval; what is not known is ``-``."""
    match value:
        case Text():
            return value
        case None | "":
            label = "-"
        case bool():
            label = "yes" if value else "no"
        case int() | float():
            label = number(value)
        case Enum():
            label = str(value.value).replace("_", " ")
        case BaseModel():
            known = vars(value)
            label = f"{known['value']:.4g} ({interval(known['low'], known['high'])})"
        case _:
            label = str(value)
    return Text(label, style=STYLES.get(label, ""))


def is_figure(value: object) -> bool:
    """Whether a value fits a cell."""
    if isinstance(value, BaseModel):
        return {"value", "low", "high"} <= type(value).model_fields.keys()
    return value is None or isinstance(value, str | int | float | Enum | Path)


def show_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: object = "",
    spare: Sequence[str] = (),
) -> None:
    """Print a table; a column whose name ends in a space is right-aligned.

    One whose name ends in an ellipsis is cut at a word to the width that is left. Without a terminal a
    table is as wide as its contents. In a narrow one words are wrapped, then whole columns are left
    out, those to ``spare`` first and the first two never; no number is ever cut.
    """
    texts = [*(list(map(cell, row)) for row in rows)]
    every = [_column(name, i, [row[i] for row in texts]) for i, name in enumerate(columns)]
    kept, left_out = columns_that_fit(every, [name.strip() for name in spare], out.width)
    if title:
        out.print(Text(str(title), style="bold"), soft_wrap=True)
    widths = widths_of(kept, out.width)
    for i in range(len(texts) + 1):
        for line in row_lines(kept, i, widths):
            out.print(line, soft_wrap=True)
    if left_out:
        remark(
            f"left out: {', '.join(left_out)}; a wider terminal shows them, --json FILE has them"
        )


def _column(name: str, i: int, texts: Sequence[Text]) -> TableColumn:
    label, right, cut = name.rstrip(f" {CUT}"), name.endswith(" "), name.endswith(CUT)
    return TableColumn(
        label, (Text(label, style="bold"), *texts), right, cut, whole=i == 0 or right
    )


def show_records(
    records: Sequence[BaseModel], title: object = "", keys: Sequence[object] = ()
) -> None:
    """Print a row for each record of a class, and a column for each field that says something."""
    held: dict[str, list[Any]] = {"key": list(keys)} if keys else {}
    for name in type(records[0]).model_fields:
        held[name] = [getattr(one, name) for one in records]
    kept = {
        name: values
        for name, values in held.items()
        if all(map(is_figure, values)) and any(value not in (None, "") for value in values)
    }
    numeric = {n for n, v in kept.items() if all(isinstance(x, int | float | None) for x in v)}
    heads = [_label(name) + " " * (name in numeric) for name in kept]
    show_rows(heads, zip(*kept.values(), strict=True), title)


def show_record(
    record: BaseModel | Mapping[str, Any], title: object = "", leave: Sequence[str] = ()
) -> None:
    """Print all that a record says, but for the fields to ``leave`` out and those without content."""
    fields = record if isinstance(record, Mapping) else vars(record)
    held = {n: v for n, v in fields.items() if n not in leave and v not in (None, (), {}, "")}
    if rows := [row for name, value in held.items() for row in _figures(name, value)]:
        show_rows(("what", "value "), rows, title)
    for name, value in held.items():
        _show_part(_label(name), value)


def _figures(name: str, value: object) -> Iterator[tuple[str, object]]:
    label = _label(name)
    if isinstance(value, Mapping):
        for key, one in value.items():
            inner = f"{label}{key}" if label.endswith("@") else f"{label}: {key}"
            if isinstance(one, Mapping):
                yield from _figures(inner, one)
            elif is_figure(one) and not _is_long(key):
                yield inner, one
    elif is_figure(value) and not _is_long(value):
        yield label, value


def _label(name: str) -> str:
    return name.replace("pass_at", "pass@").replace("_", " ")


def _is_long(text: object) -> bool:
    return isinstance(text, str | Path) and len(str(text)) > LONGEST


def _show_part(label: str, value: Any) -> None:
    """What is no figure: reasons, names, records within the record."""
    if is_figure(value):
        if _is_long(value):
            say(f"{label}: {value}")
        return
    match value:
        case BaseModel():
            _head(label, value)
            show_record(value)
        case [BaseModel(), *_]:
            _head(label, value[0])
            show_records(value)
        case [*names]:
            say(f"{label}: {few(names)}")
        case Mapping() if all(
            isinstance(one, BaseModel) and not is_figure(one) for one in value.values()
        ):
            _head(label, next(iter(value.values())))
            show_records(list(value.values()), keys=list(value))
        case Mapping():
            for key, one in value.items():
                if one and not is_figure(one) and not isinstance(one, Mapping):
                    _show_part(f"{label} {key}", one)
            long = [(key, one) for key, one in value.items() if is_figure(one) and _is_long(key)]
            for key, one in long[:MOST]:
                say(f"{label}: {one} x {key}" if isinstance(one, int) else f"{label}: {key}: {one}")
            if len(long) > MOST:
                say(f"{label}: {len(long) - MOST} more; --json FILE has all")


def _head(label: str, record: BaseModel) -> None:
    heading(label)
    prose((type(record).__doc__ or "").partition("\n")[0], style="dim")


def few(names: Sequence[object]) -> str:
    """Names behind each other; of many the first, and how many more there are."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(str, names[:MOST])) + more


def write_json(path: Path | None, figures: Any) -> None:
    """Write ``figures`` where ``--json`` says, if it says so; ``-`` is stdout."""
    if path is None:
        return
    if not isinstance(figures, BaseModel):
        figures = json.loads(json.dumps(figures, default=lambda one: one.model_dump(mode="json")))
    if path == STDOUT:
        sys.stdout.write(pretty(figures))
        sys.stdout.flush()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pretty(figures), encoding="utf-8")
    remark(f"wrote {path}")
