"""A task's structure (scene, items, sentences), from its first draw through the steps that harden it.

The structure is read back from a problem, so a stored task needs nothing but its page to be re-seeded or made
harder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import ConfigError
from envgen.core.ir import Column, Problem, Relation
from envgen.pipelines.general.authoring.draws import Drawing
from envgen.pipelines.general.authoring.page import Domain, PhraseRule, Scene, StepRule
from envgen.pipelines.general.authoring.rows import Draws
from envgen.pipelines.general.authoring.rules import RuleNames, constant, parsed
from envgen.pipelines.general.words.lexicon import ESCALATION, suffix
from envgen.pipelines.general.words.wording import Fields, Template

MOST_ITEMS = 8
_KINDS = ("clause", "policy", "goal", "optimise", "effect")
_VARIANT = re.compile(r"~\d+$")


def unvaried(key: str) -> str:
    """The phrase of a sentence's key: without the number of its wording."""
    return _VARIANT.sub("", key)


def _rows_of(rule: PhraseRule) -> str | None:
    """The table in a rule's ``all(... for x in TABLE)``; None if it says nothing of that kind."""
    tree = parsed(rule.means)
    arguments = tree.args if isinstance(tree, ast.Call) else []
    if len(arguments) != 1 or not isinstance(every := arguments[0], ast.GeneratorExp):
        return None
    over = every.generators[0].iter
    return over.id if isinstance(over, ast.Name) else None


class PhraseUse(NamedTuple):
    """A sentence of a task: the phrase (with the number of its wording) and its fields."""

    key: str
    fields: dict[str, JsonValue]

    @property
    def phrase(self) -> str:
        """The phrase's name on the page."""
        return unvaried(self.key)


@dataclass(frozen=True)
class Structure:
    """All of a task but its rows and parameters."""

    scene: str
    items: int = 1
    wording: str = ""
    """The number of the scene's opening ("" or "~2"). Structures are made in first wordings, worded last."""
    fields: Mapping[str, JsonValue] = field(default_factory=dict)
    """The opening's and the items' fields."""
    sentences: tuple[PhraseUse, ...] = ()
    traits: frozenset[str] = frozenset()

    def says(self, phrase: str) -> bool:
        """Whether the task has a sentence of this phrase."""
        return any(sentence.phrase == phrase for sentence in self.sentences)


class Operator(NamedTuple):
    """One way to make a task harder by one level."""

    name: str
    step: StepRule
    phrase: str = ""
    """The phrase that it adds, of those that the step names."""


class ParamDomain(NamedTuple):
    """The source of a parameter's values."""

    kind: str
    """``table`` (any key), ``rows`` (keys of some), ``column`` (any value in it), ``draw`` or ``edge``."""
    text: str
    type: str = "int"
    table: str = ""
    column: str = ""
    options: Mapping[str, int] = {}
    """``least``: no bound is smaller. ``share``: of many answers so many percent keep the bound.
    ``step``: the bound is a multiple of it. ``best``: so many answers are as good as it, or better."""


_EDGES = {"least": (-(10**12), 10**12), "share": (0, 99), "step": (1, 10**9), "best": (1, 20)}


def _param_domain(text: str, relations: Mapping[str, Relation]) -> ParamDomain:
    node = parsed(text)
    if isinstance(node, ast.Name) and node.id in relations:
        return ParamDomain("table", text, f"entity:{node.id}", node.id)
    if isinstance(node, ast.GeneratorExp):
        return ParamDomain("rows", text, f"entity:{ast.unparse(node.generators[0].iter)}")
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) in relations:
        relation = relations[ast.unparse(node.value)]
        known = {column.name: column.type for column in relation.columns}
        if node.attr not in known:
            raise ConfigError(f"unknown column {text!r}", f"there are: {', '.join(known)}")
        return ParamDomain("column", text, known[node.attr], relation.name, node.attr)
    if text.partition("(")[0] != "edge":
        return ParamDomain("draw", text)
    given = node.keywords if isinstance(node, ast.Call) else []
    options = {str(one.arg): ast.literal_eval(one.value) for one in given}
    for name, value in options.items():
        low, high = _EDGES.get(name, (0, -1))
        if type(value) is not int or not low <= value <= high:
            hint = "share is 0..99, step at least 1, best 1..20"
            raise ConfigError(f"an edge has no {name}={value!r}", hint)
    if "best" in options and len(options) > 1:
        other = next(name for name in options if name != "best")
        reason = f"an edge with best={options['best']} can't have {other}={options[other]}, too"
        raise ConfigError(reason, "best answers meet the bound exactly: leave the other out")
    return ParamDomain("edge", text, options=options)


OPTIMUM = "optimum"
"""The parameter that holds the best value of an ``optimise`` phrase."""


class Structures:
    """The structures of one domain's tasks, and what the names in its rules stand for."""

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

    # --- names that rules may use ------------------------------------------------------------------

    @cached_property
    def params(self) -> dict[str, ParamDomain]:
        """The parameters of the page.

        Raises:
            ConfigError: naming one whose domain has no meaning.
        """
        found = {}
        texts = self.domain.params
        if any(rule.kind == "optimise" for rule in self.domain.phrases.values()):
            if OPTIMUM in texts:
                reason = f"parameter {OPTIMUM!r} is the best value there is, which envgen finds"
                raise ConfigError(reason, "give the parameter another name")
            texts = {**texts, OPTIMUM: "edge(best=1)"}
        for name, text in texts.items():
            try:
                found[name] = _param_domain(text, self.relations)
            except (ConfigError, ValueError) as error:
                hint = getattr(error, "hint", "") or "write a table, column, rows, draw or edge"
                raise ConfigError(f"parameter {name!r}: {error}", hint) from None
        return found

    def stem(self, name: str) -> str:
        """The parameter on the page behind ``name``: without its indices.

        Raises:
            ConfigError: if there is none.
        """
        found = name
        while found not in self.params:
            shorter = re.sub(r"_\d+$", "", found)
            if shorter == found:
                raise ConfigError(f"parameter {name!r} has no domain", "add it to [params]")
            found = shorter
        return found

    def names(self, fields: Fields, structure: Structure | None = None) -> RuleNames:
        """The meaning of the names in a rule, with these fields."""
        known: dict[str, Any] = {**self.domain.constants, **fields}
        questions: dict[str, Callable[[str], Any]] = {}
        if structure is not None:
            known |= {"n": structure.items, "scene": structure.scene}
            questions = {**_questions(structure), "field": lambda name: known.get(name, "")}
        return RuleNames(
            relations=self.relations,
            macros=self.macros,
            fields=known,
            slots=self._slot_types,
            params={name: domain.type for name, domain in self.params.items()},
            predicates=questions,
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
        rows, sizes = chosen_of(node)
        loop = rows.generators[0].iter if isinstance(rows, ast.GeneratorExp) else rows
        return f"{'set:' if sizes else ''}entity:{ast.unparse(loop)}"

    # --- structures ---------------------------------------------------------------------------------

    def scene(self, structure: Structure) -> Scene:
        """The scene of a structure."""
        return self.domain.scenes[structure.scene]

    def structure_of(self, problem: Problem) -> Structure:
        """The structure of a problem that this blueprint stated.

        Raises:
            ConfigError: if its opening is not one of this domain's.
        """
        scene, items, wording = opening_of(problem.fields)
        fields = {name: value for name, value in problem.fields.items() if name != "opening"}
        if scene not in self.domain.scenes:
            raise ConfigError(f"domain {self.domain.id!r} has no scene {scene!r}")
        goal = problem.goal
        questions = (goal,) if isinstance(goal, ir.Equals | ir.Optimise) else ()
        effects = goal.effects if isinstance(goal, ir.Reach) else ()
        rules = (*problem.clauses, *questions, *effects)
        sentences = tuple(PhraseUse(rule.text_key, dict(rule.fields)) for rule in rules)
        elsewhere = {name: value for s in sentences for name, value in s.fields.items()}
        for name in self.domain.scenes[scene].choose:  # what only other sentences state
            if name not in fields and name in elsewhere:
                fields[name] = elsewhere[name]
        return Structure(scene, items, wording, fields, sentences, frozenset(problem.traits))

    def begin(
        self, scene_name: str, rng: Random, before: Structure | None = None, items: int = 0
    ) -> Structure:
        """A structure in a scene, of the fewest items or ``items``; what it shares with ``before`` stays."""
        scene = self.domain.scenes[scene_name]
        kept = dict(before.fields) if before else {}
        fields = {
            name: kept[name] if _may_be(kept.get(name), values) else self._chosen(values, rng)
            for name, values in scene.choose.items()
        }
        empty = Structure(scene_name, fields=fields)
        return self._with_items(empty, items or scene.least, rng, before)

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
        sentences_before = (*structure.sentences, *(before.sentences if before else ()))
        earlier = {(s.phrase, _key(s.fields)): s for s in sentences_before}
        asks = []
        for key, about in self._asked(scene, items):
            sentence = earlier.get((key, _key(about)))
            if sentence is None:
                sentence = self._say(key, self._stated(key, fields), rng, earlier.values())
            asks.append(sentence._replace(fields={**sentence.fields, **about}))
        added = [
            s if "n" not in s.fields else s._replace(fields={**s.fields, "n": items})
            for s in structure.sentences
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

    def _arranged(
        self, structure: Structure, asks: list[PhraseUse], added: list[PhraseUse]
    ) -> Structure:
        """``structure`` with these sentences: rules, the goal, effects (which name the rules)."""
        order, rules = list(self.domain.phrases), self.domain.phrases
        added = sorted(added, key=lambda s: (order.index(s.phrase), _key(s.fields)))
        replaced = {rules[s.phrase].instead_of for s in added}
        sentences = [s for s in (*asks, *added) if s.phrase not in replaced]
        words = [word for s in sentences if (word := rules[s.phrase].word)]
        sentences = [
            s._replace(fields={**s.fields, "rules": self.named_by(s.phrase, words)})
            if self._names_rules(s.phrase)
            else s
            for s in sorted(sentences, key=lambda s: _KINDS.index(rules[s.phrase].kind))
        ]
        return replace(structure, sentences=tuple(sentences))

    def named_by(self, phrase: str, words: Sequence[str]) -> list[JsonValue]:
        """The rules of a task that ``{rules:list}`` names: those about rows of the same table.

        Of a rule, only those before it on the page.

        Raises:
            ConfigError: if a rule has none before it.
        """
        rules, table = self.domain.phrases, _rows_of(self.domain.phrases[phrase])
        beside = {rule.word for rule in rules.values() if table is None or _rows_of(rule) == table}
        words = [word for word in words if word in beside]
        if rules[phrase].kind != "policy":
            return list(words)
        before = list(self.domain.phrases)[: list(self.domain.phrases).index(phrase)]
        known = {self.domain.phrases[key].word for key in before}
        found: list[JsonValue] = [word for word in words if word in known]
        if not found:
            raise ConfigError(
                f"phrase {phrase!r} names the rules before it on the page, and the task has none",
                "put rules with a word before it, and let scenes ask one of them",
            )
        return found

    def _names_rules(self, phrase: str) -> bool:
        return "{rules:list}" in self.domain.phrases[phrase].texts[0]

    def _say(
        self, key: str, about: dict[str, JsonValue], rng: Random, earlier: Iterable[PhraseUse] = ()
    ) -> PhraseUse:
        """A sentence, in its first wording; fields that were drawn before may stay."""
        rule = self.domain.phrases[key]
        kept = {name: value for sentence in earlier for name, value in sentence.fields.items()}
        chosen = {
            name: kept[name]
            if kept.get(name) in values and rng.random() < 0.5
            else rng.choice(values)
            for name, values in rule.choose.items()
        }
        return PhraseUse(key, {**about, **rule.fields, **chosen})

    def _stated(self, key: str, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The fields of the opening that the sentence states, too."""
        names = Template(self.domain.phrases[key].texts[0]).names
        return {name: value for name, value in fields.items() if name in names}

    def _drawn(self, text: str, rng: Random) -> Any:
        return self.draws.draw(text)(Drawing(rng=rng, tables={}, known=self._known(None)))

    def _known(self, structure: Structure | None) -> dict[str, Any]:
        """The names that draws may read besides rows."""
        found: dict[str, Any] = {**self.domain.constants, **self.domain.lists}
        if structure is None:
            return found
        words = [s for s in structure.sentences if self.domain.phrases[s.phrase].word]
        numbers = {"n": structure.items, "scene": structure.scene, "rules": len(words)}
        return {**found, **structure.fields, **numbers, **_questions(structure)}

    # --- steps --------------------------------------------------------------------------------------

    def operators(self, level: int) -> list[Operator]:
        """The ways up from ``level``."""
        found: list[Operator] = []
        for step in (step for step in self.domain.steps if level in step.levels):
            found += [Operator(f"add_{key}", step, key) for key in step.add]
            found += [] if step.add else [Operator(step.name, step)]
        return found

    def stepped(self, structure: Structure, operator: Operator, rng: Random) -> Structure | None:
        """``structure`` one step harder; None where the step doesn't apply."""
        _, step, phrase = operator
        if not constant(step.when, self.names(structure.fields, structure)):
            return None
        harder: Structure | None = structure
        if step.scene is not None:
            harder = self.begin(step.scene, rng, structure, structure.items if step.keep else 0)
            harder = self._carried(structure, harder) if step.keep else harder
        if step.grow:
            harder = self._grown(structure, step, rng)
        if step.trait:
            if harder is None or step.trait in harder.traits:
                return None
            harder = replace(harder, traits=harder.traits | {step.trait})
        if step.set:
            harder = None if harder is None else self._set(harder, step.set)
        for key in (phrase, *step.together) if phrase else step.together:
            harder = None if harder is None else self._added(harder, key, rng)
        return harder

    def _carried(self, before: Structure, fresh: Structure) -> Structure:
        """``fresh`` with the traits, the added sentences and the fields of the one before it."""
        old, new = self.scene(before).asks, self.scene(fresh).asks
        fields = {
            name: value
            for s in before.sentences
            if s.phrase in old
            for name, value in s.fields.items()
        }
        asks = [
            s._replace(fields={name: fields.get(name, value) for name, value in s.fields.items()})
            for s in fresh.sentences
            if s.phrase in new
        ]
        added = [s for s in before.sentences if s.phrase not in old]
        return self._arranged(replace(fresh, traits=before.traits), asks, added)

    def _set(self, structure: Structure, values: Mapping[str, JsonValue]) -> Structure | None:
        """``structure`` with these fields of its sentences; None if no sentence changes."""
        sentences = tuple(
            s._replace(fields={**s.fields, **{n: v for n, v in values.items() if n in s.fields}})
            for s in structure.sentences
        )
        return None if sentences == structure.sentences else replace(structure, sentences=sentences)

    def _grown(self, structure: Structure, step: StepRule, rng: Random) -> Structure | None:
        if structure.items == self.scene(structure).most:
            return None
        grown = self._with_items(structure, structure.items + 1, rng)
        if step.once and not any(structure.says(key) for key in step.once):
            return self._added(grown, rng.choice(step.once), rng, free=True)
        fits = all(
            constant(self.domain.phrases[sentence.phrase].when, self.names(sentence.fields, grown))
            for sentence in grown.sentences
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
        added = [s for s in structure.sentences if s.phrase not in scene.asks]
        if not free and sum(s.phrase not in once for s in added) >= limit:
            return None
        own = [s for s in added if s.phrase == phrase]
        if len(own) >= rule.most or not constant(rule.when, names):
            return None
        places = [a for a in _places(rule, structure.items) if not any(_at(s) == a for s in own)]
        if not places:
            return None
        asks = [s for s in structure.sentences if s.phrase in scene.asks]
        about = {**self._stated(phrase, structure.fields), **rng.choice(places)}
        return self._arranged(structure, asks, [*added, self._say(phrase, about, rng)])

    def other(self, structure: Structure, rng: Random) -> Structure:
        """Another question of the same kind: other fields of its goal, or of its opening."""
        scene, fields = self.scene(structure), dict(structure.fields)
        for name in scene.varies:
            fields[name] = self._chosen(scene.choose[name], rng)
        sentences = tuple(
            self._say(s.phrase, self._stated(s.phrase, fields), rng)
            if self.domain.phrases[s.phrase].kind == "goal"
            else s._replace(fields={**s.fields, **self._stated(s.phrase, fields)})
            for s in structure.sentences
        )
        return replace(structure, sentences=sentences, fields=fields)

    def worded(self, structure: Structure, rng: Random, *, policy: bool) -> Structure:
        """``structure`` in words drawn anew; the policy's stay unless ``policy``."""
        scene, phrases = self.scene(structure), self.domain.phrases
        openings = scene.opening_one if structure.items == 1 else ()
        wording = suffix(rng.randrange(len(openings or scene.opening)))
        sentences = tuple(
            s._replace(key=self._way(s.phrase, rng))
            if policy or phrases[s.phrase].kind != "policy"
            else s
            for s in structure.sentences
        )
        fields = dict(structure.fields)
        escalate = [key for key in scene.asks if phrases[key].kind == "escalate"]
        if policy and escalate and "~" in (way := self._way(escalate[0], rng)):
            fields[ESCALATION] = way
        return replace(structure, wording=wording, sentences=sentences, fields=fields)

    def _way(self, phrase: str, rng: Random) -> str:
        return phrase + suffix(rng.randrange(len(self.domain.phrases[phrase].texts)))


def chosen_of(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """What a slot's text chooses from, and of ``some(ROWS, 1, 3)`` how many: none where it is one row."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "some" and node.args:
        return node.args[0], node.args[1:]
    return node, []


def opening_of(fields: Fields) -> tuple[str, int, str]:
    """The scene that a problem's opening names, the number of its items, and its wording ("" or "~2")."""
    head, tilde, variant = str(fields.get("opening", "")).partition("~")
    scene, _, items = head.partition("-")
    return scene, int(items or 1), tilde + variant


def _questions(structure: Structure) -> dict[str, Callable[[str], Any]]:
    """The questions that conditions and draws may ask about a structure."""
    return {"said": structure.says, "trait": lambda name: name in structure.traits}


def _arguments(signature: str) -> tuple[str, ...]:
    inside = signature.partition("(")[2].rstrip(")")
    return tuple(name.strip() for name in inside.split(",") if name.strip())


def _may_be(value: JsonValue, values: Sequence[Any] | str) -> bool:
    """Whether a field of the scene before may stay."""
    return value is not None if isinstance(values, str) else value in values


def _key(fields: Mapping[str, JsonValue]) -> tuple[int, ...]:
    """The items that a sentence is about."""
    return tuple(int(str(fields[name])) for name in ("k", "a", "b") if name in fields)


def _at(sentence: PhraseUse) -> dict[str, JsonValue]:
    return {name: sentence.fields[name] for name in ("k", "a", "b", "n") if name in sentence.fields}


def _places(rule: PhraseRule, items: int) -> Sequence[dict[str, JsonValue]]:
    """The items that a sentence can be about in a task of so many."""
    numbers = range(1, items + 1)
    if rule.about == "one":
        return [{"k": k} for k in numbers]
    if rule.about == "pair":
        return [{"a": a, "b": b} for a, b in combinations(numbers, 2)]
    return [{"n": items} if rule.about == "all" else {}]
