"""The boundary of gates: an error in one fails its task, and never ends the run."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from envgen.core.errors import EnvgenError, SandboxUnavailableError
from envgen.core.types import GateResult, GateStatus

logger = logging.getLogger(__name__)


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
    return GateResult(gate=gate, status=GateStatus.FAILED, n=1, reason=told(error))


def disk_is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the disk or the quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__
    return False


def told(error: Exception) -> str:
    """An error in one line: envgen's message, or the type and message of any other exception."""
    text = str(error) if isinstance(error, EnvgenError) else f"{type(error).__name__}: {error}"
    return " ".join((text or type(error).__name__).split())[:500]
