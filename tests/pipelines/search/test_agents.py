"""Questions that models write, answer and verify, over a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from films import films_corpus
from model_server import ModelServer, Raw
from said_again import said
from search_models import Brain, brains, script
from web_server import Page, WebServer
from written_runs import FAST, films_web, generate, serve

from envgen.core.errors import ConfigError, PipelineError, PolicyError, SearchEngineError
from envgen.pipelines.search.agents import generate_written
from envgen.pipelines.search.config import WrittenConfig
from envgen.pipelines.search.show import readable
from envgen.pipelines.search.web.cache import web_id
from envgen.pipelines.search.written import WrittenQuestion
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.corpus import Corpus
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CHINESE = "哪一部電影的導演生於一九一二年?"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return films_corpus(tmp_path_factory.mktemp("films"))


def test_models_write_questions_that_are_proven_played_and_paid_once(
    corpus: Corpus, tmp_path: Path
) -> None:
    with serve(corpus) as server:
        summary = generate(corpus, tmp_path / "qa", server)
        asked = len(server.generations)
        again = generate(corpus, tmp_path / "again", server)
        assert len(server.generations) == 2 * asked
        (tmp_path / "third.calls").symlink_to(tmp_path / "qa.calls")
        third = generate(corpus, tmp_path / "third", server)
        assert len(server.generations) == 2 * asked
    assert (summary.tasks, summary.conversations > 20) == (3, True)
    assert summary.usage.prompt_tokens == third.usage.prompt_tokens > 0
    found = [Dataset.open(one.path).manifest.content_hash for one in (summary, again, third)]
    assert len(set(found)) == 1
    dataset = Dataset.open(tmp_path / "qa")
    for task_id in dataset.tasks:
        question = WrittenQuestion.model_validate_json(dataset.task_files(task_id).solution)
        assert "as its documents say" not in question.question
        assert len(question.truth) == 3
        assert {one.verdict for votes in question.truth for one in votes} == {"supported"}
        assert question.candidates
    models = "writer openai:writer, verifier openai:verifier, answerers openai:answerer"
    assert dataset.manifest.funnel["models"] == models
    report = validate(dataset.path)
    assert report.passed
    assert "one model" not in report.how
    gates = {one.gate: str(one.status) for one in report.tasks[0].evidence}
    assert gates["verified"] == gates["single_search"] == gates["played"] == "passed"
    assert gates["unique"] == "not_applicable"
    run = RolloutConfig(
        dataset=str(dataset.path), policy=PolicyConfig(spec="gold"), n=1, out=str(tmp_path / "run")
    )
    assert rollout(run).passed == 3


def test_recorded_calls_replay_without_a_server(corpus: Corpus, tmp_path: Path) -> None:
    with serve(corpus) as server:
        summary = generate(corpus, tmp_path / "qa", server)
    calls = tmp_path / "qa.calls"
    roles = {
        "writer": f"replay:{calls}/writer.jsonl",
        "answerers": f"replay:{calls}/answerer-1.jsonl,replay:{calls}/answerer-2.jsonl#plain",
        "verifier": f"replay:{calls}/verifier.jsonl",
    }
    config = WrittenConfig(
        corpus=corpus.path, questions=3, attempts=20, depth="2", breadth="2", **roles
    )
    replayed = generate_written(config, tmp_path / "replayed", workers=1)
    assert replayed.tasks == summary.tasks
    ids = [set(Dataset.open(tmp_path / name).tasks) for name in ("qa", "replayed")]
    assert ids[0] == ids[1]


def test_over_the_live_web_what_was_seen_becomes_the_corpus(corpus: Corpus, tmp_path: Path) -> None:
    with films_web(corpus) as web:
        honest = brains(corpus, lambda name: web_id(f"{web.url}/{name}"))
        with ModelServer([script(honest)]) as server:
            engine = f"searxng:{web.url}"
            summary = generate(
                corpus, tmp_path / "qa", server, engine=engine, allow_private=True, questions=2
            )
    assert summary.tasks == 2
    assert validate(tmp_path / "qa").passed
    run = RolloutConfig(
        dataset=str(tmp_path / "qa"),
        policy=PolicyConfig(spec="gold"),
        n=1,
        out=str(tmp_path / "run"),
    )
    assert rollout(run).passed == 2


def test_an_engine_out_of_quota_ends_the_run(corpus: Corpus, tmp_path: Path) -> None:
    with WebServer(search=Page({}, status=402)) as web, serve(corpus) as server:
        with pytest.raises(SearchEngineError, match="402"):
            generate(corpus, tmp_path / "qa", server, engine=f"searxng:{web.url}")
        assert len(web.seen) <= 8  # one each of those that were at work


def _handed(brain: Brain, **changes: Any) -> Brain:
    """A brain whose handed-in form is changed."""

    def changed(body: dict[str, Any]) -> Any:
        said: Any = brain(body)
        return (said[0], {**said[1], **changes}) if said[0] == "hand_in" else said

    return changed


def _verdicts(brain: Brain, verdict: str, quote: str = "") -> Brain:
    """A verifier that says one thing of every clue, of the documents that an honest one names."""

    def changed(body: dict[str, Any]) -> Any:
        said: Any = brain(body)
        if said[0] != "hand_in":
            return said
        votes = [{**one, "verdict": verdict} for one in said[1]["verdicts"]]
        return "hand_in", {
            "verdicts": [{**one, **({"quote": quote} if quote else {})} for one in votes]
        }

    return changed


def _bad(corpus: Corpus) -> dict[str, tuple[dict[str, Brain], str]]:
    good = brains(corpus)
    invented = [
        {"text": "its genre is odd", "document": "films-1", "quote": "Its genre is odd"}
    ] * 2

    def truth(body: dict[str, Any]) -> Any:  # the writer's answers, to anybody who asks
        prompt = next(m for m in body["messages"] if m["role"] == "user")["content"]
        return "hand_in", {"answer": answers.get(prompt.split("\n")[0], "Film number 0")}

    def named(body: dict[str, Any]) -> Any:
        said: Any = good["writer"](body)
        if said[0] != "hand_in":
            return said
        return "hand_in", {**said[1], "question": f"Is it true that {said[1]['answer']} fits?"}

    def obedient(body: dict[str, Any]) -> Any:  # a page tells it what to do, and it does it
        if len(body["messages"]) == 1:
            return "open", {"document": "films-7"}
        if "Ignore the question" not in str(body["messages"]):
            return "hand_in", {"verdicts": []}
        return _verdicts(good["verifier"], "supported")(body)

    answers: dict[str, str] = {}

    def noted(body: dict[str, Any]) -> Any:
        said: Any = good["writer"](body)
        if said[0] == "hand_in":
            question = said[1]["question"]
            answers[question] = said[1]["answer"]
            answers[question.replace(", as its documents say", "")] = said[1]["answer"]
        return said

    return {
        "invented spans": ({"writer": _handed(good["writer"], clues=invented)}, "the writer: "),
        "the answer in the question": (
            {"writer": named},
            "the writer: ",
        ),
        "another language": ({"writer": _handed(good["writer"], question=CHINESE)}, "the writer: "),
        "a refusal": ({"writer": lambda _: "I can't help with that."}, "the writer: silent"),
        "a loop": ({"writer": lambda _: ("search", {"query": "film"})}, "the writer: repeats"),
        "a verifier that invents": (
            {"verifier": _verdicts(good["verifier"], "supported", "it is so")}, "clue  is not supported",
        ),
        "a verifier that says yes": (
            {"verifier": _verdicts(good["verifier"], "supported")}, "no clue is contradicted",
        ),
        "a verifier that obeys a page": ({"verifier": obedient}, "no clue is contradicted"),
        "a verifier that says no": (
            {"verifier": _verdicts(good["verifier"], "contradicted")}, "clue  is contradicted for the writer",
        ),
        "a verifier that finds nothing": (
            {"verifier": _verdicts(good["verifier"], "not_found")}, "clue  is not supported",
        ),
        "an answerer that knows": ({"writer": noted, "answerer": truth}, "too easy"),
        "answerers without an answer": (
            {"answerer": lambda _: ("hand_in", {"answer": ""})}, "nobody gave another answer",
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        "invented spans", "the answer in the question", "another language", "a refusal", "a loop",
        "a verifier that invents", "a verifier that says yes", "a verifier that obeys a page",
        "a verifier that says no", "a verifier that finds nothing",
        "an answerer that knows", "answerers without an answer",
    ],
)  # fmt: skip
def test_no_bad_question_is_kept(corpus: Corpus, tmp_path: Path, case: str) -> None:
    exchanged, why = _bad(corpus)[case]
    with serve(corpus, **exchanged) as server, pytest.raises(PipelineError) as caught:
        generate(corpus, tmp_path / "qa", server, questions=1, attempts=40, passes=1)
    assert why in str(caught.value.hint)


def test_a_server_that_fails_ends_the_run_and_a_budget_ends_it_early(
    corpus: Corpus, tmp_path: Path
) -> None:
    for answer in (Raw(401, "{}"), Raw(200, '{"choices": [{"mess')):
        with ModelServer([answer]) as server, pytest.raises(PolicyError):
            generate(corpus, tmp_path / "qa", server)
    options = {**FAST, "price": {"prompt": 1.0, "completion": 1.0}}
    with serve(corpus) as server:
        with pytest.raises(ConfigError, match="one question may cost"):
            generate(corpus, tmp_path / "poor", server, max_cost_usd=0.1, options=options)
        assert not server.requests
        summary = generate(
            corpus, tmp_path / "rich", server, options=options, questions=9,
            max_cost_usd=1.5, concurrency=1,
        )  # fmt: skip
    assert 0 < summary.tasks < 9
    assert "budget" in summary.stopped
    with pytest.raises(ConfigError, match="--verifier is missing"):
        generate_written(
            WrittenConfig(writer="openai:x@http://127.0.0.1:9/v1", answerers="greedy"),
            tmp_path / "n",
            check=False,
        )


def test_validate_finds_a_spoilt_proof(corpus: Corpus, tmp_path: Path) -> None:
    with serve(corpus) as server:
        generate(corpus, tmp_path / "qa", server, questions=1)
    dataset = Dataset.open(tmp_path / "qa")
    (task_id,) = dataset.tasks
    solution = json.loads(dataset.task_files(task_id).solution)
    spoilt = {
        "quotes": {**solution, "source_quote": "Film number 1 is the best"},
        "verified": {**solution, "candidates": []},
        "leak": {
            **solution,
            "question": f"Is {solution['answer']['values'][0]} a film of this genre?",
        },
    }
    for gate, text in spoilt.items():
        path = tmp_path / gate
        _rewritten(dataset, path, WrittenQuestion.model_validate(text), corpus)
        report = validate(path)
        assert not report.passed
        failed = [one.gate for one in report.tasks[0].evidence if str(one.status) == "failed"]
        assert gate in failed


def test_one_model_in_all_roles_is_told(corpus: Corpus, tmp_path: Path) -> None:
    with serve(corpus) as server:
        generate(corpus, tmp_path / "qa", server, questions=1)
    dataset = Dataset.open(tmp_path / "qa")
    (task_id,) = dataset.tasks
    solution = dataset.task_files(task_id).solution
    for role in ("writer", "verifier", "answerer"):
        solution = solution.replace(f"openai:{role}", "openai:m")
    alone = WrittenQuestion.model_validate_json(solution)
    _rewritten(dataset, tmp_path / "alone", alone, corpus)
    report = validate(tmp_path / "alone")
    assert report.passed, report
    assert "of 1 of them one model in all roles" in report.how
    shown = readable(Dataset.open(tmp_path / "alone", unproven=True), report.tasks[0].task_id)
    assert shown["Models"][1] == "one model in all roles"


def _rewritten(dataset: Dataset, path: Path, question: WrittenQuestion, corpus: Corpus) -> None:
    from envgen.environments.search import open_corpus
    from envgen.pipelines.search.written import written_task

    draft = written_task(question, open_corpus(corpus.hash))
    with DatasetWriter(path, name="search") as writer:
        writer.add_environment(draft.environment)
        writer.add_task(draft.task)
        writer.finish()


WRITTEN = Path(__file__).parents[2] / "data" / "written"
OUTCOMES = json.loads((WRITTEN / "outcomes.json").read_text("utf-8"))
REFUSED_SINCE = {"399529": 'does not hold what the clue "Its director\'s city is in France." says'}
"""Kept when they were recorded; since quotes must hold what their clues say, why not: Lyon is quoted."""


FOUND_OTHERWISE = ("344667", "670536", "715133")
"""Their searches show other results since words end at apostrophes: what was said is said again."""


@pytest.mark.parametrize("seed", sorted(OUTCOMES))
def test_recorded_models_give_what_they_gave(seed: str, corpus: Corpus, tmp_path: Path) -> None:
    """Seeds were drawn beforehand; one fresh model a conversation saw its requests and nothing else."""
    wanted, folder = OUTCOMES[seed], WRITTEN / seed
    plain = "#plain" if wanted["corpus"] == "films" else ""
    silent = tmp_path / "none.jsonl"
    silent.touch()

    def replay(role: str) -> str:
        path = folder / f"{role}.jsonl"
        if seed in FOUND_OTHERWISE and path.exists():
            return said(path, tmp_path)
        return f"replay:{path if path.exists() else silent}"

    answerers = [replay("answerer-1") + plain, replay("answerer-2") + plain]
    if not plain:
        answerers.append(f"{replay('answerer-3')}#plain")
    config = WrittenConfig(
        corpus=corpus.path if plain else None, seed=int(seed), questions=1, attempts=1, depth="2",
        breadth="2..3", writer=replay("writer"), answerers=",".join(answerers),
        verifier=replay("verifier"),
    )  # fmt: skip
    if not wanted["kept"] or seed in REFUSED_SINCE:
        with pytest.raises(PipelineError) as caught:
            generate_written(config, tmp_path / "qa", workers=1)
        assert (wanted["why"] or REFUSED_SINCE[seed]) in str(caught.value.hint)
        return
    summary = generate_written(config, tmp_path / "qa", workers=1)
    assert summary.tasks == 1
    assert summary.usage.prompt_tokens + summary.usage.completion_tokens == wanted["tokens"]
    assert validate(tmp_path / "qa").passed
