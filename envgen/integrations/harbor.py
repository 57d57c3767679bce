"""A dataset as Harbor tasks (0.25): ``envgen export ds/ --format harbor``, ``harbor run -p ds-harbor``.

Three containers a task. The agent's holds nothing of ours. The tools' (``environment/tools``) plays one
episode of a dataset with this task alone, and serves its tools over MCP: solution, verifier and rows stand
there, where no agent's shell is. What came of the episode is collected from it once the agent is stopped,
and the verifier's container, which no agent reaches either, makes it Harbor's reward.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envgen.core.errors import ConfigError
from envgen.core.version import VERSION
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.families import make_env
from envgen.integrations.sessions import Episodes
from envgen.rollout.episode import run_episode
from envgen.rollout.gold import make_policy
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

VERDICT = "/verdict/verdict.json"
PORT = 8000
AGENT_S, VERIFIER_S = 1_800, 120
TOML = """\
schema_version = "1.4"
artifacts = [{{ source = "{verdict}", service = "tools" }}]

[task]
name = {name}
description = {about}

[metadata]
family = {family}
level = {level}
split = {split}
made_by = "envgen {version}"

[agent]
timeout_sec = {agent_s}

[verifier]
timeout_sec = {verifier_s}
environment_mode = "separate"

[environment]
build_timeout_sec = 900
cpus = 1
memory_mb = 2048

[[environment.mcp_servers]]
name = "envgen"
transport = "streamable-http"
url = "http://tools:{port}/mcp"
"""
COMPOSE = """\
services:
  main:
    depends_on:
      tools:
        condition: service_healthy
  tools:
    build:
      context: ${{CONTEXT_DIR}}/tools
    healthcheck:
      test: ["CMD", "python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/health')"]
      interval: 1s
      timeout: 5s
      retries: 120
"""
TOOLS = """\
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "envgen-gym[env-server]=={version}"
COPY dataset /dataset
EXPOSE {port}
CMD ["envgen", "serve", "env", "/dataset", "--mcp", "http", "--host", "0.0.0.0", "--port", "{port}", \
"--allow-host", "tools", "--json", "{verdict}"]
"""
TEST = """\
#!/bin/sh
# The verdict of the tools' container, as Harbor's reward. A broken environment has none: the trial then errs.
python3 - <<'END'
import json

verdict = json.load(open("{verdict}"))
if verdict["error"]:
    raise SystemExit(verdict["error"])
with open("/logs/verifier/reward.txt", "w") as file:
    file.write(str(float(verdict["reward"] or 0.0)))
END
"""
SOLVE = """\
#!/bin/sh
# The reference solution's calls, for Harbor's oracle.
python3 - <<'END'
import json, os, urllib.request

URL = os.environ.get("ENVGEN_MCP", "http://tools:{port}/mcp")
CALLS = json.loads({calls})
for number, (name, arguments) in enumerate(CALLS):
    params = {{"name": name, "arguments": arguments}}
    body = {{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}}
    headers = {{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}}
    request = urllib.request.Request(URL, json.dumps(body).encode(), headers)
    print(urllib.request.urlopen(request).read().decode()[:500])
END
"""
ASK = """\


The tools are those of the MCP server `envgen`. `{submit}` ends the task.
"""
README = """\
# {name}

{n} proven task{s} of the envgen dataset {name}, for Harbor. Made by envgen {version}.

```text
harbor run -p . -a oracle
harbor run -p . -a AGENT -m MODEL -k 8
```

`environment/tools` of each task holds its solution and verifier. It is the image of the tools' container;
agents reach that one's port alone. Who hands tasks on to somebody who is to be tested leaves it out.
"""


def write_harbor(
    dataset: Dataset, episodes: Episodes, out: Path,
    progress: Callable[[int, int, str], None] | None = None,
) -> None:  # fmt: skip
    """Write one folder a task into ``out``, which is made.

    Raises:
        EnvgenError: if a reference solution can't be played, or its reward is not full.
    """
    out.mkdir(parents=True)
    for number, task_id in enumerate(episodes.task_ids):
        folder = out / task_id
        for path, text in _files(dataset, task_id).items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            if path.endswith(".sh"):
                place.chmod(0o755)
        subset(dataset, [task_id], folder / "environment" / "tools" / "dataset")
        if progress:
            progress(number + 1, len(episodes), task_id)
    n, name = len(episodes), dataset.manifest.name
    readme = README.format(n=n, s="s" * (n != 1), name=name, version=VERSION)
    (out / "README.md").write_text(readme, encoding="utf-8")


def _files(dataset: Dataset, task_id: str) -> dict[str, str]:
    """The texts of a task's folder."""
    facts = dataset.facts(task_id)
    env = make_env(dataset, facts.family)
    try:
        text, info = env.reset(options={"task_id": task_id})
        calls = list(_gold(dataset, env, task_id))
    finally:
        env.close()
    values = {
        "verdict": VERDICT, "port": PORT, "version": VERSION, "agent_s": AGENT_S,
        "verifier_s": VERIFIER_S, "name": _quoted(f"envgen/{task_id}"), "level": facts.level,
        "family": _quoted(facts.family), "split": _quoted(facts.split),
        "about": _quoted(f"A task of the envgen dataset {dataset.manifest.name}"),
        "calls": repr(json.dumps(calls)),
    }  # fmt: skip
    templates = {
        "task.toml": TOML, "environment/docker-compose.yaml": COMPOSE,
        "environment/tools/Dockerfile": TOOLS, "tests/test.sh": TEST,
    }  # fmt: skip
    if calls:
        templates["solution/solve.sh"] = SOLVE
    return {
        **{path: template.format(**values) for path, template in templates.items()},
        "instruction.md": text.rstrip() + ASK.format(submit=info["tools"][-1]["function"]["name"]),
        "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
        "tests/Dockerfile": "FROM python:3.12-slim\nCOPY . /tests/\n",
    }


def _gold(dataset: Dataset, env: EpisodeEnv, task_id: str) -> Iterator[tuple[str, Any]]:
    """The calls of the reference solution, the submission last; none where there is no solution."""
    if dataset.task_files(task_id).gold is None:
        return
    played = run_episode(env, make_policy("gold", dataset), task_id, sample=0, seed=0).trajectory
    if played.score is None or not played.score.passed:
        raise ConfigError(
            f"the reference solution of {task_id!r} does not pass here", "envgen validate it"
        )
    for message in played.messages:
        yield from ((call.name, call.arguments) for call in message.tool_calls)


def _quoted(text: str) -> str:
    """A text as TOML writes it."""
    return json.dumps(text)
