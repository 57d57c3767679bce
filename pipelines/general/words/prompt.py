"""From a Problem to the words an agent gets, and back.

Each clause, effect, goal, write rule, tie-break and unit is one line that one template wrote, so the
text can be read back; ``prompt`` reads back what it wrote and refuses to return a text that says
anything else than the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.ir import (
    Clause,
    Equals,
    Get,
    Goal,
    Layout,
    Node,
    Optimise,
    Problem,
    Reach,
    Relation,
    Satisfy,
    Scalar,
    Slot,
)  # fmt: skip
from envgen.pipelines.general.words.answer_format import answer_format, format_notes
from envgen.pipelines.general.words.lexicon import Lexicon
from envgen.pipelines.general.words.wording import Fields, Reading, Template, compiled

Spans = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Rendered:
    """A prompt and where each rule stands in it.

    ``spans``: clause or effect id, or "opening", "goal", "write_set", "escalate", "tie_break",
    "unit:<unit>", "layout" -> character ranges of ``text``; ``policy_spans``: the same in ``policy_text``.
    """

    text: str
    policy_text: str
    spans: Spans
    policy_spans: Spans


@dataclass(frozen=True)
class Parsed:
    """What a prompt says; equal to the Problem's parts of the same names."""

    slots: tuple[Slot, ...]
    layout: Layout
    clauses: tuple[Clause, ...]
    goal: Goal
    params: dict[str, Scalar]
    fields: dict[str, JsonValue]


@dataclass
class _Page:
    text: str = ""
    spans: Spans = field(default_factory=dict)

    def add(self, text: str, span: str | None = None, *, bullet: bool = False) -> None:
        """A line; ``span`` names it (the bullet excluded)."""
        self.text += "- " if bullet else ""
        if span is not None:
            self.spans.setdefault(span, []).append((len(self.text), len(self.text) + len(text)))
        self.text += text + "\n"


def prompt(p: Problem, lexicon: Lexicon) -> Rendered:
    """Write ``p`` in the words of ``lexicon``.

    Raises:
        PipelineError: if the lexicon can't state the problem exactly, e.g. a clause differs from what
            its sentence means, or a parameter is never stated.
    """
    said = Parsed(p.slots, p.layout, p.clauses, p.goal, dict(p.params), dict(p.fields))
    rendered = _render(said, p.relations, lexicon)
    try:
        read = parse(rendered.text, p.relations, lexicon, policy_text=rendered.policy_text)
    except PipelineError as error:
        raise PipelineError(f"problem {p.id!r}: its prompt can't be read back: {error}") from error
    _compare(p, said, read)
    return rendered


def parse(
    text: str, relations: Sequence[Relation], lexicon: Lexicon, *, policy_text: str = ""
) -> Parsed:
    """Read a prompt (and its environment's policy) back into what it asks for.

    Raises:
        PipelineError: if ``text`` is not exactly what ``prompt`` would write for what it says.
    """
    reader = _Reader(lexicon)
    lines = [
        line.removeprefix("- ") for line in text.partition(f"\n{lexicon.submit}\n")[0].split("\n")
    ]
    reader.opening(lines[0])
    headings = {lexicon.rules_heading, lexicon.effects_heading, lexicon.notes_heading, ""}
    for line in lines[1:]:
        if line not in headings:
            reader.sentence(line, "prompt")
    for line in policy_text.split("\n"):
        if line not in (lexicon.policy_heading, ""):
            reader.sentence(line.removeprefix("- "), "policy")
    parsed = reader.finish()
    again = _render(parsed, relations, lexicon)
    if (again.text, again.policy_text) != (text, policy_text):
        raise PipelineError(f"lexicon {lexicon.id!r}: the text is not in its standard form")
    return parsed


class _Reader:
    """Collects what the lines of a prompt say."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.words = lexicon.words
        self.fields: dict[str, JsonValue] = {}
        self.params: dict[str, Scalar] = {}
        self.clauses: list[Clause] = []
        self.effects: list[Clause] = []
        self.goal: Goal = Satisfy()
        self.workflow = False
        self.fixed = {
            "write": compiled(lexicon.write_rule),
            "tie": compiled(lexicon.tie_break),
            "tie set": compiled(lexicon.tie_break_set),
        } | {f"unit {unit}": compiled(text) for unit, text in lexicon.units.items()}

    def opening(self, line: str) -> None:
        """The first line."""
        for name, template in self.lexicon.opening_templates.items():
            reading = template.read(line, self.words)
            if reading is not None:
                self._merge(reading)
                self.fields |= reading.fields | ({} if name == "default" else {"opening": name})
                return
        raise PipelineError(f"no opening of lexicon {self.lexicon.id!r} reads {line!r}")

    def sentence(self, line: str, source: str) -> None:
        """Any other line."""
        for name, template in self.fixed.items():
            reading = template.read(line, self.words)
            if reading is not None:
                self._merge(reading)
                if name == "write":
                    self.workflow = True
                    self.fields |= reading.fields
                return
        for key, phrase in self.lexicon.phrases.items():
            reading = phrase.sentence.read(line, self.words)
            if reading is None:
                continue
            self._merge(reading)
            try:
                self._take(key, phrase.kind, reading.fields, source)
            except (KeyError, TypeError, ValueError) as error:
                raise PipelineError(f"{line!r} makes no sense: {error}") from error
            return
        raise PipelineError(f"no sentence of lexicon {self.lexicon.id!r} reads {line!r}")

    def _take(self, key: str, kind: str, fields: dict[str, JsonValue], source: str) -> None:
        if kind == "goal":
            self.goal = self.lexicon.goal(key, **fields)
        elif kind == "escalate":
            self.fields |= fields
        elif kind == "effect":
            self.effects.append(self.lexicon.clause(key, **fields))
        else:
            clause = self.lexicon.clause(key, **fields)
            if clause.source != source:
                raise PipelineError(f"clause {clause.id!r} belongs into the {clause.source}")
            self.clauses.append(clause)

    def _merge(self, reading: Reading) -> None:
        for name, value in reading.params.items():
            if self.params.setdefault(name, value) != value:
                raise PipelineError(f"the text gives two values for {name!r}")

    def finish(self) -> Parsed:
        """Everything read, put together."""
        effects = tuple(self.effects)
        try:
            frame = self.lexicon.frame(self.fields)
            if self.workflow or effects:
                self.goal = self.lexicon.reach_goal(self.fields, effects)
        except (KeyError, TypeError, ValueError) as error:
            raise PipelineError(f"the opening {self.fields!r} makes no sense: {error}") from error
        return Parsed(
            frame.slots, frame.layout, tuple(self.clauses), self.goal, self.params, self.fields
        )


def _render(said: Parsed, relations: Sequence[Relation], lexicon: Lexicon) -> Rendered:
    page, policy = _Page(), _Page()
    name = str(said.fields.get("opening", "default"))
    if name not in lexicon.openings:
        raise PipelineError(f"lexicon {lexicon.id!r} has no opening {name!r}")

    def words(template: Template, fields: Fields) -> str:
        try:
            return template.render(fields, said.params, lexicon.words)
        except ConfigError as error:
            raise PipelineError(f"lexicon {lexicon.id!r}: {error}") from error

    page.add(words(lexicon.opening_templates[name], said.fields), "opening")
    goal = said.goal
    if isinstance(goal, Equals | Optimise):
        page.add("")
        page.add(words(lexicon.phrase(goal.text_key).sentence, goal.fields), "goal")
    effects = goal.effects if isinstance(goal, Reach) else ()
    rules = [clause for clause in said.clauses if clause.source == "prompt"]
    for heading, clauses in ((lexicon.effects_heading, effects), (lexicon.rules_heading, rules)):
        if clauses:
            page.add("")
            page.add(heading)
        for clause in clauses:
            sentence = lexicon.phrase(clause.text_key).sentence
            page.add(words(sentence, clause.fields), clause.id, bullet=True)
    notes = list(_notes(said, relations, lexicon))
    if notes:
        page.add("")
        page.add(lexicon.notes_heading)
    for span, template, fields in notes:
        page.add(words(template, fields), span, bullet=True)
    _render_policy(policy, said, lexicon)
    _render_format(page, said, relations, lexicon)
    return Rendered(page.text.rstrip("\n"), policy.text.rstrip("\n"), page.spans, policy.spans)


def _render_policy(page: _Page, said: Parsed, lexicon: Lexicon) -> None:
    clauses = [clause for clause in said.clauses if clause.source == "policy"]
    escalate = said.goal.escalate_text_key if isinstance(said.goal, Reach) else None
    if clauses or escalate:
        page.add(lexicon.policy_heading)
    for clause in clauses:
        sentence = lexicon.phrase(clause.text_key).sentence
        page.add(sentence.render(clause.fields, said.params, lexicon.words), clause.id, bullet=True)
    if escalate:
        sentence = lexicon.phrase(escalate).sentence
        page.add(sentence.render(said.fields, said.params, lexicon.words), "escalate", bullet=True)


def _render_format(
    page: _Page, said: Parsed, relations: Sequence[Relation], lexicon: Lexicon
) -> None:
    page.add("")
    start = len(page.text)
    page.add(lexicon.submit)
    page.add("```json")
    shape = answer_format(said.layout, said.slots, relations, lexicon.placeholders, lexicon.words)
    page.add(f"{shape}\n```")
    for note in format_notes(said.layout, said.slots, lexicon.words):
        page.add(note)
    page.spans["layout"] = [(start, len(page.text.rstrip("\n")))]


def _notes(
    said: Parsed, relations: Sequence[Relation], lexicon: Lexicon
) -> Iterator[tuple[str, Template, Fields]]:
    for unit in _units(said, relations):
        if unit not in lexicon.units:
            raise PipelineError(f"lexicon {lexicon.id!r} has no sentence for the unit {unit!r}")
        yield f"unit:{unit}", compiled(lexicon.units[unit]), {}
    goal = said.goal
    if isinstance(goal, Reach):
        yield "write_set", compiled(lexicon.write_rule), said.fields
    if isinstance(goal, Equals):
        kinds = {slot.name: slot.kind for slot in said.slots}
        if kinds[goal.slot] == "set":
            yield "tie_break", compiled(lexicon.tie_break_set), {}
        if goal.query.agg == "none" and goal.query.limit is not None:
            key = next(r.key for r in relations if r.name == goal.query.relation)
            yield "tie_break", compiled(lexicon.tie_break), {"key": f"{goal.query.relation}.{key}"}


def _units(said: Parsed, relations: Sequence[Relation]) -> list[str]:
    units = {(r.name, c.name): c.unit for r in relations for c in r.columns if c.unit}
    touched = {
        (node.relation, node.column)
        for root in _roots(said)
        for node in root.walk()
        if isinstance(node, Get)
    }
    return list(dict.fromkeys(unit for cell, unit in units.items() if cell in touched))


def _roots(said: Parsed) -> Iterable[Node]:
    goal = said.goal
    clauses = (*said.clauses, *(goal.effects if isinstance(goal, Reach) else ()))
    for clause in clauses:
        yield clause.expr
        if clause.guard is not None:
            yield clause.guard
    if isinstance(goal, Equals):
        yield goal.query
    elif isinstance(goal, Optimise):
        yield goal.expr
    elif isinstance(goal, Reach) and goal.escalate_when is not None:
        yield goal.escalate_when


def _compare(p: Problem, said: Parsed, read: Parsed) -> None:
    order = {"prompt": 0, "policy": 1}
    clauses = tuple(sorted(said.clauses, key=lambda clause: order[clause.source]))
    goal = said.goal
    if isinstance(goal, Optimise) and isinstance(read.goal, Optimise):  # the certificate is secret
        goal = goal.model_copy(update={"bound": read.goal.bound, "proof": read.goal.proof})
    if clauses != read.clauses:
        ours = {c.id: c for c in clauses}
        wrong = [c.id for c in read.clauses if ours.get(c.id) != c] or sorted(ours)
        raise PipelineError(f"problem {p.id!r}: the sentences of {wrong} mean something else")
    pairs: Mapping[str, tuple[object, object]] = {
        "slots": (said.slots, read.slots),
        "layout": (said.layout, read.layout),
        "goal": (goal, read.goal),
        "params": (said.params, read.params),
        "fields": (said.fields, read.fields),
    }
    for name, (ours_, theirs) in pairs.items():
        if ours_ != theirs:
            raise PipelineError(
                f"problem {p.id!r}: its prompt states other {name}: {theirs!r}, not {ours_!r}"
            )
