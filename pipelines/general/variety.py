"""How much a domain's tasks differ, counted over structures: no rows are drawn, nothing is proven."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from envgen.core.limits import Count, Label
from envgen.core.seeding import rng
from envgen.core.types import Record
from envgen.pipelines.general.authoring.structure import PhraseUse, Structure
from envgen.pipelines.general.authoring.tasks import Tasks
from envgen.pipelines.general.words.wording import Template

STRUCTURES, SENTENCES, PHRASINGS = 100, 60, 3
"""What every domain of the package reaches over ``DRAFTS`` drafts of each level."""
DRAFTS = 400


class Variety(Record):
    """How much the drafts of one domain differ."""

    domain: Label
    drafts: Count
    """Tasks drafted from level 1 to the highest."""
    structures: Count
    """Distinct scenes with their number of items, their sentences and the words chosen in these."""
    sentences: Count
    """Distinct texts, all that fills their holes replaced."""
    phrasings: Count
    """The fewest ways in which some phrase of these drafts is said."""

    @property
    def reached(self) -> bool:
        """Whether all targets are."""
        found = (self.structures, self.sentences, self.phrasings)
        return all(a >= b for a, b in zip(found, (STRUCTURES, SENTENCES, PHRASINGS), strict=True))


def variety(tasks: Tasks, drafts: int = DRAFTS, seed: int = 0) -> Variety:
    """Draft ``drafts`` times from level 1 up to the highest, and count what differs.

    A structure counts once however its items are numbered and whatever its constants are. Some of those
    counted may hold no task: rows decide that later.
    """
    structures, sentences = set[object](), set[str]()
    phrases = set[str]()
    for i in range(drafts):
        draws = rng(seed, "variety", i)
        for structure in _ladder(tasks, draws):
            structures.add(_kind(tasks, structure))
            phrases |= {sentence.phrase for sentence in structure.sentences}
            worded = tasks.blueprint.worded(structure, draws, policy=True)
            sentences |= {_blank(template) for template in _templates(tasks, worded)}
    texts = tasks.domain.phrases
    return Variety(
        domain=tasks.domain.id,
        drafts=drafts,
        structures=len(structures),
        sentences=len(sentences),
        phrasings=min(len(texts[phrase].texts) for phrase in phrases),
    )


def _ladder(tasks: Tasks, draws: Random) -> Iterator[Structure]:
    """A structure of level 1, and one of each level above it by a random step that applies."""
    blueprint = tasks.blueprint
    structure: Structure | None = blueprint.begin(tasks.domain.start, draws)
    for level in range(1, tasks.domain.max_level + 1):
        if structure is None:
            return
        yield structure
        operators = blueprint.operators(level)
        ways = (
            blueprint.stepped(structure, one, draws)
            for one in draws.sample(operators, len(operators))
        )
        structure = next((harder for harder in ways if harder is not None), None)


def _kind(tasks: Tasks, structure: Structure) -> object:
    """The structure without the numbers of its items and without constants."""
    chosen = sorted((one.phrase, *_chosen(tasks, one)) for one in structure.sentences)
    return structure.scene, structure.items, tuple(chosen), tuple(sorted(structure.traits))


def _chosen(tasks: Tasks, sentence: PhraseUse) -> list[str]:
    """The words of a sentence that the page offers a choice of: they change what its rule is."""
    rule, found = tasks.domain.phrases[sentence.phrase], []
    offered = {**rule.choose, **dict.fromkeys(rule.fields)}
    for scene in tasks.domain.scenes.values():
        offered |= {name: one for name, one in scene.choose.items() if not isinstance(one, str)}
    for name in sorted(sentence.fields):
        value = sentence.fields[name]
        if name in offered and isinstance(value, str):
            found.append(f"{name}={value}")
    return found


def _templates(tasks: Tasks, structure: Structure) -> Iterator[Template]:
    """The sentences of a structure: its opening and what it says."""
    number = f"-{structure.items}" if tasks.blueprint.scene(structure).most > 1 else ""
    opening = f"{structure.scene}{number}{structure.wording}"
    yield tasks.lexicon.opening_templates[opening]
    for sentence in structure.sentences:
        yield tasks.lexicon.phrase(sentence.key).sentence


def _blank(template: Template) -> str:
    text = template.text
    for hole in sorted(template.holes, key=len, reverse=True):
        text = text.replace(hole, "_")
    return text
