"""A page is checked when it is read: every part is built once, and named where it fails.

Whatever is wrong with a page is said then, never in the middle of a run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import comb
from typing import Any

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import NEAREST, Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.analysis import Analysis
from envgen.pipelines.general.authoring.check_ways import check_sentences, check_ways
from envgen.pipelines.general.authoring.draws import REGISTERED
from envgen.pipelines.general.authoring.page import Domain, Scene, StepRule, free_name
from envgen.pipelines.general.authoring.rules import constant, parsed
from envgen.pipelines.general.authoring.statement import Blueprint, signature_of
from envgen.pipelines.general.authoring.structure import Structure
from envgen.pipelines.general.programs.tools_source import tools_source
from envgen.pipelines.general.semantics.evaluate import MAX_VALUES
from envgen.pipelines.general.semantics.rewrite import (
    condition,
    conjuncts,
    nodes_of,
    params_of,
    slots_of,
    truth,
    unstated,
)
from envgen.pipelines.general.semantics.tables import Tables

_OF_TASK = {"n", "scene", "rules", "said", "trait"}
"""Names of a task's structure that draws may read."""


def check_page(blueprint: Blueprint, *, outside: bool) -> None:
    """Build every scene, sentence, tool and draw of a domain once.

    Args:
        blueprint: of the page.
        outside: whether the page is not the package's, so that it may name open functions only.

    Raises:
        ConfigError: naming the domain, the part of its page, and what to do.
    """
    domain = blueprint.domain
    with _part(domain, "names"):
        _check_names(blueprint)
    for name in domain.macros:
        with _part(domain, f"macro {name!r}"):
            _check_macro(blueprint, name.partition("(")[0])
    for name in domain.tables:
        with _part(domain, f"table {name!r}"):
            _check_table(blueprint, name)
    with _part(domain, "params"):
        assert blueprint.params is not None
    for name in domain.params:
        with _part(domain, f"parameter {name!r}"):
            _check_param(blueprint, name)
    with _part(domain, "draws"):
        closed = sorted(name for name in blueprint.draws.calls if not REGISTERED[name].open)
        if outside and closed:
            reason = f"{closed[0]!r} is for pages of the package only"
            raise ConfigError(reason, "draw from lists of the page's own")
    with _part(domain, "sentences"):
        check_sentences(blueprint)
    for name, scene in domain.scenes.items():
        with _part(domain, f"scene {name!r}"):
            _check_scene(blueprint, name, scene)
    for i, step in enumerate(domain.steps):
        with _part(domain, f"step {i + 1} ({step.name!r})"):
            _check_step(blueprint, step)
    with _part(domain, "steps"):
        gaps = [level for level in range(1, domain.max_level) if not blueprint.operators(level)]
        if gaps:
            raise ConfigError(f"none leads up from level {gaps[0]}", "add one, or lower max_level")
    for key in domain.phrases:
        with _part(domain, f"phrase {key!r}"):
            _check_phrase(blueprint, key)


@contextmanager
def _part(domain: Domain, part: str) -> Iterator[None]:
    """Names the part of the page in whatever goes wrong with it."""
    where = f"domain {domain.id!r}, {part}"
    try:
        yield
    except ConfigError as error:
        hint = error.hint or "fix this part of the page"
        raise ConfigError(f"{where}: {error}", hint) from None
    except RecursionError:
        raise ConfigError(f"{where}: it goes round in circles", "break the circle") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"it can't be built: {type(error).__name__}: {error}"
        hint = "check what its names and numbers stand for"
        raise ConfigError(f"{where}: {reason}", hint) from error


def _known(name: str, names: Collection[str], what: str) -> None:
    if name not in names:
        raise ConfigError(f"there is no {what} {name!r}", f"there are: {', '.join(sorted(names))}")


def _names_in(text: str) -> set[str]:
    """The names in an expression, those of functions left out."""
    nodes = list(ast.walk(parsed(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}


def _check_names(blueprint: Blueprint) -> None:
    """One name means one thing, and none hides what texts or programs call by it."""
    domain, found = blueprint.domain, dict[str, str]()
    named = [("constant", name) for name in domain.constants]
    named += [("list", name) for name in domain.lists]
    named += [("table", name) for name in domain.tables]
    named += [("macro", name) for name in blueprint.macros]
    for kind, name in named:
        free_name(name, f"a {kind}")
        if found.setdefault(name, kind) != kind:
            raise ConfigError(f"{kind} {name!r} is also a {found[name]}", "rename one of them")
    for name in (slot for scene in domain.scenes.values() for slot in scene.slots):
        free_name(name, "a slot")
    _known(domain.start, domain.scenes, "scene")


def _check_macro(blueprint: Blueprint, name: str) -> None:
    """Its text is an expression that doesn't lead back to the macro."""
    macros, seen, left = blueprint.macros, set[str](), [name]
    while left:
        nodes = ast.walk(parsed(macros[left.pop()][1]))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if name in called:
            raise ConfigError("it leads back to itself", "let macros call earlier ones only")
        left += (called & macros.keys()) - seen
        seen |= called


def _check_table(blueprint: Blueprint, name: str) -> None:
    """It refers to tables before it, and each draw to what there is by then."""
    domain, table = blueprint.domain, blueprint.domain.tables[name]
    before = set(list(domain.tables)[: list(domain.tables).index(name)])
    _known(table.key, table.columns, "column")
    chosen = {field for scene in domain.scenes.values() for field in (*scene.choose, *scene.items)}
    known = {*domain.constants, *domain.lists, *before, *_OF_TASK, *chosen}
    for alias, text in table.per.items():
        _check_draw(blueprint, "", f"per {alias!r}", text, known)
    known |= set(table.per)
    _check_draw(blueprint, name, "'rows'", table.rows, known)
    for column, draw in table.columns.items():
        if column in {*domain.tables, *domain.lists, *domain.constants}:
            reason = f"column {column!r} has the name of a table, list or constant"
            raise ConfigError(reason, "rename the column: its draw could not refer to the other")
        target = draw.type.partition("entity:")[2]
        if target and target not in {*before, name}:
            _known(target, domain.tables, "table")
            reason = f"column {column!r} refers to {target!r}, which is drawn later"
            raise ConfigError(reason, "put tables after those that they refer to")
        own = [scene.draws.get(f"{name}.{column}") for scene in domain.scenes.values()]
        for text in filter(None, (draw.draw, *own)):
            _check_draw(blueprint, name, f"column {column!r}", text, known)
        known |= {column}


def _check_draw(blueprint: Blueprint, table: str, what: str, text: str, known: set[str]) -> None:
    try:
        blueprint.draws.draw(text, table)
        for name in sorted(_names_in(text)):
            _known(name, known, "name")
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}", error.hint) from None


def _check_param(blueprint: Blueprint, name: str) -> None:
    """Its values come from what there is, or from parameters before it."""
    domain, params = blueprint.domain, list(blueprint.params)
    before, own = params[: params.index(name)], blueprint.params[name]
    if name == NEAREST:
        raise ConfigError("verifiers call so the bound of a rule that gives way", "rename it")
    if own.kind == "draw":
        known = {*domain.constants, *domain.lists, *domain.tables, *before}
        _check_draw(blueprint, "", "its draw", own.text, known)
    elif own.kind == "rows":
        for other in params_of(blueprint.rows(own.text)):
            _known(blueprint.stem(other), before, "earlier parameter")


def _check_scene(blueprint: Blueprint, name: str, scene: Scene) -> None:
    domain = blueprint.domain
    for tool in scene.tools:
        _known(tool, domain.tools, "tool")
        for one in blueprint.tools[tool]:
            signature_of(one.call)
    for phrase in scene.asks:
        _known(phrase, domain.phrases, "phrase")
    for table in scene.tables:
        _known(table, {*domain.tables, *scene.choose}, "table")
    for table in (*scene.rows, *scene.columns, *(key.partition(".")[0] for key in scene.draws)):
        _known(table, scene.tables, "table in the scene")
    for field in scene.varies:
        _known(field, scene.choose, "field that is chosen")
    if scene.least > scene.most:
        raise ConfigError("least is more than most", "write the smaller number as least")
    draws = rng(0, domain.id, name)
    for _ in range(3):
        structure = blueprint.begin(name, draws)
        problem = blueprint.problem(structure)
        tables = blueprint.draw_tables(structure, draws)
        _check_rows(tables)
        _check_cells(problem)
        _check_sets(problem, tables)
        for slot, columns in unstated(problem):
            raise ConfigError(
                f"slot {slot!r}: no rule states its condition on {columns}; answers that break it would pass",
                "state the condition in a phrase of asks, with the slot for the row",
            )
        _check_opening(blueprint, structure, Analysis(problem, blueprint))
        tools_source(problem.relations, problem.access)
    if scene.twins:
        _check_twins(blueprint, scene)
    if scene.answer is not None:
        constant(scene.answer, blueprint.names({**problem.fields, "answer": 1}))


def _check_twins(blueprint: Blueprint, scene: Scene) -> None:
    """Its tasks are about rules, of which one may have a bound."""
    phrases = blueprint.domain.phrases
    if any(phrases[key].kind != "clause" for key in scene.asks):
        hint = "leave twins out: a question has its answer, and a workflow can escalate"
        raise ConfigError("it asks for more than rules, so it has no twins", hint)
    if all("best" not in param.options for param in blueprint.params.values()):
        hint = "bound a sum of one of its rules by a parameter 'edge(best=K)', or leave twins out"
        raise ConfigError("it has no twins: no rule bounds a sum at the k-th best", hint)


def _check_opening(blueprint: Blueprint, structure: Structure, analysis: Analysis) -> None:
    """The opening states what the scene chooses, and parameters that its rules read."""
    fields = analysis.problem.fields
    template = blueprint.lexicon.opening_templates[str(fields["opening"])]
    for field in sorted(template.names):
        _known(field, fields, "field of the scene's")
    for param in sorted(template.stated(fields)):
        blueprint.stem(param)
        _known(param, analysis.names, "parameter that a rule of the scene reads, such as")


def _check_rows(tables: Tables) -> None:
    empty = [name for name, rows in tables.items() if not rows]
    if empty:
        raise ConfigError(f"table {empty[0]!r} has no rows", "draw at least one")


def _check_sets(problem: Problem, tables: Tables) -> None:
    """The sets that a slot may hold are few enough to be listed."""
    for slot in problem.slots:
        if slot.kind != "set" or not isinstance(slot.domain, ir.Query):
            continue
        rows, sizes = len(tables[slot.domain.relation]), range(slot.least, (slot.length or 0) + 1)
        number = sum(comb(rows, size) for size in sizes)
        if not 1 <= number <= MAX_VALUES:
            raise ConfigError(
                f"slot {slot.name!r} may hold {number:,} sets of rows; at most {MAX_VALUES:,} can be listed",
                f"choose fewer than {slot.length} of {rows} rows, or draw other numbers of them",
            )


def _check_cells(problem: Problem) -> None:
    """Rules and tools read columns that the task has."""
    columns = {r.name: {c.name for c in r.columns} for r in problem.relations}
    for node in nodes_of(problem.clauses, problem.goal):
        if isinstance(node, ir.Query):
            _cell(columns, "a rule", node.relation)
        if isinstance(node, ir.Get):
            _cell(columns, "a rule", node.relation, node.column)
    for access in problem.access:
        who = f"tool {access.tool!r}"
        for column in (*access.returned_columns, *(() if access.effects else access.args.values())):
            _cell(columns, who, access.relation, column)
        for target in access.args.values() if access.effects else ():
            if target not in ("int", "str", "date"):
                _cell(columns, who, *target.split("."))


def _cell(columns: dict[str, set[str]], who: str, table: str, column: str = "") -> None:
    hint = "add it to the tables or columns of the scene"
    if table not in columns:
        raise ConfigError(f"{who} reads the table {table!r}, which the scene does not have", hint)
    if column and column not in columns[table]:
        raise ConfigError(f"{who} reads {table}.{column}, which the scene does not have", hint)


def _check_phrase(blueprint: Blueprint, key: str) -> None:
    """It is stated once for a task that has it: what it states is what its rule reads."""
    domain, rule = blueprint.domain, blueprint.domain.phrases[key]
    adding = [s for s in domain.steps if key in (*s.add, *s.once, *s.together)]
    asked = [scene for scene in domain.scenes.values() if key in scene.asks]
    if not adding and not asked:
        raise ConfigError("no scene asks it and no step adds it", "add it to one, or drop it")
    if rule.rows[0] > rule.rows[1]:
        raise ConfigError("its rows are the wrong way round", "write the fewest first")
    if rule.instead_of is not None:
        _known(rule.instead_of, domain.phrases, "phrase")
    built = blueprint.lexicon.phrase(key).build(fields := _sample_fields(blueprint, key))
    rules = (built,) if isinstance(built, ir.Clause) else ()
    _check_best(blueprint, built)
    if rule.kind == "policy" and rule.word:
        test = [condition(clause) for clause in rules]
        if not all(test) or any(
            isinstance(n, ir.New) for one in test for c in one for n in c.walk()
        ):
            reason = "its means doesn't end with what must hold for a row that was written"
            hint = "write all(not new(x.COLUMN) == VALUE or allows(x) for x in TABLE)"
            raise ConfigError(reason, hint)
    nodes = nodes_of(rules, built if isinstance(built, ir.Equals | ir.Optimise) else None)
    read = {node.name for node in nodes if isinstance(node, ir.Param)}
    read |= params_of(built) if isinstance(built, ir.Node) else set()
    used = _names_used(blueprint, key)
    template = blueprint.lexicon.phrase(key).sentence
    for name in (*rule.choose, *rule.fields):
        if name not in template.names:
            raise ConfigError(f"its field {name!r} is in no sentence", "state it, or drop it")
    for name in sorted(template.names - used):
        reason = f"its field {name!r} is in the sentence, but its rule doesn't use it"
        raise ConfigError(reason, "use the field in means, or drop it")
    for name in sorted(template.stated(fields) - read):
        reason = f"its sentence states the parameter {name!r}, which its rule doesn't read"
        raise ConfigError(reason, "use the parameter in means, or drop it")
    check_ways(blueprint, key, fields)


def _check_best(blueprint: Blueprint, built: Any) -> None:
    """A bound at the k-th best answer is a whole rule about several items."""
    goal = built if isinstance(built, ir.Equals) else None
    for node in nodes_of((built,) if isinstance(built, ir.Clause) else (), goal):
        if not isinstance(node, ir.Cmp):
            continue
        sides = [side.name for side in (node.left, node.right) if isinstance(side, ir.Param)]
        for name in sides:
            if "best" not in blueprint.params[blueprint.stem(name)].options:
                continue
            items = {slot.rpartition("_")[2] for slot in slots_of(node)}
            if len(items) < 2:
                reason = f"parameter {name!r} is an edge with best, but its rule is not about several items"
                raise ConfigError(reason, "compare it with a sum over all items, or write 'edge'")
            if all(part is not node for part in conjuncts(truth(built))):
                reason = f"parameter {name!r} is an edge with best, but its comparison is not a whole rule"
                raise ConfigError(reason, "let the rule hold always: no guard, no 'or' around it")


def _sample_fields(blueprint: Blueprint, key: str) -> dict[str, Any]:
    """Fields that the phrase ``key`` may have."""
    domain, rule, opening = blueprint.domain, blueprint.domain.phrases[key], dict[str, Any]()
    places = {"one": {"k": 1}, "pair": {"a": 1, "b": 2}, "all": {"n": 2}}
    draws = rng(0, domain.id, key)
    for name in domain.scenes:
        opening |= blueprint.begin(name, draws).fields
    if "rules" in blueprint.lexicon.phrase(key).sentence.names:
        words = [one.word for one in domain.phrases.values() if one.word]
        opening |= {"rules": blueprint.named_by(key, words)}
    names = blueprint.lexicon.phrase(key).sentence.names
    chosen = {name: values[0] for name, values in rule.choose.items()}
    stated = {name: value for name, value in opening.items() if name in names}
    return {**stated, **places.get(rule.about, {}), **rule.fields, **chosen}


def _names_used(blueprint: Blueprint, key: str) -> set[str]:
    """The names that the rule of a phrase uses, in its macros too; the fields of the item it is about."""
    rule = blueprint.domain.phrases[key]
    texts = [rule.means, rule.guard, rule.allows, *(may.rows for may in rule.may)]
    found = {"rules", "k", "a", "b", "n"}
    for text in (*texts, *(text for _, text in blueprint.macros.values())):
        found |= _names_in(text) if text else set()
    return found


def _check_step(blueprint: Blueprint, step: StepRule) -> None:
    """It leads to what there is, and its condition has a meaning in some scene."""
    domain = blueprint.domain
    for phrase in (*step.add, *step.once, *step.together):
        _known(phrase, domain.phrases, "phrase")
    if step.scene is not None:
        _known(step.scene, domain.scenes, "scene")
    texts = [step.when, *(domain.phrases[key].when for key in (*step.add, *step.together))]
    for text in texts:
        problems: list[ConfigError] = []
        for name in domain.scenes:
            structure = blueprint.begin(name, rng(0, domain.id, name))
            try:
                constant(text, blueprint.names(structure.fields, structure))
                break
            except ConfigError as error:
                problems.append(error)
        else:
            raise problems[0]
