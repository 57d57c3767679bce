"""From a Problem to ``verifier.py``: one SQL query for each rule, readable by a person.

The file is straight-line: it checks the form of the answer in Python, binds the answer's values and the
parameters, and asks one question per rule. It shares no code with ``evaluate``; a law of the tests is
that both name the same broken rules for every answer.
"""

from __future__ import annotations

import textwrap

from envgen.core import ir
from envgen.core.ir import Clause, Equals, Optimise, Problem, Reach, WriteSet
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
from envgen.pipelines.general.semantics.rewrite import best_rule, changed_as_asked
from envgen.pipelines.general.words.lexicon import outline


def verifier_source(p: Problem) -> str:
    """The file ``verifier.py`` of ``p``: ``verify(answer, initial, final) -> list of broken rule ids``.

    The ids are those of ``evaluate``: clauses and effects, "layout", "goal", "write_set".

    Raises:
        PipelineError: for an expression without an SQL form.
    """
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
    if isinstance(p.goal, Optimise):
        lines += _entry("goal", outline(p.lexicon, p.goal), select_bool(best_rule(p.goal), scope))
    return lines


def _about(p: Problem, clause: Clause) -> str:
    return outline(p.lexicon, clause) or clause.family.replace("_", " ")


def _entry(rule: str, about: str, query: Doc) -> list[str]:
    lines = comment(about, 4) if about else []
    text = quoted(layout_text(query, 8), block=True)
    return [*lines, f'    {python_literal(rule)}: """', f"        {text}", '        """,']


def _dictionary(name: str, entries: list[str]) -> str:
    return "\n".join([f"{name} = {{", *entries, "}"]) if entries else f"{name} = {{}}"


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
    effects = [
        line
        for effect in goal.effects
        for line in _entry(effect.id, _about(p, effect), select_bool(effect, scope))
    ]
    parts = [_dictionary("EFFECTS", effects)]
    if goal.escalate_when is not None:
        about = comment("When this is true, nothing may be changed and the outcome is escalated.")
        query = Block("SELECT ", (sql(goal.escalate_when, scope).doc,), "")
        text = quoted(layout_text(query, 4), block=True)
        parts.append("\n".join([*about, 'ESCALATE = """', f"    {text}", '"""']))
    names = python_literal([relation.name for relation in p.relations])
    parts.append("\n".join(python_lines(names, 0, "TABLES = ")))
    entries: list[str] = []
    for relation in p.relations:
        if allowed := [w for w in goal.write_set if w.relation == relation.name]:
            sentence = f"Only what the task asks for may change in {relation.name}."
            entries += _entry(relation.name, sentence, _allowed_changes(relation, allowed, scope))
    return [*parts, _dictionary("ALLOWED", entries), _UNCHANGED]


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
    return Block(f"{key} NOT IN (", (rows(changed_as_asked(allowed), scope),), "", ")")


_UNCHANGED = '''def unchanged(db, table):
    """Whether a table holds the same rows before and after."""
    lost = db.execute(f'SELECT * FROM main."{table}" EXCEPT SELECT * FROM final."{table}"')
    new = db.execute(f'SELECT * FROM final."{table}" EXCEPT SELECT * FROM main."{table}"')
    return lost.fetchone() is None and new.fetchone() is None'''


# --- verify --------------------------------------------------------------------------------


_VERIFY = '''def verify(answer, initial, final):
    """The ids of the rules that the answer breaks, none if it is right."""
    with closing(sqlite3.connect(f"file:{initial}?mode=ro&immutable=1", uri=True)) as db:
        slots = read(answer, db)
        if slots is None:
            return ["layout"]'''
_ATTACH = '        db.execute("ATTACH ? AS final", (f"file:{final}?mode=ro&immutable=1",))'
_HOLDS = """
        def holds(query):
            return db.execute(query, given).fetchone()[0] == 1
"""
_KEPT = """broken += [rule for rule, query in EFFECTS.items() if not holds(query)]
changed = [table for table in TABLES if table not in ALLOWED and not unchanged(db, table)]
changed += [table for table, query in ALLOWED.items() if not holds(query)]"""
_ESCALATED = """due = db.execute(ESCALATE, given).fetchone()[0]
if due == 1:
    changed = [table for table in TABLES if not unchanged(db, table)]
else:"""


def _verify(p: Problem, given: list[str], *, attach: bool, has_rules: bool) -> str:
    head, opened, read = _VERIFY.partition("as db:\n")
    lines = [head + opened + (f"{_ATTACH}\n" if attach else "") + read, *given, _HOLDS]
    broken = "[rule for rule, query in RULES.items() if not holds(query)]" if has_rules else "[]"
    lines.append(f"        broken = {broken}")
    if isinstance(p.goal, Reach):
        lines.append(textwrap.indent(_workflow_verdict(p.goal, p), " " * 8))
    return "\n".join([*lines, "    return broken"])


def _workflow_verdict(goal: Reach, p: Problem) -> str:
    """Statements that add the broken effects, a wrong outcome, and changes that were not asked for."""
    judged, wanted = _KEPT, '"done"'
    if goal.escalate_when is not None:
        judged = f"{_ESCALATED}\n{textwrap.indent(_KEPT, '    ')}"
        wanted = '{1: "escalated", 0: "done"}.get(due)'
    lines = [judged]
    if any(slot.name == "outcome" for slot in p.slots):
        lines += [f'if slots["outcome"] != {wanted}:', '    broken.append("goal")']
    elif goal.escalate_when is not None:
        lines += ["if due is None:", '    broken.append("goal")']
    return "\n".join([*lines, "if changed:", '    broken.append("write_set")'])
