"""IR expressions as Python of the restricted solution language.

An expression is wanted as a ``value`` (None where unknown), or as the condition that it is ``true`` or
``false``. Negation turns "true" into "false" all the way down, so three-valued logic costs nothing
where nothing can be unknown.
"""

from __future__ import annotations

from envgen.core import ir
from envgen.pipelines.general import solution_rows, solution_terms
from envgen.pipelines.general.solution_base import (
    Item,
    Py,
    Scope,
    Want,
    conjuncts,
    emit,
    emit_table,
    solid,
)
from envgen.pipelines.general.solution_rows import needs_of, ordered_rows, rows_of, values_of

__all__ = [
    "Item",
    "Py",
    "Scope",
    "Want",
    "conjuncts",
    "emit",
    "needs_of",
    "ordered_rows",
    "rows_of",
    "solid",
    "values_of",
]

HANDLERS = (solution_rows, solution_terms)
"""The modules whose import fills the table."""
emit_table.complete(ir.Reachable)
