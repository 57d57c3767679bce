"""Published problems: fields mapped, answers typed, the rest counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envgen.core.errors import ConfigError, DatasetError, PipelineError
from envgen.pipelines.interpreter.import_problems import answer_text, import_problems, typed
from envgen.pipelines.validate import validate
from envgen.store.dataset import Dataset
from envgen.verifiers.maths import MathAnswer

GSM8K = {"question": "How many eggs?", "answer": "She has 3*4=<<3*4=12>>12.\n#### 1,012"}
MATH_500 = {
    "problem": "Compute $x$.",
    "solution": "... \\boxed{\\frac{3}{7}}",
    "answer": "\\frac{3}{7}",
    "level": 3,
}
DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": "Solve this. What is n?"}],
    "reward_model": {"ground_truth": "34", "style": "rule"},
}
OPENR1 = {"problem": "Find it.", "solution": "First \\boxed{1}, then \\boxed{2.50}", "answer": ""}
NUMINA = {"problem": "Prove it.", "answer": "proof"}


@pytest.mark.parametrize(
    ("record", "text"),
    [(GSM8K, "1,012"), (MATH_500, "\\frac{3}{7}"), (DAPO, "34"), (OPENR1, "2.50"), ({"answer": 5}, "5")],
)  # fmt: skip
def test_answers_are_found(record: dict[str, Any], text: str) -> None:
    assert answer_text(record) == text


def test_answers_get_their_type() -> None:
    assert typed("1,012") == MathAnswer(kind="integer", value="1012")
    assert typed("\\dfrac{3}{7}") == MathAnswer(kind="rational", value="3/7")
    assert typed("2.50") == MathAnswer(kind="decimal", value="2.50", digits=2)
    assert typed("(C)") == MathAnswer(kind="string", value="C")
    assert typed("2\\sqrt{3}") == MathAnswer(kind="expression", value="2\\sqrt{3}")
    found = typed("\\frac{1}{2}n(n+1)")
    assert found is not None
    assert found.variables == ("n",)
    assert typed("\\{1,2,3\\}") == MathAnswer(kind="set", value="\\{1,2,3\\}")
    assert typed("y = 2x + 3") is None
    assert typed("(3, 4)") is None  # a point or an interval
    assert typed("all primes p such that p divides n") is None
    assert typed("9" * 5_000) is None


def test_a_file_becomes_tasks_and_the_rest_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    odd = {"problem": "Line\u2028separator?", "answer": "1"}
    rows = [
        GSM8K,
        MATH_500,
        DAPO,
        DAPO,
        OPENR1,
        NUMINA,
        odd,
        {"problem": "No answer."},
        {"answer": 3},
    ]
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    summary = import_problems(file, tmp_path / "out", level=2)
    assert summary.tasks == 5
    assert summary.left_out == {
        "asked twice": 1, "an answer that is none": 1, "no answer": 1, "no problem": 1,
    }  # fmt: skip
    dataset = Dataset.open(tmp_path / "out", unproven=True)
    assert sorted(dataset.facts(one).level for one in dataset.tasks) == [2, 2, 2, 2, 3]
    with pytest.raises(DatasetError):
        Dataset.open(tmp_path / "out")
    report = validate(tmp_path / "out", workers=1)
    assert not report.passed
    assert {one.evidence[0].status for one in report.tasks} == {"not_run"}


@pytest.mark.parametrize("content", ["", "[]", '{"problem": "x"}', "[1]", '{"a":', "\ud800"])
def test_a_file_without_problems_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises((ConfigError, PipelineError)):
        import_problems(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
