"""The checker of chains: what it refuses and why, and that what it accepts is true in finite models."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_chains import MODELS, holds, shows

from envgen.core.errors import PipelineError
from envgen.core.seeding import rng
from envgen.pipelines.proof.derive_chain import ALGEBRAS, GROUP, LEVELS, derive_chain
from envgen.pipelines.proof.spoil_chain import CHAIN_KINDS, spoil_chain
from envgen.verifiers import equational
from envgen.verifiers.equational import Algebra, check_chain
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS, ProofTextError
from envgen.verifiers.terms import MAX_NESTED, MAX_SYMBOLS, read_equation, read_term

GOAL = read_equation("mul(mul(inv(a), a), b) = b", GROUP.signature)
PROOF = """
1. mul(mul(inv(a), a), b)
2. = mul(e, b)              [left-inverse at 1]
3. = b                      [left-unit at root with x := b]
"""
SPOILT = [
    ("left-inverse at 1", "left-inverse at 2", 2, "does not make"),
    ("left-inverse at 1", "left-inverse at 1.1", 2, "does not make"),
    ("left-inverse at 1", "left-inverse at 7", 2, "does not make"),
    ("left-inverse at 1", "left-inverse backwards at 1", 2, "does not make"),
    ("left-inverse at 1", "right-inverse at 1", 2, "does not make"),
    ("left-inverse at 1", "left-inverse at 1 with x := b", 2, "does not make"),
    ("left-inverse at 1", "left-inverse at 1 with y := b", 2, "no variable of"),
    ("left-inverse at 1", "left-inverse at 1 with x := a, x := a", 2, "given twice"),
    ("left-inverse at 1", "left-inverse at 1 with x := y", 2, "unknown symbol 'y'"),
    ("left-inverse at 1", "left-inverse at 1 with x := mul(a", 2, "parenthesis"),
    ("left-inverse at 1", "magic at 1", 2, "there is no equation 'magic'"),
    ("left-inverse at 1", "left-inverse on 1", 2, "is no reason"),
    ("[left-inverse at 1]", "", 2, "looks like"),
    ("= mul(e, b)", "mul(e, b)", 2, "looks like"),
    ("= mul(e, b)", "= mul(e, c)", 2, "does not make"),
    ("= mul(e, b)", "= mul(e)", 2, "mul takes 2 arguments, not 1"),
    ("= mul(e, b)", "= mul(e, b, b)", 2, "mul takes 2 arguments, not 3"),
    ("= mul(e, b)", "= mul(e, b", 2, "parenthesis"),
    ("= mul(e, b)", "= mul(e, b))", 2, "should end"),
    ("= mul(e, b)", "= mul(e, x)", 2, "unknown symbol 'x'"),
    ("= mul(e, b)", "= e + b", 2, "unknown symbol at '+ b'"),
    ("= mul(e, b)", "= ", 2, "a term is missing"),
    ("2. =", "3. =", 2, "is numbered 3"),
    ("1. mul(mul(inv(a), a), b)", "1. mul(mul(inv(b), b), b)", 1, "the chain starts with"),
    ("\n3. = b                      [left-unit at root with x := b]", "", 2, "the chain ends with mul(e, b)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "reason"), SPOILT)
def test_the_first_wrong_line_is_named_with_its_reason(
    old: str, new: str, line: int, reason: str
) -> None:
    assert check_chain(PROOF, GROUP, GOAL).num_steps == 3
    assert PROOF.count(old) == 1
    verdict = check_chain(PROOF.replace(old, new), GROUP, GOAL)
    assert verdict.line == line
    assert reason in verdict.reason


def test_what_a_step_leaves_open_is_found_or_given() -> None:
    goal = read_equation("e = mul(inv(mul(a, b)), mul(a, b))", GROUP.signature)
    for by in ("", " at root", " with x := mul(a, b)", " at root with x := mul(a, b)"):
        text = f"1. e\n2. = {goal.right} [left-inverse backwards{by}]"
        assert check_chain(text, GROUP, goal).accepted
    wrong = f"1. e\n2. = {goal.right} [left-inverse backwards with x := a]"
    assert not check_chain(wrong, GROUP, goal).accepted
    assert not check_chain(
        "1. e\n2. = mul(inv(a), b) [left-inverse backwards]", GROUP, goal
    ).accepted


def test_hostile_texts_are_refused() -> None:
    for text in ("", "\n", "x" * (MAX_PROOF_CHARS + 1)):
        with pytest.raises(ProofTextError):
            check_chain(text, GROUP, GOAL)
    nested = MAX_NESTED + 2
    for text in ("inv(" * nested + "a" + ")" * nested, "inv(" * 600, "a" * 1_900, "a(" * 900, ")", "\ud800",
                 "a,b", "mul(a,,b)", "mul((a),b)", "a()", "\u0661", "a" + " " * 3_000 + "b"):  # fmt: skip
        assert check_chain(f"1. {text}", GROUP, GOAL).line == 1
    wide = "mul(a, " * 50 + "a" + ")" * 50
    deep = Algebra.read({"mul": 2, "a": 0}, {"idem": "mul(x, x) = x"})
    assert not check_chain(
        f"1. {wide}\n2. = a [idem]", deep, read_equation(f"{wide} = a", deep.signature)
    ).accepted
    with pytest.raises(ProofTextError, match="more than"):
        read_term("f(" + ",".join("a" * (MAX_SYMBOLS + 1)) + ")", {"f": MAX_SYMBOLS + 1, "a": 0})
    for equation in ("mul(x, e)", "x = ", "mul(x) = x"):
        with pytest.raises(ProofTextError):
            read_equation(equation, GROUP.signature)


@pytest.mark.parametrize("name", ALGEBRAS)
def test_the_axioms_hold_in_a_finite_model_and_other_equations_do_not(name: str) -> None:
    assert all(holds(str(one), MODELS[name]) for one in ALGEBRAS[name].equations.values())
    assert not holds("mul(x, y) = mul(y, x)", MODELS["group"])
    assert not holds("meet(x, y) = join(x, y)", MODELS["lattice"])


@pytest.mark.parametrize("level", LEVELS)
def test_derived_equations_have_chains_and_no_step_can_be_left_out(level: int) -> None:
    for number in range(8):
        theorem = derive_chain(rng(1, level, number), level)
        assert theorem == derive_chain(rng(1, level, number), level)
        algebra = ALGEBRAS[theorem.algebra]
        verdict = check_chain(theorem.proof, algebra, theorem.goal)
        assert verdict.accepted
        assert verdict.num_steps == level + 2
        assert theorem.goal.left != theorem.goal.right
        assert holds(str(theorem.goal), MODELS[theorem.algebra])
        anywhere = re.sub(r" at [\w.]+", "", theorem.proof)
        assert check_chain(anywhere, algebra, theorem.goal).accepted
        left_out = spoil_chain(rng(2), theorem.proof, algebra, "left-out")
        assert not check_chain(left_out.text, algebra, theorem.goal).accepted
    with pytest.raises(PipelineError):
        derive_chain(rng(1), 9)


def judge_mutants(theorems: int, each: int) -> tuple[int, int]:
    """Spoil chains, and compare the checker with the naive one; how many there were, how many right."""
    seen, accepted, total = set[str](), 0, 0
    for number in range(theorems):
        draws = rng(35, number)
        theorem = derive_chain(draws, number % 8 + 1)
        algebra = ALGEBRAS[theorem.algebra]
        equations = {name: str(one) for name, one in algebra.equations.items()}
        for _ in range(each):
            kind, text = spoil_chain(draws, theorem.proof, algebra)
            if text in seen:
                continue
            seen.add(text)
            total += 1
            verdict = check_chain(text, algebra, theorem.goal)
            right = shows(text, algebra.signature, equations, str(theorem.goal))
            assert verdict.accepted == right, (kind, verdict, text)
            accepted += verdict.accepted
            terms = re.findall(r"^\d+\. (?:= )?(.*?)(?:  \[|$)", text, re.MULTILINE)
            for one, other in itertools.pairwise(terms[: verdict.num_steps]):
                assert holds(f"{one} = {other}", MODELS[theorem.algebra]), text
    return total, accepted


def test_spoilt_chains_are_accepted_only_where_a_second_checker_finds_them_right() -> None:
    total, accepted = judge_mutants(theorems=110, each=30)
    assert total >= 2_000
    assert 0 < accepted < total / 5


@pytest.mark.slow
def test_of_many_spoilt_chains_none_is_accepted_that_is_wrong() -> None:
    total, accepted = judge_mutants(theorems=900, each=34)
    print(f"{total} mutants, {accepted} of them still proofs, 0 wrong ones accepted")
    assert total >= 20_000
    assert 0 < accepted < total / 5


def test_every_kind_of_error_is_planted() -> None:
    theorem = derive_chain(rng(3), 5)
    for kind in CHAIN_KINDS:
        assert spoil_chain(rng(4), theorem.proof, ALGEBRAS[theorem.algebra], kind).kind == kind


def test_a_checker_that_forgets_what_variables_are_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = equational.matches

    def forgets(pattern, term, bound, signature):  # type: ignore[no-untyped-def]
        return whole(pattern, term, {}, signature)

    monkeypatch.setattr(equational, "matches", forgets)
    with pytest.raises(AssertionError):
        judge_mutants(theorems=60, each=20)


WORDS = st.sampled_from(
    ["1.", "2.", "3.", "mul", "inv", "a", "b", "e", "(", ")", ",", "=", "\n", "[", "]", "left-unit", "at",
     "root", "1", "backwards", "with", "x", ":=", "\ud800", "\u0661"]
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(WORDS, max_size=30).map(" ".join),
        st.lists(WORDS, max_size=12).map(lambda words: f"1. {GOAL.left}\n2. = {' '.join(words)}"),
        st.lists(WORDS, max_size=9).map(lambda words: f"1. {GOAL.left}\n2. = e [assoc {' '.join(words)}]"),
    )
)  # fmt: skip
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        verdict = check_chain(text, GROUP, GOAL)
    except ProofTextError:
        return
    assert verdict.accepted == (not verdict.reason)
