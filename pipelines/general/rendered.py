"""What a constraint IR and a page render to, beside what a dataset stores: every text, whoever wrote it.

No proof covers a sentence: false words in a prompt or a tool's description can be told only by rendering them
again. What can't be rendered is said to be so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.types import GateResult
from envgen.pipelines.general.draft import Draft, as_stored
from envgen.pipelines.general.gates.trial import not_applicable, outcome
from envgen.pipelines.general.programs.task_code import TaskCompiler
from envgen.pipelines.general.words.lexicon import lexicon
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema

MOST = 6
"""Differences that are told; their number is told, too."""


def rendered(draft: Draft) -> dict[str, str]:
    """The texts of a task, by the part they are of, as this envgen renders its IR and rows.

    Raises:
        ConfigError: if the IR's page is not known here, so that nobody can say how it is worded.
        PipelineError: for an IR that has no such text.
    """
    assert draft.problem is not None
    stated = prompt(draft.problem, lexicon(draft.problem.lexicon))
    code = TaskCompiler().code(draft.problem)
    return {
        "prompt": stated.text,
        "policy": stated.policy_text,
        "submit schema": dumps(submit_schema(draft.problem, draft.tables)),
        "rules": dumps(
            [rule.model_dump(mode="json") for rule in public_rules(draft.problem, stated)]
        ),
        "solution": code.solution,
        "verifier": code.verifier,
        "tools": code.tools,
        **{f"tool {spec.name}": dumps(spec.model_dump(mode="json")) for spec in code.specs},
    }


def stored_texts(draft: Draft) -> dict[str, str]:
    """The same texts as the dataset has them."""
    return {
        "prompt": draft.prompt,
        "policy": draft.policy_text,
        "submit schema": dumps(draft.submit_schema),
        "rules": dumps([rule.model_dump(mode="json") for rule in draft.rules]),
        "solution": draft.solution,
        "verifier": draft.verifier,
        "tools": draft.tools_source,
        **{f"tool {spec.name}": dumps(spec.model_dump(mode="json")) for spec in draft.tools},
    }


def differences(draft: Draft, more: Iterable[str] = ()) -> GateResult:
    """What a task stores otherwise than it is rendered: shown, since nothing else can judge words.

    Args:
        draft: the task, as it is read from the dataset.
        more: figures and facts that differ, beside the texts.
    """
    found = [*differing_texts(draft), *more]
    if not found:
        return outcome("differences", True, len(stored_texts(draft)))
    shown = "; ".join(found[:MOST]) + ("; ..." if len(found) > MOST else "")
    return not_applicable("differences", f"{len(found)} that nothing here vouches for: {shown}")


def differing_texts(draft: Draft) -> Iterator[str]:
    """Yield the texts of a task that are not those rendered here, each with its first change."""
    try:
        wanted = rendered(as_stored(draft))
    except (ConfigError, PipelineError) as error:
        yield f"all texts: {error}"
        return
    stored = stored_texts(draft)
    for part in (*wanted, *(name for name in stored if name not in wanted)):
        if stored.get(part) != wanted.get(part):
            yield f"{part}: {_first_change(wanted.get(part, ''), stored.get(part, ''))}"


def _first_change(wanted: str, stored: str) -> str:
    """The first place where a stored text is another one."""
    ours, theirs = wanted.splitlines(), stored.splitlines()
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if tag == "equal":
            continue
        if tag == "insert" or not ours[i1:i2]:
            return f"{theirs[j1][:120]!r} is not in it"
        if tag == "delete" or not theirs[j1:j2]:
            return f"{ours[i1][:120]!r} is gone"
        one, other = ours[i1], theirs[j1]
        same = next(
            (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0
        )
        start = max(0, same - 30)
        return f"{other[start : start + 90]!r} in place of {one[start : start + 90]!r}"
    return "line ends"
