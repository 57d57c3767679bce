from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Sequence

import pytest
from verdict_zoo import NEW_TESTS

from envgen.core.code_types import Leaf, Question, Site, Status, TestCase, TestReport, VerdictKind
from envgen.verifiers.lookalikes.gutting import changed_lines, gutted, touched_functions
from envgen.verifiers.lookalikes.options import Literal, Value, capacity, options
from envgen.verifiers.lookalikes.paper import LANGUAGES, Paper, sitting, variants

PYTHON = LANGUAGES["python"]
FILE = "tests/test_a.py"


def questions(text: str) -> list[Question]:
    return PYTHON.sites(FILE, text.encode())


def leaves(text: str) -> list[list[str]]:
    """What is varied in the only test of a text, site by site; conditions are left out."""
    (question,) = questions(text)
    return [
        [text.encode()[leaf.start : leaf.end].decode() for leaf in site.leaves]
        for site in question.sites
        if site.leaves[0].kind != "condition"
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert f(3) == 42", [["42"]]),
        ("assert 42 == f(3)", [["42"]]),
        ("assert f('x') == {'a b': [1, -2]}", [["1", "-2"]]),
        ("assert f(1) == pytest.approx(0.25, rel=1e-3)", [["0.25"]]),
        ("assert 'two words' in f(1)", [["'two words'"]]),
        ("assert f(1).startswith('begin')", [["'begin'"]]),
        ("assert f(1) is True", [["True"]]),
        ("assert f(1) == [24 + 23, 7]", [["24", "7"]]),  # 25 + 22 would be right, too
        ("assert f(1) == {'a', 'b'}", [["'a'"]]),
        ("assert f(1) == {'a': 1, 'b': 1}", [["1", "1"]]),
        ("assert f(1) == {'a': None, 'b': g()}", [["'a'"]]),
        ("assert f(1) == sum([3, 4])", [["3"]]),
        ("assert f(1) == ('some'\n      ' more')", [["'some'\n      ' more'"]]),
        ("got = f(3)\n    assert got == 'some\\nlines'", [["'some\\nlines'"]]),
        ("wanted = 'some'\n    assert f(3) == wanted", [["'some'"]]),
        ("for a, b in [(1, 2), (3, 4)]:\n        assert f(a) == b", [["2", "4"]]),
        ("self.assertEqual(f(1), 'one')", [["'one'"]]),
        ("check_words(f(1), 'one')", [["'one'"]]),
        ("with pytest.raises(SystemExit, match='no way'):\n        f(1)", [["'no way'"]]),
        ("with pytest.raises(KeyboardInterrupt):\n        f(1)", []),
        ("assert f(1) == f(2)", []),
        ("assert f(1) == Point(3, y=4)", [["3"]]),
        ("f(1)", []),
    ],
)
def test_an_expectation_is_what_is_made_of_literals(body: str, found: list[list[str]]) -> None:
    assert leaves(f"def test_x():\n    {body}\n") == found


def test_every_row_of_a_table_is_a_question_of_its_own() -> None:
    text = (
        "@pytest.mark.parametrize('a, b', [(1, 'one'), pytest.param(2, 'two', id='x')], )\n"
        "@pytest.mark.parametrize('c', [True, False], ids=['yes', 'no'])\n"
        "async def test_x(a, b, c):\n    assert await f(a, c) == b\n"
    )
    rows = questions(text)
    assert len(rows) == 4
    path = f"{FILE}::tests.test_a::test_x"
    ids = [f"{path}[{name}]" for name in ("yes-1-one", "yes-x", "no-1-one", "no-x")]
    assert [row.tests for row in PYTHON.matched(rows, ids)] == [(test,) for test in ids]
    paper = sitting(rows, [], PYTHON, {FILE: text.encode()}, (4, 2), "s", random.Random(1))
    tables = [
        [ast.unparse(one.args[1]) for one in node.decorator_list if isinstance(one, ast.Call)]
        for node in ast.parse(paper.files[FILE]).body
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert len(tables) == 4 * 4  # two options of the last site, the condition, and two of the row
    for first, second in tables:
        assert len(ast.literal_eval(second)) == 1
        assert len(getattr(ast.parse(first, mode="eval").body, "elts", ())) == 1


def test_what_a_row_computes_when_the_file_is_loaded_is_not_varied() -> None:
    text = (
        "@pytest.mark.parametrize('a, b, c', [(1, Colour('red'), 'tea')])\n"
        "def test_x(a, b, c):\n    assert f(a) == b\n    assert g(a) == c\n"
    )
    assert leaves(text) == [["'tea'"]]


def test_rows_that_cannot_be_told_apart_are_no_questions() -> None:
    rows = questions(
        "@pytest.mark.parametrize('a', [1, 2])\ndef test_x(a):\n    assert f(a) == 'one'\n"
    )
    path = f"{FILE}::tests.test_a::test_x"
    assert PYTHON.matched(rows, [f"{path}[1]", f"{path}[2]", f"{path}[3]"]) == []


def test_tests_of_classes_are_told_by_the_classes_of_their_ids() -> None:
    text = "class TestA:\n    def test_x(self):\n        assert f() == 'one'\n"
    text += text.replace("TestA", "TestB")
    found = PYTHON.matched(questions(text), [f"{FILE}::tests.test_a.TestB::test_x"])
    assert [one.tests for one in found] == [(f"{FILE}::tests.test_a.TestB::test_x",)]
    assert found[0].start > len(text) // 2


@pytest.mark.parametrize(
    "literals",
    [
        [Literal(42)],
        [Literal(0.25)],
        [Literal("one")],
        [Literal("several words here, and more")],
        [Literal("3 of 12")],
        [Literal(True), Literal(False), Literal("x"), Literal(7)],
    ],
)
def test_options_are_different_and_the_true_one_is_among_them(literals: list[Literal]) -> None:
    words = ["other", "words", "are", "more", "x", "y"]
    assert capacity(literals) == 4
    for seed in range(20):
        found = options(literals, 4, words, random.Random(seed))
        assert len(set(found)) == 16
        assert found[0] == tuple(literal.value for literal in literals)


def test_the_true_option_is_no_centre() -> None:
    """Over many draws it lies on average as far from the others as they lie from one another."""
    text = "the first of several words that are there"
    words = ["which", "nobody", "here", "would", "expect", "today"]

    def far(one: Sequence[Value], other: Sequence[Value]) -> int:
        return sum(a != b for a, b in zip(str(one[0]).split(), str(other[0]).split(), strict=True))

    for seed in range(30):
        found = options([Literal(text)], 4, words, random.Random(seed))
        total = [sum(far(one, other) for other in found) for one in found]
        assert len(set(total)) == 1
    places = []
    for seed in range(200):
        window = [one[0] for one in options([Literal(50)], 4, [], random.Random(seed))]
        places.append(sorted(window, key=float).index(50))
    assert set(places) == set(range(16))


@pytest.mark.parametrize("value", ["", "->", None])
def test_what_has_no_words_tells_one_bit_or_nothing(value: str | None) -> None:
    if value is None:
        assert capacity([Literal(r"\d{2}", pattern=True)]) == 0
    else:
        assert capacity([Literal(value)]) == 1


def test_the_true_copy_is_renamed_and_written_as_the_others_are() -> None:
    paper, _ = asked('def test_x():\n    assert f(1) == "it\'s"\n')
    text = paper.files[FILE].decode()
    assert "test_x(" not in text
    assert '"it' in text
    names = [copy.name for copy in paper.copies]
    assert len(set(names)) == len(names) == 16
    assert sum(copy.right for copy in paper.copies) == 1
    order = [text.index(f"def {name}(") for name in names]
    assert order != sorted(order)


def test_conditions_are_rewritten_both_ways() -> None:
    (question,) = questions("def test_x():\n    assert f(1).ok\n")
    source = b"def test_x():\n    assert f(1).ok\n"
    found = variants(question, question.sites[0], PYTHON, source, 16, random.Random(1))
    assert found == [("(not not (f(1).ok))",), ("(not (f(1).ok))",)]
    assert question.sites[0].kind is VerdictKind.ONE_BIT


def asked(text: str) -> tuple[Paper, Question]:
    (found,) = questions(text)
    question = found.model_copy(update={"tests": (f"{FILE}::tests.test_a::{found.name}",)})
    sites = tuple(site for site in found.sites if site.leaves[0].kind != "condition")
    question = question.model_copy(update={"sites": sites})
    return sitting(
        [question], [], PYTHON, {FILE: text.encode()}, (16, 4), "s", random.Random(2)
    ), question


def report(paper: Paper, right: Status | None, wrong: Status | None) -> TestReport:
    statuses = [(copy.name, right if copy.right else wrong) for copy in paper.copies]
    return TestReport(
        cases=tuple(
            TestCase(id=f"{FILE}::tests.test_a::{name}", status=status)
            for name, status in statuses
            if status is not None
        )
    )


def test_only_a_report_that_follows_is_believed() -> None:
    paper, _ = asked("def test_x():\n    assert f(1) == 'one'\n")
    P, F = Status.PASS, Status.FAIL
    assert paper.faults(report(paper, P, F)) == {}
    assert paper.faults(report(paper, P, Status.ERROR)) == {}
    for right, wrong in itertools.product((P, F, Status.SKIP, Status.XFAIL, None), repeat=2):
        faults = paper.faults(report(paper, right, wrong))
        if (right, wrong) != (P, F):
            assert len(faults) == (right is not P) + 15 * (wrong is not F)
        if wrong is P:
            assert "forged" in faults.values()


def test_every_form_of_the_zoo_has_a_site() -> None:
    found = {question.name for question in questions(NEW_TESTS) if question.sites}
    every = {question.name for question in questions(NEW_TESTS) if "test" in question.name}
    assert every - found == {"test_setup"}


@pytest.mark.parametrize("text", ["def test_x(:", "\0", "x = 1\n"])
def test_a_file_without_tests_has_no_questions(text: str) -> None:
    assert questions(text) == []
    assert PYTHON.sites(FILE, b"\xff\xfe") == []


def test_a_place_beyond_the_file_changes_nothing_outside_the_test() -> None:
    """A verifier from elsewhere may hold any numbers."""
    leaf = Leaf(start=900, end=950, kind="text")
    site = Site(leaves=(leaf,), kind=VerdictKind.MANY, at=0)
    text = b"def test_x():\n    assert f(1) == 'one'\n"
    question = Question(
        file=FILE, start=0, end=len(text), name="test_x", name_at=4, tests=("t",), sites=(site,)
    )
    with pytest.raises(ValueError, match="not a literal"):
        variants(question, site, PYTHON, text, 16, random.Random(1))


PATCH = b"""\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,4 +1,4 @@
 class A:
     def f(self):
-        return 1
+        return 2
     def g(self): return 3
"""


def test_functions_that_a_patch_touches_raise() -> None:
    source = b"class A:\n    def f(self):\n        return 2\n    def g(self): return 3\n"
    lines = changed_lines(PATCH)
    assert lines == {"a.py": {3, 4}} or lines == {"a.py": {3}}
    assert touched_functions(source, {3}) == {"A.f"}
    stripped = gutted(source, {"A.f", "A.g"})
    assert stripped.count(b"raise NotImplementedError") == 2
    assert b"return 3" not in stripped
    ast.parse(stripped)
