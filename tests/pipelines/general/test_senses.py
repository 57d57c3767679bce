"""Pages whose sentences say the opposite of their rules are refused, whoever wrote them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from cli_runs import ROOT
from ladders import PAGES

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import Tasks
from envgen.pipelines.general.domains import DOMAINS, page

GREENHOUSE = tomllib.loads((ROOT / "examples/pages/greenhouse.toml").read_text("utf-8"))
LEAST, WARM = "room for at least {param:least} pots", "at {param:warm_{k}} degrees or more"
TURNED = {
    "a question's bound from the other side": ("filter", LEAST, "room for at most {param:least} pots"),
    "a question's bound the other way": ("filter", LEAST, "room for less than {param:least} pots"),
    "a rule's bound from the other side": ("warm", WARM, "at {param:warm_{k}} degrees or less"),
    "a rule's bound the other way": ("warm", WARM, "below {param:warm_{k}} degrees"),
    "a bound that it excludes": ("warm", WARM, "above {param:warm_{k}} degrees"),
    "the same for what differs": ("apart", "on different benches", "on the same bench"),
    "a permission": ("apart", "must stand on different", "may stand on the same"),
}  # fmt: skip


def changed(raw: dict[str, Any], key: str, **fields: Any) -> Domain:
    """The page with other fields of one phrase."""
    phrase = {**raw["phrases"][key], **fields}
    return Domain.model_validate({**raw, "phrases": {**raw["phrases"], key: phrase}})


@pytest.mark.parametrize("name", TURNED)
def test_a_sentence_turned_round_is_refused(name: str) -> None:
    key, old, new = TURNED[name]
    texts = GREENHOUSE["phrases"][key]["texts"]
    assert old in texts
    turned = changed(GREENHOUSE, key, texts=texts.replace(old, new))
    with pytest.raises(ConfigError, match=rf"phrase '{key}': its text .* says ") as error:
        Tasks(turned)
    assert error.value.hint


@pytest.mark.parametrize(
    ("key", "means"),
    [
        ("warm", "spot[k].warmth <= param.warm[k]"),
        ("warm", "spot[k].warmth > param.warm[k]"),
        ("filter", "best(sense, (b[attribute] for b in benches if b.room <= param.least))"),
    ],
)
def test_a_rule_turned_round_is_refused(key: str, means: str) -> None:
    with pytest.raises(ConfigError, match="but its rule compares with"):
        Tasks(changed(GREENHOUSE, key, means=means))


def test_an_extreme_turned_round_and_a_bound_of_the_rule_s_own_are_refused() -> None:
    means = "best('lowest', (b[attribute] for b in benches))"
    texts = "Of all benches, which one has the highest {attribute:word}?"
    with pytest.raises(ConfigError, match="says 'highest', but its rule takes the 'lowest'"):
        Tasks(
            changed(GREENHOUSE, "rank", texts=texts, means=means, choose={"attribute": ["light"]})
        )
    fixed = {
        "means": "spot[k].warmth >= 20",
        "texts": "Plant {k} must stand at most 20 degrees warm.",
    }
    with pytest.raises(ConfigError, match="says 'at most 20', but its rule compares with '>= 20'"):
        Tasks(changed(GREENHOUSE, "warm", **fixed))


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("warm", "The bench of plant {k} must not be below {param:warm_{k}} degrees."),
        ("warm", "Plant {k} dies on a bench where it is less than {param:warm_{k}} degrees warm."),
        ("warm", "No fewer than {param:warm_{k}} degrees will do for the bench of plant {k}."),
        ("apart", "No two of the {n} plants may stand on the same bench."),
        ("apart", "The same bench can't take two of the {n} plants."),
    ],
)
def test_a_rule_may_be_said_in_the_negative(key: str, texts: str) -> None:
    Tasks(changed(GREENHOUSE, key, texts=texts))


def test_people_who_may_be_busy_are_not_people_who_must_be_free() -> None:
    found = page("meetings").model_dump(mode="json")
    busy = "Everyone who attends one of these {n} meetings may be busy during all of it."
    with pytest.raises(ConfigError, match=r"phrase 'free': its text .* says 'may' and permits"):
        Tasks(changed(found, "free", texts=[busy]))


def test_pages_that_mean_what_they_say_are_read() -> None:
    assert len(DOMAINS) == 8
    pages = [*(ROOT / "examples/pages").glob("*.toml"), *PAGES.glob("*.toml")]
    raw = [tomllib.loads(path.read_text("utf-8")) for path in pages]
    for one in (*raw, *(page(name).model_dump(mode="json") for name in DOMAINS)):
        Tasks(Domain.model_validate(one))
