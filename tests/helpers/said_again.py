"""Recorded conversations whose requests are worded otherwise since, so that no key finds the replies."""

from __future__ import annotations

import json
from pathlib import Path


def said(recording: Path, folder: Path) -> str:
    """A policy that says what a recorded one said, turn by turn, whatever it is asked."""
    lines = recording.read_text("utf-8").splitlines()
    path = folder / f"{recording.stem}.json"
    path.write_text(json.dumps([json.loads(line)["message"] for line in lines]), "utf-8")
    return f"scripted:{path}"
