"""Records of three styles, collected over HTTP, become rows of one cold start, each in its own mode."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from model_server import ModelServer
from styled_replies import GOOD, LIST, STYLES, SUBMIT, TASKS, good, prompt_of, says, scripted
from tiny_dataset import write_tiny_dataset
from tiny_models import write_random_model

from envgen.core.errors import ConfigError
from envgen.core.types import Style
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding, EncodingConfig, load_encoding, make_encoding
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.rollout.task_tools import TaskTools
from envgen.store.runs import RunStore
from envgen.train.cold_start import train_sft
from envgen.train.config import ColdStartConfig, OptimizerConfig
from envgen.train.metrics import read_metrics
from envgen.train.sft import SFTRow
from envgen.train.teachers import teacher_rows


class Lessons(NamedTuple):
    """A dataset and a run of each style."""

    dataset: Path
    runs: dict[Style, Path]


def collect(dataset: Path, script: Any, out: Path, style: Style | None, *tasks: str) -> Path:
    with ModelServer([script]) as server:
        config = RolloutConfig(
            dataset=str(dataset),
            policy=PolicyConfig(spec=f"openai:m@{server.url}", options={"stream": False}),
            out=str(out),
            style=style,
            task_ids=tasks,
            backend="inline",
            preflight=False,
        )
        assert rollout(config).errors == 0
    return out


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Lessons:
    folder = tmp_path_factory.mktemp("lessons")
    dataset = write_tiny_dataset(folder / "ds").path
    runs = {style: collect(dataset, good, folder / style, style, *TASKS) for style in STYLES}
    return Lessons(dataset, runs)


@pytest.fixture(scope="module", params=["compact", "dsml"])
def encoding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoding:
    """Of a model that does not think by itself."""
    folder = tmp_path_factory.mktemp("models") / request.param
    write_random_model(folder, EncodingConfig(kind=request.param))
    return load_encoding(folder)


def rows_of(lessons: Lessons, encoding: Encoding, *styles: Style) -> list[SFTRow]:
    runs = [lessons.runs[style] for style in styles]
    return teacher_rows(runs, open_dataset(lessons.dataset), encoding)


def learnt(row: SFTRow, encoding: Encoding) -> list[str]:
    """The stretches of tokens that are learnt, as text."""
    stretches: list[list[int]] = []
    last = -2
    for place in row.places.tolist():
        if place != last + 1 or row.ids[last] in encoding.stop_ids:
            stretches.append([])
        stretches[-1].append(int(row.ids[place]))
        last = place
    return [encoding.tokenizer.decode(ids) for ids in stretches]


COMPACT_CALL = "<|call|>list_hotels<|arg|>city<|text|>Hangzhou<|end|>"
COMPACT_GET = "<|call|>get_hotel<|arg|>name<|text|>Lotus Inn<|end|>"
COMPACT_SUBMIT = '<|call|>submit_result<|arg|>answer_text<|text|>{"hotel": "Lotus Inn"}<|end|>'
BAR, END = "\uff5c", "<\uff5cend\u2581of\u2581sentence\uff5c>"


def dsml(name: str, key: str, value: str) -> str:
    """A reply's calls in DeepSeek's form."""
    return (
        f'\n\n<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="{name}">\n'
        f'<{BAR}DSML{BAR}parameter name="{key}" string="true">{value}</{BAR}DSML{BAR}parameter>\n'
        f"</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>{END}"
    )


DSML_CALL = dsml("list_hotels", "city", "Hangzhou")
DSML_GET = dsml("get_hotel", "name", "Lotus Inn")
DSML_SUBMIT = dsml("submit_result", "answer_text", '{"hotel": "Lotus Inn"}')
WRITTEN: dict[tuple[str, Style, str], list[str]] = {
    ("compact", "reasoning", "tiny-cheapest"): [f"I guess the Lotus Inn.<|thought|>{COMPACT_SUBMIT}"],
    ("compact", "reasoning", "tiny-count"): ["Three, I guess.<|thought|>3<|end|>"],
    ("compact", "agent", "tiny-cheapest"): [COMPACT_CALL, COMPACT_SUBMIT],
    ("compact", "agent", "tiny-count"): [COMPACT_CALL, "3<|end|>"],
    ("compact", "thinking-agent", "tiny-cheapest"): [
        f"I need the prices.<|thought|>{COMPACT_CALL}",
        f"180 is least; to be sure:<|thought|>{COMPACT_GET}",
        f"It is in Hangzhou indeed.<|thought|>{COMPACT_SUBMIT}",
    ],
    ("compact", "thinking-agent", "tiny-count"): [
        f"Let me count.<|thought|>{COMPACT_CALL}",
        "There are three.<|thought|>3<|end|>",
    ],
    ("dsml", "reasoning", "tiny-cheapest"): [f"I guess the Lotus Inn.</think>{DSML_SUBMIT}"],
    ("dsml", "reasoning", "tiny-count"): [f"Three, I guess.</think>3{END}"],
    ("dsml", "agent", "tiny-cheapest"): [DSML_CALL, DSML_SUBMIT],
    ("dsml", "agent", "tiny-count"): [DSML_CALL, f"3{END}"],
    ("dsml", "thinking-agent", "tiny-cheapest"): [
        f"I need the prices.</think>{DSML_CALL}",
        f"180 is least; to be sure:</think>{DSML_GET}",
        f"It is in Hangzhou indeed.</think>{DSML_SUBMIT}",
    ],
    ("dsml", "thinking-agent", "tiny-count"): [
        f"Let me count.</think>{DSML_CALL}",
        f"There are three.</think>3{END}",
    ],
}  # fmt: skip
"""What is to be learnt, character by character."""


def test_exactly_these_tokens_are_learnt_of_each_style_in_a_mixture(
    lessons: Lessons, encoding: Encoding
) -> None:
    rows = rows_of(lessons, encoding, *STYLES)
    kinds = [(style, task) for style in STYLES for task in TASKS]
    assert [row.task for row in rows] == [task for _, task in kinds]  # one row a record
    for row, (style, task) in zip(rows, kinds, strict=True):
        assert learnt(row, encoding) == WRITTEN[encoding.config.kind, style, task]


def test_a_row_is_what_a_model_of_that_mode_would_have_seen(
    lessons: Lessons, encoding: Encoding
) -> None:
    """Rendered whole: the prompt of the last reply and the reply, reasoning between calls kept."""
    tools = TaskTools(open_dataset(lessons.dataset))
    for style in STYLES:
        config = encoding.config.model_copy(update={"thinking": style != "agent"})
        own = make_encoding(config, encoding.tokenizer)
        rows = rows_of(lessons, encoding, style)
        with RunStore.read(lessons.runs[style]) as run:
            records = list(run.trajectories())
        for row, record in zip(rows, records, strict=True):
            last = record.turns[-1].message_index
            given = tools.of(record.task_id, style)
            assert len(given) == _offered(style, record.task_id)
            whole = own.prompt(record.messages[:last], given)
            assert row.ids.tolist() == [*whole, *own.completion(record.messages[last])]
            assert prompt_of(style) in own.tokenizer.decode(row.ids)


def _offered(style: Style, task: str) -> int:
    submit = int(task == "tiny-cheapest")
    return submit if style == "reasoning" else 2 + 2 * submit


def test_dsml_opens_the_thinking_after_results_only_where_a_style_thinks(
    lessons: Lessons, tmp_path: Path
) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="dsml"))
    encoding = load_encoding(tmp_path / "m")
    begins: dict[Style, str] = {"agent": "</think>", "thinking-agent": "<think>"}
    for style, begin in begins.items():
        for row in rows_of(lessons, encoding, style):
            decoded = encoding.tokenizer.decode(row.ids)
            results = decoded.rpartition("</function_results>\n\n")[2]
            assert results.startswith(begin), (style, results)


SEVEN, TEN = (says("", *[LIST] * n, thought="All at once.") for n in (7, 10))
SABOTAGE: list[tuple[Style, list[dict[str, Any]], str]] = [
    ("reasoning", [says("", SUBMIT)], "a reply has no reasoning"),
    ("reasoning", [says("", LIST, thought="a"), says("", SUBMIT, thought="b")], "not offered"),
    ("agent", [says("", LIST, thought="hm"), says("", SUBMIT)], "reasoning where none"),
    ("agent", [says("<think>hm</think>", LIST), says("", SUBMIT)], "reasoning where none"),
    ("agent", [says("", ("lst_hotels", {})), says("", SUBMIT)], "not offered"),
    ("agent", [says("I am lost.")], "there is no final answer"),
    ("thinking-agent", [says("", LIST), says("", SUBMIT, thought="so")], "no reasoning"),
    ("thinking-agent", [SEVEN] * 3 + [says("", SUBMIT, thought="so")], "more than 20 times"),
    ("thinking-agent", [says("", LIST, SUBMIT, thought="so")], "in the final answer"),
    ("thinking-agent", [says("It is", LIST, thought="a"), says("", SUBMIT, thought="b")], "answer"),
]


@pytest.mark.parametrize(("style", "replies", "message"), SABOTAGE)
def test_a_record_of_another_style_is_left_out_and_told(
    lessons: Lessons,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    style: Style,
    replies: list[dict[str, Any]],
    message: str,
) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="compact"))
    encoding, dataset = load_encoding(tmp_path / "m"), open_dataset(lessons.dataset)
    bad = collect(lessons.dataset, scripted(replies), tmp_path / "bad", style, "tiny-cheapest")
    fine = teacher_rows([lessons.runs[style]], dataset, encoding)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        kept = teacher_rows([bad, lessons.runs[style]], dataset, encoding)
    assert [row.ids.tolist() for row in kept] == [row.ids.tolist() for row in fine]
    (line,) = caplog.messages
    assert line.startswith(f"left out: 1 rollouts of another style than asked ({style}: ")
    assert message in line
    with pytest.raises(ConfigError, match="nothing to learn"):
        teacher_rows([bad], dataset, encoding)


def test_twenty_calls_are_no_more_than_twenty(lessons: Lessons, tmp_path: Path) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="compact"))
    replies = [TEN, TEN, says("", SUBMIT, thought="so")]
    run = collect(
        lessons.dataset, scripted(replies), tmp_path / "r", "thinking-agent", "tiny-cheapest"
    )
    encoding = load_encoding(tmp_path / "m")
    (row,) = teacher_rows([run], open_dataset(lessons.dataset), encoding)
    assert sum(text.count("<|call|>") for text in learnt(row, encoding)) == 21


def test_modes_that_no_prompt_tells_apart_are_refused(lessons: Lessons, tmp_path: Path) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="compact", system=False))
    encoding = load_encoding(tmp_path / "m")
    with pytest.raises(ConfigError, match="the same prompts"):
        rows_of(lessons, encoding, "agent", "thinking-agent")
    assert len(rows_of(lessons, encoding, "reasoning", "thinking-agent")) == 4


def test_rollouts_without_a_style_are_learnt_as_before(lessons: Lessons, tmp_path: Path) -> None:
    """In the model's own mode; a model that does not think can't write their reasoning."""
    for thinking in (False, True):
        config = EncodingConfig(kind="compact", thinking=thinking)
        write_random_model(tmp_path / f"{thinking}", config)
    replies = [scripted([says("", SUBMIT)]), scripted([says("", SUBMIT, thought="hm")])]
    plain, thought = (
        collect(lessons.dataset, script, tmp_path / f"run{i}", None, "tiny-cheapest")
        for i, script in enumerate(replies)
    )
    dataset = open_dataset(lessons.dataset)
    for thinking, wanted in ((False, [COMPACT_SUBMIT]), (True, ["hm<|thought|>" + COMPACT_SUBMIT])):
        encoding = load_encoding(tmp_path / f"{thinking}")
        rows = teacher_rows([plain, thought], dataset, encoding)
        assert learnt(rows[-1], encoding) == wanted
        assert len(rows) == 1 + thinking


class _StopError(Exception):
    pass


def test_one_cold_start_learns_the_mixture_and_goes_on_where_it_stopped(
    lessons: Lessons, tmp_path: Path
) -> None:
    write_random_model(tmp_path / "m", EncodingConfig(kind="compact"))
    config = ColdStartConfig(
        data=str(lessons.dataset),
        rollouts=tuple(str(lessons.runs[style]) for style in STYLES),
        model=str(tmp_path / "m"),
        epochs=4,
        tokens_per_batch=2_000,
        save_every=2,
        validation_rows=0,
        optimizer=OptimizerConfig(lr=4e-3, warmup_steps=2),
    )

    def stop(step: int, steps: int, text: str) -> None:
        if step == 3:
            raise _StopError

    whole = train_sft(config, tmp_path / "whole")
    assert whole.rows == len(GOOD)
    losses = [line["sft/loss"] for line in read_metrics(tmp_path / "whole")]
    assert losses[-1] < 0.7 * losses[0]
    with pytest.raises(_StopError):
        train_sft(config, tmp_path / "cut", progress=stop)
    again = train_sft(config, tmp_path / "cut")
    assert (again.tokens, again.loss) == (whole.tokens, whole.loss)
    first, second = (
        DSAForCausalLM.from_pretrained(tmp_path / name / "last").state_dict()
        for name in ("whole", "cut")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
