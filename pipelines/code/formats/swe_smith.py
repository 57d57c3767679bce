"""SWE-smith: the published patch is the *bug*; the fix is its reverse, and the base has the bug in it.

The repository is a mirror, ``swesmith/owner__name.0123abcd``, whose commits are not the project's own: what
can be checked out of a clone is the commit whose first digits end the mirror's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.core.patch_reverse import reverse_patch
from envgen.pipelines.code.formats import base
from envgen.pipelines.code.formats.base import Row

_READ = frozenset(
    {
        *("instance_id", "repo", "patch", "problem_statement", "created_at"),
        *("FAIL_TO_PASS", "PASS_TO_PASS"),
    }
)
_MIRROR = re.compile(
    r"(?:[\w.-]+/)?(?P<owner>[\w.-]+?)__(?P<name>[\w.-]+)\.(?P<commit>[0-9a-f]{7,40})"
)


class SweSmith:
    """SWE-smith's records."""

    name = "swe-smith"

    def read(self, row: Row) -> Instance:
        """A record as an instance; the bug goes to ``base_patch``, its reverse is the gold patch."""
        name = base.text(row, "instance_id", required=True)
        bug = base.patch(row, "patch")
        mirror = _MIRROR.match(base.text(row, "repo")) or _MIRROR.match(name)
        if not bug:
            raise ConfigError(f"record {name!r} has no patch", "nothing can prove it")
        if mirror is None:
            raise ConfigError(
                f"record {name!r} is of no mirror",
                "its repo should be like swesmith/owner__name.0123abcd",
            )
        fields = {
            "id": name,
            "repo": f"{mirror['owner']}/{mirror['name']}",
            "base_commit": mirror["commit"],
            "base_patch": bug,
            "language": base.language_of(row, (bug,), "language"),
            "kind": "issue",
            "problem_statement": base.text(row, "problem_statement"),
            "gold_patch": reverse_patch(bug.encode()).decode(),
            "test_patch": "",
            "created_at": base.instant(row.get("created_at")),
            "expected_fail_to_pass": base.names(row, "FAIL_TO_PASS"),
            "expected_pass_to_pass": base.names(row, "PASS_TO_PASS"),
            "extra": {**base.rest(row, _READ), "repo": json.dumps(row.get("repo"))},
        }
        return base.build_instance(name, fields)

    def write(
        self, instance: Instance, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]
    ) -> dict[str, Any]:
        """An instance as a record.

        Raises:
            ConfigError: if it has a test patch, for which SWE-smith has no place.
        """
        if instance.test_patch:
            raise ConfigError(
                f"{instance.id!r} has a test patch, which SWE-smith's records can't hold",
                "export it as swe-bench",
            )
        bug = instance.base_patch or reverse_patch(instance.gold_patch.encode()).decode()
        owner = instance.repo.replace("/", "__")
        row = {
            "instance_id": instance.id,
            "patch": bug,
            "FAIL_TO_PASS": list(fail_to_pass),
            "PASS_TO_PASS": list(pass_to_pass),
            "created_at": instance.created_at,
            "repo": f"swesmith/{owner}.{instance.base_commit[:8]}",
            "problem_statement": instance.problem_statement,
        }
        return {**row, **base.given_back(instance)}
