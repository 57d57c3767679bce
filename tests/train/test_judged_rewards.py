"""GRPO over a dataset of open and exact questions: a judge rewards the open ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from films import films_corpus
from model_server import ModelServer, chat
from search_models import open_brains, script
from tiny_models import Lesson, write_taught_model

from envgen.core.errors import ConfigError
from envgen.core.types import Message
from envgen.environments.families import make_env
from envgen.pipelines.search.agents import generate_written
from envgen.pipelines.search.config import SearchConfig, WrittenConfig
from envgen.pipelines.search.generate import generate_search
from envgen.policies.registry import PolicyConfig
from envgen.store.dataset import Dataset
from envgen.store.subset import merge
from envgen.train.config import SamplingConfig, TrainGRPOConfig
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics
from envgen.verifiers.rubrics.config import RubricJudgeConfig

pytestmark = pytest.mark.slow
FAST = {"stream": False, "max_retries": 0}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    corpus = films_corpus(folder / "films")
    with ModelServer([script(open_brains(corpus))]) as server:
        asks = WrittenConfig(
            corpus=corpus.path, kind="open", questions=1, attempts=9, depth="2", breadth="3",
            writer=f"openai:writer@{server.url}", verifier=f"openai:verifier@{server.url}",
            answerers=f"openai:answerer@{server.url},openai:answerer@{server.url}#plain", options=FAST,
        )  # fmt: skip
        generate_written(asks, folder / "open", workers=1, check=False)
    generate_search(SearchConfig(corpus=corpus.path, questions=1), folder / "exact", workers=1)
    merge([Dataset.open(folder / "open"), Dataset.open(folder / "exact")], folder / "both")
    write_taught_model(folder / "model", list(lessons(Dataset.open(folder / "both"))))
    return folder


def lessons(dataset: Dataset) -> Iterator[Lesson]:
    """Submit something at once when the open question is asked."""
    for task_id in (name for name in dataset.tasks if name.startswith("o-")):
        env = make_env(dataset, "search")
        _, info = env.reset(options={"task_id": task_id})
        call = {"id": "c1", "name": "submit_result", "arguments": {"answer_text": "West Lake"}}
        reply = Message.model_validate({"role": "assistant", "content": "", "tool_calls": [call]})
        yield Lesson(env.messages, reply, info["tools"])


def length_judge(body: dict[str, Any]) -> Any:
    """Likes an odd number of letters, and quotes the first word."""
    prompt = body["messages"][0]["content"]
    items = re.findall(r'"id": "(i\d+)", "kind": "(\w+)"', prompt)
    answer = re.search(r"<answer (\w+)>\n(.*?)\n</answer \1>", prompt, re.DOTALL)
    if answer is None:
        return chat("ready")
    quote = re.search(r"\w+", answer[2])
    met = len(answer[2]) % 2 == 1 and quote is not None
    rows = [
        {"id": name, "met": met and kind != "pitfall", "quote": quote[0] if quote else ""}
        for name, kind in items
    ]
    return chat(json.dumps({"verdicts": rows}))


def config_of(folder: Path, judge: RubricJudgeConfig | None) -> TrainGRPOConfig:
    return TrainGRPOConfig(
        data=str(folder / "both"), model=str(folder / "model"), split=None, steps=2, judge=judge,
        sampling=SamplingConfig(groups=2, group_size=8, max_new_tokens=40, max_turns=2, temperature=1.2),
        save_every=1,
    )  # fmt: skip


def test_a_judge_rewards_open_questions_beside_exact_ones(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ModelServer([length_judge]) as server:
        policy = PolicyConfig(spec=f"openai:judge@{server.url}", options=FAST)
        with pytest.raises(ConfigError, match="was not tested"):
            train_grpo(config_of(mixed, RubricJudgeConfig(policy=policy)), tmp_path / "no")
        config = config_of(mixed, RubricJudgeConfig(policy=policy, untested=True))
        summary = train_grpo(config, tmp_path / "run")
        asked = len(server.requests)
        assert asked > 1
        train_grpo(config, tmp_path / "again")
        assert len(server.requests) <= asked + 1  # votes are kept: only the preflight asks
    assert summary.rollouts == 2 * 16
    first, second = (read_metrics(tmp_path / name) for name in ("run", "again"))
    assert 0 < first[0]["reward/total"] < 1
    assert [one["reward/total"] for one in first] == [one["reward/total"] for one in second]


def test_an_open_question_without_a_judge_is_refused(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a judge can score it") as caught:
        train_grpo(config_of(mixed, None), tmp_path)
    assert "--judge" in caught.value.hint
