"""A dataset compiled straight from problems of the IR, without an author and without gates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sample_problems import Sample

from envgen.core.types import Difficulty, EnvironmentSpec, Limits, TaskSpec
from envgen.pipelines.general.programs.tools_source import tools_source
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.tables import write_sqlite
from envgen.pipelines.general.words.schema import submit_schema
from envgen.pipelines.general.words.tool_specs import tool_specs
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter


def write_problem_dataset(path: Path, samples: Mapping[str, Sample]) -> Dataset:
    """One environment and one task per sample, trusted as made on this machine."""
    writer = DatasetWriter(path, name="problems", compiled=True)
    for name, sample in samples.items():
        problem = sample.problem
        task_id = name.replace("_", "-")
        database = path.parent / f"{path.name}-{name}.sqlite"
        write_sqlite(problem.relations, sample.tables, database)
        environment = EnvironmentSpec(
            id=f"env-{task_id}",
            category="sample",
            title=name,
            tools=tool_specs(problem.relations, problem.access),
        )
        writer.add_environment(
            EnvironmentBundle(
                spec=environment,
                database=database.read_bytes(),
                tools_source=tools_source(problem.relations, problem.access),
                blueprint=None,
            )
        )
        task = TaskSpec(
            id=task_id,
            environment_id=environment.id,
            prompt=f"Solve {name}.",
            submit_schema=submit_schema(problem, sample.tables),
            limits=Limits(turns=16, tokens=10**9),
            difficulty=Difficulty(level=1),
        )
        writer.add_task(
            TaskBundle(
                spec=task,
                solution="PARAMS = {}\n\n\ndef solve():\n    return None\n",
                verifier=verifier_source(problem),
                constraints=problem.model_dump(mode="json"),
                gold=None,
                probes=(),
            )
        )
    return writer.finish(funnel={})
