"""Texts of a problem are pasted into generated code as literals: none of them becomes code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from generated import Tools, database, load
from sample_problems import SAMPLES, TOWN_ACCESS, TOWN_RELATIONS

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Cmp, Const, Get, Problem
from envgen.pipelines.general.programs.emit import quoted
from envgen.pipelines.general.programs.tools_source import tools_source
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.replies import apply_call

ATTACKS = (
    'x""" + open("/etc/hostname").read() + """',
    'x" + open("/etc/hostname").read() + "',
    "x''' + open('/etc/hostname').read() + '''",
    "x'); open('/etc/hostname'); ('",
    '\\"""\nopen("/etc/hostname")\n"""',
    "ends with a backslash \\",
    'ends with a quote "',
    'ends with both \\"',
    "a\nline\r\nand # a comment\nopen('/etc/hostname')",
    "{open('/etc/hostname').read()}",
    "%s {0} {name!r} \\N{BULLET} \\x41 \\u0041",
    "a null \x00 and \x1b[0m and \u2028 open('/etc/hostname')",
)
QUERIED = tuple(text for text in ATTACKS if "\x00" not in text)
"""SQLite's own texts end at a null."""


def calls_of(source: str) -> set[str]:
    """Names of all functions that a file calls."""
    nodes = ast.walk(ast.parse(source))
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def words(text: str | None) -> str:
    return " ".join((text or "").split())


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("block", [False, True])
def test_quoted_text_is_read_back(text: str, block: bool) -> None:
    quotes = '"""' if block else '"'
    assert ast.literal_eval(f"{quotes}{quoted(text, block=block)}{quotes}") == text


@pytest.mark.parametrize("text", ATTACKS)
def test_a_description_stays_a_docstring(text: str) -> None:
    access = [item.model_copy(update={"description": text}) for item in TOWN_ACCESS]
    source = tools_source(TOWN_RELATIONS, access)
    assert calls_of(source) == calls_of(tools_source(TOWN_RELATIONS, TOWN_ACCESS))
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    docstrings = [words(ast.get_docstring(node)) for node in functions]
    assert sum(words(text) in one for one in docstrings) == len(access)


@pytest.mark.parametrize("text", ATTACKS)
def test_the_words_of_an_error_stay_words(text: str, tmp_path: Path) -> None:
    sample = SAMPLES["c_refund"]
    pre = {"code": text, "text": text}
    problem = with_pre(sample.problem, lambda one: one.model_copy(update=pre))
    source = tools_source(problem.relations, problem.access)
    plain = tools_source(sample.problem.relations, sample.problem.access)
    assert calls_of(source) == calls_of(plain)
    with closing(compiled_tools(problem, tmp_path)) as tools:
        given = {"item_id": "i1", "method": "card"}
        assert tools.call("refund_item", given) == {"ok": True}
        reply = tools.call("refund_item", given)
    assert reply == {"error": text, "message": text}


@pytest.mark.parametrize("text", QUERIED)
def test_a_constant_in_a_precondition_is_compared_as_it_is(text: str, tmp_path: Path) -> None:
    sample = SAMPLES["c_refund"]
    status = Get(relation="items", entity=Const(value="i1"), column="status")
    refund = next(one for one in sample.problem.access if one.tool == "refund_item")
    test = refund.pre[0].model_copy(
        update={"expr": Cmp(fn="=", left=status, right=Const(value=text))}
    )
    access = refund.model_copy(update={"pre": (test,)})
    problem = sample.problem.model_copy(update={"access": (access,)})
    items = {**sample.tables["items"]}
    items["i1"] = {**items["i1"], "status": text}
    tables = {**sample.tables, "items": items}
    given = {"item_id": "i1", "method": "card"}
    for rows in (tables, sample.tables):
        folder = tmp_path / str(rows is tables)
        folder.mkdir()
        initial = database(problem, rows, folder / "a.sqlite")
        with closing(Tools(problem, initial, folder / "b.sqlite")) as tools:
            reply = tools.call("refund_item", given)
        wanted = apply_call(problem, rows, access, given)
        assert reply.get("error", "ok") == (wanted if isinstance(wanted, str) else "ok")
    assert reply["error"] == test.code


@pytest.mark.parametrize("text", QUERIED)
def test_a_rules_name_and_constants_stay_texts_in_the_verifier(text: str, tmp_path: Path) -> None:
    sample = SAMPLES["a_trip"]
    never = Cmp(fn="=", left=Const(value=text), right=Const(value="something else"))
    clause = sample.problem.clauses[0].model_copy(
        update={"id": text, "expr": never, "guard": None, "family": text}
    )
    problem = sample.problem.model_copy(update={"clauses": (clause,)})
    source = verifier_source(problem)
    assert calls_of(source) <= calls_of(verifier_source(sample.problem))
    path = str(database(problem, sample.tables, tmp_path / "a.sqlite"))
    assert load(source)["verify"](sample.accepted[0], path, path) == [text]


@pytest.mark.parametrize(
    "name",
    ["check", "find", "truth", "str", "len", "sqlite3", "date_add", "solve", "submit_result", "class",
     "x(): pass\ndef y", "\uff43heck", "list_\u00e4", "_hidden", ""],
)  # fmt: skip
def test_names_that_would_hide_something_are_no_tools(name: str) -> None:
    access = TOWN_ACCESS[0].model_copy(update={"tool": name})
    with pytest.raises(PipelineError, match="can't be a tool's name"):
        tools_source(TOWN_RELATIONS, [access])


@pytest.mark.parametrize(
    "name", ["db", "check", "rows", "given", "str", "x=open('f')", "\uff44b", "a b", "lambda", ""]
)
def test_names_that_would_hide_something_are_no_arguments(name: str) -> None:
    access = TOWN_ACCESS[1]
    for change in ({"args": {name: "city"}}, {"mode": "info", "projection": name}):
        if change.get("projection") != "":
            with pytest.raises(PipelineError, match=r"argument's name|projection"):
                tools_source(TOWN_RELATIONS, [access.model_copy(update=change)])


def test_an_argument_can_not_hide_a_computed_value_or_another_argument() -> None:
    refund = next(one for one in SAMPLES["c_refund"].problem.access if one.tool == "refund_item")
    relations = SAMPLES["c_refund"].problem.relations
    twice = {"args": {**refund.args, "key_1": "str"}}
    with pytest.raises(PipelineError, match="key_1"):
        tools_source(relations, [refund.model_copy(update=twice)])
    same = {"mode": "info", "projection": "city", "args": {"city": "city"}}
    with pytest.raises(PipelineError, match="city"):
        tools_source(TOWN_RELATIONS, [TOWN_ACCESS[1].model_copy(update=same)])


def with_pre(problem: Problem, change: Callable[[Any], Any]) -> Problem:
    """``problem`` with every precondition of its tools changed."""
    access: list[Access] = []
    for item in problem.access:
        access.append(item.model_copy(update={"pre": tuple(map(change, item.pre))}))
    return problem.model_copy(update={"access": tuple(access)})


def compiled_tools(problem: Problem, folder: Path) -> Tools:
    initial = database(problem, SAMPLES["c_refund"].tables, folder / "initial.sqlite")
    return Tools(problem, initial, folder / "final.sqlite")
