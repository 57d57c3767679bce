"""The library of classical lemmas, each proven from the ones before it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from envgen.core.errors import PipelineError
from envgen.verifiers.proof_library import Lemma, check_library
from envgen.verifiers.propositions import Sequent


@cache
def classical_lemmas() -> tuple[Lemma, ...]:
    """The lemmas of ``data/classical_lemmas.txt``, in order.

    Raises:
        PipelineError: if a proof in it is wrong.
    """
    text = files(__package__).joinpath("data", "classical_lemmas.txt").read_text(encoding="utf-8")
    found = []
    for block in text.strip().split("\n\n"):
        head: dict[str, list[str]] = {"lemma": [], "given:": [], "goal:": []}
        lines = block.split("\n")
        while (word := lines[0].split(" ", 1))[0] in head:
            head[word[0]].append(word[1])
            del lines[0]
        sequent = Sequent.read(head["given:"], head["goal:"][0])
        found.append(Lemma(head["lemma"][0], sequent, "\n".join(lines)))
    for name, verdict in check_library(found).items():
        if not verdict.accepted:
            raise PipelineError(f"lemma {name!r} is wrong at line {verdict.line}: {verdict.reason}")
    return tuple(found)
