"""A workshop: the sandbox of an install that somebody tries commands in. Nothing of it is kept."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from envgen.core.code_types import Recipe
from envgen.sandboxes.base import ExecResult, Mount
from envgen.sandboxes.workspace import layers, parts, store
from envgen.sandboxes.workspace.attend import attend
from envgen.sandboxes.workspace.build import Builder
from envgen.sandboxes.workspace.parts import Box

_WAIT_S = 10.0


class Workshop:
    """Runs commands where an install would."""

    def __init__(self, box: Box, builder: Builder) -> None:
        self._box, self._builder = box, builder

    def shell(self, command: str, timeout_s: float) -> ExecResult:
        """Run a bash command line in the repository; stdout holds the end of both streams.

        A command that fills the disk is ended, and the result's stderr says so.
        """
        result, problem = attend(self._box, command, timeout_s, self._builder.problem)
        return result.model_copy(update={"stderr": problem.encode()})


@contextmanager
def workshop(
    recipe: Recipe,
    tree: Path,
    *,
    backend: str = "auto",
    certificates: Path | None = None,
    variables: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
    reach: Sequence[str] = (),
    cache_root: Path | None = None,
) -> Iterator[Workshop]:
    """A sandbox as ``build_workspace`` would install ``recipe`` in, before its first command.

    Raises WorkspaceError, SandboxError.
    """
    layer = layers.layer(recipe.layer, cache_root)
    chosen = parts.choose_backend(backend, layer)
    place = store.code_folder(cache_root) / f"workshop-{secrets.token_hex(6)}"
    with store.locked(place, _WAIT_S), store.scratch(place) as folder:
        builder = Builder(recipe, layer, chosen, folder, reach, lambda _: None)
        access = builder.access(certificates, mounts, None)
        with builder.installing(tree, access, dict(variables or {}), certificates) as box:
            yield Workshop(box, builder)
