"""Data-parallel training: each process samples and learns from its share; gradients are summed.

Every process holds the whole model, or a shard of it (``sharding``), and all hold the same after each
update: sums are taken in a fixed order, so only gradients and counts are exchanged. On a CPU two processes of
one thread are faster than one of two threads, because a small model's operations are too small to split.

The caller's own process is rank 0; the others unpickle the same work and take part in it (``take_part``).
They meet in a file, so no port is needed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from envgen.core.errors import ConfigError, EnvgenError
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import ParallelConfig

T = TypeVar("T")
LAST_S = 30
"""Seconds that a process gets to end by itself after the run failed."""
LOG_LINES = 8
"""Lines of a failed process's log in the error message."""


def balance(model: DSAForCausalLM, rate: float, ranks: Ranks) -> None:
    """Update the router's load-balancing bias by the expert load of all processes."""
    for gate in model.gates():
        gate.load.copy_(ranks.sum(gate.load))
    model.update_router_bias(rate)


class RankError(EnvgenError):
    """Raised when another process of a run failed."""


class Ranks(Protocol):
    """The processes of a run, seen from one of them."""

    rank: int
    size: int
    sharded: bool
    """Whether each process keeps a shard of the model; see ``sharding``."""

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

    rank, size, sharded = 0, 1, False

    def sum(self, values: Tensor) -> Tensor:
        """Itself."""
        return values

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Nothing to add."""

    def gather(self, value: T) -> list[T]:
        """Itself."""
        return [value]


class Together:
    """One process of several, joined by ``torch.distributed``: gloo, and nccl between GPUs.

    Args:
        rank: of this process.
        size: how many there are.
        meeting: a file that is not there yet, the same for all.
        config: of the run.
    """

    def __init__(self, rank: int, size: int, meeting: str, config: ParallelConfig) -> None:
        self.rank, self.size, self.sharded = rank, size, config.sharding == "fsdp"
        backend = "gloo"
        if torch.device(config.device).type == "cuda":
            torch.cuda.set_device(rank)
            backend = "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, f"file://{meeting}", rank=rank, world_size=size)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        total = values.clone()
        dist.all_reduce(total)
        return total

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Make each gradient the sum over all processes; none counts as zero."""
        if self.sharded:
            for weight in weights:  # FSDP has averaged the gradients; undo the division
                if weight.grad is not None:
                    weight.grad.mul_(self.size)
            return
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


Work = Callable[["Ranks"], object]
"""One process's part of a run, such as a ``functools.partial``; can be pickled."""


@contextmanager
def ranks(config: ParallelConfig, work: Work, out: Path) -> Iterator[Ranks]:
    """Start the other processes of a run, yield this one's ``Ranks``, and stop the others in the end.

    Args:
        config: of the run; says how many. 1: this one alone.
        work: runs in each other process; the caller runs the same with the ranks that are yielded.
        out: the run's folder; holds ``rank-N.log`` of the others.

    Raises:
        ConfigError: if there are fewer GPUs than processes, or others could not import the work.
        RankError: if another process ended early.
    """
    processes = config.processes
    if processes == 1:
        yield Alone()
        return
    if torch.device(config.device).type == "cuda" and torch.cuda.device_count() < processes:
        raise ConfigError(
            f"{processes} processes need a GPU each, and there are {torch.cuda.device_count()}",
            "lower processes",
        )
    pickled = _pickled(work)
    out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(_threads(processes))
    with tempfile.TemporaryDirectory(prefix="envgen-ranks-") as folder:  # of this user only
        meeting, file = Path(folder) / "meeting", Path(folder) / "work"
        file.write_bytes(pickled)
        others = [_start(file, out, config, rank, meeting) for rank in range(1, processes)]
        try:
            yield Together(0, processes, str(meeting), config)
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


def take_part(file: str, config: str, rank: str, meeting: str) -> None:
    """Take part in a run, as a process that ``ranks`` started.

    Args:
        file: with the pickled work.
        config: JSON of the run's ``ParallelConfig``.
        rank: of this process.
        meeting: file where all meet.
    """
    settings = ParallelConfig.model_validate_json(config)
    torch.set_num_threads(_threads(settings.processes))
    work: Work = pickle.loads(Path(file).read_bytes())
    work(Together(int(rank), settings.processes, meeting, settings))


def _pickled(work: Work) -> bytes:
    try:
        found = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"other processes can't import a part of the run: {error}",
            "define it at the top of a module, or choose processes=1",
        ) from error
    if b"__main__" in found:
        raise ConfigError(
            "other processes can't import what the main script defines",
            "define it in a module of its own, or choose processes=1",
        )
    return found


def _threads(processes: int) -> int:
    return max(1, (os.cpu_count() or 1) // processes)


def _start(
    file: Path, out: Path, config: ParallelConfig, rank: int, meeting: Path
) -> subprocess.Popen[bytes]:
    shared = config.model_dump_json(include=set(ParallelConfig.model_fields))
    code = "import sys; from envgen.train.parallel import take_part; take_part(*sys.argv[1:])"
    command = [sys.executable, "-P", "-c", code, str(file), shared, str(rank), str(meeting)]
    # The others find envgen where this process found it.
    path = os.pathsep.join(part for part in sys.path if part)
    with (out / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip


def _tell(others: Sequence[subprocess.Popen[bytes]], out: Path, error: Exception) -> None:
    """Raise the error of the first other process that failed, if one did."""
    for rank, other in enumerate(others, 1):
        try:
            code = other.wait(LAST_S)
        except subprocess.TimeoutExpired:
            continue
        if code:
            log = out / f"rank-{rank}.log"
            last = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise RankError(
                f"process {rank} ended with code {code}: " + "\n".join(last), f"see {str(log)!r}"
            ) from error
