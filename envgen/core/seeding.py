"""Seeds: every random draw comes from a named branch of one run seed."""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for one branch, e.g. ``derive(run_seed, task_id, i)``: the head of a SHA-256."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def rng(seed: int, *names: str | int) -> random.Random:
    """A private generator for one branch."""
    return random.Random(derive(seed, *names))
