"""Published problems: fields mapped, answers typed, the rest counted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from envgen.core.errors import ConfigError, DatasetError, PipelineError
from envgen.pipelines.interpreter.answer_types import typed
from envgen.pipelines.interpreter.import_problems import answer_text, import_problems
from envgen.pipelines.interpreter.near_twins import near_twins
from envgen.pipelines.interpreter.second_reading import MISREADINGS, read_again
from envgen.pipelines.validate import validate
from envgen.store.dataset import Dataset
from envgen.verifiers.maths import MathAnswer, accepts

SHAPES = Path(__file__).parents[2] / "data" / "published_answers.jsonl"
"""Written by hand, before any code: a text as it is published, and what it must accept and refuse."""
GSM8K = {"question": "How many eggs?", "answer": "She has 4*253=<<4*253=1012>>1,012.\n#### 1,012"}
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


def _shapes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SHAPES.read_text("utf-8").splitlines()]


def _typed(row: dict[str, Any]) -> MathAnswer | None:
    text = answer_text({"answer": row["text"]})
    return typed(text, row.get("problem", ""), row.get("solution", ""))


def test_published_shapes_accept_and_refuse_what_a_reader_says() -> None:
    wrong, found = [], 0
    for row in _shapes():
        answer = _typed(row)
        if answer is None or "untyped" in row:
            wrong += [row["text"]] if answer is not None else []
            continue
        found += 1
        wrong += [(row["text"], x) for x in (row["text"], *row["accept"]) if not accepts(answer, x)]
        wrong += [(row["text"], x) for x in row["refuse"] if accepts(answer, x)]
    assert not wrong
    assert found >= 65


def test_answers_get_their_type() -> None:
    def of(text: str) -> tuple[str, str]:
        found = typed(text)
        assert found is not None
        assert found.published == text
        return found.kind, found.value

    assert of("\\dfrac{3}{7}") == ("rational", "3/7")
    assert of("2.50") == ("rational", "2.50")
    assert of("(C)") == ("choice", "C")
    assert of("2\\sqrt{3}") == ("expression", "2\\sqrt{3}")
    assert of("\\{1,2,3\\}") == ("set", "\\{1,2,3\\}")
    found = typed("\\frac{1}{2}n(n+1)")
    assert found is not None
    assert found.variables == ("n",)
    assert typed("y = 2x + 3") is None
    assert typed("\\text{ or }") is None
    assert typed("all primes p such that p divides n") is None
    assert typed("9" * 5_000) is None


@pytest.mark.parametrize(
    ("text", "solution", "one"),
    [
        ("1,012", "so 1012 eggs", True), ("1,012", "so $1{,}012$ eggs", True), ("1,012.50", "1012.5", True),
        ("1,012", "", False), ("1,012", "so 1,012 eggs", False), ("1,012", "so 11012 eggs", False),
        ("(1,012)", "so 1012 eggs", False), ("1,012,7", "so 1012 eggs", False),
    ],
)  # fmt: skip
def test_a_comma_is_one_numbers_where_the_solution_shows_it(
    text: str, solution: str, one: bool
) -> None:
    found = typed(text, "", solution)
    assert (found is not None) == one
    assert found is None or not accepts(found, "1, 012")


def test_a_typed_gold_refuses_three_near_twins_and_a_loose_one_does_not() -> None:
    for row in _shapes():
        answer = _typed(row)
        if answer is not None:
            twins = near_twins(answer)
            assert len({answer.value, *twins}) == 4
            assert not any(accepts(answer, twin) for twin in twins), answer
    rounded = MathAnswer(kind="decimal", value="0.5", digits=1)  # what 0.5 was imported as
    assert any(accepts(rounded, twin) for twin in near_twins(rounded))


def _broken(text: str, **change: object) -> MathAnswer:
    found = typed(text)
    assert found is not None
    return found.model_copy(update=change)


BROKEN = {
    "mixed": _broken("12\\frac{1}{2}", value="121/2"),
    "product": _broken("-2\\frac{1}{3}", value="-2/3"),
    "sign": _broken("\\frac{7}{-3}", value="7/3"),
    "decimal": _broken("0.5", value="0.54"),
    "end": _broken("[0,1)", value="[0,1]"),
    "order": _broken("(1,2)", value="(2,1)"),
    "member": _broken("\\pm 2", value="{2}"),
    "unit": _broken("32 \\text{ cm}^2", value="1024"),
    "letter": _broken("\\text{(C)}", value="D"),
    "variable": _broken("x^2-2x+1", value="x^2-2x-1"),
}
EXCUSED = (
    "1\\,234\\,567", "1.\\overline{6}", "2\\frac{1}{2}\\text{ cm}", "\\frac{1 \\pm \\sqrt{5}}{2}", "Yes",
    "\\frac\\pi4", "3 1/2",
)  # fmt: skip


@pytest.mark.bwrap
def test_a_second_reading_finds_golds_that_are_broken_by_hand() -> None:
    golds = {row["text"]: one for row in _shapes() if (one := _typed(row)) is not None}
    found = read_again({**golds, **BROKEN})
    assert not found.nothing
    assert found.apart.keys() == BROKEN.keys()
    assert found.apart["mixed"] == "'25/2'"
    assert found.misread.total() == 5


@pytest.mark.bwrap
def test_each_known_misreading_is_one() -> None:
    golds = {text: one for text in EXCUSED if (one := typed(text)) is not None}
    found = read_again(golds)
    assert not found.apart
    assert found.misread == dict.fromkeys((why for _, why in MISREADINGS), 1)


@pytest.mark.bwrap
def test_a_text_that_ends_the_second_reader_is_left_out_alone() -> None:
    good = _broken("7")
    golds = {"hangs": _broken("7", published="9^{9^{9^{9}}}"), "good": good, "more": good}
    found = read_again(golds)
    assert found.apart.keys() == {"hangs"}


@pytest.mark.bwrap
def test_an_import_tells_the_record_and_both_readings(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    answers = ("12\\frac{1}{2}", "\\sqrt[3]{-8}", "1\\,234")  # sympy's root of -8 is no real number
    file.write_text("\n".join(json.dumps({"problem": x, "answer": x}) for x in answers))
    summary = import_problems(file, tmp_path / "out")
    assert summary.tasks == 2
    assert summary.left_out == {"an answer that two readers read differently": 1}
    once, told = summary.notes
    assert once.startswith("1 read once by us alone: ")
    assert told == (
        r"record 2: '\\sqrt[3]{-8}' was read as expression '\\sqrt[3]{-8}',"
        " a second time as '2*(-1)**(1/3)'"
    )


def test_without_the_second_reader_the_import_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "latex2sympy2_extended", None)  # as if it was not installed
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps(MATH_500))
    summary = import_problems(file, tmp_path / "out")
    assert summary.tasks == 1
    (note,) = summary.notes
    assert note.startswith("nothing was read twice: latex2sympy2-extended is not installed (pip ")


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
