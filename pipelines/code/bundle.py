"""From a proven instance to the records of a dataset."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from pydantic import JsonValue

from envgen.core.canonical import sha256
from envgen.core.code_types import REPOSITORY, Instance, Recipe
from envgen.core.surrogates import to_bytes, to_json
from envgen.core.types import (
    CallRecord,
    Difficulty,
    EnvironmentSpec,
    GoldRun,
    Limits,
    TaskSpec,
)
from envgen.environments.code_hosts import RECIPE, TREE
from envgen.environments.code_tools import BASH, CODE_TOOLS, MAX_COMMAND, SUBMIT
from envgen.pipelines.code.validation import Validation
from envgen.store.bundles import ATTACHMENTS, EnvironmentBundle, TaskBundle

INSTANCE = "instance"
"""Where a task's ``constraints.json`` holds what its record says beside patches and statement."""
LIMITS = Limits(turns=100, tokens=131_072, seconds=3_600.0)
POLICY_TEXT = f"""\
You are a software engineer. The repository is in {REPOSITORY}, in a machine of your own without a \
network; what it needs is installed. Change its files so that the issue is solved. Tests that you don't \
see will judge the result, together with those that pass now; changes of test files and of the test \
runner's configuration are undone before they run. When you are done, call `submit`."""
_CHUNK = 40_000
_FILE = "/tmp/gold.patch"


def environment_id(repo: str, commit: str, patch: str = "") -> str:
    """Id of a repository's environment at a commit, e.g. ``pallets-click-1a2b3c4d5e6f``.

    A patch that the commit was given tells it apart by its hash.
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", repo.lower().replace("/", "-")).strip("-_")
    ending = f"-{sha256(patch)[:8]}" if patch else ""
    return f"{name[: 50 - len(ending)]}-{commit[:12].lower()}{ending}"


def task_id(instance_id: str) -> str:
    """Id of an instance's task; what does not fit is cut, and a hash tells it apart."""
    name = re.sub(r"[^a-z0-9_-]+", "-", instance_id.lower()).strip("-_")
    if len(name) <= 64:
        return name
    return f"{name[:51]}-{sha256(instance_id)[:12]}"


def environment_bundle(instance: Instance, recipe: Recipe, tree: Path) -> EnvironmentBundle:
    """The environment of an instance: its repository at the base commit and how to build it."""
    with tree.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    blueprint: dict[str, JsonValue] = {
        RECIPE: recipe.model_dump(mode="json"),
        "repo": instance.repo,
        "base_commit": instance.base_commit,
        ATTACHMENTS: {TREE: digest},
    }
    return EnvironmentBundle(
        spec=EnvironmentSpec(
            id=environment_id(instance.repo, instance.base_commit, instance.base_patch),
            category="code",
            title=f"{instance.repo} at {instance.base_commit[:12]}",
            description=f"The repository {instance.repo}, built, with a shell and an editor.",
            tools=CODE_TOOLS,
            submit_tool=SUBMIT,
            policy_text=POLICY_TEXT,
            author=recipe.author,
            licence=instance.licence or "unknown",
            sources=(f"https://github.com/{instance.repo}",),
        ),
        blueprint=blueprint,
        attachments={TREE: tree},
    )


def task_bundle(instance: Instance, validation: Validation) -> TaskBundle:
    """The task of a proven instance, with its gold patch and its tests."""
    assert validation.tests is not None
    gold = to_bytes(instance.gold_patch)
    return TaskBundle(
        spec=TaskSpec(
            id=task_id(instance.id),
            environment_id=environment_id(instance.repo, instance.base_commit, instance.base_patch),
            family="code",
            prompt=instance.problem_statement,
            limits=LIMITS,
            difficulty=Difficulty(level=level_of(gold), gold_calls=len(gold_calls(gold)) + 1),
            evidence=validation.evidence,
        ),
        solution=instance.gold_patch,
        verifier=to_json(validation.tests, indent=1) + "\n",
        constraints={INSTANCE: _record(instance)},
        gold=GoldRun(calls=gold_calls(gold), answer=None),
    )


def level_of(gold: bytes) -> int:
    """A rough difficulty, 1 to 10: doublings of the lines that the gold patch changes."""
    changed = sum(
        line.startswith((b"+", b"-")) and not line.startswith((b"+++", b"---"))
        for line in gold.split(b"\n")
    )
    return min(10, max(1, changed.bit_length()))


def gold_calls(gold: bytes) -> tuple[CallRecord, ...]:
    """The bash calls that apply a patch, whatever its size and bytes."""
    text = base64.b64encode(gold).decode()
    lines = []
    for start in range(0, len(text), _CHUNK):
        arrow = ">>" if start else ">"
        lines.append(f"base64 -d <<< '{text[start : start + _CHUNK]}' {arrow} {_FILE}")
    lines[-1] += f" && git apply --binary --whitespace=nowarn {_FILE} && rm {_FILE}"
    assert all(len(line) <= MAX_COMMAND for line in lines)
    return tuple(
        CallRecord(
            name=BASH.name,
            arguments={"command": line},
            result={"output": "", "exit_code": 0},
            mutates=True,
        )
        for line in lines
    )


def _record(instance: Instance) -> JsonValue:
    """What an export needs beside the patches; texts of unknown encoding are replaced."""
    kept = instance.model_dump(
        mode="json",
        exclude={"gold_patch", "test_patch", "problem_statement", "recipe"},
    )
    return {str(key): value for key, value in kept.items()}
