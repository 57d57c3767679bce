"""What a builder's own tests say of its tools, and whether they would see a fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing

from envgen.core.canonical import dumps
from envgen.core.errors import EnvError, PipelineError, SandboxError
from envgen.core.schema import Validator, argument_fault
from envgen.core.types import ToolSpec
from envgen.pipelines.author.code_folder import Playing, World, plain
from envgen.pipelines.author.code_prompts import HandedTest
from envgen.pipelines.packed.folder import EnvironmentFolder
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.sqlite_files import snapshot
from envgen.verifiers.mutants import mutants

MOST_MUTANTS = 40
"""Of the tools, that a builder's tests are tried on."""
TOOLS_KILL_RATE = 0.7
_NAME, _KEYS = 3, 3
"""The shortest text that is taken for a row's name, as in the gate ``leaks``; the fewest rows so named."""


def world_faults(world: World, folder: EnvironmentFolder, backend: WorkerBackend) -> Iterator[str]:
    """What is wrong with a builder's rules, and with its tools by its own tests."""
    tests = world.tests
    stated = plain(f"{world.files['prompt.md']}\n{world.files['policy.md']}")
    names = [name for name, _ in world.rules]
    if len(set(names)) < len(names):
        yield "two rules have one name"
    for name, text in world.rules:
        if plain(text) not in stated:
            yield f"rule {name!r}: prompt.md and policy.md do not say {text[:200]!r}, word for word"
    yield from given_away(folder)
    known = {spec.name: spec for spec in folder.tools}
    for spec in folder.tools:
        own = [one for one in tests if one.tool == spec.name]
        if not any(not one.error for one in own):
            yield f"no test says what {spec.name!r} returns"
        for error in spec.errors:
            if not any(one.error == error.code for one in own):
                yield f"no test of {spec.name!r} gives the error {error.code!r}"
    if foreign := next((one.tool for one in tests if one.tool not in known), ""):
        yield f"there is no tool {foreign!r}"
        return
    failed = list(_failed(tests, folder, backend))
    yield from failed
    if not failed:
        yield from _unseen(tests, folder, backend)


def given_away(folder: EnvironmentFolder) -> Iterator[str]:
    """Rows that the tools' documentation names as examples: an agent would know them by no call."""
    documents = {one.name: f"{one.description} {one.parameters}" for one in folder.tools}
    for rows in snapshot(folder.database).tables.values():
        for column in zip(*rows, strict=True):
            keys = {cell for cell in column if isinstance(cell, str) and len(cell) >= _NAME}
            if len(keys) < max(len(column), _KEYS):  # not what names a row
                continue
            for tool, text in documents.items():
                for key in sorted(keys):
                    if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text):
                        yield (
                            f"the documentation of {tool!r} names {key!r}, which is a row: "
                            "take an example that is none"
                        )


def _failed(
    tests: Sequence[HandedTest], folder: EnvironmentFolder, backend: WorkerBackend
) -> Iterator[str]:
    """What the tests find."""
    known = {spec.name: spec for spec in folder.tools}
    with closing(Playing(folder, backend)) as playing:
        for number, test in enumerate(tests, 1):
            playing.fresh()
            if fault := _tested(test, playing, known[test.tool]):
                yield f"test {number} ({test.tool} {dumps(test.arguments)[:200]}): {fault}"


def _unseen(
    tests: Sequence[HandedTest], folder: EnvironmentFolder, backend: WorkerBackend
) -> Iterator[str]:
    """Whether too many small faults, planted in the tools, change nothing that a test sees."""
    every = list(mutants(folder.tools_source))
    tried = every[:: -(-len(every) // MOST_MUTANTS) or 1]
    survivors = [
        one.description
        for one in tried
        if not _breaks(folder._replace(tools_source=one.source), tests, backend)
    ]
    if len(survivors) > (1.0 - TOOLS_KILL_RATE) * len(tried):
        yield (
            f"{len(survivors)} of {len(tried)} small faults planted in tools.py change nothing that your "
            f"tests see: {'; '.join(survivors[:8])}. Add tests that tell them apart"
        )


def _breaks(folder: EnvironmentFolder, tests: Sequence[HandedTest], backend: WorkerBackend) -> bool:
    """Whether a test fails, or the tools do not even load."""
    try:
        return next(_failed(tests, folder, backend), "") != ""
    except (EnvError, PipelineError, SandboxError):
        return True


def _tested(test: HandedTest, playing: Playing, spec: ToolSpec) -> str:
    """What a test finds."""
    if fault := argument_fault(Validator({"type": "object", **spec.parameters}), test.arguments):
        return fault
    try:
        got = playing.call(test.tool, dict(test.arguments))
    except EnvError as error:
        return f"the tool broke: {error}"
    if test.error:
        given = got.get("error") if isinstance(got, dict) else None
        return "" if given == test.error else f"it gave {dumps(got)[:300]}, no error {test.error!r}"
    return "" if got == test.returns else f"it gave {dumps(got)[:300]}"
