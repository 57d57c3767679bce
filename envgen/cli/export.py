"""``envgen export``: a dataset's tasks, or a run's episodes, as files that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import STDOUT, OnProgress, out, progress, remark, require, say
from envgen.cli.records import write_json
from envgen.core.errors import ConfigError
from envgen.core.limits import Label
from envgen.core.registry import near_names


class Export(Command):
    """Export a dataset's tasks, or a run's episodes, to one file, or as a package that a trainer loads.

    jsonl and parquet hold the public part of tasks: prompts, tools, schemas and rules; no solution, verifier,
    rows or probes. verifiers, trl, verl, openenv and inspect are packages with the whole dataset inside,
    harbor a folder of task folders, nemo a resources server (docs/trainers.md). The records
    of code tasks (swe-bench, swe-bench-live, swe-rebench, swe-gym, multi-swe-bench) hold solutions, too. Of a
    run there is one record an episode (docs/trajectories.md); openai-sft leaves out episodes that an error
    spoiled; the other formats mark them.
    """

    places = {"SOURCE": "source"}
    names = {"-o --out FILE": "file", "--data DATASET": "data"}
    examples = (
        "envgen export ds/ --format parquet",
        "envgen export ds/ --out prompts.jsonl",
        "envgen export ds/ --format verifiers --out pkg/",
        "envgen export code/ --format swe-bench",
        "envgen export runs/x --format parquet --out episodes.parquet",
        "envgen export runs/x --format openai-sft --data ds/ --passed-only",
    )

    source: Path
    """A dataset folder, package:NAME, or a run folder of `envgen rollout`."""
    file: Path | None = None
    """Where to write, a file, or a package's folder; -: to stdout. None: SOURCE.FORMAT, here."""
    format: Label | None = None
    """Of a dataset: jsonl (the default), parquet, verifiers, trl, verl, openenv, inspect (packages), harbor,
    nemo (folders), for code tasks also swe-bench and others; of a run: messages (the default), openai-sft,
    atif, verifiers (its traces.jsonl), parquet."""
    data: Path | None = None
    """Of a run: the dataset that was rolled out, for the tools."""
    passed_only: bool = False
    """Of a run: episodes that passed."""
    min_reward: float | None = Field(default=None, ge=0, le=1)
    """Of a run: this reward or more; 0: all but errors."""
    db_url: Label | None = None
    """Of a run: database URL instead of run.sqlite."""
    unproven: bool = False

    def execute(self) -> None:
        """Write the file, and tell what is in it."""
        out.stderr = out.stderr or self.file == STDOUT  # else talk would stand among the records
        chosen = self.data or self.passed_only or self.min_reward is not None or self.db_url
        with progress("exporting") as update:
            if (self.source / "run.json").is_file():
                path, found = self._run(update)
            elif chosen:
                options = "--data, --passed-only, --min-reward and --db are for runs"
                raise ConfigError(
                    f"{str(self.source)!r} is not a run: {options}",
                    "give a run folder of `envgen rollout`, or leave them out",
                )
            else:
                path, found = self._dataset(update, self.format or "jsonl")
        size = None if path == STDOUT else _size(path)
        write_json(self.figures, {"path": str(path), **found, "bytes": size})
        if "tasks" in found:
            n = found["tasks"]
            say(f"wrote {n} task{'s' * (n != 1)} to {path}")
            require(n, None, "tasks written")
            return
        say(f"wrote {found['written']} of {found['stored']} episodes to {path}")
        why = "the filters leave none, or the run has none"
        require(found["written"], None, "episodes written", why)
        if found["errors"]:
            without = "are errors, without a reward; --min-reward 0 drops them"
            remark(f"warning: {found['errors']} of them {without}")

    def _dataset(self, update: OnProgress, format: str) -> tuple[Path, dict[str, int]]:
        from envgen.environments.hosts import open_dataset
        from envgen.integrations.exports import FORMATS as FOLDERS
        from envgen.integrations.exports import write_package
        from envgen.pipelines.code.export import export_records
        from envgen.pipelines.code.formats.registry import FORMATS
        from envgen.store.subset import export

        opened = open_dataset(self.source, unproven=self.unproven)
        name = opened.path.resolve().name
        if format in ("jsonl", "parquet"):
            path = self.file or Path(f"{name}.{format}")
            kind: Literal["jsonl", "parquet"] = "parquet" if format == "parquet" else "jsonl"
            target = None if path == STDOUT else path
            return path, {"tasks": export(opened, target, kind, progress=update)}
        if format in FOLDERS:
            if self.file == STDOUT:
                raise ConfigError(f"{format} is a folder", "name one with --out")
            path = self.file or Path(f"{name}-{format}")
            return path, {"tasks": write_package(opened, path, format, progress=update)}
        if format not in FORMATS:
            known = f"one of jsonl, parquet, {', '.join(FOLDERS)}"
            known += f"; for code tasks also {', '.join(FORMATS)}"
            near = near_names(format, ("jsonl", "parquet", *FOLDERS, *FORMATS))
            raise ConfigError(f"unknown format {format!r}{near}", known)
        if self.file == STDOUT:
            raise ConfigError(f"{format} can't go to standard output", "name a file with --out")
        path = self.file or Path(f"{name}.{format}.jsonl")
        return path, {"tasks": export_records(opened, path, format)}

    def _run(self, update: OnProgress) -> tuple[Path, dict[str, int]]:
        from envgen.environments.hosts import open_dataset
        from envgen.rollout.export import EpisodeFilter, export_run

        format = self.format or "messages"
        own = {name: f"{name}.jsonl" for name in ("openai-sft", "atif")}
        ending = {**own, "parquet": "parquet", "verifiers": "traces.jsonl"}.get(format, "jsonl")
        path = self.file or Path(f"{self.source.resolve().name}.{ending}")
        found = export_run(
            self.source,
            None if path == STDOUT else path,
            format,
            chosen=EpisodeFilter(passed_only=self.passed_only, min_reward=self.min_reward),
            dataset=open_dataset(self.data, unproven=self.unproven) if self.data else None,
            db_url=self.db_url,
            progress=update,
        )
        return path, found._asdict()


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if one.is_file())
