"""Multi-SWE-bench: pull requests with three test runs each (as is, with tests, with the fix)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.pipelines.code.formats import base
from envgen.pipelines.code.formats.base import Row

_READ = frozenset(
    {
        *("org", "repo", "number", "base", "resolved_issues", "fix_patch", "test_patch", "lang"),
        *("fixed_tests", "f2p_tests", "s2p_tests", "n2p_tests", "p2p_tests", "instance_id"),
        *("hints", "created_at"),
    }
)


class MultiSweBench:
    """Multi-SWE-bench's records, evaluated or raw."""

    name = "multi-swe-bench"

    def read(self, row: Row) -> Instance:
        """A record as an instance; tests that failed, were skipped or missing before count as fixed."""
        org, repo = base.text(row, "org", required=True), base.text(row, "repo", required=True)
        number, start = row.get("number"), row.get("base")
        fix, test = base.patch(row, "fix_patch"), base.patch(row, "test_patch")
        if not isinstance(number, int) or not isinstance(start, Mapping) or not start.get("sha"):
            raise ConfigError(f"a record of {org}/{repo} has no number or no base.sha")
        if not fix:
            raise ConfigError(
                f"record {org}__{repo}-{number} has no fix_patch", "nothing can prove it"
            )
        issues = [i for i in row.get("resolved_issues") or () if isinstance(i, Mapping)]
        parts = [_issue_text(i) for i in issues] or [_issue_text(row)]
        fields = {
            "id": base.text(row, "instance_id") or f"{org}__{repo}-{number}",
            "repo": f"{org}/{repo}",
            "base_commit": str(start["sha"]),
            "language": base.language_of(row, (fix, test), "lang"),
            "kind": "issue" if issues else "pull_request",
            "pull_number": number,
            "issue_numbers": tuple(i["number"] for i in issues if "number" in i),
            "problem_statement": "\n\n".join(parts),
            "hints": base.text(row, "hints"),
            "gold_patch": fix,
            "test_patch": test,
            "created_at": base.instant(row.get("created_at")),
            "expected_fail_to_pass": _fixed(row),
            "expected_pass_to_pass": _tests(row, "p2p_tests"),
            "extra": {
                **base.rest(row, _READ),
                **base.rest({"base": start, "resolved_issues": row.get("resolved_issues")}, ()),
            },
        }
        return base.build_instance(f"{org}__{repo}-{number}", fields)

    def write(
        self, instance: Instance, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]
    ) -> dict[str, Any]:
        """An instance as a record; every fixed test is written as fail-to-pass."""
        org, _, repo = instance.repo.partition("/")
        title, _, body = instance.problem_statement.partition("\n")
        fixed = {name: {"run": "FAIL", "test": "FAIL", "fix": "PASS"} for name in fail_to_pass}
        kept = {name: {"run": "PASS", "test": "PASS", "fix": "PASS"} for name in pass_to_pass}
        issues = [
            {"number": n, "title": title, "body": body.strip()} for n in instance.issue_numbers
        ]
        row: dict[str, Any] = {
            "org": org,
            "repo": repo,
            "number": instance.pull_number or 0,
            "state": "closed",
            "title": title,
            "body": body.strip(),
            "base": {"label": "", "ref": "", "sha": instance.base_commit},
            "resolved_issues": issues,
            "fix_patch": instance.gold_patch,
            "test_patch": instance.test_patch,
            "fixed_tests": fixed,
            "p2p_tests": kept,
            "f2p_tests": fixed,
            "s2p_tests": {},
            "n2p_tests": {},
            "instance_id": instance.id,
            "lang": {"javascript": "js", "typescript": "ts"}.get(
                instance.language, instance.language
            ),
            "hints": instance.hints,
        }
        if instance.created_at:
            row["created_at"] = instance.created_at
        return {**row, **base.given_back(instance)}


def _issue_text(row: Row) -> str:
    return f"{row.get('title') or ''}\n\n{row.get('body') or ''}".strip()


def _tests(row: Row, field: str) -> tuple[str, ...]:
    """The names of a table of tests; parquet gives tables as lists of pairs."""
    value = row.get(field) or {}
    if isinstance(value, Mapping):
        return tuple(str(name) for name, result in value.items() if result is not None)
    return tuple(str(pair[0]) for pair in value if isinstance(pair, list | tuple) and pair)


def _fixed(row: Row) -> tuple[str, ...]:
    parts = [_tests(row, field) for field in ("f2p_tests", "s2p_tests", "n2p_tests")]
    return tuple(dict.fromkeys(n for part in parts for n in part)) or _tests(row, "fixed_tests")
