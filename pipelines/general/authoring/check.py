"""A page is checked when it is read: every part is built once, and named where it fails.

Whatever is wrong with a page is said then, never in the middle of a run.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.analysis import Analysis
from envgen.pipelines.general.authoring.blueprint import Blueprint
from envgen.pipelines.general.authoring.page import RESERVED, Domain, Scene
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.programs.tools_source import tools_source
from envgen.pipelines.general.semantics.tables import Tables

MAX_ROWS = 3_000
"""Rows that the tables of one task may have together."""


def check_page(blueprint: Blueprint) -> None:
    """Build every scene, sentence, tool and draw of a domain once.

    Raises:
        ConfigError: naming the domain, the part of its page, and what to do.
    """
    domain = blueprint.domain
    with _part(domain, "names"):
        _check_names(domain)
    with _part(domain, "params"):
        _check_order(domain)
    with _part(domain, "the sentences"):
        assert blueprint.lexicon
    for name, scene in domain.scenes.items():
        with _part(domain, f"scene {name!r}"):
            _check_scene(blueprint, name, scene)
    for i, step in enumerate(domain.steps):
        with _part(domain, f"step {i + 1} ({step.name!r})"):
            known = {*domain.phrases}
            for phrase in (*step.add, *step.once, *step.together):
                _known(phrase, known, "phrase")
            if step.scene is not None:
                _known(step.scene, {*domain.scenes}, "scene")
    for key in domain.phrases:
        with _part(domain, f"phrase {key!r}"):
            _check_phrase(blueprint, key)


@contextmanager
def _part(domain: Domain, part: str) -> Iterator[None]:
    """Names the part of the page in whatever goes wrong with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"domain {domain.id!r}, {part}: {error}", error.hint) from None
    except RecursionError:
        raise ConfigError(f"domain {domain.id!r}, {part}: it goes round in circles") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"domain {domain.id!r}, {part}: it can't be built: {reason}",
            "check what its names and numbers stand for",
        ) from error


def _known(name: str, names: set[str], what: str) -> None:
    if name not in names:
        raise ConfigError(f"there is no {what} {name!r}", f"there are: {', '.join(sorted(names))}")


def _check_names(domain: Domain) -> None:
    """One name means one thing, and none hides what texts or programs call by it."""
    found: dict[str, str] = {}
    kinds: dict[str, Iterable[str]] = {
        "constant": domain.constants,
        "list": domain.lists,
        "table": domain.tables,
    }
    for kind, names in kinds.items():
        for name in names:
            if name in found or name in RESERVED:
                other = found.get(name, "a word that texts of pages use")
                raise ConfigError(f"{kind} {name!r} is also {other}", "give it another name")
            found[name] = f"a {kind}"
    _known(domain.start, {*domain.scenes}, "scene")


def _check_order(domain: Domain) -> None:
    """Tables refer to tables before them, parameters to parameters before them."""
    before: set[str] = set()
    for name, table in domain.tables.items():
        for column, draw in table.columns.items():
            if keyword.iskeyword(column):
                raise ConfigError(
                    f"column {name}.{column} has a name of Python's", "choose another"
                )
            target = draw.type.partition("entity:")[2]
            if target:
                _known(target, {*domain.tables}, "table")
                if target not in before | {name}:
                    raise ConfigError(
                        f"column {name}.{column} refers to {target!r}, which is drawn later",
                        "put tables after those that they refer to",
                    )
        if table.key not in table.columns:
            raise ConfigError(f"table {name!r} has no column {table.key!r}, its key")
        before.add(name)
    for name, text in domain.params.items():
        node = parsed(text)
        if isinstance(node, ast.Name) and node.id in domain.params:
            raise ConfigError(f"parameter {name!r} stands for another one", "name a table instead")


def _check_scene(blueprint: Blueprint, name: str, scene: Scene) -> None:
    domain = blueprint.domain
    for tool in scene.tools:
        _known(tool, {*domain.tools}, "tool")
    for phrase in scene.asks:
        _known(phrase, {*domain.phrases}, "phrase")
    for table in scene.tables:
        _known(table, {*domain.tables, *scene.choose}, "table")
    draws = rng(0, domain.id, name)
    for _ in range(3):
        structure = blueprint.begin(name, draws)
        problem = blueprint.problem(structure)
        tables = blueprint.draw_tables(structure, draws)
        _check_rows(tables)
        _check_cells(problem)
        Analysis(problem, domain)
        tools_source(problem.relations, problem.access)


def _check_rows(tables: Tables) -> None:
    empty = [name for name, rows in tables.items() if not rows]
    if empty:
        raise ConfigError(f"table {empty[0]!r} has no rows", "its draws leave none over")
    if sum(map(len, tables.values())) > MAX_ROWS:
        raise ConfigError(f"its tables have more than {MAX_ROWS} rows", "draw fewer")


def _check_cells(problem: Problem) -> None:
    """Rules and tools read columns that the task has."""
    columns = {r.name: {c.name for c in r.columns} for r in problem.relations}
    roots: list[ir.Node] = [clause.expr for clause in problem.clauses]
    roots += [clause.guard for clause in problem.clauses if clause.guard is not None]
    if isinstance(problem.goal, ir.Equals):
        roots.append(problem.goal.query)
    for node in (node for root in roots for node in root.walk()):
        if isinstance(node, ir.Query) and node.relation not in columns:
            raise ConfigError(f"a rule reads the table {node.relation!r}, which the scene lacks")
        if isinstance(node, ir.Get) and node.column not in columns.get(node.relation, ()):
            raise ConfigError(
                f"a rule reads {node.relation}.{node.column}, which the scene lacks",
                "add it to the scene's tables or columns",
            )
    for access in problem.access:
        for column in access.returned_columns:
            if column not in columns.get(access.relation, ()):
                raise ConfigError(
                    f"tool {access.tool!r} gives {access.relation}.{column}, which the scene lacks"
                )


def _check_phrase(blueprint: Blueprint, key: str) -> None:
    """A sentence that steps may add is stated once for a task that has it."""
    domain = blueprint.domain
    adding = [s for s in domain.steps if key in (*s.add, *s.once, *s.together)]
    asked = [scene for scene in domain.scenes.values() if key in scene.asks]
    if not adding and not asked:
        raise ConfigError("no scene asks it and no step adds it", "add it to one, or drop it")
    names = blueprint.lexicon.phrase(key).sentence.names
    rule = domain.phrases[key]
    unused = [n for n in (*rule.choose, *rule.fields) if n not in names]
    if unused:
        raise ConfigError(f"its field {unused[0]!r} is in no sentence", "state it, or drop it")
    if len(rule.rows) == 2 and rule.rows[0] > rule.rows[1]:
        raise ConfigError("its rows are the wrong way round", "write the fewest first")
    places: dict[str, dict[str, Any]] = {
        "one": {"k": 1},
        "pair": {"a": 1, "b": 2},
        "all": {"n": 2},
        "task": {},
    }
    draws = rng(0, domain.id, key)
    opening: dict[str, Any] = {}
    for name in domain.scenes:
        opening |= blueprint.begin(name, draws).fields
    fields = {name: values[0] for name, values in rule.choose.items()}
    words = {"rules": [one.word for one in domain.phrases.values() if one.word]}
    stated = {name: value for name, value in (opening | words).items() if name in names}
    blueprint.lexicon.phrase(key).build({**stated, **places[rule.about], **rule.fields, **fields})
