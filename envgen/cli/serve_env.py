"""``envgen serve env``: a dataset's episodes behind a port, or one on standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import out, remark, say
from envgen.cli.records import write_json
from envgen.core.errors import ConfigError
from envgen.core.limits import Whole
from envgen.integrations.settings import EnvServerConfig


class ServeEnv(EnvServerConfig, Command):
    """Let agents and trainers elsewhere play a dataset's episodes, until Ctrl-C.

    One process speaks OpenEnv (WebSocket /ws; GenericEnvClient and verifiers' openenv taskset use it), MCP
    (/mcp?session=NAME) and plain HTTP (POST /episodes). With --mcp stdio it serves the tools of one episode
    to the program that started it, and tells the verdict on stderr when that one is done.
    """

    places = {"DATASET": "dataset"}
    names = {
        "--task ID": "task_ids",
        "--family NAME": "families",
        "--allow-host NAME": "allow_hosts",
        "--mcp stdio": "mcp",
        "--episode-seed N": "episode_seed",
    }
    examples = (
        "envgen serve env ds/",
        "envgen serve env ds/ --split train --port 0 --json server.json",
        "envgen serve env ds/ --host 0.0.0.0 --api-key-env SERVE_KEY",
        "envgen serve env ds/ --mcp stdio --task TASK --json verdict.json",
    )

    dataset: Path
    """A dataset folder, or package:NAME."""
    mcp: Literal["stdio"] | None = None
    """stdio: one episode on standard input and output, no port. None: a server."""
    episode_seed: Whole = Field(default=0, ge=0)
    """With --mcp stdio: draws the episode's task, where --task names none or several."""

    def execute(self) -> None:
        """Serve."""
        from envgen.integrations.server import EnvServer, serve_one

        if self.mcp:
            if self.figures is not None and str(self.figures) == "-":
                raise ConfigError("--json - is taken by the protocol", "name a file")
            out.stderr = True  # standard output is the protocol's
            verdict = serve_one(self.dataset, self.config(), self.episode_seed)
            write_json(self.figures, verdict)
            remark(f"task {verdict['task_id']}: done {verdict['done']}, reward {verdict['reward']}")
            return
        server = EnvServer(self.dataset, self.config())
        if server.warning:
            remark(f"warning: {server.warning}")
        write_json(self.figures, server.card())
        say(server.url)
        n = len(server.episodes)
        remark(f"serving {n} task{'s' * (n != 1)}; Ctrl-C stops it")
        server.run()
        remark("stopped")
