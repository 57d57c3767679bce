"""From repositories to the instances that are worth proving: mine, and let a policy judge."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import Instance
from envgen.core.errors import PipelineError
from envgen.pipelines.code.judges import Judges
from envgen.pipelines.code.mine import MineConfig, Rejected, count_reasons
from envgen.pipelines.code.prove import Job
from envgen.pipelines.code.source import Source, mine_sources


def gather(
    sources: Sequence[Source], config: MineConfig, judges: Judges | None = None
) -> tuple[list[Job], dict[str, int]]:
    """(instances with their clones, how many changes were kept and why the others fell).

    Args:
        sources: where to look.
        config: what for; its ``repo`` is replaced by each source's.
        judges: who decides which instances are fair tasks; None: all are.

    Raises:
        PipelineError: if nothing is left.
        BudgetExceededError: if the judges' budget is spent.
    """
    clones = {source.repo: source.clone for source in sources}
    found = [result for _, result in mine_sources(sources, config)]
    if judges is not None:
        mined = [result for result in found if isinstance(result, Instance)]
        refused = [result for result in found if isinstance(result, Rejected)]
        found = [*judges.kept(mined), *refused]
    counts = count_reasons(found)
    jobs = [Job(one, clones[one.repo]) for one in found if isinstance(one, Instance)]
    if not jobs:
        reasons = ", ".join(f"{n} {reason}" for reason, n in counts.items())
        raise PipelineError("no change is an instance", reasons or "there are no changes")
    return jobs, counts
