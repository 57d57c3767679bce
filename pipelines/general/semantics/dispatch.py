"""One handler per expression class: the table that every compiler dispatches on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from envgen.core.errors import ContractError
from envgen.core.ir import EXPR_NODES, Node

Handler = TypeVar("Handler", bound=Callable[..., object])


class Dispatch(Generic[Handler]):
    """Handlers by expression class. Fill it with ``on``, then seal it with ``complete``.

    ```
    emit: Dispatch[Callable[..., str]] = Dispatch("verifier")

    @emit.on(ir.Const)
    def _const(node: ir.Const, scope: Scope) -> str: ...

    emit.complete()                       # at import; names the classes without a handler
    emit[type(node)](node, scope)
    ```
    """

    def __init__(self, compiler: str) -> None:
        self._compiler = compiler
        self._handlers: dict[type[Node], Handler] = {}

    def on(self, *nodes: type[Node]) -> Callable[[Handler], Handler]:
        """Register the decorated function for each class of ``nodes``."""

        def register(handler: Handler) -> Handler:
            for node in nodes:
                if node in self._handlers:
                    raise ContractError(f"{self._compiler}: two handlers for {node.__name__}")
                self._handlers[node] = handler
            return handler

        return register

    def complete(self) -> None:
        """Check that every class of ``EXPR_NODES`` has a handler; call it at import.

        Raises:
            ContractError: naming the classes that have none.
        """
        missing = [node.__name__ for node in EXPR_NODES if node not in self._handlers]
        if missing:
            raise ContractError(f"{self._compiler}: no handler for {', '.join(missing)}")

    def __getitem__(self, node: type[Node]) -> Handler:
        return self._handlers[node]
