"""Spoil chains of equal terms in one place; whether that leaves a proof is for a checker to say."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from envgen.core.errors import PipelineError
from envgen.pipelines.proof.spoil import SpoiltProof
from envgen.verifiers.equational import Algebra

_STEP = re.compile(r"\d+\. (?:= )?(.*?)(?:  \[(.*)\])?")
_NAME = re.compile(r"\w+", re.ASCII)
Links = list[tuple[str, str]]
"""The terms of a chain, each with its reason."""


def spoil_chain(rng: Random, proof: str, algebra: Algebra, kind: str | None = None) -> SpoiltProof:
    """A chain with one thing changed.

    Args:
        rng: makes all choices.
        proof: a chain, one term a line.
        algebra: whose names may stand in it.
        kind: of ``CHAIN_KINDS``; drawn if not given.

    Raises:
        PipelineError: if the chain has nothing that can be spoilt so.
    """
    links = read_chain(proof)
    for _ in range(100):
        drawn = kind or rng.choice(sorted(CHAIN_KINDS))
        changed = CHAIN_KINDS[drawn](rng, list(links), algebra)
        if (text := written_chain(changed)) not in (proof, ""):
            return SpoiltProof(drawn, text)
    raise PipelineError(f"the chain can't be spoilt by {kind!r}", "try another kind")


def read_chain(proof: str) -> Links:
    """The links of a well-formed chain.

    Raises:
        PipelineError: if a line is none.
    """
    links: Links = []
    for line in proof.split("\n"):
        read = _STEP.fullmatch(line)
        if read is None:
            raise PipelineError(f"no step of a chain: {line[:80]!r}")
        links.append((read[1], read[2] or ""))
    return links


def written_chain(links: Links) -> str:
    """Links as the text of a chain."""
    return "\n".join(
        f"{number}. = {term}  [{by}]" if number > 1 else f"1. {term}"
        for number, (term, by) in enumerate(links, start=1)
    )


def _equation(rng: Random, links: Links, algebra: Algebra) -> Links:
    """Another equation's name."""
    at = rng.randrange(1, len(links))
    term, by = links[at]
    links[at] = (term, " ".join([rng.choice(sorted(algebra.equations)), *by.split()[1:]]))
    return links


def _direction(rng: Random, links: Links, algebra: Algebra) -> Links:
    """The other direction."""
    at = rng.randrange(1, len(links))
    term, by = links[at]
    turned = (
        by.replace(" backwards", "") if "backwards" in by else by.replace(" at", " backwards at")
    )
    links[at] = (term, turned)
    return links


def _place(rng: Random, links: Links, algebra: Algebra) -> Links:
    """Another place, or none."""
    at = rng.randrange(1, len(links))
    term, by = links[at]
    place = rng.choice(["", " at root", " at 1", " at 2", " at 1.1", " at 1.2", " at 2.1", " at 9"])
    links[at] = (term, re.sub(r" at [\w.]+", place, by))
    return links


def _symbol(rng: Random, links: Links, algebra: Algebra) -> Links:
    """Replace a symbol by another one of the same arity."""
    at = rng.randrange(len(links))
    term, by = links[at]
    links[at] = (changed_term(rng, term, algebra), by)
    return links


def changed_term(rng: Random, term: str, algebra: Algebra) -> str:
    """A term with one symbol replaced by one of the same arity, perhaps the same."""
    name = rng.choice(list(_NAME.finditer(term)))
    arity = algebra.signature[name[0]]
    other = rng.choice([one for one, many in algebra.signature.items() if many == arity])
    return term[: name.start()] + other + term[name.end() :]


def _left_out(rng: Random, links: Links, algebra: Algebra) -> Links:
    """One step less."""
    del links[rng.randrange(len(links))]
    return links


def _exchanged(rng: Random, links: Links, algebra: Algebra) -> Links:
    """Two terms, or two reasons, exchanged."""
    one, other = rng.randrange(1, len(links)), rng.randrange(1, len(links))
    (term, by), (second, why) = links[one], links[other]
    if rng.random() < 0.5:
        links[one], links[other] = (second, by), (term, why)
    else:
        links[one], links[other] = (term, why), (second, by)
    return links


CHAIN_KINDS: dict[str, Callable[[Random, Links, Algebra], Links]] = {
    "equation": _equation,
    "direction": _direction,
    "place": _place,
    "symbol": _symbol,
    "left-out": _left_out,
    "exchanged": _exchanged,
}
