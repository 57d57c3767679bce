"""Open questions that models write, answer, verify and judge, over a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from films import films_corpus
from model_server import ModelServer
from search_models import Brain, open_brains, script

from envgen.core.errors import PipelineError, UnjudgedError
from envgen.core.turns import encode_message
from envgen.core.types import Message, StopReason
from envgen.environments.families import make_env
from envgen.environments.search import SearchEnv, open_corpus
from envgen.pipelines.rubric.judge_run import judge_run
from envgen.pipelines.search.agents import generate_written
from envgen.pipelines.search.config import WrittenConfig
from envgen.pipelines.search.open_questions import OpenQuestion, open_task
from envgen.pipelines.search.show import readable
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig, parse_policy
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.corpus import Corpus
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.store.writer import DatasetWriter
from envgen.verifiers.rubrics.judge import RubricJudge

FAST = {"stream": False, "max_retries": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return films_corpus(tmp_path_factory.mktemp("films"))


def submission(text: str) -> str:
    """An action that submits a text."""
    call = {"id": "c1", "name": "submit_result", "arguments": {"answer_text": text}}
    return encode_message(
        Message.model_validate({"role": "assistant", "content": "", "tool_calls": [call]})
    )


def generate(corpus: Corpus, out: Path, *, questions: int = 2, **exchanged: Brain) -> Any:
    with ModelServer([script({**open_brains(corpus), **exchanged})]) as server:
        config = WrittenConfig(
            corpus=corpus.path, kind="open", questions=questions, attempts=12, depth="2", breadth="3",
            writer=f"openai:writer@{server.url}", verifier=f"openai:verifier@{server.url}",
            answerers=f"openai:answerer@{server.url},openai:answerer@{server.url}#plain", options=FAST,
        )  # fmt: skip
        return generate_written(config, out, workers=1, check=False)


@pytest.fixture(scope="module")
def reports(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("open") / "qa"
    assert generate(corpus, out).tasks == 2
    return Dataset.open(out)


def test_open_questions_are_proven_shown_played_and_judged(
    corpus: Corpus, reports: Dataset, tmp_path: Path
) -> None:
    found = validate(reports.path)
    assert found.passed
    gates = {one.gate: str(one.status) for one in found.tasks[0].evidence}
    passed = ("stored", "quotes", "judged", "leak", "played")
    assert [gates[name] for name in passed] == ["passed"] * 5
    task_id = next(iter(reports.tasks))
    question = OpenQuestion.model_validate_json(reports.task_files(task_id).solution)
    kinds = [one.kind for one in question.answers]
    assert {kinds.count(kind) for kind in ("reference", "answerer", "plain")} == {1}
    assert kinds.count("attack") == 7
    assert readable(reports, task_id)["Answers and their scores"][0].startswith("1.00  reference")

    run = RolloutConfig(
        dataset=str(reports.path), policy=PolicyConfig(spec="gold"), n=2, out=str(tmp_path / "run")
    )
    summary = rollout(run)
    assert (summary.samples, summary.unjudged, summary.errors, summary.spoiled) == (4, 4, 0, 0)
    assert rollout(run.model_copy(update={"retry_errors": True})).new == 0  # nothing is paid twice
    with RunStore.read(tmp_path / "run") as store:
        assert {one.stop for one in store.trajectories()} == {StopReason.SUBMITTED}
    with ModelServer([script(open_brains(corpus))]) as server:
        policy = parse_policy(PolicyConfig(spec=f"openai:verifier@{server.url}", options=FAST))
        judge = RubricJudge(policy)
        judged = judge_run(
            tmp_path / "run", reports.path, judge, tmp_path / "x.jsonl", 2, True, None, lambda *_: None
        )  # fmt: skip
        assert (judged.mean, judged.unjudged) == (1.0, 0)
        env = make_env(reports, "search", judge=judge.rate)
        env.reset(options={"task_id": task_id})
        _, reward, terminated, _, info = env.step(submission("It is a film, I think."))
        assert (reward, terminated) == (0.0, True)
        assert "not met" in info["reasons"][0]


def test_without_a_judge_an_answer_is_no_zero_unless_it_says_nothing(reports: Dataset) -> None:
    env, task_id = SearchEnv(reports), next(iter(reports.tasks))
    for text, scored in (
        ("It is a film of long ago.", False),
        ("Let me think step by step.", True),
    ):
        env.reset(options={"task_id": task_id})
        if scored:
            assert env.step(submission(text))[1:3] == (0.0, True)
        else:
            with pytest.raises(UnjudgedError, match="only a judge"):
                env.step(submission(text))


def _changed(brain: Brain, change: Any) -> Brain:
    def changed(body: dict[str, Any]) -> Any:
        said: Any = brain(body)
        if isinstance(said, tuple):
            change(said[0], said[1])
        return said

    return changed


def _say_yes(name: str, given: dict[str, Any]) -> None:
    for one in (
        given["verdicts"][:-3] if name == "verdicts" else ()
    ):  # the pitfall is the third last
        one.update(met=True, quote="film")


def _each(verdict: str) -> Any:
    def change(name: str, given: dict[str, Any]) -> None:
        for one in given["verdicts"] if name == "hand_in" else ():
            one["verdict"] = verdict

    return change


def _no_pitfall(name: str, given: dict[str, Any]) -> None:
    for one in given["items"]:
        one["pitfall"] = False


def _tell(name: str, given: dict[str, Any]) -> None:
    given["question"] += " " + given["items"][0]["text"]


def _knows(corpus: Corpus) -> Brain:
    writer = open_brains(corpus)["writer"]
    titles = {one.id.upper(): one.title for one in corpus.documents()}

    def answer(body: dict[str, Any]) -> Any:
        prompt = next(m for m in body["messages"] if m["role"] == "user")["content"]
        seed = titles[prompt.split("this: ")[1].split(" ")[0]]
        said: Any = writer({"messages": [{"content": seed}]})
        return "hand_in", {"answer": said[1]["answer"]}

    return answer


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("a judge that says yes", "passes"),
        ("a verifier that contradicts", "fact  is contradicted"),
        ("a verifier that finds nothing", "fact  is not supported"),
        ("no pitfall", "the writer: "),
        ("the rubric in the question", "the writer: "),
        ("answerers that know", "too easy"),
        ("a judge without a form", "was not judged"),
    ],
)
def test_no_bad_open_question_is_kept(corpus: Corpus, tmp_path: Path, case: str, why: str) -> None:
    good = open_brains(corpus)
    exchanged: dict[str, dict[str, Brain]] = {
        "a judge that says yes": {"verifier": _changed(good["verifier"], _say_yes)},
        "a verifier that contradicts": {
            "verifier": _changed(good["verifier"], _each("contradicted"))
        },
        "a verifier that finds nothing": {
            "verifier": _changed(good["verifier"], _each("not_found"))
        },
        "no pitfall": {"writer": _changed(good["writer"], _no_pitfall)},
        "the rubric in the question": {"writer": _changed(good["writer"], _tell)},
        "answerers that know": {"answerer": _knows(corpus)},
        "a judge without a form": {
            "verifier": lambda body: "9 of 10" if "<items" in str(body) else good["verifier"](body)
        },
    }
    with pytest.raises(PipelineError) as caught:
        generate(corpus, tmp_path / "qa", questions=1, **exchanged[case])
    assert why in str(caught.value.hint)


def test_validate_finds_a_spoilt_proof(corpus: Corpus, reports: Dataset, tmp_path: Path) -> None:
    question = json.loads(reports.task_files(next(iter(reports.tasks))).solution)
    answers = question["answers"]
    attack = next(one for one in answers if one["kind"] == "attack")
    spoilt = {
        "quotes": {
            "items": [{**question["items"][0], "quote": "It won a prize"}, *question["items"][1:]]
        },
        "judged": {"answers": [one for one in answers if one is not attack]},
        "leak": {"question": question["items"][0]["item"]["text"] + ", is it?"},
    }
    for gate, change in spoilt.items():
        made = OpenQuestion.model_validate({**question, **change})
        draft = open_task(made, open_corpus(corpus.hash))
        with DatasetWriter(tmp_path / gate, name="search") as writer:
            writer.add_environment(draft.environment)
            writer.add_task(draft.task)
            writer.finish()
        report = validate(tmp_path / gate)
        failed = [one.gate for one in report.tasks[0].evidence if str(one.status) == "failed"]
        assert gate in failed
