"""Configs as the source of the command line: every field is reachable, documented and written down."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from cli_runs import Cli
from click_words import commands
from pydantic import BaseModel

from envgen.cli.command import LeafCommand
from envgen.cli.settings import complete, model_of, put, read_file, settings
from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.rollout.run import RolloutConfig
from envgen.store.runs import RunStore
from envgen.train.config import TrainGRPOConfig

LEAVES = {name: command for name, command in commands().items() if isinstance(command, LeafCommand)}
NAMES = sorted(LEAVES)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_text(name: str) -> None:
    """The docstring under it; help and ``--settings`` show it."""
    without = [path for path, one in LEAVES[name].settings.items() if not one.text]
    assert not without


@pytest.mark.parametrize("name", NAMES)
def test_every_field_can_be_set(name: str) -> None:
    """``-c`` reaches what the config holds, however deep, and nothing is left out of the settings."""

    def paths(kind: type[BaseModel], prefix: str = "") -> list[str]:
        found = []
        for field_name, field in kind.model_fields.items():
            path = prefix + (field.alias or field_name)
            inner = model_of(field.annotation)
            found += paths(inner, f"{path}.") if inner else [path]
        return found

    command = LEAVES[name]
    assert set(paths(command.kind)) == set(command.settings)
    for path in command.settings:
        values: dict[str, object] = {}
        put(command.kind, values, path, ["a=1"])
        held: object = values
        for part in path.split("."):
            assert isinstance(held, dict)
            held = held[part]
        assert held in ("a=1", ["a=1"], {"a": 1})


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_settings_are_the_defaults(cli: Cli, name: str) -> None:
    said = cli(*name.split(), "--settings")
    assert said.code == 0
    assert all(
        len(line) <= 80
        for line in said.out.splitlines()
        if line.startswith("# ") and " = " not in line
    )
    command = LEAVES[name]
    held = complete(command.kind, tomllib.loads(said.out))
    for path, one in command.settings.items():
        if path == "figures":  # --json is of this call, not of the run
            continue
        place: object = held
        for part in path.split("."):
            place = place.get(part) if isinstance(place, dict) else None
        if place is not None:
            assert _told(place) == _told(one.default), path
        else:
            assert one.default is None or one.required or not one.given, path
            assert f"# {path.rpartition('.')[2]} =" in said.out, path


def _told(value: object) -> object:
    """As JSON: paths are texts there, tuples and sets lists."""
    return json.loads(
        json.dumps(value, default=lambda one: str(one) if isinstance(one, Path) else sorted(one))
    )


def test_a_table_keeps_the_defaults_of_its_config() -> None:
    """``optimizer.lr`` is 3e-4 in GRPO, not the 1e-3 of the optimiser's own class."""
    values: dict[str, object] = {"data": "ds", "model": "m"}
    for path, word in (("objective.clip_high", "0.28"), ("optimizer.kind", "muon"), ("steps", "7")):
        put(TrainGRPOConfig, values, path, [word])
    found = TrainGRPOConfig.model_validate(complete(TrainGRPOConfig, values))
    assert (found.objective.clip_high, found.steps, found.optimizer.kind) == (0.28, 7, "muon")
    assert found.optimizer.lr == TrainGRPOConfig(data="ds", model="m").optimizer.lr == 3e-4


@pytest.mark.parametrize(
    ("path", "words", "held"),
    [
        ("n", ["5"], 5),
        ("out", ["5"], "5"),
        ("db_url", ["null"], None),
        ("task_ids", ["a,b", "c"], ["a,b", "c"]),
        ("task_ids", ['["a", "b"]'], ["a", "b"]),
        ("policy.options", ["a=1", "b=x", "c=true", "d=x=y"], {"a": 1, "b": "x", "c": True, "d": "x=y"}),
        ("policy.options.price.prompt", ["2"], 2),
        ("sampling.temperature", ["1e-3"], 1e-3),
        ("seed", ["[" * 100_000], "[" * 100_000),
        ("seed", ["9" * 5_000], "9" * 5_000),
    ],
)  # fmt: skip
def test_words_become_values(path: str, words: list[str], held: object) -> None:
    values: dict[str, object] = {}
    put(RolloutConfig, values, path, words)
    found: object = values
    for part in path.split("."):
        assert isinstance(found, dict)
        found = found[part]
    assert found == held


def test_the_line_stands_over_the_file_and_the_file_over_the_defaults(
    cli: Cli, dataset: Path
) -> None:
    Path("run.toml").write_text(
        f"dataset = {dumps(str(dataset))}\nn = 2\nseed = 5\nout = 'a'\nbackend = 'inline'\ntrust = true\n"
        "[policy]\nspec = 'gold'\n[sampling]\ntemperature = 0.5\ntop_p = 0.9\n"
    )
    said = cli("rollout", "--config", "run.toml", "--temperature", 0.25, "-c", "n=3", "--seed", 6)
    assert said.code == 0, said.err
    left = json.loads(Path("a/command.json").read_text())
    assert (left["n"], left["seed"], left["max_errors"]) == (3, 6, 5)
    assert (left["sampling"]["temperature"], left["sampling"]["top_p"]) == (0.25, 0.9)


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("n = ", "run.toml' can't be read", "--settings"),
        ("polcy = 1", "no setting 'polcy'; did you mean 'policy'?", "there are"),
        ("[sampling]\ntemprature = 1", "no setting 'sampling.temprature'; did you mean", "top_p"),
        ("sampling = 3", "sampling is a table, not 3", "top_p"),
        ("n = 0", "--n: Input should be greater than or equal to 1, got '0'", "rollout --help"),
        ("[sampling]\ntop_k = 'x'", "-c sampling.top_k: Input should be a valid integer", "--help"),
        ("isolate = 'task'", "'environment' or 'episode', got 'task'", "rollout --help"),
        ('command = "eval"', "holds settings of `envgen eval`", "envgen eval --config run.toml"),
    ],
)
def test_wrong_files_are_told(cli: Cli, text: str, error: str, hint: str) -> None:
    Path("run.toml").write_text(text)
    said = cli("rollout", "ds", "--policy", "gold", "--out", "o", "--config", "run.toml")
    assert (said.code, said.out) == (2, "")
    assert error in said.err
    assert hint in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"[1]", b""])
def test_hostile_files_are_config_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        read_file(path)


def test_a_run_s_own_file_plays_it_again(cli: Cli, dataset: Path) -> None:
    words = ("--policy", "random-valid", "--n", 3, "--task", "tiny-cheapest", "--seed", 4)
    assert cli("rollout", dataset, *words, "--max-turns", 9, "--out", "a").code == 0
    assert cli("rollout", "--config", "a/command.json", "--out", "b").code == 0
    first, second = (_episodes(Path(name)) for name in ("a", "b"))
    assert first == second
    assert len(first) == 3
    left, right = (json.loads(Path(name, "command.json").read_text()) for name in ("a", "b"))
    assert left | {"out": "b"} == right


def _episodes(run: Path) -> list[str]:
    with RunStore.read(run) as store:
        return [
            dumps([message.model_dump(mode="json") for message in one.messages])
            for one in store.trajectories()
        ]


def test_a_dataset_s_own_file_makes_it_again(cli: Cli) -> None:
    words = ("--category", "meeting_scheduling", "--environments", 1, "--level", 1, "--seed", 3)
    assert cli("generate", "general", *words, "--tasks-per-environment", 1, "--out", "a").code == 0
    assert cli("generate", "general", "--config", "a.command.json", "--out", "b").code == 0
    first, second = (
        {
            path.relative_to(name): path.read_bytes()
            for path in Path(name).rglob("*")
            if path.is_file()
        }
        for name in ("a", "b")
    )
    assert first == second  # no path or host is in them
    assert cli("list", "a").code == 0
    assert cli("validate", "b").code == 0


def test_secrets_are_neither_stored_nor_shown(cli: Cli, dataset: Path) -> None:
    words = (
        "rollout", dataset, "--policy", "gold", "--out", "a",
        "--db", "postgresql://me:hunter2@localhost/x",
    )  # fmt: skip
    said = cli(*words, "-c", "n=0")
    assert said.code == 2
    assert "hunter2" not in said.err
    Path("t.toml").write_text(
        "[policy]\nspec = 'openai:m@http://u:hunter2@h/v1'\n"
        "[policy.options]\napi_key = 'hunter2'\napi_key_env = 'MY_KEY'\n"
        "headers = {Authorization = 'hunter2'}\n"
    )
    command = LEAVES["rollout"]
    context = command.make_context("rollout", ["ds", "--out", "o", "--config", "t.toml"])
    Path("o").mkdir()
    command._leave(context.obj)
    left = Path("o/command.json").read_text()
    assert "hunter2" not in left
    assert json.loads(left)["policy"]["options"] == {"api_key_env": "MY_KEY"}


def test_a_refused_run_leaves_no_file_in_another_s_folder(cli: Cli, dataset: Path) -> None:
    words = ("rollout", dataset, "--backend", "inline", "--trust", "--out", "a", "--policy")
    assert cli(*words, "gold").code == 0
    before = Path("a/command.json").read_bytes()
    assert cli(*words, "greedy").code == 2
    assert Path("a/command.json").read_bytes() == before


def test_texts_are_those_of_the_source() -> None:
    found = settings(RolloutConfig)
    assert found["n"].text.startswith("Episodes of each task.")
    assert found["concurrency"].text.endswith("Default: 8 for a server, 32 for a model in this "
        "process, one a core for an offline policy.")  # fmt: skip
    assert found["seed"].text == "Fixes every random choice."
