from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_history import History

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError, PipelineError
from envgen.pipelines.code.filters import ChangeFilter
from envgen.pipelines.code.mine import MineConfig, Rejected, count_reasons, mine_clone
from envgen.pipelines.code.statement import Texts

CODE = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
CONFIG = MineConfig(repo="ada/calc")


@pytest.fixture
def history(tmp_path: Path) -> History:
    repository = History(tmp_path / "calc")
    repository.commit(
        "Start the calculator", {"calc.py": CODE, "LICENSE": "MIT", "tests/x.txt": "x\n"}
    )
    return repository


def mined(
    history: History, config: MineConfig = CONFIG, texts: Texts | None = None
) -> dict[str, Instance | Rejected]:
    return {result.id: result for result in mine_clone(history.git_dir, config, texts=texts)}


def rebuilt(history: History, instance: Instance) -> str:
    """The tree that both patches make of the base."""
    history.git("checkout", "-q", "--detach", instance.base_commit)
    for patch in (instance.gold_patch, instance.test_patch):
        history.git("apply", "--index", "-", stdin=patch.encode())
    return history.git("write-tree")


def test_a_merge_a_squash_and_a_commit_become_instances(history: History) -> None:
    base = history.git("rev-parse", "HEAD")
    merge = history.pull(
        7,
        "Use the plus sign\n\nFixes #5",
        {"calc.py": FIXED, "tests/test_calc.py": TEST},
        merge="Merge pull request #7 from ada/plus\n\nAdd instead of subtracting",
    )
    topic = history.git("commit-tree", "-p", base, "-m", "on a branch", f"{base}^{{tree}}")
    history.git("update-ref", "refs/pull/8/head", topic)
    squash = history.commit(
        "Take three numbers at once (#8)\n\nBecause two are few.\n\nSigned-off-by: Ada <a@b>",
        {"calc.py": FIXED + "\n\nadd3 = sum\n", "tests/test_three.py": TEST},
    )
    plain = history.commit(
        "Multiply two numbers (#5)", {"calc.py": FIXED + "mul = 1\n", "tests/test_mul.py": TEST}
    )
    found = mined(history)
    one, two, three = (found[i] for i in ("ada__calc-7", "ada__calc-8", f"ada__calc-{plain[:12]}"))
    assert isinstance(one, Instance)
    assert isinstance(two, Instance)
    assert isinstance(three, Instance)
    assert (one.base_commit, one.head_commit, one.issue_numbers) == (base, merge, (5,))
    assert one.kind == two.kind == "pull_request"
    assert one.problem_statement == "Add instead of subtracting\n\nFixes #5"
    assert two.problem_statement == "Take three numbers at once\n\nBecause two are few."
    assert three.kind == "commit"  # 5 is no pull request: refs/pull/5/head is not there
    assert three.base_commit == squash
    assert one.created_at == "2020-09-13T14:26:40Z"
    for instance in (one, two, three):
        tree = rebuilt(history, instance)
        assert tree == history.git("rev-parse", f"{instance.head_commit}^{{tree}}")
        assert Instance.model_validate_json(instance.model_dump_json()) == instance


def test_issue_texts_become_the_statement_and_old_comments_hints(
    history: History, tmp_path: Path
) -> None:
    history.pull(
        7, "Use plus", {"calc.py": FIXED, "tests/test_calc.py": TEST}, merge="Merge pull request #7"
    )
    rows = [
        {
            **{"number": 5, "title": "Sums are wrong", "body": "1+2 gives -1 <!-- hi -->"},
            "comments": [
                {"body": "I see it too", "created_at": "2020-09-13T13:00:00Z"},
                {"body": "use a plus", "created_at": "2020-09-14T13:00:00Z"},
            ],
        },
        {"number": 7, "title": "Use plus", "body": "Closes #5, #6", "pull_request": {"url": "x"}},
    ]
    path = tmp_path / "issues.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    instance = mined(history, texts=Texts.load(path))["ada__calc-7"]
    assert isinstance(instance, Instance)
    assert (instance.kind, instance.issue_numbers) == ("issue", (5,))
    assert instance.problem_statement == "Sums are wrong\n\n1+2 gives -1"
    assert instance.hints == "I see it too"
    path.write_text('{"number": "x"}\n')
    with pytest.raises(ConfigError, match=r"issues\.jsonl:1 is not an issue"):
        Texts.load(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match="can't be read"):
        Texts.load(path)


def test_odd_bytes_survive_json_and_apply(history: History) -> None:
    history.commit(
        "Read the old files again",
        {
            "calc.py": b"# caf\xe9\r\n" + FIXED.encode(),
            "tests/test_calc.py": TEST.replace("\n", "\r\n"),
            **{"tests/data.bin": bytes(range(256)), "tests/no_newline.txt": "end"},
            **{"tests/x.txt": None, "src/h\u00e9.py": "x = 1\n"},
        },
    )
    config = CONFIG.model_copy(update={"filters": ChangeFilter(binary_gold=True)})
    (instance,) = (r for r in mined(history, config).values() if isinstance(r, Instance))
    again = Instance.model_validate_json(instance.model_dump_json())
    assert "GIT binary patch" in again.gold_patch  # Latin-1 travels as a binary patch
    assert "\r\n" in again.test_patch
    assert rebuilt(history, again) == history.git("rev-parse", f"{again.head_commit}^{{tree}}")


def test_every_rejection_has_its_reason(history: History) -> None:
    cases: dict[str, dict[str, str | bytes | None]] = {
        "Bump the version of everything": {"calc.py": FIXED},
        "Say more in the documents": {"docs/a.rst": "x\n"},
        "Add without any test": {"calc.py": FIXED + "y = 1\n"},
        "Drop old tests of addition": {"calc.py": CODE, "tests/x.txt": None},
        "Short": {"calc.py": FIXED, "tests/t.txt": "t\n"},
        "Ship a picture with it": {"calc.py": CODE, "p.png": b"\0", "tests/test_p.py": TEST},
    }
    for message, files in cases.items():
        history.commit(message, files)
    results = [r for r in mined(history).values() if isinstance(r, Rejected)]
    assert [(r.stage, r.reasons[0]) for r in reversed(results)] == [
        ("title", "a chore by its title"),
        ("paths", "no python source file in the gold patch"),
        ("paths", "no tests in the change"),
        ("patch", "tests are only removed"),
        ("statement", "statement under 3 words"),
        ("patch", "binary files in the gold patch"),
    ]
    assert sum(count_reasons(results).values()) == 6


def test_dates_limits_and_kinds_bound_the_search(history: History) -> None:
    for i in range(4):
        history.commit(
            f"Change number {i} of calc", {"calc.py": f"{CODE}x = {i}\n", "tests/t.txt": f"{i}\n"}
        )
    whole = mined(history)
    assert len(whole) == 4
    assert len(mined(history, CONFIG.model_copy(update={"limit": 2}))) == 2
    since = CONFIG.model_copy(
        update={"since": "2020-09-13T16:00:00", "until": "2020-09-13T17:00:00"}
    )
    assert len(mined(history, since)) == 1
    only = mined(history, CONFIG.model_copy(update={"kinds": frozenset({"issue"})}))
    assert {r.stage for r in only.values() if isinstance(r, Rejected)} == {"kind"}
    with pytest.raises(ConfigError, match="is not a date"):
        mined(history, CONFIG.model_copy(update={"since": "yesterday"}))


def test_a_branch_merged_without_a_pull_request_is_read_commit_by_commit(history: History) -> None:
    history.git("checkout", "-q", "-b", "stable")
    fix = history.commit("Fix the sum at last", {"calc.py": FIXED, "tests/test_calc.py": TEST})
    history.git("checkout", "-q", "main")
    history.git("merge", "-q", "--no-ff", "-m", "Merge branch 'stable'", "stable")
    assert isinstance(mined(history)[f"ada__calc-{fix[:12]}"], Instance)


def test_pull_requests_inside_a_merged_branch_count_and_each_counts_once(history: History) -> None:
    history.git("checkout", "-q", "-b", "release")
    inner = history.pull(
        7,
        "Fix it",
        {"calc.py": FIXED, "tests/test_calc.py": TEST},
        merge="Merge pull request #7 from ada/fix\n\nFix the sum at last",
        into="release",
    )
    history.commit(
        "Fix it once more (#7)", {"calc.py": FIXED + "\n", "tests/test_calc.py": TEST + "\n"}
    )
    history.git("checkout", "-q", "main")
    history.clock += 3600
    history.git("merge", "-q", "--no-ff", "-m", "Merge pull request #9 from ada/release", "release")
    history.git("update-ref", "refs/pull/9/head", "release")
    results = list(mine_clone(history.git_dir, CONFIG))
    found = [(r.pull_number, r.head_commit) for r in results if isinstance(r, Instance)]
    assert found == [(9, history.git("rev-parse", "HEAD")), (7, inner)]


def test_a_users_settings_do_not_change_a_patch(history: History) -> None:
    history.commit("Fix the sum at last", {"calc.py": FIXED, "tests/test_calc.py": TEST})
    signed = history.git("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    commit = history.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed.encode())
    history.git("update-ref", "refs/heads/main", commit)
    before = mined(history)
    assert len(before) == 1
    marker = history.folder / "ran"
    program = history.folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    for name, value in (
        *(("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("color.ui", "always")),
        *(("diff.external", f"touch {marker}"), ("diff.renames", "false"), ("diff.context", "0")),
        *(("log.showSignature", "true"), ("gpg.program", str(program)), ("log.mailmap", "true")),
        *(("diff.suppressBlankEmpty", "true"), ("diff.indentHeuristic", "false")),
        ("diff.orderFile", str(program)),
        *(("core.fsmonitor", f"touch {marker}"), ("diff.x.textconv", f"touch {marker}; cat")),
    ):
        history.git("config", name, value)
    (history.git_dir / "info").mkdir(exist_ok=True)
    (history.git_dir / "info/attributes").write_text("*.py diff=x\n")
    assert mined(history) == before
    assert not marker.exists()


def test_what_is_no_clone_is_refused(tmp_path: Path, history: History) -> None:
    with pytest.raises(PipelineError, match="is not a git clone"):
        list(mine_clone(tmp_path, CONFIG))
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty")], check=True)
    with pytest.raises(PipelineError, match="is not a commit of"):
        list(mine_clone(tmp_path / "empty", CONFIG))
    history.commit("Only words now", {"calc.py": None, "a.md": "x"})
    with pytest.raises(ConfigError, match="no source of a known language"):
        list(mine_clone(history.git_dir, CONFIG))


def test_a_configuration_is_written_alike_in_every_process() -> None:
    """Sets of strings have another order in each process; a resumed run compares what was written."""
    code = (
        "from envgen.pipelines.code.mine import MineConfig;"
        "print(MineConfig(repo='a/b').model_dump_json())"
    )
    expected = {
        subprocess.run(
            [sys.executable, "-P", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in range(3)
    }
    assert len(expected) == 1
    assert MineConfig.model_validate_json(expected.pop()) == MineConfig(repo="a/b")
