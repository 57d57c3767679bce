"""Look-alikes in C and C++: what is found in their tests, and how the options are compiled and chosen."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from pathlib import Path

import pytest
from code_runs import need

from envgen.core.code_types import CodeLanguage, Question, Status, TestCase, TestReport
from envgen.verifiers.lookalikes.paper import LANGUAGES, Paper, compiled, sitting

GTEST = """\
TEST(Words, Counts) { EXPECT_EQ(count("two words"), 2u); }
TEST_F(Words, Joins) {
    // EXPECT_EQ(join(1), "a comment")
    ASSERT_STREQ("some words", join("some", "words"));
    EXPECT_EQ(sizes("input"), (std::vector<int>{1, 2}));
    EXPECT_EQ(Numbers({3, 4}), sizes("other"));
    EXPECT_TRUE(done(7));
}
"""
CATCH = """\
TEST_CASE("words are joined", "[words]") {
    SECTION("two") {
        REQUIRE(join("some", "words") == "some words");
        CHECK(count("in") == 5 && open("in") == true);
    }
}
"""
CHECK = """\
START_TEST(test_words)
{
    ck_assert_int_eq(count("in"), 12);
    ck_assert_str_eq(join("in"), "some "
                                 "words");
    ck_assert(strcmp(join("in"), "alike") == 0);
}
END_TEST
"""
PLAIN = """\
#define CHECK(a, b) if ((a) != (b)) abort()
int main(int words, char **word) {
    if (strcmp(word[1], "choose") == 0) return 5;
    if (count("in") != 4) return 1;
    if (strcmp(join("in"), "wanted") != 0) return 2;
    is_equal("described so", join("in"), "text", 0);
    STR_EQ(runner, join("in"), "this", "and why");
    TEST(lists_equal(list, parse("[1, 2]")) && lists_equal(parse("in"), parse("both")));
    TEST(parse("in"));
    assert(7 == count(R"(a "quoted" input, (open)"));
    printf("not %d\\n", 3);
}
"""
FOUND: dict[str, tuple[str, dict[str, list[list[str]]]]] = {
    "gtest": (
        GTEST,
        {
            "Words::Counts": [["2u"]],
            "Words::Joins": [['"some words"'], ["1", "2"], ["3", "4"]],
        },
    ),
    "catch": (CATCH, {"words are joined": [['"some words"'], ["5"], ["true"]]}),
    "check": (CHECK, {}),
    "plain": (PLAIN, {}),
}
WHOLE = {
    "check": [["12"], ['"some "\n                                 "words"'], ['"alike"']],
    "plain": [["4"], ['"wanted"'], ['"text"'], ['"this"'], ['"[1, 2]"']],
}


def texts(source: str, question: Question) -> list[list[str]]:
    return [[source[leaf.start : leaf.end] for leaf in site.leaves] for site in question.sites]


@pytest.mark.parametrize("kind", FOUND)
def test_expectations_are_found_and_inputs_and_messages_are_not(kind: str) -> None:
    source, wanted = FOUND[kind]
    whole, *named = LANGUAGES["cpp"].sites("tests/words.cpp", source.encode())
    assert {one.name: texts(source, one) for one in named} == wanted
    assert texts(source, whole) == WHOLE.get(kind, list(itertools.chain(*wanted.values())))


@pytest.mark.parametrize(
    ("kind", "ids", "wanted"),
    [
        ("gtest", ["tests/words.cpp::Words::Joins", "Other.Joins::Other.Joins"], [0]),
        ("gtest", ["Words.Joins::Words.Joins", "Words.Counts::Words.Counts"], [1, 0]),
        ("catch", ["t.global::words are joined/two", "t.global::words are joined too"], [0]),
        ("check", ["check_words::check_words"], [0]),
        ("gtest", ["unit::unit"], [0]),
    ],
)
def test_a_test_is_found_by_its_name_and_a_program_by_trying(
    kind: str, ids: list[str], wanted: list[int]
) -> None:
    rules = LANGUAGES["c"]
    found = rules.sites("tests/check_words.c", FOUND[kind][0].encode())
    matched = rules.matched(found, ids)
    assert [one.tests for one in matched] == [(ids[n],) for n in wanted]


PROGRAM = """\
#include <stdio.h>
#include <string.h>

static int failed;
static void check_text(const char *found, const char *wanted) { failed |= strcmp(found, wanted) != 0; }
static void check_number(double found, double wanted) { failed |= found != wanted; }

int main(void) {
    check_text("some \\"words\\"\\n", "some "
        "\\"words\\"\\n");
    check_number(7, 7u);
    check_number(0.5, 0.5);
    return failed;
}
"""


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    whole = LANGUAGES["c"].sites("words.c", PROGRAM.encode())[0]
    assert len(whole.sites) == 3
    return [
        whole.model_copy(update={"tests": (f"test {n}",), "sites": (site,)})
        for n, site in enumerate(whole.sites)
    ]


def run(paper: Paper, folder: Path, language: CodeLanguage) -> list[int]:
    """Compile the program once; its exit code in each round."""
    source = folder / ("words.c" if language == "c" else "words.cpp")
    source.write_bytes(paper.files["words.c"])
    compiler = "cc" if language == "c" else "c++"
    built = [compiler, "-Wall", "-Werror", "-o", str(folder / "words"), str(source)]
    subprocess.run(built, check=True, capture_output=True)
    return [
        subprocess.run([folder / "words"], env={**os.environ, paper.variable: value}).returncode
        for value in paper.values
    ]


@pytest.mark.toolchain
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_a_program_passes_in_the_rounds_of_the_true_options_alone(
    language: CodeLanguage, questions: list[Question], tmp_path: Path
) -> None:
    need({"c": "cc", "cpp": "c++"}[language], apt="gcc g++")
    sources = {"words.c": PROGRAM.encode()}
    asked = [(one, one.sites[0], 8) for one in questions]
    paper = compiled(LANGUAGES[language], sources, asked, random.Random(1), apart=True)
    codes = run(paper, tmp_path, language)
    assert len(codes) == 3 * 8  # one after another: they are of one program
    assert {copy.round for copy in paper.copies if copy.right} == {
        n for n, code in enumerate(codes) if not code
    }


def test_what_is_judged_at_once_never_shows_a_true_option_early(questions: list[Question]) -> None:
    """Else a program could remember it for the round in which it is asked for it."""
    sources = {"words.c": PROGRAM.encode()}
    paper = sitting(questions, [], LANGUAGES["c"], sources, (8, 2), "s", random.Random(1))
    assert len(paper.values) == 8
    for place in range(len(questions)):
        assert len({value[place] for value in paper.values}) == 8


def test_a_report_is_judged_round_by_round(questions: list[Question]) -> None:
    sources = {"words.c": PROGRAM.encode()}
    paper = sitting(questions[:1], [], LANGUAGES["c"], sources, (4, 2), "s", random.Random(1))
    right = next(copy.round for copy in paper.copies if copy.right)

    def faults(statuses: list[Status]) -> set[str]:
        cases = tuple(
            TestCase(id=f"{n}::test 0", status=status) for n, status in enumerate(statuses)
        )
        return set(paper.faults(TestReport(cases=cases)).values())

    honest = [Status.PASS if n == right else Status.FAIL for n in range(4)]
    assert faults(honest) == set()
    assert faults([Status.PASS] * 4) == {"forged"}
    assert faults([Status.FAIL] * 4) == {"failed"}
    assert faults(honest[:2]) == {"missing"} | ({"missing"} if right else set())
