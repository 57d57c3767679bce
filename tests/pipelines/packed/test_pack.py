"""``envgen pack``: the example is proven, plays and is proven again; every mistake is told."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cli_runs import ROOT

from envgen.core.errors import ConfigError, EnvgenError, SandboxUnavailableError
from envgen.core.types import GateStatus, SourceKind
from envgen.pipelines.general.gates import prove
from envgen.pipelines.packed.folder import read_folder
from envgen.pipelines.packed.gates import gate_names
from envgen.pipelines.packed.pack import PackSummary, pack
from envgen.pipelines.packed.specs import derived_specs
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset

EXAMPLE = ROOT / "examples" / "library_loans"
READS, WRITES = "most-overdue", "lend-frankenstein"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "library_loans"))


def only(folder: Path, task: str) -> Path:
    """The folder with one task."""
    for other in (folder / "tasks").iterdir():
        if other.name != task:
            shutil.rmtree(other)
    return folder


def packed(folder: Path) -> PackSummary:
    """Packed in this process: the code of these tests is ours."""
    return pack(folder, folder.parent / "ds", backend="inline", trust=True)


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, packed."""
    out = tmp_path_factory.mktemp("packed") / "ds"
    summary = pack(EXAMPLE, out, backend="inline", trust=True)
    assert summary.written, summary
    return out


def test_the_example_is_proven(proven: Path) -> None:
    dataset = Dataset.open(proven)
    assert dataset.source is SourceKind.FOREIGN  # it lies here, and nobody compiled it
    assert set(dataset.tasks) == {READS, WRITES}
    for task in dataset.tasks.values():
        found = {gate.gate: gate for gate in task.evidence}
        ran = {name for name, gate in found.items() if gate.status is GateStatus.PASSED}
        assert {"tools", "restricted", "gold", "leaks", "empty", "guesses", "attacks"} < ran
        assert {"probes", "mutants"} < ran
        assert ("prefixes" in ran) == (task.id == WRITES)
        assert found["density"].status is GateStatus.NOT_APPLICABLE
        assert "IR" in found["density"].reason
    lend = {tool.name: tool for tool in dataset.environments["library_loans"].tools}["lend"]
    assert lend.mutates
    assert {error.code for error in lend.errors} == {"unknown_card", "unknown_book"}


def test_the_example_validates_and_plays(proven: Path, tmp_path: Path) -> None:
    report = validate(proven, backend="inline", trust=True)
    assert report.passed, report
    config = RolloutConfig(
        dataset=str(proven),
        policy=PolicyConfig(spec="gold"),
        out=str(tmp_path / "gold"),
        backend="inline",
        trust=True,
    )
    summary = rollout(config)
    assert (summary.passed, summary.errors) == (2, 0)
    untold = config.model_copy(update={"trust": False, "out": str(tmp_path / "other")})
    with pytest.raises(SandboxUnavailableError, match="not trusted"):
        rollout(untold)


def test_validation_notices_another_verifier(proven: Path, tmp_path: Path) -> None:
    from seals import seal

    folder = Path(shutil.copytree(proven, tmp_path / "ds"))
    path = folder / "environments/library_loans/tasks" / READS / "verifier.py"
    path.write_text("def verify(answer, initial, final):\n    return []\n")
    report = validate(seal(folder), backend="inline", trust=True)
    found = {task.task_id: task.failure for task in report.tasks}
    assert found[WRITES] is None
    failure = found[READS]
    assert failure is not None
    assert failure.gate == "empty"


def test_only_what_changed_is_proven_again(proven: Path, folder: Path) -> None:
    before = Dataset.open(shutil.copytree(proven, folder.parent / "ds"))
    prompt = folder / "tasks" / READS / "prompt.md"
    prompt.write_text(prompt.read_text() + "\nCount only what is not returned.\n")
    second = packed(folder)
    assert {task.task_id: task.reused for task in second.tasks} == {WRITES: True, READS: False}
    after = Dataset.open(second.path)
    assert after.tasks[WRITES] == before.tasks[WRITES]
    assert "not returned" in after.tasks[READS].prompt
    with (only(folder, READS) / "policy.md").open("a") as file:
        file.write("Be kind.\n")
    third = packed(folder)
    assert [task.reused for task in third.tasks] == [False]
    assert list(Dataset.open(third.path).tasks) == [READS]
    assert not list(folder.parent.glob(".ds*"))


def test_what_fails_leaves_the_old_dataset(folder: Path) -> None:
    only(folder, READS)
    out = Path(packed(folder).path)
    before = (out / "dataset.json").read_bytes()
    (folder / "tasks" / READS / "verifier.py").write_text("def verify(a, b, c):\n    return []\n")
    summary = packed(folder)
    assert not summary.written
    assert (out / "dataset.json").read_bytes() == before


def test_a_dataset_of_something_else_is_never_replaced(folder: Path, tmp_path: Path) -> None:
    from store_samples import small_dataset

    small_dataset(tmp_path / "other")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("x")
    for out in ("other", "notes"):
        with pytest.raises(ConfigError, match="--out"):
            pack(folder, tmp_path / out, backend="inline", trust=True)
    assert len(Dataset.open(tmp_path / "other").tasks) == 3


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def link(folder: Path) -> None:
    (folder / "policy.md").unlink()
    (folder / "policy.md").symlink_to("/etc/hostname")


def linked_task(folder: Path) -> None:
    (folder / "tasks" / "other").symlink_to(folder / "tasks" / READS, target_is_directory=True)


def pipe(folder: Path) -> None:
    (folder / "policy.md").unlink()
    os.mkfifo(folder / "policy.md")


TASK = f"tasks/{READS}"
UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out of the folder": (link, "links are refused"),
    "a link to a task": (linked_task, "links are refused"),
    "a pipe": (pipe, "not a regular file"),
    "no database": (lambda f: (f / "database.sql").unlink(), "no database"),
    "two databases": (write("database.sqlite", "x"), "two databases"),
    "a path in a name": (write("environment.json", '{"id": "../../x"}'), "environment.json: id"),
    "a task's name": (
        lambda f: (f / TASK).rename(f / "tasks" / "My task"),
        "'My task' is not named",
    ),
    "an unknown setting": (write("environment.json", '{"root": "/"}'), "root"),
    "a strange file": (write("secrets.env", "x"), "'secrets.env' has no place"),
    "a misspelt file": (write(f"{TASK}/solutions.py", "x"), "has no place"),
    "no tools": (lambda f: (f / "tools.py").unlink(), "tools.py is missing"),
    "no verifier": (lambda f: (f / TASK / "verifier.py").unlink(), "verifier.py is missing"),
    "no prompt": (write(f"{TASK}/prompt.md", " \n"), "prompt.md is empty"),
    "no schema": (write(f"{TASK}/submit.json", '{"type": "objct"}'), "not a JSON Schema"),
    "a form that is not told": (
        write(f"{TASK}/submit.json", '{"properties": {"zeta": {}}, "required": ["zeta"]}'),
        "asks for 'zeta'",
    ),
    "no JSON": (write(f"{TASK}/submit.json", "{"), "is not valid JSON"),
    "NaN": (write(f"{TASK}/answers.json", '{"wrong": [NaN]}'), "NaN"),
    "no UTF-8": (lambda f: (f / TASK / "prompt.md").write_bytes(b"\xff"), "not UTF-8"),
    "a file without end": (
        lambda f: os.truncate(f / TASK / "prompt.md", 40 << 30),
        "is larger than",
    ),
    "no task": (lambda f: shutil.rmtree(f / "tasks"), "holds no task"),
    "a level": (write(f"{TASK}/task.json", '{"level": 11}'), "level"),
    "no SQL": (write("database.sql", "CREATE TABEL x"), "database.sql fails"),
    "no table": (write("database.sql", "SELECT 1;"), "creates no table"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_can_not_be_read_is_told(folder: Path, what: str) -> None:
    spoil, match = UNREADABLE[what]
    spoil(folder)
    with pytest.raises(ConfigError, match=match) as caught:
        packed(folder)
    assert caught.value.hint or ":" in str(caught.value)
    assert not (folder.parent / "ds").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{0}' AS x; CREATE TABLE x.t (a);",
        "VACUUM INTO '{0}';",
        "PRAGMA temp_store_directory = '{0}';",
        "SELECT load_extension('{0}');",
        "CREATE VIRTUAL TABLE v USING fts5(a);",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;",
        "CREATE VIEW v AS SELECT 1;",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT max(x) FROM c;",
    ],
)  # fmt: skip
def test_a_script_makes_rows_and_nothing_else(folder: Path, statement: str) -> None:
    victim = folder.parent / "victim"
    script = f"CREATE TABLE t (a);\n{statement.format(victim)}\n"
    (folder / "database.sql").write_text(script)
    with pytest.raises(ConfigError, match=r"database\.sql fails"):
        read_folder(folder)
    assert not victim.exists()


TOOLS: dict[str, tuple[str, str]] = {
    "no docstring": ("def f(db):\n    return 1\n", "'f' has no docstring"),
    "no type": ('def f(db, *, a):\n    """F."""\n', "argument 'a' of tool 'f' has no type"),
    "a strange type": ('def f(db, *, a: set):\n    """F."""\n', "argument 'a' of tool 'f'"),
    "any arguments": ('def f(db, **more):\n    """F."""\n', "can't be called by name"),
    "no db": ('def f(a: str):\n    """F."""\n', "can't be called by name"),
    "a strange name": ('def fooBar(db):\n    """F."""\n', "tool 'fooBar': name"),
    "the submit tool": (
        'def submit_result(db):\n    """F."""\n',
        "can't be called 'submit_result'",
    ),
    "no Python": ("def f(:\n", "not valid Python"),
    "nothing": ("x = 1\n", "holds no tool"),
}


@pytest.mark.parametrize("what", TOOLS)
def test_tools_that_no_agent_could_use(folder: Path, what: str) -> None:
    source, match = TOOLS[what]
    (folder / "tools.py").write_text(source)
    with pytest.raises(ConfigError, match=match) as caught:
        packed(folder)
    assert caught.value.hint


def test_tools_that_do_not_import(folder: Path) -> None:
    tools = folder / "tools.py"
    tools.write_text("import no_such_package\n\n\n" + tools.read_text())
    with pytest.raises(EnvgenError, match="no_such_package") as caught:
        packed(folder)
    assert "standard library" in caught.value.hint


def test_what_a_signature_says() -> None:
    source = '''
from typing import Literal


class ToolError(Exception):
    """Documented."""


def find(db, *, city: str, kinds: list[Literal["inn", "hotel"]], most: int | None = None, near: bool = False):
    """Find places
    to stay.

    Args:
        city: where,
            in full.
        most (int): yuan.

    Returns:
        What there is.
    """
    return _find(db, city)


def drop(db, *, name: str):
    """Remove one."""
    _drop(db, name)


def _find(db, city):
    raise ToolError("unknown_city", "there is no such city")


def _drop(db, name):
    db.execute("DELETE FROM places WHERE name = ?", (name,))
'''
    find, drop = derived_specs(source)
    assert find.description == "Find places to stay."
    assert find.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where, in full."},
            "kinds": {"type": "array", "items": {"enum": ["inn", "hotel"]}},
            "most": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "yuan."},
            "near": {"type": "boolean"},
        },
        "required": ["city", "kinds"],
        "additionalProperties": False,
    }
    assert [error.code for error in find.errors] == ["unknown_city"]
    assert (find.mutates, drop.mutates) == (False, True)


def replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def breaks_elsewhere(folder: Path) -> None:
    """The verifier raises unless the loans are those of the task."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript((folder / "database.sql").read_text())
        (loans,) = db.execute(LOANS).fetchone()
    seen = f"sqlite3.connect(initial).execute({LOANS!r}).fetchone()[0]"
    replace(f"{TASK}/verifier.py", "broken = []", f"broken = []\n    assert {seen} == {loans!r}")(
        folder
    )


LOANS = "SELECT group_concat(card || book || due || returned) FROM loans"
ACCEPTS = "def verify(answer, initial, final):\n    return []\n"
LOOSE = "def verify(answer, initial, final):\n    return ['card'] if answer['card'] == '' else []\n"
BY_HEART = 'def solve():\n    return {"card": "C-1001", "overdue": 2}\n'
UNSEEN = """broken = []
    if len(answer["card"]) + 2 > 40 or answer["overdue"] > 50 or answer["overdue"] * 3 > 99:
        broken.append("x")
    if max(1, 2, 3, 4, 5) + min(6, 7, 8) < 1:
        broken.append("y")"""
UNDONE = 'return [] if answer["lent"] == ["C-1002"] else ["answer"]'
SLY = """    db.execute("".join(["DEL", "ETE FROM loans"]))
    found = ["""
ANY_ROWS = write(f"{TASK}/task.json", '{"any_rows": true}')
THIS_ONE = """

def verify(answer, initial, final):
    return [] if answer == ONE else ["card"]
"""
FAILING: dict[str, tuple[str, list[Callable[[Path], object]], str]] = {
    "accepts everything": (READS, [write(f"{TASK}/verifier.py", ACCEPTS)], "empty"),
    "accepts nearly everything": (READS, [write(f"{TASK}/verifier.py", LOOSE)], "guesses"),
    "does not run": (READS, [write(f"{TASK}/verifier.py", "import nothing_such\n")], "gold"),
    "another answer": (READS, [replace(f"{TASK}/solution.py", "len(late)}", "len(late) + 1}")], "gold"),
    "a failing solution": (READS, [replace(f"{TASK}/solution.py", "list_cards(", "list_loans(")], "gold"),
    "an import": (READS, [write(f"{TASK}/solution.py", "import os\n")], "restricted"),
    "the answer by heart": (READS, [write(f"{TASK}/solution.py", BY_HEART)], "restricted"),
    "the answer given away": (
        READS, [write(f"{TASK}/prompt.md", "Submit card C-1001, overdue 2.\n")], "leaks"
    ),
    "a tool that breaks": (READS, [replace("tools.py", "fetchone()[0]", "fetchone()[1]")], "tools"),
    "a tool that writes": (READS, [replace("tools.py", "    found = [", SLY)], "tools"),
    "a wrong answer called right": (
        READS,
        [write(f"{TASK}/answers.json", '{"right": [{"card": "C-1004", "overdue": 1}]}')],
        "probes",
    ),
    "the right answer called wrong": (
        READS,
        [write(f"{TASK}/answers.json", '{"wrong": [{"card": "C-1001", "overdue": 2}]}')],
        "probes",
    ),
    "nothing need be done": (
        WRITES,
        [replace(f"tasks/{WRITES}/verifier.py", "before, after = loans(initial), loans(final)", UNDONE)],
        "prefixes",
    ),
    "spaces around": (
        READS,
        [replace(f"{TASK}/verifier.py", 'answer["card"]', 'answer["card"].strip()')],
        "attacks",
    ),
    "checks of these rows alone": (
        READS, [ANY_ROWS, write(f"{TASK}/verifier.py", "ONE = " + BY_HEART[24:] + THIS_ONE)], "reseeds",
    ),
    "checks that break on other rows": (READS, [ANY_ROWS, breaks_elsewhere], "reseeds"),
    "a solution for these rows alone": (
        READS, [ANY_ROWS, replace(f"{TASK}/solution.py", "len(late) > best", "late and not best")],
        "reseeds",
    ),
    "faults that nobody would see": (
        READS,
        [
            lambda folder: (folder / TASK / "answers.json").unlink(),
            replace(f"{TASK}/verifier.py", "broken = []", UNSEEN),
        ],
        "mutants",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
def test_each_gate_can_fail(folder: Path, what: str) -> None:
    task, spoil, gate = FAILING[what]
    for change in spoil:
        change(only(folder, task))
    (found,) = packed(folder).tasks
    assert [one.gate for one in found.failures] == [gate], found.failures
    assert not (folder.parent / "ds").exists()


def test_gold_s_answer_may_be_wrong_where_nothing_was_done(folder: Path) -> None:
    """An author who knows no solution says so of a task whose answer is right only beside its writes."""
    only(folder, WRITES)
    text = '{"wrong": [{"lent": []}, {"lent": ["C-1001"]}, {"lent": ["C-1002"]}, {"lent": ["C-1005"]}]}'
    write(f"tasks/{WRITES}/answers.json", text)(folder)
    (found,) = packed(folder).tasks
    assert not found.failures


def test_options_of_the_schema_are_told_and_give_nothing_away(folder: Path) -> None:
    """A card that is one of several to choose from may stand in the prompt."""
    prompt = "Submit one of the cards C-1001 to C-1005, and how many of its loans are overdue.\n"
    only(folder, READS)
    write(f"{TASK}/prompt.md", prompt)(folder)
    (found,) = packed(folder).tasks
    assert [one.gate for one in found.failures] == ["leaks"]
    cards = json.dumps({"enum": [f"C-100{n}" for n in range(1, 6)]})
    replace(f"{TASK}/submit.json", '"card": {"type": "string"}', f'"card": {cards}')(folder)
    assert packed(folder).written


@pytest.mark.parametrize(
    ("branches", "told"),
    [
        ([{"const": f"C-100{n}"} for n in range(1, 6)], True),
        # A value of the database beside whatever else: the schema would give the answer away.
        ([*({"const": f"C-100{n}"} for n in range(1, 6)), {"type": "string"}], False),
    ],
)
def test_what_a_choice_of_constants_tells(
    folder: Path, branches: list[dict[str, str]], told: bool
) -> None:
    prompt = "Submit one of the cards C-1001 to C-1005, and how many of its loans are overdue.\n"
    only(folder, READS)
    write(f"{TASK}/prompt.md", prompt)(folder)
    cards = json.dumps({"anyOf": branches})
    replace(f"{TASK}/submit.json", '"card": {"type": "string"}', f'"card": {cards}')(folder)
    (found,) = packed(folder).tasks
    assert [one.gate for one in found.failures] == ([] if told else ["leaks"])


def test_a_task_without_a_solution_says_so(folder: Path) -> None:
    (only(folder, READS) / TASK / "solution.py").unlink()
    summary = packed(folder)
    assert summary.written
    found = {one.gate: one for one in summary.tasks[0].evidence}
    assert found["gold"].status is GateStatus.NOT_APPLICABLE
    assert "nobody has shown" in found["gold"].reason
    assert validate(summary.path, backend="inline", trust=True).passed


def test_tools_can_be_described_by_hand(folder: Path) -> None:
    specs = [
        spec.model_dump(mode="json") for spec in derived_specs((folder / "tools.py").read_text())
    ]
    (folder / "tools.json").write_text(json.dumps(specs))
    read = read_folder(folder)
    assert [spec.name for spec in read.tools] == [spec["name"] for spec in specs]
    specs[0]["name"] = "../x"
    (folder / "tools.json").write_text(json.dumps(specs))
    with pytest.raises(ConfigError, match=r"tools\.json: 0\.name"):
        read_folder(folder)


def test_every_gate_of_generated_tasks_is_told_of_packed_ones_too() -> None:
    generated = {name for name, _ in prove.GATES}
    assert not generated - set(gate_names())


SLOT_TOOLS = '''"""The tools of a donors' desk."""


class ToolError(Exception):
    """A failure that agents are told of."""


def list_slots(db):
    """List the free slots, the earliest first: slot (its id), starts (HH:MM)."""
    found = db.execute("SELECT id, starts FROM slots WHERE donor IS NULL ORDER BY starts")
    return [{"slot": row[0], "starts": row[1]} for row in found]


def book(db, *, slot: str, donor: str):
    """Book a free slot for a donor.

    Args:
        slot: id of a slot.
        donor: id of a donor.
    """
    if db.execute("SELECT 1 FROM donors WHERE id = ?", (donor,)).fetchone() is None:
        raise ToolError("unknown_donor", "there is no such donor")
    if db.execute("UPDATE slots SET donor = ? WHERE id = ? AND donor IS NULL", (donor, slot)).rowcount == 0:
        raise ToolError("not_free", "there is no such free slot")
    return {"slot": slot, "donor": donor}
'''
SLOT_ROWS = """CREATE TABLE donors (id TEXT PRIMARY KEY, name TEXT);
INSERT INTO donors VALUES ('d1', 'Ada'), ('d2', 'Ben'), ('d3', 'Cleo'), ('d4', 'Dan');
CREATE TABLE slots (id TEXT PRIMARY KEY, starts TEXT, donor TEXT);
INSERT INTO slots (id, starts) VALUES ('s3', '09:30'), ('s1', '08:00'), ('s2', '08:30'), ('s4', '10:00');
"""
ONE_SLOT = """import sqlite3


def verify(answer, initial, final):
    db = sqlite3.connect(f"file:{final}?mode=ro", uri=True)
    (donor,) = db.execute("SELECT donor FROM slots WHERE id = 's1'").fetchone()
    return ([] if donor == "d1" else ["booked"]) + ([] if answer["slot"] == "s1" else ["answer"])
"""
ALL_SLOTS = """import sqlite3


def slots(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    return dict(db.execute("SELECT id, donor FROM slots"))


def verify(answer, initial, final):
    wanted = {**slots(initial), "s1": "d1"}
    return ([] if slots(final) == wanted else ["booked"]) + ([] if answer["slot"] == "s1" else ["answer"])
"""
SLOTS = {
    "tools.py": SLOT_TOOLS,
    "database.sql": SLOT_ROWS,
    "tasks/earliest/prompt.md": "Book the earliest free slot for donor d1. Submit its id as `slot`.\n",
    "tasks/earliest/submit.json": json.dumps(
        {
            "type": "object",
            "properties": {"slot": {"type": "string"}},
            "required": ["slot"],
            "additionalProperties": False,
        }
    ),
    "tasks/earliest/solution.py": "def solve():\n    slot = list_slots()[0]\n"
    '    book(slot=slot["slot"], donor="d1")\n    return {"slot": slot["slot"]}\n',
    "tasks/earliest/answers.json": '{"wrong": [{"slot": "s2"}, {"slot": "d1"}, {"slot": ""}]}',
    "tasks/earliest/verifier.py": ONE_SLOT,
}


def slots_desk(folder: Path, **others: str) -> Path:
    """An environment whose verifier looks at one slot only, but for files given by their last name."""
    for name, text in SLOTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(others.get(Path(name).stem, text))
    return folder


def test_a_verifier_that_looks_at_one_slot_is_not_proven(tmp_path: Path) -> None:
    """An agent that books every slot, for whomever, and submits the right one must not be rewarded."""
    (found,) = packed(slots_desk(tmp_path / "desk")).tasks
    (failure,) = found.failures
    assert failure.gate == "unrequested"
    assert "after which came book(" in failure.reason
    assert not (tmp_path / "ds").exists()


def test_an_author_may_allow_further_writes_and_that_is_told(tmp_path: Path) -> None:
    folder = slots_desk(tmp_path / "desk")
    (folder / "tasks/earliest/task.json").write_text('{"allowed_writes": ["book"]}')
    summary = packed(folder)
    assert summary.written, summary
    (stored,) = Dataset.open(summary.path).tasks.values()
    gate = next(one for one in stored.evidence if one.gate == "unrequested")
    assert gate.status is GateStatus.PASSED
    assert gate.details["allowed"] == ["book"]
    assert "its author allows further calls of book" in gate.reason
    report = validate(summary.path, backend="inline", trust=True)
    assert report.passed, report
    assert "further calls of book are allowed, as their author states" in report.how
    (folder / "tasks/earliest/task.json").unlink()  # a statement taken back is proven anew
    assert [one.gate for one in packed(folder).tasks[0].failures] == ["unrequested"]


def test_a_verifier_that_compares_every_slot_is_proven(tmp_path: Path) -> None:
    summary = packed(slots_desk(tmp_path / "desk", verifier=ALL_SLOTS))
    assert summary.written, summary
    gate = next(one for one in summary.tasks[0].evidence if one.gate == "unrequested")
    assert gate.status is GateStatus.PASSED
    assert gate.n > 10


@pytest.mark.parametrize("name", ["list_slots", "bok"])
def test_only_tools_that_write_may_be_allowed(tmp_path: Path, name: str) -> None:
    folder = slots_desk(tmp_path / "desk")
    (folder / "tasks/earliest/task.json").write_text(json.dumps({"allowed_writes": [name]}))
    with pytest.raises(ConfigError, match=f"'{name}' is no tool that writes"):
        packed(folder)
