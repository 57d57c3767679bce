"""From a Problem to ``verifier.py``: one SQL query for each rule, readable by a person.

The file is straight-line: it checks the form of the answer in Python, binds the answer's values and the
parameters, and asks one question per rule. It shares no code with ``evaluate``; a law of the tests is
that both name the same broken rules for every answer.
"""

from __future__ import annotations

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Clause, Equals, Problem, Reach, Satisfy, WriteSet
from envgen.pipelines.general.programs.emit import (
    Block,
    Doc,
    comment,
    identifier,
    join_lines,
    layout_text,
    params_line,
    python_literal,
    quoted,
)
from envgen.pipelines.general.programs.python_text import python_lines
from envgen.pipelines.general.programs.sql import SqlScope, rows, select_bool, sql
from envgen.pipelines.general.programs.verifier_form import form_source, given_source
from envgen.pipelines.general.words.lexicon import outline


def verifier_source(p: Problem) -> str:
    """The file ``verifier.py`` of ``p``: ``verify(answer, initial, final) -> list of broken rule ids``.

    The ids are those of ``evaluate``: clauses and effects, "layout", "goal", "write_set".

    Raises:
        PipelineError: for a shape or expression without an SQL form.
    """
    if not isinstance(p.goal, Satisfy | Equals | Reach):
        raise PipelineError(f"no verifier for the goal {p.goal.kind!r} yet")
    workflow = isinstance(p.goal, Reach)
    states = (
        {"initial": "main.", "final": "final."} if workflow or _reads_final(p) else {"initial": ""}
    )
    scope = SqlScope({r.name: r for r in p.relations}, {s.name: s for s in p.slots}, states)
    form, given = form_source(p), given_source(p)
    rules = _rules(p, scope)
    parts = [
        _head(uses_json=any("json." in line for line in given)),
        params_line(p.params),
        *([] if not rules else [_dictionary("RULES", rules)]),
        *(_workflow_parts(p.goal, p, scope) if isinstance(p.goal, Reach) else []),
        form,
        _verify(p, given, attach=len(states) == 2, has_rules=bool(rules)),
    ]
    return join_lines(parts)


def _reads_final(p: Problem) -> bool:
    return any(isinstance(node, ir.New) for c in p.clauses for node in c.expr.walk())


def _head(*, uses_json: bool) -> str:
    imports = ["import sqlite3", "from contextlib import closing"]
    if uses_json:
        imports.insert(0, "import json")
    return '"""Which rules of the task an answer breaks."""\n\n' + "\n".join(imports)


# --- one query per rule --------------------------------------------------------------------


def _rules(p: Problem, scope: SqlScope) -> list[str]:
    lines: list[str] = []
    for clause in p.clauses:
        lines += _entry(clause.id, _about(p, clause), select_bool(clause, scope))
    if isinstance(p.goal, Equals):
        lines += _entry("goal", outline(p.lexicon, p.goal), _equals(p.goal, p, scope))
    return lines


def _about(p: Problem, clause: Clause) -> str:
    return outline(p.lexicon, clause) or clause.family.replace("_", " ")


def _entry(rule: str, about: str, query: Doc) -> list[str]:
    lines = comment(about, 4) if about else []
    text = quoted(layout_text(query, 8), block=True)
    return [*lines, f'    {python_literal(rule)}: """', f"        {text}", '        """,']


def _dictionary(name: str, entries: list[str]) -> str:
    return "\n".join([f"{name} = {{", *entries, "}"])


def _equals(goal: Equals, p: Problem, scope: SqlScope) -> Doc:
    query = goal.query
    if p.slot(goal.slot).kind != "set":
        if query.agg == "none" and query.limit != 1:
            return "SELECT FALSE"
        return Block("SELECT ", (f":{goal.slot} =", sql(query, scope).doc), " ")
    wanted = rows(query.model_copy(update={"agg": "none"}), scope)
    if query.limit is not None:  # EXCEPT takes no LIMIT inside a part
        wanted = Block("SELECT * FROM (", (wanted,), "", ")")
    elif query.order:
        wanted = rows(query.model_copy(update={"agg": "none", "order": ()}), scope)
    given = f"SELECT value FROM json_each(:{goal.slot})"
    missing = Block("NOT EXISTS (", (wanted, f"EXCEPT {given}"), " ", ")")
    extra = Block("NOT EXISTS (", (given, Block("EXCEPT ", (wanted,), "")), " ", ")")
    return Block("SELECT ", (missing, extra), " AND ")


# --- workflows -----------------------------------------------------------------------------


def _workflow_parts(goal: Reach, p: Problem, scope: SqlScope) -> list[str]:
    parts: list[str] = []
    entries: list[str] = []
    if goal.effects:
        for effect in goal.effects:
            entries += _entry(effect.id, _about(p, effect), select_bool(effect, scope))
        parts.append(_dictionary("EFFECTS", entries))
    if goal.escalate_when is not None:
        about = comment("When this is true, nothing may be changed and the outcome is escalated.")
        query = Block("SELECT ", (sql(goal.escalate_when, scope).doc,), "")
        text = quoted(layout_text(query, 4), block=True)
        lines = [*about, 'ESCALATE = """', f"    {text}", '"""']
        parts.append("\n".join(lines))
    names = python_literal([relation.name for relation in p.relations])
    parts.append("\n".join(python_lines(names, 0, "TABLES = ")))
    entries = []
    touched = [r for r in p.relations if any(w.relation == r.name for w in goal.write_set)]
    for relation in touched:
        allowed = [w for w in goal.write_set if w.relation == relation.name]
        sentence = f"Only what the task asks for may change in {relation.name}."
        entries += _entry(relation.name, sentence, _allowed_changes(relation, allowed, scope))
    if entries:
        parts.append(_dictionary("ALLOWED", entries))
    parts.append(_UNCHANGED)
    return parts


def _allowed_changes(relation: ir.Relation, allowed: list[WriteSet], scope: SqlScope) -> Doc:
    """True iff no cell outside ``allowed`` differs: updates by column, deleted rows, new rows."""
    table, key = identifier(relation.name), identifier(relation.key)
    groups: dict[tuple[int, ...], list[str]] = {}
    for column in relation.columns:
        if column.name != relation.key:
            which = tuple(i for i, w in enumerate(allowed) if column.name in w.columns)
            groups.setdefault(which, []).append(identifier(column.name))
    tests: list[Doc] = []
    for which, columns in groups.items():
        before, after = (", ".join(f"{t}.{c}" for c in columns) for t in ("old", "new"))
        differs = (
            f"{after} IS NOT {before}" if len(columns) == 1 else f"({after}) IS NOT ({before})"
        )
        where = [differs, *(_outside(f"old.{key}", allowed[i], scope) for i in which)]
        tests.append(
            Block(
                "NOT EXISTS (",
                (
                    f"SELECT 1 FROM main.{table} AS old",
                    f"JOIN final.{table} AS new ON new.{key} = old.{key}",
                    Block("WHERE ", tuple(where), " AND "),
                ),
                " ",
                ")",
            )
        )
    removable = [w for w in allowed if relation.key in w.columns]
    gone: list[Doc] = [f"{key} NOT IN (SELECT {key} FROM final.{table})"]
    gone += [_outside(f"main.{table}.{key}", w, scope) for w in removable]
    body = (f"SELECT 1 FROM main.{table}", Block("WHERE ", tuple(gone), " AND "))
    tests.append(Block("NOT EXISTS (", body, " ", ")"))
    if not any(w.inserts for w in allowed):
        new = f"SELECT {key} FROM final.{table}", f"EXCEPT SELECT {key} FROM main.{table}"
        tests.append(Block("NOT EXISTS (", new, " ", ")"))
    return Block("SELECT ", tuple(tests), " AND ")


def _outside(key: str, allowed: WriteSet, scope: SqlScope) -> Doc:
    return Block(f"{key} NOT IN (", (rows(allowed.rows, scope),), "", ")")


_UNCHANGED = '''def unchanged(db, table):
    """Whether a table holds the same rows before and after."""
    lost = db.execute(f'SELECT * FROM main."{table}" EXCEPT SELECT * FROM final."{table}"')
    new = db.execute(f'SELECT * FROM final."{table}" EXCEPT SELECT * FROM main."{table}"')
    return lost.fetchone() is None and new.fetchone() is None'''


# --- verify --------------------------------------------------------------------------------


def _verify(p: Problem, given: list[str], *, attach: bool, has_rules: bool) -> str:
    lines = [
        "def verify(answer, initial, final):",
        '    """The ids of the rules that the answer breaks, none if it is right."""',
        '    with closing(sqlite3.connect(f"file:{initial}?mode=ro&immutable=1", uri=True)) as db:',
    ]
    if attach:
        lines.append(
            '        db.execute("ATTACH ? AS final", (f"file:{final}?mode=ro&immutable=1",))'
        )
    lines += [
        "        slots = read(answer, db)",
        "        if slots is None:",
        '            return ["layout"]',
    ]
    lines += given
    lines += _judge(p, has_rules)
    return "\n".join(lines)


def _judge(p: Problem, has_rules: bool) -> list[str]:
    rules = "{}" if not has_rules else "RULES"
    lines = [
        "",
        "        def holds(query):",
        "            return db.execute(query, given).fetchone()[0] == 1",
        "",
        f"        broken = [rule for rule, query in {rules}.items() if not holds(query)]",
    ]
    if not has_rules:
        lines[-1] = "        broken = []"
    if isinstance(p.goal, Reach):
        lines += _judge_workflow(p.goal, p)
    return [*lines, "    return broken"]


def _judge_workflow(goal: Reach, p: Problem) -> list[str]:
    outcome = any(slot.name == "outcome" for slot in p.slots)
    tables = "ALLOWED" if goal.write_set else "{}"
    write = [
        f"changed = [table for table in TABLES if table not in {tables} and not unchanged(db, table)]"
        if goal.write_set
        else "changed = [table for table in TABLES if not unchanged(db, table)]"
    ]
    if goal.write_set:
        write.append("changed += [table for table, query in ALLOWED.items() if not holds(query)]")
    effects = "broken += [rule for rule, query in EFFECTS.items() if not holds(query)]"
    normal = [*([effects] if goal.effects else []), *write]
    if goal.escalate_when is None:
        right = 'slots["outcome"] == "done"' if outcome else "True"
        lines = [*normal, *([f"if not {right}:", '    broken.append("goal")'] if outcome else [])]
    else:
        lines = [
            "due = db.execute(ESCALATE, given).fetchone()[0]",
            "if due == 1:",
            "    changed = [table for table in TABLES if not unchanged(db, table)]",
            "else:",
            *(f"    {line}" for line in normal),
        ]
        wanted = '{1: "escalated", 0: "done"}.get(due)'
        test = f'slots["outcome"] != {wanted}' if outcome else "due is None"
        lines += [f"if {test}:", '    broken.append("goal")']
    lines += ["if changed:", '    broken.append("write_set")']
    return [f"        {line}" for line in lines]
