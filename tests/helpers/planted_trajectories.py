"""Faults planted in sound environments, and the trajectories in which they show, played for real.

Each run is a sound dataset (of ``tests/data/blind_datasets.tar.xz``, or packed of ``examples/library_loans``)
with some files changed, and agents whose every word is scripted; tools and checkers run as in any rollout.
A plant says in which turns its fault shows.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, get_args

from planted_faults import mend
from planted_runs import RUNS, PlantedRun

from envgen.core.types import Message, Trajectory
from envgen.pipelines.inspect.findings import FaultKind
from envgen.pipelines.inspect.inspect_run import InspectedFault
from envgen.pipelines.inspect.shown import ShownTask, shown_task
from envgen.pipelines.packed.pack import pack
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore

ROOT = Path(__file__).parents[2]
LOANS = "library_loans"
_CALL = re.compile(r"(\w+)\((.*)\)")


class ShownPlant(NamedTuple):
    """A fault that was planted, and where it shows."""

    run: str
    kind: FaultKind
    turns: frozenset[tuple[int, int]]
    """(trajectory, turn)"""
    also: tuple[FaultKind, ...]
    """Kinds that are true there, too, though another one was planted."""


class PlayedRun(NamedTuple):
    """A run with its plants."""

    name: str
    folder: Path
    dataset: Dataset
    plants: tuple[ShownPlant, ...]
    trajectories: int


def sound_datasets(folder: Path) -> Path:
    """The datasets that faults are planted in."""
    with tarfile.open(ROOT / "tests/data/blind_datasets.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    pack(ROOT / "examples" / LOANS, folder / LOANS, backend="process", trust=True)
    return folder


def play(run: PlantedRun, sound: Path, folder: Path) -> PlayedRun:
    """Plant the faults of a run, and let its agents play.

    Raises:
        AssertionError: if there was nothing to change, a verdict is not as planned, or no turn shows a fault.
    """
    dataset = _faulty(run, sound, folder / "ds")
    with RunStore.open(
        folder / "run", config={}, dataset_hash=dataset.manifest.content_hash
    ) as store:
        episodes = [
            _episode(run, dataset, number, folder / f"played-{number}")
            for number in range(len(run.agents))
        ]
        for episode in episodes:
            store.add(episode)
    verdicts = "".join("+" if one.score and one.score.passed else "-" for one in episodes)
    assert verdicts == run.verdicts, (run.name, verdicts)
    shown = shown_task(dataset, episodes[0].task_id, episodes)
    plants = tuple(
        ShownPlant(run.name, one.kind, _turns(shown, one.where), one.also) for one in run.plants
    )
    for one in plants:
        assert one.turns, (run.name, one.kind)
        others = (other for other in plants if other is not one and other.kind == one.kind)
        assert not any(other.turns & one.turns for other in others), (run.name, one.kind)
    return PlayedRun(run.name, folder / "run", dataset, plants, len(episodes))


def play_all(folder: Path, runs: Sequence[PlantedRun] = RUNS) -> list[PlayedRun]:
    """All runs; what an earlier call left in the folder is made again, with the same conversations."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sound = sound_datasets(folder / "sound")
    return [play(run, sound, folder / run.name) for run in runs]


def figures(
    plants: Sequence[ShownPlant], filed: Sequence[tuple[str, InspectedFault]]
) -> dict[str, Any]:
    """Precision and recall, of all and by kind.

    A plant is found if a finding of its kind names one of its turns. A finding is right if it finds a plant;
    of several that find the same one the first is, and the others are ``repeated``. One of a kind that is
    ``also`` true at a plant's turn (a hack shows what the checker overlooks) is ``beside``. All others are
    wrong. Precision is of right and wrong ones.

    Args:
        plants: all of them.
        filed: findings, each with the name of its run.
    """
    found: set[ShownPlant] = set()
    fates: list[tuple[FaultKind, str]] = []
    wrong = []
    for run, one in filed:
        at = [
            plant for plant in plants if plant.run == run and (one.sample, one.turn) in plant.turns
        ]
        exact = next((plant for plant in at if plant.kind == one.kind), None)
        if exact is not None:
            fates.append((one.kind, "repeated" if exact in found else "right"))
            found.add(exact)
        elif any(one.kind in plant.also for plant in at):
            fates.append((one.kind, "beside"))
        else:
            fates.append((one.kind, "wrong"))
            wrong.append(
                {
                    "run": run,
                    **one.model_dump(mode="json", exclude={"task", "inspector", "template"}),
                }
            )

    def of(kinds: Sequence[str]) -> dict[str, Any]:
        count = {
            fate: sum(kind in kinds and fate == got for kind, got in fates)
            for fate in ("right", "wrong", "repeated", "beside")
        }
        planted = sum(plant.kind in kinds for plant in plants)
        judged = count["right"] + count["wrong"]
        return {
            "planted": planted,
            **count,
            "precision": round(count["right"] / judged, 3) if judged else None,
            "recall": round(count["right"] / planted, 3) if planted else None,
        }

    missed = [
        {"run": plant.run, "kind": plant.kind, "turns": sorted(plant.turns)}
        for plant in plants
        if plant not in found
    ]
    kinds = get_args(FaultKind)
    return {
        "all": of(kinds), "by_kind": {kind: of([kind]) for kind in kinds},
        "missed": missed, "wrong": wrong,
    }  # fmt: skip


def _faulty(run: PlantedRun, sound: Path, folder: Path) -> Dataset:
    shutil.copytree(sound / run.base, folder)
    (folder.parent / "scripts").mkdir()
    task = run.task or "*"
    for edit in run.edits:
        places = (f"environments/*/tasks/{task}/{edit.file}", f"environments/*/{edit.file}")
        path = next(path for place in places for path in sorted(folder.glob(place)))
        if edit.file == "database.sqlite":
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                assert db.execute(edit.pattern).rowcount > 0, (run.name, edit)
            continue
        before = path.read_text("utf-8")
        after = re.sub(edit.pattern, edit.replacement, before, flags=re.DOTALL)
        assert after != before, (run.name, edit)
        path.write_text(after, "utf-8")
    mend(folder)
    return Dataset.open(folder, unproven=True)


def _episode(run: PlantedRun, dataset: Dataset, number: int, out: Path) -> Trajectory:
    script = out.parent / "scripts" / f"{number}.json"
    messages = [_message(i, words) for i, words in enumerate(run.agents[number])]
    script.write_text(json.dumps([one.model_dump(mode="json") for one in messages]), "utf-8")
    rollout(
        RolloutConfig(
            dataset=str(dataset.path), policy=PolicyConfig(spec=f"scripted:{script}"), out=str(out),
            task_ids=(run.task,) if run.task else None, trust=True, unproven=True,
            backend="process", concurrency=1,
        )
    )  # fmt: skip
    with RunStore.read(out) as store:
        (episode,) = store.trajectories()
    return episode.model_copy(update={"sample": number})


def _message(turn: int, words: Sequence[str]) -> Message:
    """A reply: what it says, then its calls as ``tool(name=text, ...)``; JSON is submitted."""
    calls = []
    for i, text in enumerate(words[1:]):
        found = _CALL.fullmatch(text)
        name, arguments = "submit_result", {"answer_text": text}
        if found is not None:
            name = found[1]
            pairs = (part.partition("=") for part in found[2].split(", ") if part)
            arguments = {key: value for key, _, value in pairs}
        calls.append({"id": f"c{turn}-{i}", "name": name, "arguments": arguments})
    content: dict[str, Any] = {"role": "assistant", "content": words[0], "tool_calls": calls}
    return Message.model_validate(content)


def _turns(shown: ShownTask, where: Sequence[str]) -> frozenset[tuple[int, int]]:
    """The turns that are meant: ``told``, ``2 verdict``, ``2 submit``, ``2 WORDS`` or ``* WORDS``."""
    found = set()
    for one in shown.trajectories:
        last = max(one.turns)
        for text in where:
            sample, _, words = text.partition(" ")
            if text == "told":
                found.add((one.sample, 0))
            elif sample not in ("*", str(one.sample)):
                continue
            elif words == "verdict":
                found.add((one.sample, last))
            elif words == "submit":
                found.add((one.sample, last - 1))
            else:
                found |= {(one.sample, n) for n, said in one.turns.items() if words in said}
    return frozenset(found)
