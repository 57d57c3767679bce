"""The checker of natural deduction: what it refuses and why, and that what it accepts is valid."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_deduction import implies, meaningful, proves, tree

from envgen.core.seeding import rng
from envgen.pipelines.proof.derive import derive
from envgen.pipelines.proof.spoil import spoil
from envgen.verifiers import deduction
from envgen.verifiers.deduction import RULES, check
from envgen.verifiers.proof_library import Lemma, check_library
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS, ProofTextError
from envgen.verifiers.propositions import MAX_SYMBOLS, Sequent, read_proposition

MODUS_TOLLENS = Sequent.read(["P -> Q", "~Q"], "~P")
PROOF = """
1. P -> Q          [premise]
2. ~Q              [premise]
| 3. P             [assume]
| 4. Q             [implies-elim 1 3]
| 5. false         [not-elim 2 4]
6. ~P              [not-intro 3-5]
"""
EACH_RULE = {
    "reiterate": (["P"], "P", "1. P [premise]\n2. P [reiterate 1]"),
    "and-intro": (["P", "Q"], "P & Q", "1. P [premise]\n2. Q [premise]\n3. P & Q [and-intro 1 2]"),
    "and-elim-left": (["P & Q"], "P", "1. P & Q [premise]\n2. P [and-elim-left 1]"),
    "and-elim-right": (["P & Q"], "Q", "1. P & Q [premise]\n2. Q [and-elim-right 1]"),
    "or-intro-left": (["P"], "P | Q", "1. P [premise]\n2. P | Q [or-intro-left 1]"),
    "or-intro-right": (["P"], "Q | P", "1. P [premise]\n2. Q | P [or-intro-right 1]"),
    "or-elim": (
        ["P | P"],
        "P",
        "1. P | P [premise]\n| 2. P [assume]\n| 3. P [assume]\n4. P [or-elim 1 2-2 3-3]",
    ),
    "implies-intro": ([], "P -> P", "| 1. P [assume]\n2. P -> P [implies-intro 1-1]"),
    "implies-elim": (["P -> Q", "P"], "Q", "1. P->Q [premise]\n2. P [premise]\n3. Q [implies-elim 1, 2]"),
    "not-intro": ([], "~false", "| 1. false [assume]\n2. ~false [not-intro 1-1]"),
    "not-elim": (["~P", "P"], "false", "1. ~P [premise]\n2. P [premise]\n3. false [not-elim 1 2]"),
    "explosion": (["false"], "P", "1. \u22a5 [premise]\n2. P [explosion 1]"),
    "double-negation": (["~~P"], "P", "1. \u00ac\u00acP [premise]\n2. P [double-negation 1]"),
    "raa": (
        ["~~P"],
        "P",
        "1. ~~P [premise]\n| 2. ~P [assume]\n| 3. false [not-elim 1 2]\n4. P [raa 2-3]",
    ),
    "iff-intro": ([], "P <-> P", "| 1. P [assume]\n| 2. P [assume]\n3. P <-> P [iff-intro 1-1 2-2]"),
    "iff-elim-left": (["P <-> Q", "P"], "Q", "1. P<->Q [premise]\n2. P [premise]\n3. Q [iff-elim-left 1 2]"),
    "iff-elim-right": (["P <-> Q", "Q"], "P", "1. P<->Q [premise]\n2. Q [premise]\n3. P[iff-elim-right 1 2]"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_proves_what_textbooks_say(rule: str) -> None:
    hypotheses, goal, proof = EACH_RULE[rule]
    verdict = check(proof, Sequent.read(hypotheses, goal))
    assert verdict.accepted, verdict
    assert verdict.num_steps == len(proof.split("\n"))
    assert not check(proof, Sequent.read(hypotheses[1:], goal)).accepted or not hypotheses
    other = check(proof, Sequent.read(hypotheses, "Z"))
    assert other.line == verdict.num_steps
    assert "the goal is Z" in other.reason


SPOILT = [
    ("implies-elim 1 3", "implies-elim 3 1", 4, "does not fit P at place 1"),
    ("implies-elim 1 3", "implies-elim 1", 4, "cites 2, not 1"),
    ("implies-elim 1 3", "modus-ponens 1 3", 4, "there is no rule 'modus-ponens'"),
    ("implies-elim 1 3", "implies-elim 1 5", 4, "not an earlier line"),
    ("implies-elim 1 3", "implies-elim 1 4", 4, "not an earlier line"),
    ("implies-elim 1 3", "implies-elim 1 x", 4, "'x' is no line"),
    ("implies-elim 1 3", "implies-elim 1 3-4", 4, "still open"),
    ("implies-elim 1 3", "lemma magic 1 3", 4, "no lemma 'magic' that is proven before"),
    ("implies-elim 1 3", "lemma", 4, "no lemma ''"),
    ("implies-elim 1 3", "implies-elim 1 3 with P := Q", 4, "only a lemma"),
    ("implies-elim 1 3", "", 4, "no rule ''"),
    ("not-intro 3-5", "not-intro 3-4", 6, "the sub-proof is 3-5"),
    ("not-intro 3-5", "not-intro 4-5", 6, "line 4 starts no sub-proof"),
    ("not-intro 3-5", "not-intro 5", 6, "in a closed sub-proof"),
    ("not-intro 3-5", "not-intro 1", 6, "a sub-proof such as 3-5 at place 1"),
    ("not-intro 3-5", "and-elim-left 3-5", 6, "cites a line at place 1"),
    ("not-intro 3-5", "raa 3-5", 6, "does not fit P .. false"),
    ("6. ~P", "6. P", 6, "does not give P"),
    ("6. ~P", "| 6. ~P", 6, "still open"),
    ("\n6. ~P              [not-intro 3-5]", "", 5, "never discharged"),
    ("4. Q ", "4. R ", 4, "does not give R"),
    ("4. Q ", "4. Q + R ", 4, "unknown symbol at '+ R'"),
    ("4. Q ", "4. Q R ", 4, "a connective is expected"),
    ("4. Q ", "4. (Q ", 4, "parenthesis"),
    ("4. Q ", "4. ", 4, "a formula is missing"),
    ("4. Q ", "5. Q ", 4, "is numbered 5"),
    ("4. Q ", "so Q ", 4, "this is no step"),
    ("| 4. Q ", "|| 4. Q ", 4, "only an assumption"),
    ("| 3. P ", "3. P ", 3, "only an assumption"),
    ("2. ~Q ", "2. ~P ", 2, "~P is no hypothesis"),
    ("2. ~Q              [premise", "2. ~Q              [premise 1", 2, "cites nothing"),
    ("| 5. false", "5. false", 5, "in a closed sub-proof (of line 3)"),
]


@pytest.mark.parametrize(("old", "new", "line", "reason"), SPOILT)
def test_the_first_wrong_line_is_named_with_its_reason(
    old: str, new: str, line: int, reason: str
) -> None:
    assert check(PROOF, MODUS_TOLLENS).accepted
    assert PROOF.count(old) == 1
    verdict = check(PROOF.replace(old, new), MODUS_TOLLENS)
    assert verdict.line == line
    assert reason in verdict.reason


def test_sub_proofs_inside_closed_ones_cannot_be_cited() -> None:
    inner = "|| 2. Q [assume]\n| 3. Q -> Q [implies-intro 2-2]"
    proof = f"| 1. P [assume]\n{inner}\n4. Q -> Q [implies-intro 2-2]"
    verdict = check(proof, Sequent.read([], "Q -> Q"))
    assert verdict.line == 4
    assert "in a closed one" in verdict.reason
    proof = "| 1. P [assume]\n|| 2. Q [assume]\n3. P -> Q [implies-intro 1-2]"
    assert "ends inside another one" in check(proof, Sequent.read([], "P -> Q")).reason


def test_lemmas_are_cited_with_formulas_for_their_atoms() -> None:
    lemmas = {"tollens": MODUS_TOLLENS, "self": Sequent.read([], "X -> X")}
    sequent = Sequent.read(["A & B -> ~C", "~~C"], "~(A & B)")
    head = "1. A & B -> ~C [premise]\n2. ~~C [premise]\n"
    for by in (
        "tollens 1 2",
        "tollens 1 2 with P := A & B",
        "tollens 1 2 with P := A & B, Q := ~C",
    ):
        assert check(f"{head}3. ~(A & B) [lemma {by}]", sequent, lemmas).accepted
    for by, reason in (
        ("tollens 2 1", "does not fit"),
        ("tollens 1", "cites 2, not 1"),
        ("tollens 1 2 with P := A", "does not fit"),
        ("tollens 1 2 with Z := A", "no atom of the lemma"),
        ("tollens 1 2 with P := A & B, P := A & B", "given twice"),
        ("tollens 1 2 with P", "a formula is missing"),
        ("self", "does not give"),
    ):
        verdict = check(f"{head}3. ~(A & B) [lemma {by}]", sequent, lemmas)
        assert verdict.line == 3
        assert reason in verdict.reason


def instance(text: str, chosen: dict[str, str]) -> str:
    """A formula with formulas for its atoms."""
    return re.sub("[PQR]", lambda atom: f"({chosen[atom[0]]})", text)


def test_what_a_lemma_gives_under_any_substitution_is_true_in_every_row() -> None:
    """Random substitutions, the same everywhere or not: accepted is what is valid, and most that is one."""
    lemmas = {
        "tollens": (["P -> Q", "~Q"], "~P"), "syllogism": (["P | Q", "~P"], "Q"),
        "chain": (["P -> Q", "Q -> R"], "P -> R"), "absurd": (["P", "~P"], "Q"),
    }  # fmt: skip
    library = {name: Sequent.read(*texts) for name, texts in lemmas.items()}
    draws, accepted, right = rng(39), 0, 0
    formulas = ["A", "~A", "A & B", "B -> A", "false", "~(A | B)", "P", "Q"]
    for _ in range(3_000):
        name = draws.choice(sorted(lemmas))
        chosen = {atom: draws.choice(formulas) for atom in "PQR"}
        other = {**chosen, draws.choice("PQR"): draws.choice(formulas)}
        texts = [
            instance(text, draws.choice([chosen, chosen, other]))
            for text in [*lemmas[name][0], lemmas[name][1]]
        ]  # fmt: skip
        given = "".join(f", {atom} := {chosen[atom]}" for atom in draws.sample("PQR", 2))
        by = (
            f"[lemma {name} 1 2 with {given[2:]}]"
            if draws.random() < 0.5
            else f"[lemma {name} 1 2]"
        )
        proof = f"1. {texts[0]} [premise]\n2. {texts[1]} [premise]\n3. {texts[2]} {by}"
        valid = implies([tree(text) for text in texts[:2]], tree(texts[2]))
        right += valid
        if check(proof, Sequent.read(texts[:2], texts[2]), library).accepted:
            accepted += 1
            assert valid, proof
    assert right / 3 < accepted < right


def test_no_lemma_proves_itself_or_two_each_other() -> None:
    goal = Sequent.read([], "P")
    circle = [Lemma("a", goal, "1. P [lemma b]"), Lemma("b", goal, "1. P [lemma a]")]
    for lemmas in (circle, circle[::-1], [Lemma("a", goal, "1. P [lemma a]")]):
        assert not any(verdict.accepted for verdict in check_library(lemmas).values())
    true = Lemma("a", Sequent.read([], "P -> P"), "| 1. P [assume]\n2. P -> P [implies-intro 1-1]")
    cites = Lemma("b", Sequent.read([], "Q -> Q"), "1. Q -> Q [lemma a]")
    assert all(verdict.accepted for verdict in check_library([true, cites]).values())
    assert not check_library([cites, true])["b"].accepted
    with pytest.raises(ProofTextError):
        check_library([true, true])


def test_hostile_texts_are_refused_quickly() -> None:
    for text in ("", " \n ", "x" * (MAX_PROOF_CHARS + 1)):
        with pytest.raises(ProofTextError):
            check(text, MODUS_TOLLENS)
    deep = MAX_SYMBOLS + 1
    for formula in ("(" * deep + "P" + ")" * deep, "~" * deep + "P", " & ".join(["P"] * (deep + 1)),
                    "(" * 900, "P" * 1_500, ""):  # fmt: skip
        assert check(f"1. {formula} [premise]", MODUS_TOLLENS).line == 1
    for text in ("|" * 1_999, "1." * 900, "1. P [" + "9" * 1_900 + "]", "1. P [assume]" * 99,
                 "1. P [reiterate \u0661]", "\ud800", "\0", "1. P [premise]\r",
                 "|" * 33 + "1. P [assume]"):  # fmt: skip
        assert check(text, MODUS_TOLLENS).line == 1
    boxes = "\n".join(f"{'|' * n} {n}. P [assume]" for n in range(1, 200))
    assert "more than 32 deep" in check(boxes, MODUS_TOLLENS).reason


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("P -> Q -> R", "P -> (Q -> R)"), ("P & Q & R", "(P & Q) & R"), ("~P & Q", "(~P) & Q"),
        ("P | Q & R", "P | (Q & R)"), ("P & Q -> R | S", "(P & Q) -> (R | S)"),
        ("P <-> Q -> R", "P <-> (Q -> R)"),
        ("\u00acP \u2227 Q \u2228 R \u2192 \u22a5", "((~P & Q) | R) -> false"),
    ],
)  # fmt: skip
def test_connectives_bind_as_the_docstring_says(text: str, same: str) -> None:
    assert read_proposition(text) == read_proposition(same)
    assert read_proposition(str(read_proposition(text))) == read_proposition(text)


WORDS = st.sampled_from(
    [*RULES, "premise", "assume", "lemma m", "1.", "2.", "3.", "P", "Q", "~", "->", "|", "&", "(", ")",
     "[", "]", "\n", "1", "2", "1-2", "false", " with ", ":=", ",", "<->", "\u22a5", "\ud800"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=40).map(" ".join)))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        verdict = check(text, MODUS_TOLLENS, {"m": MODUS_TOLLENS})
    except ProofTextError:
        return
    assert verdict.accepted == (not verdict.reason)


def judge_mutants(theorems: int, each: int) -> tuple[int, int]:
    """Spoil proofs, and compare the checker with the naive one; how many there were, how many right."""
    seen, accepted, total = set[str](), 0, 0
    for number in range(theorems):
        draws = rng(35, number)
        theorem = derive(draws, number % 8 + 1)
        sequent = Sequent.read(theorem.hypotheses, theorem.goal)
        for _ in range(each):
            kind, text = spoil(draws, theorem.proof)
            if text in seen:
                continue
            seen.add(text)
            total += 1
            verdict = check(text, sequent)
            right = proves(text, list(theorem.hypotheses), theorem.goal)
            assert verdict.accepted == right, (kind, verdict, text)
            if verdict.accepted:
                accepted += 1
                assert implies([tree(one) for one in theorem.hypotheses], tree(theorem.goal))
                assert meaningful(text, list(theorem.hypotheses))
    return total, accepted


def test_spoilt_proofs_are_accepted_only_where_a_second_checker_finds_them_right() -> None:
    total, accepted = judge_mutants(theorems=80, each=32)
    assert total >= 2_000
    assert 0 < accepted < total / 20


def test_no_proof_is_accepted_once_a_hypothesis_is_missing_that_the_goal_needs() -> None:
    """Spoilt or not: whatever were accepted would be wrong, as truth tables say."""
    judged = 0
    for number in range(24):
        draws = rng(38, number)
        theorem = derive(draws, number % 8 + 1)
        texts = [theorem.proof, *(spoil(draws, theorem.proof).text for _ in range(40))]
        for missing in range(len(theorem.hypotheses)):
            fewer = theorem.hypotheses[:missing] + theorem.hypotheses[missing + 1 :]
            if implies([tree(one) for one in fewer], tree(theorem.goal)):
                continue
            judged += len(texts)
            sequent = Sequent.read(fewer, theorem.goal)
            assert not any(check(text, sequent).accepted for text in texts)
    assert judged > 1_000


@pytest.mark.slow
def test_of_many_spoilt_proofs_none_is_accepted_that_is_wrong() -> None:
    total, accepted = judge_mutants(theorems=480, each=50)
    print(f"{total} mutants, {accepted} of them still proofs, 0 wrong ones accepted")
    assert total >= 20_000
    assert 0 < accepted < total / 20


def test_what_is_accepted_up_to_its_first_wrong_line_is_true_in_every_row() -> None:
    """Whatever the spoilt rest is, the steps before it follow from hypotheses and assumptions."""
    for number in range(40):
        draws = rng(36, number)
        theorem = derive(draws, number % 4 + 1)
        text = spoil(draws, theorem.proof).text
        verdict = check(text, Sequent.read(theorem.hypotheses, theorem.goal))
        if verdict.num_steps:
            right = "\n".join(text.split("\n")[: verdict.num_steps])
            assert meaningful(right, list(theorem.hypotheses)), (verdict, text)


@pytest.mark.parametrize(("name", "unsound"), [
    ("implies-elim", "A -> B, B => A"), ("or-elim", "A | B, A .. C, A .. C => C"),
    ("or-intro-left", "A => A & B"), ("not-intro", "A .. B => ~A"), ("explosion", "A => B"),
])  # fmt: skip
def test_an_unsound_rule_is_noticed(
    name: str, unsound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with the naive checker fails once a rule of the kernel is wrong."""
    monkeypatch.setitem(deduction._RULES, name, deduction._pattern(unsound))
    with pytest.raises(AssertionError):
        both_comparisons()


def both_comparisons() -> None:
    judge_mutants(theorems=60, each=20)
    sound_on_random_steps(steps=4_000)


def sound_on_random_steps(steps: int) -> None:
    """Random single steps from two hypotheses: what is accepted is true in every row."""
    draws, formulas = (
        rng(37),
        ["P", "Q", "~P", "P & Q", "P | Q", "P -> Q", "P <-> Q", "~~P", "false"],
    )
    accepted = 0
    for _ in range(steps):
        one, two, goal = (draws.choice(formulas) for _ in range(3))
        rule, cited = draws.choice(list(RULES)), draws.choice(["1", "2", "1 2", "2 1"])
        text = f"1. {one} [premise]\n2. {two} [premise]\n3. {goal} [{rule} {cited}]"
        if check(text, Sequent.read([one, two], goal)).accepted:
            accepted += 1
            assert implies([tree(one), tree(two)], tree(goal)), text
    assert accepted > steps / 200


def test_random_steps_that_are_accepted_are_true_in_every_row() -> None:
    sound_on_random_steps(steps=20_000)
