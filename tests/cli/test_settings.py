"""Configs as the source of the command line: every field is reachable, documented and written down."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from cli_runs import Cli
from click_words import commands
from pydantic import TypeAdapter

from envgen.cli.command import Command, LeafCommand
from envgen.cli.settings import (
    Setting,
    _toml,
    choices,
    complete,
    holds,
    put,
    read_file,
    settings,
)
from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.pipelines.general import domains
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


REQUIRED: dict[str, dict[str, object]] = {
    "audit": {"dataset": "ds"},
    "canaries": {"dataset": "ds", "out": "o"},
    "corpus build": {"sources": ["a.csv"], "out": "o"},
    "check-proof": {"file": "p.txt"},
    "corpus info": {"corpus": "c"},
    "corpus search": {"corpus": "c", "query": "q"},
    "eval": {"data": "ds", "model": "m", "out": "o"},
    "export": {"source": "ds"},
    "filter": {"dataset": "ds", "out": "o", "rollouts": "r"},
    "generate code": {"out": "o", "mine.repo": "a/b", "policy.spec": "gold"},
    "generate general": {"out": "o"},
    "generate interpreter": {"out": "o"},
    "generate proof": {"out": "o"},
    "generate search": {"out": "o"},
    "images bootstrap": {"name": "python"},
    "import code": {"file": "f", "clones": "c", "out": "o"},
    "import problems": {"file": "p.jsonl", "out": "o"},
    "import questions": {"file": "q.jsonl", "out": "o"},
    "inspect": {"folder": "r", "policy.spec": "gold"},
    "judge": {"folder": "r", "rubric": "r.json", "policy.spec": "gold"},
    "list": {"dataset": "ds"},
    "merge": {"datasets": ["a", "b"], "out": "o"},
    "model init": {"tokenizer": "ds", "out": "o", "preset": "tiny"},
    "pack": {"folder": "f", "out": "o"},
    "page": {"page": "p.toml"},
    "pass-at-k": {"folder": "r"},
    "pull": {"repo": "a/b", "out": "o"},
    "push": {"dataset": "ds", "repo": "a/b"},
    "report": {"run_folder": "r"},
    "rollout": {"dataset": "ds", "out": "o", "policy.spec": "gold"},
    "serve env": {"dataset": "ds"},
    "serve policy": {"model": "m"},
    "show": {"dataset": "ds"},
    "test-judge": {"policy.spec": "gold"},
    "train grpo": {"data": "ds", "model": "m", "out": "o"},
    "train indexer": {"data": "ds", "model": "m", "out": "o", "stage": "warmup"},
    "train sft": {"data": "ds", "model": "m", "out": "o", "teachers": ["gold"]},
    "try-tests": {"clone": "c"},
    "validate": {"dataset": "ds"},
    "variants": {"dataset": "ds", "out": "o"},
}
"""What each command can't do without."""
BESIDE: dict[str, dict[str, object]] = {
    "votes": {"sampling.temperature": 0.5},
    "judge.votes": {"judge.sampling.temperature": 0.5},
    "sharding": {"processes": 2},
    "objective.tis_cap": {"objective.old": "recomputed"},
    "model.rope.rope_type": {"model.rope.original_max_position_embeddings": 1024},
    "encoding.tools_in": {"encoding.kind": "dsml"},
    "encoding.response_format": {"encoding.kind": "dsml"},
    "encoding.block": {"encoding.kind": "dsml"},
}
"""Settings that need others."""
DECIDED = {
    ("generate general", "level"): "is written as min_level and max_level",
    ("train indexer", "attention"): "the stage decides",
    ("train indexer", "trunk"): "the stage decides",
    ("train indexer", "optimizer.indexer"): "the stage decides",
    ("generate general", "pages"): "test_a_page_comes_by_file",
    **{
        ("model init", f"model.{which}_token_id"): "come from the tokenizer"
        for which in ("bos", "eos", "pad")
    },
}
"""Settings that others decide, and how."""
CANDIDATES: tuple[object, ...] = (
    "small", ["trip_planning"], True, False, 2, 3, 1, 8, 64, 1024, 0, 0.5, 0.25, 0.05, 2.5, "x1", "a/b",
    "2024-01-02", "spec:x", "2..3", "0.2..0.5", "zh", "count", "logic", "equational", "tantivy",
    ["x1"], ["a/b"], [2], [0.5], ["/x1"], {"a": 1}, {"a": "b"}, {"a": 0.5}, {"A": "b"},
    {"a": {"length": 0.05}}, [{"source": "/a", "target": "/b"}], [{"id": "a", "text": "b"}],
)  # fmt: skip
"""Values that one kind of field or another takes."""


def leaf(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part] if isinstance(values, dict) else None
    return values


def resolved(name: str, words: Sequence[str]) -> dict[str, Any] | None:
    """The config that a line gives, as ``command.json`` holds it; None: it is refused."""
    try:
        command: Command = LEAVES[name].make_context(name, list(words)).obj
    except ConfigError:
        return None
    return command.model_dump(mode="json")


def as_words(path: str, value: object) -> list[str]:
    """``-c`` for a value; a mapping's keys are set one by one."""
    if isinstance(value, dict):
        return [word for key, one in value.items() for word in as_words(f"{path}.{key}", one)]
    return ["-c", f"{path}={value if isinstance(value, str) else json.dumps(value)}"]


def as_file(values: Mapping[str, object]) -> list[str]:
    Path("c.toml").write_text("".join(f"{path} = {_toml(v)}\n" for path, v in values.items()))
    return ["--config", "c.toml"]


def adapter(setting: Setting) -> TypeAdapter[Any]:
    """Checks a value as the config would."""
    kind: Any = Annotated[setting.field.annotation, setting.field]
    return TypeAdapter(kind)


def values_of(setting: Setting) -> Iterator[object]:
    """Values that the field takes and that are not its default."""
    field = setting.field
    kind = adapter(setting)
    default = _as_text(setting.default)
    inside = holds(field.annotation, tuple, frozenset)
    names = choices(get_args(inside)[0] if inside else field.annotation)
    for one in (*([name] for name in names if inside), *names, *CANDIDATES):
        try:
            held = kind.dump_python(kind.validate_python(one), mode="json")
        except ValueError:
            continue
        if held != default:
            yield one


@pytest.mark.parametrize("name", NAMES)
def test_a_file_and_the_line_reach_every_field(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaf is set by TOML and by ``-c``, and stands in the resolved config as it was given."""
    monkeypatch.chdir(tmp_path)
    needed = REQUIRED.get(name, {})
    assert resolved(name, as_file(needed)) is not None
    unreached = []
    for path, setting in LEAVES[name].settings.items():
        if (name, path) in DECIDED:
            continue
        for value in values_of(setting):
            table = (
                {"judge.policy.spec": "gold"}
                if f"{name} {path}".startswith("train grpo judge.")
                else {}
            )
            beside = {**needed, **table, **BESIDE.get(path, {})}
            others = {one: held for one, held in beside.items() if one != path}
            lined = resolved(name, [*as_file(others), *as_words(path, value)])
            filed = resolved(name, as_file({**others, path: value}))
            if lined is not None and lined == filed and leaf(lined, path) == _read(setting, value):
                break
        else:
            unreached.append(path)
    assert not unreached


def _read(setting: Setting, value: object) -> object:
    kind = adapter(setting)
    return kind.dump_python(kind.validate_python(value), mode="json")


def test_a_page_comes_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tomllib.loads((Path(domains.__path__[0]) / "meetings.toml").read_text())
    Path("c.json").write_text(json.dumps({"out": "o", "pages": [page]}))
    found = resolved("generate general", ["--config", "c.json"])
    assert found is not None
    assert [one["id"] for one in found["pages"]] == [page["id"]]


def test_what_others_decide_is_still_a_setting() -> None:
    assert all(path in LEAVES[name].settings for name, path in DECIDED)


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_settings_are_the_defaults(cli: Cli, name: str) -> None:
    result = cli(*name.split(), "--settings")
    assert result.code == 0
    assert all(
        len(line) <= 80
        for line in result.out.splitlines()
        if line.startswith("# ") and " = " not in line
    )
    command = LEAVES[name]
    held = complete(command.kind, tomllib.loads(result.out))
    for path, one in command.settings.items():
        if path == "figures":  # --json is of this call, not of the run
            continue
        place: object = held
        for part in path.split("."):
            place = place.get(part) if isinstance(place, dict) else None
        if place is not None:
            assert _as_text(place) == _as_text(one.default), path
        else:
            assert one.default is None or one.required or not one.given, path
            assert f"# {path.rpartition('.')[2]} =" in result.out, path


def _as_text(value: object) -> object:
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


def test_dense_attention_leaves_the_indexer_whatever_else_is_set() -> None:
    words = ("ds", "--model", "m", "--out", "o", "--lr", "1e-4")
    dense = resolved("train sft", [*words, "--attention", "dense"])
    sparse = resolved("train sft", words)
    assert (leaf(dense, "optimizer.indexer"), leaf(sparse, "optimizer.indexer")) == (
        "frozen",
        "eq4",
    )
    assert leaf(dense, "optimizer.lr") == 1e-4


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
    result = cli("rollout", "--config", "run.toml", "--temperature", 0.25, "-c", "n=3", "--seed", 6)
    assert result.code == 0, result.err
    left = json.loads(Path("a/command.json").read_text())
    assert (left["n"], left["seed"], left["max_errors"]) == (3, 6, 5)
    assert (left["sampling"]["temperature"], left["sampling"]["top_p"]) == (0.25, 0.9)


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("n = ", "run.toml' can't be read", "--settings"),
        ("polcy = 1", "unknown setting 'polcy'; did you mean 'policy'?", "--settings"),
        ("[sampling]\ntemprature = 1", "did you mean 'temperature'?", "rollout --help"),
        ("sampling = 3", "'sampling' is a table, not '3'", "-c sampling.NAME=VALUE"),
        ("n = 0", "--n: Input should be greater than or equal to 1, got '0'", "rollout --help"),
        ("[sampling]\ntop_k = 'x'", "-c sampling.top_k: Input should be a valid integer", "--help"),
        ("isolate = 'task'", "'environment' or 'episode', got 'task'", "rollout --help"),
        ('command = "eval"', "holds settings of `envgen eval`", "envgen eval --config run.toml"),
    ],
)
def test_wrong_files_are_told(cli: Cli, text: str, error: str, hint: str) -> None:
    Path("run.toml").write_text(text)
    result = cli("rollout", "ds", "--policy", "gold", "--out", "o", "--config", "run.toml")
    assert (result.code, result.out) == (2, "")
    assert error in result.err
    assert hint in result.err
    assert "Traceback" not in result.err


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
    result = cli(*words, "-c", "n=0")
    assert result.code == 2
    assert "hunter2" not in result.err
    Path("t.toml").write_text(
        "[policy]\nspec = 'openai:m@http://u:hunter2@h/v1'\n"
        "[policy.options]\napi_key = 'hunter2'\napi_key_env = 'MY_KEY'\n"
        "headers = {Authorization = 'hunter2'}\n"
    )
    command = LEAVES["rollout"]
    context = command.make_context("rollout", ["ds", "--out", "o", "--config", "t.toml"])
    Path("o").mkdir()
    command.leave(context.obj)
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
