from __future__ import annotations

import shutil

import pytest


@pytest.fixture
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no Chromium on this machine")
