"""Which tests are copied, and how the copies are made to fail."""

from __future__ import annotations

import random

import pytest

from envgen.core.code_types import CodeLanguage, Status
from envgen.verifiers.failing_copies import Copied, failing_copies
from envgen.verifiers.inline_canaries import Inline, inline_canaries

MOCHA = """\
describe("cart", function () {
  it("adds up, twice", async () => {
    const cart = new Cart();
    expect(await cart.total("a, b", [1, 2])).to.deep.equal({ a: 1 });
  });

  it("is empty", function () {
    assert.strictEqual(new Cart().size, 0, "size");
  });

  it("waits", (done) => {
    later(done);
  });

  it("leaves early", () => {
    if (quick) return;
    assert(true);
  });

  it("is not small", () => {
    expect(1).not.toBe(2);
    expect(`a ${b} "c`).toBe(true); // so it is
  });
});
"""
GO = """\
package cart

func TestTotal(t *testing.T) {
	for _, c := range cases {
		if got := total(c); got != c.want {
			t.Errorf("no")
		}
	}
}

func TestEmpty(tt *testing.T) {
	require.Equal(tt, 0, total(nil), "none")
}

func BenchmarkTotal(b *testing.B) {
}
"""
JAVA = """\
class CartTest {
    @Test
    void totals() throws Exception {
        assertEquals(7, cart.total("a, (b"));
        cart.close();
    }

    @Test
    @Disabled
    void later() {
        assertTrue(false);
    }

    @ParameterizedTest
    void each() {
        assertTrue(cart.isEmpty());
    }

    void helper() {
        assertNull(null);
    }

    @Test
    void isEmpty() {
        assertThat(cart.names()).isEqualTo(List.of());
    }
}
"""
PHP = """\
class CartTest extends TestCase
{
    public function testTotal(): void
    {
        $cart = new Cart;
        self::assertSame(7, $cart->total(['a' => 1]), 'total');
    }

    public function testFails(): void
    {
        $this->expectException(Error::class);
        (new Cart)->fail();
    }

    public function test_is_empty() {
        $this->assertTrue((new Cart)->isEmpty());
    }
}
"""


def copied(language: CodeLanguage, text: str) -> Copied:
    found = failing_copies(language, text, random.Random(1))
    assert found is not None
    return found


def added(language: CodeLanguage, text: str) -> dict[str, list[str]]:
    """Lines that are not in the text, by the test that was copied; nothing is taken away."""
    found = copied(language, text)
    lines = iter(found.text.split("\n"))
    assert all(line in lines for line in text.split("\n")), "a line is gone"
    new = [line.strip() for line in found.text.split("\n") if line not in text.split("\n")]
    return {original: [line for line in new if name in line] for original, name in found.pairs} | {
        "": new
    }


def test_sentences_of_javascript_are_copied_with_another_expectation() -> None:
    found = added("typescript", MOCHA)
    assert set(found) == {"adds up, twice", "is empty", ""}
    assert found["is empty"][0].startswith('it("is empty ')
    changed = [line for line in found[""] if line.startswith(("expect", "assert"))]
    assert len(changed) == 2
    assert changed[0].startswith('expect(await cart.total("a, b", [1, 2])).to.deep.equal("')
    assert changed[1].startswith('assert.strictEqual(new Cart().size, "')
    assert changed[1].endswith(', "size");')


def test_in_go_the_wanted_value_of_testify_is_changed_or_the_copy_fails_at_its_end() -> None:
    found = added("go", GO)
    assert set(found) == {"TestEmpty", ""}
    assert [line for line in found[""] if line.startswith('require.Equal(tt, "')]
    plain = added("go", GO.replace("require.Equal(tt, 0", "check(tt, 0"))
    assert [line for line in plain[""] if line.startswith('tt.Error("')]


def test_in_java_only_plain_tests_are_copied() -> None:
    found = added("java", JAVA)
    assert set(found) == {"totals", "isEmpty", ""}
    assert [line for line in found[""] if line.startswith('assertEquals("')]
    assert [line for line in found[""] if line.startswith('assertThat(cart.names()).isEqualTo("')]
    assert copied("java", JAVA).text.count("@Test") == JAVA.count("@Test") + 2


def test_in_php_tests_that_expect_exceptions_are_left_alone() -> None:
    found = added("php", PHP)
    assert set(found) == {"testTotal", "test_is_empty", ""}
    assert found["test_is_empty"][0].startswith("public function test_is_empty_")
    assert "$this->assertTrue(!((new Cart)->isEmpty()));" in found[""]


@pytest.mark.parametrize("language", ["javascript", "go", "java", "php", "c", "python"])
@pytest.mark.parametrize(
    "text", ["", "}\n", 'it("a b", () => {', "@Test\nvoid x() {\n", "\0\\'\"`"]
)
def test_what_is_not_understood_is_left_alone(language: CodeLanguage, text: str) -> None:
    assert failing_copies(language, text, random.Random(1)) is None


def test_names_are_drawn_and_tests_are_not() -> None:
    first, second = (failing_copies("go", GO, random.Random(n)) for n in (1, 2))
    assert first is not None
    assert second is not None
    assert [pair[0] for pair in first.pairs] == [pair[0] for pair in second.pairs]
    assert first.pairs != second.pairs


def canary() -> Inline:
    (found,) = inline_canaries("go", {"cart_test.go": GO.encode()}, random.Random(1))
    return found


def test_a_copy_that_passes_or_vanishes_is_a_contradiction() -> None:
    copy = canary()
    honest = {"a/cart::TestEmpty": Status.PASS, f"a/cart::{copy.name}": Status.FAIL}
    assert copy.fault(honest) == ""
    assert not copy.missing(honest)
    assert "must fail" in copy.fault({**honest, f"a/cart::{copy.name}": Status.PASS})
    assert "is missing" in copy.fault({"a/cart::TestEmpty": Status.PASS})
    assert copy.missing({"a/cart::TestEmpty": Status.PASS})
    assert copy.fault({"a/cart::TestEmpty": Status.FAIL}) == ""
    assert copy.fault({"a/cart::[build]": Status.ERROR}) == ""


def test_parts_of_a_copy_are_its_own() -> None:
    copy = canary()
    assert copy.names(f"a/cart::{copy.name}/part")
    assert not copy.names("a/cart::TestEmpty/part")
    statuses = {f"a/cart::{copy.name}/part": Status.PASS, f"a/cart::{copy.name}": Status.FAIL}
    assert copy.fault(statuses) == ""


def test_text_that_is_no_utf8_gets_no_canary() -> None:
    assert inline_canaries("php", {"a/ATest.php": b"\xff" + PHP.encode()}) == ()
