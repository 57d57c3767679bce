"""IR expressions as SQL: one expression gives one SQL expression, SQLite's three-valued logic included.

The verifier's rules and the tools' preconditions and effects are written with it. An expression is
written in one of two ways: exactly (true, false, unknown), or, where only being true counts (a clause, a
WHERE), as ``truth``, which may read "false" for "unknown" and is then plainer: EXISTS for Any,
NOT EXISTS for All.
"""

from __future__ import annotations

from envgen.core import ir
from envgen.pipelines.general.programs import sql_folds, sql_terms
from envgen.pipelines.general.programs.emit import Block, Doc
from envgen.pipelines.general.programs.sql_base import Sql, SqlScope, choose, emit_table, sql
from envgen.pipelines.general.programs.sql_folds import rows

__all__ = ["SqlScope", "rows", "select_bool", "sql"]


def select_bool(clause: ir.Clause, scope: SqlScope) -> Doc:
    """``SELECT`` that gives 1 iff ``clause`` holds."""
    expr = sql(clause.expr, scope, truth=True)
    if clause.guard is None:
        return Block("SELECT ", (expr.doc,), "")
    guard = sql(clause.guard, scope)
    held = Sql("TRUE", known=True)
    return Block("SELECT ", (choose(guard, expr, held).doc,), "")


HANDLERS = (sql_folds, sql_terms)
"""The modules whose import fills the table."""
emit_table.complete()
