"""Search questions from tables to played episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from films import INJECTION, films_corpus
from pydantic import ValidationError

from envgen.cli.datasets import Validate
from envgen.core.errors import (
    ConfigError,
    DatasetError,
    MissingExtraError,
    PipelineError,
    ResumeError,
    StoreError,
)
from envgen.environments.families import make_env
from envgen.environments.hosts import open_dataset
from envgen.environments.search import SearchEnv, pages
from envgen.pipelines.search.config import SearchConfig
from envgen.pipelines.search.generate import generate_search
from envgen.pipelines.search.import_questions import import_questions
from envgen.pipelines.search.questions import SearchQuestion
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, RolloutSummary, rollout
from envgen.store.corpus import Corpus, known_place
from envgen.store.corpus_engines import Engine
from envgen.store.corpus_fts5 import FTS5Index
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return films_corpus(tmp_path_factory.mktemp("films"))


@pytest.fixture
def questions(corpus: Corpus, tmp_path: Path) -> Dataset:
    """Twenty questions, with the corpus known to this test's user."""
    config = SearchConfig(corpus=corpus.path, questions=20, depth="1..2", breadth="2..3")
    summary = generate_search(config, tmp_path / "qa", workers=1)
    assert summary.tasks == 20
    return Dataset.open(tmp_path / "qa")


def test_the_same_seed_gives_the_same_questions_with_any_number_of_processes(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envgen.pipelines.validate._ALONE_S", 0.0)
    found = []
    for workers, seed in ((1, 0), (2, 0), (1, 1)):
        config = SearchConfig(corpus=corpus.path, questions=6, depth="1..2", seed=seed)
        generate_search(config, tmp_path / f"{workers}{seed}", workers=workers)
        found.append(Dataset.open(tmp_path / f"{workers}{seed}").manifest.content_hash)
    assert found[0] == found[1] != found[2]


def test_an_interrupted_assembly_goes_on(corpus: Corpus, tmp_path: Path) -> None:
    config = SearchConfig(corpus=corpus.path, questions=6, depth="1..2")
    whole = generate_search(config, tmp_path / "whole", workers=1)
    proven: list[str] = []

    def stop(done: int, total: int, what: str) -> None:
        proven.append(what) if what != "drawn" else None
        if len(proven) == 3:
            raise KeyboardInterrupt

    out = tmp_path / "qa"
    with pytest.raises(KeyboardInterrupt):
        generate_search(config, out, workers=1, progress=stop)
    with open(tmp_path / "qa.partial" / "proofs.jsonl", "a") as journal:
        journal.write('{"task_id": "cut o')
    with pytest.raises(ResumeError, match="another configuration"):
        generate_search(config.model_copy(update={"seed": 9}), out)
    (tmp_path / "qa.partial").chmod(0o777)  # others could have written what is believed
    with pytest.raises(ResumeError, match="not private"):
        generate_search(config, out)
    (tmp_path / "qa.partial").chmod(0o700)
    proven *= 2  # past the stop
    again = generate_search(config, out, workers=1, progress=stop)
    assert len(proven) - 6 == again.drafted - 3
    assert not (tmp_path / "qa.partial").exists()
    hashes = {Dataset.open(tmp_path / name).manifest.content_hash for name in ("whole", "qa")}
    assert len(hashes) == 1
    assert whole.tasks == again.tasks


def test_gold_scores_one_and_blind_players_little(questions: Dataset, tmp_path: Path) -> None:
    passed = {}
    for policy in ("gold", "random-valid", "bm25-reader"):
        summary = play(questions, policy, tmp_path / policy)
        assert summary.errors == 0
        passed[policy] = summary.passed
    assert passed["gold"] == 20
    assert passed["random-valid"] <= 4
    assert passed["bm25-reader"] < 20


def test_an_agent_searches_opens_finds_and_answers(questions: Dataset) -> None:
    with gymnasium.make("envgen/Search-v0", dataset=questions.path) as env:
        task_id = next(one for one in questions.own_task_ids if questions.facts(one).level == 1)
        env.reset(options={"task_id": task_id})
        hits = step(env, "search", query="western Kenya", k=3)
        assert len(hits) == 3
        assert set(hits[0]) == {"id", "title", "url", "snippet"}
        assert step(env, "search", query="western Kenya", k=3, page=2) != hits
        page = step(env, "open", document=hits[0]["id"])
        assert page["pages"] == 1
        assert step(env, "find", document=hits[0]["id"], pattern="FILM  number")[0]["page"] == 1
        assert step(env, "find", document=hits[0]["id"], pattern="(a+)+$") == []
        assert step(env, "open", document="nowhere")["error"] == "unknown_document"
        assert step(env, "open", document=hits[0]["id"], page=9)["error"] == "no_page"
        assert step(env, "search", query=7)["error"] == "invalid_arguments"
        gold = questions.task_files(task_id).gold
        assert gold is not None
        answer = json.dumps({"tool_calls": [call("submit_result", answer_text=str(gold.answer))]})
        assert env.step(answer)[1] == 1.0


def test_an_engine_is_chosen_by_name(questions: Dataset) -> None:
    pytest.importorskip("tantivy", reason="pip install 'envgen-gym[search]'")
    shown = []
    for engine in ("fts5", "tantivy"):
        with gymnasium.make("envgen/Search-v0", dataset=questions.path, engine=engine) as env:
            env.reset(seed=0)
            shown.append(step(env, "search", query="noir Kenya", k=20))
    assert len(shown[0]) == len(shown[1]) == 20
    titles = [{hit["title"] for hit in hits} for hits in shown]
    assert len(titles[0] & titles[1]) >= 10
    with pytest.raises(ConfigError, match="unknown search engine 'lucene'; there are"):
        SearchEnv(questions.path, engine="lucene")  # type: ignore[arg-type]


def test_questions_proven_with_another_engine_are_played_with_it(
    corpus: Corpus, tmp_path: Path
) -> None:
    tantivy = pytest.importorskip("envgen.store.corpus_tantivy", exc_type=MissingExtraError)
    out = tmp_path / "qa"
    generate_search(
        SearchConfig(corpus=corpus.path, questions=4, depth="2", engine="tantivy"), out, workers=1
    )
    assert validate(out).passed
    chosen: tuple[tuple[Engine | None, type], ...] = (
        (None, tantivy.TantivyIndex),
        ("fts5", FTS5Index),
    )
    for engine, searcher in chosen:
        env = SearchEnv(out, engine=engine)
        (opened,) = map(env.opened, env.dataset.environments)
        assert type(opened.searcher) is searcher


def test_documents_are_data(questions: Dataset, corpus: Corpus) -> None:
    env = SearchEnv(questions.path)
    env.reset(seed=0)
    spoken = step(env, "open", document="films-7")["text"]
    assert INJECTION in spoken
    assert env.stop is None


def test_without_its_corpus_nothing_is_played_and_nothing_counted(
    questions: Dataset, corpus: Corpus, tmp_path: Path
) -> None:
    elsewhere = known_place(corpus.hash).rename(tmp_path / known_place(corpus.hash).name)
    from envgen.environments.search import open_corpus

    open_corpus.cache_clear()
    with pytest.raises(StoreError, match="not on this machine"):
        play(questions, "gold", tmp_path / "run")
    env = SearchEnv(questions.path)
    with pytest.raises(StoreError, match="not on this machine"):
        env.reset(seed=0)
    report = validate(questions.path)
    assert not report.passed
    assert report.how.startswith("20 of 20 tasks NOT COUNTED AGAIN")
    assert {one.evidence[0].status for one in report.tasks} == {"not_run"}
    Validate(dataset=questions.path, corpus=elsewhere).execute()
    assert validate(questions.path).passed


CHANGES: dict[str, Any] = {
    "prompt": lambda spec: {"prompt": "Which film is best?"},
    "level": lambda spec: {"difficulty": spec.difficulty.model_copy(update={"level": 9})},
    "limits": lambda spec: {"limits": spec.limits.model_copy(update={"turns": 1})},
}


@pytest.mark.parametrize("what", [*CHANGES, "verifier", "solution", "gold", "tools"])
def test_what_somebody_changed_is_found(questions: Dataset, tmp_path: Path, what: str) -> None:
    chosen = questions.own_task_ids[0]
    with DatasetWriter(tmp_path / "forged", name="forged") as writer:
        env_id = questions.facts(chosen).environment_id
        environment = questions.environment_files(env_id).bundle()
        if what == "tools":
            tools = tuple(
                one.model_copy(update={"description": "x"}) for one in environment.spec.tools
            )
            spec = environment.spec.model_copy(update={"tools": tools})
            environment = environment.model_copy(update={"spec": spec})
        writer.add_environment(environment)
        for task_id in questions.own_task_ids:
            files = questions.task_files(task_id)
            if task_id == chosen and what != "tools":
                files = _forged(files, what, questions.task_files(questions.own_task_ids[1]))
            writer.add_task(files)
        writer.finish()
    report = validate(tmp_path / "forged")
    failed = {one.task_id for one in report.tasks if not one.passed}
    assert failed == (set(questions.own_task_ids) if what == "tools" else {chosen})


def _forged(files: Any, what: str, other: Any) -> Any:
    if what in CHANGES:
        changed = files.spec.model_copy(update=CHANGES[what](files.spec))
        return files.model_copy(update={"spec": changed})
    return files.model_copy(update={what: getattr(other, what)})


def test_questions_that_a_corpus_cannot_give_are_an_error(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no such question"):
        generate_search(SearchConfig(corpus=corpus.path, depth="4"), tmp_path / "a")
    with pytest.raises(ConfigError, match="exists"):
        generate_search(SearchConfig(corpus=corpus.path), tmp_path)
    with pytest.raises(DatasetError, match="no corpus"):
        generate_search(SearchConfig(corpus=tmp_path / "none"), tmp_path / "b")


def test_a_question_that_would_be_counted_for_hours_is_refused() -> None:
    leaf: dict[str, Any] = {"attribute": "year", "op": "is", "value": "x"}
    deep = {"kind": "films", "clauses": [leaf]}
    for _ in range(4):
        deep = {"kind": "films", "clauses": [{"attribute": "next", "op": "entity", "entity": deep}]}
    nested = {
        "attribute": "next",
        "op": "entity",
        "entity": {"kind": "films", "clauses": [leaf] * 8},
    }
    for query in (deep, {"kind": "films", "clauses": [nested] * 8}):
        with pytest.raises(ValidationError, match="at most 4 levels and 24 clauses"):
            SearchQuestion.model_validate(
                {"shape": "one", "query": query, "ask": "title", "language": "en", "wording": 0,
                 "group": "a", "targets": ["a"], "evidence": ["a"]}
            )  # fmt: skip


def test_questions_of_others_are_played_and_not_proven(corpus: Corpus, tmp_path: Path) -> None:
    rows = [
        {"question": "Who shot film 3?", "answers": ["Director 3", "D. 3"]},
        {"question": "who shot film 3?", "answer": "Director 4"},
        {"query": "How many?", "answer": 7},
        {"problem": "Which?", "answer": ["a", "b"]},
        {"question": "", "answer": "x"},
        {"question": "And?", "answer": None},
        {"question": "And then?", "answer": {"a": 1}},
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = import_questions(tmp_path / "mine.jsonl", tmp_path / "mine", corpus=corpus.path)
    assert found.tasks == 3
    assert found.left_out == {
        "asked twice": 1, "no question": 1, "no answer": 1,
        "an answer that is neither a text nor a number": 1,
    }  # fmt: skip
    with pytest.raises(DatasetError, match="no evidence"):
        Dataset.open(tmp_path / "mine")
    dataset = Dataset.open(tmp_path / "mine", unproven=True)
    env = SearchEnv(dataset)
    env.reset(
        options={"task_id": next(n for n, t in dataset.tasks.items() if t.prompt == "Which?")}
    )
    action = json.dumps({"tool_calls": [call("submit_result", answer_text='["b", "a"]')]})
    assert env.step(action)[1] == 1.0
    report = validate(tmp_path / "mine")
    assert not report.passed
    assert {one.evidence[0].status for one in report.tasks} == {"not_run"}


def test_the_shipped_questions_are_played_where_no_dataset_is_named() -> None:
    with gymnasium.make("envgen/Search-v0") as env:
        dataset = open_dataset("package:search_questions")
        assert len(dataset.tasks) == 80
        assert {dataset.facts(one).level for one in dataset.tasks} >= set(range(1, 9))
        task_id = min(dataset.tasks)
        env.reset(options={"task_id": task_id})
        gold = dataset.task_files(task_id).gold
        assert gold is not None
        for one in gold.calls:
            assert step(env, one.name, **one.arguments) == one.result
    with pytest.raises(ConfigError, match="ships none"):
        make_env(family="code")


@pytest.mark.slow
def test_the_shipped_questions_are_what_their_command_makes_and_hold(tmp_path: Path) -> None:
    generate_search(SearchConfig(questions=80, language="en,zh"), tmp_path / "qa")
    shipped = open_dataset("package:search_questions")
    assert Dataset.open(tmp_path / "qa").manifest.content_hash == shipped.manifest.content_hash
    assert validate(shipped.path).passed


def test_pages_lose_nothing_and_end_at_words() -> None:
    text = "word " * 3_000 + "x" * 9_000
    borders = pages(text)
    assert "".join(text[low:high] for low, high in borders) == text
    assert all(text[high - 1] == " " for _, high in borders[:3])


def play(dataset: Dataset, policy: str, out: Path) -> RolloutSummary:
    """One episode of each task."""
    return rollout(
        RolloutConfig(
            dataset=str(dataset.path),
            out=str(out),
            policy=PolicyConfig(spec=policy),
            n=1,
            concurrency=1,
        )
    )


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def step(env: Any, name: str, **arguments: object) -> Any:
    """The result of one tool call."""
    observation = env.step(json.dumps({"tool_calls": [call(name, **arguments)]}))[0]
    return json.loads(observation)
