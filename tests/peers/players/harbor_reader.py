"""Harbor's own models read our task folders; run by its Python. Arguments: the folder."""

import sys
from pathlib import Path

from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition

for folder in sorted(one for one in Path(sys.argv[1]).iterdir() if one.is_dir()):
    assert Task.is_valid_dir(folder), folder
    task = Task(folder)
    definition = resolve_verifier_environment_definition(task.config, task.paths)
    assert definition is not None
    assert definition.directory == task.paths.tests_dir, "the verifier's container is its own"
    (server,) = task.config.environment.mcp_servers
    assert server.url == "http://tools:8000/mcp"
    print(task.name, task.paths.solution_dir.is_dir())
