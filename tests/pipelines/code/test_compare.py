from __future__ import annotations

import pytest

from envgen.core.code_types import Status, TestCase, TestReport
from envgen.pipelines.code.compare import Kind, PatchEffect, State, compare, file_of, merge, stem

P, F, E, S, X = Status.PASS, Status.FAIL, Status.ERROR, Status.SKIP, Status.XFAIL
FILE = "tests/test_a.py"
A = f"{FILE}::tests.test_a::"
B = "tests/test_b.py::tests.test_b::"


def report(statuses: dict[str, Status]) -> TestReport:
    return TestReport(cases=tuple(TestCase(id=k, status=v) for k, v in statuses.items()))


def state(statuses: dict[str, Status] | None) -> State:
    return merge([None if statuses is None else report(statuses)])


def judge(
    base: dict[str, Status] | None,
    before: dict[str, Status] | None,
    after: dict[str, Status],
    files: tuple[str, ...] = (FILE,),
) -> PatchEffect:
    return compare(state(base), state(before), state(after), files)


def test_a_fixed_and_a_kept_test() -> None:
    found = judge(
        {A + "old": P, A + "red": F},
        {A + "old": P, A + "new": F, A + "red": F},
        {A + "old": P, A + "new": P, A + "red": F},
    )
    assert found.fail_to_pass == (A + "new",)
    assert found.pass_to_pass == (A + "old",)
    assert found.pass_to_fail == ()
    assert found.kinds == {A + "new": Kind.FAILED, A + "red": Kind.FAILS}


def test_a_broken_test_is_pass_to_fail() -> None:
    found = judge(
        {A + "x": P, B + "y": P},
        {A + "x": P, B + "y": P, A + "n": E},
        {A + "x": F, B + "y": P, A + "n": P},
    )
    assert found.pass_to_fail == (A + "x",)
    assert found.fail_to_pass == (A + "n",)


def test_a_test_that_vanishes_after_the_gold_patch_is_lost() -> None:
    found = judge({B + "y": P}, {B + "y": P, A + "n": F}, {A + "n": P})
    assert found.pass_to_fail == (B + "y",)


def test_a_test_that_the_gold_patch_skips_is_lost() -> None:
    assert judge({B + "y": P}, {B + "y": P}, {B + "y": S}).pass_to_fail == (B + "y",)


def test_a_test_that_the_test_patch_skips_is_nobodys_fault() -> None:
    found = judge({A + "y": P}, {A + "y": S}, {A + "y": S})
    assert found.pass_to_fail == ()
    assert found.kinds == {A + "y": Kind.SKIPPED}


def test_a_test_broken_by_the_test_patch_and_not_mended_is_lost() -> None:
    assert judge({A + "y": P}, {A + "y": F}, {A + "y": F}).pass_to_fail == (A + "y",)


def test_removed_and_renamed_tests_are_told_apart_from_lost_ones() -> None:
    removed = judge({A + "y": P, B + "z": P}, {B + "z": P}, {B + "z": P})
    assert removed.pass_to_fail == ()
    assert removed.kinds == {A + "y": Kind.REMOVED}
    renamed = judge({A + "y": P}, {A + "y2": F}, {A + "y2": P})
    assert renamed.kinds == {A + "y": Kind.RENAMED, A + "y2": Kind.FAILED}
    untouched = judge({B + "y": P}, {A + "n": F}, {A + "n": P})
    assert untouched.pass_to_fail == (B + "y",)


def test_a_collection_error_makes_new_tests_fail_to_pass_and_untouched_ones_kept() -> None:
    found = judge(
        {A + "old": P, B + "other": P},
        {"::tests.test_a": E, B + "other": P},
        {A + "old": P, A + "new": P, B + "other": P},
    )
    assert found.fail_to_pass == (A + "new", A + "old")
    assert found.pass_to_pass == (B + "other",)
    assert found.pass_to_fail == ()
    assert set(found.kinds.values()) == {Kind.NOT_BUILT}


def test_a_collection_error_of_another_file_says_nothing_about_this_one() -> None:
    found = judge({}, {"::tests.test_b": E}, {A + "new": P, B + "b": P})
    assert found.fail_to_pass == (B + "b",)
    assert found.kinds[A + "new"] is Kind.MISSING


def test_a_tree_that_does_not_build_before() -> None:
    found = judge({"pkg::TestOld": P}, None, {"pkg::TestOld": P, "pkg::TestNew": P})
    assert found.fail_to_pass == ("pkg::TestNew",)
    assert found.pass_to_pass == ("pkg::TestOld",)


def test_without_files_what_did_not_build_is_fail_to_pass_if_nothing_else_is() -> None:
    found = judge({"pkg::TestOld": P}, None, {"pkg::TestOld": P})
    assert found.fail_to_pass == ("pkg::TestOld",)
    assert found.pass_to_pass == ()


def test_a_class_whose_setup_fails_stands_for_its_members() -> None:
    found = judge({}, {"::com.x.FooTest": E}, {"com.x.FooTest::a": P, "com.x.FooTest::b": P})
    assert found.fail_to_pass == ("com.x.FooTest::a", "com.x.FooTest::b")


def test_a_package_that_does_not_build_stands_for_its_tests() -> None:
    old, new, other = "x.org/m/a::TestOld", "x.org/m/a::TestNew", "x.org/m/b::TestB"
    found = judge(
        {old: P, other: P}, {"x.org/m/a::[build]": E, other: P}, {old: P, new: P, other: P}
    )
    assert found.fail_to_pass == (new,)
    assert found.pass_to_pass == (old, other)
    everything = judge({}, {"build::[build]": E}, {"C::a": P})
    assert everything.fail_to_pass == ("C::a",)
    always = {"x.org/m/c::[build]": E}
    found = judge(always, always | {old: P}, always | {old: P, new: P})
    assert found.fail_to_pass == ()
    assert found.kinds[new] is Kind.MISSING


def test_absence_alone_proves_nothing() -> None:
    found = judge({}, {A + "x": P}, {A + "x": P, A + "y": P})
    assert found.fail_to_pass == ()
    assert found.kinds == {A + "y": Kind.MISSING}


def test_parameters_that_the_change_adds_or_drops_judge_nobody() -> None:
    found = judge(
        {A + "t[1]": P}, {A + "t[1]": P, A + "t[2]": P}, {A + "t[1]": P, A + "t[3]": P, B + "u": P}
    )
    assert found.fail_to_pass == ()
    assert found.pass_to_fail == ()
    assert found.kinds[A + "t[3]"] is Kind.PARAMETRISED
    assert found.kinds[A + "t[2]"] is Kind.PARAMETRISED


def test_tests_that_skipped_before_or_are_expected_to_fail_are_not_fixed() -> None:
    found = judge({}, {A + "s": S, A + "x": F, A + "k": X}, {A + "s": P, A + "x": X, A + "k": X})
    assert found.fail_to_pass == ()
    assert found.pass_to_pass == (A + "k",)


def test_unstable_tests_judge_nobody() -> None:
    def several(*runs: dict[str, Status]) -> State:
        return merge([report(run) for run in runs])

    found = compare(
        several({A + "f": P}, {A + "f": P}),
        several({A + "f": P, A + "n": F}, {A + "f": F, A + "n": F}),
        several({A + "f": F, A + "n": P, A + "now[12:01]": P}, {A + "f": F, A + "n": P}),
        [FILE],
    )
    assert found.unstable == (A + "f", A + "now[12:01]")
    assert found.pass_to_fail == ()
    assert found.fail_to_pass == (A + "n",)


def test_a_build_that_works_only_sometimes_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 runs"):
        merge([None, report({A + "x": P})])
    with pytest.raises(ValueError, match="at least one run"):
        merge([])


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (A + "t[a::b-3]", A + "t"),
        ("pkg::TestX/sub/3", "pkg::TestX/sub"),
        ("C::testAdd with data set #1", "C::testAdd"),
        ("C::param(int)[1]", "C::param"),
        ("C::[odd]", "C::[odd]"),
    ],
)
def test_stems_lack_parameters(test: str, expected: str) -> None:
    assert stem(test) == expected


def test_files_are_known_only_where_the_runner_tells_them() -> None:
    assert file_of(A + "t[x::y]") == FILE
    assert file_of("pkg.Class::name") == ""
    assert file_of("::tests.test_a") == ""
