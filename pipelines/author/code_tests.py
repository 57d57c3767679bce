"""What a builder's own tests say of its tools, and whether they would see a fault."""

from __future__ import annotations

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
from envgen.verifiers.mutants import mutants

MOST_MUTANTS = 40
"""Of the tools, that a builder's tests are tried on."""
TOOLS_KILL_RATE = 0.7


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
