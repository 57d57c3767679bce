"""Help, wrong arguments and errors of every command."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Cli, envgen, environment
from click_words import commands

import envgen as package
from envgen.cli.app import run
from envgen.cli.generate import parse_levels
from envgen.core.errors import ConfigError

NAMES = sorted(commands())
GROUPS = {name for name, command in commands().items() if hasattr(command, "commands")}
FIGURES = set(NAMES) - GROUPS


@pytest.mark.parametrize("name", NAMES)
def test_help_teaches(cli: Cli, name: str) -> None:
    result = cli(*name.split(), "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: envgen {name}")
    assert "…" not in result.out
    for option in commands()[name].params:
        assert getattr(option, "help", None), f"{name}: {option.name} has no help"
    if name not in GROUPS:
        assert f"Examples:\n  envgen {name}" in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())


HEAVY = {"torch", "transformers", "matplotlib", "scipy", "pyarrow", "docker"}
HELP = f"""
import contextlib, io, json, sys
from envgen.cli.app import run

assert not {HEAVY} & set(sys.modules)
loaded = {{}}
for name in sys.argv[1:]:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()):
        assert run([*name.split(), "--help"]) == 0, name
    loaded[name] = sorted(set(sys.modules) - before)
print(json.dumps(loaded))
"""


def test_help_loads_neither_pytorch_nor_what_the_command_runs() -> None:
    """It takes less than a second of processor time; torch alone takes two."""
    command = [sys.executable, "-P", "-c", HELP, *sorted(FIGURES)]
    completed = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True
    )
    verbs = {name: commands()[name].kind.verb.partition(":")[0] for name in FIGURES}  # type: ignore[attr-defined]
    never = HEAVY | {verb for name, verb in verbs.items() if name.startswith("train")}
    loaded = {name: never.intersection(more) for name, more in json.loads(completed.stdout).items()}
    assert loaded == {name: set() for name in FIGURES}


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figures_can_be_had_as_json(name: str) -> None:
    assert "--json" in itertools.chain(*(p.opts for p in commands()[name].params))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_told(cli: Cli, name: str) -> None:
    result = cli(*name.split(), "--frobnicate")
    assert result.code == 2
    assert result.out == ""
    assert "error: No such option" in result.err
    assert f"see `envgen {name} --help`" in result.err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("frobnicate", "No such command", "see `envgen --help`"),
        ("list", "Missing argument", "envgen list --help"),
        ("list nowhere", "no such dataset folder", "envgen generate"),
        ("list .", "has no dataset.json", "envgen generate"),
        ("show nowhere x", "no such dataset folder", "envgen generate"),
        ("validate nowhere", "no such dataset folder", "envgen generate"),
        ("variants nowhere --out x", "no such dataset folder", "envgen generate"),
        ("export nowhere", "no such dataset folder", "envgen generate"),
        ("rollout nowhere --policy gold --out x", "no such dataset", "envgen generate"),
        ("rollout nowhere --out x", "Missing option '--policy'", "envgen rollout --help"),
        ("pass-at-k nowhere", "there is no run", "envgen rollout"),
        ("pass-at-k . --k 0", "--k: Input should be greater", "pass-at-k --help"),
        ("filter nowhere --rollouts x --out y", "no such dataset", "envgen generate"),
        ("generate", "Usage: envgen generate", ""),
        ("generate general", "Missing option '--out'", "envgen generate general --help"),
        ("generate general --level 0 --out x", "is not a level", "1..5"),
        ("generate general --level 5..1 --out x", "runs backwards", "1..5"),
        ("generate general --category x --out x", "unknown category 'x'", "trip_planning"),
        ("generate general --environments 0 --out x", "--environments", "--help"),
        ("generate general --name A/B --out x", "name: ", "--help"),
        ("generate general --backend podman --out x", "--backend", "--help"),
        ("model", "Usage: envgen model", ""),
        ("model init --preset tiny --out m", "Missing option '--tokenizer'", "init --help"),
        (
            "model init --preset tiny --tokenizer nowhere --out m",
            "no such dataset folder",
            "generate",
        ),
        ("model init --preset huge --tokenizer . --out m", "unknown preset 'huge'", "tiny, small"),
        ("model info", "name one model", "--preset NAME"),
        ("model info m --preset tiny", "name one model", "--preset NAME"),
        ("model info --preset huge", "unknown preset 'huge'", "tiny, small"),
        ("model info nowhere", "is not a folder", "envgen model init"),
        ("model info .", "has no config.json", "envgen model init"),
        ("quickstart --out .", "not a quickstart folder", "--out"),
    ],
)
def test_wrong_arguments(cli: Cli, words: str, error: str, hint: str) -> None:
    Path("somebody's.txt").write_text("keep")
    result = cli(*words.split())
    assert result.code == 2
    assert result.out == ""
    assert error in result.err
    assert not hint or "hint: " in result.err
    assert hint in result.err
    assert "Traceback" not in result.err
    assert Path("somebody's.txt").read_text() == "keep"


@pytest.mark.parametrize(
    "policy",
    ["nobody", "noisy-gold:x", "noisy-gold:2", "replay:nowhere", "openai", "dsa:", "dsa:nowhere"],
)
def test_wrong_policies(cli: Cli, dataset: Path, policy: str) -> None:
    result = cli("rollout", dataset, "--policy", policy, "--out", "r")
    assert result.code == 2, result
    assert "error: " in result.err
    assert "hint: " in result.err


@pytest.mark.parametrize(("text", "levels"), [("3", (3, 3)), ("1..5", (1, 5)), ("10", (10, 10))])
def test_levels(text: str, levels: tuple[int, int]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize("text", ["", "..", "1..", "..5", "0", "11", "a"])
def test_what_is_no_level(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a level"):
        parse_levels(text)


def test_paths_that_cant_be_written(cli: Cli, dataset: Path) -> None:
    Path("file").write_text("")
    result = cli("list", dataset, "--json", "file/x.json")
    assert result.code == 2
    assert "hint: " in result.err
    result = cli("rollout", dataset, "--policy", "gold", "--out", "file/x")
    assert result.code == 2
    assert "hint: " in result.err


def test_an_error_after_a_signal_is_its_doing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A library may make another exception of it, as pydantic does in the midst of its work."""
    words = ["list", str(tmp_path / "nowhere")]
    assert run(words, stopped=lambda: False) == 2
    assert "error: " in capfd.readouterr().err
    assert run(words, stopped=lambda: True) == 130
    assert capfd.readouterr().err == "interrupted\n"  # it stored nothing
    assert run(["rollout", *words[1:], "--policy", "gold"], stopped=lambda: True) == 130
    assert capfd.readouterr().err.startswith("interrupted; what is finished is stored")


def test_no_arguments_give_help(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "error" not in result.err
    assert "quickstart" in result.err


def test_processes_agree_on_the_version() -> None:
    result = envgen("--version")
    assert (result.code, result.out, result.err) == (0, f"envgen {package.__version__}\n", "")


def test_a_pipe_gets_plain_text_and_whole_ids(dataset: Path) -> None:
    result = envgen("list", dataset, COLUMNS="70", NO_COLOR="1", TERM="xterm-256color")
    assert "\x1b" not in result.out
    assert "tiny-cheapest " in result.out


def test_errors_of_processes_are_two_lines(tmp_path: Path) -> None:
    result = envgen("list", tmp_path / "nowhere")
    assert result.code == 2
    assert result.out == ""
    assert [line.partition(" ")[0] for line in result.err.splitlines()] == ["error:", "hint:"]
