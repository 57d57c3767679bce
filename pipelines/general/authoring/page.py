"""A domain as one value: tables, tools, sentences and levels. It is data; reading it runs nothing.

People write a page as TOML (``domains/*.toml``), datasets store its JSON. Rules, draws and conditions are
short texts in the expression grammar of Python, which ``rules`` and ``rows`` translate and never execute.
Who wrote a page decides nothing here: every leaf states a pattern or a length.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from envgen.core.canonical import sha256
from envgen.core.errors import ConfigError
from envgen.core.limits import Id
from envgen.core.types import Record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORD = r"^[a-z][a-z0-9_]{0,31}$"
RESERVED = frozenset(
    """check check_columns check_date find truth tool_error db given row rows total pages facts taken allowed
    solve verify submit_result sqlite3 json datetime param scene n k self tools""".split()
)
"""Names that generated programs, or the texts of a page, use for themselves."""


def free_name(name: str, what: str) -> str:
    """``name``, which may stand in generated code and hides nothing there.

    Raises:
        ConfigError: if Python, SQLite, a generated program or the texts of pages have a meaning for it.
    """
    python = keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name)
    if python or name in RESERVED or name.startswith(("sqlite_", "__")):
        raise ConfigError(f"{what} is called {name!r}, which is reserved", "give it another name")
    return name


def plain(text: str) -> str:
    """Refuse what a reader can't see: control, format (bidi) and private characters, line breaks."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp"):
            raise ValueError(f"holds the invisible character U+{ord(character):04X}")
    return text


def _no_keyword(name: str) -> str:
    if keyword.iskeyword(name) or name.startswith("sqlite_"):
        raise ValueError(f"{name!r} is reserved; choose another name")
    return name


def _words(value: Any) -> Any:
    """A text of words as a list: split at ``|`` if it has any, else at spaces."""
    if not isinstance(value, str):
        return value
    if "|" not in value:
        return value.split()
    parts = [part.strip() for part in value.split("|") if part.strip()]
    for part in parts:
        if "\n" in part:
            one, other = part.split("\n")[:2]
            raise ValueError(
                f"{one[:40]!r} and {other[:40]!r} are one entry on two lines: put a | between, or join them"
            )
    return [" ".join(part.split()) for part in parts]


def _texts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Ident = Annotated[str, StringConstraints(pattern=_WORD), AfterValidator(_no_keyword)]
"""A name of a table, column, tool, parameter, slot, phrase, scene or list."""
Code = Annotated[
    str,
    StringConstraints(min_length=1, max_length=800),
    AfterValidator(plain),
    BeforeValidator(lambda value: " ".join(value.split()) if isinstance(value, str) else value),
]
"""An expression in Python's grammar; it may be written on several lines."""
Sentence = Annotated[
    str, StringConstraints(min_length=1, max_length=700, strip_whitespace=True), AfterValidator(plain)
]  # fmt: skip
"""One line of a prompt, with typed holes."""
SlotNoun = Annotated[
    str, StringConstraints(pattern=r"^[^{}]+(\{k\}[^{}]*)?$", max_length=80), AfterValidator(plain)
]
"""A name for a slot, with ``{k}`` for the number of its item."""
Value = Annotated[
    str, StringConstraints(pattern=r"^[\w][\w ,.'&()/+-]{0,47}$"), AfterValidator(plain)
]
"""An entry of a list: a name or a word, no sentence."""
Words = Annotated[tuple[Ident, ...], BeforeValidator(_words)]
"""RuleNames, written as one text."""
Sentences = Annotated[tuple[Sentence, ...], BeforeValidator(_texts), Field(max_length=8)]
Cell = Annotated[str, StringConstraints(pattern=r"^[a-z]\w{0,31}\.[a-z]\w{0,31}$")]
"""``table.column``."""
Reference = Annotated[str, StringConstraints(pattern=r"^[a-z]\w{0,31}(\.[a-z]\w{0,31}){1,3}$")]
"""``argument.column``, or ``argument.reference.column``."""
SlotPattern = Annotated[str, StringConstraints(pattern=r"^[a-z_]+(\{k\})?$")]
Choice = bool | Annotated[int, Field(ge=-(10**12), le=10**12)] | Value
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")]
Frame = Literal["rules", "effects", "notes", "write rule", "tie-break", "submit", "way"]
"""A sentence that is the same in all domains (``words/frames.py``)."""
Level = Annotated[int, Field(ge=1, le=10)]

_COLUMN = re.compile(
    r"(?P<type>[a-z]+(?::\w+)?)(?P<nullable>\?)?(?: (?P<unit>\w+))? = (?P<draw>.+)"
)


ColumnName = Annotated[
    str, StringConstraints(pattern=r"^_?[a-z][a-z0-9_]{0,31}$"), AfterValidator(_no_keyword)
]


class ColumnDraw(Record):
    """A column and the distribution of its values; written ``TYPE[?] [UNIT] = DRAW``.

    A name that starts with ``_`` is a hidden draw that later columns of the row may use.
    """

    type: Annotated[
        str,
        StringConstraints(pattern=r"^(int|str|bool|date|minutes|decimal:[1-4]|entity:[a-z]\w{0,31})$"),
    ]  # fmt: skip
    nullable: bool = False
    unit: Unit | None = None
    draw: Code

    @model_validator(mode="before")
    @classmethod
    def _from_line(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _COLUMN.fullmatch(" ".join(value.split()))
        if found is None:
            raise ValueError(
                "a column is written 'TYPE = DRAW', 'TYPE UNIT = DRAW' or 'TYPE? = DRAW'"
            )
        return {**found.groupdict(), "nullable": found["nullable"] is not None}


class TableDraw(Record):
    """A table: its columns, and how many rows it has, in all or for each combination of ``per``."""

    key: Ident
    rows: Code = "1"
    per: Annotated[dict[Ident, Code], Field(max_length=3)] = {}
    """Name -> a table, or a list: draws may use the name for the row or item in hand."""
    columns: Annotated[dict[ColumnName, ColumnDraw], Field(min_length=1, max_length=24)]


class Requirement(Record):
    """A precondition of a write tool; a call that breaks it gets the error ``code``."""

    holds: Code
    code: Ident
    text: Sentence


class ToolSignature(Record):
    """A tool, by its signature.

    ``call`` is ``name(argument: column, ...) -> (column, ...)``. An argument typed ``fields`` chooses the
    columns that come back, ``page`` a page of them; of a write tool arguments are typed ``table.column``
    (which is the table's key), ``int``, ``str`` or ``date``.
    """

    call: Code
    of: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_]{0,31}|\{each\})$")]
    text: Sentence
    each: dict[Ident, Ident] = {}
    """Table -> what one row of it is called: one tool for each, ``{each}`` and ``{one}`` filled in."""
    when: Code = "True"
    """The tasks that have it: a condition on their structure."""
    needs: tuple[Requirement, ...] = ()
    sets: dict[Reference, Code] = {}
    """``argument.column``, or ``argument.reference.column`` -> its new value, computed before anything
    changes."""


class MayChange(Record):
    """Cells that an effect may change: ``columns`` of the rows that ``rows`` gives."""

    rows: Code
    columns: Words


class PhraseRule(Record):
    """A sentence and what it means.

    ``about`` says how it repeats: once for each item (field ``k``), for a pair of items (``a``, ``b``),
    about all of them (``n``), or without any.
    """

    texts: Sentences = ()
    """Ways to say it, those of the lexicon file last."""
    kind: Literal["clause", "goal", "optimise", "policy", "effect", "escalate"] = "clause"
    about: Literal["one", "pair", "all", "task"] = "task"
    means: Code
    guard: Code | None = None
    when: Code = "True"
    """The structures to which a step may add it."""
    most: Annotated[int, Field(ge=1, le=8)] = 1
    """The most times that a task may have it."""
    choose: dict[Ident, tuple[Choice, ...]] = {}
    """Further fields of the sentence, drawn when it is added."""
    fields: dict[Ident, Choice] = {}
    """Further fields that have these values until a step sets them."""
    family: Ident | None = None
    instead_of: Ident | None = None
    """A phrase of the scene that gives way to this one."""
    may: tuple[MayChange, ...] = ()
    """The cells that an effect may change."""
    rows: tuple[Annotated[int, Field(ge=1, le=50)], Annotated[int, Field(ge=1, le=50)]] = (1, 8)
    """The fewest and the most rows that an effect is about."""
    word: Value | None = None
    """The name of a policy rule in the field ``rules`` of effects."""
    allows: Code | None = None
    """The condition on which a policy rule with a word lets an effect have ``row``. Its ``means`` says
    ``allows(x)``; an effect says ``allowed(x)`` for all the rules that it names."""


class Scene(Record):
    """A kind of task: what is asked for, over which tables, with which tools."""

    opening: Sentences = ()
    """``{each: ...}`` repeats its text for each item, joined by commas and "and"."""
    opening_one: Sentences = ()
    """The opening where there is a single item."""
    tables: Words
    tools: Words
    columns: dict[Ident, Words] = {}
    """Table -> the columns kept; all where it isn't named."""
    rows: dict[Ident, Code] = {}
    """Table -> its number of rows, where it isn't the table's own."""
    draws: dict[Cell, Code] = {}
    """``table.column`` -> its draw, where it isn't the table's own."""
    slots: dict[Ident, Code]
    """The values to find: a table, rows of one, ``interval(...)``, ``whole(low, high)``, ``choice(...)``."""
    each: Ident | None = None
    """The name of the items that slots repeat for."""
    least: Annotated[int, Field(ge=1, le=8)] = 1
    most: Annotated[int, Field(ge=1, le=8)] = 1
    """The smallest and the largest number of items."""
    items: dict[Ident, Code] = {}
    """Fields of an item, drawn when it is added."""
    choose: dict[Ident, tuple[Choice, ...] | Code] = {}
    """Fields of the opening, chosen or drawn when the scene begins. Where a table is named, one of
    these may stand."""
    varies: Words = ()
    """The fields that a sibling draws anew."""
    asks: Words = ()
    """The phrases that every task of the scene has."""
    adds: Code = "99"
    """The most phrases that steps may add."""
    as_list: bool = False
    """Whether the answer is a list of items rather than an object."""
    facts: dict[Ident, Code] = {}
    """Constants of each item in the answer."""
    calls: Code = "2 * effects"
    """The most write calls of a random walk through a workflow."""
    twins: bool = False
    """Whether a bound on a sum at the k-th best gives way if no answer keeps all rules, as in some tasks."""
    answer: Code | None = None
    """A condition on the ``answer`` of a question that makes it fair."""


class StepRule(Record):
    """One way to a task one level up."""

    name: Ident
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=9)]
    scene: Ident | None = None
    """The scene that it steps to; None stays."""
    grow: bool = False
    """Adds an item."""
    add: Words = ()
    """Adds one of these phrases."""
    once: Words = ()
    """Adds one of these phrases unless the task has one already."""
    together: Words = ()
    """Adds all of these phrases."""
    keep: bool = False
    """Whether what earlier steps added stays in the new scene."""
    set: dict[Ident, Choice] = {}
    """Sets these fields of sentences."""
    trait: Ident | None = None
    """Switches this trait on."""
    when: Code = "True"


class Domain(Record):
    """Everything there is to say about a domain."""

    id: Id
    category: Id
    title: Sentence
    description: Sentence
    licence: Sentence = "CC0-1.0"
    sources: tuple[Sentence, ...] = ()
    start: Ident
    """The scene of level 1."""
    max_level: Level = 10
    shortcuts: Literal["bounded", "any"] = "bounded"
    """Whether the gate ``difficulty`` bounds what shortcuts pass, level by level."""
    constants: dict[Ident, Choice] = {}
    lists: dict[
        Ident, Annotated[tuple[Value, ...], BeforeValidator(_words), Field(max_length=400)]
    ] = {}
    macros: dict[
        Annotated[str, StringConstraints(pattern=r"^[a-z]\w{0,31}\([a-z0-9_, ]{0,80}\)$")], Code
    ] = {}
    """``name(argument, ...)`` -> the expression it stands for."""
    tables: Annotated[dict[Ident, TableDraw], Field(min_length=1, max_length=12)]
    tools: dict[Ident, ToolSignature]
    params: dict[Ident, Code] = {}
    """Parameter -> where its values come from."""
    phrases: Annotated[dict[Ident, PhraseRule], Field(max_length=64)]
    scenes: Annotated[dict[Ident, Scene], Field(min_length=1, max_length=16)]
    steps: Annotated[tuple[StepRule, ...], Field(max_length=64)] = ()
    nouns: dict[
        Annotated[str, StringConstraints(pattern=r"^[a-z]\w{0,31}(\.[a-z]\w{0,31})?$")], Sentence
    ] = {}
    slots: dict[SlotPattern, SlotNoun] = {}
    """Slot -> how sentences and notes name it."""
    units: dict[Unit, Sentence] = {}
    """Unit of a column -> a sentence about it."""
    more_units: dict[Unit, Sentences] = {}
    """Unit -> further sentences about it."""
    frames: dict[Frame, Sentences] = {}
    """Sentence that is the same in all domains -> further ways to say it."""
    placeholders: dict[SlotPattern, Value] = {}

    @cached_property
    def key(self) -> str:
        """RuleNames this page: problems and datasets refer to it by that, and another page has another."""
        return f"{self.id}@{sha256(self.text)[:16]}"

    @cached_property
    def text(self) -> str:
        """The page as JSON: in the page's own order, which says what is drawn and stated first."""
        return self.model_dump_json(indent=1, exclude_defaults=True)

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, value: Any) -> Any:
        """A scene written ``like`` another has that one's parts wherever it says nothing."""
        scenes = value.get("scenes") if isinstance(value, dict) else None
        if not isinstance(scenes, dict) or len(scenes) > 16:
            return value
        found: dict[str, Any] = {}
        for name, scene in scenes.items():
            like = scene.get("like") if isinstance(scene, dict) else None
            if like is not None:
                if not isinstance(like, str) or like not in found:
                    raise ValueError(f"scene {name!r} is like {like!r}, which is not before it")
                scene = {k: v for k, v in {**found[like], **scene}.items() if k != "like"}
            found[name] = scene
        return {**value, "scenes": found}


_MEND = {
    "extra_forbidden": "leave it out: pages have no such part",
    "missing": "add it",
    "string_pattern_mismatch": "use plain letters, digits and underscores, as other names do",
    "string_too_long": "write less",
    "too_long": "list fewer",
}


def page_error(error: ValidationError, page: Any) -> ConfigError:
    """Name what is wrong with ``page``, a mapping or its JSON: its domain, the field, and what to do."""
    every = error.errors()
    first = next((one for one in every if one["type"] == "extra_forbidden"), every[0])
    place = ".".join(str(part) for part in first["loc"]) or "the page"
    found = re.search(r'"id": ?"([a-z0-9_-]{1,64})"', page) if isinstance(page, str) else None
    name = found[1] if found else page.get("id") if isinstance(page, dict) else None
    if first["type"] == "extra_forbidden" and (near := _meant(first["loc"], every)):
        message = f"{place}: unknown part, did you mean {near!r}?"
        return ConfigError(f"domain {name!r:.80}, {message}", f"write {near} = ...")
    hint = _MEND.get(first["type"], "write it as the pages of the package do")
    return ConfigError(f"domain {name!r:.80}, {place}: {first['msg']}", hint)


def _meant(at: tuple[int | str, ...], every: list[ErrorDetails]) -> str | None:
    """The part that an unknown one at ``at`` is near to: one that is missing there, or one of the page."""
    lacking = [
        str(one["loc"][-1])
        for one in every
        if one["type"] == "missing" and one["loc"][:-1] == at[:-1]
    ]
    known = [*lacking, *(Domain.model_fields if len(at) == 1 else ())]
    return next(iter(get_close_matches(str(at[-1]), known, 1)), None)
