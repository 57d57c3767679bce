"""Settings of loaders and of the environment server; they import nothing heavy."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from envgen.core.limits import Count, Label, Whole
from envgen.core.types import Record, Split


class EpisodesConfig(Record):
    """Which episodes of a dataset are played, and where their code runs."""

    split: Split | None = None
    """Tasks of this split; None: all."""
    families: tuple[Label, ...] = ()
    """Tasks of these families; empty: all."""
    task_ids: tuple[Label, ...] = ()
    """These tasks; empty: all."""
    variants: bool = True
    """Variants (training episodes over other rows), too."""
    min_level: int = Field(default=1, ge=1)
    """Tasks of this level or harder."""
    max_level: int | None = Field(default=None, ge=1)
    """Tasks of this level or easier; None: any."""
    limit: Count | None = None
    """At most so many tasks, drawn by the seed; None: all."""
    seed: Whole = 0
    """Of the order in which tasks are played."""
    backend: Label = "auto"
    """Where generated code runs, as `envgen rollout` has it."""
    isolate: Label = "environment"
    """episode: a sandbox for each episode; environment: shared by those of one environment."""
    unproven: bool = False
    """Accept tasks whose evidence is missing or negative."""
    trust: bool = False
    """You wrote or read the dataset's code, which so may run without isolation."""


def _listed(given: object) -> object:
    """One name as a list of one."""
    return (given,) if isinstance(given, str) else given


class EnvServerConfig(EpisodesConfig):
    """A dataset's episodes behind a port."""

    host: Label = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """0: any free one."""
    api_key_env: Annotated[tuple[Label, ...], BeforeValidator(_listed)] = ()
    """Environment variable that holds a key which clients must send as 'Authorization: Bearer KEY'. Without
    one no key is asked for. Several: one for each client; a session is reached with the key that opened it
    alone. The address of an episode's tools is a secret of its own and takes no key."""
    agents_port: int | None = Field(default=None, ge=0, le=65_535)
    """A port of their own for the addresses of episodes' tools. Agents that reach it alone can begin no
    episode and read no reward; the other port then asks for a key, a fresh one where none is named."""
    allow_hosts: tuple[Label, ...] = ()
    """Without a key: names that clients may call it by, beside ``host``, ``localhost`` and addresses.

    *: any.
    """
    max_sessions: int = Field(default=1024, ge=1)
    """Open at once; those with a sandbox of their own (code, interpreter) have a lower limit."""
    idle_s: float = Field(default=1800, gt=0)
    """A session that nobody uses for so long is given up."""
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    """Of a request or message."""
    threads: int = Field(default=16, ge=1, le=512)
    """Calls of tools that run at once; quick calls over a WebSocket have a thread of their own."""
