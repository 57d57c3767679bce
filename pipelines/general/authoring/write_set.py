"""The cells that an effect is about, read off the effect itself: all else must stay as it is.

A page that listed them by hand listed too many: "the status of every item of the order" lets an agent drop,
exchange or cancel what nobody asked about, and be paid.
"""

from __future__ import annotations

from collections.abc import Iterator

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Node, Relation
from envgen.pipelines.general.semantics.rewrite import TRUE, conjuncts


def effect_cells(
    key: str, effect: Node, rule: Node, relations: dict[str, Relation]
) -> Iterator[ir.WriteSet]:
    """What an effect lets change, and to what.

    The effect itself demands all that it says of the rows that the policy allows. Of the others, the policy's
    rules forbid the cell that the effect names first (``new(x.status) == 'refunded'``) to be so, which makes
    no difference between leaving a row alone and doing something else to it: ``only`` does.

    Args:
        key: the effect's phrase, for messages.
        effect: what it says.
        rule: what it says where the policy allows every row; the same where it asks no policy.
        relations: by name.

    Raises:
        ConfigError: for an effect of a form that does not tell its cells.
    """
    for part in conjuncts(rule):
        wanted: Node
        if isinstance(part, ir.All) and isinstance(part.over, ir.Query):
            rows = part.over.model_copy(update={"var": part.var, "select": None})
            if part.over.var != part.var and part.over.where != TRUE:
                raise ConfigError(f"phrase {key!r}: its rows and its rule name the row differently")
            wanted = part.body
        else:
            cell = _cell(key, part)
            where = ir.Cmp(fn="=", left=ir.Var(name="row"), right=cell.entity)
            rows = ir.Query(var="row", relation=cell.relation, where=where)
            wanted = part
        cells = [_cell(key, one) for one in conjuncts(wanted)]
        columns = tuple(dict.fromkeys(cell.column for cell in cells))
        for cell in cells:
            about = cell.relation == rows.relation and (
                wanted is part or cell.entity == ir.Var(name=rows.var)
            )
            if not about:
                raise ConfigError(
                    f"phrase {key!r} sets {cell.column!r} of another row than it is about",
                    "write all(new(x.column) == ... for x in TABLE if ...)",
                )
            if relations[cell.relation].column(cell.column).nullable:
                raise ConfigError(f"phrase {key!r} sets {cell.column!r}, which may be None")
        marked = None if rule == effect else next(conjuncts(wanted))
        yield ir.WriteSet(relation=rows.relation, rows=rows, columns=columns, only=marked)


def _cell(key: str, part: Node) -> ir.Get:
    """The cell that ``new(x.column) == value`` sets."""
    if isinstance(part, ir.Cmp) and part.fn == "=" and isinstance(part.left, ir.New):
        cell = part.left.item
        if isinstance(cell, ir.Get):
            return cell
    raise ConfigError(
        f"phrase {key!r} does not tell which cells it sets",
        "an effect says new(x.column) == value, with the cell on the left, joined by `and`",
    )
