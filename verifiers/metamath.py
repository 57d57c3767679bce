"""Read and verify databases of Metamath (Megill and Wheeler, Metamath, 2019, chapter 4 and appendix B).

Their proofs are judged by ``envgen.verifiers.metamath_kernel``; ``_Reader`` decides what a database says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from envgen.verifiers.metamath_kernel import Assertion, Hypothesis, Pair, ProofStack, ordered
from envgen.verifiers.proof_verdict import ProofTextError, clipped

MAX_DATABASE_CHARS = 1 << 27
MAX_INCLUDED = 100
MAX_TOGETHER = 100
"""Variables of a ``$d``, and ``$e`` that are active at once: texts that are made to be slow have more."""

_FOREIGN = re.compile(r"[^\t\n\f\r\x20-\x7e]")
_LABEL = re.compile(r"[A-Za-z0-9._-]+\Z")
_STATEMENT = re.compile(
    r"\s*(?:\$(?P<brace>[{}])|\$\[\s+(?P<file>\S+)\s+\$\]|(?:(?P<label>[^\s$]+)\s+)?"
    r"\$(?P<kind>[cvdfeap])(?P<body>\s(?:[^$]*\s)?)(?:\$=(?P<proof>\s(?:[^$]*\s)?))?\$\.)(?!\S)"
)
_DISCOURAGED = re.compile(
    r"\(New\s+usage\s+is\s+discouraged\.\)[^$]{0,2000}\$\)\s+([A-Za-z0-9._-]+)\s+\$[ap]\s"
)
_CODE = re.compile(r"([U-Y]{0,9}[A-T])(Z?)")


class ProofStep(NamedTuple):
    """One step of a proof that was decoded."""

    cited: Hypothesis | Assertion | int
    """A number: of a saved step, from 0."""
    saved: bool = False


@dataclass
class MetamathDatabase:
    """What a database says; ``verify`` judges the proofs in it."""

    assertions: dict[str, Assertion] = field(default_factory=dict)
    """In the order of the text."""
    hypotheses: dict[str, Hypothesis] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    """Where the scope of a hypothesis ended; absent for those of the whole database."""
    discouraged: set[str] = field(default_factory=set)
    """Labels whose comment says "(New usage is discouraged.)"."""

    @classmethod
    def read(cls, source: Path | str) -> MetamathDatabase:
        """Read a database; proofs in it are not judged yet.

        Args:
            source: a file, which may include files that lie beside it, or a text, which may include none.

        Raises:
            ProofTextError: if it is no database, or too large.
        """
        reader = _Reader(source.parent if isinstance(source, Path) else None)
        if isinstance(source, Path):
            reader.include(source.name)
        else:
            reader.read(source)
        if reader.outer:
            raise ProofTextError("a scope ${ is not closed", "write $} where it ends")
        return reader.database

    def verify_all(self, progress: Callable[[int], None] | None = None) -> int:
        """Judge all proofs; the number of theorems.

        Raises:
            ProofTextError: at the first wrong one.
        """
        number = 0
        for label, one in self.assertions.items():
            if one.kind == "theorem":
                self.verify(label)
                number += 1
                if progress is not None:
                    progress(number)
        return number

    def verify(self, label: str) -> None:
        """Judge the proof of one assertion; an axiom has none.

        Raises:
            ProofTextError: if there is no such assertion, or its proof is wrong.
        """
        if label not in self.assertions:
            raise ProofTextError(f"there is no assertion {clipped(label, 80)!r}")
        theorem = self.assertions[label]
        if theorem.kind == "axiom":
            return
        stack, saved = ProofStack(theorem.scope, self.variables), list[str]()
        try:
            for step in self.steps(theorem):
                if isinstance(step.cited, Assertion):
                    stack.apply(step.cited)
                elif isinstance(step.cited, Hypothesis):
                    stack.entries.append(step.cited.expression)
                else:
                    stack.entries.append(saved[step.cited])
                if step.saved:
                    saved.append(stack.entries[-1])
            stack.finish(theorem.expression)
        except ProofTextError as error:
            raise ProofTextError(f"{label}: {error}") from error

    def steps(self, theorem: Assertion) -> Iterator[ProofStep]:
        """The steps of a proof, normal or compressed (Metamath, appendix B), one by one.

        Raises:
            ProofTextError: at the first that can't be read or must not be cited there.
        """
        tokens = theorem.proof.split()
        if not tokens or "?" in tokens:
            raise ProofTextError("the proof is incomplete")
        if tokens[0] != "(":
            for name in tokens:
                yield ProofStep(self._cited(name, theorem))
            return
        if ")" not in tokens:
            raise ProofTextError("the labels of the compressed proof have no end")
        end = tokens.index(")")
        cited: list[Hypothesis | Assertion] = list(theorem.hypotheses)
        mandatory = {one.label for one in theorem.hypotheses}
        for name in tokens[1:end]:
            if name in mandatory:
                raise ProofTextError(f"{name} is a mandatory hypothesis and has a letter already")
            cited.append(self._cited(name, theorem))
        yield from self._decoded("".join(tokens[end + 1 :]), cited)

    def _decoded(
        self, letters: str, cited: Sequence[Hypothesis | Assertion]
    ) -> Iterator[ProofStep]:
        """Letters as steps: numbers of labels, and beyond them of saved steps."""
        num_saved, read = 0, 0
        for code in _CODE.finditer(letters):
            if code.start() != read:
                break
            read, number = code.end(), _number(code[1])
            if number >= len(cited) + num_saved:
                raise ProofTextError(f"{code[1]!r} is no label and no saved step")
            step = cited[number] if number < len(cited) else number - len(cited)
            yield ProofStep(step, bool(code[2]))
            num_saved += bool(code[2])
        if read != len(letters):
            raise ProofTextError(
                f"{clipped(letters[read:], 20)!r} is no step of a compressed proof"
            )

    def _cited(self, name: str, theorem: Assertion) -> Hypothesis | Assertion:
        found = self.assertions.get(name) or self.hypotheses.get(name)
        if found is None:
            raise ProofTextError(f"there is no label {clipped(name, 80)!r}")
        if found.position >= theorem.position:
            raise ProofTextError(f"{name} does not stand before it")
        if self.ends.get(name, theorem.position) < theorem.position:
            raise ProofTextError(f"the scope of {name} has ended")
        return found


@lru_cache(1 << 14)
def _number(code: str) -> int:
    """A number of a compressed proof, from 0: the last digit in base 20, those before it in base 5."""
    number = 0
    for digit in code[:-1]:
        number = number * 5 + ord(digit) - ord("T")
    return number * 20 + ord(code[-1]) - ord("A")


@dataclass
class _Scope:
    """What ends with ``$}``; what is active in the scope around it is in the first two fields, too."""

    essential: tuple[Hypothesis, ...] = ()
    disjoint: frozenset[Pair] = frozenset()
    variables: list[str] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


class _Reader:
    """Builds a database from the statements of its text."""

    def __init__(self, folder: Path | None) -> None:
        self.database = MetamathDatabase()
        self.outer: list[_Scope] = []
        self._folder, self._included = folder, set[str]()
        self._scope, self._constants = _Scope(), set[str]()
        self._variables, self._floating = set[str](), dict[str, Hypothesis]()
        self._position = self._num_chars = 0

    def include(self, name: str) -> None:
        """Read a file once: a second inclusion, also of a file by itself, says nothing (section 4.1.2)."""
        if self._folder is None:
            raise ProofTextError(f"the text includes {clipped(name, 80)!r}", "read it from a file")
        if name in self._included:
            return
        path = self._folder / name
        if Path(name).name != name or path.resolve().parent != self._folder.resolve():
            raise ProofTextError(f"{clipped(name, 80)!r} does not lie beside the database")
        if len(self._included) >= MAX_INCLUDED or self.outer:
            raise ProofTextError(f"{name!r} is included in a scope, or is one too many")
        self._included.add(name)
        try:
            if path.stat().st_size > MAX_DATABASE_CHARS:
                raise ProofTextError(f"{name!r} is too large")
            text = path.read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ProofTextError(f"{name!r} can't be read: {error}") from error
        self.read(text)

    def read(self, text: str) -> None:
        """Add the statements of a text."""
        self._num_chars += len(text)
        if self._num_chars > MAX_DATABASE_CHARS:
            raise ProofTextError(f"the database has more than {MAX_DATABASE_CHARS} characters")
        if (foreign := _FOREIGN.search(text)) is not None:
            raise ProofTextError(f"{foreign[0]!r} can't stand in a database")
        self.database.discouraged.update(_DISCOURAGED.findall(text))
        text, end = _uncommented(text), 0
        while (read := _STATEMENT.match(text, end)) is not None:
            end = read.end()
            if read["brace"] == "{":
                self.outer.append(self._scope)
                self._scope = _Scope(self._scope.essential, self._scope.disjoint)
            elif read["brace"]:
                self._leave()
            elif read["file"]:
                self.include(read["file"])
            else:
                self._add(read["kind"], read["label"] or "", read["body"].split(), read["proof"])
        if rest := text[end : end + 200].strip():
            raise ProofTextError(f"this is no statement: {clipped(rest, 80)!r}")

    def _leave(self) -> None:
        if not self.outer:
            raise ProofTextError("$} closes no scope")
        self.database.ends.update(dict.fromkeys(self._scope.labels, self._position))
        self._variables.difference_update(self._scope.variables)
        for one in self._scope.typed:
            del self._floating[one]
        self._scope = self.outer.pop()

    def _add(self, kind: str, label: str, symbols: list[str], proof: str | None) -> None:
        """Add a statement of any kind but scopes and inclusions."""
        where = f"{clipped(label, 80)} ${kind}".strip()
        if bool(label) != (kind in "feap") or (proof is None) != (kind != "p"):
            raise ProofTextError(f"{where}: a label or a proof is missing, or is one too many")
        try:
            if kind in "cv":
                self._declare(kind, symbols)
            elif kind == "d":
                self._keep_apart(symbols)
            else:
                self._label(label)
                self._assert(kind, label, symbols, proof)
        except ProofTextError as error:
            raise ProofTextError(f"{where}: {error}") from error

    def _declare(self, kind: str, symbols: list[str]) -> None:
        if not symbols or (kind == "c" and self.outer):
            raise ProofTextError("no symbol is declared, or a constant in a scope")
        for one in symbols:
            if (
                one in self._constants
                or one in self._variables
                or (kind == "c" and one in self.database.variables)
            ):
                raise ProofTextError(f"{one!r} is declared already")
            if one in self.database.assertions or one in self.database.hypotheses:
                raise ProofTextError(f"{one!r} is a label")
            if kind == "c":
                self._constants.add(one)
            else:
                self._scope.variables.append(one)
                self._variables.add(one)
                self.database.variables.add(one)

    def _keep_apart(self, symbols: list[str]) -> None:
        if len(symbols) < 2 or len(set(symbols)) < len(symbols):
            raise ProofTextError("it needs two or more variables, each once")
        if strange := set(symbols) - self._variables:
            raise ProofTextError(f"{min(strange)!r} is no variable")
        if len(symbols) > MAX_TOGETHER:
            raise ProofTextError(f"it has more than {MAX_TOGETHER} variables")
        self._scope.disjoint |= {ordered(*pair) for pair in combinations(symbols, 2)}

    def _label(self, label: str) -> None:
        if _LABEL.match(label) is None:
            raise ProofTextError("this is no label")
        taken = (self.database.assertions, self.database.hypotheses, self._constants)
        if any(label in one for one in (*taken, self.database.variables)):
            raise ProofTextError("the label is taken")
        self._position += 1

    def _assert(self, kind: str, label: str, symbols: list[str], proof: str | None) -> None:
        """Add a hypothesis or an assertion."""
        scope, expression = self._scope, "".join(f"{one} " for one in symbols)
        if not symbols or symbols[0] not in self._constants:
            raise ProofTextError("it does not start with a constant")
        if kind == "f":
            if len(symbols) != 2 or symbols[1] not in self._variables:
                raise ProofTextError("it is no typecode and variable")
            if symbols[1] in self._floating:
                raise ProofTextError(f"{symbols[1]!r} has a type already")
            scope.typed.append(symbols[1])
            self._floating[symbols[1]] = self._hypothesis(label, expression, True)
            return
        known = self._floating
        if strange := {one for one in symbols if one not in self._constants and one not in known}:
            raise ProofTextError(f"{min(strange)!r} is not declared, or has no type")
        if kind == "e":
            if len(scope.essential) >= MAX_TOGETHER:
                raise ProofTextError(f"more than {MAX_TOGETHER} are active at once")
            scope.essential += (self._hypothesis(label, expression, False),)
            return
        used = set(symbols).union(*(one.expression.split() for one in scope.essential))
        types = [known[one] for one in used if one in known]
        mandatory = sorted([*types, *scope.essential], key=lambda one: one.position)
        self.database.assertions[label] = Assertion.make(
            label, mandatory, expression, scope.disjoint, proof=proof, position=self._position
        )

    def _hypothesis(self, label: str, expression: str, floating: bool) -> Hypothesis:
        one = Hypothesis(label, expression, floating, self._position)
        self.database.hypotheses[label] = one
        self._scope.labels.append(label)
        return one


def _uncommented(text: str) -> str:
    """A text with a space for each comment."""
    kept, at = [], 0
    while (start := text.find("$(", at)) >= 0:
        end = text.find("$)", start)
        if end < 0:
            raise ProofTextError("a comment $( is not closed", "write $) where it ends")
        inside, around = (
            text[start + 2 : end],
            text[max(0, start - 1) : start] + text[end + 2 : end + 3],
        )
        if "$(" in inside or not (inside[:1] + inside[-1:] + around + " ").isspace():
            raise ProofTextError(
                f"the comment {clipped(inside.strip(), 60)!r} is nested, or lacks spaces"
            )
        kept += [text[at:start], " "]
        at = end + 2
    return "".join([*kept, text[at:]])
