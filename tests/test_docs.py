"""The documentation against the program: commands, options, files, code and what must not stand there."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pkgutil import resolve_name

import pytest
from cli_runs import ROOT, environment
from click_words import commands, parse
from tiny_dataset import write_tiny_dataset

import envgen
from envgen.core import families
from envgen.core.families import GROUP
from envgen.core.types import Record
from envgen.pipelines.general.authoring import draws, rules
from envgen.pipelines.general.authoring import page as pages

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = (
    "envgen", "environments", "pipelines", "sandboxes", "verifiers", "tests", "docs", "benchmarks",
    "examples", ".ci",
)  # fmt: skip
FENCE = re.compile(r"^```(\w*)(?: slow)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|toml|yaml|yml|csv|j2))`")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return [
        text for name, text in FENCE.findall(page.read_text(encoding="utf-8")) if name == language
    ]


def shell_lines(page: Path) -> list[str]:
    """Every ``envgen ...`` command in a page's shell blocks, continued lines joined."""
    languages = ("sh", "console", "text")
    text = "\n".join(block for one in languages for block in blocks(page, one))
    text = text.replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [line for line in lines if line.startswith("envgen ")]


WRITTEN = [(page.name, line) for page in PAGES for line in shell_lines(page)]
SHOWN = [
    (name, line.strip())
    for name, command in commands().items()
    for line in (command.epilog or "").splitlines()
    if line.strip().startswith("envgen ")
]


@pytest.mark.parametrize(("where", "line"), [*WRITTEN, *SHOWN])
def test_commands_in_pages_and_help_parse(
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my.toml", "greenhouse.toml"):  # pages that commands read
        shutil.copy(ROOT / "examples/pages/greenhouse.toml", name)
    words = shlex.split(re.split(r"\s#|\s\|\s", line)[0])
    with installed(tmp_path) if where == "families.md" else nullcontext():
        parse(words[1:])


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """The example family, as its installation leaves it."""
    source = ROOT / "examples" / "arithmetic"
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    rows = "".join(f"{k} = {v}\n" for k, v in project["entry-points"][GROUP].items())
    place = folder / f"{project['name']}-{project['version']}.dist-info"
    place.mkdir()
    place.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\n")
    place.joinpath("entry_points.txt").write_text(f"[{GROUP}]\n{rows}")
    with pytest.MonkeyPatch.context() as patch:
        for path in (source, folder):
            patch.syspath_prepend(path)
        families._installed.cache_clear()
        yield
    families._installed.cache_clear()


def test_pages_show_commands() -> None:
    assert len(WRITTEN) >= 10
    with pytest.raises(ValueError, match="no command"):
        parse(["frobnicate"])
    with pytest.raises(ValueError, match="No such option"):
        parse(["list", "ds/", "--frobnicate"])


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_is_documented(name: str) -> None:
    assert f"envgen {name}" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_pages_compiles(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")


def test_readme_s_environment_code_runs(tmp_path: Path) -> None:
    """As a user would paste it, beside a dataset at ``ds/``."""
    write_tiny_dataset(tmp_path / "ds")
    (code,) = (text for text in blocks(ROOT / "README.md", "python") if "gymnasium.make(" in text)
    result = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_pages_exist(page: Path) -> None:
    named = PLACE.findall(page.read_text(encoding="utf-8"))
    missing = [
        place
        for place in named
        if not any((base / place).exists() for base in (ROOT, page.parent, ROOT / "envgen"))
    ]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("page", ["runners", "policies"])
def test_pages_that_teach_run_as_they_stand(page: str) -> None:
    """As ``make readme`` does it; README and ``docs/domains.md`` take minutes."""
    runs = [sys.executable, "-P", str(ROOT / ".ci" / "readme.py"), f"docs/{page}.md"]
    result = subprocess.run(
        runs, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("-- exit code 0") >= 1


def test_readme_leads_to_every_page() -> None:
    missing = [
        page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in README
    ]
    assert not missing


def api_modules() -> list[str]:
    """The modules that ``.ci/api.py`` writes pages of."""
    spec = importlib.util.spec_from_file_location("api", ROOT / ".ci" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.modules()
    return found


@pytest.mark.slow
def test_the_api_reference_has_every_public_name(tmp_path: Path) -> None:
    """Built as ``make docs`` builds it; no page loads anything from elsewhere."""
    command = [sys.executable, "-P", str(ROOT / ".ci" / "api.py"), str(tmp_path)]
    subprocess.run(command, check=True, env=environment(), timeout=900, capture_output=True)
    front = (tmp_path / "envgen.html").read_text(encoding="utf-8")
    rooms = {path.stem for path in (tmp_path / "envgen").glob("*.html")}
    assert not [n for n in envgen.__all__ if f'id="{n}"' not in front and n not in rooms]
    for name in api_modules()[1:]:
        page = (tmp_path / f"{name.replace('.', '/')}.html").read_text(encoding="utf-8")
        assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css)"', page)


NAME = re.compile(r"`(envgen(?:\.\w+)+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_pages_exist(page: Path) -> None:
    """Every ``envgen.x.y`` in backticks is a module, or a public name of one."""
    for name in sorted(set(NAME.findall(page.read_text(encoding="utf-8")))):
        resolve_name(name)


DOMAINS_PAGE = (ROOT / "docs" / "domains.md").read_text(encoding="utf-8")


def test_the_page_on_domains_holds_the_example() -> None:
    example = (ROOT / "examples" / "pages" / "greenhouse.toml").read_text(encoding="utf-8")
    assert f"```toml\n{example}```" in DOMAINS_PAGE


@pytest.mark.parametrize(
    "record",
    [
        pages.Domain,
        pages.TableDraw,
        pages.ToolSignature,
        pages.Requirement,
        pages.PhraseRule,
        pages.MayChange,
        pages.Scene,
        pages.StepRule,
    ],
)
def test_the_page_on_domains_names_every_field(record: type[Record]) -> None:
    missing = [
        name
        for name in record.model_fields
        if not re.search(rf"(?:`|\[|\.|^|, ){name}(?:`|\]|\.| =)", DOMAINS_PAGE, re.MULTILINE)
    ]
    assert not missing


def test_the_page_on_domains_names_every_word_that_is_taken() -> None:
    assert not {word for word in pages.RESERVED if not re.search(rf"\b{word}\b", DOMAINS_PAGE)}
    listed = DOMAINS_PAGE.partition("authoring/page.py`: `")[2].partition("`")[0]
    assert set(listed.split()) == pages.RESERVED


def test_the_page_on_domains_shows_every_draw_and_function() -> None:
    functions = {name[6:] for name in dir(rules._RuleReader) if name.startswith("_call_")}
    called = set(re.findall(r"(\w+)\(", DOMAINS_PAGE))
    functions |= {*rules._FORMS, *draws.DRAWS, *draws.REGISTERED}
    assert not {*functions, "said", "trait", "field"} - called


GENERAL_PAGE = (ROOT / "docs" / "general.md").read_text(encoding="utf-8")


def general_map() -> dict[str, set[str]]:
    """Folder -> the files that ``docs/general.md`` lists in it."""
    found: dict[str, set[str]] = {}
    for section in GENERAL_PAGE.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        found[title.strip("`")] = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    return found


def test_the_map_of_the_general_pipeline_names_files_that_exist() -> None:
    listed = {f"{folder}{name}" for folder, names in general_map().items() for name in names}
    assert len(listed) > 50
    assert not [place for place in listed if not (ROOT / place).is_file()]


def test_functions_in_the_walks_are_where_they_are_said_to_be() -> None:
    walks = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", GENERAL_PAGE, re.MULTILINE)
    assert len(walks) > 20
    for file, name in walks:
        text = (ROOT / file).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"(?:def|class) {part}\b", text), f"{file}: {part}"


def test_makefile_targets_in_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`?make ([a-z]+)`", page.read_text(encoding="utf-8")):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """No path of this checkout, its interpreter or a home folder, and nobody's key."""
    places = [
        re.escape(f"{place}/".encode()) for place in (str(ROOT), sys.prefix, str(Path.home()))
    ]
    homes = rb"/(?:home|Users)/[a-z]|-----BEGIN [A-Z ]*PRIVATE KEY"
    suspicious = re.compile(b"|".join([*places, homes]))
    found = []
    for path in tracked():
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if suspicious.search(line) and path != Path(__file__).resolve():
                found.append(f"{path.relative_to(ROOT)}:{number}: {line[:120]!r}")
    assert not found


def tracked() -> list[Path]:
    """The project's text files, whether or not there is a Git repository."""
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for name in SOURCES:
        for folder, folders, names in os.walk(ROOT / name):  # links to the rooms are not followed
            folders[:] = [one for one in folders if one not in ("__pycache__", "data")]
            files += [Path(folder) / one for one in names if not one.endswith((".pyc", ".so"))]
    return files
