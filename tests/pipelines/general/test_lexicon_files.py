"""Lexicon files: read beside their pages, checked, and drawn from without a change of meaning."""

from __future__ import annotations

import itertools
import shutil
import time
import tomllib
from pathlib import Path

import pytest

from envgen.core.errors import ConfigError
from envgen.core.ir import Clause, Equals, Problem
from envgen.core.seeding import rng
from envgen.pipelines.general.author import ProceduralAuthor
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.page_files import LexiconFile, read_page
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.draft import Draft, DraftRequest
from envgen.pipelines.general.words.frames import FRAMES
from envgen.pipelines.general.words.prompt import parse, prompt
from envgen.pipelines.general.words.wording import Template, Words

ROOT = Path(__file__).parents[3]
GREENHOUSE = ROOT / "examples/pages/greenhouse.toml"
LEXICON = """
[phrases]
rank = "Name the bench with the {sense} {attribute:word}."
fits = ["Plant {k}, pots and all, must fit on its bench.", "No pot of plant {k} may be left over."]
warm = "It must be {param:warm_{k}} degrees or more at the bench of plant {k}."
[openings]
place = "{each: Plant {k} is {param:plant_{k}}}; choose a bench for each of the {n}."
[units]
hours = "Hours of light are whole hours a day."
[frames]
submit = "Your answer goes to `submit_result`, once, as an `answer_text` of JSON in this form:"
"""


def greenhouse(lexicon: str) -> Domain:
    return read_page(GREENHOUSE.read_text(), lexicon)


def test_a_lexicon_file_is_read_beside_its_page_and_stored_with_it(tmp_path: Path) -> None:
    page = tmp_path / "my.toml"
    shutil.copy(GREENHOUSE, page)
    alone = page_file(page)
    (tmp_path / "my.lexicon.toml").write_text(LEXICON)
    both = page_file(page)
    assert both.phrases["fits"].texts[1:] == tuple(LexiconFile(**_toml()).phrases["fits"])
    assert both.phrases["fits"].texts[:1] == alone.phrases["fits"].texts
    assert both.key != alone.key
    stored = Domain.model_validate_json(both.text)
    assert (stored, stored.key) == (both, both.key)
    draft = ProceduralAuthor().draft(DraftRequest(domain=both.id, page=both.text, level=1), seed=3)
    assert isinstance(draft, Draft)
    assert isinstance(draft.blueprint, dict)
    assert draft.blueprint["page"] == both.text


def _toml() -> dict[str, dict[str, list[str] | str]]:
    import tomllib

    return tomllib.loads(LEXICON)


def test_a_page_may_leave_its_texts_to_the_lexicon_file() -> None:
    page = GREENHOUSE.read_text().replace(
        'texts = "The bench of plant {k} must have room for all of its pots."\n', ""
    )
    with pytest.raises(ConfigError, match="phrase 'fits' has no text") as missing:
        tasks_from(read_page(page).text)
    assert "lexicon file" in missing.value.hint
    assert tasks_from(read_page(page, LEXICON).text).domain.phrases["fits"].texts


HOSTILE = {
    "a phrase that the page lacks": ("[phrases]\nwram = 'x'", "'wram'", "warm"),
    "a scene that the page lacks": ("[openings]\nfliter = 'x'", "'fliter'", "filter"),
    "a unit that the page lacks": ("[units]\nlumens = 'x'", "'lumens'", "hours"),
    "an unknown frame": ("[frames]\ngreeting = 'x'", "frames.greeting", "[frames]"),
    "an unknown section": ("[sentences]\nrank = 'x'", "sentences", "[phrases]"),
    "no TOML": ("[phrases", "not valid TOML", "line"),
    "a number for a text": ("[phrases]\nwarm = 7", "phrases.warm", "a list"),
    "no texts": ("[phrases]\nwarm = []", "phrases.warm", "a list"),
    "too many texts": (f"[phrases]\nwarm = {['x'] * 9}", "phrases.warm", "a list"),
    "eight and the page's own": (f"[phrases]\nwarm = {['x'] * 8}", "phrases.warm.texts", "fewer"),
    "a text that is too long": (f"[phrases]\nwarm = '{'x' * 701}'", "phrases.warm", "a list"),
    "an invisible character": ('[phrases]\nwarm = "a\\u202eb"', "U+202E", "a list"),
    "a line break": ('[phrases]\nwarm = "a\\nb"', "U+000A", "a list"),
    "a hole that is missing": (
        "[phrases]\nwarm = 'The bench of plant {k} must be warm.'", "phrase 'warm'.*warm_{k}", "holes"
    ),
    "a hole too many": (
        "[phrases]\nfits = 'Plant {k} of {n} must fit.'", "phrase 'fits'.*{n}", "holes"
    ),
    "a hole of another style": (
        "[phrases]\nwarm = 'Plant {k} needs {param:warm_{k}|tenths} degrees.'", "'warm'", "holes"
    ),
    "a stray brace": ("[phrases]\nwarm = 'Plant {k'", "stray brace", "fix"),
    "a text of another phrase": (
        "[phrases]\nfits = 'The bench of plant {k} must get at least as much light as the plant needs.'",
        "also reads", "fix",
    ),
    "its own text again": (
        "[phrases]\nfits = 'The bench of plant {k} must have room for all of its pots.'",
        "also reads", "fix",
    ),
    "a text that reads another phrase": (
        "[phrases]\nrank = 'Among {sense} which {attribute:word}?'", "also reads", "fix",
    ),
    "an opening with other holes": (
        "[openings]\nplace = 'Find benches.'", "opening 'place-2'.*plant_1", "holes"
    ),
    "a unit with a hole": ("[units]\nhours = 'Hours of {k}.'", "unit 'hours'", "holes"),
    "a frame without its hole": ("[frames]\ntie-break = 'The first wins.'", "tie-break", "holes"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_lexicon_files_are_refused_by_name(name: str) -> None:
    lexicon, named, hint = HOSTILE[name]
    with pytest.raises(ConfigError) as error:
        tasks_from(greenhouse(lexicon).text)
    for part in named.split(".*"):
        assert part in str(error.value)
    assert "greenhouse" in str(error.value)
    assert hint in error.value.hint


def test_a_text_that_is_read_back_otherwise_is_refused() -> None:
    """A list of rules holds an "and" of its own: the hole before "and" would end there."""
    page = (ROOT / "examples/pages/seedbank.toml").read_text()
    for joint in ("for", "and"):
        words = f"""[phrases]\nsend = "Send what is open under {{rules:list}} {joint} {{param:request}}."\n"""
        if joint == "for":
            assert tasks_from(read_page(page, words).text)
            continue
        with pytest.raises(ConfigError, match=r"'send'.*not read back as it was written") as error:
            tasks_from(read_page(page, words).text)
        assert "words between its holes" in error.value.hint


def test_tasks_are_said_in_all_ways_and_mean_the_same() -> None:
    tasks = tasks_from(greenhouse(LEXICON).text)
    found = tasks.first(rng(1, "test"))
    assert found is not None
    structure = tasks.blueprint.begin("place", rng(1, "place"))
    for problem in (found.problem, _stated(tasks.blueprint.problem(structure))):
        texts, plain = set(), meaning(problem)
        for seed in range(40):
            worded = tasks.worded(problem, rng(seed, "words"))
            assert meaning(worded) == plain
            rendered = prompt(worded, tasks.lexicon)
            read = parse(rendered.text, worded.relations, tasks.lexicon)
            assert (read.clauses, read.goal, read.params) == (
                worded.clauses,
                worded.goal,
                worded.params,
            )
            texts.add(rendered.text)
        assert len(texts) >= 2
    assert any("Your answer goes to" in text for text in texts) is False  # frames go with openings
    assert any(FRAMES["submit"][1] in text for text in texts)


def _stated(problem: Problem) -> Problem:
    params = {"plant_1": "Fern", "plant_2": "Ivy"}
    return problem.model_copy(update={"params": params})


def meaning(problem: Problem) -> object:
    rules = [c.model_copy(update={"text_key": "", "fields": {}}) for c in problem.clauses]
    goal = problem.goal
    if isinstance(goal, Equals):
        goal = goal.model_copy(update={"text_key": ""})
    assert all(isinstance(rule, Clause) for rule in rules)
    return rules, goal, problem.params, problem.layout, problem.slots, problem.access


def test_a_page_with_a_hundred_texts_is_read_quickly() -> None:
    """Each text is tried on what each other writes: the work grows with the square of their number."""
    domain = greenhouse("")
    page = domain.model_dump(mode="json", exclude_defaults=True)
    page["id"] = "wordy"
    for i in range(25):
        texts = [
            f"Way {way} of {i}: plant {{k}} gets {{param:warm_{{k}}}} degrees or more."
            for way in range(4)
        ]
        page["phrases"][f"warm_{i}"] = {**page["phrases"]["warm"], "texts": texts}
        page["steps"].append({"name": f"add_{i}", "levels": [3], "add": [f"warm_{i}"]})
    text = Domain.model_validate(page).text
    started = time.process_time()
    tasks = tasks_from(text)
    assert time.process_time() - started < 2
    assert len(tasks.lexicon.phrases) >= 100


def test_each_amount_of_an_order_is_read_back() -> None:
    """A noun with a comma ended where its own comma came first: no draft of level 10 could be stated."""
    page = tomllib.loads((ROOT / "pipelines/general/domains/orders.toml").read_text("utf-8"))
    sentence = page["phrases"]["refund"]["texts"].rpartition("allow. ")[2]
    words = Words(page["nouns"])
    for fields in itertools.product(("paid", "euros"), ("whole", "fee")):
        given = dict(zip(("money", "less"), fields, strict=True))
        reading = Template(sentence).read(Template(sentence).render(given, {}, words), words)
        assert reading is not None
        assert reading.fields == given
