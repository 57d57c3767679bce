"""What a test of a judge found, and where it is kept."""

from __future__ import annotations

import os
from pathlib import Path

from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError, StoreError
from envgen.core.limits import Count, Label, Real, Sha256
from envgen.core.surrogates import from_json
from envgen.core.types import Record, Usage
from envgen.store.trust import cache_folder
from envgen.verifiers.rubrics.config import RubricConfig
from envgen.verifiers.rubrics.judge import RubricJudge

MOST_FALSE_PASSES = 0.01
LEAST_TRUE_PASSES = 0.8
MOST_UNJUDGED = 0.05


class AttackFigures(Record):
    """Attacks of one kind."""

    attack: Label
    answers: Count
    passed: Count
    """With half of the score or more, which none of them deserves."""
    unjudged: Count
    mean: Real | None
    """Score."""


class JudgeReport(Record):
    """What a test of a judge found."""

    policy: Label
    version: Label
    template: Label
    identity: Sha256
    """Of policy, template and how votes are drawn."""
    config: RubricConfig
    passed: bool
    """Whether the judge may reward."""
    reasons: tuple[Label, ...]
    """Why not."""
    false_passes: Real | None
    """Share of the attacks read by the judge that scored one half or more."""
    false_passes_high: Real | None
    """Upper end of its 95 % interval (Wilson): so few attacks can't show less."""
    true_passes: Real | None
    """Share of good answers with half of the score or more."""
    retest_agreement: Real | None
    """Share of verdicts on good and middling answers that another seed gives again."""
    order_agreement: Real | None
    """Share of them that stay when the items stand in reverse order."""
    length_correlation: Real | None
    """Of an answer's length with its score, over all answers that were read; Pearson's."""
    padding_gain: Real | None
    """How much repeating a middling answer three times raises its score."""
    unjudged: Real
    """Share of all answers that were asked about."""
    attacks: tuple[AttackFigures, ...]
    usage: Usage
    """What the test has cost now; votes that were kept cost nothing."""


def judge_folder() -> Path:
    """Where votes and reports of this user's judges are kept."""
    return cache_folder() / "judges"


def votes_path(judge: RubricJudge) -> Path:
    """The file with a judge's votes."""
    return judge_folder() / f"{judge.identity}.votes.jsonl"


def report_path(judge: RubricJudge) -> Path:
    """The file with a judge's report."""
    return judge_folder() / f"{judge.identity}.report.json"


def store_report(judge: RubricJudge, report: JudgeReport) -> None:
    """Keep the report; a later one replaces it.

    Raises:
        StoreError: if it can't be written.
    """
    write_whole(report_path(judge), pretty(report))


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all.

    Raises:
        StoreError: if it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(partial, path)
    except OSError as error:
        raise StoreError(f"{str(path)!r} can't be written: {error.strerror}", "free it") from error


def require_tested(judge: RubricJudge) -> None:
    """Refuse a judge that no test has passed.

    Raises:
        ConfigError: if it was not tested as it is, or failed.
        StoreError: if its report can't be read.
    """
    path, name = report_path(judge), judge.policy.name
    hint = "run `envgen test-judge` with the same policy, votes and sampling, or --untested-judge"
    if not path.is_file():
        raise ConfigError(f"the judge {name!r} was not tested as it is used here", hint)
    try:
        report = from_json(JudgeReport, path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"the report {str(path)!r} can't be read: {error}", hint) from error
    if not report.passed or report.identity != judge.identity:
        why = "; ".join(report.reasons) or "its report is another judge's"
        raise ConfigError(f"the judge {name!r} failed its test: {why}", hint)
