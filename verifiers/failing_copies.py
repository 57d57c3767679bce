"""Copies of tests that must fail, in the languages whose blocks stand in braces.

A test of the file is copied under a new name, and the copy's last assertion expects what nothing gives: a
text of words from the file. It fails for whoever runs the code honestly, and it passes where assertions
have lost their teeth or verdicts are rewritten. A test without an assertion that is understood gets a
failing statement at its end instead. Lines and indentation are read, no grammar: what does not look as
formatters write it is left alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.calls import last_call

MAX_COPIES = 3
"""Of one file, each with another assertion."""
_MAX_LINES = 60
_JS_TITLE = r"(?P<quote>[\"'])(?P<name>[A-Za-z][\w ,./+=()#-]{2,100})(?P=quote)"
_JS = re.compile(
    r"^(?P<indent>[ \t]*)(?:it|test)\(" + _JS_TITLE + r",\s*(?:async\s*)?"
    r"(?:\(t?\)\s*=>|function\s*\(t?\))\s*\{\s*$"
)
_GO = re.compile(r"^(?P<indent>)func (?P<name>Test\w+)\((?P<t>\w+) \*testing\.T\) \{\s*$")
_JAVA = re.compile(
    r"^(?P<indent>[ \t]*)(?:public )?void (?P<name>\w+)\(\)(?: throws [\w., ]+)?\s*\{\s*$"
)
_PHP = re.compile(
    r"^(?P<indent>[ \t]*)public function (?P<name>test\w+)\(\)(?:\s*:\s*void)?\s*(?P<open>\{?)\s*$"
)


class Copied(NamedTuple):
    """A test file with failing copies in it; pairs of a test's name and its copy's."""

    text: str
    pairs: tuple[tuple[str, str], ...]


class _Test(NamedTuple):
    first: int
    """Line where the copy begins, annotations included."""
    head: int
    body: int
    last: int
    name: str
    variable: str
    assertion: str
    """Name of the assertion that is turned; empty: none is."""
    at: int
    """Its line."""


class _Language(NamedTuple):
    head: re.Pattern[str]
    turn: Callable[[str, str], tuple[str, str] | None]
    """A line and a word -> the assertion's name and the line with an expectation nothing meets."""
    fail: Callable[[str, str], str]
    """The test's variable and a word -> a statement that fails."""
    refuse: re.Pattern[str]
    """What the copied lines must not hold."""
    sentence: bool = False
    """Names are sentences, not identifiers."""


def failing_copies(language: CodeLanguage, text: str, draw: random.Random) -> Copied | None:
    """A test file with copies that must fail; None where no test can be copied.

    Which tests are copied depends on the file alone; names and expectations are drawn.
    """
    rules = LANGUAGES.get(language)
    if rules is None:
        return None
    lines = text.split("\n")
    tests = _chosen(list(_tests(lines, rules)))
    words = sorted(set(re.findall(r"\b[a-z]{3,12}\b", text))) or ["case"]
    pairs = []
    for test in sorted(tests, key=lambda test: -test.last):
        copy, name = _copy(lines, test, rules, draw, words)
        lines[test.last + 1 : test.last + 1] = ["", *copy]
        pairs.append((test.name, name))
    return Copied("\n".join(lines), tuple(pairs)) if pairs else None


def _chosen(tests: list[_Test]) -> list[_Test]:
    """The shortest test of each assertion, those with one first."""
    best: dict[str, _Test] = {}
    for test in sorted(tests, key=lambda test: test.last - test.first):
        best.setdefault(test.assertion, test)
    if len(best) > 1:
        best.pop("", None)
    return list(best.values())[:MAX_COPIES]


def _copy(
    lines: list[str], test: _Test, rules: _Language, draw: random.Random, words: list[str]
) -> tuple[list[str], str]:
    name = _new_name(test.name, "\n".join(lines), rules, draw, words)
    word = f"{draw.choice(words)} {draw.choice(words)}"
    copy = lines[test.first : test.last + 1]
    copy[test.head - test.first] = copy[test.head - test.first].replace(test.name, name, 1)
    if test.assertion:
        turned = rules.turn(lines[test.at], word)
        assert turned is not None
        copy[test.at - test.first] = turned[1]
    else:
        inner = _indent(lines[test.body])
        copy.insert(-1, inner + rules.fail(test.variable, word))
    return copy, name


def _new_name(name: str, text: str, rules: _Language, draw: random.Random, words: list[str]) -> str:
    while True:
        first, second = draw.choice(words), draw.choice(words)
        if rules.sentence:
            made = f"{name} {first} {second}"
        elif "_" in name:
            made = f"{name}_{first}_{second}"
        else:
            made = f"{name}{first.capitalize()}{second.capitalize()}"
        if made not in text:
            return made


def _tests(lines: list[str], rules: _Language) -> Iterator[_Test]:
    heads = [(n, match) for n, line in enumerate(lines) if (match := rules.head.match(line))]
    names = [match["name"] for _, match in heads]
    for head, match in heads:
        if names.count(match["name"]) > 1:
            continue
        test = _test(lines, head, match, rules)
        if test is not None:
            yield test


def _test(lines: list[str], head: int, match: re.Match[str], rules: _Language) -> _Test | None:
    indent, groups = match["indent"], match.groupdict()
    opening = head
    if groups.get("open") == "":  # PHP: the brace has a line of its own
        opening += 1
        if opening >= len(lines) or lines[opening] != indent + "{":
            return None
    last = _end(lines, opening, indent)
    first = _first(lines, head, rules)
    if last is None or first is None:
        return None
    body = next((n for n in range(opening + 1, last) if lines[n].strip()), None)
    if body is None or any(rules.refuse.search(line) for line in lines[first : last + 1]):
        return None
    assertion, at = _last_assertion(lines, body, last, rules)
    return _Test(first, head, body, last, match["name"], groups.get("t") or "", assertion, at)


def _first(lines: list[str], head: int, rules: _Language) -> int | None:
    """Where a copy begins. A Java test is one for its annotation, which must be plain."""
    if rules.head is not _JAVA:
        return head
    above = lines[head - 1].strip() if head else ""
    before = lines[head - 2].strip() if head > 1 else ""
    if above == "@Test":
        return None if before.startswith("@") else head - 1
    is_old = lines[head].strip().startswith("public void test") and not above.startswith("@")
    return head if is_old else None


def _end(lines: list[str], opening: int, indent: str) -> int | None:
    """The line that closes a block: the first that is not indented further."""
    for n in range(opening + 1, min(opening + _MAX_LINES, len(lines))):
        line = lines[n]
        if not line.strip() or line.startswith((indent + " ", indent + "\t")):
            continue
        return n if re.fullmatch(re.escape(indent) + r"\}\)?;?\s*", line) else None
    return None


def _last_assertion(lines: list[str], body: int, last: int, rules: _Language) -> tuple[str, int]:
    """The last line of the body's own level that is an assertion; no name if there is none."""
    inner = _indent(lines[body])
    for n in range(last - 1, body - 1, -1):
        if _indent(lines[n]) == inner and (turned := rules.turn(lines[n], "x")):
            return turned[0], n
    return "", 0


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _turn_javascript(line: str, word: str) -> tuple[str, str] | None:
    call = last_call(line)
    if call is None:
        return None
    name, given = call.before.strip(), call.arguments
    if re.fullmatch(r"assert\.(?:deep|strict|deepStrict)?[eE]quals?", name) and len(given) > 1:
        return name, call.line(given[0], f'"{word}"', *given[2:])
    if name in ("assert", "assert.ok") and len(given) == 1:
        return name, call.line(f"!({given[0]})")
    chain = re.fullmatch(
        r"(?:await )?expect\(.*\)((?:\.\w+)*\.(?:to(?:Be|Equal|StrictEqual)|equals?|eql?))", name
    )
    if chain and len(given) == 1 and ".not" not in chain[1]:
        return f"expect{chain[1]}", call.line(f'"{word}"')
    return None


def _turn_go(line: str, word: str) -> tuple[str, str] | None:
    call = last_call(line)
    if call is None or not (found := re.fullmatch(r"\s*((?:assert|require)\.\w+)", call.before)):
        return None
    name, given = found[1], call.arguments
    if name.endswith(".Equal") and len(given) > 2:
        return name, call.line(given[0], f'"{word}"', *given[2:])
    if name.endswith((".True", ".False")) and len(given) == 2:
        return name, call.line(given[0], f"!({given[1]})")
    return None


def _turn_java(line: str, word: str) -> tuple[str, str] | None:
    call = last_call(line)
    if call is None or not call.after.startswith(";"):
        return None
    name, given = call.before.strip(), call.arguments
    short = re.sub(r"^(?:Assert|Assertions|this)\.", "", name)
    if short == "assertEquals" and len(given) == 2:
        return short, call.line(f'"{word}"', given[1])
    if short in ("assertTrue", "assertFalse") and len(given) == 1:
        return short, call.line(f"!({given[0]})")
    if short == "assertNull" and len(given) == 1:
        return short, call.line(f'"{word}"')
    if re.fullmatch(r"assertThat\(.*\)\.isEqualTo", short) and len(given) == 1:
        return "assertThat", call.line(f'"{word}"')
    return None


def _turn_php(line: str, word: str) -> tuple[str, str] | None:
    call = last_call(line)
    if call is None or not call.after.startswith(";"):
        return None
    found = re.fullmatch(r"\s*(?:\$this->|self::|static::|Assert::)(assert\w+)", call.before)
    if found is None:
        return None
    name, given = found[1], call.arguments
    if name in ("assertSame", "assertEquals") and len(given) > 1:
        return name, call.line(f"'{word}'", *given[1:])
    if name in ("assertTrue", "assertFalse") and len(given) == 1:
        return name, call.line(f"!({given[0]})")
    if name == "assertNull" and len(given) == 1:
        return name, call.line(f"'{word}'")
    return None


_JAVASCRIPT = _Language(
    _JS,
    _turn_javascript,
    lambda _, word: f'throw new Error("{word}");',
    re.compile(r"\breturn\b|\bdone\b|\.(?:todo|fails|skip)\b|toMatch\w*Snapshot"),
    sentence=True,
)
LANGUAGES: Mapping[str, _Language] = {
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "go": _Language(
        _GO,
        _turn_go,
        lambda variable, word: f'{variable}.Error("{word}")',
        re.compile(r"\breturn\b|os\.(?:Exit|Chdir)|\.Skip"),
    ),
    "java": _Language(
        _JAVA,
        _turn_java,
        lambda _, word: f'throw new AssertionError("{word}");',
        re.compile(r"\breturn\b|\bthrow\b|assumeT"),
    ),
    "php": _Language(
        _PHP,
        _turn_php,
        lambda _, word: f"$this->fail('{word}');",
        re.compile(r"\breturn\b|expect(?:Exception|Error|Warning|Output|Deprec)|markTest|<<<"),
    ),
}
