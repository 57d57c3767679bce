"""Each gold against a second reading of its LaTeX, by a library that shares no code with ours.

latex2sympy2-extended reads in a sandbox; what it says is taken as an answer that somebody gives to the gold.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from pydantic import ValidationError

from envgen.core.errors import SandboxError, SandboxUnavailableError, install_hint
from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.sandboxes import runtime
from envgen.sandboxes.base import Mount, Sandbox, SandboxSpec, create
from envgen.sandboxes.kernel import package_mounts
from envgen.verifiers.maths import MathAnswer, accepts

READER = "latex2sympy2-extended"
_LIBRARIES, _PROGRAMS = "/opt/envgen-libraries", "/opt/envgen-programs"
_BATCH, _BATCH_S = 500, 600.0
MAX_ENDS = 20
"""Texts that may end the reader's process before it is given up."""

MISREADINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII | re.DOTALL), reason)
    for pattern, reason in (
        (r"[+-]?\d{1,3}(?:\\,\d{3})+.*", r"it adds up what thin spaces part: 1\,234\,567 is 802"),
        (r"[+-]?\d+\.\d*\\(?:overline|bar)\s*\{\d+\}.*", "it reads no repeating decimal"),
        (
            r"[+-]?\d+(?: |\\[, ])*\\[dt]?frac *\{?\d+\}? *\{?\d+\}?(?: |\\[, ])*"
            r"(?:\\%|\\(?:text|mathrm)\{.*|[a-z].*)",
            "it takes a mixed number before a unit for a product",
        ),
        (r".*\{[^{}]*(?:\\pm|\u00b1).*", "it reads no plus-or-minus sign in a group"),
        (r"Yes|No|True|False", "it reads a bare word as a product of letters"),
        (r".*\\[dt]?frac *\\.*", "it reads no fraction of a bare command"),
        (
            r"-?\d+ +\d+ */ *\d+",
            "it takes a mixed number in plain digits for a sum of other numbers",
        ),
    )
)
"""What the reader (1.11.0) is known to misread, matched on the whole text, and how."""


@dataclass(slots=True)
class SecondReading:
    """What came of it. A gold that is in none of these was read alike."""

    apart: dict[str, str] = field(default_factory=dict)
    """Gold's id -> what the reader said."""
    misread: Counter[str] = field(default_factory=Counter)
    """Known misreading -> golds that it excuses."""
    nothing: str = ""
    """Why nothing was read twice, if it was not."""


class _Reading(Record):
    id: Label
    value: Label = ""
    error: Label = ""


def read_again(golds: Mapping[str, MathAnswer]) -> SecondReading:
    """Read the published texts of golds a second time, and compare by value."""
    try:
        replies = _replies(golds)
    except SandboxError as error:
        return SecondReading(nothing=f"{error} ({error.hint})")
    found = SecondReading()
    for name, answer in golds.items():
        reply = replies.get(name)
        said = reply.value if reply else ""
        if answer.kind == "tuple" and answer.value.startswith("["):  # it drops the kind of brackets
            said = re.sub(r"^\((.*)\)$", r"[\1]", said)
        if said and accepts(answer.model_copy(update={"published": ""}), said):
            continue
        known = next((why for one, why in MISREADINGS if one.fullmatch(answer.published)), "")
        if known:
            found.misread[known] += 1
        else:
            why = f"nothing ({reply.error})" if reply else "nothing (it broke)"
            found.apart[name] = repr(said) if said else why
    return found


def _replies(golds: Mapping[str, MathAnswer]) -> dict[str, _Reading]:
    """What the reader says of each; it is started again behind a text that ends it.

    Raises:
        SandboxUnavailableError: if it is not installed, or can't be isolated here.
    """
    if importlib.util.find_spec(READER.replace("-", "_")) is None:
        raise SandboxUnavailableError(f"{READER} is not installed", install_hint("interpreter"))
    spec = SandboxSpec(
        cpu=86_400.0,
        address_bytes=4 << 30,
        pids=16,
        output_bytes=16 << 20,
        mounts=(
            *package_mounts([READER], _LIBRARIES),
            Mount(source=runtime.PROGRAMS, target=_PROGRAMS),
        ),
    )
    left = dict(golds)
    found: dict[str, _Reading] = {}
    ends = 0
    with create(spec) as sandbox:
        while left and ends < MAX_ENDS:
            batch = dict(islice(left.items(), _BATCH))
            replies = _batch(sandbox, batch)
            found |= replies
            unread = [name for name in batch if name not in replies]
            ends += bool(unread)
            for name in (*replies, *unread[:1]):
                left.pop(name, None)
    return found


def _batch(sandbox: Sandbox, golds: Mapping[str, MathAnswer]) -> dict[str, _Reading]:
    lines = [
        json.dumps({"id": name, "text": one.published.strip().removesuffix("."), "unit": one.unit})
        for name, one in golds.items()
    ]
    words = [runtime.python(), *runtime.python_flags(), f"{_PROGRAMS}/latex_reader.py", _LIBRARIES]
    result = sandbox.exec(words, "\n".join(lines).encode() + b"\n", _BATCH_S)
    found = {}
    for line in result.stdout.splitlines():
        try:
            reply = _Reading.model_validate_json(line)
        except ValidationError:
            continue
        if reply.id in golds:
            found[reply.id] = reply
    return found
