"""Does a model write in the language that it was asked in? Judged on prose only, passage by passage.

Languages are told by py3langid: a naive Bayes classifier over byte n-grams of 139 languages, BSD-licensed,
its model (4.6 MB, arrays without pickles) inside the package; it never uses the network.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from envgen.core.errors import MissingExtraError, install_hint
from envgen.train.prose import passages, prose

MIN_CHARS = 20
"""Less prose than this is in no language that could be told."""
SURE = 0.5
"""Least posterior with which a prompt's language is taken as known."""
DOUBT = 0.1
"""A passage counts against its writer if the expected language's posterior is below this."""
ALIKE = (
    ("no", "nn", "da"),
    ("hr", "bs", "sr"),
    ("id", "ms"),
    ("zh", "yue", "wuu"),
    ("ar", "arz", "ary"),
)
"""Languages that a sentence does not tell apart; the first stands for all."""
_NO_LANGUAGE = "zxx"


def language_of(text: str) -> str | None:
    """The ISO 639 code of the language that a text's prose is in.

    Returns:
        The code (of ``ALIKE`` languages the first); None if there are fewer than ``MIN_CHARS`` characters
        of prose, or no language's posterior reaches ``SURE``.
    """
    found = prose(text)
    if len(found) < MIN_CHARS:
        return None
    posterior = _posterior(found)
    best = max(posterior, key=lambda code: posterior[code])
    return best if best != _NO_LANGUAGE and posterior[best] >= SURE else None


prompt_language = lru_cache(maxsize=4_096)(language_of)
"""``language_of``, remembered: many rollouts answer the same prompt."""


def language_consistency(text: str, language: str) -> float | None:
    """How much of a text's prose is in a language.

    Args:
        text: what a model wrote.
        language: ISO 639 code, as ``language_of`` gives it.

    Returns:
        Share of the prose in passages that may be in ``language``, 0 to 1, weighed by characters; None if
        there are fewer than ``MIN_CHARS`` of them: too little to tell.
    """
    found = prose(text)
    if len(found) < MIN_CHARS:
        return None
    parts = passages(found, MIN_CHARS)
    right = total = 0
    for part in parts:
        posterior = _posterior(part.text)
        if max(posterior, key=lambda code: posterior[code]) == _NO_LANGUAGE:
            continue
        total += part.weight
        right += part.weight * (posterior.get(language, 0.0) >= DOUBT)
    return right / total if total else None


def _posterior(text: str) -> dict[str, float]:
    """Language -> posterior, alike ones added up."""
    found: dict[str, float] = {}
    for code, value in _identifier().rank(text):
        code = _HEADS.get(code, code)
        found[code] = found.get(code, 0.0) + value
    return found


_HEADS = {code: group[0] for group in ALIKE for code in group}


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise MissingExtraError(
            "the py3langid package is not installed", install_hint("train")
        ) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
