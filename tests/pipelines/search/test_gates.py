"""Every gate of search questions fails where it should: a question or its corpus is spoiled for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from films import films_corpus
from slow_count import slow_count

from envgen.core.types import GateResult, GateStatus
from envgen.environments.search import OpenCorpus
from envgen.pipelines.search.census import NearDuplicates
from envgen.pipelines.search.draw import draw_question
from envgen.pipelines.search.questions import Clue, EntityQuery, SearchQuestion, Shape
from envgen.pipelines.search.sources import build_corpus
from envgen.pipelines.search.tasks import task_of
from envgen.pipelines.search.validate import (
    CorpusFacts,
    chain,
    leak,
    minimal,
    near_answers,
    prior,
    single_search,
    unique,
    unstated,
)
from envgen.pipelines.search.wording import worded
from envgen.store.corpus import CorpusDocument, Fact, write_corpus
from envgen.store.corpus_fts5 import FTS5Index


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> CorpusFacts:
    corpus = films_corpus(tmp_path_factory.mktemp("films"))
    return CorpusFacts(OpenCorpus(corpus, FTS5Index(corpus)))


@pytest.fixture(scope="module")
def questions(facts: CorpusFacts) -> list[SearchQuestion]:
    forms = [(depth, breadth) for depth in (1, 2) for breadth in (2, 3, 4)] * 4
    return drawn(facts, forms, "one")


SHAPES: tuple[Shape, ...] = ("set", "count", "least", "most", "none")


@pytest.fixture(scope="module")
def others(facts: CorpusFacts) -> list[SearchQuestion]:
    """Questions of the other shapes, a few of each."""
    forms = [(depth, breadth) for depth in (1, 2) for breadth in (2, 3)]
    return [one for shape in SHAPES for one in drawn(facts, forms, shape)]


def drawn(facts: CorpusFacts, forms: list[tuple[int, int]], shape: Shape) -> list[SearchQuestion]:
    found = [
        draw_question(
            facts.table, Random(i), depth=depth, breadth=breadth, language="en", shape=shape
        )
        for i, (depth, breadth) in enumerate(forms)
    ]
    return [one for one in found if one is not None]


def status(found: GateResult) -> GateStatus:
    return found.status


def test_all_ways_to_count_agree(facts: CorpusFacts, questions: list[SearchQuestion]) -> None:
    for question in questions:
        for query in (question.query, *question.query.without()):
            picked = facts.table.names(query.kind, facts.table.matching(query))
            assert facts.census.count(query) == picked
            for by_text in (False, True):
                slow = slow_count(query, facts.documents.values(), by_text=by_text)
                assert facts.census.count(query, by_text=by_text) == slow
            assert question.group in picked


def test_what_is_drawn_passes_almost_always(
    facts: CorpusFacts, questions: list[SearchQuestion]
) -> None:
    assert len(questions) > 18
    for question in questions:
        assert status(unique(question, facts)) == GateStatus.PASSED
        assert status(minimal(question, facts)) == GateStatus.PASSED
        assert status(prior(question, facts)) == GateStatus.PASSED


def test_other_shapes_pass_their_gates_and_fail_with_one_entity_more(
    facts: CorpusFacts, others: list[SearchQuestion], tmp_path: Path
) -> None:
    assert {one.shape for one in others} == set(SHAPES)
    for question in others:
        prompt = worded(question, facts.table)
        gates = (unique, minimal, near_answers, prior)
        found = [gate(question, facts) for gate in gates] + [leak(question, facts, prompt)]
        assert not [one for one in found if status(one) == GateStatus.FAILED]
    for shape in SHAPES[:-1]:
        question = next(one for one in others if one.shape == shape)
        more = spoiled(
            facts, tmp_path / shape, question.group,
            lambda document: document.model_copy(update={"id": "a-twin", "title": "A Twin"}),
        )  # fmt: skip
        assert status(unique(question, more)) == GateStatus.FAILED


def test_what_nothing_fits_fails_where_something_does(
    facts: CorpusFacts, others: list[SearchQuestion]
) -> None:
    question = next(one for one in others if one.shape == "none")
    assert question.targets == ()
    fitting = next(iter(question.query.without()))
    found = unique(question.model_copy(update={"query": fitting}), facts)
    assert status(found) == GateStatus.FAILED


def spoiled(
    facts: CorpusFacts, folder: Path, name: str, change: Callable[[CorpusDocument], CorpusDocument]
) -> CorpusFacts:
    """The corpus with one document changed, or one more."""
    documents = dict(facts.documents)
    changed = change(documents[name])
    documents[changed.id] = changed
    corpus = write_corpus(folder, facts.opened.corpus.header, documents.values())
    return CorpusFacts(OpenCorpus(corpus, FTS5Index(corpus)))


def test_a_twin_of_the_target_makes_a_question_ambiguous(
    facts: CorpusFacts, questions: list[SearchQuestion], tmp_path: Path
) -> None:
    question = questions[0]

    def twin(document: CorpusDocument) -> CorpusDocument:
        return document.model_copy(update={"id": "a-twin", "title": "A Twin"})

    found = unique(question, spoiled(facts, tmp_path, question.group, twin))
    assert status(found) == GateStatus.FAILED
    assert "2 entities fit" in found.reason


def beside(document: CorpusDocument, attribute: str, text: str = "") -> CorpusDocument:
    """A twin that states an attribute in words only, by default in those of the original."""
    kept = tuple(fact for fact in document.facts if fact.attribute != attribute)
    if text:
        fact = next(fact for fact in document.facts if fact.attribute == attribute)
        document = document.model_copy(
            update={"text": f"{document.text[: fact.start]}{text}{document.text[fact.end :]}"}
        )
        moved = len(text) - (fact.end - fact.start)
        kept = tuple(
            one.model_copy(update={"start": one.start + moved, "end": one.end + moved})
            if one.start > fact.start
            else one
            for one in kept
        )
    return document.model_copy(update={"id": "a-twin", "title": "A Twin", "facts": kept})


def test_a_document_that_says_in_words_what_its_facts_leave_out_is_found(
    facts: CorpusFacts,
    questions: list[SearchQuestion],
    others: list[SearchQuestion],
    tmp_path: Path,
) -> None:
    """For a name, a number and an entity; and for each shape: another reading of the same world."""
    clauses = [
        (f"{shape}-{clause.op}", one, clause)
        for one in [*questions, *others]
        if one.shape != "none" and status(unstated(one, facts)) == GateStatus.PASSED
        for shape in (one.shape,)
        for clause in one.query.clauses
    ]
    seen = {kind: (question, clause) for kind, question, clause in clauses}
    assert set(seen) >= {f"{shape}-between" for shape in ("one", *SHAPES[:-1])}
    assert set(seen) >= {"one-is", "one-entity"}
    for kind, (question, clause) in seen.items():
        more = spoiled(
            facts,
            tmp_path / kind,
            question.targets[0],
            partial(beside, attribute=clause.attribute),
        )
        assert status(unique(question, more)) == GateStatus.PASSED, kind
        assert status(unstated(question, more)) == GateStatus.FAILED, kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("between {low} and {high}", True),
        ("{low}-{high}", True),
        ("1 May {low} (in part)", True),
        ("about {low}", True),
        ("1,{low}", False),
        ("unknown", False),
    ],
)
def test_years_are_read_in_the_forms_that_texts_have(
    facts: CorpusFacts, questions: list[SearchQuestion], tmp_path: Path, text: str, found: bool
) -> None:
    question, clause = next(
        (one, clause)
        for one in questions
        if status(unstated(one, facts)) == GateStatus.PASSED
        for clause in one.query.clauses
        if clause.attribute == "year" and clause.op == "between"
    )
    said = text.format(low=clause.low, high=clause.high)
    more = spoiled(
        facts, tmp_path, question.targets[0], lambda document: beside(document, "year", said)
    )
    assert (status(unstated(question, more)) == GateStatus.FAILED) is found


def test_what_decides_between_entities_is_stated_once(
    facts: CorpusFacts, others: list[SearchQuestion], tmp_path: Path
) -> None:
    """Of the least and the most, a text that states another number of one that fits is found."""
    for shape, number in (("least", 1), ("most", 5_000)):
        question = next(
            one
            for one in others
            if one.shape == shape and status(unstated(one, facts)) == GateStatus.PASSED
        )
        assert question.by is not None
        best = facts.table.extreme(question.targets, question.by, shape)
        other = next(one for one in question.targets if one != best)
        for named, wanted in ((question.by, GateStatus.FAILED), ("award", GateStatus.PASSED)):
            more = f" Or the {named.replace('_', ' ')} is {number}."
            told = spoiled(facts, tmp_path / f"{shape}-{named}", other, partial(longer, more=more))
            assert status(unstated(question, told)) == wanted


def longer(document: CorpusDocument, more: str) -> CorpusDocument:
    return document.model_copy(update={"text": document.text + more})


def test_a_chain_that_meets_an_entity_twice_is_found(facts: CorpusFacts) -> None:
    """A director, known by a film of his own: whoever finds the one has the other."""
    film = next(one for one in facts.documents.values() if one.kind == "films")
    director = next(fact.ref for fact in film.facts if fact.attribute == "director")
    assert director is not None
    named = Clue(attribute="director", op="is", value=facts.documents[director].title)
    of_film = EntityQuery(kind="films", clauses=(named,))
    chained = SearchQuestion(
        shape="one", ask="title", language="en", wording=0, group="films-0", targets=(film.id,),
        query=EntityQuery(
            kind="films", clauses=(Clue(attribute="director", op="entity", entity=of_film),)
        ),
        evidence=(film.id,),
    )  # fmt: skip
    assert status(chain(chained, facts)) == GateStatus.FAILED


def test_a_clause_that_could_be_left_out_is_found(
    facts: CorpusFacts, questions: list[SearchQuestion]
) -> None:
    for question in questions:
        wide = Clue(attribute="year", op="between", low=0, high=3000)
        if question.query.kind == "directors":
            wide = wide.model_copy(update={"attribute": "birth_year"})
        query = EntityQuery(kind=question.query.kind, clauses=(*question.query.clauses, wide))
        more = question.model_copy(update={"query": query})
        assert status(unique(more, facts)) == GateStatus.PASSED
        assert status(minimal(more, facts)) == GateStatus.FAILED


def test_an_answer_in_the_question_or_in_what_leads_to_it_is_found(
    facts: CorpusFacts, questions: list[SearchQuestion], tmp_path: Path
) -> None:
    question = next(one for one in questions if one.ask == "title" and one.query.depth == 2)
    prompt = worded(question, facts.table)
    assert status(leak(question, facts, prompt)) == GateStatus.PASSED
    title = facts.documents[question.group].title
    assert status(leak(question, facts, f"{prompt} {title.upper()}")) == GateStatus.FAILED
    for place in ("title", "url"):

        def tell(document: CorpusDocument, place: str = place) -> CorpusDocument:
            return document.model_copy(update={place: f"on {title}"})

        first = spoiled(facts, tmp_path / place, question.evidence[0], tell)
        found = leak(question, first, prompt)
        assert status(found) == GateStatus.FAILED
        assert place.replace("url", "address") in found.reason


def test_an_answer_that_most_others_share_is_a_guess(facts: CorpusFacts, tmp_path: Path) -> None:
    question = SearchQuestion(
        shape="one", ask="award", language="en", wording=0, group="directors-0", targets=("directors-0",),
        query=EntityQuery(kind="directors", clauses=(Clue(attribute="city", op="is", value="x"),)),
        evidence=("directors-0",),
    )  # fmt: skip
    documents = [
        one.model_copy(update={"facts": tuple(_with(fact, award="Lion") for fact in one.facts)})
        for one in facts.documents.values()
    ]
    corpus = write_corpus(tmp_path, facts.opened.corpus.header, documents)
    same = CorpusFacts(OpenCorpus(corpus, FTS5Index(corpus)))
    assert status(prior(question, same)) == GateStatus.FAILED


def _with(fact: Fact, **values: str) -> Fact:
    return fact.model_copy(update={"value": values.get(fact.attribute, fact.value)})


def test_near_entities_with_the_same_answer_are_found(
    facts: CorpusFacts, questions: list[SearchQuestion], tmp_path: Path
) -> None:
    question = next(one for one in questions if one.ask == "title" and one.query.depth == 1)
    assert status(near_answers(question, facts)) == GateStatus.PASSED
    title = facts.documents[question.group].title
    documents = [one.model_copy(update={"title": title}) for one in facts.documents.values()]
    corpus = write_corpus(tmp_path, facts.opened.corpus.header, documents)
    same = CorpusFacts(OpenCorpus(corpus, FTS5Index(corpus)))
    assert status(near_answers(question, same)) == GateStatus.FAILED


def test_a_document_that_answers_the_question_in_one_search_is_found(
    facts: CorpusFacts, questions: list[SearchQuestion], tmp_path: Path
) -> None:
    question = next(
        one
        for one in questions
        if one.query.depth == 2
        and status(single_search(one, facts, worded(one, facts.table))) == GateStatus.PASSED
    )
    prompt = worded(question, facts.table)
    answer = facts.table.answers(question.group, question.ask)[0]

    def tell(document: CorpusDocument) -> CorpusDocument:
        text = f"{prompt} It is {answer}."
        return document.model_copy(update={"id": "a-digest", "text": text, "facts": ()})

    told = spoiled(facts, tmp_path, question.group, tell)
    assert status(single_search(question, told, prompt)) == GateStatus.FAILED


def test_a_question_is_worded_the_same_each_time_and_otherwise_by_another_seed(
    facts: CorpusFacts, questions: list[SearchQuestion]
) -> None:
    texts = set()
    for seed in range(12):
        question = questions[1].model_copy(update={"wording": seed})
        draft = task_of(question, facts.table, facts.opened)
        assert (
            draft.task.spec.prompt == task_of(question, facts.table, facts.opened).task.spec.prompt
        )
        texts.add(draft.task.spec.prompt)
    assert len(texts) > 2


def test_no_question_is_about_what_a_near_duplicate_might_be_meant_by(tmp_path: Path) -> None:
    """Every second film stands there twice, the second time without one of its facts."""
    lines, copied = [], set()
    for document in films_corpus(tmp_path / "films", films=120).documents():
        row = document.model_dump(mode="json", by_alias=True, exclude_none=True)
        lines.append(row)
        number = int(document.id.split("-")[1])
        if document.kind == "films" and number % 2:
            left = [one for i, one in enumerate(row["facts"]) if i != number % len(row["facts"])]
            lines.append(
                {**row, "id": f"{document.id}-copy", "title": "Another title", "facts": left}
            )
            copied |= {document.id, f"{document.id}-copy"}
    path = tmp_path / "films.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    corpus = build_corpus([path], tmp_path / "corpus")
    facts = CorpusFacts(OpenCorpus(corpus, FTS5Index(corpus)))
    found = drawn(facts, [(1, 2), (1, 3), (2, 2)] * 8, "one")
    both = [one for one in found if set(one.targets) & copied]
    assert both
    for question in both:
        refused = [gate(question, facts).status for gate in (unique, unstated)]
        assert GateStatus.FAILED in refused
    assert any(unstated(one, facts).status is GateStatus.PASSED for one in found)


def test_near_duplicates_are_those_of_a_comparison_of_all_pairs() -> None:
    draw = Random(3)
    texts = [" ".join(draw.choices("abcdefgh", k=30)) for _ in range(40)]
    for text in texts[:20]:
        words = text.split()
        words[draw.randrange(30)] = "x"
        texts.append(" ".join(words))
    runs = [{tuple(text.split()[i : i + 3]) for i in range(28)} for text in texts]
    alike = NearDuplicates(texts)
    for row, own in enumerate(runs):
        wanted = [
            one
            for one, other in enumerate(runs)
            if one != row and len(own & other) / len(own | other) >= 0.8
        ]
        assert alike.of(row) == wanted
