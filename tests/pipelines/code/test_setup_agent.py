from __future__ import annotations

from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.core.types import Message, ToolCall
from envgen.pipelines.code.setup_agent import BuildAccess, SetUp, SetupConfig, set_up
from envgen.policies.scripted import ScriptedPolicy
from envgen.sandboxes.workspace import base_tree, build_workspace

pytestmark = pytest.mark.bwrap
NODE_TEST = b"""
const test = require('node:test');
const made = require('/env/made.json');
test('is made', () => { if (made.value !== 7) throw new Error('no'); });
test('is wrong', () => { throw new Error('always'); });
"""
FILES = {"sum.test.js": NODE_TEST, "package.json": b"{}"}
GOOD = {
    "runner": "node-test",
    "install": ["echo '{\"value\": 7}' > /env/made.json; echo made==7 > /env/pins.txt"],
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    base = toy_repository.make(folder / "clone", FILES)
    return base_tree(folder / "clone", base, folder / "tree.tar")


def _call(number: int, name: str, **arguments: object) -> Message:
    call = ToolCall.model_validate({"id": f"c{number}", "name": name, "arguments": arguments})
    return Message(role="assistant", tool_calls=(call,))


class Listening(ScriptedPolicy):
    """A scripted policy that remembers the last conversation it was shown."""

    heard: tuple[Message, ...] = ()

    def respond(self, messages, tools, sampling, **more):  # type: ignore[no-untyped-def]  # as its base
        self.heard = tuple(messages)
        return super().respond(messages, tools, sampling, **more)


def _run(tree: Path, cache: Path, *turns: Message, **config: int) -> tuple[SetUp, list[str]]:
    policy = Listening([*turns, Message(role="assistant", content="done")])
    access = BuildAccess(backend="bubblewrap", cache_root=cache)
    found = set_up(
        tree,
        "javascript",
        policy,
        config=SetupConfig(turns=config.get("turns", len(turns)), builds=config.get("builds", 4)),
        access=access,
    )
    return found, [message.content for message in policy.heard]


def test_an_agent_looks_fails_and_finds_the_recipe(tree: Path, tmp_path: Path) -> None:
    found, heard = _run(
        tree,
        tmp_path,
        _call(1, "bash", command="ls; touch /env/tried; exit 3"),
        _call(2, "hand_in", runner="node-test", install=["exit 9"]),
        _call(3, "hand_in", runner="node-test", install=[]),
        _call(4, "hand_in", runner="pytest", install=[]),
        _call(5, "hand_in", **GOOD, layer="elsewhere", memory_bytes=1),
    )
    assert found.workspace is not None
    recipe = found.workspace.recipe
    assert (found.passing, found.turns, found.builds, found.fault) == (1, 5, 4, "")
    assert (recipe.author, recipe.layer, recipe.pins) == ("scripted", "host", ("made==7",))
    assert recipe.memory_bytes == Recipe.model_fields["memory_bytes"].default
    prompt, *_ = heard
    for wanted in ("node-test", "jest", "/env", "4 times"):
        assert wanted in prompt
    assert "exit code 3\npackage.json" in heard[2]
    assert "exit code 9" in heard[4]
    assert "none of 1 tests passes" in heard[6]
    assert "no runner 'pytest' for javascript" in heard[8]
    again = build_workspace(recipe, tree, backend="bubblewrap", cache_root=tmp_path)
    with again.open() as place:
        assert place.shell("ls /env/tried").exit_code != 0
    assert not list(tmp_path.glob("code/*workshop*"))
    assert not list(tmp_path.glob("code/.*"))


def test_an_agent_that_only_talks_comes_to_nothing(tree: Path, tmp_path: Path) -> None:
    words = [Message(role="assistant", content="I think..."), _call(2, "fly"), _call(3, "hand_in")]
    found, heard = _run(tree, tmp_path, *words)
    assert found.workspace is None
    assert (found.turns, found.builds) == (3, 1)
    assert "runner" in found.fault
    assert "Call one of: bash, hand_in." in heard
    assert "there is no tool 'fly'" in heard


def test_builds_are_counted(tree: Path, tmp_path: Path) -> None:
    bad = _call(1, "hand_in", runner="node-test", install=["false"])
    found, _ = _run(tree, tmp_path, bad, bad, _call(2, "hand_in", **GOOD), builds=2)
    assert found.workspace is None
    assert (found.turns, found.builds) == (2, 2)


def test_what_failed_before_is_shown_between_marks(tree: Path, tmp_path: Path) -> None:
    policy = Listening([Message(role="assistant", content="no idea")])
    failed = Recipe(language="javascript", runner="jest", install=("npm ci # </recipe>",))
    set_up(
        tree,
        "javascript",
        policy,
        cutoff="2023-05-01",
        failed=failed,
        fault="npm said no",
        config=SetupConfig(turns=1),
        access=BuildAccess(backend="bubblewrap", cache_root=tmp_path),
    )
    prompt = policy.heard[0].content
    assert "npm ci # </recipe>" in prompt
    assert "npm said no" in prompt
    assert "2023-05-01" in prompt
