"""The installed package: what importing costs, and what the wheel holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import envgen
from envgen.core.errors import DISTRIBUTION, install_hint

ROOT = Path(__file__).resolve().parents[1]
HEAVY = (
    "docker", "httpx", "matplotlib", "openai", "pyarrow", "ray", "rich", "scipy",
    "sqlalchemy", "torch",
)  # fmt: skip
ROOMS = ("environments", "pipelines", "sandboxes", "verifiers")


def run(code: str, **environ: str) -> str:
    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_envgen_loads_nothing_heavy() -> None:
    loaded = run("import sys, envgen; print(*sorted({m.partition('.')[0] for m in sys.modules}))")
    assert not set(loaded.split()) & set(HEAVY)


def test_the_command_line_loads_a_room_when_a_command_needs_it() -> None:
    loaded = run("import sys, envgen.cli.app; print(*sorted(sys.modules))").split()
    assert "envgen.cli.app" in loaded
    assert not {name.partition(".")[0] for name in loaded} & ({*HEAVY} - {"rich"})
    assert not {"envgen.rollout.run", "envgen.store.dataset", "envgen.pipelines"} & set(loaded)


def test_importing_envgen_registers_environments() -> None:
    ids = run(
        "import envgen, gymnasium; print(*[i for i in gymnasium.registry if i[:7] == 'envgen/'])"
    )
    assert {"envgen/General-v0", "envgen/TripPlanning-v0"} <= set(ids.split())


def test_hints_name_the_distribution_that_is_installed() -> None:
    assert metadata.version(DISTRIBUTION) == envgen.__version__
    extras = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    hints = 0
    for path in (path for room in ("envgen", *ROOMS) for path in (ROOT / room).rglob("*.py")):
        text = path.read_text()
        assert not re.search(r"pip install '?envgen\b(?!-gym)", text), path
        for extra in re.findall(r"install_hint\([\"'](\w+)[\"']\)", text):
            assert extra in extras, path
            hints += 1
    assert hints
    assert install_hint("train") == f"pip install '{DISTRIBUTION}[train]'"


def test_public_names_resolve() -> None:
    assert run("import envgen; [getattr(envgen, name) for name in envgen.__all__]; print('ok')")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = envgen.tarin


@pytest.mark.parametrize(
    "first",
    ["", "import envgen.rollout.run", "envgen.rollout", "import envgen.rollout.filter as f"],
)
def test_every_verb_can_be_called_whatever_was_imported_before(first: str) -> None:
    """``rollout`` is a room as well."""
    code = (
        f"import envgen\n{first}\nverbs = set(envgen.__all__) - {{'__version__'}}\n"
        "assert all(callable(getattr(envgen, name)) for name in verbs)\n"
        "import envgen.rollout.run as run\nassert callable(envgen.rollout) and run.RolloutConfig\nprint('ok')"
    )
    assert run(code) == "ok\n"


@pytest.mark.parametrize("room", ROOMS)
def test_bare_rooms_refuse_to_be_imported(room: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {room}"
    command = [sys.executable, "-P", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"import 'envgen.{room}'" in result.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_links_lead_to_the_rooms(room: str) -> None:
    assert (ROOT / "envgen" / room).resolve() == ROOT / room


@pytest.mark.slow
def test_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    """Everything a user needs is in the wheel, data included."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path / "w"), str(ROOT)],
        check=True,
        timeout=240,
    )  # fmt: skip
    (wheel,) = (tmp_path / "w").glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        timeout=120,
    )  # fmt: skip
    code = (
        "import envgen, gymnasium, pathlib, envgen.verifiers.general;"
        f"assert pathlib.Path(envgen.__file__).is_relative_to({str(site)!r}), envgen.__file__;"
        "env = gymnasium.make('envgen/TripPlanning-v0'); text, info = env.reset(seed=0);"
        "assert len(info['tools']) == 15, len(info['tools']); env.close();"
        "from envgen.pipelines.general.domains import DOMAINS, load_tasks;"
        "assert len([load_tasks(name) for name in DOMAINS]) > 2; print('ok')"
    )
    assert "ok" in run(code, PYTHONPATH=str(site))
