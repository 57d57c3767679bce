"""What a reader relies on: one class has one name, and imports go one way."""

from __future__ import annotations

import ast
from collections import defaultdict

from import_graph import ROOT, circles, imports, longest_chain, sources


def test_one_class_has_one_name() -> None:
    found = defaultdict(set)
    for path in sources().values():
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(file)
    twice = {name for name, files in found.items() if len(files) > 1}
    assert not twice, {name: sorted(found[name]) for name in twice}


def test_no_modules_import_each_other() -> None:
    assert circles(imports(deferred=True)) == []


def test_circles_and_chains_are_found() -> None:
    graph = {"p.a": {"p.b"}, "p.b": {"p.c", "p.d"}, "p.c": {"p.a"}, "p.d": {"q"}, "q": set[str]()}
    assert circles(graph) == [["p.a", "p.b", "p.c"]]
    graph["p.c"] = set()
    assert circles(graph) == []
    assert longest_chain(graph, "p") == ["p.a", "p.b", "p.d"]


def test_the_imports_of_general_are_at_most_twelve_deep() -> None:
    """The ladder that a reader climbs; lower the bound when it gets shorter."""
    chain = longest_chain(imports(), "envgen.pipelines.general")
    assert len(chain) <= 12, " -> ".join(chain)
