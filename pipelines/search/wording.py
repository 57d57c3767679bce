"""Questions in words: English and Chinese, from the phrases of the corpus or plain ones where it has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

from envgen.core.seeding import derive
from envgen.pipelines.search.questions import (
    TITLE,
    Clue,
    EntityQuery,
    FactTable,
    SearchQuestion,
    Value,
)
from envgen.store.corpus import AttributeSpec

PLAIN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "en": {
        "is": ("has the {attribute} {value}", "has {value} as its {attribute}"),
        "between": (
            "has the {attribute} between {low} and {high}",
            "lies between {low} and {high} in its {attribute}",
        ),
        "entity": ("has as its {attribute} {value}", "names as its {attribute} {value}"),
        "ask": ("What is the {attribute} of {it}?", "Which {attribute} does {it} have?"),
        "title": ("Which {noun} {clues}?", "Name the {noun} that {clues}."),
        "it": ("the {noun} that {clues}",),
        "inner": ("the {noun} (one that {clues})",),
        "set": (
            "List every {noun} that {clues}.",
            "Which are all those of this kind: a {noun} that {clues}?",
        ),
        "count": (
            "How often does the corpus have this: a {noun} that {clues}?",
            "Count every {noun} that {clues}.",
        ),
        "least": ("Take every {noun} that {clues}. Which of them has the {least} {attribute}?",),
        "most": ("Take every {noun} that {clues}. Which of them has the {most} {attribute}?",),
    },
    "zh": {
        "is": ("其{attribute}为{value}", "{attribute}是{value}"),
        "between": ("其{attribute}在{low}到{high}之间",),
        "entity": ("其{attribute}为{value}",),
        "ask": ("{it}的{attribute}是什么?", "请问{it}的{attribute}是什么?"),
        "title": ("哪个{noun}{clues}?", "请找出符合以下条件的{noun}:{clues}。"),
        "it": ("{clues}的{noun}",),
        "inner": ("{noun}\uff08{clues}\uff09",),
        "set": ("请列出所有{clues}的{noun}。",),
        "count": ("{clues}的{noun}一共有多少个?",),
        "least": ("在所有{clues}的{noun}中,哪一个的{attribute}最小?",),
        "most": ("在所有{clues}的{noun}中,哪一个的{attribute}最大?",),
    },
}
"""The words of a corpus that brings none, and the frames of all questions."""
FORMS = {
    "en": {
        "number": "Answer with the number alone{unit}.",
        "year": "Answer with the year alone.",
        "text": "Answer with the name as the document has it, and nothing else.",
        "set": "Answer with a JSON list of their names as the documents have them.",
    },
    "zh": {
        "number": "只回答数字{unit}。",
        "year": "只回答年份数字。",
        "text": "请按文档中的写法只回答名称。",
        "set": "请用 JSON 列表回答,名称按文档中的写法。",
    },
}


def worded(question: SearchQuestion, table: FactTable) -> str:
    """The question as a reader gets it; the same words for the same question."""
    return _Writer(question, table).text()


def clue_texts(question: SearchQuestion, table: FactTable) -> list[str]:
    """Each clause of the question in words, alone; what somebody searches for who reads them one by one."""
    writer = _Writer(question, table)
    return [writer.clue(question.query.kind, clause) for clause in question.query.clauses]


def can_word(kind: str, language: str, table: FactTable) -> bool:
    """Whether a class has a noun in a language."""
    return language == "en" or language in table.header.classes.get(kind, {})


def can_clue(kind: str, attribute: str, language: str, table: FactTable) -> bool:
    """Whether a clue about an attribute can be worded: by the corpus, or plainly."""
    spec = table.spec(kind, attribute)
    if spec is None or not (spec.clue or spec.between or spec.ask):
        return True
    return bool(spec.clue.get(language) or spec.between.get(language))


class _Writer:
    def __init__(self, question: SearchQuestion, table: FactTable) -> None:
        self.question, self.table = question, table
        self.language = question.language
        self.rng = Random(derive(question.wording, "wording"))
        self.plain = PLAIN[self.language]

    def text(self) -> str:
        query, ask = self.question.query, self.question.ask
        noun = self.noun(query.kind)
        if self.question.shape not in ("one", "none"):
            return self.several()
        if ask == TITLE:
            frame = self.rng.choice(self.plain["title"])
            asked = frame.format(noun=noun, clues=self.clues(query))
            return f"{asked} {FORMS[self.language]['text']}"
        spec = self.table.spec(query.kind, ask)
        phrases = spec.ask.get(self.language, ()) if spec else ()
        frame = self.rng.choice(phrases or self.plain["ask"])
        asked = _fill(frame, it=self.it(query), attribute=self.label(ask))
        form = spec.kind if spec and spec.kind in ("number", "year") else "text"
        unit = f" ({spec.unit})" if spec and spec.unit else ""
        return f"{asked[0].upper()}{asked[1:]} {FORMS[self.language][form].format(unit=unit)}"

    def several(self) -> str:
        query, shape, by = self.question.query, self.question.shape, self.question.by or ""
        spec = self.table.spec(query.kind, by)
        least, most = (
            ("earliest", "latest") if spec and spec.kind == "year" else ("smallest", "largest")
        )
        asked = _fill(
            self.rng.choice(self.plain[shape]), noun=self.noun(query.kind), clues=self.clues(query),
            attribute=self.label(by).removesuffix(f" {spec.unit}" if spec and spec.unit else ""),
            least=least, most=most,
        )  # fmt: skip
        forms = {"set": "set", "count": "number"}
        return f"{asked} {FORMS[self.language][forms.get(shape, 'text')].format(unit='')}"

    def it(self, query: EntityQuery, frames: str = "it") -> str:
        """An entity by its clues; in brackets inside another's, or nobody knows whose a later clue is."""
        frame = self.rng.choice(self.plain[frames])
        return frame.format(noun=self.noun(query.kind), clues=self.clues(query))

    def clues(self, query: EntityQuery) -> str:
        said = [self.clue(query.kind, clause) for clause in query.clauses]
        if self.language == "zh":
            return "\uff0c".join(said)
        if len(said) == 1:
            return said[0]
        nested = any(clause.entity is not None for clause in query.clauses)
        comma = "," if nested or len(said) > 2 else ""
        return f"{', '.join(said[:-1])}{comma} and {said[-1]}"

    def clue(self, kind: str, clause: Clue) -> str:
        spec = self.table.spec(kind, clause.attribute) or AttributeSpec(kind="name")
        label = self.label(clause.attribute)
        if clause.op == "between":
            frame = self.rng.choice(spec.between.get(self.language) or self.plain["between"])
            low, high = (shown(one, spec) for one in (clause.low, clause.high))
            return _fill(frame, low=low, high=high, attribute=label)
        plain = self.plain["entity" if clause.op == "entity" else "is"]
        frame = self.rng.choice(spec.clue.get(self.language) or plain)
        value = (
            shown(clause.value, spec) if clause.entity is None else self.it(clause.entity, "inner")
        )
        return _fill(frame, value=value, attribute=label)

    def noun(self, kind: str) -> str:
        nouns = self.table.header.classes.get(kind, {})
        return nouns.get(self.language) or nouns.get("en") or self.label(kind)

    def label(self, name: str) -> str:
        return name.replace("_", " ")


def shown(value: Value | None, spec: AttributeSpec) -> str:
    """A value in words: numbers with separators and their unit, years without."""
    if isinstance(value, str) or value is None:
        return str(value)
    if spec.kind == "year":
        return str(value)
    return f"{value:,} {spec.unit}".rstrip()


def _fill(frame: str, **words: str) -> str:
    """A frame with its words, in one pass: what stands in braces in a word stays as it is."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), frame)
