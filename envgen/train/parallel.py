"""Several processes that train one model: each plays and learns its share, gradients are added.

Every process holds the whole model, and after each update all hold the same: sums are taken in a fixed
order, so nothing has to be sent but gradients and counts. On a CPU two processes of one thread are faster
than one of two threads, for small models' operations are too small to be split.

The caller's own process is rank 0; the others run ``python -m envgen.train.rank``. They meet in a file, so
no port is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from envgen.core.errors import EnvgenError
from envgen.core.types import Record
from envgen.model.modeling import DSAForCausalLM

T = TypeVar("T")
LOG_LINES = 8
"""Of a process that failed, for the message."""


def balance(model: DSAForCausalLM, rate: float, ranks: Ranks) -> None:
    """Move the router's load-balancing bias by what all processes saw."""
    for gate in model.gates():
        gate.load.copy_(ranks.sum(gate.load))
    model.update_router_bias(rate)


class RankError(EnvgenError):
    """Raised when another process of a run ended."""


class Ranks(Protocol):
    """The processes of a run, seen from one of them."""

    rank: int
    size: int

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        ...

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Make each gradient the sum over all processes; none counts as zero."""
        ...

    def gather(self, value: T) -> list[T]:
        """What each process gave, by rank."""
        ...


class Alone:
    """A run of one process."""

    rank, size = 0, 1

    def sum(self, values: Tensor) -> Tensor:
        """Itself."""
        return values

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Nothing to add."""

    def gather(self, value: T) -> list[T]:
        """Itself."""
        return [value]


class Together:
    """One process of several, joined by ``torch.distributed`` (gloo).

    Args:
        rank: of this process.
        size: how many there are.
        meeting: a file that is not there yet, the same for all.
    """

    def __init__(self, rank: int, size: int, meeting: str) -> None:
        self.rank, self.size = rank, size
        dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=size)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        total = values.clone()
        dist.all_reduce(total)
        return total

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Make each gradient the sum over all processes; none counts as zero."""
        flat = torch.cat(
            [
                (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten()
                for weight in weights
            ]
        )
        dist.all_reduce(flat)
        parts = torch.split(flat, [weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight)

    def gather(self, value: T) -> list[T]:
        """What each process gave, by rank."""
        found: list[T | None] = [None] * self.size
        dist.all_gather_object(found, value)
        return [one for one in found if one is not None]


@contextmanager
def ranks(processes: int, kind: str, config: Record, out: Path) -> Iterator[Ranks]:
    """The processes of a run, the others started and, in the end, stopped.

    Args:
        processes: how many in all; 1: this one alone.
        kind: of run; see ``rank.RUNS``.
        config: of the run.
        out: its folder; holds ``rank-N.log`` of the others.

    Raises:
        RankError: if another process ended early.
    """
    if processes == 1:
        yield Alone()
        return
    out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    with tempfile.TemporaryDirectory(prefix="envgen-ranks-") as folder:
        meeting = str(Path(folder) / "meeting")
        settings = Path(folder) / "config.json"  # a command line has no room for many task ids
        settings.write_text(config.model_dump_json(), encoding="utf-8")
        others = [
            _start(kind, settings, out, rank, processes, meeting) for rank in range(1, processes)
        ]
        try:
            yield Together(0, processes, meeting)
            for other in others:
                other.wait()
        except (RuntimeError, dist.DistError) as error:
            _tell(others, out, error)
            raise
        finally:
            for other in others:
                other.kill()
                other.wait()
            if dist.is_initialized():
                dist.destroy_process_group()
            torch.set_num_threads(threads)


def _start(
    kind: str, config: Path, out: Path, rank: int, size: int, meeting: str
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "envgen.train.rank", kind, str(config)]
    command += [str(out), str(rank), str(size), meeting]
    # Rank 0 finds envgen where this process found it.
    path = os.pathsep.join(part for part in sys.path if part)
    with (out / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip


def _tell(others: Sequence[subprocess.Popen[bytes]], out: Path, error: Exception) -> None:
    """Raise what another process died of, if one did."""
    for rank, other in enumerate(others, 1):
        try:
            code = other.wait(5)
        except subprocess.TimeoutExpired:
            continue
        if code:
            log = out / f"rank-{rank}.log"
            last = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise RankError(
                f"process {rank} ended with code {code}: " + "\n".join(last), f"see {str(log)!r}"
            ) from error
