"""What builder, checker and solver are told, and what they hand in."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from envgen.core.limits import Json, Label

RuleId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]

BUILDER = """\
Build an environment for agents of this category: {category}

Write these files in /work with `bash` (a sandbox with Python and SQLite, no network; what is in /work
stays):
- tools.py: the functions that agents call, standard library only. Each is def name(db, *, argument: type,
  ...), db a sqlite3.Connection, types str, int, float, bool, list[...] or Literal[...], with a docstring
  that tells agents what it does and returns, and an Args: section. What an agent may do wrong is raise
  ToolError("code", "message"), the code first; `class ToolError(Exception)` is defined in the file. Names
  with a leading underscore are no tools.
- database.sql: CREATE TABLE and INSERT INTO; 2 to 6 tables that refer to each other, 5 to 60 rows each.
  Checks and solutions are tried on other rows, too: columns shuffled, values equal or a step off, all that
  primary and foreign keys, NOT NULL, UNIQUE and CHECK allow. Declare what must hold.
- prompt.md: the task. policy.md: rules that stand above it (may be empty).
- submit.json: the JSON Schema of the answer, as narrow as can be (additionalProperties false, enum and format
  rather than pattern, which is not checked). It is written at the end of the prompt.

- The task is hard for what makes the category hard: facts must be gathered by many calls, and rules tie
  them together. No tool answers it, and none filters by its rules. It has few right answers, best a
  single one.
- Whoever reads prompt, policy and tools knows all that is needed: every rule is one sentence of prompt.md
  or policy.md, word for word; ties are settled by a rule.
- `check` reads the files, runs the tools on random calls, and says what is wrong.
- End with hand_in: the rules, each with its sentence copied, and tests of the tools: for each tool a call
  that returns what you say, for each error code a call that gives it. Tests run on the initial database,
  one by one; most small faults that are planted in tools.py must make one of them fail. A reader who sees
  nothing but prompt, tools and rows then says what is unclear, unnatural or impossible.
You may hand in {submissions} times. Data are made up and believable, and name no real person."""

CHECKER = """\
Agents are given this task over a database. Write the checks that tell whether what they did is right.

{shown}

The rules, each with its name: {rules}

The initial database is /work/database.sqlite; `bash` runs in a sandbox with Python and SQLite. hand_in
takes
- checks: for each rule the source of one Python function, def NAME(answer, before, after), with the
  rule's name. It returns True if the rule is kept. `answer` is the submitted value, which fits the
  schema; `before` and `after` are read-only sqlite3 connections to the database at the start and at the
  end. A check works out by itself what is right, from the rows: it never compares with an answer that you
  know, and holds for other rows of the same tables, too. Imports go inside functions, of {imports}
  alone. It keeps no state, and takes well under a second. It never raises: neither on an answer that fits the
  schema, nor on rows that the tables' keys, NOT NULL and CHECK allow (a value that is missing, a name that no
  row has, a circle). Where the rules name no right answer there, it returns False.
- shared: the source of functions that several checks call, such as those that read rows; each stands here
  once, and no check repeats it.
  Checks and shared are the least code that decides the rules: small faults are planted in them (a
  comparison turned, a bound moved, a condition or statement dropped), and most must change a verdict on an
  answer that fits the schema. So nothing looks again at what the schema, a key of a table or another
  check settles, no code is left unused, and two rules that say one thing share one function.
- wrong: 5 to 30 answers that fit the schema and are wrong, with the rule that each breaks: most nearly
  right, wrong by one step, at the bound, at a tie, and for each rule one that keeps all others. They are
  tried with nothing changed in the database.
Be strict and fair: every answer that keeps the rules as they are written is right, whatever its form or
order, unless a rule says so. You may hand in {submissions} times."""

SOLVER = """\
Solve this task with a program, as an agent could: it calls the tools, and nothing else.

{shown}

You may call the tools yourself, on a copy of the database. Then end with hand_in: `solution`, the source
of def solve() in a small Python: the tools are plain names in it; def, return, assignment, if, for,
while, break, continue, comprehensions, lambda, arithmetic, the methods {methods}, the builtins {builtins},
and date_add days_between minutes weekday combinations permutations product. No imports, classes, try, with,
annotations, names that begin with _, and no constants but small whole numbers and texts that stand in the
task, the tools' texts or the schema (a date that is written out there as YYYY-MM-DD). A tool's error comes
back as {{"error": code, "message": text}}. solve() returns the answer. It is run on the real database and on
others like it (values shuffled, equal, one more or one less): where no answer is right, it returns None. If
what the task needs can be found out by no call, hand in `missing` alone: a tool may then be added.
You may hand in {submissions} times."""

AUGMENT = """\
You look after the tools of an environment for agents. Somebody who is to solve its task by the tools alone
says what they do not tell: {missing}

{shown}

The environment's files are in /work (`bash`, a sandbox with Python and SQLite). If that is so, change
tools.py such that agents can find it out by calls: a new tool, or more in what one returns. No tool may
answer the task or filter by its rules, and no other file may change. `check` reads the files and runs the
tools. End with hand_in: the rules as they are, and tests of what is new: for each new tool a call that
returns what you say, for each new error code a call that gives it. The earlier tests run, too; where what a
tool returns has grown, hand that test in anew. You may hand in {submissions} times.
The rules: {rules}"""

HARDEN = """\


An earlier round of this environment is in /work, proven and read. {finding}
Change the files accordingly, and hand in all rules and tests anew."""

AMEND = """\
You wrote the checks of the rules of this task. {finding}

{shown}

The rules, your checks, and what they share: {checks}

Look whether your checks say what the rules say. If one is wrong, hand in all checks and shared, mended; if
they are right, hand them in unchanged. What was refused among your wrong answers must still be refused."""


class HandedRule(BaseModel):
    """A rule, and the sentence that states it."""

    id: RuleId
    text: Annotated[str, Field(min_length=5, max_length=1_000)]


class HandedTest(BaseModel):
    """A call of a tool, and what it gives: either `returns` or `error`."""

    tool: Annotated[str, Field(max_length=100)]
    arguments: dict[Label, Json] = Field(default_factory=dict)
    returns: Json = None
    error: Annotated[str, Field(max_length=100)] = ""


class HandedWorld(BaseModel):
    """Hand in the files in /work, with the rules and the tests of the tools."""

    model_config = ConfigDict(extra="ignore", title="hand_in")

    rules: list[HandedRule] = Field(min_length=1, max_length=20)
    tests: list[HandedTest] = Field(min_length=1, max_length=200)


class HandedCheck(BaseModel):
    """The check of a rule."""

    rule: RuleId
    code: Annotated[str, Field(max_length=20_000)]


class HandedWrong(BaseModel):
    """An answer that is wrong, and the rule that it breaks."""

    answer: Json
    breaks: RuleId


class HandedChecks(BaseModel):
    """Hand in the checks, and answers that are wrong."""

    model_config = ConfigDict(extra="ignore", title="hand_in")

    checks: list[HandedCheck] = Field(min_length=1, max_length=20)
    shared: Annotated[str, Field(max_length=50_000)] = ""
    wrong: list[HandedWrong] = Field(default_factory=list, max_length=30)


class HandedSolution(BaseModel):
    """Hand in the solution, or what no tool tells though the task needs it."""

    model_config = ConfigDict(extra="ignore", title="hand_in")

    solution: Annotated[str, Field(max_length=50_000)] = ""
    missing: Annotated[str, Field(max_length=1_000)] = ""
