"""Faults planted blind are found by playing and evaluating (``benchmarks/blind_faults.py`` plants all 40)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blind_faults import DATASETS, FAULTS, judged, unpack

ONCE_UNSEEN = {
    "ms7-verifier-back-to-back": "evaluation",
    "om7-verifier-exchange-whole-order": "collateral",
}
"""Verifiers that passed when the faults were planted, and the gate that finds each since."""


TOO_WIDE = ("order_management-5", "order_management-7")
"""Made when a write set was wider than its effect, so that a wrong final state passed: not sound, either."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("blind"))


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_the_sound_ones_hold(name: str, sound: Path, tmp_path: Path) -> None:
    failure = judged(sound, name, None, tmp_path / "ds").failure
    if name in TOO_WIDE:
        assert failure is not None
        assert re.search(r"states other goal|other states? pass", failure.reason)
    else:
        assert failure is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ONCE_UNSEEN)
def test_what_was_once_unseen_is_found(name: str, sound: Path, tmp_path: Path) -> None:
    fault = FAULTS[name]
    found = judged(sound, fault.dataset, fault, tmp_path / "ds").failure
    assert found is not None
    assert found.gate == ONCE_UNSEEN[name]
