"""Ask a policy about many instances, and never twice about one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from pydantic import Field

from envgen.core.code_types import Instance
from envgen.core.errors import EnvgenError, PolicyError
from envgen.core.limits import InstanceId, Line, Text
from envgen.core.threads import Threads
from envgen.core.types import Record, Usage
from envgen.pipelines.code.judge import JudgeConfig, Judgement, judge, write_statement
from envgen.pipelines.code.mine import Rejected
from envgen.policies.base import BudgetExceededError, Policy
from envgen.policies.repeats import Repeats


class Opinion(Record):
    """What a model made of one instance; kept in a file, because asking again would cost again."""

    instance_id: InstanceId
    policy: Line
    judgement: Judgement
    statement: Text = ""
    """What it wrote; empty: the instance's own stands."""
    usage: Usage = Field(default_factory=Usage)


class Judges:
    """Asks a policy about instances, several at a time; what it said is kept in a file."""

    def __init__(
        self,
        policy: Policy,
        path: Path,
        config: JudgeConfig | None = None,
        *,
        concurrency: int = 8,
        write: bool = True,
        max_errors: int = 5,
    ) -> None:
        """Go on with what ``path`` holds.

        Args:
            policy: who is asked.
            path: JSON lines of ``Opinion``; those of another policy don't count.
            config: how.
            concurrency: instances asked about at the same time.
            write: let the policy write a statement where there is no issue.
            max_errors: give up after so many identical errors in a row; 0: never.
        """
        self.policy, self.path, self.config = policy, path, config or JudgeConfig()
        self.concurrency, self.write = concurrency, write
        self._lock = Lock()
        self._repeats = Repeats(max_errors)
        self._fatal: PolicyError | None = None
        self.opinions = self._load()

    def kept(self, instances: Sequence[Instance]) -> Iterator[Instance | Rejected]:
        """Each instance as it is to be used, or why it is not kept; in order.

        Raises:
            BudgetExceededError: if the policy's budget is spent; what was said is kept.
            PolicyError: if the policy fails again and again in the same way; what was said is kept.
        """
        todo = [i for i in instances if i.id not in self.opinions]
        with Threads(self.concurrency) as pool:
            asked = dict(zip((i.id for i in todo), pool.map(self._ask, todo), strict=True))
        if self._fatal is not None:
            raise PolicyError(
                f"the judge failed again and again in the same way: {self._fatal}",
                "look at the server; the same command goes on, what was said is kept",
            ) from self._fatal
        for opinion in asked.values():
            if isinstance(opinion, Opinion):
                self.opinions[opinion.instance_id] = opinion
        for instance in instances:
            failed = asked.get(instance.id)
            if isinstance(failed, Exception):
                if isinstance(failed, BudgetExceededError):
                    raise failed
                yield _rejected(instance, f"no answer: {failed}")
            else:
                yield self._applied(instance, self.opinions[instance.id])

    @property
    def usage(self) -> Usage:
        """What all kept opinions cost."""
        return sum((o.usage for o in self.opinions.values()), Usage())

    def _ask(self, instance: Instance) -> Opinion | Exception:
        if self._fatal is not None:
            return self._fatal
        try:
            statement, usage = "", Usage()
            if self.write and instance.kind != "issue":
                written = write_statement(instance, self.policy, self.config)
                statement, usage = written.text, written.usage
            changed = {"problem_statement": statement} if statement else {}
            judgement = judge(instance.model_copy(update=changed), self.policy, self.config)
            opinion = Opinion(
                instance_id=instance.id,
                policy=self.policy.name,
                judgement=judgement,
                statement=statement,
                usage=usage + judgement.usage,
            )
        except EnvgenError as error:
            if type(error) is PolicyError and self._repeats.too_many(str(error)):
                self._fatal = error
            return error
        self._repeats.clear()
        self._store(opinion)
        return opinion

    def _applied(self, instance: Instance, opinion: Opinion) -> Instance | Rejected:
        if not opinion.judgement.kept:
            named = ", ".join(opinion.judgement.faults) or "not reasonable"
            return _rejected(instance, named)
        changed = {"problem_statement": opinion.statement} if opinion.statement else {}
        return instance.model_copy(update=changed)

    def _store(self, opinion: Opinion) -> None:
        line = (opinion.model_dump_json() + "\n").encode()
        with self._lock, self.path.open("ab") as file:
            file.write(line)

    def _load(self) -> dict[str, Opinion]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            return {}
        lines = self.path.read_bytes().split(b"\n")
        if lines[-1]:  # cut off when the last run was killed
            self.path.write_bytes(b"\n".join(lines[:-1]) + (b"\n" if lines[:-1] else b""))
        opinions = [Opinion.model_validate(json.loads(line)) for line in lines[:-1] if line]
        return {o.instance_id: o for o in opinions if o.policy == self.policy.name}


def _rejected(instance: Instance, reason: str) -> Rejected:
    return Rejected(
        id=instance.id,
        repo=instance.repo,
        head_commit=instance.head_commit or "",
        pull_number=instance.pull_number,
        stage="judge",
        reasons=(reason,),
    )
