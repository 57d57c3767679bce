"""A model writes a domain page, and is told what the compiler, the gates and a reader say of it.

The model proposes: it writes one page of TOML in a sandbox of its own, with bash and a search tool over a
corpus. Nothing of the page is run. What it hands in is read, rehearsed at every level, proven by all gates,
and read by a reviewer who has not seen its work; what is wrong goes back to it, in few words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from envgen.core.errors import ConfigError, EnvgenError, SandboxError
from envgen.core.limits import Count, Label, Real, Text
from envgen.core.types import Record, Usage
from envgen.pipelines.author.taxonomy import Category
from envgen.pipelines.boundary import spared
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.domains import MAX_PAGE
from envgen.pipelines.general.rehearse import DEAR, Rehearsed, rehearse
from envgen.pipelines.search.roles import Library, library_tools
from envgen.policies.agent import AgentConfig, AgentTool, cut, run_agent
from envgen.policies.base import Policy
from envgen.sandboxes.base import Sandbox

PAGE = "page.toml"
COMMAND_S = 60.0
MOST_CHARS = 20_000
"""Of what is found wrong with a page, and of what ``check`` shows."""
_IN_PROMPT = 3
"""Sections of the manual that the prompt holds; the others are read with a tool."""

PROMPT = """\
Build an environment for agents of this category: {category}

You write one domain page in TOML. From it a compiler makes databases, tools, tasks of rising level, reference
solutions and verifiers, and gates prove them. Nothing in a page runs. The page has id = "{slug}" and
category = "{slug}", and tasks of the levels 1 to {levels} (max_level = {levels} or more).

Write it to /work/page.toml with `bash` (a sandbox with Python and no network; what is in /work stays).
`check` reads it and shows a task of each level, or says what is wrong. `search`, `open` and `find` read the
corpus {corpus}, `manual` the sections of the manual below that are left out here. When `check` is content,
and you have read its tasks as a person of the trade would, end with hand_in: all gates are run then, which
takes minutes, and a reader who has seen nothing but tasks, tools and rows says what is unclear, unnatural or
impossible. You may hand in {submissions} times.

- The world is that of the category: tables, columns, words, amounts and rules that people of the trade know.
  Two to five tables that refer to each other, 5 to 40 rows each.
- What makes the category hard should make the tasks hard: couple the parts, rank, sum, exclude, cap.
- Sentences are plain English, exact, and say all that the rules need; units and orders are explained.
- Names, amounts and facts that come from a document of the corpus go into `sources` with its id. Others you
  make up; they must be believable, and name no real person.
- What the page language can't say of the category goes into `cannot`, one sentence each.
- `check` and hand_in tell the first things that are wrong; section 9 of the manual says what they mean. Mend
  them in the file, don't write it anew.

The manual:

{manual}
"""

Stage = Literal["page", "proof", "review", "panel"]


class HandedSource(BaseModel):
    """Where data come from."""

    what: Annotated[str, Field(min_length=1, max_length=200)]
    document: Annotated[str, Field(min_length=1, max_length=64)]


class HandedPage(BaseModel):
    """Hand in /work/page.toml: it is proven by all gates, and read by a reviewer."""

    model_config = ConfigDict(extra="ignore", title="hand_in")

    cannot: list[Annotated[str, Field(max_length=300)]] = Field(
        default_factory=list, max_length=20, description="what the page language can't say"
    )
    sources: list[HandedSource] = Field(default_factory=list, max_length=200)


class Round(Record):
    """A page that was handed in, and what was wrong with it."""

    stage: Stage
    """What refused it, or looked at it last: the compiler, the gates, the reviewer, or the panel."""
    finding: Annotated[str, Field(max_length=MOST_CHARS)] = ""
    """Empty: nothing."""
    rate: Real | None = None
    """Of the panel."""
    missed: Real = 0.0
    """How far that is from the band that is wanted."""


class PageRun(Record):
    """What came of an author's conversation."""

    page: Text | None
    """The page that gates and reviewer accepted, in TOML; of several the one that the panel solves most
    nearly as often as is wanted."""
    rate: Real | None = None
    """How often the panel solves its tasks."""
    ended: Label
    turns: Count
    rounds: tuple[Round, ...]
    cannot: tuple[Label, ...] = ()
    sources: tuple[tuple[Label, Label], ...] = ()
    """What, and the document that it comes from."""
    usage: Usage = Usage()


Judge = Callable[[Domain], Round]
"""What gates, a reviewer or a panel find wrong with a page that rehearses well."""


def write_page(
    policy: Policy,
    category: Category,
    levels: int,
    place: Sandbox,
    library: Library,
    judge: Judge,
    config: AgentConfig,
    *,
    name: str,
) -> PageRun:
    """Let a model write a page until compiler, gates and reviewer are content, or its budget ends.

    Args:
        policy: the author.
        category: what the environment is about.
        levels: the page must have tasks of the levels 1 to this one.
        place: where its bash runs; the page is read from there.
        library: what it may search.
        judge: gates and reviewer.
        config: turns, submissions and tokens.
        name: of the conversation.

    Raises:
        PolicyError: if the policy gives no reply.
    """
    rounds: list[Round] = []
    good: list[tuple[Round, str, HandedPage]] = []

    def accept(handed: HandedPage) -> str:
        try:
            text = read(place)
            domain, _ = checked(text, category.id, levels)
            for one in handed.sources:
                if library.page(one.document) is None:
                    raise ConfigError(f"sources: there is no document {one.document!r}")
        except EnvgenError as error:
            rounds.append(Round(stage="page", finding=said(error)))
            return said(error)
        found = judge(domain)
        rounds.append(found)
        if not found.finding or found.stage == "panel":
            good.append((found, text, handed))
        return found.finding

    run = run_agent(
        policy,
        prompt(category, levels, library.title, config.submissions),
        tools(place, library, category.id, levels),
        HandedPage,
        accept,
        name=name,
        family="general",
        config=config,
    )
    best = min(reversed(good), key=lambda one: one[0].missed, default=None)
    last = HandedPage() if best is None else best[2]
    return PageRun(
        page=None if best is None else best[1],
        rate=None if best is None else best[0].rate,
        ended=run.ended,
        turns=run.turns,
        rounds=tuple(rounds),
        cannot=tuple(last.cannot),
        sources=tuple((one.what, one.document) for one in last.sources),
        usage=run.usage,
    )


def prompt(category: Category, levels: int, corpus: str, submissions: int) -> str:
    """What an author is told."""
    lines = [category.name, category.about, category.state, category.hard]
    return PROMPT.format(
        category="\n".join(line for line in lines if line),
        slug=category.id,
        levels=levels,
        corpus=corpus,
        submissions=submissions,
        manual="\n\n".join(manual()[: _IN_PROMPT + 1]),
    )


@cache
def manual() -> tuple[str, ...]:
    """The sections of ``docs/domains.md``; the first is what stands before section 1."""
    text = files(__package__).joinpath("data", "domains.md").read_text(encoding="utf-8")
    return tuple(re.split(r"\n(?=## \d+\. )", text))


def tools(place: Sandbox, library: Library, slug: str, levels: int) -> list[AgentTool]:
    """What an author may call."""

    def check(_: dict[str, object]) -> str:
        try:
            domain, tasks = checked(read(place), slug, levels)
        except EnvgenError as error:
            return cut(said(error), MOST_CHARS)
        shown = (
            f"level {one.level}:\n{one.policy}\n{one.prompt}".replace("\n\n", "\n") for one in tasks
        )
        costs = [f"level {one.level}: {one.cost}." for one in tasks if one.cost]
        dear = [" ".join([*costs, DEAR])] if costs else []
        head = f"{domain.id!r} is read at {len(tasks)} levels."
        return cut("\n\n".join([head, *dear, *shown]), MOST_CHARS)

    def section(arguments: dict[str, object]) -> str:
        number = arguments["section"]
        assert isinstance(number, int)
        return manual()[number]

    sections = len(manual()) - 1
    return [
        bash(place),
        AgentTool("check", _CHECK, NOTHING, check, whole=True),
        AgentTool(
            "manual", "Read a section of the manual.", _section(sections), section, whole=True
        ),
        *library_tools(library),
    ]


def bash(place: Sandbox) -> AgentTool:
    """Runs commands in a sandbox."""

    def run(arguments: dict[str, object]) -> str:
        try:
            done = place.exec(["bash", "-c", str(arguments["command"])], timeout_s=COMMAND_S)
        except SandboxError as error:
            return f"the sandbox failed: {error}"
        ended = "timed out" if done.timed_out else f"exit {done.exit_code}"
        return f"{done.text}{done.stderr.decode(errors='replace')}\n[{ended}]"

    return AgentTool("bash", "Run a bash command in the sandbox.", _COMMAND, run)


def read(place: Sandbox) -> str:
    """The page in a sandbox.

    Raises:
        ConfigError: if there is none, or it is no text.
    """
    try:
        raw = place.read_file(PAGE, MAX_PAGE + 1)
        if len(raw) > MAX_PAGE:
            raise ConfigError(f"/work/{PAGE} is longer than {MAX_PAGE} bytes", "no page is")
        return raw.decode("utf-8")
    except SandboxError as error:
        raise ConfigError(f"/work/{PAGE} can't be read: {error}", "write it with bash") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"/work/{PAGE} is no UTF-8: {error}", "write it anew") from error


def checked(text: str, slug: str, levels: int) -> tuple[Domain, Sequence[Rehearsed]]:
    """A page and a task of each of its levels.

    Raises:
        ConfigError: naming what is wrong, with what to do.
    """
    domain = read_page(text, "")
    for field in ("id", "category"):
        if getattr(domain, field) != slug:
            raise ConfigError(f"its {field} is {getattr(domain, field)!r}", f'write "{slug}"')
    if domain.max_level < levels:
        raise ConfigError(f"max_level is {domain.max_level}", f"{levels} is the least")
    try:
        return domain, tuple(rehearse(domain))
    except EnvgenError:
        raise
    except Exception as error:  # the boundary: a page that envgen can't take is told, and mended
        raise ConfigError(
            spared(slug, error), "say that part of the page in another way"
        ) from error


def said(error: EnvgenError) -> str:
    """An error with what to do about it."""
    return f"{error}\nhint: {error.hint}" if error.hint else str(error)


_CHECK = "Read /work/page.toml and show a task of each level."
_COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "string", "maxLength": 200_000}},
    "required": ["command"],
    "additionalProperties": False,
}
NOTHING: dict[str, object] = {"type": "object", "properties": {}}


def _section(most: int) -> dict[str, object]:
    number = {"type": "integer", "minimum": 1, "maximum": most}
    return {"type": "object", "properties": {"section": number}, "required": ["section"]}
