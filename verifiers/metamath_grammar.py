"""Read expressions of Metamath as trees: the syntax axioms of a database are a grammar.

Memoised recursive descent. A rule that starts with its own type is tried once at a place; set.mm has none.
Of an ambiguous expression the first tree is taken; those of set.mm are not ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envgen.verifiers.metamath_kernel import Assertion, Hypothesis
from envgen.verifiers.proof_verdict import ProofTextError, clipped

MAX_SYMBOLS = 1_000
MAX_NESTED = 150
MAX_KEPT = 1_000
"""Trees that are kept: a proof that grows by a step is read again from its start."""
MAX_TRIES = 200_000
"""Rules and parts of rules that are tried for one expression."""


class Tree(NamedTuple):
    """An expression as it is built."""

    label: str
    """Of a syntax axiom, or of the ``$f`` of a variable."""
    typecode: str
    body: str
    """Its symbols after the typecode, each with a space."""
    args: tuple[Tree, ...] = ()
    """What stands for the axiom's variables, in the order of its mandatory hypotheses."""

    def labels(self) -> Iterator[str]:
        """The proof that it is well formed, as labels in reverse Polish order."""
        for one in self.args:
            yield from one.labels()
        yield self.label


class _SyntaxRule(NamedTuple):
    """A syntax axiom: constants, and variables as numbers of its hypotheses."""

    axiom: Assertion
    items: tuple[str | int, ...]


class _Derived(NamedTuple):
    """What a rule, or a part of it, may stand for."""

    args: tuple[Tree, ...]
    end: int


class Grammar:
    """The syntax of a theory.

    Args:
        variables: the ``$f`` of each variable.
        axioms: the syntax axioms; those with ``$e`` are no rules.
    """

    def __init__(self, variables: Iterable[Hypothesis], axioms: Iterable[Assertion]) -> None:
        self.variables: dict[str, Tree] = {}
        for one in variables:
            typecode, symbol = one.expression.split()
            self.variables[symbol] = Tree(one.label, typecode, symbol + " ")
        self._read: dict[tuple[str, str], Tree] = {}
        self.rules: dict[tuple[str, str], list[_SyntaxRule]] = {}
        for axiom in axioms:
            typecode, *symbols = axiom.expression.split()
            if not axiom.essential and symbols:
                numbers = {one.variable: at for at, one in enumerate(axiom.hypotheses)}
                first = "" if symbols[0] in numbers else symbols[0]
                items = tuple(numbers.get(symbol, symbol) for symbol in symbols)
                self.rules.setdefault((typecode, first), []).append(_SyntaxRule(axiom, items))
        types = [one.typecode for one in self.variables.values()]
        self.typecodes = tuple(dict.fromkeys([*types, *(typecode for typecode, _ in self.rules)]))

    def parse(self, body: str, typecode: str) -> Tree:
        """The tree of an expression of a type.

        Raises:
            ProofTextError: if it is none, too long, or nested too deeply.
        """
        if (body, typecode) in self._read:
            return self._read[body, typecode]
        symbols = body.split()
        if len(symbols) > MAX_SYMBOLS:
            raise ProofTextError(f"{clipped(body, 60)!r} has {len(symbols)} symbols", "be shorter")
        for part in _Parse(self, symbols).derive(typecode, 0):
            if part.end == len(symbols):
                if len(self._read) >= MAX_KEPT:
                    self._read.clear()
                return self._read.setdefault((body, typecode), part.args[0])
        raise ProofTextError(f"{clipped(body.strip(), 200)!r} is no {typecode}")

    def parse_statement(self, expression: str) -> Tree:
        """The tree of what stands after a typecode like ``|-``, which no variable has."""
        typecode, _, body = expression.partition(" ")
        refused: list[ProofTextError] = []
        for one in (typecode,) if typecode in self.typecodes else self.typecodes:
            try:
                return self.parse(body, one)
            except ProofTextError as error:
                refused.append(error)
        raise refused[0] if refused else ProofTextError("the theory has no syntax")

    def match(self, pattern: Tree, tree: Tree, bound: dict[str, Tree]) -> bool:
        """Whether a tree is the pattern with trees for its variables; ``bound`` has them, and grows."""
        if pattern.typecode != tree.typecode:
            return False
        if self.variables.get(symbol := pattern.body[:-1]) == pattern:
            return bound.setdefault(symbol, tree).body == tree.body
        return pattern.label == tree.label and all(
            self.match(one, other, bound)
            for one, other in zip(pattern.args, tree.args, strict=True)
        )


class _Parse:
    """One expression, and what was found in it."""

    def __init__(self, grammar: Grammar, symbols: list[str]) -> None:
        self._grammar, self._symbols = grammar, symbols
        self._found: dict[tuple[str, int], list[_Derived]] = {}
        self._depth = self._tries = 0

    def derive(self, typecode: str, at: int) -> list[_Derived]:
        """The trees of a type that start at a place, one in the ``args`` of each part."""
        if (typecode, at) in self._found:
            return self._found[typecode, at]
        found = self._found[
            typecode, at
        ] = []  # what is in progress is nothing: no endless recursion
        if at == len(self._symbols):
            return found
        self._depth += 1
        if self._depth > MAX_NESTED:
            raise ProofTextError("the expression is nested too deeply")
        symbol, rules = self._symbols[at], self._grammar.rules
        parts = []
        if (leaf := self._grammar.variables.get(symbol)) and leaf.typecode == typecode:
            parts.append(_Derived((leaf,), at + 1))
        for rule in (*rules.get((typecode, symbol), ()), *rules.get((typecode, ""), ())):
            for part in self._apply(rule, at):
                body = "".join(f"{one} " for one in self._symbols[at : part.end])
                parts.append(
                    _Derived((Tree(rule.axiom.label, typecode, body, part.args),), part.end)
                )
        self._depth -= 1
        found += parts
        return found

    def _apply(self, rule: _SyntaxRule, at: int) -> Iterator[_Derived]:
        """The ways in which a rule fits at a place."""
        hypotheses = rule.axiom.hypotheses
        ends: list[tuple[dict[int, Tree], int]] = [({}, at)]
        for item in rule.items:
            after: list[tuple[dict[int, Tree], int]] = []
            for trees, end in ends:
                self._tries += 1
                if self._tries > MAX_TRIES:
                    raise ProofTextError("the expression takes too long to read")
                if isinstance(item, str):
                    if self._symbols[end : end + 1] == [item]:
                        after.append((trees, end + 1))
                    continue
                for part in self.derive(hypotheses[item].expression.split()[0], end):
                    if trees.get(item, part.args[0]).body == part.args[0].body:
                        after.append(({**trees, item: part.args[0]}, part.end))
            ends = after
        for trees, end in ends:
            yield _Derived(tuple(trees[number] for number in range(len(hypotheses))), end)
