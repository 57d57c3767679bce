"""Arguments of calls that a later step computes from what earlier steps wrote.

Everything that holds before any call is worked out before any call: which rows, and each part of a number
that reads no new value. What is left is asked for between the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Node, Problem
from envgen.pipelines.general.programs.solution_expressions import Context, Variable, emit, solid
from envgen.pipelines.general.semantics.rewrite import reads_final


def written_by(p: Problem, tool: str) -> frozenset[tuple[str, str]]:
    """The columns that calls of a tool change."""
    return frozenset(
        (effect.relation, column)
        for access in p.access
        if access.tool == tool
        for effect in access.effects
        for column in effect.set
    )


class LateArguments:
    """The arguments of one kind of call: what is known at the start, and what is made of it then.

    Raises:
        PipelineError: if an argument reads a new value in a way that no tool tells between calls.
    """

    def __init__(self, p: Problem, arguments: Mapping[str, Node]) -> None:
        self.known: list[Node] = []
        """Expressions that are worked out before any call."""
        self._writes = frozenset[tuple[str, str]]().union(
            *(written_by(p, access.tool) for access in p.access)
        )
        self._late = {name: self._split(node) for name, node in arguments.items()}
        news = [n for late in self._late.values() for n in late.walk() if isinstance(n, ir.New)]
        cells = [get for new in news for get in new.walk() if isinstance(get, ir.Get)]
        self.reads = frozenset((get.relation, get.column) for get in cells)
        """The columns of which the arguments read new values."""

    def _split(self, node: Node) -> Node:
        """``node`` with variables for its parts that are known at the start."""
        if not reads_final(node):
            return node if isinstance(node, ir.Const) else self._part(node)
        if isinstance(node, ir.New) and isinstance(node.item, ir.Get):
            row = node.item.entity
            cells = [get for get in row.walk() if isinstance(get, ir.Get)]
            if any((get.relation, get.column) in self._writes for get in cells):
                raise PipelineError("a step can't read a new value of a row that calls choose")
            return node.model_copy(
                update={"item": node.item.model_copy(update={"entity": self._part(row)})}
            )
        if isinstance(node, ir.Arith):
            sides = {"left": self._split(node.left), "right": self._split(node.right)}
            return node.model_copy(update=sides)
        raise PipelineError(f"a step can't compute a {type(node).__name__} of new values")

    def _part(self, node: Node) -> ir.Var:
        if node not in self.known:
            self.known.append(node)
        return ir.Var(name=f"known_{self.known.index(node)}")

    def texts(self, names: Mapping[str, str], before: Context, scope: Context) -> Iterator[str]:
        """The arguments in Python, one after the other.

        Args:
            names: the parts that are known, by the names of the arguments that they are alone.
            before: where the parts stand, which says what they are.
            scope: where the call stands.
        """
        acting = scope.at_work()
        for i, node in enumerate(self.known):
            found = emit(node, before)
            acting = acting.bind(
                f"known_{i}",
                Variable(
                    names[f"known_{i}"],
                    solid=solid(node, before) if isinstance(node, ir.Get | ir.Var) else False,
                    nullable=bool(found.doubts),
                ),
            )
        for node in self._late.values():
            yield emit(node, acting).value().text

    def names(self, scope: Context) -> dict[str, str]:
        """A name for each part that is known: the argument's that it is alone, else a number's."""
        alone = {node.name: name for name, node in self._late.items() if isinstance(node, ir.Var)}
        found: dict[str, str] = {}
        for i in range(len(self.known)):
            wish = alone.get(f"known_{i}", f"part_{i + 1}")
            found[f"known_{i}"] = scope.names.local(wish, found.values())
        return found
