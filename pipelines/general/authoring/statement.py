"""From a structure to the problem that it states: tools, and the domain's sentences with their meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache, cached_property, partial
from random import Random
from typing import Any

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Access, Clause, Layout, Problem, Relation, Scalar, Slot
from envgen.pipelines.general.authoring.page import Scene, ToolSignature, free_name
from envgen.pipelines.general.authoring.rows import draw_table
from envgen.pipelines.general.authoring.rules import (
    RuleNames,
    Typed,
    constant,
    expression,
    lifted,
    parsed,
    read_rule,
)
from envgen.pipelines.general.authoring.structure import (
    OPTIMUM,
    Structure,
    Structures,
    chosen_of,
    opening_of,
    unvaried,
)
from envgen.pipelines.general.authoring.write_set import effect_cells
from envgen.pipelines.general.semantics.rewrite import slots_of, summands
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.words.frames import FRAMES
from envgen.pipelines.general.words.lexicon import (
    ESCALATION,
    AnswerForm,
    Lexicon,
    Phrase,
    suffix,
)
from envgen.pipelines.general.words.wording import Fields, Words, joined

_VALUE_TYPES = ("choice", "whole", "interval")
MAX_VALUES = 2_000
"""Values of a slot that holds no row."""
MAX_MEMBERS = 8
"""Members of a set."""
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


class Blueprint(Structures):
    """A domain's page, ready for use: states problems, draws rows, steps to harder structures."""

    @cache  # noqa: B019  # lives as long as the domain
    def rows(self, text: str) -> ir.Query:
        """The rows that a text such as ``(o for o in orders if ...)`` gives, compiled once."""
        return self._query(text, self.names({}))

    def _query(self, text: str, names: RuleNames) -> ir.Query:
        found = expression(text, names)
        if not isinstance(found, ir.Query):
            raise ConfigError(f"{text!r} gives no rows", "write (x for x in TABLE if ...)")
        return found

    # --- what a structure states --------------------------------------------------------------------

    def problem(self, structure: Structure, params: Mapping[str, Scalar] | None = None) -> Problem:
        """The problem of a structure; all but ``params`` follows from the structure."""
        scene, lexicon = self.scene(structure), self.lexicon
        number = f"-{structure.items}" if scene.most > 1 else ""
        opening = f"{structure.scene}{number}{structure.wording}"
        stated = lexicon.opening_templates[opening].names
        fields: dict[str, JsonValue] = {n: v for n, v in structure.fields.items() if n in stated}
        if ESCALATION in structure.fields:
            fields[ESCALATION] = structure.fields[ESCALATION]
        fields["opening"] = opening
        asked = lexicon.request(fields, structure.sentences, dict(params or {}))
        names = [self.domain.id, structure.scene, *(s.phrase for s in structure.sentences)]
        shapes = {ir.Equals: "B", ir.Reach: "C", ir.Optimise: "D"}
        kinds = {slot.kind for slot in asked.slots}
        other = "F" if "set" in kinds else "E" if "interval" in kinds else "A"
        return Problem(
            id="-".join(names)[:200],
            shape=shapes.get(type(asked.goal), other),
            relations=self.tables_of(structure),
            access=self.access_of(structure),
            **vars(asked),
            lexicon=lexicon.id,
            traits=tuple(sorted(structure.traits)),
        )

    def tables_of(self, structure: Structure) -> tuple[Relation, ...]:
        """The tables of a task, with the columns that its scene keeps."""
        found = []
        for name, alias in self._tables(structure).items():
            relation, kept = self.relations[name], self.scene(structure).columns.get(alias)
            columns = tuple(c for c in relation.columns if kept is None or c.name in kept)
            found.append(relation.model_copy(update={"columns": columns}))
        return tuple(found)

    def _tables(self, structure: Structure) -> dict[str, str]:
        """Table of a task -> how its scene calls it: by its name, or by the field that names it."""
        aliases = {
            str(structure.fields.get(word, word)): word for word in self.scene(structure).tables
        }
        return {name: aliases[name] for name in self.relations if name in aliases}

    def access_of(self, structure: Structure) -> tuple[Access, ...]:
        """The tools of a task."""
        fields = {**structure.fields}
        for sentence in structure.sentences:
            fields |= {} if "k" in sentence.fields or "a" in sentence.fields else sentence.fields
        names = self.names(fields, structure)
        tools = [tool for key in self.scene(structure).tools for tool in self.tools[key]]
        return tuple(self._access(tool, names) for tool in tools if constant(tool.when, names))

    @cached_property
    def tools(self) -> dict[str, list[ToolSignature]]:
        """The tools that each definition of the page stands for."""
        return {name: list(_each_tool(tool)) for name, tool in self.domain.tools.items()}

    def _access(self, tool: ToolSignature, names: RuleNames) -> Access:
        name, given, gives = signature_of(tool.call)
        if tool.of not in self.relations:
            known = ", ".join(self.relations)
            raise ConfigError(
                f"tool {name!r} is of {tool.of!r}, which is not a table", f"there are: {known}"
            )
        relation = self.relations[tool.of]
        columns = tuple(str(names.fields.get(column, column)) for column in gives)
        projection = next((name for name, kind in given.items() if kind == "fields"), None)
        args = {name: kind for name, kind in given.items() if kind not in ("fields", "page")}
        if tool.sets:
            return self._write(tool, name, args, names)
        mode = "list"
        if projection:
            mode = "info"
        elif "page" in given.values():
            mode = "page"
        elif any(name.startswith(("min_", "max_")) for name in args):
            mode = "range"
        elif relation.key in args.values():
            mode = "inverse"
        return Access(
            tool=name, relation=tool.of, mode=mode, description=tool.text, args=args,
            projection=projection, returned_columns=columns,
        )  # fmt: skip

    def _write(
        self, tool: ToolSignature, name: str, args: dict[str, str], names: RuleNames
    ) -> Access:
        types = {
            arg: f"entity:{kind.partition('.')[0]}" if "." in kind else kind
            for arg, kind in args.items()
        }
        fields = {name: value for name, value in names.fields.items() if name not in types}
        inside = replace(names, args=types, fields=fields, slots={})
        sets: dict[str, dict[str, Any]] = {}
        for target, text in tool.sets.items():
            holder, _, column = target.rpartition(".")
            sets.setdefault(holder, {})[column] = expression(text, inside)
        needs = [(expression(need.holds, inside), need) for need in tool.needs]
        pre = [ir.Precondition(expr=expr, code=need.code, text=need.text) for expr, need in needs]
        effects = [_updated(lifted(read_rule(a, inside)), cells) for a, cells in sets.items()]
        return Access(
            tool=name, relation=tool.of, mode="write", description=tool.text, args=args,
            pre=tuple(pre), effects=tuple(effects),
        )  # fmt: skip

    # --- sentences ----------------------------------------------------------------------------------

    @cached_property
    def lexicon(self) -> Lexicon:
        """The sentences of the domain; each one's builder reads its rule."""
        domain = self.domain
        more = {str(name): texts for name, texts in domain.frames.items()}
        phrases = {
            key + suffix(i): Phrase(
                text,
                partial(self._build, key),
                kind="clause" if rule.kind == "policy" else rule.kind,
            )
            for key, rule in domain.phrases.items()
            for i, text in enumerate(rule.texts)
        }
        return Lexicon(
            id=domain.key,
            title=domain.title,
            openings=dict(self.openings()),
            frame=self._frame,
            reach=self._reach,
            gives_way=self._gives_way,
            phrases=phrases,
            words=Words(nouns=domain.nouns, slots=domain.slots),
            units=domain.units,
            more_units=domain.more_units,
            frames={name: (*own, *more.get(name, ())) for name, own in FRAMES.items()},
            placeholders=domain.placeholders,
        )

    def openings(self) -> Iterator[tuple[str, str]]:
        """The openings of all scenes, for each number of items: name and text."""
        for name, scene in self.domain.scenes.items():
            for items in range(scene.least, scene.most + 1):
                texts = (scene.opening_one or scene.opening) if items == 1 else scene.opening
                number = f"-{items}" if scene.most > 1 else ""
                for i, text in enumerate(texts):
                    yield f"{name}{number}{suffix(i)}", _repeated(text, items)

    def _build(self, key: str, fields: Fields) -> Any:
        """Build the rule that the phrase ``key`` states with ``fields``."""
        rule, names = self.domain.phrases[key], self._phrase_names(fields)
        if rule.allows is not None:
            names = replace(names, macros={**names.macros, "allows": (("row",), rule.allows)})
        if rule.kind == "escalate":
            return expression(rule.means, names)
        if rule.kind == "goal":
            query = read_rule(rule.means, names)
            if not isinstance(query, Typed) or not isinstance(query.expr, ir.Query):
                raise ConfigError(
                    f"phrase {key!r}: a goal asks for rows, or for a number from rows"
                )
            scene = next(s for s in self.domain.scenes.values() if key in s.asks)
            return ir.Equals(slot=next(iter(scene.slots)), query=query.expr, text_key=key)
        if rule.kind == "optimise":
            return _optimise(key, rule.means, names)
        places = [str(fields[name]) for name in ("k", "a", "b") if name in fields]
        return Clause(
            id="_".join([key, *places]),
            family=rule.family or key,
            expr=expression(rule.means, names),
            guard=None if rule.guard is None else expression(rule.guard, names),
            source="policy" if rule.kind == "policy" else "prompt",
            text_key=key,
        )

    def _phrase_names(self, fields: Fields) -> RuleNames:
        """The names in a phrase's rule: ``allowed(row)`` is all that the rules it names say.

        Inside one of those rules it is all that the ones before that rule on the page say.
        """
        names, rules = self.names(fields), fields.get("rules", [])
        if not isinstance(rules, list):
            raise ConfigError(f"rules must be a list, got {rules!r}")
        macros, conditions = dict(names.macros), list[str]()
        for key, rule in self.domain.phrases.items():
            if rule.word in rules and rule.allows is not None:
                earlier, own = f"Allowed_{key}", f"Allows_{key}"  # no page can call its macros so
                macros[earlier] = (("row",), " and ".join(conditions) or "True")
                macros[own] = (("row",), _renamed(rule.allows, "allowed", earlier))
                conditions.append(f"{own}(row)")
        macros["allowed"] = (("row",), " and ".join(conditions) or "True")
        return replace(names, macros=macros)

    def _reach(self, fields: Fields, effects: tuple[Clause, ...]) -> ir.Reach:
        """The goal of a workflow: its write set is what its effects say, and what they may change besides."""
        scene, cells = self.domain.scenes[opening_of(fields)[0]], list[ir.WriteSet]()
        for effect in effects:
            key = unvaried(effect.text_key)
            names = self._phrase_names(effect.fields)
            anyone = replace(names, macros={**names.macros, "allowed": (("row",), "True")})
            rule = expression(self.domain.phrases[key].means, anyone)
            cells += effect_cells(key, effect.expr, rule, self.relations)
            for may in self.domain.phrases[key].may:
                rows = self._query(may.rows, names)
                cells.append(ir.WriteSet(relation=rows.relation, rows=rows, columns=may.columns))
        escalate = next((k for k in scene.asks if self.domain.phrases[k].kind == "escalate"), None)
        calls = {"effects": len(effects)}
        return ir.Reach(
            effects=effects,
            write_set=tuple(cells),
            escalate_when=None if escalate is None else self._build(escalate, {}),
            escalate_text_key=escalate and str(fields.get(ESCALATION, escalate)),
            max_calls=constant(scene.calls, self.names({**fields, **calls})),
        )

    def _gives_way(self, fields: Fields, clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
        """The clauses; in a scene with ``twins`` the bound on a sum that is set last gives way, if any.

        It stands last of the prompt's, and what is summed up can be searched for its least.
        """
        if not self.domain.scenes[opening_of(fields)[0]].twins:
            return clauses
        order = list(self.params)
        found = [(order.index(self.stem(name)), c, name) for c in clauses if (name := self._sum(c))]
        if not found:
            return clauses
        _, rule, name = max(found, key=lambda one: one[0])
        rest = [clause for clause in clauses if clause is not rule]
        at = sum(clause.source == "prompt" for clause in rest)
        return (*rest[:at], rule.model_copy(update={"gives_way": name}), *rest[at:])

    def _sum(self, clause: Clause) -> str:
        """The parameter at the k-th best sum that a clause bounds; "" where it bounds no such sum."""
        expr = clause.expr
        if not isinstance(expr, ir.Cmp) or clause.guard or clause.source != "prompt":
            return ""
        for own, measure in ((expr.left, expr.right), (expr.right, expr.left)):
            if isinstance(own, ir.Param) and "best" in self.params[self.stem(own.name)].options:
                if all(len(slots_of(part)) <= 2 for _, part in summands(measure, 1)):
                    return own.name
        return ""

    def _frame(self, fields: Fields) -> AnswerForm:
        """Slots and layout of a request, from the fields of its prompt."""
        name, items, _ = opening_of(fields)
        scene = self.domain.scenes[name]
        found = [self._item(scene, k, fields) for k in range(1, items + 1)]
        slots = [slot for _, of_item in found for slot in of_item]
        entries: list[Layout] = [entry for entry, _ in found]
        layout = entries[0]
        if scene.as_list:
            layout = entries
        elif len(entries) > 1:
            layout = {f"{scene.each}_{k}": entry for k, entry in enumerate(entries, 1)}
        return AnswerForm(slots=tuple(slots), layout=layout)

    def _item(self, scene: Scene, k: int, fields: Fields) -> tuple[dict[str, Layout], list[Slot]]:
        suffix = f"_{k}" if scene.each else ""
        own = {name: fields[f"{name}_{k}"] for name in scene.items}
        names = self.names({**fields, **own, "k": k})
        slots = [self._slot(f"{stem}{suffix}", text, names) for stem, text in scene.slots.items()]
        entry: dict[str, Layout] = {
            name: constant(text, names) for name, text in scene.facts.items()
        }
        entry |= {stem: {"$slot": stem + suffix} for stem in scene.slots}
        return entry, slots

    def _slot(self, name: str, text: str, names: RuleNames) -> Slot:
        node = parsed(text)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _VALUE_TYPES:
            values = [constant(ast.unparse(item), names) for item in node.args]
            kind, domain = _value_type(ast.unparse(node.func), values)
            return Slot(name=name, kind=kind, domain=domain)
        rows, sizes = chosen_of(node)
        found = read_rule(ast.unparse(rows), names)
        if not isinstance(found, Typed) or not isinstance(found.expr, ir.Query):
            raise ConfigError(
                f"slot {name!r}: {text!r} is not a table, rows, some(ROWS, ...), interval, whole or choice"
            )
        query = found.expr
        if query.where == ir.Const(value=True):
            query = query.model_copy(update={"var": "x"})
        if not sizes:
            return Slot(name=name, kind="entity", domain=query)
        least, most = _sizes([constant(ast.unparse(size), names) for size in sizes])
        return Slot(name=name, kind="set", domain=query, least=least, length=most)

    def answers(self, problem: Problem, answer: Scalar) -> bool:
        """Whether a question with this answer is a fair one, as its scene says."""
        scene = self.domain.scenes[opening_of(problem.fields)[0]]
        if scene.answer is None:
            return True
        return bool(constant(scene.answer, self.names({**problem.fields, "answer": answer})))

    # --- rows ---------------------------------------------------------------------------------------

    def draw_tables(self, structure: Structure, rng: Random) -> Tables:
        """Rows for a task of this structure; their numbers depend on nothing else."""
        scene, known = self.scene(structure), self._known(structure)
        tables: Tables = {}
        for name, alias in self._tables(structure).items():
            table, kept = self.domain.tables[name], scene.columns.get(alias)
            columns = {
                column: scene.draws.get(f"{alias}.{column}", draw.draw)
                for column, draw in table.columns.items()
                if kept is None or column in kept or column.startswith("_")
            }
            rows = scene.rows.get(alias, table.rows)
            tables[name] = draw_table(
                self.draws, name, tables, known, rng, rows=rows, columns=columns
            )
        for rows_of in tables.values():  # hidden draws have served
            for row in rows_of.values():
                for column in [column for column in row if column.startswith("_")]:
                    del row[column]
        return tables


def _updated(row: Typed, cells: dict[str, Any]) -> ir.Write:
    """The write of some cells of a row that a tool's argument is, or that it refers to."""
    kind, _, relation = row.type.partition(":")
    if kind != "entity":
        raise ConfigError(f"a {row.type} has no cells", "write argument.column, or a reference's")
    return ir.Write(kind="update", relation=relation, key=row.expr, set=cells)


def _renamed(text: str, name: str, other: str) -> str:
    """``text`` with one of the names in it replaced."""
    tree = deepcopy(parsed(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = other
    return ast.unparse(tree)


def _each_tool(tool: ToolSignature) -> Iterator[ToolSignature]:
    """The tools that one definition stands for."""
    for each, one in tool.each.items():
        texts = {
            name: getattr(tool, name).replace("{each}", each).replace("{one}", one)
            for name in ("call", "of", "text", "when")
        }
        yield tool.model_copy(update={**texts, "each": {}})
    if not tool.each:
        yield tool


def _value_type(name: str, values: list[Any]) -> tuple[str, Any]:
    """The kind and the values of a slot that holds no row."""
    if name == "choice" and values:
        return "value", ir.Choice(values=tuple(values))
    if name == "whole" and _whole(values, 2):
        return "value", ir.IntRange(low=values[0], high=values[1])
    if name == "interval" and _whole(values, 4):
        low, high, step, length = values
        fits = step >= 1 and length >= 1 and low <= high - length
        if fits and (high - low) // step <= MAX_VALUES:
            return "interval", ir.Intervals(low=low, high=high, step=step, length=length)
    raise ConfigError(
        f"{name}({', '.join(map(str, values))}) holds no values, or too many",
        f"write whole(low, high), choice(...) or interval(low, high, step, length), of at most {MAX_VALUES}",
    )


def _optimise(key: str, text: str, names: RuleNames) -> ir.Optimise:
    """The goal that ``least(VALUE)`` or ``most(VALUE)`` states."""
    node = parsed(text)
    sense = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or sense not in ("least", "most") or len(node.args) != 1:
        hint = "write least(sum(... for k in range(1, n + 1))), or most(...)"
        raise ConfigError(f"phrase {key!r}: {text!r} doesn't say what is to be best", hint)
    return ir.Optimise(
        sense="min" if sense == "least" else "max",
        expr=expression(ast.unparse(node.args[0]), names),
        bound=ir.Param(name=OPTIMUM),
        text_key=key,
    )


def _sizes(values: list[Any]) -> list[int]:
    """The fewest and the most members of a set: ``some(ROWS, 3)`` has one to three."""
    sizes = [1, *values] if len(values) == 1 else values
    if not _whole(sizes, 2) or not 1 <= sizes[0] <= sizes[1] <= MAX_MEMBERS:
        raise ConfigError(
            f"a set of {' to '.join(map(str, values))} rows can't be asked for",
            f"write some(ROWS, most) or some(ROWS, least, most), of 1 to {MAX_MEMBERS} rows",
        )
    return sizes


def _whole(values: list[Any], count: int) -> bool:
    """Whether these are so many numbers, the first two the right way round."""
    known = all(type(value) is int for value in values) and len(values) == count
    return known and values[0] <= values[1]


_PART = r"[a-z_][a-z0-9_]{0,31}"
_GIVEN = rf"{_PART} ?: ?{_PART}(?:\.{_PART})?"
_SIGNATURE = re.compile(
    rf"(?P<name>{_PART})\((?P<given>(?:{_GIVEN}(?:, ?{_GIVEN})*)?)\)"
    rf"(?: ?-> ?(?:(?P<one>{_PART})|\((?P<many>{_PART}(?:, ?{_PART})*)\)))?"
)


def signature_of(call: str) -> tuple[str, dict[str, str], list[str]]:
    """A tool's name, its arguments with what they are, and the columns that it gives.

    Raises:
        ConfigError: if the text says anything else, or uses a name that generated programs need.
    """
    found = _SIGNATURE.fullmatch(call)
    pairs = re.findall(r"([\w.]+) ?: ?([\w.]+)", found["given"]) if found else []
    if found is None or len(dict(pairs)) < len(pairs):
        hint = "write name(argument: column, ...) -> (column, ...)"
        raise ConfigError(f"{call!r} is not the signature of a tool", hint)
    for name in (found["name"], *dict(pairs)):
        free_name(name, "a tool or an argument")
    return found["name"], dict(pairs), re.findall(r"\w+", found["one"] or found["many"] or "")


_EACH = re.compile(r"\{each: ((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})++)\}")


def _repeated(text: str, items: int) -> str:
    """An opening for so many items."""

    def each(match: re.Match[str]) -> str:
        return joined([match[1].replace("{k}", str(k)) for k in range(1, items + 1)])

    return _EACH.sub(each, text).replace("{n}", _COUNTS[items])
