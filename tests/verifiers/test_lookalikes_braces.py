"""Look-alikes in the languages with braces: what is found in their tests, and how it is written."""

from __future__ import annotations

import random

import pytest

from envgen.core.code_types import CodeLanguage, Leaf
from envgen.verifiers.lookalikes.paper import LANGUAGES, sitting, variants
from envgen.verifiers.lookalikes.scanning import Scanned

SCRIPT = """\
const { f, check } = require("../src/f.js");
describe("f", () => {
  it("gives words", async () => {
    // assert.strictEqual(f(0), "a comment")
    const pattern = /["'(]/;
    assert.strictEqual(f("(in"), "some words");
    assert.deepStrictEqual(f(2), { name: 'tea', sizes: [1, -2], on: true });
    expect(f(3)).toEqual([
      "first",
      "second",
    ]);
    expect(f(4)).not.toBe(5);
    checkWords(f(6), "input", "last one");
    const expected = "wanted";
    assert.ok(f(7).done);
    expect(f(8)).toMatchInlineSnapshot(
      `"{ cup: 'green' }"`,
    );
    expect(f(9)).toBe(`${cup} of tea`);
  });

  test('is empty', function () {
    assert.deepStrictEqual(f(""), []);
  });
});
"""
GO = """\
func TestWords(t *testing.T) {
	want := "two words"
	if got := F(1); got != want {
		t.Errorf("F(1) = %q, want %q", got, want)
	}
	if n := Count('x', "a"); n != 42 {
		t.Fatal(n)
	}
	assert.Equal(t, "equal", F(2))
	require.Len(t, G(3), 7)
	for _, tt := range []struct{ in, want string }{{in: "a", want: "b"}} {
		check(t, tt.in, tt.want)
	}
}
"""
JAVA = """\
class WordsTest {
    @Test
    @DisplayName("}")
    void words() throws Exception {
        assertEquals("some words", Words.of('x', "input"));
        assertThat(Words.of(2)).isEqualTo("more").hasSize(3);
        assertTrue(Words.any("input"));
    }
}
"""
JUNIT_4 = """\
import static org.junit.Assert.*;

public class WordsTest {
    @Test(timeout = 7) public void
    words() {
        assertEquals("a message", "some words", Words.of("input"));
        assertTrue("a " + "message", Words.any("input"));
        assertTrue(Words.any("more"));
        assertEquals("two words", Words.of("more"));
        assertEquals(0.25, Words.share("input"), 0.5);
        assertEquals("a message", 7, Words.count("input"));
    }
}
"""
PHP = """\
<?php
class WordsTest extends TestCase
{
    public function testWords(): void
    {
        # it's a comment
        $this->assertSame('it\\'s', Words::of("input"));
        $this->expectExceptionMessage("no such word");
        $this->assertSame([], Words::none());
    }
}
"""
FOUND: dict[CodeLanguage, tuple[str, dict[str, list[list[str]]]]] = {
    "javascript": (
        SCRIPT,
        {
            "gives words": [
                ['"some words"'],
                ["'tea'", "1", "-2", "true"],
                ['"first"', '"second"'],
                ['"last one"'],
                ['"wanted"'],
                ["f(7).done"],
                ["`\"{ cup: 'green' }\"`"],
            ],
            "is empty": [[" []"]],
        },
    ),
    "go": (GO, {"TestWords": [['"two words"'], ["42"], ['"equal"'], ["7"], ['"b"']]}),
    "java": (JAVA, {"words": [['"some words"'], ['"more"'], ["3"], ['Words.any("input")']]}),
    "php": (PHP, {"testWords": [["'it\\'s'"], ['"no such word"'], ["[]"]]}),
}


@pytest.mark.parametrize("language", FOUND)
def test_expectations_are_found_and_inputs_are_not(language: CodeLanguage) -> None:
    text, wanted = FOUND[language]
    questions = LANGUAGES[language].sites("a/test", text.encode())
    assert {
        one.name: [[text[leaf.start : leaf.end] for leaf in site.leaves] for site in one.sites]
        for one in questions
        if one.tests == ("",)
    } == wanted


def test_messages_before_expectations_are_not_varied() -> None:
    (question,) = LANGUAGES["java"].sites("a/test", JUNIT_4.encode())
    found = [[JUNIT_4[leaf.start : leaf.end] for leaf in site.leaves] for site in question.sites]
    truths = [[' Words.any("input")'], ['Words.any("more")']]
    assert found == [['"some words"'], *truths, ['"two words"'], ["0.25"], ["7"]]


@pytest.mark.parametrize("language", FOUND)
def test_copies_stand_in_the_place_of_their_test(language: CodeLanguage) -> None:
    text, _ = FOUND[language]
    rules = LANGUAGES[language]
    found = rules.sites("a/test", text.encode())
    questions = [one.model_copy(update={"tests": (f"a/test::x::{one.name}",)}) for one in found]
    paper = sitting(questions, [], rules, {"a/test": text.encode()}, (8, 2), "s", random.Random(3))
    content = paper.files["a/test"].decode()
    for question in questions:
        copies = [copy for copy in paper.copies if copy.question is question]
        assert sum(copy.right for copy in copies) == 1
        end = question.name_at + len(question.name) + 1
        assert text[question.start : end] not in content
        assert all(copy.name in content for copy in copies)
        name = copies[0].name
        assert copies[0].renamed(f"a/test::x > {question.name}") == f"a/test::x > {name}"
        mocha = f"test/a.js::{question.name}::f {question.name}"
        assert copies[0].renamed(mocha) == f"test/a.js::{name}::f {name}"
    scanned = Scanned(content, "\"'`", hashes=language == "php", patterns=language == "javascript")
    opening = scanned.text.index("{")
    assert scanned.closing(opening) is not None


@pytest.mark.parametrize("language", FOUND)
def test_values_are_written_as_they_are_read(language: CodeLanguage) -> None:
    rules = LANGUAGES[language]
    for text in ('"some words"', '"a \\"quoted\\" one\\n"', "7", "-2", "0.5", "true"):
        leaf = Leaf(start=0, end=len(text), kind="text")
        value = rules.known(text, leaf).value
        assert rules.known(rules.spell(value, text), leaf).value == value
        assert type(rules.known(rules.spell(value, text), leaf).value) is type(value)


def test_a_name_that_stands_twice_is_no_question() -> None:
    twice = 'test("a b", () => {\n  expect(f(1)).toBe("x y");\n});\n' * 2
    assert LANGUAGES["typescript"].sites("a.ts", twice.encode()) == []


@pytest.mark.parametrize("text", ['it("a b", () => { expect(f(1)).toBe("x', 'it("a b', "é", "\0"])
def test_a_torn_file_has_no_questions(text: str) -> None:
    assert LANGUAGES["javascript"].sites("a.js", text.encode()) == []


def test_ids_are_matched_by_their_ends() -> None:
    rules = LANGUAGES["javascript"]
    found = rules.sites("test/a.test.js", SCRIPT.encode())
    ids = ["test/a.test.js::f::gives words", "f > is empty", "f > is empty too"]
    assert [one.tests for one in rules.matched(found, ids)] == [(ids[0],), (ids[1],)]


def test_an_empty_list_and_a_condition_have_opposites() -> None:
    rules = LANGUAGES["php"]
    found = rules.sites("a/test", PHP.encode())[0]
    forms = variants(found, found.sites[-1], rules, PHP.encode(), 16, random.Random(1))
    assert forms == [("[]",), ("[7]",)]
    assert rules.conditions("$a->ok()") == ("!!($a->ok())", "!($a->ok())")


TABLE = """\
func TestTable(t *testing.T) {
	tests := []struct {
		name, in string
		want int
	}{
		{name: "a first row", in: "x", want: 11},
		{"no names", "y", 12},
	}
	byName := map[string]struct{ wanted string }{
		"its key": {wanted: "some words"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := F(tt.in); got != tt.want {
				t.Error("no")
			}
		})
	}
}
"""


def test_a_row_of_go_is_a_question_about_its_subtest() -> None:
    rules = LANGUAGES["go"]
    found = rules.sites("a_test.go", TABLE.encode())
    ids = ["m/p::TestTable", "m/p::TestTable/a_first_row", "m/p::TestTable/its_key"]
    matched = rules.matched(found, [*ids, "m/p::TestTable/no_names", "m/p::TestTables/its_key"])
    rows = [
        (one.tests, [TABLE[leaf.start : leaf.end] for site in one.sites for leaf in site.leaves])
        for one in matched
    ]
    assert rows == [
        ((ids[0],), ["11", '"some words"']),
        ((ids[1],), ["11"]),
        ((ids[2],), ['"some words"']),
    ]
    paper = sitting(
        matched[1:2], [], rules, {"a_test.go": TABLE.encode()}, (4, 2), "s", random.Random(1)
    )
    keys = {copy.renamed(ids[1]) for copy in paper.copies}
    assert keys == {f"m/p::{copy.name}/a_first_row" for copy in paper.copies}


def test_no_number_of_go_is_turned_below_0() -> None:
    """Of an unsigned type it would break its package, and so the gold patch would score 0."""
    text = "func TestSmall(t *testing.T) {\n\twant := 5\n\tassert.Equal(t, 0, F())\n}\n"
    rules = LANGUAGES["go"]
    (found,) = rules.sites("a_test.go", text.encode())
    assert [text[site.leaves[0].start : site.leaves[0].end] for site in found.sites] == ["5"]
    for seed in range(50):
        draw = random.Random(seed)
        forms = variants(found, found.sites[0], rules, text.encode(), 16, draw)
        assert len(forms) == 4
        assert min(int(value) for (value,) in forms) >= 0


EACH = """\
it.each([["a", "b c"], ["d", "e f"]])("turns %s", (from, expected) => {
  expect(turn(from)).toBe(expected);
});
it("is plain", () => { expect(turn("a")).toBe("b c"); });
"""
PROVIDED = """\
<?php
class RowsTest extends TestCase
{
    /** @dataProvider rows */
    public function testRows(string $from, string $wanted): void
    {
        $this->assertSame($wanted, Words::turn($from));
        $this->assertSame("some words", Words::none());
    }

    public function rows(): array
    {
        return [["a", "b c"]];
    }
}
"""
CSV = """\
class RowsTest {
    @ParameterizedTest
    @CsvSource({"a, b c", "d, e f"})
    void rows(String from, String expected) {
        assertEquals("some words", Words.of(from));
    }
}
"""


@pytest.mark.parametrize(
    ("language", "text", "names"),
    [("javascript", EACH, ["is plain"]), ("php", PROVIDED, []), ("java", CSV, [])],
)
def test_tables_outside_the_test_have_no_questions(
    language: CodeLanguage, text: str, names: list[str]
) -> None:
    """Cases of theirs are reported as believed, never as proven by another's expectation."""
    found = LANGUAGES[language].sites("a/test", text.encode())
    assert [one.name for one in found if one.sites] == names
