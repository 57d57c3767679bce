"""The records that every room shares: what an environment, a task and a trajectory are.

All are frozen pydantic models; on disk they are canonical JSON (``envgen.core.canonical``).
Long texts and binaries stand beside them as files, named by ``FileRef``.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)

from envgen.core.limits import (
    Count,
    Json,
    Label,
    Language,
    Money,
    Real,
    RelativePath,
    Seconds,
    Text,
    Whole,
)
from envgen.core.limits import Id as Id
from envgen.core.limits import Name as Name
from envgen.core.limits import Sha256 as Sha256

Schema = dict[Label, Json]
"""A JSON Schema. Leaves may carry the public hints ``x-source`` and ``x-where`` (``docs/ir.md``)."""

FamilyName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""Of a kind of tasks; ``envgen.core.families`` finds what there is to know of it."""
_NAMES_WITHIN = ("properties", "patternProperties", "$defs", "definitions")
_VALUES = ("enum", "const", "default", "examples")


def published(schema: Schema) -> Schema:
    """A JSON Schema without ``x-`` keywords, at which some models' servers refuse a whole request."""
    found: Schema = {}
    for key, part in schema.items():
        if key in _VALUES:
            found[key] = part
        elif key in _NAMES_WITHIN and isinstance(part, dict):
            found[key] = {name: _published(one) for name, one in part.items()}
        elif not key.startswith("x-"):
            found[key] = _published(part)
    return found


def _published(part: Any) -> Any:
    if isinstance(part, list):
        return [_published(one) for one in part]
    return published(part) if isinstance(part, dict) else part


Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Style = Literal["reasoning", "agent", "thinking-agent"]
"""What a model was asked to do in an episode: to think, to call tools, or to call tools while it thinks."""


class Record(BaseModel):
    """Base of all records: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Record):
    """One call of a tool as the model wrote it."""

    id: Text
    name: Text
    arguments: dict[Text, Json] | None = None
    """None when the model's text was no JSON object; then ``arguments_text`` holds it."""
    arguments_text: Text | None = None


def written_call(call_id: str, name: str, arguments: object, text: str | None = None) -> ToolCall:
    """A call as a model wrote it; arguments that are no JSON object (NaN is none) stay text.

    Args:
        call_id: of the call.
        name: of the tool.
        arguments: what was read; None where nothing could be.
        text: what was written.
    """
    try:
        return ToolCall.model_validate({"id": call_id, "name": name, "arguments": arguments})
    except ValidationError:
        arguments_text = json.dumps(arguments) if text is None else text
        return ToolCall(id=call_id, name=name, arguments_text=arguments_text)


class Message(Record):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text = ""
    reasoning: Text | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None


class FileRef(Record):
    """A file beside a record: its path below the record's folder and its hash."""

    path: RelativePath
    sha256: Sha256


ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class ToolErrorSpec(Record):
    """A documented error of a tool."""

    code: Label
    when: Text


class ToolSpec(Record):
    """A tool as an agent sees it."""

    name: ToolName
    description: Text
    parameters: Schema
    returns: Schema = Field(default_factory=dict)
    mutates: bool = False
    errors: tuple[ToolErrorSpec, ...] = ()

    def openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's ``tools`` parameter, without hints that are not JSON Schema."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": published(self.parameters),
        }
        return {"type": "function", "function": function}


SUBMIT_TOOL = "submit_result"
"""The tool that ends an episode; it takes ``answer_text``, a JSON text."""


class EnvironmentSpec(Record):
    """A database and the tools over it."""

    id: Id
    category: Id
    title: Label
    description: Text = ""
    language: Language = "en"
    tools: tuple[ToolSpec, ...]
    """Without the submit tool, which the environment adds when ``submit_tool`` is set."""
    submit_tool: ToolName | None = SUBMIT_TOOL
    policy_text: Text = ""
    database: FileRef | None = None
    tools_source: FileRef | None = None
    blueprint: FileRef | None = None
    author: Label = "procedural"
    seed: Whole = 0
    parents: tuple[Id, ...] = ()
    licence: Label = "CC0-1.0"
    sources: tuple[Label, ...] = ()
    """Where rows come from, with each source's licence."""
    version: Count = 1


class Limits(Record):
    """The limits of an episode."""

    turns: int = Field(default=32, ge=1)
    tokens: int = Field(default=32_768, ge=1)
    seconds: float = Field(default=600.0, gt=0)


class Density(Record):
    """The share of a task's answer space that its verifier accepts."""

    value: Real
    low: Real
    high: Real
    method: Label
    space: Real
    """Number of structurally valid answers (1 walk = 1 answer for workflows)."""
    n: Count = 0
    """Samples drawn; 0 for an exact count."""


class LineageStep(Record):
    """One hardening step."""

    operator: Label
    problem_id: Label
    density: Density | None = None


class Shortcuts(Record):
    """Share of re-seeds that players pass which are too simple for a hard task.

    ``envgen.pipelines.general.difficulty`` says what each of them does.
    """

    n: Count
    """Re-seeds played."""
    first_row: Real
    greedy: Real
    first_fit: Real
    recipe: Real
    local_search: dict[Label, Real]
    """Share passed by the number of answers evaluated, of the best of five starts."""
    at_bound: Real | None = None
    exact_sum: Real | None = None
    constant: Real | None = None
    """Of all re-seeds, those to be escalated as well."""
    met_bounds: Real | None = None
    """Share of bounds on single rows that some row meets exactly."""

    @property
    def best(self) -> float:
        """The most that one of them passes, local search and constant claims apart."""
        return max(
            self.first_row, self.greedy, self.first_fit, self.recipe,
            self.at_bound or 0.0, self.exact_sum or 0.0,
        )  # fmt: skip

    @model_serializer(mode="wrap")
    def _stored(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit what was not measured: datasets of before say no more than they did."""
        stored: dict[str, object] = handler(self)
        return {name: value for name, value in stored.items() if value is not None}


class Difficulty(Record):
    """How hard a task is, as far as can be said without a model. None: not measured."""

    level: int = Field(ge=1, le=10)
    lineage: tuple[LineageStep, ...] = ()
    density: Density | None = None
    gold_calls: Count = 0
    """Tool calls of the gold run."""
    distinct_tools: Count = 0
    """Of the gold run."""
    calls_upper_bound: Count | None = None
    """The fewest distinct tool calls of any solver found: no more than that are needed."""
    facts_upper_bound: Count | None = None
    """Cells of the database such that gold is right whatever the others hold: no more than that count."""
    branch_depth: Count | None = None
    """The most conditions, one inside another, that decide what a rule asks for."""
    gold_tokens: Count | None = None
    """Estimated, of gold's episode: prompt, policy, tools, calls and replies, without reasoning."""
    shortcuts: Shortcuts | None = None

    @model_validator(mode="before")
    @classmethod
    def _format_2(cls, content: object) -> object:
        """Until format 2 of datasets, gold's calls were called ``minimum_calls``."""
        if not isinstance(content, dict) or "minimum_calls" not in content:
            return content
        if "gold_calls" in content:
            raise ValueError("minimum_calls is the former name of gold_calls: give one of them")
        return {("gold_calls" if k == "minimum_calls" else k): v for k, v in content.items()}


class GateStatus(StrEnum):
    """The four outcomes of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"
    NOT_RUN = "not_run"


class GateResult(Record):
    """The result of one gate."""

    gate: Label
    status: GateStatus
    n: Count = 0
    """Trials made; a gate with n = 0 never passes."""
    figure: Real | None = None
    reason: Text = ""
    inherited_from: Label | None = None
    """Task id of the parent on which the gate was run (variants)."""
    details: dict[Label, Json] = Field(default_factory=dict)


Evidence = tuple[GateResult, ...]


class PublicRule(Record):
    """A rule of the task as the prompt states it, in parts a simple policy can read.

    ``compare``: every slot of ``slots`` (an entity) has ``column`` ``cmp`` ``value``.
    ``different``: the values of ``slots`` are pairwise different.
    ``other``: only ``text`` says it.
    """

    text: Text
    kind: Literal["compare", "different", "other"] = "other"
    slots: tuple[Label, ...] = ()
    """JSON pointers into the submission, e.g. ``/0/hotel``."""
    column: Label | None = None
    """A field that tools return for the entity, or None for the value itself."""
    cmp: Literal["=", "!=", "<", "<=", ">", ">=", "in"] | None = None
    value: Json = None


class PassAt(Record):
    """Measured pass rates of one policy on one task."""

    policy: Label
    n: Count
    c: Count
    seed: Whole


class PublicTask(Record):
    """The only form of a task that policies, agents and public exports get."""

    id: Id
    environment_id: Id
    family: FamilyName
    prompt: Text
    policy_text: Text = ""
    submit_schema: Schema | None = None
    rules: tuple[PublicRule, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    limits: Limits = Limits()
    split: Label = "train"
    level: Whole | None = None


class TaskSpec(Record):
    """A task: prompt, what may be submitted, its solution, its verifier, its proof."""

    id: Id
    environment_id: Id
    family: FamilyName = "general"
    prompt: Text
    submit_schema: Schema | None = None
    rules: tuple[PublicRule, ...] = ()
    solution: FileRef | None = None
    verifier: FileRef | None = None
    constraints: FileRef | None = None
    gold: FileRef | None = None
    probes: FileRef | None = None
    limits: Limits = Limits()
    split: Split = "train"
    variant_of: Id | None = None
    difficulty: Difficulty
    evidence: Evidence = ()
    pass_at: tuple[PassAt, ...] = ()

    def public(self, environment: EnvironmentSpec) -> PublicTask:
        """Select the parts of this task that an agent may know."""
        return PublicTask(
            id=self.id,
            environment_id=self.environment_id,
            family=self.family,
            prompt=self.prompt,
            policy_text=environment.policy_text,
            submit_schema=self.submit_schema,
            rules=self.rules,
            tools=environment.tools,
            limits=self.limits,
            split=self.split,
            level=self.difficulty.level,
        )


class CallRecord(Record):
    """One tool call as the host logged it."""

    name: Text
    arguments: dict[Text, Json]
    result: Json = None
    error: Label | None = None
    """The code of a documented tool error, else None."""
    mutates: bool = False


class Submission(Record):
    """The product of an episode, as a verifier gets it."""

    answer: Json = None
    raw: Text | None = None
    """The submitted text; None when nothing was submitted."""
    initial: Label | None = None
    """Path of the database before the episode."""
    final: Label | None = None
    """Path of the database after it; equal to ``initial`` when nothing was written."""
    calls: tuple[CallRecord, ...] = ()


class Score(Record):
    """A verdict. ``passed`` iff ``value`` is 1 for rule-based verifiers."""

    value: float = Field(ge=0.0, le=1.0)
    passed: bool
    reasons: tuple[Text, ...] = ()
    tests: dict[Text, Label] = Field(default_factory=dict)
    """Of code tasks: how each test ended that the submission is judged by."""


class Sampling(Record):
    """How a policy draws its reply."""

    temperature: float = Field(default=1.0, ge=0.0)
    """0: the likeliest token, always."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus sampling: the likeliest tokens with this share of the probability."""
    top_k: Whole = Field(default=-1)
    """Draw from so many tokens; -1: from all."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of one reply. None: what the model allows."""
    seed: Whole | None = None
    """Given to the model. None: one for each reply."""


class Usage(Record):
    """The cost of replies."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    cost_usd: Money = 0.0
    estimated: bool = False
    """True when the server did not report tokens and they were estimated."""

    def __add__(self, other: Usage) -> Usage:
        """Sum of both; estimated if either is."""
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated=self.estimated or other.estimated,
        )


class Turn(Record):
    """One model reply in a trajectory: where its message and its token arrays are."""

    message_index: Count
    usage: Usage = Usage()
    capture: Literal["exact", "text"] = "text"
    tokens: FileRef | None = None
    """An npz artefact with prompt_ids, completion_ids, logprobs, ... (``capture: exact``)."""


class ContextEvent(Record):
    """One context-management step."""

    strategy: Label
    at_message: Count
    tokens_before: Count
    tokens_after: Count
    dropped_pairs: Count = 0
    summary_tokens: Count = 0


class StopReason(StrEnum):
    """Why an episode ended."""

    SUBMITTED = "submitted"
    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    NO_SUBMISSION = "no_submission"
    """Plain text twice in a row where a submit tool was expected."""
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    SANDBOX_DIED = "sandbox_died"
    """The agent's actions killed what its tools ran in, alone and again; scored 0."""
    CANCELLED = "cancelled"
    ERROR = "error"


class TrajectoryError(Record):
    """An error that spoiled an episode; such an episode counts neither way."""

    kind: Label
    """Class name: EnvError, VerifierError, PolicyError, ..."""
    text: Text


class Trajectory(Record):
    """The record of one rollout."""

    task_id: Id
    sample: Count
    policy: Label
    policy_version: Label = ""
    seed: Whole
    style: Style | None = None
    """What the model was asked for in its system message; whether it did so is another matter."""
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()
    context_events: tuple[ContextEvent, ...] = ()
    score: Score | None = None
    stop: StopReason
    num_calls: Count = 0
    reached_verifier: bool = False
    usage: Usage = Usage()
    started_at: Seconds = 0.0
    wall_s: Seconds = 0.0
    agent_s: Seconds = 0.0
    """Of ``limits.seconds``: the tools' time on the processor, and that of the tokens at their rate."""
    faults: tuple[Text, ...] = ()
    """What tools and verifier did that no spec documents; they count against the environment."""
    error: TrajectoryError | None = None


class SourceKind(StrEnum):
    """Where a task's code comes from, for trust decisions."""

    PACKAGE = "package"
    LOCAL = "local"
    """Compiled on this machine from a domain in the wheel."""
    FOREIGN = "foreign"
    TRUSTED = "trusted"
    """Foreign, and the user says so (``--trust``)."""


class GoldRun(Record):
    """The host's log of the gold solution's run, and its answer."""

    calls: tuple[CallRecord, ...]
    answer: Json


class Probe(Record):
    """A submission with a known verdict. Workflows are probed by calls, the rest by an answer."""

    answer: Json = None
    calls: tuple[CallRecord, ...] | None = None
    """Tool calls to make on the initial database before submitting; None: no calls."""
    expected: bool
    origin: Literal["gold", "alternative", "near_miss", "attack", "mutant", "other"]
    clause: Label | None = None
    """The one clause that a near-miss breaks."""
