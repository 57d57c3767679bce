"""What a statement says too little of."""

from __future__ import annotations

import pytest

from envgen.pipelines.code.leaks import untold, vague

GOLD = """diff --git a/routes.go b/routes.go
--- a/routes.go
+++ b/routes.go
@@ -1,1 +1,4 @@ package routes
 func oldName() {}
+func (r *Route) GetVarNames() ([]string, error) {
+	return nil, nil
+}
"""
TESTS = """diff --git a/routes_test.go b/routes_test.go
--- a/routes_test.go
+++ b/routes_test.go
@@ -1,1 +1,4 @@ package routes
 func TestOld(t *testing.T) {}
+func TestNames(t *testing.T) {
+	route.GetVarNames()
+}
"""


def test_names_that_only_tests_and_fix_know_are_untold() -> None:
    assert untold("Routes should tell their variables.", GOLD, TESTS) == ("GetVarNames",)
    assert untold("Add Route.GetVarNames().", GOLD, TESTS) == ()
    assert untold("Routes should tell.", GOLD, TESTS.replace("GetVarNames", "oldName")) == ()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("expect(titleCase('a b')).toBe('A B')", ("titleCase",)),
        ("const titleCase = 3", ()),  # the test's own
        ("    title_case = make()", ()),
        ("def title_case(x):", ()),
        ("for title_case in rows:", ()),
        ("check(title_case=True)", ("title_case",)),  # an argument by name is the fix's
        ("assert title_case == 3", ("title_case",)),
    ],
)
def test_a_name_that_a_test_makes_itself_need_not_be_told(
    line: str, names: tuple[str, ...]
) -> None:
    """As in unjs/scule: the statement names another function than the tests import."""
    gold = GOLD.replace("func (r *Route) GetVarNames()", "export function titleCase() title_case")
    tests = TESTS.replace("	route.GetVarNames()", line).replace("TestNames", "a")
    assert untold("Add trainCase.", gold, tests) == names


@pytest.mark.parametrize(
    ("statement", "kind", "why"),
    [
        (" \n", "issue", "empty"),
        ("Fix it", "commit", "bare commit title"),
        ("Fix it", "issue", ""),
        ("Fix it\n\nSums are wrong.", "commit", ""),
    ],
)
def test_a_statement_s_form_shows_that_it_says_nothing(statement: str, kind: str, why: str) -> None:
    found = vague(statement, kind)
    assert why in found
    assert bool(found) is bool(why)
