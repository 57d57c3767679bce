"""What every policy that plays offline must do; the example of ``docs/policies.md`` is one of them."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_runs import ROOT
from toy_world import SUBMIT, play, town_functions, town_task

from envgen.policies.base import Policy
from envgen.policies.greedy import GreedyPolicy
from envgen.policies.random_policy import RandomPolicy
from envgen.policies.random_valid import RandomValidPolicy


def first_row(folder: Path) -> Policy:
    """The policy that ``docs/policies.md`` writes."""
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    (source,) = re.findall(
        r"^```python\n(# first_row\.py: .*?)^```", text, re.MULTILINE | re.DOTALL
    )
    path = folder / "first_row.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("first_row", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_row"] = module
    spec.loader.exec_module(module)
    policy: Policy = module.FirstRow()
    return policy


POLICIES: dict[str, Callable[[Path], Policy]] = {
    "random": lambda _: RandomPolicy(),
    "random-valid": lambda _: RandomValidPolicy(),
    "greedy": lambda _: GreedyPolicy(),
    "first-row": first_row,
}


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> Policy:
    return POLICIES[request.param](tmp_path)


def test_it_says_who_it_is(policy: Policy) -> None:
    assert isinstance(policy, Policy)
    assert policy.name
    assert policy.version


def test_replies_follow_from_the_arguments_alone(policy: Policy) -> None:
    """The same seed gives the same episode, after others and beside others, in any thread."""
    alone = {seed: play(policy, town_task(), town_functions(), seed) for seed in range(6)}
    with ThreadPoolExecutor(4) as threads:
        seeds = [5, 0, 3, 3, 1, 4, 2, 0]
        together = threads.map(lambda s: play(policy, town_task(), town_functions(), s), seeds)
        for seed, episode in zip(seeds, together, strict=True):
            assert episode.messages == alone[seed].messages


def test_it_calls_tools_that_there_are_and_submits(policy: Policy) -> None:
    task = town_task()
    known = {tool.name for tool in task.tools} | {str(SUBMIT["function"]["name"])}  # type: ignore[index]
    for seed in range(6):
        episode = play(policy, task, town_functions(), seed)
        assert episode.submitted
        assert {name for name, _ in episode.calls} <= known
        for message in episode.messages:
            ids = [call.id for call in message.tool_calls]
            assert len(set(ids)) == len(ids)
