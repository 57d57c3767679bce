"""Quotes of written questions speak of clue and answer, and one model in several roles is told."""

from __future__ import annotations

import pytest

from envgen.core.types import GateStatus
from envgen.environments.search import OpenCorpus
from envgen.pipelines.search.spoken_of import agents_agree, holds_value, one_model, quotes_show
from envgen.pipelines.search.written import (
    OtherAnswer,
    Pass,
    Vote,
    WrittenClue,
    WrittenQuestion,
    verified,
)
from envgen.store.corpus import CorpusDocument, CorpusHeader, write_corpus
from envgen.store.corpus_fts5 import FTS5Index
from envgen.verifiers.answers import ShortAnswer

TEXTS = {
    "fr": ("France", "France is a country. Its capital, Paris, lies on the Seine. A king built Versailles."),
    "de": ("Germany", "Germany is a country. Its capital is Berlin, on the Spree."),
    "pal": ("Samuel Palmer", "Samuel Palmer was a British painter of landscapes. He lived at Shoreham."),
    "roc": ("rococo", "Rococo is a style of light curves. It was loved at court."),
    "ver": ("Versailles", "Versailles is a palace, finished in 1715. Its halls hold mirrors."),
}  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenCorpus:
    documents = [
        CorpusDocument.model_validate({"id": name, "class": "page", "title": title, "text": text})
        for name, (title, text) in TEXTS.items()
    ]
    header = CorpusHeader(name="countries", date="2026-01-01")
    corpus = write_corpus(tmp_path_factory.mktemp("countries"), header, documents)
    return OpenCorpus(corpus, FTS5Index(corpus))


def vote(verdict: str, document: str, quote: str) -> Vote:
    return Vote.model_validate({"verdict": verdict, "document": document, "quote": quote})


SEINE, PALACE = (
    "Its capital lies on the Seine.",
    "Its king built a palace that was finished in 1715.",
)
SUPPORTED = (
    vote("supported", "fr", "Its capital, Paris, lies on the Seine."),
    vote("supported", "ver", "Versailles is a palace, finished in 1715."),
)
REFUSED = (
    vote("contradicted", "de", "Its capital is Berlin, on the Spree."),
    Vote(verdict="not_found"),
)
STRAY = (
    vote("supported", "pal", "Samuel Palmer was a British painter"),
    vote("supported", "roc", "a style of light curves"),
)
AGAINST = tuple(one.model_copy(update={"verdict": "contradicted"}) for one in STRAY)


def question(
    answer: str = "France", other: str = "Germany", truth: Pass = SUPPORTED, against: Pass = REFUSED
) -> WrittenQuestion:
    source = {"France": "fr", "Germany": "de"}[answer]
    return WrittenQuestion(
        question="Which country has its capital on the Seine and a palace finished in 1715?",
        language="en",
        answer=ShortAnswer(kind="text", values=(answer,)),
        clues=(
            WrittenClue(text=SEINE, document="fr", quote="Its capital, Paris, lies on the Seine."),
            WrittenClue(
                text=PALACE, document="ver", quote="Versailles is a palace, finished in 1715."
            ),
        ),
        source=source,
        source_quote=f"{answer} is a country.",
        writer="openai:w",
        verifier="openai:v",
        truth=(truth,),
        candidates=(OtherAnswer(answer=other, by="openai:a, openai:b", passes=(against,)),),
    )


def test_an_honest_question_holds(opened: OpenCorpus) -> None:
    honest = question()
    assert quotes_show(honest, opened).status is GateStatus.PASSED
    found = agents_agree(honest, opened)
    assert found.status is GateStatus.PASSED, found
    assert found.reason == ""


def test_quotes_from_anywhere_prove_no_answer(opened: OpenCorpus) -> None:
    """An audit's lie: "capital on the Seine" is Germany, by Samuel Palmer and rococo, all by one model."""
    lie = question("Germany", "France", STRAY, AGAINST)
    assert verified(lie) == ""  # as the verdicts say
    found = agents_agree(lie, opened)
    assert found.status is GateStatus.FAILED
    assert "clue 1 is not supported" in found.reason
    assert quotes_show(lie, opened).status is GateStatus.FAILED  # the Seine's page is not Germany's


def test_a_contradiction_speaks_of_the_answer_that_it_refuses(opened: OpenCorpus) -> None:
    found = agents_agree(question(against=AGAINST), opened)
    assert found.status is GateStatus.FAILED
    assert "no clue is contradicted for the answer 'Germany'" in found.reason


def test_a_clue_s_own_quote_holds_what_it_says(opened: OpenCorpus) -> None:
    honest = question()
    idle = honest.clues[0].model_copy(update={"quote": "France is a country."})
    spoilt = honest.model_copy(update={"clues": (idle, honest.clues[1])})
    found = quotes_show(spoilt, opened)
    assert found.status is GateStatus.FAILED
    assert "does not hold what the clue" in found.reason


def test_one_model_in_several_roles_is_told(opened: OpenCorpus) -> None:
    alone = question().model_copy(
        update={
            "writer": "openai:m",
            "verifier": "batch:m",
            "candidates": (question().candidates[0].model_copy(update={"by": "openai:m"}),),
        }
    )
    found = agents_agree(alone, opened)
    assert (found.status, found.reason) == (GateStatus.PASSED, "one model in all roles")
    assert one_model("openai:m", "openai:m", ["openai:a"]) == "one model is writer and verifier"
    assert one_model("openai:w", "openai:v", ["openai:a", "openai:b"]) == ""


@pytest.mark.parametrize(
    ("clue", "quote", "holds"),
    [
        ("Its director was born in the year 1912", "Its birth year is 1912", True),
        ("Its director was born in the year 1912", "Its birth year is 1913", False),
        ("It is more than 300 metres high", "The tower is 443 metres high", True),
        ("It is more than 300 metres high", "The tower is very high", False),
        ("It was made by a Japanese studio", "a film from Japan", True),
        ("It lies in Japan", "a film from France", False),
        ("its genre is noir", "The genre is noir", True),
        ("its genre is noir", "A style of curves", False),
        ("\u5c0e\u6f14\u751f\u65bc\u91cc\u6602", "\u4ed6\u751f\u65bc\u91cc\u6602\u3002", True),
        ("\u5c0e\u6f14\u751f\u65bc\u91cc\u6602", "\u4e00\u90e8\u96fb\u5f71\u3002", False),
    ],
)  # fmt: skip
def test_what_a_quote_holds_of_a_clue(clue: str, quote: str, holds: bool) -> None:
    assert holds_value(clue, quote) is holds
