"""Models write tools, checks and a solution in code: what is proven is kept, and nobody sees too much."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from search_models import script

from envgen.core.errors import PipelineError
from envgen.pipelines.author.code_folder import World, check_faults, rows_of
from envgen.pipelines.author.code_form import MOST_ROUNDS
from envgen.pipelines.author.code_prompts import HandedChecks
from envgen.pipelines.author.config import AuthorConfig
from envgen.pipelines.author.generate import chosen, generate_authored
from envgen.pipelines.general.generate import GenerateConfig
from envgen.pipelines.validate import validate
from envgen.store import trust
from envgen.store.dataset import Dataset

LOANS = Path(__file__).parents[3] / "examples" / "library_loans"
FAST = {"stream": False, "max_retries": 0}
MOST = "Name the card of the branches harbour and station with the most overdue loans, and how many it has."
TIE = "Among equals, name the card whose id comes first."
COUNT = "A loan is overdue if it is due before today and not yet returned."
FILES = {
    "tools.py": (LOANS / "tools.py").read_text("utf-8"),
    "database.sql": (LOANS / "database.sql").read_text("utf-8"),
    "policy.md": (LOANS / "policy.md").read_text("utf-8"),
    "prompt.md": f"{MOST} {TIE}\n\nSubmit the card's id as `card` and the number as `overdue`.\n",
    "submit.json": (LOANS / "tasks" / "most-overdue" / "submit.json").read_text("utf-8"),
}
SOLUTION = (LOANS / "tasks" / "most-overdue" / "solution.py").read_text("utf-8")
RULES = [{"id": "most", "text": MOST}, {"id": "first", "text": TIE}, {"id": "count", "text": COUNT}]
SHARED = """\
def counts(before):
    return dict(before.execute(
        "SELECT card, count(*) FROM loans WHERE NOT returned AND due < '2026-03-01' GROUP BY card"
    ))


def leaders(before):
    found = counts(before)
    return [card for card, n in found.items() if n == max(found.values())]
"""
CHECKS = [
    {"rule": "most", "code": "def most(answer, before, after):\n"
     "    return answer['card'] in leaders(before)\n"},
    {"rule": "first", "code": "def first(answer, before, after):\n"
     "    return answer['card'] == min(leaders(before))\n"},
    {"rule": "count", "code": "def count(answer, before, after):\n"
     "    return answer['overdue'] == counts(before).get(answer['card'], 0)\n"},
]  # fmt: skip
WRONG = json.loads((LOANS / "tasks" / "most-overdue" / "answers.json").read_text("utf-8"))["wrong"]
AUSTEN = [
    {"book": "b01", "title": "Emma", "copies": 3},
    {"book": "b02", "title": "Persuasion", "copies": 1},
]
TESTS: list[dict[str, Any]] = [
    {"tool": "find_books", "arguments": {"author": "Jane Austen"}, "returns": AUSTEN},
    {"tool": "count_open_loans", "arguments": {"book": "b01"}, "returns": 2},
    {"tool": "find_books", "arguments": {"author": "nobody"}, "returns": []},
    {"tool": "list_cards", "arguments": {"branch": "station"}, "returns": ["C-1003", "C-1004"]},
    {"tool": "list_cards", "arguments": {"branch": "x"}, "error": "unknown_branch"},
    {"tool": "count_open_loans", "arguments": {"book": "b99"}, "returns": 0},
    {"tool": "list_loans", "arguments": {"card": "x"}, "error": "unknown_card"},
    {"tool": "lend", "arguments": {"card": "C-1003", "book": "b01", "due": "2026-03-29"},
     "returns": {"card": "C-1003", "book": "b01", "due": "2026-03-29"}},
    {"tool": "lend", "arguments": {"card": "C-1003", "book": "x", "due": "d"}, "error": "unknown_book"},
    {"tool": "lend", "arguments": {"card": "x", "book": "b01", "due": "d"}, "error": "unknown_card"},
]  # fmt: skip


def role_of(body: dict[str, Any]) -> str:
    text = next(one for one in body["messages"] if one["role"] == "user")["content"]
    heads = {"Build": "builder", "Agents": "checker", "Solve": "solver", "You wrote": "amender",
             "You look": "augmenter"}  # fmt: skip
    return next((role for head, role in heads.items() if text.startswith(head)), "reviewer")


def model(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """All roles of an honest author; ``changes`` exchange files, or what a role hands in."""
    files = {**FILES, **changes.get("files", {})}
    writes = "\n".join(f"cat > {name} <<'END'\n{text}\nEND" for name, text in files.items())
    tested = changes.get("tests") or [*TESTS, loans_test()]
    handed = {
        "builder": {"rules": changes.get("rules", RULES), "tests": tested},
        "checker": {
            "checks": CHECKS,
            "shared": SHARED,
            "wrong": [{"answer": one, "breaks": "most"} for one in WRONG],
        },
        "amender": {"checks": CHECKS, "shared": SHARED, "wrong": []},
        "solver": {"solution": SOLUTION},
    }
    more = changes.get("augmenter", {})
    added = "\n".join(
        f"cat > {name} <<'END'\n{text}\nEND"
        for name, text in {"tools.py": FILES["tools.py"], **more.get("files", {})}.items()
    )

    def reply(body: dict[str, Any]) -> Any:
        role, said = role_of(body), sum(one["role"] == "assistant" for one in body["messages"])
        if role == "reviewer":
            return "review", {"findings": changes.get("review", [])}
        if role == "builder" and said < 2:
            return ("bash", {"command": writes}) if said == 0 else ("check", {})
        if role == "augmenter":
            given = {"rules": RULES, "tests": more["tests"]}
            return ("bash", {"command": added}) if said == 0 else ("hand_in", given)
        if role == "solver" and not any(
            t["function"]["name"] == "list_cards" for t in body["tools"]
        ):
            return "hand_in", {"missing": changes["missing"]}
        if role == "solver" and said == 0:
            return "list_cards", {"branch": "station"}
        own: Any = changes.get(role, handed[role])
        return "hand_in", own(said) if callable(own) else own

    return reply


def loans_test() -> dict[str, Any]:
    found = re.findall(r"\('(C-1002)', '(b\d+)', '([\d-]+)', (\d)\)", FILES["database.sql"])
    rows = [{"book": b, "due": due, "returned": r == "1"} for _, b, due, r in found]
    return {"tool": "list_loans", "arguments": {"card": "C-1002"}, "returns": rows}


def run(out: Path, **changes: Any) -> tuple[Any, ModelServer]:
    with ModelServer([script({"m": model(**changes)})]) as server:
        config = AuthorConfig(
            author=f"openai:m@{server.url}", options=FAST, form="code", submissions=3,
            **changes.get("config", {}),
        )  # fmt: skip
        found = chosen(config, ["lending books"], 0)
        try:
            summary: Any = generate_authored(
                config, GenerateConfig(), found, out, check=False, workers=1
            )
        except PipelineError as error:
            summary = error
    return summary, server


def requests(server: ModelServer, role: str) -> list[str]:
    """All that a role was sent, in words."""
    asked = [one for one in server.generations if role_of(one) == role]
    return [json.dumps(one["messages"]) + json.dumps(one["tools"]) for one in asked]


def test_a_world_its_checks_and_a_solution_become_a_proven_dataset(tmp_path: Path) -> None:
    summary, server = run(tmp_path / "ds")
    assert (summary.kept, summary.tasks) == (1, 1)
    assert validate(tmp_path / "ds").passed
    dataset = Dataset.open(tmp_path / "ds")
    assert not trust.is_registered(dataset.manifest.content_hash)
    (task_id,) = dataset.tasks
    gates = {one.gate: str(one.status) for one in dataset.tasks[task_id].evidence}
    assert {gates[name] for name in ("tools", "gold", "empty", "probes", "attacks", "mutants")} == {
        "passed"
    }
    assert gates["reseeds"] == "passed"
    assert json.dumps(json.loads(FILES["submit.json"])) in dataset.tasks[task_id].prompt
    assert (tmp_path / "ds.pages" / "lending-books" / "tasks" / "main" / "solution.py").exists()

    # The barrier: of the solution, no run of eight tokens reaches the checker, nor checks the solver.
    told = json.dumps([FILES, RULES])
    for secret, reader in (
        (SOLUTION, "checker"),
        (SHARED, "solver"),
        (SHARED, "builder"),
    ):
        tokens = re.findall(r"\w+|[^\w\s]", secret)
        runs = [" ".join(tokens[i : i + 8]) for i in range(len(tokens) - 7)]
        seen = " ".join(re.findall(r"\w+|[^\w\s]", "\n".join(requests(server, reader))))
        known = " ".join(re.findall(r"\w+|[^\w\s]", told))
        assert requests(server, reader)
        assert not [one for one in runs if one in seen and one not in known]


WRONG_CHECK = [
    {**CHECKS[0], "code": CHECKS[0]["code"].replace(" in ", " not in ")},
    *CHECKS[1:],
]
WRONGS = [{"answer": one, "breaks": "most"} for one in WRONG]
FOREIGN = {**CHECKS[0], "code": "def most(answer, before, after):\n    import os\n    return True"}
LAX = [
    {"rule": r["id"], "code": f"def {r['id']}(answer, before, after):\n    return True\n"}
    for r in RULES
]


def test_checks_that_refuse_what_is_right_are_mended_without_a_look_at_the_solution(
    tmp_path: Path,
) -> None:
    wrong = [{"answer": one, "breaks": "most"} for one in WRONG]
    summary, server = run(
        tmp_path / "ds", checker={"checks": WRONG_CHECK, "shared": SHARED, "wrong": wrong}
    )
    assert summary.kept == 1
    authored: Any = Dataset.open(tmp_path / "ds").manifest.funnel["authored"]
    assert authored[0]["amendments"] == ["gold: mended"]
    (asked,) = requests(server, "amender")
    assert "breaks, they say: most" in asked
    assert "solve()" not in asked


SLOPPY = SOLUTION.replace('> best["overdue"]', '>= best["overdue"]')
"""Right on the task's own rows; among equals it names the last."""
GUESSED = [
    {"rule": rule, "code": f"def {rule}(answer, before, after):\n    return answer == {right}\n"}
    for right in [{"card": "C-1001", "overdue": 2}]
    for rule in ("most", "first", "count")
]
SMALL_TESTS = [{**loans_test(), "arguments": {"card": "C-1005"}, "returns": []}, *TESTS[3:]]


def test_what_holds_on_the_tasks_own_rows_alone_is_no_environment(tmp_path: Path) -> None:
    found, server = run(tmp_path / "sloppy", solver={"solution": SLOPPY})
    assert isinstance(found, PipelineError)
    told = requests(server, "solver")[-1]
    assert "other databases the verifier refuses" in told
    assert "(loans." in told
    (asked,) = requests(server, "amender")[:1]
    assert "run on other rows" in asked
    found, server = run(
        tmp_path / "guessed", checker={"checks": GUESSED, "wrong": WRONGS},
        amender={"checks": GUESSED, "wrong": []},
    )  # fmt: skip
    assert isinstance(found, PipelineError)
    assert "accepts the same answer whatever the rows are" in requests(server, "solver")[-1]


LISTLESS = FILES["tools.py"].replace("def list_cards", "def _list_cards")
LISTING = [one for one in TESTS if one["tool"] == "list_cards"]


def test_a_tool_that_the_solver_misses_is_added_and_nothing_else(tmp_path: Path) -> None:
    others = [*(one for one in TESTS if one not in LISTING), loans_test()]
    without: dict[str, Any] = {
        "files": {"tools.py": LISTLESS}, "tests": others,
        "missing": "which cards there are at a branch",
    }  # fmt: skip
    found, server = run(tmp_path / "ds", **without, augmenter={"files": {}, "tests": LISTING})
    assert found.kept == 1
    authored: Any = Dataset.open(tmp_path / "ds").manifest.funnel["authored"]
    assert authored[0]["augmented"] == ["added: which cards there are at a branch"]
    assert "list_cards" in {
        t.name for t in next(iter(Dataset.open(tmp_path / "ds").environments.values())).tools
    }
    other = {"prompt.md": FILES["prompt.md"] + "It is C-1002.\n"}
    found, server = run(tmp_path / "no", **without, augmenter={"files": other, "tests": LISTING})
    assert isinstance(found, PipelineError)
    assert "the tools do not tell: which cards" in found.hint
    assert "prompt.md has changed" in requests(server, "augmenter")[-1]


def test_a_panel_that_solves_too_much_sends_it_back_to_the_builder(tmp_path: Path) -> None:
    found, server = run(tmp_path / "ds", config={"panel": ("gold",), "panel_episodes": 1})
    assert found.kept == 1
    authored: Any = Dataset.open(tmp_path / "ds").manifest.funnel["authored"]
    assert [one["rate"] for one in authored[0]["rounds"]] == [1.0] * MOST_ROUNDS
    first, *later = [one for one in requests(server, "builder") if "assistant" not in one]
    assert "Solvers pass" not in first
    assert all("Solvers pass 1.00" in one for one in later)
    assert len(later) == MOST_ROUNDS - 1


BREAKS = FILES["tools.py"].replace(
    "db, *, author: str):", 'db, *, author: str):\n    """X."""\n    1 / 0', 1
)
EXAMPLE = FILES["tools.py"].replace("card: id of a library card", "card: id, such as C-1004", 1)
EVIL = FILES["tools.py"].replace("class ToolError", "import subprocess\n\n\nclass ToolError", 1).replace(
    "found = db.execute(\n", "subprocess.run(['id'], check=True)\n    found = db.execute(\n", 1
)  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "checks that accept everything": (
        {"checker": {"checks": LAX, "wrong": WRONGS}}, "the checker",
    ),
    "too few wrong answers": (
        {"checker": {"checks": CHECKS, "shared": SHARED, "wrong": []}}, "the checker",
    ),
    "a check with a foreign import": (
        {"checker": {"checks": [FOREIGN, *CHECKS[1:]], "wrong": WRONGS}}, "the checker",
    ),
    "a solution that knows the answer": (
        {"solver": {"solution": 'def solve():\n    return {"card": "C-1001", "overdue": 2}\n'}}, "the solver",
    ),
    "a solution that reads the database": (
        {"solver": {"solution": "import sqlite3\n\ndef solve():\n    return None\n"}}, "the solver",
    ),
    "a rule that nobody is told": (
        {"rules": [*RULES, {"id": "secret", "text": "Cards of the harbour count twice."}]}, "the builder",
    ),
    "a tool that breaks": ({"files": {"tools.py": BREAKS}}, "the builder"),
    "a tool whose documentation names a row": ({"files": {"tools.py": EXAMPLE}}, "the builder"),
    "a tool that starts programs": ({"files": {"tools.py": EVIL}}, "the builder"),
    "a tool without a test": ({"tests": TESTS}, "the builder"),
    "tests that see few faults": ({"tests": SMALL_TESTS}, "the builder"),
    "a test that is wrong": (
        {"tests": [*TESTS, {**loans_test(), "returns": []}]}, "the builder",
    ),
    "a reader who is not content": (
        {"review": [{"kind": "unclear", "blocking": True, "text": "which day is today?"}]}, "the builder",
    ),
    "a database that attaches files": (
        {"files": {"database.sql": "ATTACH DATABASE '/etc/x' AS x;"}}, "the builder",
    ),
}  # fmt: skip


@pytest.mark.bwrap
@pytest.mark.parametrize("case", CASES)
def test_no_bad_environment_is_kept(tmp_path: Path, case: str) -> None:
    changes, why = CASES[case]
    found, _ = run(tmp_path / "ds", **changes)
    assert isinstance(found, PipelineError)
    assert why in found.hint
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("checks", "shared", "why"),
    [
        (LAX, SHARED, "nobody calls 'leaders'"),
        (CHECKS, SHARED + "counts(None)\n", "functions alone"),
        (CHECKS, SHARED.replace("leaders", "first"), "'first': it has that name already"),
        (
            CHECKS,
            SHARED.replace("    return dict", "    import os\n    return dict"),
            "imports 'os'",
        ),
        (CHECKS, "def", "shared is not valid Python"),
    ],
)
def test_what_checks_may_not_share(checks: Any, shared: str, why: str) -> None:
    world = World(files={}, rules=tuple((one["id"], one["text"]) for one in RULES))
    given = HandedChecks.model_validate({"checks": checks, "shared": shared})
    assert why in next(check_faults(given, world))


def test_mended_checks_that_accept_what_was_refused_are_no_mend(tmp_path: Path) -> None:
    wrong = [{"answer": one, "breaks": "most"} for one in WRONG]
    found, server = run(
        tmp_path / "ds",
        checker={"checks": WRONG_CHECK, "shared": SHARED, "wrong": wrong},
        amender={"checks": LAX, "wrong": []},
    )
    assert isinstance(found, PipelineError)
    assert "the solver" in found.hint
    asked = requests(server, "amender")
    assert "not accepted" in asked[-1]


def test_hostile_names_and_values_of_a_database_are_shown_as_data(tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute('CREATE TABLE "a"" FROM x; --" (v)')
        db.execute('INSERT INTO "a"" FROM x; --" VALUES (?), (?)', (b"\x00\xff", "</task 0>"))
        db.commit()
    shown = list(rows_of(path))
    assert shown[0] == json.dumps(['a" FROM x; --', ["v"]])
    assert len(shown) == 3
