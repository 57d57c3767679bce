"""What a reader relies on: one class has one name, and imports go one way."""

from __future__ import annotations

import ast
from collections import defaultdict

from import_graph import ROOT, circles, imports, longest_chain, parsed, sources

from envgen.core.families import OWN


def test_one_class_has_one_name() -> None:
    found = defaultdict(set)
    for path in sources().values():
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(parsed(path)):
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


FAMILY_OWN = (
    "pipelines/general/", "pipelines/code/", "pipelines/packed/", "pipelines/search/",
    "pipelines/interpreter/", "pipelines/proof/", "pipelines/author/", "environments/data/",
)  # fmt: skip
"""Where a family may call itself by its name, beside its environment's files."""
FAMILY_FILES = {
    "environments/general.py", "environments/hosts.py", "environments/code.py",
    "environments/code_hosts.py", "core/families.py", "environments/registration.py",
    "environments/search.py", "environments/interpreter.py", "environments/proof.py",
}  # fmt: skip


def family_names_in(tree: ast.AST) -> list[int]:
    """The lines that compare a family with a name, or give one."""
    found = []
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.keyword) and node.arg == "family":
            parts = [ast.Name("family"), node.value]
        names = {ast.unparse(part).rpartition(".")[2] for part in parts}
        texts = {x.value for part in parts for x in ast.walk(part) if isinstance(x, ast.Constant)}
        if names & {"family", "families"} and texts & set(OWN):
            found.append(getattr(node, "lineno", 0))
    return found


def test_shared_code_names_no_family() -> None:
    """What differs by family stands in its record."""
    found = []
    for file in sources().values():
        path = file.relative_to(ROOT).as_posix().removeprefix("envgen/")
        if path not in FAMILY_FILES and not path.startswith(FAMILY_OWN):
            found += [f"{path}:{n}" for n in family_names_in(parsed(file))]
    assert found == []


def test_names_of_families_are_found() -> None:
    code = "if task.family == 'code': pass\nplay(family='general')\nx = families != {'code'}\ny = 'code'"
    assert sorted(family_names_in(ast.parse(code))) == [1, 2, 3]
