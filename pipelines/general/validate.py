"""``envgen validate`` on general tasks: every gate again, from the files alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from envgen.core.seeding import derive
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.pipelines.boundary import broken, failure
from envgen.pipelines.evidence import Sameness
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates.dataset import Group, dataset_evidence
from envgen.pipelines.general.gates.prove import prove
from envgen.pipelines.general.gates.trial import Hosts, not_applicable
from envgen.pipelines.general.stored import StoredComparison, incomparable, replayed, variant_texts
from envgen.pipelines.packed.pack import PACKED, allowed_writes, prove_again
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.sandboxes.zygote import choose
from envgen.store.dataset import Dataset
from envgen.store.sqlite_files import inspect

BY_EVALUATION = "--by-evaluation judges it by what it does"
"""What else to do with tasks that another version or author wrote."""


class GeneralValidator(TaskValidator):
    """Proves general tasks: compares them with their constraint IR, or judges them by evaluation."""

    family = "general"
    dealt_by = "environments"
    methods = {
        "judged by evaluation": "JUDGED BY EVALUATION, as you asked: by what it does; nothing vouches for "
        "the words of its prompts and tools",
        "compared": "compared with all that its constraint IR gives, texts and figures included",
        "replayed": "replayed, and its texts compared with its parameters'",
        "packed": "judged by the gates that need no constraint IR",
    }

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        # At once, or a task that fails early would hide that nothing can be proven.
        choose(options.backend, dataset.trusted)
        self._hosts = Hosts(backend=options.backend, trusted=dataset.trusted)
        others = sorted(set(dataset.tasks) - set(dataset.own_task_ids))
        self._schemas: dict[str, str] = {}
        drawn = Random(derive(options.seed, "variants"))
        self._sampled = drawn.sample(others, min(options.variants, len(others)))

    def __exit__(self, *_: object) -> None:
        self._hosts.close()

    def task_ids(self) -> list[str]:
        """Own tasks, then the variants that were drawn."""
        return [*self.own, *self._sampled]

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        return _validate_task(
            self.dataset,
            task_id,
            self._hosts,
            self.options.seed,
            task_id in self._sampled,
            self.options.by_evaluation,
        )

    def same(self, found: TaskValidation) -> Sameness | None:
        """See ``TaskValidator``: of packed tasks; others' is compared with all else that is stored."""
        if found.method != "packed":
            return None
        return "numbers" if self.options.seed == self.dataset.manifest.seed else "names"

    def wanted(self, found: TaskValidation) -> Evidence:
        """See ``TaskValidator``."""
        return tuple(one for one in found.evidence if one.gate != "stored")

    def group(self, task_id: str) -> str:
        """See ``TaskValidator``: the schema of its database; a person wrote the splits of packed tasks."""
        name = self.dataset.facts(task_id).environment_id
        if name not in self._schemas:
            content = self.dataset.environment_files(name).bundle().database
            packed = self.dataset.environments[name].author == PACKED
            known = content is not None and not packed
            self._schemas[name] = inspect(content or b"", name).schema if known else ""
        return self._schemas[name]

    def how(self, results: Sequence[TaskValidation], total: int) -> list[str]:
        """See ``TaskValidator``; with what authors of packed tasks allow."""
        stored = [self.dataset.tasks[name].evidence for name in self.own]
        allowed = sorted({name for evidence in stored for name in allowed_writes(evidence)})
        stated = f"further calls of {', '.join(allowed)} are allowed, as their author states"
        return [*super().how(results, total), *([stated] if allowed else [])]

    def dataset_evidence(self) -> Evidence:
        """Diversity and the like; a failure where files can't be read."""
        try:
            return dataset_evidence(self._groups())
        except Exception as error:  # the boundary: the report is about the tasks, too
            return (broken("dataset", error),)

    def _groups(self) -> Iterator[Group]:
        """Environments with the tasks of their own (variants are their parents' kind by intent)."""
        own = self.own
        tasks = self.dataset.tasks
        for environment_id in dict.fromkeys(tasks[name].environment_id for name in own):
            ids = [name for name in own if tasks[name].environment_id == environment_id]
            environment = self.dataset.environment_files(environment_id).bundle()
            yield environment, [self.dataset.task_files(task_id) for task_id in ids]


def _validate_task(
    dataset: Dataset,
    task_id: str,
    hosts: Hosts,
    seed: int,
    replay_only: bool,
    by_evaluation: bool,
) -> TaskValidation:
    found: list[GateResult] = []
    packed = dataset.environments[dataset.tasks[task_id].environment_id].author == PACKED
    method = "packed" if packed else "replayed"
    why = ""
    try:
        if packed:
            found += prove_again(dataset, task_id, hosts, derive(seed, "pack", task_id))
        elif replay_only or (draft := draft_of(dataset, task_id)) is None:
            for result in replayed(dataset, task_id, hosts):
                found.append(result)
            if replay_only and not packed:
                found.append(_variant(dataset, task_id, by_evaluation))
        else:
            why = incomparable(dataset.task_files(task_id), draft, ProceduralAuthor.name)
            method = "judged by evaluation" if why and by_evaluation else "compared"
            found += _proven(dataset, draft, hosts, seed, why if by_evaluation else "")
    except Exception as error:  # files that are no task fail it, not the run
        found.append(broken("probes" if found else "files", error))
    if why and not by_evaluation:
        found = [_with_hint(result, why) for result in found]
    evidence = tuple(found)
    passed = failure(evidence) is None
    return TaskValidation(task_id=task_id, method=method, passed=passed, evidence=evidence)


def _variant(dataset: Dataset, task_id: str, by_evaluation: bool) -> GateResult:
    """Whether a variant's texts are those of its parameters; shown alone where it is judged by evaluation."""
    found = variant_texts(dataset, task_id)
    if by_evaluation and found.status is GateStatus.FAILED:
        return not_applicable("differences", found.reason)
    return found


def _with_hint(result: GateResult, why: str) -> GateResult:
    """A failure of a task that another version or author wrote, with what else can be done."""
    if result.status is not GateStatus.FAILED:
        return result
    return result.model_copy(update={"reason": f"{result.reason} ({why}: {BY_EVALUATION})"[:4_000]})


def _proven(dataset: Dataset, draft: Draft, hosts: Hosts, seed: int, why: str) -> Evidence:
    """Every gate again, then what is stored beside what they found."""
    author = ProceduralAuthor()
    known = not why or author.has_recipe(draft)  # what is compared must compile again
    proof = prove(draft, hosts, author=author if known else None, seed=seed, incomparable=why)
    if not proof.passed:
        return proof.evidence
    comparison = StoredComparison(dataset, draft, proof, hosts, seed, why)
    return (*proof.evidence, *comparison.evidence())
