"""Turn the changes of a clone into instances, or say why not.

Texts of issues and pull requests are no part of git: ``texts`` brings them where they were fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from envgen.core.code_types import CodeLanguage, Instance, StatementKind
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Commit, Count, Instant, Label, Repository, Revision, Text, Word
from envgen.core.types import Record
from envgen.pipelines.code.candidates import Candidate, candidates
from envgen.pipelines.code.clone import Clone, PatchTooLargeError
from envgen.pipelines.code.filters import (
    ChangeFilter,
    patch_reasons,
    path_reasons,
    statement_reasons,
    title_reason,
)
from envgen.pipelines.code.licences import licence_of
from envgen.pipelines.code.links import closed_issues, fragment_issues
from envgen.pipelines.code.split import (
    BUILD_FILES,
    Split,
    SplitConfig,
    main_language,
    split_change,
)
from envgen.pipelines.code.statement import Texts, hints_of, statement_of


class MineConfig(BaseModel):
    """What to mine from one repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Repository
    """``owner/name`` of the clone; without a clone it is fetched from GitHub."""
    language: CodeLanguage | None = None
    """None: the one that most of the repository is written in."""
    branch: Revision = "HEAD"
    """Whose history is read."""
    since: Instant | None = None
    """ISO date: changes that landed before it are not looked at."""
    until: Instant | None = None
    """ISO date: changes that landed on or after it are not looked at, either."""
    kinds: Annotated[frozenset[StatementKind], PlainSerializer(sorted)] = frozenset(
        {"issue", "pull_request", "commit"}
    )
    """Where problem statements may come from; written in order, for a resumed run compares it."""
    limit: int | None = Field(default=None, ge=1)
    """Stop after so many instances."""
    filters: ChangeFilter = ChangeFilter()
    split: SplitConfig = SplitConfig()


class Rejected(Record):
    """A change that is no instance, and why."""

    id: Label
    """As the instance's would be."""
    repo: Label
    head_commit: Commit | Literal[""]
    pull_number: Count | None = None
    stage: Word
    """``title``, ``paths``, ``patch``, ``statement``, ``kind`` or ``git``."""
    reasons: tuple[Text, ...]


def mine_clone(
    git_dir: Path, config: MineConfig, *, texts: Texts | None = None
) -> Iterator[Instance | Rejected]:
    """Instances of a clone, newest first, and what was rejected on the way.

    Args:
        git_dir: a bare clone or a checkout; pull heads (``refs/pull/*``) help but need not be there.
        config: what to look for.
        texts: issues and pull requests that were fetched before.

    Raises:
        PipelineError: if git can't read the clone.
        ConfigError: if the repository's language is not one of the eight and none is given.
    """
    miner = _Miner(Clone(git_dir), config, texts or Texts())
    found = 0
    landed = candidates(miner.clone, branch=config.branch, since=config.since, until=config.until)
    for candidate in landed:
        result = miner.mine(candidate)
        yield result
        found += isinstance(result, Instance)
        if config.limit is not None and found >= config.limit:
            return


def count_reasons(results: Iterable[Instance | Rejected]) -> dict[str, int]:
    """The funnel: how many were kept, and how many fell for each first reason."""
    counts: dict[str, int] = {}
    for result in results:
        name = f"{result.stage}: {result.reasons[0]}" if isinstance(result, Rejected) else "kept"
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Miner:
    """Turns candidates of one clone into instances."""

    def __init__(self, clone: Clone, config: MineConfig, texts: Texts) -> None:
        self.clone, self.config, self.texts = clone, config, texts
        tip = clone.tip(config.branch)
        language = config.language or main_language(clone.files(tip))
        if language is None:
            raise ConfigError(
                f"{config.repo!r} holds no source of a known language", "name one with language="
            )
        self.language: CodeLanguage = language
        self.licence = licence_of(clone, tip)

    def mine(self, candidate: Candidate) -> Instance | Rejected:
        """One candidate's instance, or why it is none."""
        try:
            return self._mine(candidate)
        except PatchTooLargeError:
            most = self.config.filters.max_patch_bytes
            return self._rejected(candidate, "patch", f"over {most} bytes of patches")
        except (PipelineError, ConfigError, ValidationError) as error:
            return self._rejected(candidate, "git", str(error))

    def _mine(self, candidate: Candidate) -> Instance | Rejected:
        config = self.config
        reason = title_reason(candidate.title, candidate.landed.author, config.filters)
        if reason:
            return self._rejected(candidate, "title", reason)
        language = self._language(candidate.base)
        paths = self.clone.changed(candidate.base, candidate.landed.id)
        reasons = tuple(path_reasons(paths, language, config.filters, config.split))
        if reasons:
            return self._rejected(candidate, "paths", *reasons)
        split = self._split(candidate, language)
        reasons = tuple(patch_reasons(split, config.filters))
        if reasons:
            return self._rejected(candidate, "patch", *reasons)
        return self._stated(candidate, split, language)

    def _language(self, commit: str) -> CodeLanguage:
        """A project may have moved, say from JavaScript to TypeScript: the base commit decides."""
        return self.config.language or main_language(self.clone.files(commit)) or self.language

    def _split(self, candidate: Candidate, language: CodeLanguage) -> Split:
        base, head = candidate.base, candidate.landed.id
        limit = 4 * self.config.filters.max_patch_bytes
        return split_change(
            self.clone.diff(base, head, limit_bytes=limit),
            language,
            config=self.config.split,
            separate=lambda part: self.clone.separate(base, head, part),
            build_text=lambda: self._build_text(head),
        )

    def _build_text(self, commit: str) -> str:
        paths = [p for p in self.clone.files(commit) if BUILD_FILES.search(p)]
        texts = (self.clone.read(commit, path) for path in paths[:50])
        return "\n".join(text.decode("utf-8", "replace") for text in texts)

    def _stated(
        self, candidate: Candidate, split: Split, language: CodeLanguage
    ) -> Instance | Rejected:
        issues = self._issues(candidate, split)
        statement = statement_of(candidate, issues, self.texts)
        reasons = tuple(statement_reasons(statement.text, self.config.filters))
        if statement.kind not in self.config.kinds:
            return self._rejected(
                candidate, "kind", f"the statement comes from the {statement.kind}"
            )
        if reasons:
            return self._rejected(candidate, "statement", *reasons)
        return Instance(
            id=self._id(candidate),
            repo=self.config.repo,
            base_commit=candidate.base,
            head_commit=candidate.landed.id,
            language=language,
            kind=statement.kind,
            pull_number=candidate.pull,
            issue_numbers=issues,
            problem_statement=statement.text,
            hints=hints_of(issues, self.texts, candidate.started),
            gold_patch=split.gold_patch,
            test_patch=split.test_patch,
            neutral_files=tuple(part.path for part in split.neutral),
            created_at=datetime.fromtimestamp(candidate.started, UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            version=self.clone.describe(candidate.base),
            licence=self.licence,
        )

    def _issues(self, candidate: Candidate, split: Split) -> tuple[int, ...]:
        """Issues that the change closes; numbers known to be pull requests are none."""
        pull = self.texts.pulls.get(candidate.pull or 0)
        texts = (*((pull.title, pull.body) if pull else ()), *candidate.messages)
        parts = (*split.gold, *split.test, *split.neutral)
        added = [part.path for part in parts if part.old is None]
        found = (*closed_issues(texts, self.config.repo), *fragment_issues(added))
        pulls = frozenset(self.clone.pull_heads.values()) | self.texts.pulls.keys()
        return tuple(n for n in dict.fromkeys(found) if n not in pulls and n != candidate.pull)

    def _id(self, candidate: Candidate) -> str:
        name = self.config.repo.replace("/", "__")
        return f"{name}-{candidate.pull or candidate.landed.id[:12]}"

    def _rejected(self, candidate: Candidate, stage: str, *reasons: str) -> Rejected:
        return Rejected(
            id=self._id(candidate),
            repo=self.config.repo,
            head_commit=candidate.landed.id,
            pull_number=candidate.pull,
            stage=stage,
            reasons=reasons,
        )
