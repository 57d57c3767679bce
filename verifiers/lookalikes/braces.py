"""Sites in tests of JavaScript, TypeScript, Go, Java and PHP: literals where assertions say what is expected.

There is no grammar: tests are found by their heads and brackets, expectations by the names of calls. A site
that was found by mistake does not hold on the gold patch, and is dropped when an instance is proven.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envgen.core.code_types import Leaf, Question, Site, TestId, VerdictKind
from envgen.verifiers.lookalikes.options import Literal, Value, capacity
from envgen.verifiers.lookalikes.scanning import Scanned

_NUMBER = re.compile(r"(?<![\w.$])\d+(?:\.\d+)?(?![\w.])")
_BOOLEAN = re.compile(r"(?<![\w.$])(?:true|false)\b")
_PLAIN = re.compile(r"""(["'])(?:[^\\]|\\[nt"'\\])*\1""")
_KEY = re.compile(r"\s*(?::|=>)")
_UNORDERED = re.compile(r"[Ss]et\b|Map\b|sum|sort|[+*/%]")
"""Where two changes could be none, one literal is changed."""
_NAMED = re.compile(
    r"(?<![\w$])\$?(?:want|expect|exp)(?:s|ed)?(?:[A-Z_]\w*)?(?: [\w.\[\]]+)?\s*(?::=|=(?![=>])|:(?![:=]))\s*"
)
"""A variable or field that says what is expected."""


class LanguageRules(NamedTuple):
    """The parts that differ from language to language."""

    head: re.Pattern[str]
    """A test up to its first bracket: ``name``."""
    calls: re.Pattern[str]
    """Calls up to their bracket; a group tells where the expectation stands: ``all`` arguments, the
    ``first``, the ``second``, the ``third`` or the ``last`` that has literals, or is a ``truth``."""
    quotes: str
    texts: str
    """Quotes of what is a text, not a character."""
    test: str
    """A name: ``{0}``, ``{1}`` are two words."""
    camel: bool = True
    hashes: bool = False
    patterns: bool = False
    compared: bool = False
    """Comparisons after ``if`` are assertions."""
    typed: bool = False
    """A number out of its type's range does not compile, and nor does its package."""
    subtests: bool = False
    """Rows of a table can be tests whose names are texts in them."""
    dollars: bool = False
    """A dollar in double quotes begins a variable."""
    messages: re.Pattern[str] | None = None
    """A file in which it is found gives an assertion's message before its other arguments."""


_SCRIPT = LanguageRules(
    head=re.compile(
        r"^[ \t]*(?:it|test|specify)(?=\(\s*([\"'`])(?P<name>(?:(?!\1|\$\{)[^\\\n]){2,150})\1\s*,)",
        re.M,
    ),
    calls=re.compile(
        r"(?:(?P<second>\bassert(?:\.(?:\w*[eE]quals?|same|is|throws|rejects|match|include))|\bt\."
        r"(?:is|same|\w*[eE]quals?))"
        r"|(?P<all>(?<!\.not)\.(?:toBe|toEqual|toStrictEqual|toContain\w*|toMatch(?:Object|InlineSnapshot)?"
        r"|toHaveLength|toThrow\w*|toBeCloseTo|toHaveProperty|toHaveBeenCalledWith|eqls?|equals?|includes?|contains?"
        r"|lengthOf|throws?))"
        r"|(?P<truth>\bassert(?:\.ok)?|\bt\.(?:ok|true))"
        r"|(?P<last>\b(?:check|verify|expect|assert)[A-Z]\w*))(?=\()"
    ),
    quotes="\"'`",
    texts="\"'`",
    test="{0} {1}",
    camel=False,
    patterns=True,
)
RULES = {
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "go": LanguageRules(
        head=re.compile(r"^func (?P<name>Test\w+)\(\w+ \*testing\.T\) (?=\{)", re.M),
        calls=re.compile(
            r"(?:(?P<second>\b(?:assert|require)\.(?:\w*Equal\w*|Same|JSONEq))"
            r"|(?P<third>\b(?:assert|require)\.(?:Contains|Len|EqualError|ErrorContains|InDelta|Regexp))"
            r"|(?P<last>\b(?:check|verify|expect|assert|must)\w*))(?=\()"
        ),
        quotes="\"'`",
        texts='"',
        test="Test{0}{1}",
        compared=True,
        typed=True,
        subtests=True,
    ),
    "java": LanguageRules(
        head=re.compile(
            r"^(?:[ \t]*@[^\n]*\n)*[ \t]*(?:@\w+(?:\([^()\n]*\))?[ \t]+)*(?:public |protected )?"
            r"void\s+(?P<name>\w+)\(\)[^{};]*(?=\{)",
            re.M,
        ),
        calls=re.compile(
            r"(?:(?P<first>\bassert\w*Equals|\bassertSame|\bassertLinesMatch)"
            r"|(?P<all>\.(?:isEqualTo|contains\w*|hasSize|hasMessage\w*|startsWith|endsWith|hasToString)"
            r"|\b(?:is|equalTo|containsString|hasItems?))"
            r"|(?P<truth>\bassert(?:True|False))"
            r"|(?P<last>\b(?:check|verify|expect|assert)[A-Z]\w*))(?=\()"
        ),
        quotes="\"'",
        texts='"',
        test="test{0}{1}",
        messages=re.compile(r"^import (?:static )?(?:org\.junit\.(?:Assert|Test)|junit\.framework)\b", re.M),
    ),
    "php": LanguageRules(
        head=re.compile(
            r"^(?:[ \t]*#\[[^\n]*\n)*[ \t]*(?:final )?public function (?P<name>\w+)\(\)[^{};]*(?=\{)",
            re.M,
        ),
        calls=re.compile(
            r"(?:(?P<first>(?:->|::)(?:assert(?:Same|Equals|\w*Contains\w*|Count|ArrayHasKey|Matches\w*|Json\w*)"
            r"|expectExceptionMessage\w*|expectExceptionCode|expectOutputString))"
            r"|(?P<truth>(?:->|::)assert(?:True|False))"
            r"|(?P<last>(?:->|::)(?:check|verify|expect|assert)[A-Z]\w*))(?=\()"
        ),
        quotes="\"'",
        texts="'\"",
        test="test{0}{1}",
        hashes=True,
        dollars=True,
    ),
}  # fmt: skip


class Braces:
    """Look-alikes of tests in languages that put blocks in braces."""

    def __init__(self, name: str) -> None:
        self.rules = RULES[name]

    def sites(self, file: str, source: bytes) -> list[Question]:
        """See ``Language``; a name that occurs twice in a file gives no question."""
        try:
            source.decode()
        except UnicodeDecodeError:
            return []
        text = source.decode("latin-1")  # places are bytes
        rules = self.rules
        scanned = Scanned(text, rules.quotes, hashes=rules.hashes, patterns=rules.patterns)
        heads = list(scanned.code(rules.head, 0, len(text)))
        names = [head["name"] for head in heads]
        found = []
        for head in heads:
            end = scanned.closing(head.end())
            if end is None or names.count(head["name"]) > 1:
                continue
            block = _TestBody(scanned, rules, head.end(), end)
            sites = sorted(block.sites(), key=lambda site: site.at)
            end += 2 if text.startswith(";", end + 1) else 1
            rows = block.rows(sites) if rules.subtests else {}
            for label, own in {"": sites, **rows}.items():
                found.append(
                    Question(
                        file=file,
                        start=head.start(),
                        end=end,
                        name=decoded(head["name"]),
                        name_at=head.start("name"),
                        tests=(decoded(label),),
                        sites=tuple(own),
                    )
                )
        return found

    def known(self, text: str, leaf: Leaf) -> Literal:
        """See ``Language``."""
        return Literal(_value(text, self.rules), natural=self.rules.typed)

    def spell(self, value: Value, text: str) -> str:
        """See ``Language``."""
        if isinstance(value, str) and text.startswith("'"):
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return "'" + escaped.replace("\n", "\\n") + "'"
        spelled = json.dumps(value, ensure_ascii=False)
        return spelled.replace("$", "\\$") if self.rules.dollars else spelled

    def conditions(self, text: str) -> tuple[str, str]:
        """See ``Language``; an empty list's opposite has something in it."""
        if text.strip() == "[]":
            return "[]", "[7]"
        return f"!!({text})", f"!({text})"

    def word(self, first: str, second: str) -> str:
        """See ``Language``."""
        words = [first, second.replace("_", " ")]
        if self.rules.camel:
            words = ["".join(part.capitalize() for part in one.split()) for one in words]
        return self.rules.test.format(*words)

    def key(self, test: TestId) -> str:
        """See ``Language``."""
        return test

    def matched(self, found: Sequence[Question], ids: Sequence[TestId]) -> list[Question]:
        """See ``Language``: the only id that ends with the name, and with that of a subtest."""
        questions = []
        for question in found:
            name = question.name + (question.tests[0] and f"/{question.tests[0]}")
            ending = re.compile(r"(?:::|> | )" + re.escape(name) + r"(?:\(\))?$")
            own = [test for test in ids if ending.search(test)]
            if "/" in question.file:
                stem = question.file.rpartition("/")[2].partition(".")[0]
                own = [test for test in own if question.file in test or stem in test] or own
            if len(own) == 1:
                questions.append(question.model_copy(update={"tests": (own[0],)}))
        return questions


class _TestBody:
    """One test's body."""

    def __init__(self, scanned: Scanned, rules: LanguageRules, start: int, end: int) -> None:
        self.scanned, self.rules, self.start, self.end = scanned, rules, start, end

    def sites(self) -> Iterator[Site]:
        """Every expectation that is understood."""
        taken: set[tuple[Leaf, ...]] = set()
        for site in itertools.chain(self._called(), self._named(), self._compared()):
            if site.leaves not in taken:
                taken.add(site.leaves)
                yield site

    def rows(self, sites: Sequence[Site]) -> dict[str, list[Site]]:
        """Name of a subtest -> the sites in its row: the first text of a block around them, or its key."""
        found: dict[str, list[Site]] = defaultdict(list)
        text = self.scanned.text
        for site in sites:
            for opening in self.scanned.around(site.leaves[0].start, self.start + 1):
                end = self.scanned.closing(opening) or opening
                inside = [one for one in self.scanned.texts if opening < one[0] < end]
                before = [one for one in self.scanned.texts if one[1] < opening][-1:]
                keys = [one for one in before if text[one[1] : opening].strip() == ":"]
                for first, last in [*keys, *inside[:1]]:
                    label = re.sub(r"\s", "_", text[first + 1 : last - 1])
                    if label and site not in found[label]:
                        found[label].append(site)
        return {label: own for label, own in found.items() if label}

    def _called(self) -> Iterator[Site]:
        for call in self.scanned.code(self.rules.calls, self.start, self.end):
            where = call.lastgroup
            given = self._plain(where or "", self.scanned.arguments(call.end()))
            if where == "truth":
                yield from self._truth(call.start(), given[:1])
                continue
            spans = {
                "all": [given],
                "first": [given[:1], given[1:2]],
                "second": [given[1:2], given[2:3]],
                "third": [given[2:3], given[1:2]],
                "last": [[one] for one in reversed(given[1:])],
            }[where or "all"]
            yield from itertools.islice(
                (site for one in spans for site in self._values(call.start(), one)), 1
            )

    def _plain(self, where: str, given: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Arguments without a message before them."""
        found, needed = self.rules.messages, {"truth": 1, "first": 2}.get(where, len(given))
        if len(given) > needed and found and found.search(self.scanned.text):
            start, end = given[0]
            if any(start <= one < end for one, _ in self.scanned.texts):
                return given[1:]
        return given

    def _named(self) -> Iterator[Site]:
        for name in self.scanned.code(_NAMED, self.start, self.end):
            span = self.scanned.expression(name.end(), self.end, ",;")
            yield from self._values(name.start(), [span])

    def _compared(self) -> Iterator[Site]:
        if not self.rules.compared:
            return
        for sign in self.scanned.code(re.compile(r"!="), self.start, self.end):
            begin = self.scanned.text.rfind("\n", 0, sign.start())
            if "if " in self.scanned.text[begin : sign.start()]:
                span = self.scanned.expression(sign.end(), self.end, "{;&|,")
                yield from self._values(sign.start(), [span])

    def _truth(self, at: int, spans: Sequence[tuple[int, int]]) -> Iterator[Site]:
        for start, end in spans:
            leaf = Leaf(start=start, end=end, kind="condition")
            yield Site(leaves=(leaf,), kind=VerdictKind.ONE_BIT, at=at)

    def _values(self, at: int, spans: Sequence[tuple[int, int]]) -> Iterator[Site]:
        leaves = [leaf for span in spans for leaf in self._leaves(*span)]
        text = self.scanned.text
        bits = capacity([self._literal(leaf) for leaf in leaves])
        if bits:
            kind = VerdictKind.MANY if bits > 1 else VerdictKind.ONE_BIT
            yield Site(leaves=tuple(leaves), kind=kind, at=at)
        elif len(spans) == 1 and text[slice(*spans[0])].strip() == "[]":
            yield from self._truth(at, spans)

    def _leaves(self, start: int, end: int) -> list[Leaf]:
        text, found = self.scanned.text, []
        for first, last in self.scanned.texts:
            if start <= first and last <= end and text[first] in self.rules.texts:
                try:
                    _value(decoded(text[first:last]), self.rules)
                except ValueError:
                    continue
                if not _KEY.match(text, last):
                    found.append(Leaf(start=first, end=last, kind="text"))
        for match in self.scanned.code(_NUMBER, start, end):
            signed = text[: match.start()].endswith("-") and (
                text[: match.start() - 1].rstrip()[-1:] in ("(", "[", ",", ":", "=", "{")
            )
            found.append(Leaf(start=match.start() - signed, end=match.end(), kind="number"))
        for match in self.scanned.code(_BOOLEAN, start, end):
            found.append(Leaf(start=match.start(), end=match.end(), kind="boolean"))
        found.sort(key=lambda leaf: leaf.start)
        if found and _UNORDERED.search(text, start, end):
            return [max(found, key=lambda leaf: capacity([self._literal(leaf)]))]
        return found

    def _literal(self, leaf: Leaf) -> Literal:
        text = decoded(self.scanned.text[leaf.start : leaf.end])
        return Literal(_value(text, self.rules), natural=self.rules.typed)


def decoded(text: str) -> str:
    """The text of a stretch of a file that is read byte by byte."""
    return text.encode("latin-1").decode()


def _value(text: str, rules: LanguageRules) -> Value:
    """The value of a literal. Raises ValueError if it is not known."""
    if text in ("true", "false"):
        return text == "true"
    if text[:1] == "`":
        if "\\" in text or "${" in text:
            raise ValueError(f"{text!r} is not plain text")
        return text[1:-1]
    if text[:1] in "\"'":
        if not _PLAIN.fullmatch(text) or (rules.dollars and text[0] == '"' and "$" in text):
            raise ValueError(f"{text!r} is not plain text")
        return str(ast.literal_eval(text))
    return float(text) if "." in text else int(text)
