"""From a Problem to the words an agent gets, and back.

Each clause, effect, goal, write rule, tie-break and unit is one line that one template wrote, so the
text can be read back; ``prompt`` reads back what it wrote and refuses to return a text that says
anything else than the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.ir import (
    Clause,
    Equals,
    Get,
    Optimise,
    Problem,
    Reach,
    Relation,
    Scalar,
)  # fmt: skip
from envgen.pipelines.general.semantics.rewrite import hidden, nodes_of
from envgen.pipelines.general.words.answer_format import answer_format, format_notes
from envgen.pipelines.general.words.frames import HEADINGS, POLICY
from envgen.pipelines.general.words.lexicon import ESCALATION, Lexicon, PromptContent
from envgen.pipelines.general.words.wording import Fields, Template

Spans = dict[str, list[tuple[int, int]]]
Line = tuple[str, str, Fields]
"""The rule that a line states (as ``Rendered.spans`` names it), its sentence in the lexicon, the fields."""


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


def prompt(p: Problem, lexicon: Lexicon) -> Rendered:
    """Write ``p`` in the words of ``lexicon``.

    Raises:
        PipelineError: if the lexicon can't state the problem exactly, e.g. a clause differs from what
            its sentence means, or a parameter is never stated.
    """
    last = {"policy": 2, "prompt": 0}
    clauses = tuple(sorted(p.clauses, key=lambda c: 1 if c.gives_way else last[c.source]))
    params = {name: value for name, value in p.params.items() if name not in hidden(p)}
    body = PromptContent(p.slots, p.layout, clauses, p.goal, params, dict(p.fields))
    rendered = _render(body, p.relations, lexicon)
    try:
        read = parse(rendered.text, p.relations, lexicon, policy_text=rendered.policy_text)
    except PipelineError as error:
        raise PipelineError(f"problem {p.id!r}: its prompt can't be read back: {error}") from error
    for name, theirs in vars(read).items():
        own = getattr(body, name)
        if theirs != own and name == "clauses":
            ours = {clause.id: clause for clause in clauses}
            wrong = [c.id for c in read.clauses if ours.get(c.id) != c] or sorted(ours)
            raise PipelineError(f"problem {p.id!r}: the sentences of {wrong} mean something else")
        if theirs != own:
            raise PipelineError(
                f"problem {p.id!r}: its prompt states other {name}: {theirs!r}, not {own!r}"
            )
    return rendered


# --- writing -------------------------------------------------------------------------------------


@dataclass
class _Page:
    """A text that grows line by line, and where its sentences stand."""

    body: PromptContent
    lexicon: Lexicon
    text: str = ""
    spans: Spans = field(default_factory=dict)

    def sentence(self, line: Line, bullet: str = "") -> None:
        """Add what the lexicon says for ``line``; its span leaves the bullet out."""
        span, name, fields = line
        known = self.lexicon.opening_templates if span == "opening" else self.lexicon.sentences
        try:
            template = self.lexicon.named(name, known)
            text = template.render(fields, self.body.params, self.lexicon.words)
        except ConfigError as error:
            raise PipelineError(f"lexicon {self.lexicon.id!r}: {error}") from error
        self.text += bullet
        self.spans.setdefault(span, []).append((len(self.text), len(self.text) + len(text)))
        self.text += f"{text}\n"

    def listed(self, heading: str, lines: Sequence[Line]) -> None:
        """Add ``lines`` as a list under ``heading``; nothing if there are none."""
        if lines:
            self.text += f"\n{heading}\n"
        for line in lines:
            self.sentence(line, "- ")


def _render(body: PromptContent, relations: Sequence[Relation], lexicon: Lexicon) -> Rendered:
    page, policy = _Page(body, lexicon), _Page(body, lexicon)
    goal, fields = body.goal, body.fields
    page.sentence(("opening", str(fields.get("opening", "default")), fields))
    if isinstance(goal, Equals | Optimise):
        page.text += "\n"
        page.sentence(("goal", goal.text_key, goal.fields))
    lines = {source: [_line(c) for c in body.clauses if c.source == source] for source in _SOURCES}
    if isinstance(goal, Reach):
        page.listed(lexicon.framed("effects", fields), [_line(effect) for effect in goal.effects])
        if goal.escalate_text_key:
            lines["policy"].append(("escalate", goal.escalate_text_key, fields))
    page.listed(lexicon.framed("rules", fields), lines["prompt"])
    if any(clause.gives_way for clause in body.clauses):
        page.text += f"\n{lexicon.framed('way', fields)}\n"
    page.listed(lexicon.framed("notes", fields), list(_notes(body, relations, lexicon)))
    policy.listed(POLICY, lines["policy"])
    start = len(page.text) + 1
    shape = answer_format(body.layout, body.slots, relations, lexicon.placeholders, lexicon.words)
    notes = format_notes(body.layout, body.slots, lexicon.words)
    submit = lexicon.framed("submit", fields)
    page.text = "\n".join([f"{page.text}\n{submit}", "```json", shape, "```", *notes])
    page.spans["layout"] = [(start, len(page.text))]
    shift = 1  # the policy starts with its heading: the empty line before it goes
    moved = {name: [(a - shift, b - shift) for a, b in at] for name, at in policy.spans.items()}
    return Rendered(page.text, policy.text.strip("\n"), page.spans, moved)


_SOURCES = ("prompt", "policy")


def _line(clause: Clause) -> Line:
    return clause.id, clause.text_key, clause.fields


def _notes(body: PromptContent, relations: Sequence[Relation], lexicon: Lexicon) -> Iterator[Line]:
    """Units of the cells that rules read, that all else must stay, and how ties are broken."""
    units = {(r.name, c.name): c.unit for r in relations for c in r.columns if c.unit}
    read = {(n.relation, n.column) for n in nodes_of(body.clauses, body.goal) if isinstance(n, Get)}
    for unit in dict.fromkeys(unit for cell, unit in units.items() if cell in read):
        yield f"unit:{unit}", lexicon.way(f"unit {unit}", body.fields), {}
    goal = body.goal
    if isinstance(goal, Reach):
        yield "write_set", lexicon.way("write rule", body.fields), body.fields
    if isinstance(goal, Equals) and goal.query.agg == "none" and goal.query.limit is not None:
        key = next(r.key for r in relations if r.name == goal.query.relation)
        name = lexicon.way("tie-break", body.fields)
        yield "tie_break", name, {"key": f"{goal.query.relation}.{key}"}


# --- reading -------------------------------------------------------------------------------------


def parse(
    text: str, relations: Sequence[Relation], lexicon: Lexicon, *, policy_text: str = ""
) -> PromptContent:
    """Read a prompt (and its environment's policy) back into what it asks for.

    Raises:
        PipelineError: if ``text`` is not exactly what ``prompt`` would write for what it says.
    """
    params: dict[str, Scalar] = {}
    opening, _, rest = text.partition("\n")
    name, fields = _read(opening, lexicon.opening_templates, lexicon, params)
    fields |= {} if name == "default" else {"opening": name}
    submit = lexicon.framed("submit", fields)
    lines = rest.partition(f"\n{submit}\n")[0].split("\n")
    headings = {"", POLICY, *(lexicon.framed(name, fields) for name in (*HEADINGS, "way"))}
    sentences: list[tuple[str, Fields]] = []
    for line in (*lines, *policy_text.split("\n")):
        if line in headings:
            continue
        name, own = _read(line.removeprefix("- "), lexicon.sentences, lexicon, params)
        phrase = lexicon.phrases.get(name)
        if phrase is not None and phrase.kind == "escalate":
            fields |= own | ({ESCALATION: name} if "~" in name else {})
        elif phrase is not None:
            sentences.append((name, own))
    try:
        found = lexicon.request(fields, sentences, params)
    except (KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"the text of {fields!r} can't be read: {error}") from error
    # This also refuses what stands in the wrong place: a rule of the policy in the prompt, a second goal.
    again = _render(found, relations, lexicon)
    if (again.text, again.policy_text) != (text, policy_text):
        raise PipelineError(f"lexicon {lexicon.id!r}: the text is not in its standard form")
    return found


def _read(
    line: str, among: Mapping[str, Template], lexicon: Lexicon, params: dict[str, Scalar]
) -> tuple[str, dict[str, JsonValue]]:
    """The name of the sentence that ``line`` is, and its fields; its parameters go to ``params``."""
    for name, template in among.items():
        reading = template.read(line, lexicon.words)
        if reading is None:
            continue
        for param, value in reading.params.items():
            if params.setdefault(param, value) != value:
                raise PipelineError(f"the text gives two values for {param!r}")
        return name, reading.fields
    raise PipelineError(f"no sentence of lexicon {lexicon.id!r} reads {line!r}")
