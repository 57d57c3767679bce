"""No command ends with 0 where nothing came of it, or keeps quiet where less came of it than was asked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import toy_python
from cli_runs import Cli, CommandResult
from click_words import commands
from model_server import ModelServer, Raw
from styled_replies import READY, SUBMIT, is_preflight, says
from tiny_models import write_random_model

from envgen.pipelines.code.records import write_instances
from envgen.store.writer import DatasetWriter

LEAVES = {name for name, command in commands().items() if not hasattr(command, "commands")}


class Place(NamedTuple):
    """Where a command of which nothing comes runs."""

    dataset: Path
    empty: Path
    """A dataset without tasks."""
    dead: str
    """Spec of a policy whose server answers nothing but errors."""


@pytest.fixture
def place(dataset: Path, tmp_path: Path) -> Place:
    empty = DatasetWriter(tmp_path / "empty", name="empty").finish().path
    return Place(dataset, empty, "")


HASTE = ("--option", "max_retries=0", "--no-preflight", "--max-errors", 0, "--backend", "inline")


def rollout(cli: Cli, place: Place, out: str = "r", *more: object) -> CommandResult:
    return cli("rollout", place.dataset, "--policy", place.dead, *HASTE, "--out", out, *more)


def errored(cli: Cli, place: Place) -> str:
    """A run in which every episode is an error."""
    assert rollout(cli, place).code == 1
    return "r"


def no_changes(cli: Cli, place: Place) -> CommandResult:
    for words in (("init", "-q", "clone"), ("-C", "clone", "commit", "-qm", "x", "--allow-empty")):
        names = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(["git", *names, *words], check=True, stdin=subprocess.DEVNULL)
    return cli("generate", "code", "--clone", "clone", "--repo", "a/b", "--out", "c")


def no_clone(cli: Cli, place: Place) -> CommandResult:
    repo = toy_python.clone(Path("elsewhere/toy/shop"))
    write_instances(Path("i.jsonl"), [toy_python.instance(repo)])
    return cli("import", "code", "i.jsonl", "--clones", ".", "--out", "c")


def sft(cli: Cli, place: Place, *command: str) -> CommandResult:
    write_random_model(Path("m"))
    return cli(
        "train", *command, place.dataset, "--model", "m", "--split", "all", "--epochs", 0,
        "--threads", 1, "--out", "t",
    )  # fmt: skip


def grpo(cli: Cli, place: Place) -> CommandResult:
    write_random_model(Path("m"))
    settings = ("rewards.length=0", "rewards.language=0", "sampling.max_new_tokens=2")
    overrides = [word for one in settings for word in ("-c", one)]
    return cli(
        "train", "grpo", place.dataset, "--model", "m", "--split", "all", "--steps", 1,
        "--groups", 1, "--group-size", 2, *overrides, "--threads", 1, "--out", "g",
    )  # fmt: skip


NOTHING: dict[str, Callable[[Cli, Place], CommandResult] | str] = {
    "canaries": lambda cli, p: cli("canaries", p.empty, "--out", "c"),
    "doctor": "looks at this machine; whatever it finds is what was asked for",
    "eval": lambda cli, p: cli(
        "eval", p.dataset, "--split", "all", "--model", p.dead, *HASTE[:-2], "--out", "e"
    ),
    "export": lambda cli, p: cli("export", p.empty, "--out", "x.jsonl"),
    "filter": lambda cli, p: cli(
        "filter", p.dataset, "--rollouts", errored(cli, p), "--out", "kept"
    ),
    "generate code": no_changes,
    "generate general": "it raises where no task is proven",
    "generate interpreter": "it raises where no problem is proven",
    "generate proof": "it raises where no statement is proven",
    "generate search": "it raises where the corpus gives no question",
    "import problems": lambda cli, p: cli("import", "problems", p.empty / "q.jsonl", "--out", "q"),
    "import questions": lambda cli, p: cli(
        "import", "questions", p.empty / "q.jsonl", "--out", "q"
    ),
    "corpus build": lambda cli, p: cli("corpus", "build", p.empty / "none.csv", "--out", "c"),
    "check-proof": lambda cli, p: cli("check-proof", p.empty / "no.txt"),
    "corpus info": lambda cli, p: cli("corpus", "info", p.empty),
    "corpus search": lambda cli, p: cli("corpus", "search", p.empty, "x"),
    "inspect": lambda cli, p: cli("inspect", p.empty, "--inspector", p.dead),
    "judge": lambda cli, p: cli(
        "judge", p.empty, "--rubric", p.empty / "r.json", "--policy", p.dead, "--untested-judge"
    ),
    "test-judge": lambda cli, p: cli("test-judge", "--policy", p.dead),
    "page": "it raises where a level has no task",
    "images bootstrap": lambda cli, p: cli("images", "bootstrap", "python", "--for", ","),
    "images clean": "that nothing is left to remove is what was asked for",
    "images list": "that there is nothing is what was asked for",
    "import code": no_clone,
    "list": lambda cli, p: cli("list", p.empty),
    "model info": lambda cli, p: cli("model", "info", p.empty),
    "model init": lambda cli, p: cli(
        "model", "init", "--preset", "tiny", "--tokenizer", p.empty, "--out", "m"
    ),
    "pack": lambda cli, p: cli("pack", p.empty, "--out", "x"),
    "pass-at-k": lambda cli, p: cli("pass-at-k", errored(cli, p)),
    "quickstart": "its filter raises where it keeps nothing",
    "report": lambda cli, p: cli("report", p.empty),
    "rollout": rollout,
    "pull": lambda cli, p: cli("pull", "a/b", "--endpoint", "http://127.0.0.1:9", "--out", "x"),
    "push": lambda cli, p: cli("push", p.dataset, "a/b", "--endpoint", "http://127.0.0.1:9"),
    "serve env": lambda cli, p: cli("serve", "env", p.empty, "--port", 0),
    "serve policy": lambda cli, p: cli("serve", "policy", p.empty, "--port", 0),
    "show": lambda cli, p: cli("show", p.dataset, "nothing"),
    "train grpo": grpo,
    "train indexer": lambda cli, p: sft(cli, p, "indexer", "--stage", "sparse"),
    "train sft": lambda cli, p: sft(cli, p, "sft"),
    "try-tests": lambda cli, p: cli("try-tests", p.empty),
    "validate": lambda cli, p: cli("validate", p.empty),
    "merge": lambda cli, p: cli("merge", p.empty, p.empty, "--out", "m"),
    "audit": lambda cli, p: cli("audit", p.empty),
    "variants": lambda cli, p: cli("variants", p.dataset, "--out", "v"),
}
"""Every command in a case of which nothing comes; or why there is none."""


def test_every_command_is_here() -> None:
    assert LEAVES == set(NOTHING), "say what a new command does where nothing comes of it"


@pytest.mark.parametrize("name", [n for n, case in NOTHING.items() if not isinstance(case, str)])
def test_nothing_is_a_failure(cli: Cli, place: Place, name: str) -> None:
    case = NOTHING[name]
    assert not isinstance(case, str)
    with ModelServer([Raw(500, "out of order")]) as server:
        result = case(cli, place._replace(dead=f"openai:m@{server.url}"))
    assert result.code in (1, 2), result
    assert "error: " in result.err, result
    assert "Traceback" not in result.err


def test_less_than_was_asked_for_is_told_with_numbers(cli: Cli, place: Place) -> None:
    asked = iter(range(10_000))

    def answer(body: dict[str, object]) -> object:
        if is_preflight(body):
            return READY
        return says("", SUBMIT) if next(asked) % 3 else Raw(500, "out of order")

    with ModelServer([answer]) as server:
        result = rollout(
            cli, place._replace(dead=f"openai:m@{server.url}"), "r", "--task", "tiny-cheapest",
            "--n", 6, "--concurrency", 1, "--json", "-",
        )  # fmt: skip
    assert result.code == 0, result
    assert json.loads(result.out)["spoiled"] == 2  # stdout is the figures and nothing else
    assert "warning: 4 of 6 episodes played\nhint: --retry-errors" in result.err
    assert "samples" in result.err

    result = cli("pass-at-k", "r", "--k", "1,10")
    assert result.code == 0
    assert "warning: 0 of 1 tasks have a pass@10\nhint: pass@10 needs 10" in result.err
    result = cli("filter", place.dataset, "--rollouts", "r", "--pass-at", 2, "--out", "kept")
    assert result.code == 0
    assert "warning: 1 of 4 tasks could be judged" in result.err


@pytest.mark.parametrize("name", ["list", "doctor", "images list"])
def test_figures_can_go_to_stdout(cli: Cli, dataset: Path, name: str) -> None:
    result = cli(*name.split(), *([dataset] if name == "list" else []), "--json", "-")
    assert result.code == 0, result
    json.loads(result.out)
    assert not Path("-").exists()
    if name == "list":
        assert "tiny-cheapest" in result.err
        assert "tiny-cheapest" in cli("list", dataset).out  # the next command is as ever


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_no_option_shows_the_type_that_it_is_read_as(name: str) -> None:
    for option in commands()[name].params:
        if option.param_type_name == "option" and not getattr(option, "is_flag", False):
            assert option.metavar, option.opts


def test_doctor_looks_at_more_than_sandboxes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.setenv("ENVGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "downloads").mkdir(parents=True)
    (tmp_path / "cache" / "downloads" / "x").write_bytes(b"x" * 3_000_000)
    result = cli("doctor", "--json", "h.json")
    assert result.code == 0, result
    found = json.loads(Path("h.json").read_text())
    assert set(found["sandboxes"]) == {"bubblewrap", "docker", "process"}
    assert found["keys"] == {"GITHUB_TOKEN": False, "OPENAI_API_KEY": True}
    assert found["cache_bytes"]["downloads"] >= 3_000_000
    assert found["missing"]["docker"] == []
    assert found["torch"]
    assert found["toolchains"]["python"]
    assert "s3cret" not in result.out + result.err + Path("h.json").read_text()


def test_folders_of_another_kind_are_named(cli: Cli, dataset: Path) -> None:
    write_random_model(Path("m"))
    assert "it is a model" in cli("list", "m").err
    assert "it is a dataset" in cli("model", "info", dataset).err
    assert "it is a dataset" in cli("pass-at-k", dataset).err
    result = cli("generate", "general", "--level", "5..1", "--out", "x")
    assert result.code == 2
    assert "runs backwards" in result.err
    assert "write 1..5" in result.err


def test_help_has_one_option_for_levels(cli: Cli) -> None:
    result = cli("generate", "general", "--help")
    assert "--level LEVELS" in result.out
    assert "--min-level" not in result.out


def test_levels_that_no_environment_has_are_named(cli: Cli) -> None:
    result = cli(
        "generate", "general", "--category", "room_lookup", "--environments", 1, "--level", "1..4",
        "--tasks-per-environment", 1, "--workers", 1, "--backend", "inline", "--out", "ds",
    )  # fmt: skip
    assert "warning: 1 environment has level 1 of 1..4; --environments 4 has all" in result.err


def test_targets_that_nothing_reaches_exit_with_1(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "generate", "general", "--category", "meeting_scheduling", "--environments", 1, "--level", 1,
        "--tasks-per-environment", 1, "--min-calls", 50, "--workers", 1, "--backend", "process",
        "--out", tmp_path / "ds",
    )  # fmt: skip
    assert result.code == 1
    assert "no task reaches the targets; the nearest: density" in result.err
    assert "--level" in result.err
    assert not [*tmp_path.iterdir()]
