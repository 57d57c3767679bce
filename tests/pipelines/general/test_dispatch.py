from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envgen.core import ir
from envgen.core.errors import ContractError
from envgen.pipelines.general.semantics.dispatch import Dispatch


def test_a_missing_handler_is_named() -> None:
    table: Dispatch[Callable[[Any], object]] = Dispatch("toy")
    table.on(*(node for node in ir.EXPR_NODES if node is not ir.Days))(lambda node: None)
    with pytest.raises(ContractError, match="toy: no handler for Days"):
        table.complete()


def test_two_handlers_for_one_class_are_refused() -> None:
    table: Dispatch[Callable[[Any], object]] = Dispatch("toy")
    table.on(ir.Const)(lambda node: 1)
    with pytest.raises(ContractError, match="two handlers for Const"):
        table.on(ir.Const)(lambda node: 2)


def test_complete_table_dispatches_on_the_class() -> None:
    table: Dispatch[Callable[[Any], object]] = Dispatch("toy")
    table.on(*ir.EXPR_NODES)(lambda node: node.op)
    table.complete()
    assert table[ir.Const](ir.Const(value=1)) == "const"
