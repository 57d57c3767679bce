"""All makers of problems, as parameters; those of reasoning-gym need that package."""

from __future__ import annotations

import pytest

from envgen.pipelines.interpreter.makers.registry import all_makers

every_maker = pytest.mark.parametrize(
    "maker",
    [
        pytest.param(maker, id=maker.name, marks=marks)
        for maker in all_makers().values()
        for marks in [[pytest.mark.reasoning_gym] if maker.kind == "reasoning-gym" else []]
    ],
)
