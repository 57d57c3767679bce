from __future__ import annotations

import random
from pathlib import Path

import pytest
from generated import Tools, answers, database, edit, read, verifier
from pydantic import JsonValue
from sample_problems import SAMPLES

from envgen.core.ir import Reach
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.programs.verifier_source import verifier_source
from envgen.pipelines.general.semantics.evaluate import evaluate

ANSWERED = [name for name, sample in SAMPLES.items() if not isinstance(sample.problem.goal, Reach)]
WORKFLOWS = [name for name in SAMPLES if name not in ANSWERED]

ANSWERS: tuple[JsonValue, ...] = (
    {"outcome": "done"}, {"outcome": "escalated"}, {"outcome": None}, [],
)  # fmt: skip


def expected(result: dict[str, bool]) -> set[str]:
    """The ids that the verifier must report: "layout" alone if the form is wrong."""
    if not result["layout"]:
        return {"layout"}
    return {rule for rule, holds in result.items() if not holds}


@pytest.mark.parametrize("name", ANSWERED)
def test_the_verifier_breaks_the_same_rules_as_evaluate(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    verify = verifier(sample.problem)
    path = str(database(sample.problem, sample.tables, tmp_path / "db.sqlite"))
    seen = set()
    tried = [
        *sample.accepted,
        *sample.rejected,
        *answers(sample.problem, sample.tables, random.Random(name), 1000, sample.accepted),
    ]
    for answer in tried:
        wanted = expected(evaluate(sample.problem, sample.tables, answer))
        assert set(verify(answer, path, path)) == wanted, answer
        seen |= wanted or {"accepted"}
    assert "accepted" in seen
    assert "layout" in seen


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_verifier_judges_final_states_as_evaluate(name: str, tmp_path: Path) -> None:
    sample, rng = SAMPLES[name], random.Random(name)
    verify = verifier(sample.problem)
    initial = database(sample.problem, sample.tables, tmp_path / "initial.sqlite")
    plans = [*sample.accepted, *sample.rejected]
    writes = sorted({tool for plan in plans for tool, _ in plan.calls})
    items = sorted(sample.tables["items"])
    seen = set()
    for i in range(250):
        final = tmp_path / f"final{i}.sqlite"
        tools = Tools(sample.problem, initial, final)
        for tool, arguments in rng.choice(plans).calls:
            tools.call(tool, arguments)
        for _ in range(rng.randint(0, 2)):
            tool = rng.choice(writes)
            extra = {"method": rng.choice(["card", "credit"])} if tool == "refund_item" else {}
            tools.call(tool, {"item_id": rng.choice(items), **extra})
        tools.close()
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            edit(sample.problem, final, rng)
        state = read(sample.problem, final)
        for answer in ANSWERS:
            wanted = expected(evaluate(sample.problem, sample.tables, answer, state))
            assert set(verify(answer, str(initial), str(final))) == wanted, answer
            seen |= wanted or {"accepted"}
        final.unlink()
    assert {"accepted", "layout", "goal", "write_set"} <= seen


def test_the_params_line_alone_carries_the_parameters(tmp_path: Path) -> None:
    sample = SAMPLES["a_trip"]
    other = {**sample.problem.params, "budget": 1}
    retuned = sample.problem.model_copy(update={"params": other})
    source = verifier_source(sample.problem)
    assert replace_params(source, other) == verifier_source(retuned)
    lines = zip(source.splitlines(), verifier_source(retuned).splitlines(), strict=True)
    assert [a.startswith("PARAMS = ") for a, b in lines if a != b] == [True]


def test_the_verifier_never_writes(tmp_path: Path) -> None:
    sample = SAMPLES["c_refund"]
    path = database(sample.problem, sample.tables, tmp_path / "db.sqlite")
    before = path.read_bytes()
    verifier(sample.problem)({"outcome": "done"}, str(path), str(path))
    assert path.read_bytes() == before
