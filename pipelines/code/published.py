"""Compare what a published record claims with what its rebuilt instance showed."""

from __future__ import annotations

from pydantic import Field

from envgen.core.code_types import Instance, TestId
from envgen.core.types import Record
from envgen.pipelines.code.formats.ids import match_ids
from envgen.pipelines.code.prove import Outcome


class Agreement(Record):
    """One record beside its rebuilt instance; test ids as the record writes them."""

    instance_id: str
    kept: bool
    reason: str = ""
    """Why it was not kept."""
    claimed: int = 0
    """FAIL_TO_PASS tests of the record."""
    reproduced: int = 0
    """Those that we found to be fail-to-pass."""
    missing: tuple[str, ...] = ()
    """Those that no test of ours answers to."""
    elsewhere: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Those whose tests we sorted otherwise: ``unstable``, ``pass_to_pass``."""
    more: tuple[TestId, ...] = ()
    """Fail-to-pass tests of ours that the record does not claim."""
    kept_passing: int = 0
    """PASS_TO_PASS tests of the record that are pass-to-pass for us, too."""
    claimed_passing: int = 0

    @property
    def agrees(self) -> bool:
        """Whether the fail-to-pass tests are the same."""
        return self.kept and self.reproduced == self.claimed and not self.more


def agreement(instance: Instance, outcome: Outcome) -> Agreement:
    """Compare an imported instance's claims with its outcome."""
    found = outcome.validation
    claimed, passing = instance.expected_fail_to_pass, instance.expected_pass_to_pass
    common = {"instance_id": instance.id, "claimed": len(claimed), "claimed_passing": len(passing)}
    if found.tests is None:
        return Agreement(
            **common, kept=False, reason=f"{found.reason or ''}: {found.details}"[:500]
        )
    tests = found.tests
    lists = {
        "fail_to_pass": frozenset(tests.fail_to_pass),
        "pass_to_pass": frozenset(tests.pass_to_pass),
        "unstable": frozenset(tests.unstable),
    }
    every = tuple(dict.fromkeys((*tests.fail_to_pass, *tests.pass_to_pass, *tests.unstable)))
    named = match_ids(claimed, every, tests.printed)
    elsewhere: dict[str, list[str]] = {}
    reproduced = 0
    for name, ids in named.items():
        place = next((p for p, members in lists.items() if members & set(ids)), None)
        if place == "fail_to_pass":
            reproduced += 1
        elif place is not None:
            elsewhere.setdefault(place, []).append(name)
    mine = {test for ids in named.values() for test in ids}
    return Agreement(
        **common,
        kept=found.kept,
        reason=str(found.reason or ""),
        reproduced=reproduced,
        missing=tuple(name for name, ids in named.items() if not ids),
        elsewhere={place: tuple(names) for place, names in elsewhere.items()},
        more=tuple(test for test in tests.fail_to_pass if test not in mine),
        kept_passing=sum(
            bool(ids) for ids in match_ids(passing, tests.pass_to_pass, tests.printed).values()
        ),
    )
