"""``envgen serve env``: a dataset's episodes behind a port, or one on standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import STDOUT, out, remark, say
from envgen.cli.records import write_json
from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError
from envgen.core.limits import Whole
from envgen.integrations.settings import EnvServerConfig


class ServeEnv(EnvServerConfig, Command):
    """Let agents and trainers elsewhere play a dataset's episodes, until Ctrl-C.

    One process speaks OpenEnv (WebSocket /ws; GenericEnvClient and verifiers' openenv taskset use it), MCP
    (/mcp?session=NAME) and plain HTTP (POST /episodes). With --mcp stdio or http it serves the tools of one
    episode to one agent, with no way to its reward: that is what --json holds, from the start on.
    """

    places = {"DATASET": "dataset"}
    names = {
        "--task ID": "task_ids",
        "--family NAME": "families",
        "--allow-host NAME": "allow_hosts",
        "--api-key-env NAME": "api_key_env",
        "--mcp WHERE": "mcp",
        "--episode-seed N": "episode_seed",
    }
    examples = (
        "envgen serve env ds/",
        "envgen serve env ds/ --split train --port 0 --json server.json",
        "envgen serve env ds/ --host 0.0.0.0 --api-key-env SERVE_KEY",
        "envgen serve env ds/ --agents-port 8001 --json server.json",
        "envgen serve env ds/ --mcp stdio --task TASK --json verdict.json",
    )

    dataset: Path
    """A dataset folder, or package:NAME."""
    mcp: Literal["stdio", "http"] | None = None
    """One episode, to one agent. stdio: on standard input and output, no port. http: /mcp behind --port, and
    nothing else. None: a server."""
    episode_seed: Whole = Field(default=0, ge=0)
    """With --mcp: draws the episode's task, where --task names none or several."""

    def execute(self) -> None:
        """Serve."""
        from envgen.integrations.server import EnvServer, serve_one

        if self.mcp:
            if self.figures == STDOUT:
                raise ConfigError("--json - can't be written again and again", "name a file")
            out.stderr = self.mcp == "stdio"  # standard output is the protocol's
            told: dict[str, Any] = {}

            def tell(verdict: dict[str, Any]) -> None:
                if verdict != told:
                    told.update(verdict)
                    if self.figures is not None:
                        _write(self.figures, pretty(verdict))

            serve_one(
                self.dataset, self.config(), self.episode_seed, tell, over=self.mcp, ready=say
            )
            remark(f"task {told['task_id']}: done {told['done']}, reward {told['reward']}")
            return
        server = EnvServer(self.dataset, self.config())
        if server.warning:
            remark(f"warning: {server.warning}")
        if server.made_key and self.figures not in (None, STDOUT):
            _write(self.figures, pretty(server.card()), 0o600)
        else:
            write_json(self.figures, server.card())
        say(server.url)
        if server.agents_url:
            remark(f"agents play at {server.agents_url}, and reach nothing else there")
        if server.made_key and self.figures is None:
            remark(
                f"clients must send the key {server.made_key}; --json FILE writes it there instead"
            )
        n = len(server.episodes)
        remark(f"serving {n} task{'s' * (n != 1)}; Ctrl-C stops it")
        server.run()
        remark("stopped")


def _write(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file that somebody may read at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode)
    part.write_text(text, encoding="utf-8")
    part.replace(path)
