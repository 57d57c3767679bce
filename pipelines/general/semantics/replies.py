"""The reference semantics of tools: what a call gives and leaves, read off the IR and the rows alone.

It shares nothing with ``tools_source`` nor with ``machine``, so that each checks the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core.ir import Access, Problem, Scalar
from envgen.pipelines.general.semantics.calls import Call, Plan, argument_type, new_row
from envgen.pipelines.general.semantics.evaluate import evaluate, rules_of
from envgen.pipelines.general.semantics.tables import Row, Tables

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2})?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Reply(NamedTuple):
    """What a call gives, and the rows after it."""

    value: JsonValue
    error: str | None
    after: Tables


def reply(p: Problem, tables: Tables, access: Access, args: Mapping[str, Any]) -> Reply:
    """What the tool answers to a call that names each of its arguments; an error changes nothing."""
    if access.mode == "write":
        after = apply_call(p, tables, access, args)
        if isinstance(after, str):
            return Reply(None, after, tables)
        return Reply({"ok": True}, None, after)
    found = _argument_error(p, tables, access, args)
    if found:
        return Reply(None, found, tables)
    rows = _rows(tables, access, args)
    if access.mode == "page":
        return _page(tables, access, args["page"], rows)
    if access.mode in ("list", "range"):
        return Reply([_shown(access, row) for row in rows], None, tables)
    if not rows:
        return Reply(None, "not_found", tables)
    if access.mode == "info":
        return Reply({name: rows[0][name] for name in args[access.projection or ""]}, None, tables)
    return Reply(_shown(access, rows[0]), None, tables)


def argument_kinds(p: Problem, access: Access) -> dict[str, str]:
    """The IR type of each argument that stands for a column; ``entity:R`` where it names a row of R."""
    table = "" if access.mode == "write" else f"{access.relation}."
    return {name: argument_type(p, f"{table}{target}") for name, target in access.args.items()}


def has_kind(kind: str, value: object) -> bool:
    """Whether a value has an argument's type: True is no int, a lone surrogate no text."""
    if kind == "bool":
        return type(value) is bool
    if kind in ("str", "date", "datetime") or kind.startswith("entity:"):
        dated = kind in ("date", "datetime")
        fits = type(value) is str and not _SURROGATE.search(value)
        return fits and (not dated or bool(_DATE.fullmatch(str(value))))
    return type(value) is int and -(2**63) <= value < 2**63


def _argument_error(p: Problem, tables: Tables, access: Access, args: Mapping[str, Any]) -> str:
    """The code of what is wrong with the arguments: types first, then rows that are not there."""
    kinds = argument_kinds(p, access)
    if access.projection is not None and not _projects(access, args[access.projection]):
        return "bad_argument"
    if not all(has_kind(kind, args[name]) for name, kind in kinds.items()):
        return "bad_argument"
    if access.mode in ("inverse", "info"):
        return ""
    named = [(kind[7:], args[name]) for name, kind in kinds.items() if kind.startswith("entity:")]
    if any(key not in tables.get(relation, {}) for relation, key in named):
        return "not_found"
    return "" if access.mode != "page" or has_kind("int", args["page"]) else "bad_argument"


def _projects(access: Access, value: object) -> bool:
    """Whether a value is a list of some of the columns that the tool tells."""
    known = type(value) is list and all(item in access.returned_columns for item in value)
    return known and bool(value)


def _rows(tables: Tables, access: Access, args: Mapping[str, Any]) -> list[Row]:
    """The rows that fit the arguments, in key order."""
    rows = tables.get(access.relation, {})
    return [rows[key] for key in sorted(rows) if _matches(access, rows[key], args)]


def _matches(access: Access, row: Row, args: Mapping[str, Any]) -> bool:
    for name, column in access.args.items():
        value: Any = row[column]
        if value is None:
            return False
        if access.mode == "range" and name.startswith("min_"):
            fits = value >= args[name]
        elif access.mode == "range" and name.startswith("max_"):
            fits = value <= args[name]
        else:
            fits = value == args[name]
        if not fits:
            return False
    return True


def _page(tables: Tables, access: Access, page: int, rows: list[Row]) -> Reply:
    size = access.page_size
    pages = max(1, -(-len(rows) // size))
    if not 1 <= page <= pages:
        return Reply(None, "bad_argument", tables)
    items = [_shown(access, row) for row in rows[(page - 1) * size : page * size]]
    return Reply({"items": items, "page": page, "pages": pages}, None, tables)


def _shown(access: Access, row: Row) -> JsonValue | Scalar:
    """What a tool tells of a row: the bare value of one column, an object of several."""
    if len(access.returned_columns) == 1:
        return row[access.returned_columns[0]]
    return {name: row[name] for name in access.returned_columns}


# --- write calls and plans ---------------------------------------------------------------------


class Applied(NamedTuple):
    """The state after a plan, and for each call "ok" or the error's code."""

    final: Tables
    replies: list[str]


def apply_plan(p: Problem, db: Tables, plan: Plan | Sequence[Call]) -> Applied:
    """Run the write calls of ``plan`` on a copy of ``db``; a call that fails changes nothing."""
    calls = plan.calls if isinstance(plan, Plan) else plan
    tools = {access.tool: access for access in p.access if access.mode == "write"}
    state, replies = db, []
    for tool, args in calls:
        access = tools.get(tool)
        if access is None:
            replies.append("unknown_tool")
            continue
        reply = apply_call(p, state, access, args)
        replies.append(reply if isinstance(reply, str) else "ok")
        state = state if isinstance(reply, str) else reply
    return Applied(state, replies)


def evaluate_plan(p: Problem, db: Tables, plan: Plan) -> dict[str, bool]:
    """Which rules hold after ``plan``."""
    return evaluate(p, db, plan.answer, apply_plan(p, db, plan).final)


def apply_call(p: Problem, state: Tables, access: Access, args: Mapping[str, Any]) -> Tables | str:
    """The state after one call, or the code of its error.

    Arguments are checked first, then ``pre`` in order (unknown is not enough), then all keys and values
    are computed, and only then is anything written. An insert of a present key is ``already_exists``; an
    update or delete of an absent one does nothing.
    """
    named = set(args) == set(access.args)
    wrong = _argument_error(p, state, access, args) if named else "bad_argument"
    if wrong:
        return wrong
    rules = rules_of(p)
    frame = rules.compiler.frame(state)
    frame.args = args
    for pre in access.pre:
        if rules.value(pre.expr, frame) is not True:
            return pre.code
    writes = []
    for effect in access.effects:
        values = {column: rules.value(expr, frame) for column, expr in effect.set.items()}
        writes.append((effect, rules.value(effect.key, frame), values))
    final = dict(state)
    for effect, key, values in writes:
        rows = dict(final.get(effect.relation, {}))
        if effect.kind == "insert":
            if not isinstance(key, str) or key in rows:
                return "already_exists"
            rows[key] = new_row(p, effect.relation, key, values)
        elif isinstance(key, str) and key in rows:
            if effect.kind == "delete":
                del rows[key]
            else:
                rows[key] = {**rows[key], **values}
        final[effect.relation] = rows
    return final
