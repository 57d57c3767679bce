"""Databases of Metamath, their kernel, backward proofs: what is refused, and that all of set.mm is right."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest
from metamath_texts import DATABASES, SMALL

from envgen.verifiers.metamath import MetamathDatabase
from envgen.verifiers.metamath_system import (
    AssertionText,
    MetamathStatement,
    MetamathSystem,
    MetamathTheory,
    VariableText,
)
from envgen.verifiers.proof_system import ProofSystem, WrongStepError
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS, ProofTextError

THEORY = MetamathTheory(
    variables=tuple(
        VariableText(label=label, typecode=typecode, variable=variable)
        for label, typecode, variable in re.findall(r"(\S+) \$f (\S+) (\S+) \$\.", SMALL)
    ),
    syntax={"wi": "wff ( ph -> ps )", "wal": "wff A. x ph"},
    assertions={
        "ax-1": AssertionText(conclusion="|- ( ph -> ( ps -> ph ) )"),
        "ax-5": AssertionText(conclusion="|- ( ph -> A. x ph )", disjoint=(("x", "ph"),)),
        "syl": AssertionText(
            hypotheses=("|- ( ph -> ps )", "|- ( ps -> ch )"), conclusion="|- ( ph -> ch )"
        ),
    },
)
STATEMENT = MetamathStatement(
    hypotheses={"h": "|- ( ( ch -> ph ) -> ps )"}, conclusion="|- ( ph -> ps )"
)
STEPS = ("syl with ps := ( ch -> ph )", "ax-1", "h")
TEXT = "wph wch wph wi wps wph wch ax-1 h syl"
VARIABLES = "".join(f"$v v{one} $. f{one} $f a v{one} $. " for one in range(10_000))


def short(value: object) -> str:
    """The name of a case: some texts are long."""
    return str(value)[:20]


def database_file(name: str) -> Path:
    if not (DATABASES / name).exists():
        if os.environ.get("ENVGEN_REQUIRE_SERVICES") == "1":
            pytest.fail(f"{name} is required: apt-get install metamath-databases", pytrace=False)
        pytest.skip(f"{name}: apt-get install metamath-databases")
    return DATABASES / name


def system(statement: MetamathStatement = STATEMENT) -> ProofSystem:
    return MetamathSystem(THEORY, statement)


def test_a_small_database_is_right_and_its_frames_are_in_order() -> None:
    database, seen = MetamathDatabase.read(SMALL), list[int]()
    assert database.verify_all(seen.append) == 8 == len(seen)
    assert list(database.assertions)[:4] == ["wn", "wi", "wal", "ax-mp"]
    syl = database.assertions["syl"]
    assert [one.label for one in syl.hypotheses] == ["wph", "wps", "wch", "syl.1", "syl.2"]
    assert (syl.kind, syl.expression) == ("theorem", "|- ( ph -> ch ) ")
    assert database.assertions["al5"].disjoint == {("ps", "x")}
    assert database.discouraged == {"idALT"}


@pytest.mark.parametrize("name", ["demo0", "miu", "big-unifier", "hol", "peano", "ql"])
def test_the_small_databases_of_the_package_are_right(name: str) -> None:
    database = MetamathDatabase.read(database_file(f"{name}.mm"))
    theorems = sum(one.kind == "theorem" for one in database.assertions.values())
    assert database.verify_all() == theorems


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_of_set_mm_is_right() -> None:
    assert MetamathDatabase.read(database_file("set.mm")).verify_all() > 37_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$( open", "comment"),
        ("$( a $( b $) $)", "nested"),
        ("$(a $)", "lacks spaces"),
        ("${ $c a $.", "constant in a scope"),
        ("${", "not closed"),
        ("$}", "closes no scope"),
        ("$[ other.mm $]", "read it|includes"),
        ("$c a a $.", "declared already"),
        ("$c a $. $v a $.", "declared already"),
        ("$v a $. $v a $.", "declared already"),
        ("$v a $. $c a $.", "declared already"),
        ("$c a $. b $a b $.", "constant"),
        ("$c a $. b $a a c $.", "not declared"),
        ("$c a $. $v x $. b $a a x $.", "no type"),
        ("$c a $. b $a a $. b $a a $.", "label is taken"),
        ("$c a $. a $a a $.", "label is taken"),
        ("$c a $. b~ $a a $.", "no label"),
        ("$c a $. $v x $. f $f a x $. g $f a x $.", "type already"),
        ("$c a $. f $f a a $.", "typecode and variable"),
        ("$v x $. $d x $.", "two or more"),
        ("$v x y $. $d x x $.", "each once"),
        ("$v x $. ${ $v y $. $} $d x y $.", "no variable"),
        ("$c a $. p $p a $.", "a proof is missing"),
        ("$c a $. $a a $.", "a label"),
        ("$c a", "no statement"),
        ("$c a$.", "no statement"),
        ("$c \xe9 $.", "can't stand"),
        ("$c a\x00 $.", "can't stand"),
        ("x" * 1_000_000, "no statement"),
        ("$( " * 300_000, "comment"),
        ("${ " * 100_000, "not closed"),
        ("$c a $. " + VARIABLES + "${ $} " * 50_000 + "$}", "closes no scope"),
        (
            "$c a $. " + VARIABLES + "".join(f"a{n} $a a $. " for n in range(20_000)) + "$}",
            "closes",
        ),
        ("$c a $. " + "".join(f"e{n} $e a $. " for n in range(20_000)), "active at once"),
        (
            "$v "
            + "".join(f"v{n} " for n in range(101))
            + "$. $d "
            + "".join(f"v{n} " for n in range(101))
            + "$.",
            "more than 100 variables",
        ),
        ("(New usage is discouraged.)" * 40_000, "no statement"),
    ],
    ids=short,
)
def test_a_text_that_is_no_database_is_refused_quickly(text: str, reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(ProofTextError, match=reason):
        MetamathDatabase.read(text)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("proof", "reason"),
    [
        ("?", "incomplete"),
        ("", "incomplete"),
        ("wph ? ax-mp", "incomplete"),
        ("new", "does not stand before"),
        ("later", "does not stand before"),
        ("wnone", "no label"),
        ("a1i.1", "scope of a1i.1 has ended"),
        ("wph", "shows"),
        ("wph id wph", "leaves 2"),
        ("wph wph ax-1", "shows"),
        ("vx id", "needs 'wff ph' as wph"),
        ("ax-mp", "takes 4 hypotheses"),
        ("( id", "no end"),
        ("( id ) ", "leaves 0"),
        ("( id ) AC", "no label and no saved"),
        ("( id ) A!", "no step of a compressed"),
        ("( id ) AB?", "no step of a compressed"),
        ("( id ) ZAB", "no step of a compressed"),
        ("( id ) ABZZ", "no step of a compressed"),
        ("( id ) AU", "no step of a compressed"),
        ("( id ) UUUUUUUUUA", "no label and no saved"),
        ("( wph id ) AB", "mandatory"),
        ("( id ) " + "Y" * 1_000_000, "no step of a compressed"),
        ("( wi ) A" + "ZBZ" * 3, "takes 2|no step"),
        (
            "( wi ) AABZ" + "".join(f"{one}{one}BZ" for one in "CDEFGHIJKLMNOPQRST"),
            "too long|leaves",
        ),
    ],
    ids=short,
)
def test_a_wrong_proof_is_refused_quickly(proof: str, reason: str) -> None:
    text = f"{SMALL} new $p |- ( ph -> ph ) $= {proof} $.  later $a |- ( ph -> ph ) $."
    began = time.monotonic()
    with pytest.raises(ProofTextError, match=f"new: .*({reason})"):
        MetamathDatabase.read(text).verify("new")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("label", ["id5", "al5"])
def test_a_disjoint_condition_that_is_missing_is_noticed(label: str) -> None:
    text = SMALL.replace(f"$d x ps $.\n   {label} ", f"{label} ")
    with pytest.raises(ProofTextError, match=f"{label}: .*apart"):
        MetamathDatabase.read(text).verify_all()


def test_expressions_that_double_end(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = ["A", *"CDEFGHIJKLMNOPQRST", *(f"U{one}" for one in "ABCDEFGHIJ")]
    doubled = "".join(f"{one}{one}BZ" for one in saved)
    text = f"{SMALL} new $p |- ( ph -> ph ) $= ( wi ) {doubled} $."
    with pytest.raises(ProofTextError, match="too long"):
        MetamathDatabase.read(text).verify("new")


def test_files_are_included_once_and_from_their_folder_only(tmp_path: Path) -> None:
    (tmp_path / "a.mm").write_text("$[ a.mm $] $[ b.mm $] $[ b.mm $] x $a c $.")
    (tmp_path / "b.mm").write_text("$[ a.mm $] $c c $.")
    assert list(MetamathDatabase.read(tmp_path / "a.mm").assertions) == ["x"]
    (tmp_path.parent / "outside.mm").write_text("$c c $.")
    (tmp_path / "link.mm").symlink_to(tmp_path.parent / "outside.mm")
    for name in ("../outside.mm", "link.mm", str(tmp_path / "b.mm"), "none.mm", ".."):
        (tmp_path / "c.mm").write_text(f"$[ {name} $]")
        with pytest.raises(ProofTextError, match=r"lie beside|can.t be read"):
            MetamathDatabase.read(tmp_path / "c.mm")


def test_backward_steps_become_a_text_that_is_accepted() -> None:
    assert system().follow(()).open_goals == ("|- ( ph -> ps )",)
    state = system().follow(STEPS[:1])
    assert state.open_goals == ("|- ( ph -> ( ch -> ph ) )", "|- ( ( ch -> ph ) -> ps )")
    assert system().follow(STEPS) == (STEPS, ())
    assert system().text(STEPS) == TEXT
    assert system().check(TEXT).accepted
    assert system().check(TEXT).num_steps == 10
    assert not system().check(system().text(STEPS[:2])).accepted
    assert system().known()[2].statement == "|- ( ph -> ps ) & |- ( ps -> ch ) => |- ( ph -> ch )"


@pytest.mark.parametrize(
    ("steps", "number", "reason"),
    [
        (["syl"], 1, "leaves ps open; add: with ps :="),
        (["syl with ps := ( ch -> )"], 1, "is no wff"),
        (["syl with ps := ch, ps := ch"], 1, "given twice"),
        (["syl with x := y"], 1, "no variable of syl"),
        (["syl with nothing"], 1, "gives nothing"),
        (["syl with ps := ch, ph := ps"], 1, "does not match"),
        (["ax-1"], 1, "does not match"),
        (["h"], 1, r"the goal is \|- \( ph -> ps \)"),
        (["wi"], 1, "no assertion"),
        (["magic"], 1, "no assertion"),
        (["!"], 1, "no step"),
        ([*STEPS, "h"], 4, "no goal is open"),
        (["syl with ps := " + "( ch -> " * 170 + "ch" + " )" * 170], 1, "nested too deeply"),
    ],
    ids=short,
)
def test_the_first_wrong_step_is_named(steps: list[str], number: int, reason: str) -> None:
    with pytest.raises(WrongStepError, match=reason) as raised:
        system().follow(steps)
    assert raised.value.number == number


def test_variables_are_kept_apart_at_once() -> None:
    goal = "|- ( ps -> A. x ps )"
    with pytest.raises(WrongStepError, match="apart"):
        system(MetamathStatement(conclusion=goal)).follow(["ax-5"])
    apart = system(MetamathStatement(conclusion=goal, disjoint=(("x", "ps"),)))
    assert apart.check(apart.text(["ax-5"])).accepted
    captured = MetamathStatement(conclusion="|- ( A. x ps -> A. x A. x ps )")
    with pytest.raises(WrongStepError, match="ps and x need not be"):
        system(captured).follow(["ax-5"])


@pytest.mark.parametrize("text", ["", " \n", "x" * (MAX_PROOF_CHARS + 1)], ids=short)
def test_a_text_that_is_no_proof_is_refused(text: str) -> None:
    with pytest.raises(ProofTextError):
        system().check(text)


@pytest.mark.parametrize(
    "text", ["?", "wph h", "h", TEXT + " h", "( wi ) AB", "wph\n" * 40_000], ids=short
)
def test_a_wrong_text_is_no_proof(text: str) -> None:
    verdict = system().check(text)
    assert not verdict.accepted
    assert verdict.num_steps == verdict.line - 1


def test_a_changed_label_is_found_or_harmless() -> None:
    """In this text no label can be exchanged for another, dropped, or swapped with a different one."""
    rng, labels = random.Random(1), TEXT.split()
    others = [*labels, "wps", "vx", "ax-5", "wal"]
    for _ in range(500):
        spoilt, at = list(labels), rng.randrange(len(labels))
        spoilt[at : at + 1] = rng.choice([[rng.choice(others)], [], [labels[at]] * 2])
        assert system().check(" ".join(spoilt)).accepted == (spoilt == labels)


def test_a_label_of_the_theory_has_one_meaning() -> None:
    with pytest.raises(ProofTextError, match="used twice"):
        system(MetamathStatement(hypotheses={"syl": "|- ph"}, conclusion="|- ph"))
    with pytest.raises(ProofTextError, match="is no wff"):
        system(MetamathStatement(conclusion="|- ( ph"))
