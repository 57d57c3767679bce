"""Metrics of a run: one line of JSON per step, and TensorBoard events if it is installed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"


class Metrics:
    """Writes ``metrics.jsonl`` (and TensorBoard events beside) in a run folder.

    Lines from steps after ``resume_at`` belong to work that was lost, and are dropped; ``seconds`` goes on
    from the last line that is kept.
    """

    def __init__(self, out: Path, resume_at: int = 0) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._path = out / METRICS_FILE
        spent = self._keep(resume_at)
        self._file = self._path.open("a", encoding="utf-8")
        self._board = _board(out)
        self._started = time.monotonic() - spent

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Write one step's figures, named ``room/name``."""
        record = {"step": step, "seconds": round(time.monotonic() - self._started, 3), **values}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def _keep(self, resume_at: int) -> float:
        """Drop lines of later steps; return the seconds of the last line that is kept."""
        if not self._path.exists():
            return 0.0
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        kept = [line for line in whole if json.loads(line)["step"] <= resume_at]
        if len(kept) < len(lines):
            self._path.write_text("".join(kept), encoding="utf-8")
        return float(json.loads(kept[-1])["seconds"]) if kept else 0.0


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """All lines of a run."""
    text = (out / METRICS_FILE).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def tokens_per_second(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Model tokens a second of a GRPO run, sampling and update together; None without steps."""
    tokens = seconds = 0.0
    for line in lines:
        if "time/sampling_s" not in line:  # the evaluation before the first step
            continue
        spent = line["time/sampling_s"] + line["time/update_s"]
        tokens += line["time/model_tokens_per_s"] * spent
        seconds += spent
    return tokens / seconds if seconds else None


def _board(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # metrics.jsonl has it all
        return None
    return SummaryWriter(str(out / "tensorboard"))
