"""From a page to problems: a task's structure, what it states, and how steps change it.

A task is its structure (which scene, how many items, which sentences), rows, and parameters. The structure is
read back from a problem, so a stored task needs nothing but its page to be re-seeded or made harder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Access, Clause, Column, Layout, Problem, Relation, Scalar, Slot
from envgen.pipelines.general.authoring.page import (
    Domain,
    PhraseRule,
    Scene,
    StepRule,
    ToolSignature,
)
from envgen.pipelines.general.authoring.rows import Drawing, Draws, draw_table
from envgen.pipelines.general.authoring.rules import (
    RuleNames,
    Typed,
    constant,
    expression,
    parsed,
    read_rule,
)
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.words.lexicon import AnswerForm, Lexicon, Phrase
from envgen.pipelines.general.words.wording import Fields, Template, Words

MOST_ITEMS = 8
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_KINDS = ("clause", "policy", "goal", "effect")
_VARIANT = re.compile(r"~\d+$")


class Said(NamedTuple):
    """A sentence of a task: the phrase (with the number of its wording) and its fields."""

    key: str
    fields: dict[str, JsonValue]

    @property
    def phrase(self) -> str:
        """The phrase's name on the page."""
        return _VARIANT.sub("", self.key)


@dataclass(frozen=True)
class Structure:
    """All of a task but its rows and parameters."""

    scene: str
    items: int = 1
    wording: str = ""
    """Which of the scene's openings ("" or "~2")."""
    fields: Mapping[str, JsonValue] = field(default_factory=dict)
    """The opening's and the items' fields."""
    said: tuple[Said, ...] = ()
    traits: frozenset[str] = frozenset()

    def says(self, phrase: str) -> bool:
        """Whether the task has a sentence of this phrase."""
        return any(said.phrase == phrase for said in self.said)


class Blueprint:
    """A domain's page, ready for use: states problems, draws rows, steps to harder structures."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.draws = Draws(domain)
        self.macros = {
            name.partition("(")[0]: (_arguments(name), text) for name, text in domain.macros.items()
        }
        self.relations = {
            name: Relation(
                name=name,
                key=table.key,
                columns=tuple(
                    Column(name=c, type=draw.type, unit=draw.unit, nullable=draw.nullable)
                    for c, draw in table.columns.items()
                    if not c.startswith("_")
                ),
            )
            for name, table in domain.tables.items()
        }
        self.param_types = {name: self._param_type(text) for name, text in domain.params.items()}
        self._tools = {name: list(_each_tool(tool)) for name, tool in domain.tools.items()}

    # --- names that rules may use ------------------------------------------------------------------

    def _param_type(self, text: str) -> str:
        node = parsed(text)
        if isinstance(node, ast.Name) and node.id in self.relations:
            return f"entity:{node.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            relation = self.relations.get(node.value.id)
            if relation is not None:
                return relation.column(node.attr).type
        if isinstance(node, ast.GeneratorExp):
            return f"entity:{ast.unparse(node.generators[0].iter)}"
        return "int"

    def names(self, fields: Fields, structure: Structure | None = None) -> RuleNames:
        """What the names in a rule stand for, with these fields."""
        known: dict[str, Any] = {**self.domain.constants, **fields}
        if structure is not None:
            known |= {"n": structure.items, "scene": structure.scene}
        return RuleNames(
            relations=self.relations,
            macros=self.macros,
            fields=known,
            slots=self._slot_types,
            params=self.param_types,
            predicates={} if structure is None else _questions(structure, known),
        )

    @cached_property
    def _slot_types(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, scene in self.domain.scenes.items():
            for stem, text in scene.slots.items():
                kind = self._slot_type(text)
                numbers = [f"_{k}" for k in range(1, MOST_ITEMS + 1)] if scene.each else [""]
                for number in numbers:
                    if found.setdefault(stem + number, kind) != kind:
                        raise ConfigError(
                            f"domain {self.domain.id!r}: slot {stem!r} of scene {name!r} is a {kind} here "
                            f"and a {found[stem + number]} in another scene",
                            "give one of them another name",
                        )
        return found

    def _slot_type(self, text: str) -> str:
        node = parsed(text)
        kinds = {"interval": "interval", "whole": "int", "choice": "str"}
        if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds:
            return kinds[ast.unparse(node.func)]
        loop = node.generators[0].iter if isinstance(node, ast.GeneratorExp) else node
        return f"entity:{ast.unparse(loop)}"

    @cache  # noqa: B019  # lives as long as the domain
    def rows(self, text: str) -> ir.Query:
        """The rows that a text such as ``(o for o in orders if ...)`` gives, compiled once."""
        return self._query(text, self.names({}))

    def _query(self, text: str, names: RuleNames) -> ir.Query:
        found = expression(text, names)
        if not isinstance(found, ir.Query):
            raise ConfigError(f"{text!r} gives no rows", "write (x for x in TABLE if ...)")
        return found

    # --- structures ---------------------------------------------------------------------------------

    def scene(self, structure: Structure) -> Scene:
        """The scene of a structure."""
        return self.domain.scenes[structure.scene]

    def structure_of(self, problem: Problem) -> Structure:
        """The structure of a problem that this blueprint stated.

        Raises:
            ConfigError: if its opening is not one of this domain's.
        """
        fields = dict(problem.fields)
        opening = str(fields.pop("opening", ""))
        head, tilde, variant = opening.partition("~")
        scene, _, items = head.partition("-")
        if scene not in self.domain.scenes:
            raise ConfigError(f"domain {self.domain.id!r} has no scene {scene!r}")
        goal = problem.goal
        rules: list[Clause | ir.Equals | ir.Optimise] = [*problem.clauses]
        if isinstance(goal, ir.Equals | ir.Optimise):
            rules.append(goal)
        if isinstance(goal, ir.Reach):
            rules += goal.effects
        said = tuple(Said(rule.text_key, dict(rule.fields)) for rule in rules)
        elsewhere = {name: value for s in said for name, value in s.fields.items()}
        for name in self.domain.scenes[scene].choose:  # what only other sentences state
            if name not in fields and name in elsewhere:
                fields[name] = elsewhere[name]
        return Structure(
            scene=scene,
            items=int(items or 1),
            wording=tilde + variant,
            fields=fields,
            said=said,
            traits=frozenset(problem.traits),
        )

    def begin(self, scene_name: str, rng: Random, before: Structure | None = None) -> Structure:
        """A structure of one item in a scene; what it shares with the one ``before`` stays."""
        scene = self.domain.scenes[scene_name]
        kept = dict(before.fields) if before else {}
        fields = {
            name: kept[name] if _may_be(kept.get(name), values) else self._chosen(values, rng)
            for name, values in scene.choose.items()
        }
        one = scene.opening_one if scene.least == 1 else ()
        empty = Structure(scene_name, 1, _wording(len(one or scene.opening), rng), fields)
        return self._with_items(empty, scene.least, rng, before)

    def _chosen(self, values: Sequence[Any] | str, rng: Random) -> Any:
        """One of the values, or what a draw gives."""
        return self._drawn(values, rng) if isinstance(values, str) else rng.choice(values)

    def _with_items(
        self, structure: Structure, items: int, rng: Random, before: Structure | None = None
    ) -> Structure:
        """``structure`` with so many items, their fields and the sentences that every task has."""
        scene, fields = self.scene(structure), dict(structure.fields)
        kept = dict(before.fields) if before else {}
        for k in range(1, items + 1):
            for name, text in scene.items.items():
                at = f"{name}_{k}"
                if at not in fields:
                    fields[at] = kept[at] if at in kept else self._drawn(text, rng)
        grown = replace(structure, items=items, fields=fields)
        earlier = {
            (s.phrase, _key(s.fields)): s
            for s in (*structure.said, *(before.said if before else ()))
        }
        asks = []
        for key, about in self._asked(scene, items):
            said = earlier.get((key, _key(about)))
            if said is None:
                said = self._say(key, self._stated(key, fields), rng, earlier.values())
            asks.append(said._replace(fields={**said.fields, **about}))
        added = [
            s if "n" not in s.fields else s._replace(fields={**s.fields, "n": items})
            for s in structure.said
            if s.phrase not in scene.asks
        ]
        return self._arranged(grown, asks, added)

    def _asked(self, scene: Scene, items: int) -> Iterator[tuple[str, dict[str, JsonValue]]]:
        """The sentences of every task of a scene; those about one item stand together."""
        asks = {key: self.domain.phrases[key].about for key in scene.asks}
        for k in range(1, items + 1):
            for key, about in asks.items():
                if about == "one":
                    yield key, {"k": k}
        for key, about in asks.items():
            if about != "one" and self.domain.phrases[key].kind != "escalate":
                yield key, {"n": items} if about == "all" else {}

    def _arranged(self, structure: Structure, asks: list[Said], added: list[Said]) -> Structure:
        """``structure`` with these sentences: rules, the goal, effects (which name the rules)."""
        order, rules = list(self.domain.phrases), self.domain.phrases
        added = sorted(added, key=lambda s: (order.index(s.phrase), _key(s.fields)))
        replaced = {rules[s.phrase].instead_of for s in added}
        said = [s for s in (*asks, *added) if s.phrase not in replaced]
        words: list[JsonValue] = [word for s in said if (word := rules[s.phrase].word)]
        said = [
            s._replace(fields={**s.fields, "rules": words}) if self._names_rules(s.phrase) else s
            for s in sorted(said, key=lambda s: _KINDS.index(rules[s.phrase].kind))
        ]
        return replace(structure, said=tuple(said))

    def _names_rules(self, phrase: str) -> bool:
        return "{rules:list}" in self.domain.phrases[phrase].texts[0]

    def _say(
        self, key: str, about: dict[str, JsonValue], rng: Random, earlier: Iterable[Said] = ()
    ) -> Said:
        """A sentence in one of its wordings; fields that were drawn before may stay."""
        rule = self.domain.phrases[key]
        kept = {name: value for said in earlier for name, value in said.fields.items()}
        chosen = {
            name: kept[name]
            if kept.get(name) in values and rng.random() < 0.5
            else rng.choice(values)
            for name, values in rule.choose.items()
        }
        return Said(key + _wording(len(rule.texts), rng), {**about, **rule.fields, **chosen})

    def _stated(self, key: str, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The fields of the opening that the sentence states, too."""
        names = Template(self.domain.phrases[key].texts[0]).names
        return {name: value for name, value in fields.items() if name in names}

    def _drawn(self, text: str, rng: Random) -> Any:
        return self.draws.draw(text)(Drawing(rng=rng, tables={}, known=self._known(None)))

    def _known(self, structure: Structure | None) -> dict[str, Any]:
        """What draws may read besides rows."""
        found: dict[str, Any] = {**self.domain.constants, **self.domain.lists}
        if structure is None:
            return found
        words = [said for said in structure.said if self.domain.phrases[said.phrase].word]
        return found | {
            **structure.fields,
            "n": structure.items,
            "scene": structure.scene,
            "rules": len(words),
            "said": structure.says,
            "trait": lambda name: name in structure.traits,
        }

    # --- steps --------------------------------------------------------------------------------------

    def steps(self, level: int) -> list[tuple[str, StepRule, str]]:
        """(operator, step, phrase) for each way up from ``level``."""
        found = []
        for step in self.domain.steps:
            if level in step.levels:
                found += [(f"add_{key}", step, key) for key in step.add] or [(step.name, step, "")]
        return found

    def stepped(
        self, structure: Structure, step: StepRule, phrase: str, rng: Random
    ) -> Structure | None:
        """``structure`` one step harder; None where the step doesn't apply."""
        if not constant(step.when, self.names(structure.fields, structure)):
            return None
        harder: Structure | None = structure
        if step.scene is not None:
            harder = self.begin(step.scene, rng, structure)
            harder = self._carried(structure, harder) if step.keep else harder
        if step.grow:
            harder = self._grown(structure, step, rng)
        if step.trait:
            known = step.trait in structure.traits
            harder = None if known else replace(structure, traits=structure.traits | {step.trait})
        if step.set:
            harder = self._set(structure, step.set)
        for key in (phrase, *step.together) if phrase else step.together:
            harder = None if harder is None else self._added(harder, key, rng)
        return harder

    def _carried(self, before: Structure, fresh: Structure) -> Structure:
        """``fresh`` with the traits, the added sentences and the fields of the one before it."""
        old, new = self.scene(before).asks, self.scene(fresh).asks
        fields = {
            name: value for s in before.said if s.phrase in old for name, value in s.fields.items()
        }
        asks = [
            s._replace(fields={name: fields.get(name, value) for name, value in s.fields.items()})
            for s in fresh.said
            if s.phrase in new
        ]
        added = [s for s in before.said if s.phrase not in old]
        return self._arranged(replace(fresh, traits=before.traits), asks, added)

    def _set(self, structure: Structure, values: Mapping[str, JsonValue]) -> Structure | None:
        """``structure`` with these fields of its sentences; None if no sentence changes."""
        said = tuple(
            s._replace(fields={**s.fields, **{n: v for n, v in values.items() if n in s.fields}})
            for s in structure.said
        )
        return None if said == structure.said else replace(structure, said=said)

    def _grown(self, structure: Structure, step: StepRule, rng: Random) -> Structure | None:
        if structure.items == self.scene(structure).most:
            return None
        grown = self._with_items(structure, structure.items + 1, rng)
        if step.once and not any(structure.says(key) for key in step.once):
            return self._added(grown, rng.choice(step.once), rng, free=True)
        fits = all(
            constant(self.domain.phrases[said.phrase].when, self.names(said.fields, grown))
            for said in grown.said
        )
        return grown if fits else None

    def _added(
        self, structure: Structure, phrase: str, rng: Random, *, free: bool = False
    ) -> Structure | None:
        """``structure`` with one more sentence; a ``free`` one is not counted as an added one."""
        rule, scene = self.domain.phrases[phrase], self.scene(structure)
        names = self.names(structure.fields, structure)
        limit = constant(scene.adds, names)
        once = {key for step in self.domain.steps for key in step.once}
        added = [s for s in structure.said if s.phrase not in scene.asks]
        if not free and sum(s.phrase not in once for s in added) >= limit:
            return None
        own = [s for s in added if s.phrase == phrase]
        if len(own) >= rule.most or not constant(rule.when, names):
            return None
        places = [a for a in _places(rule, structure.items) if not any(_at(s) == a for s in own)]
        if not places:
            return None
        asks = [s for s in structure.said if s.phrase in scene.asks]
        about = {**self._stated(phrase, structure.fields), **rng.choice(places)}
        return self._arranged(structure, asks, [*added, self._say(phrase, about, rng)])

    def other(self, structure: Structure, rng: Random) -> Structure:
        """Another question of the same kind: other fields of its goal, or of its opening."""
        scene, fields = self.scene(structure), dict(structure.fields)
        for name in scene.varies:
            fields[name] = self._chosen(scene.choose[name], rng)
        said = tuple(
            self._say(s.phrase, self._stated(s.phrase, fields), rng)
            if self.domain.phrases[s.phrase].kind == "goal"
            else s._replace(fields={**s.fields, **self._stated(s.phrase, fields)})
            for s in structure.said
        )
        return replace(structure, said=said, fields=fields)

    # --- what a structure states --------------------------------------------------------------------

    def problem(self, structure: Structure, params: Mapping[str, Scalar] | None = None) -> Problem:
        """The problem of a structure; all but ``params`` follows from the structure."""
        scene, lexicon = self.scene(structure), self.lexicon
        number = f"-{structure.items}" if scene.most > 1 else ""
        opening = f"{structure.scene}{number}{structure.wording}"
        stated = lexicon.opening_templates[opening].names
        fields: dict[str, JsonValue] = {n: v for n, v in structure.fields.items() if n in stated}
        fields["opening"] = opening
        frame = lexicon.frame(fields)
        clauses, effects, goal = [], [], None
        for said in structure.said:
            kind = self.domain.phrases[said.phrase].kind
            if kind == "goal":
                goal = lexicon.goal(said.key, **said.fields)
            elif kind == "effect":
                effects.append(lexicon.clause(said.key, **said.fields))
            else:
                clauses.append(lexicon.clause(said.key, **said.fields))
        shape = "B" if goal else "C" if effects else "E" if _scheduled(frame) else "A"
        return Problem(
            id="-".join([self.domain.id, structure.scene, *(s.phrase for s in structure.said)])[
                :200
            ],
            shape=shape,
            relations=self.tables_of(structure),
            access=self.access_of(structure),
            slots=frame.slots,
            clauses=tuple(clauses),
            goal=lexicon.reach_goal(fields, tuple(effects)) if effects else goal or ir.Satisfy(),
            layout=frame.layout,
            params=dict(params or {}),
            lexicon=lexicon.id,
            fields=fields,
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
        for said in structure.said:
            fields |= {} if "k" in said.fields or "a" in said.fields else said.fields
        names = self.names(fields, structure)
        tools = [tool for key in self.scene(structure).tools for tool in self._tools[key]]
        return tuple(self._access(tool, names) for tool in tools if constant(tool.when, names))

    def _access(self, tool: ToolSignature, names: RuleNames) -> Access:
        head = ast.parse(f"def {' '.join(tool.call.split())}: ...").body[0]
        assert isinstance(head, ast.FunctionDef)
        given = {a.arg: ast.unparse(a.annotation) if a.annotation else "" for a in head.args.args}
        gives = head.returns
        listed = gives.elts if isinstance(gives, ast.Tuple) else [gives] if gives else []
        columns = tuple(str(names.fields.get(c, c)) for c in map(ast.unparse, listed))
        projection = next((name for name, kind in given.items() if kind == "fields"), None)
        args = {name: kind for name, kind in given.items() if kind not in ("fields", "page")}
        relation = self.relations[tool.of]
        if tool.sets:
            return self._write(tool, head.name, args, names)
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
            tool=head.name, relation=tool.of, mode=mode, description=tool.text, args=args,
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
        inside = replace(names, args=types, fields=fields)
        sets: dict[str, dict[str, Any]] = {}
        for target, text in tool.sets.items():
            argument, _, column = target.partition(".")
            sets.setdefault(argument, {})[column] = expression(text, inside)
        return Access(
            tool=name,
            relation=tool.of,
            mode="write",
            description=tool.text,
            args=args,
            pre=tuple(
                ir.Precondition(expr=expression(need.holds, inside), code=need.code, text=need.text)
                for need in tool.needs
            ),
            effects=tuple(
                ir.Write(
                    kind="update",
                    relation=types[a].partition(":")[2],
                    key=ir.Arg(name=a),
                    set=cells,
                )
                for a, cells in sets.items()
            ),
        )

    # --- sentences ----------------------------------------------------------------------------------

    @cached_property
    def lexicon(self) -> Lexicon:
        """How the domain speaks; each sentence's builder reads its rule."""
        domain = self.domain
        phrases = {
            key + ("" if i == 0 else f"~{i + 1}"): Phrase(
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
            openings=dict(self._openings()),
            frame=self._frame,
            reach=self._reach,
            phrases=phrases,
            words=Words(nouns=domain.nouns, slots=domain.slots),
            units=domain.units,
            placeholders=domain.placeholders,
        )

    def _openings(self) -> Iterator[tuple[str, str]]:
        for name, scene in self.domain.scenes.items():
            for items in range(scene.least, scene.most + 1):
                texts = (scene.opening_one or scene.opening) if items == 1 else scene.opening
                number = f"-{items}" if scene.most > 1 else ""
                for i, text in enumerate(texts):
                    variant = "" if i == 0 else f"~{i + 1}"
                    yield f"{name}{number}{variant}", _repeated(text, items)

    def _build(self, key: str, fields: Fields) -> Any:
        """What the phrase ``key`` means with ``fields``."""
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
        """The names in a phrase's rule: ``allowed(row)`` is all that the rules it names say."""
        names, said = self.names(fields), fields.get("rules", [])
        if not isinstance(said, list):
            raise ConfigError(f"no list of rules: {said!r}")
        by_word = {rule.word: rule.allows for rule in self.domain.phrases.values() if rule.word}
        allows = [by_word[str(word)] for word in said]
        text = " and ".join(f"({condition})" for condition in allows) or "True"
        return replace(names, macros={**names.macros, "allowed": (("row",), text)})

    def _reach(self, fields: Fields, effects: tuple[Clause, ...]) -> ir.Reach:
        """The goal of a workflow: its write set is the union of what its effects may change."""
        name = str(fields["opening"]).partition("~")[0].partition("-")[0]
        scene, cells = self.domain.scenes[name], []
        for effect in effects:
            for may in self.domain.phrases[_VARIANT.sub("", effect.text_key)].may:
                rows = self._query(may.rows, self._phrase_names(effect.fields))
                cells.append(ir.WriteSet(relation=rows.relation, rows=rows, columns=may.columns))
        escalate = next((k for k in scene.asks if self.domain.phrases[k].kind == "escalate"), None)
        calls = {"effects": len(effects)}
        return ir.Reach(
            effects=effects,
            write_set=tuple(cells),
            escalate_when=None if escalate is None else self._build(escalate, {}),
            escalate_text_key=escalate,
            max_calls=constant(scene.calls, self.names({**fields, **calls})),
        )

    def _frame(self, fields: Fields) -> AnswerForm:
        """Slots and layout of a request, from the fields of its prompt."""
        head = str(fields["opening"]).partition("~")[0]
        name, _, items = head.partition("-")
        scene = self.domain.scenes[name]
        slots: list[Slot] = []
        entries: list[Layout] = []
        for k in range(1, int(items or 1) + 1):
            entry, found = self._item(scene, k, fields)
            slots += found
            entries.append(entry)
        layout: Layout = entries[0]
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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = [constant(ast.unparse(item), names) for item in node.args]
            if node.func.id == "interval":
                low, high, step, length = values
                domain = ir.Intervals(low=low, high=high, step=step, length=length)
                return Slot(name=name, kind="interval", domain=domain)
            if node.func.id == "whole":
                return Slot(
                    name=name, kind="value", domain=ir.IntRange(low=values[0], high=values[1])
                )
            if node.func.id == "choice":
                return Slot(name=name, kind="value", domain=ir.Choice(values=tuple(values)))
        found = read_rule(text, names)
        if not isinstance(found, Typed) or not isinstance(found.expr, ir.Query):
            raise ConfigError(
                f"slot {name!r}: {text!r} is no table, rows, interval, whole or choice"
            )
        return Slot(name=name, kind="entity", domain=found.expr.model_copy(update={"var": "x"}))

    def answers(self, problem: Problem, answer: Scalar) -> bool:
        """Whether a question with this answer is a fair one, as its scene says."""
        scene = self.domain.scenes[
            str(problem.fields["opening"]).partition("~")[0].partition("-")[0]
        ]
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


def _questions(structure: Structure, known: Mapping[str, Any]) -> dict[str, Callable[[str], Any]]:
    """What conditions may ask about a structure."""
    return {
        "said": structure.says,
        "trait": lambda name: name in structure.traits,
        "field": lambda name: known.get(name, ""),
    }


def _arguments(signature: str) -> tuple[str, ...]:
    inside = signature.partition("(")[2].rstrip(")")
    return tuple(name.strip() for name in inside.split(",") if name.strip())


def _may_be(value: JsonValue, values: Sequence[Any] | str) -> bool:
    """Whether a field of the scene before may stay."""
    return value is not None if isinstance(values, str) else value in values


def _wording(variants: int, rng: Random) -> str:
    chosen = rng.randrange(variants) if variants > 1 else 0
    return f"~{chosen + 1}" if chosen else ""


def _key(fields: Mapping[str, JsonValue]) -> tuple[int, ...]:
    """The items that a sentence is about."""
    return tuple(int(str(fields[name])) for name in ("k", "a", "b") if name in fields)


def _at(said: Said) -> dict[str, JsonValue]:
    return {name: said.fields[name] for name in ("k", "a", "b", "n") if name in said.fields}


def _places(rule: PhraseRule, items: int) -> Sequence[dict[str, JsonValue]]:
    """What a sentence can be about in a task of so many items."""
    numbers = range(1, items + 1)
    if rule.about == "one":
        return [{"k": k} for k in numbers]
    if rule.about == "pair":
        return [{"a": a, "b": b} for a, b in combinations(numbers, 2)]
    return [{"n": items} if rule.about == "all" else {}]


def _scheduled(frame: AnswerForm) -> bool:
    return any(slot.kind == "interval" for slot in frame.slots)


_EACH = re.compile(r"\{each: ((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})+)\}")


def _repeated(text: str, items: int) -> str:
    """An opening for so many items."""

    def each(match: re.Match[str]) -> str:
        parts = [match[1].replace("{k}", str(k)) for k in range(1, items + 1)]
        return parts[0] if items == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

    return _EACH.sub(each, text).replace("{n}", _COUNTS[items])
