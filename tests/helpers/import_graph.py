"""Which module of the package imports which, read from the source.

``python tests/helpers/import_graph.py envgen.pipelines.general`` prints the longest chain of imports there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("environments", "pipelines", "sandboxes", "verifiers")
Graph = dict[str, set[str]]


@cache
def sources() -> dict[str, Path]:
    """Module names of the package and their files; its data and what it ships as text left out."""
    found = {}
    for room in ("envgen", *ROOMS):
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT / "envgen" if room == "envgen" else ROOT).with_suffix("")
            if "data" not in parts.parts:
                name = ".".join(("envgen", *parts.parts)).removesuffix(".__init__")
                found[name] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text("utf-8"))


def imports(*, deferred: bool = False) -> Graph:
    """By module what it imports of the package; ``deferred``: inside functions, too.

    What only type checkers see counts as well: two modules that need each other's types are a circle.
    """
    graph: Graph = {}
    for name, path in sources().items():
        tree = parsed(path)
        nodes = ast.walk(tree) if deferred else _at_top(tree.body)
        graph[name] = {target for node in nodes for target in _targets(node)} - {name}
    return graph


def _at_top(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            yield from _at_top(getattr(node, part, []))


def _targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in sources() else node.module for name in inner]
    else:
        return
    yield from (name for name in names if name in sources())


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other, each sorted (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found


def longest_chain(graph: Graph, inside: str) -> list[str]:
    """The longest chain of imports among the modules below a package; the graph has no circles."""
    names = {name for name in graph if name.startswith(f"{inside}.")}

    @cache
    def below(name: str) -> tuple[str, ...]:
        chains = [below(target) for target in sorted(graph[name] & names)]
        return (name, *sorted(chains, key=len)[-1]) if chains else (name,)

    return list(sorted([below(name) for name in sorted(names)], key=len)[-1])


if __name__ == "__main__":
    chain = longest_chain(imports(), sys.argv[1])
    print(f"{len(chain)} modules: {' -> '.join(name.rpartition('.')[2] for name in chain)}")
