from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_history import History
from github_server import GitHubServer, Reply, issue
from model_server import ModelServer, Raw, chat

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError, PipelineError
from envgen.pipelines.code.clone import Clone
from envgen.pipelines.code.fetch import RepositoryFilter
from envgen.pipelines.code.gather import gather
from envgen.pipelines.code.github import GitHub, GitHubConfig, TokenError
from envgen.pipelines.code.judge import JudgeConfig
from envgen.pipelines.code.judges import Judges
from envgen.pipelines.code.mine import MineConfig, Rejected, mine_clone
from envgen.pipelines.code.mirror import mirror
from envgen.pipelines.code.source import Refused, Source, fetch_sources, read_names
from envgen.policies.base import BudgetExceededError
from envgen.policies.budget import Budget
from envgen.policies.registry import PolicyConfig, parse_policy

CODE = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
CONFIG = MineConfig(repo="ada/calc")


@pytest.fixture
def history(tmp_path: Path) -> History:
    repository = History(tmp_path / "origin")
    repository.commit("Start", {"calc.py": CODE, "README.md": "calc\n"})
    repository.pull(
        2,
        "Use plus\n\nFixes #1",
        {"calc.py": CODE.replace("-", "+"), "tests/test_calc.py": TEST},
        merge="Merge pull request #2 from ada/plus\n\nAdd, do not subtract",
    )
    repository.commit(
        "Multiply two numbers", {"calc.py": "x = 1\n" + CODE, "tests/test_mul.py": TEST}
    )
    return repository


def test_a_mirror_holds_pull_heads_and_follows_its_origin(history: History, tmp_path: Path) -> None:
    url = f"file://{history.folder}"
    folder = mirror(url, tmp_path / "mirrors/ada/clone.git")
    clone = Clone(folder)
    assert clone.pulls == {2}
    assert clone.tip() == history.git("rev-parse", "HEAD")
    history.git("update-ref", "refs/pull/3/head", "HEAD~1")
    history.git("checkout", "-q", "-B", "main", "HEAD~1")  # and somebody rewrites history
    newest = history.commit("Later on main", {"calc.py": "later = 1\n"})
    assert mirror(url, folder) == folder
    assert Clone(folder).tip() == newest
    assert Clone(folder).pulls == {2, 3}


def test_a_mirror_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="can't be had"):
        mirror(f"file://{tmp_path}/nothing", tmp_path / "m/clone.git")
    assert list((tmp_path / "m").iterdir()) == []
    for hostile in ("ext::sh -c touch% x", "--upload-pack=touch x", str(tmp_path)):
        with pytest.raises(ConfigError, match="not the address"):
            mirror(hostile, tmp_path / "m/clone.git")


def github(server: GitHubServer, token: str | None = None) -> GitHub:
    return GitHub(GitHubConfig(api=server.url, backoff_s=0.01, max_retries=1), token=token)


@pytest.fixture
def server(history: History) -> Iterator[GitHubServer]:
    issues = [issue(1, 1, body="1 + 2 gives -1"), issue(2, 2, pull=True, body="Fixes #1")]
    with GitHubServer(issues) as started:
        started.clone_url = f"file://{history.folder}"
        yield started


def test_named_repositories_are_fetched_and_mined(server: GitHubServer, tmp_path: Path) -> None:
    names = ["ada/calc", "ada/nothing"]
    with github(server) as client:
        first, second = fetch_sources(client, names, tmp_path / "repositories")
    assert isinstance(second, Refused)
    assert "404" in second.reason
    assert isinstance(first, Source)
    jobs, counts = gather([first], CONFIG)
    assert counts == {"kept": 2}
    kinds = {job.instance.id: job.instance.kind for job in jobs}
    assert kinds.pop("ada__calc-2") == "issue"
    assert list(kinds.values()) == ["commit"]
    assert jobs[0].clone == first.clone


def test_repositories_that_are_not_worth_it_are_refused(
    server: GitHubServer, tmp_path: Path
) -> None:
    wanted = RepositoryFilter(min_stars=4)
    with github(server) as client:
        (one,) = fetch_sources(client, ["ada/calc"], tmp_path, wanted=wanted)
        assert one == Refused("ada/calc", "under 4 stars")
        server.script = [Reply(200, json.dumps({"full_name": "../.."}))]
        (bad,) = fetch_sources(client, ["ada/calc"], tmp_path)
        assert isinstance(bad, Refused)
        assert "not a valid repository: full_name" in bad.reason
    server.token = "right"
    with github(server, "wrong") as client, pytest.raises(TokenError):
        list(fetch_sources(client, ["ada/calc"], tmp_path))


def test_files_of_names_are_read(tmp_path: Path) -> None:
    path = tmp_path / "repos.txt"
    path.write_text("# those\nada/calc  # best\n\nada/other\nada/calc\n")
    assert read_names(path) == ("ada/calc", "ada/other")
    for wrong in ("ada", "../..", "a/b/c", "a b/c", "#"):
        path.write_text(wrong + "\n")
        with pytest.raises(ConfigError):
            read_names(path)


STATEMENT = chat(json.dumps({"title": "Products are missing", "body": "There is no way."}))
YES = chat(json.dumps({"reason": "", "issue_ok": True, "gold_ok": True, "tests_ok": True}))
NO = chat(
    json.dumps(
        {
            "reason": "",
            "issue_ok": False,
            "gold_ok": True,
            "tests_ok": True,
            "faults": ["too_vague"],
        }
    )
)
ONCE = JudgeConfig(votes=1)


def judges(model: ModelServer, path: Path, **budget: float) -> Judges:
    options = {"stream": False, "price": {"prompt": 10.0, "completion": 0.0}}
    config = PolicyConfig(spec=f"openai:m@{model.url}", options=options)
    policy = parse_policy(config, budget=Budget(**budget) if budget else None)
    return Judges(policy, path, ONCE, concurrency=1)


def mined(history: History) -> list[Instance]:
    return [r for r in mine_clone(history.git_dir, CONFIG) if isinstance(r, Instance)]


def test_opinions_are_kept_and_not_asked_for_again(history: History, tmp_path: Path) -> None:
    path = tmp_path / "opinions.jsonl"
    instances = mined(history)
    with ModelServer([STATEMENT, YES, STATEMENT, NO]) as model:
        asked = judges(model, path)
        kept, refused = asked.kept(instances)
        assert isinstance(kept, Instance)
        assert kept.problem_statement == "Products are missing\n\nThere is no way."
        assert isinstance(refused, Rejected)
        assert (refused.stage, refused.reasons) == ("judge", ("too_vague",))
        assert asked.usage.cost_usd == pytest.approx(4 * 100 * 10 / 1e6)
        with path.open("a") as file:
            file.write('{"cut')  # the run was killed
        again = judges(model, path)
        assert list(again.kept(instances)) == [kept, refused]
        assert len(model.generations) == 4
        source = Source("ada/calc", history.git_dir)
        jobs, counts = gather([source], CONFIG, again)
        assert [job.instance for job in jobs] == [kept]
        assert counts == {"kept": 1, "judge: too_vague": 1}


def test_a_spent_budget_keeps_what_was_said(history: History, tmp_path: Path) -> None:
    path = tmp_path / "opinions.jsonl"
    instances = mined(history)
    with ModelServer([STATEMENT, YES, STATEMENT, YES]) as model:
        with pytest.raises(BudgetExceededError):
            list(judges(model, path, max_cost_usd=0.0015).kept(instances))
        assert len(path.read_text().splitlines()) == 1
        assert len(list(judges(model, path).kept(instances))) == 2
        assert len(model.generations) == 4


def test_an_instance_that_nobody_answers_for_is_rejected(history: History, tmp_path: Path) -> None:
    with ModelServer([Raw(404, "no such model")]) as model:
        results = list(judges(model, tmp_path / "o.jsonl").kept(mined(history)))
    assert all(isinstance(r, Rejected) and "no answer" in r.reasons[0] for r in results)
    with ModelServer([NO]) as model:
        quiet = judges(model, tmp_path / "o.jsonl")
        quiet.write = False
        with pytest.raises(PipelineError, match="no change is an instance"):
            gather([Source("ada/calc", history.git_dir)], CONFIG, quiet)
