"""The form that an inspector hands in, and what code checks: trajectory, turn and quote must be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from envgen.core.limits import Whole
from envgen.core.surrogates import whole
from envgen.pipelines.inspect.shown import ShownTask

FaultKind = Literal["environment_bug", "ambiguous_prompt", "verifier_mismatch", "hack", "leak"]
MOST_FINDINGS = 30
_OUTER_MARKS = " \t\n\"'`*"
_Number = Annotated[Whole, WithJsonSchema({"type": "integer"})]


class FiledFinding(BaseModel):
    """One fault, where it shows."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    trajectory: _Number = Field(description="its number")
    turn: _Number = Field(description="number of the turn that shows it best")
    kind: FaultKind
    quote: Annotated[str, Field(min_length=1, max_length=2_000)] = Field(
        description="words copied from that turn, or from turn 0, that show it"
    )
    why: Annotated[str, Field(min_length=1, max_length=2_000)] = Field(
        description="what is wrong and how one sees it, in one to three sentences"
    )


class FiledFindings(BaseModel):
    """The faults of the environment; there may be none."""

    model_config = ConfigDict(extra="ignore", title="findings")

    findings: list[FiledFinding] = Field(max_length=MOST_FINDINGS)


def wrong_with(finding: FiledFinding, shown: ShownTask) -> str:
    """Why a finding can't stand; empty: its turn is there, and says what is quoted."""
    turns = shown.turns(finding.trajectory)
    if turns is None:
        return f"there is no trajectory {finding.trajectory}"
    if finding.turn not in turns:
        return f"trajectory {finding.trajectory} shows no turn {finding.turn}"
    if not any(stands(finding.quote, text) for text in (turns[finding.turn], shown.told)):
        return (
            f"its quote stands neither in turn {finding.turn} of trajectory {finding.trajectory} "
            "nor in turn 0"
        )
    return ""


def stands(quote: str, text: str) -> bool:
    """Whether a text says these words, letter by letter but for white space and marks around them."""
    wanted = _bare(quote.strip(_OUTER_MARKS)) or _bare(quote)
    return bool(wanted) and wanted in _bare(text)


def form_for(shown: ShownTask, keep: Callable[[list[FiledFinding]], None]) -> type[FiledFindings]:
    """The form for one conversation: findings that can't stand are sent back, the first time.

    Args:
        shown: what the inspector sees.
        keep: is handed all findings each time that a form can be read.
    """
    sent_back: list[str] = []

    class FindingsThatStand(FiledFindings):
        __doc__ = FiledFindings.__doc__

        @model_validator(mode="after")
        def _stand(self) -> Self:
            keep(self.findings)
            found = [wrong_with(one, shown) for one in self.findings]
            wrong = [f"finding {n}: {text}" for n, text in enumerate(found, 1) if text]
            if wrong and not sent_back:
                sent_back.extend(wrong)
                raise ValueError("; ".join(wrong))
            return self

    return FindingsThatStand


def _bare(text: str) -> str:
    return "".join(whole(text).split())
