"""The boundary of gates and jobs: an error in one fails its task, and never ends the run."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from envgen.core.errors import EnvgenError, SandboxUnavailableError
from envgen.core.executor import ItemOutcome, LocalExecutor, WorkerSpec
from envgen.core.types import Evidence, GateResult, GateStatus
from envgen.core.worker_process import attempt

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


def outcomes(
    worker: str,
    work: Callable[[Item], Any],
    items: Sequence[Item],
    workers: int | None,
    *,
    ahead: int = 0,
    kwargs: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Item, ItemOutcome]]:
    """What comes of each item, as it comes: from worker processes, or with one worker from this one.

    Args:
        worker: the name of what gives ``work`` in a worker process, as ``module:function``.
        work: done for each item.
        items: what to do.
        workers: processes; default: one per core.
        ahead: items that wait in a process besides the one under way.
        kwargs: of ``worker``.
    """
    count = min(workers or os.cpu_count() or 1, len(items))
    if count <= 1:
        yield from ((item, attempt(work, item)) for item in items)
        return
    executor = LocalExecutor(count, ahead=ahead)
    with closing(executor.run(WorkerSpec(worker, dict(kwargs or {})), items)) as found:
        yield from ((outcome.item, outcome) for outcome in found)


def guarded(gate: str, run: Callable[[], GateResult]) -> GateResult:
    """Return the result of ``run``, or of ``broken`` if it raises."""
    try:
        return run()
    except Exception as error:  # the boundary: one task fails, the run goes on
        return broken(gate, error)


def broken(gate: str, error: BaseException) -> GateResult:
    """Turn an exception of a gate, or of another step, into its failure.

    Raises:
        SandboxUnavailableError: ``error`` itself: nothing can be proven here, which is no task's fault.
        Exception: ``error`` itself, if a full disk caused it: that is no task's fault, either.
        BaseException: ``error`` itself, if it is one that ends the program.
    """
    if isinstance(error, SandboxUnavailableError) or not isinstance(error, Exception):
        raise error
    if disk_is_full(error):
        raise error
    if not isinstance(error, EnvgenError | OSError):
        logger.error("%s broke", gate, exc_info=error)
    return GateResult(gate=gate, status=GateStatus.FAILED, n=1, reason=one_line(error))


def spared(what: str, error: Exception) -> str:
    """Why one item of many is dropped because of an error of envgen's own, in a line.

    Raises:
        Exception: ``error`` itself, where it is no item's fault: see ``broken``.
    """
    return f"envgen broke: {broken(what, error).reason}"


def failure(evidence: Evidence) -> GateResult | None:
    """The first gate that failed or, with nothing to try, couldn't be run."""
    bad = (GateStatus.FAILED, GateStatus.NOT_RUN)
    return next((result for result in evidence if result.status in bad), None)


def disk_is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the disk or the quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__
    return False


def one_line(error: Exception) -> str:
    """An error in one line: envgen's message, or the type and message of any other exception."""
    text = str(error) if isinstance(error, EnvgenError) else f"{type(error).__name__}: {error}"
    return " ".join((text or type(error).__name__).split())[:500]
