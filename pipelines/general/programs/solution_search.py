"""Solutions that search: slots in order, rules as functions, and one fixed search over them.

The emitted file registers data: ``slot`` (its choices, given earlier slots), ``rule`` (a function over the
values of some slots) and ``at_most`` (a bound on what slots cost together). ``SEARCH`` runs over it: the
same text in every solution.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from types import MappingProxyType
from typing import NamedTuple

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Choice, Clause, Intervals, IntRange, Node, Problem, Query, Slot
from envgen.pipelines.general.programs.emit import WIDTH, comment, python_literal
from envgen.pipelines.general.programs.python_text import (
    masked,
    python_lines,
    statement_lines,
)
from envgen.pipelines.general.programs.solution_expressions import (
    AND,
    MUL,
    Context,
    Variable,
    emit,
    solid,
    truth_text,
)
from envgen.pipelines.general.programs.solution_reads import Pin
from envgen.pipelines.general.semantics.evaluate import expr_type
from envgen.pipelines.general.semantics.rewrite import (
    compares_slots,
    implied_pairs,
    pairwise,
    slots_of,
    stated,
    summands,
)
from envgen.pipelines.general.words.lexicon import outline

SLOT = '''def slot(choices, *reads):
    """The number of a new slot; ``choices`` gives its values from those of the slots it reads."""
    SLOTS.append((choices, reads))
    return len(SLOTS) - 1'''
# ``search`` remembers its failures by the earlier slots that matter to the open ones, with the sums spent:
# with as much or more spent it must fail again. So items that don't touch each other are not searched anew
# for every choice of the others. This stays true while ``solve`` asks for better answers, as it only lowers
# the bound.
SEARCH = '''USES = [(tuple(reads), holds) for uses, holds in RULES for reads in uses]
COSTS = [[(tuple(i), cost) for uses, cost in costs for i in uses] for costs, bound in BOUNDS]
READS = [reads for reads, holds in USES] + [SLOTS[i][1] + (i,) for i in range(len(SLOTS))]
READS += [reads for costs in COSTS for reads, cost in costs]


def options_of(i, *given):
    """The choices of a slot, the cheapest first; all there may be if it reads an open slot."""
    choices, reads = SLOTS[i]
    known = [given] if len(given) == len(reads) else product(*[options(j) for j in reads])
    found = [choice for values in known for choice in choices(*values)]
    terms = [cost for costs in COSTS for reads, cost in costs if reads == (i,)]
    return sorted(found, key=lambda choice: [cost(choice) for cost in terms])


def least_of(cost, reads, *known):
    """The least that a cost over some slots can be, given pairs of slots and their values."""
    given = dict(known)
    each = [
        [given[j]] if j in given else options(j, *[given[k] for k in SLOTS[j][1] if k in given])
        for j in reads
    ]
    rules = [rule for rule in USES if len(reads) > 1 and set(rule[0]) <= set(reads)]
    found = [dict(zip(reads, values)) for values in product(*each)]
    fit = [x for x in found if all(holds(*[x[j] for j in slots]) for slots, holds in rules)]
    return min([cost(*x.values()) for x in fit], default=0)


# Of a slot: its choices, the rules that it completes, the earlier slots that matter, its cost.
options = remembered(options_of)
due = remembered(lambda i: [(reads, holds) for reads, holds in USES if max(reads, default=0) == i])
seen = remembered(lambda i: [j for j in range(i) if any(j in r and max(r) >= i for r in READS)])
least = remembered(least_of)


def spent(costs, values):
    """What the chosen slots cost, and the open ones at least."""
    n, total = len(values), 0
    for reads, cost in costs:
        if max(reads) < n:
            total += cost(*[values[j] for j in reads])
            continue
        needed = [j for i in reads for j in list(SLOTS[i][1]) + [i] if j < n]
        total += least(cost, reads, *[(j, values[j]) for j in needed])
    return total


def search(values):
    """``values`` and one for each open slot so that all rules hold; None if there are none."""
    i, sums = len(values), [spent(costs, values) for costs in COSTS]
    failed = FAILED.setdefault((i, tuple([values[j] for j in seen(i)])), [])
    over = any(total > bound for total, (costs, bound) in zip(sums, BOUNDS))
    if over or any(all(a >= b for a, b in zip(sums, old)) for old in failed):
        return None
    if i == len(SLOTS):
        return values
    for choice in options(i, *[values[j] for j in SLOTS[i][1]]):
        tried = values + [choice]
        if all(holds(*[tried[j] for j in reads]) for reads, holds in due(i)):
            found = search(tried)
            if found is not None:
                return found
    failed.append(sums)
    return None'''
SPANS = '''def spans(low, high, step, length):
    """The intervals of this length on a grid, as pairs of start and end."""
    return [(start, start + length) for start in range(low, high - length + 1, step)]'''
SUBSETS = '''def subsets(rows, least, most):
    """All subsets of ``rows`` with at least and at most so many members; None is any number."""
    sizes = range(least, (len(rows) if most is None else most) + 1)
    return [chosen for size in sizes for chosen in combinations(rows, size)]'''
DIFFERENT = ("one", "other")
"""Arguments of the rule that two slots differ."""


# --- the problem, taken apart --------------------------------------------------------------


class _Rule(NamedTuple):
    """A part of a clause: a condition over a few slots, in the order of the problem."""

    clause: str
    expr: Node
    slots: tuple[str, ...]


_Terms = dict[tuple[str, ...], list[tuple[int, str]]]
"""Slots -> the signed terms that read them."""
_Doubts = dict[tuple[str, ...], list[str]]
"""Slots -> what may be unknown in their terms."""


class _Link(NamedTuple):
    """``column`` of the row of ``child`` equals ``value``, which reads other slots only."""

    child: str
    column: str
    value: Node
    rule: _Rule


class _SlotPlan:
    """The rules of a problem, which of them link slots, and the order in which slots are chosen."""

    def __init__(self, p: Problem, extra: Sequence[Node]) -> None:
        self.p = p
        parts = [(clause.id, part) for clause in p.clauses for part in pairwise(stated(clause))]
        parts += [("goal", part) for node in extra for part in pairwise(node)]
        rules = [_Rule(clause, part, self.ordered(slots_of(part))) for clause, part in parts]
        self.links = [link for rule in rules if (link := self._as_link(rule)) is not None]
        self.rules = _without_implied(rules, self.links)
        self.parents: dict[str, set[str]] = {slot.name: set() for slot in p.slots}
        for link in self.links:
            self.parents[link.child] |= slots_of(link.value)
        self.heads = frozenset[str]()
        """The slots that are chosen before all others; empty where there are none such."""
        self.order = self._order()

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """``names`` in the order of the problem."""
        return tuple(slot.name for slot in self.p.slots if slot.name in set(names))

    def _as_link(self, rule: _Rule) -> _Link | None:
        expr = rule.expr
        if not isinstance(expr, ir.Cmp) or expr.fn != "=":
            return None
        for get, value in ((expr.left, expr.right), (expr.right, expr.left)):
            if not isinstance(get, ir.Get) or not isinstance(get.entity, ir.SlotRef):
                continue
            slot, key = self.p.slot(get.entity.slot), self.p.relation(get.relation).key
            if slot.kind == "entity" and isinstance(slot.domain, Query):
                own = slot.domain.relation == get.relation and slot.name not in slots_of(value)
                if own and get.column != key:
                    return _Link(slot.name, get.column, value, rule)
        return None

    def _order(self) -> list[str]:
        """Groups (a city and what must lie in it) by how many rules bind them; within one, greedily.

        Groups of slots that are alike but for their number have one order, so that a loop makes them.
        The tightest group comes first, because a search that fails early fails cheaply.
        """
        groups: dict[str, set[str]] = {name: {name} for name in self.parents}
        for child, parents in self.parents.items():
            for parent in parents:
                merged = groups[child] | groups[parent]
                groups |= dict.fromkeys(merged, merged)
        members = list(dict.fromkeys(self.ordered(groups[name]) for name in self.parents))
        if len(members) == len(self.parents):
            members = [tuple(self.parents)]

        def tightness(names: tuple[str, ...]) -> int:
            return sum(len(r.slots) > 1 and set(r.slots) <= set(names) for r in self._checks())

        order: list[str] = []
        stems: dict[frozenset[str], list[str]] = {}
        for names in sorted(members, key=tightness, reverse=True):
            alike = frozenset(stem_of(name) for name in names)
            if len(alike) == len(names) and alike in stems:
                found = sorted(names, key=lambda name: stems[alike].index(stem_of(name)))
            else:
                found = self._greedy(names, set(order))
                stems[alike] = [stem_of(name) for name in found]
            order += found
        return self._heads_first(order, members) if self._weighed(members) else order

    def _weighed(self, groups: Sequence[tuple[str, ...]]) -> bool:
        """Whether a sum over several groups is compared with something."""
        sums = [
            r for r in self.rules if isinstance(r.expr, ir.Cmp) and r.expr.fn not in ("=", "!=")
        ]
        return any(sum(not set(r.slots).isdisjoint(g) for g in groups) > 1 for r in sums)

    def _heads_first(self, order: list[str], groups: Sequence[tuple[str, ...]]) -> list[str]:
        """Before all others the slots that tell what the rest of their groups may be.

        Once all cities are known, what is open costs at least its cheapest choices *there*: only then
        does a bound on the sum stop a search early.
        """
        parents = set[str]().union(*self.parents.values())
        heads = [name for name in order if name in parents and not self.parents[name]]
        if len(heads) != len(groups):
            return order
        self.heads = frozenset(heads)
        return heads + [name for name in order if name not in heads]

    def _checks(self) -> list[_Rule]:
        linked = [link.rule for link in self.links]
        return [rule for rule in self.rules if rule not in linked]

    def _greedy(self, names: Sequence[str], done: set[str]) -> list[str]:
        """Parents first; then always the slot that lets most rules be checked."""
        left, order = list(names), []
        checks = self._checks()

        def gain(name: str) -> tuple[int, int, int]:
            touching = [rule for rule in checks if name in rule.slots]
            checked = sum(set(rule.slots) <= done | {name} for rule in touching)
            return checked, len(touching), -names.index(name)

        while left:
            ready = [name for name in left if not self.parents[name] & set(left) - {name}] or left
            best = max(ready, key=gain)
            order.append(best)
            done.add(best)
            left.remove(best)
        return order


def stem_of(name: str) -> str:
    """The name of a slot or parameter without its number."""
    return re.sub(r"(_?\d+)+$", "", name)


def _number_of(name: str) -> str:
    return name[len(stem_of(name)) :].strip("_")


def _without_implied(rules: list[_Rule], links: list[_Link]) -> list[_Rule]:
    """Rules without "hotel 1 is not hotel 2" where they lie in cities that must differ."""
    parents = {
        (link.child, link.column): link.value.slot
        for link in links
        if isinstance(link.value, ir.SlotRef)
    }
    pairs = {rule: frozenset(rule.slots) for rule in rules if compares_slots(rule.expr, "!=")}
    implied = implied_pairs(set(pairs.values()), parents)
    return [rule for rule in rules if pairs.get(rule) not in implied]


# --- source --------------------------------------------------------------------------------


class _Use(NamedTuple):
    """Slots that a function is used for, the clause that asks for it, and its text there."""

    clause: str
    slots: tuple[str, ...]
    body: str
    params: tuple[str, ...]
    """Parameters of the problem with the slots' numbers, which differ from use to use."""


class SearchWriter:
    """Writes the search of one problem.

    Args:
        scope: where its expressions stand.
        extra: conditions besides the clauses.
    """

    def __init__(self, scope: Context, extra: Sequence[Node]) -> None:
        self.scope, self.p, self.names = scope, scope.p, scope.names
        self.plan = _SlotPlan(self.p, extra)
        self.stems = [stem_of(name) for name in self.plan.order]
        series = [stem for stem in self.stems if self.stems.count(stem) > 1]
        self.series = {stem: self.names.new(stem.upper()) for stem in dict.fromkeys(series)}
        single = [name for name in self.plan.order if stem_of(name) not in self.series]
        self.constants = {name: self.names.new(name.upper()) for name in single}
        self.kept: list[_Rule] = []
        """Rules that choices keep by themselves."""

    def source(self) -> list[str]:
        """Functions of rules, and what ``SEARCH`` runs over: slots, ``RULES`` and ``BOUNDS``."""
        slots = self._slot_lines()
        left = [rule for rule in self.plan.rules if rule not in self.kept]
        last = self.p.giving_way
        left.sort(key=lambda rule: last is not None and rule.clause == last.id)
        bounds = {rule: text for rule in left if (text := self._bound(rule)) is not None}
        if last is not None and left[-1] not in bounds:
            bounds[left[-1]] = self._missed(last)
        factories, rules = self._rule_lines([rule for rule in left if rule not in bounds])
        stated = {rule.clause for rule in left}
        clauses = dict.fromkeys(rule.clause for rule in self.kept if rule.clause not in stated)
        about = [line for clause in clauses for line in self._sentence(clause)]
        lines = ["SLOTS, FAILED = [], {}", *about, *slots, *rules, *self._bound_lines(bounds)]
        return [*factories, "\n".join(lines)]

    def reference(self, name: str) -> str:
        """The number of a slot: ``CITY[1]``, or ``HOTEL`` where there is one only."""
        stem = stem_of(name)
        if stem in self.series:
            return f"{self.series[stem]}[{_number_of(name)}]"
        return self.constants[name]

    def _arguments(self, slots: Sequence[str]) -> dict[str, str]:
        """A name for the value of each slot: the last word of its own."""
        found: dict[str, str] = {}
        for slot in slots:
            word = stem_of(slot).split("_")[-1] or slot
            wishes = [word, "other", f"other_{word}"]
            wish = next((w for w in wishes if self.names.local(w) not in found.values()), word)
            found[slot] = self.names.local(wish, found.values())
        return found

    # --- slots -------------------------------------------------------------------------------

    def _slot_lines(self) -> list[str]:
        values = ", ".join(["{}"] * len(self.series))
        lines = [f"{', '.join(self.series.values())} = {values}"] if self.series else []
        done: list[str] = []
        blocks: list[str] = []
        for _, block in groupby(self.plan.order, lambda name: _number_of(name) or name):
            texts = []
            for name in block:
                texts.append(self._slot_text(self.p.slot(name), done))
                done.append(name)
            blocks.append("\n".join(texts))
        for _, alike in groupby(blocks, masked):
            lines += statement_lines(list(alike), self.names)
        return lines

    def _slot_text(self, slot: Slot, done: Sequence[str]) -> str:
        choices, reads = self.choices(slot, done)
        parts = ", ".join([choices, *(self.reference(name) for name in reads)])
        return f"{self.reference(slot.name)} = slot({parts})"

    def choices(self, slot: Slot, done: Sequence[str]) -> tuple[str, list[str]]:
        """A function that lists the values of a slot, and the slots that it reads."""
        domain = slot.domain
        if isinstance(domain, Choice):
            return f"lambda: {python_literal(list(domain.values))}", []
        if isinstance(domain, IntRange):
            step = f", {domain.step}" if domain.step != 1 else ""
            return f"lambda: range({domain.low}, {domain.high} + 1{step})", []
        if isinstance(domain, Intervals):
            return f"lambda: spans({domain.low}, {domain.high}, {domain.step}, {domain.length})", []
        if slot.kind not in ("entity", "set") or domain.select is not None:
            raise PipelineError(f"a solution can't search the {slot.kind} slot {slot.name!r}")
        if slot.kind == "set":
            return self._subsets(slot, domain.relation, done)
        return self._rows(slot, domain.relation, done)

    def _rows(self, slot: Slot, relation: str, done: Sequence[str]) -> tuple[str, list[str]]:
        links: dict[str, _Link] = {}
        for link in self.plan.links:
            if link.child == slot.name and slots_of(link.value) <= set(done):
                links.setdefault(link.column, link)
        parents = [name for name in done if any(name in slots_of(x.value) for x in links.values())]
        scope = replace(self.scope, slots=self._arguments(parents))
        pins = {}
        for column, link in links.items():
            value = emit(link.value, scope).value()
            pins[column] = Pin(value.text, known=not value.nullable, solid=solid(link.value, scope))
        key = self.p.relation(relation).key
        row = self.names.local("row", scope.taken)
        scan = scope.reads.scan(relation, {key}, pins, row, scope.taken)
        used = [link for column, link in links.items() if column in scan.pinned]
        self.kept += [link.rule for link in used]
        reads = [name for name in parents if any(name in slots_of(link.value) for link in used)]
        arguments = ", ".join(scope.slots[name] for name in reads)
        loader = re.fullmatch(r"for (\w+) in (\w+)\((.*)\)", " ".join(scan.loops))
        if loader and scan.columns[key] == loader[1] and loader[3] == arguments:
            return loader[2], reads
        listed = f"[{scan.columns[key]} {' '.join(scan.loops)}]"
        return _lambda([scope.slots[name] for name in reads], listed), reads

    def _subsets(self, slot: Slot, relation: str, done: Sequence[str]) -> tuple[str, list[str]]:
        """Subsets of the rows that keep the rules on each member alone."""
        each: list[ir.All] = []
        for rule in self.plan.rules:
            expr = rule.expr
            if isinstance(expr, ir.All) and expr.over == ir.SlotRef(slot=slot.name):
                if slots_of(expr.body) <= set(done):
                    each.append(expr)
                    self.kept.append(rule)
        reads = [name for name in done if any(name in slots_of(expr.body) for expr in each)]
        scope = replace(self.scope, slots=self._arguments(reads))
        key, row = self.p.relation(relation).key, self.names.local("row", scope.taken)
        scan = scope.reads.scan(relation, {key}, {}, row, scope.taken)
        member = Variable(scan.columns[key])
        tests = [emit(expr.body, scope.bind(expr.var, member), True).at(AND) for expr in each]
        only = f" if {' and '.join(tests)}" if tests else ""
        rows = f"[{scan.columns[key]} {' '.join(scan.loops)}{only}]"
        return _lambda(
            list(scope.slots.values()), f"subsets({rows}, {slot.least}, {slot.length})"
        ), reads

    # --- rules -------------------------------------------------------------------------------

    def _functions(self, rules: Iterable[_Rule]) -> Iterator[tuple[tuple[str, ...], list[_Use]]]:
        """The rules as functions: arguments and uses. Those that read alike are one."""
        parts: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
        for rule in rules:
            parts.setdefault((rule.clause, rule.slots), []).append(rule.expr)
        found: dict[tuple[tuple[str, ...], str], list[_Use]] = {}
        for (clause, slots), exprs in parts.items():
            names = self._arguments(slots)
            if len(exprs) == 1 and compares_slots(exprs[0], "!="):
                names = dict(zip(slots, DIFFERENT, strict=True))
            body = truth_text(ir.And(items=tuple(exprs)), replace(self.scope, slots=names))
            numbers = {number for slot in slots for number in _number_of(slot).split("_")} - {""}
            read = dict.fromkeys(re.findall(r'PARAMS\["(\w+)"\]', body))
            params = tuple(x for x in read if set(_number_of(x).split("_")) <= numbers)
            text = body
            for i, param in enumerate(params):
                text = text.replace(f'PARAMS["{param}"]', f"\0{i}")
            if body != "True":
                use = _Use(clause, slots, body, params)
                found.setdefault((tuple(names.values()), text), []).append(use)
        return ((arguments, uses) for (arguments, _), uses in found.items())

    def _rule_lines(self, rules: Iterable[_Rule]) -> tuple[list[str], list[str]]:
        """Functions that are given parameters, and ``RULES``: sentences, each with its rules."""
        factories: list[str] = []
        lines, written = ["RULES = ["], set[str]()
        for arguments, uses in self._functions(rules):
            for clause in dict.fromkeys(use.clause for use in uses if use.clause not in written):
                lines += self._sentence(clause, 4)
                written.add(clause)
            by_params: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
            for use in uses:
                by_params.setdefault(use.params, []).append(use.slots)
            holds = _lambda(arguments, uses[0].body)
            if len(by_params) == 1:
                lines += self._entry(holds, next(iter(by_params.values())))
                continue
            name, text = self._factory(uses[0], holds)
            factories.append(text)
            for params, slots in by_params.items():
                given = ", ".join(f'PARAMS["{param}"]' for param in params)
                lines += self._entry(f"{name}({given})", slots)
        return factories, [*lines, "]"] if len(lines) > 1 else ["RULES = []"]

    def _factory(self, use: _Use, text: str) -> tuple[str, str]:
        """The name and text of a function that gives the rule ``text`` for other parameters."""
        given: list[str] = []
        for param in use.params:
            names = re.findall(r'(?<!")\b\w+', text)
            given.append(self.names.local(stem_of(param), names))
            text = text.replace(f'PARAMS["{param}"]', given[-1])
        name = self.names.new(stem_of(use.clause))
        lines = [f"def {name}({', '.join(given)}):", *python_lines(text, 4, "return ")]
        return name, "\n".join(lines)

    def _entry(self, holds: str, slots: list[tuple[str, ...]]) -> list[str]:
        head, body = f"({self._uses(slots)},", f" {holds}),"
        header, colon, value = holds.partition(": ")
        if len(head + body) + 4 <= WIDTH:
            return [f"    {head}{body}"]
        if colon and len(head + header) + 6 <= WIDTH:
            return [f"    {head} {header}:", *python_lines(value, 8, after="),", inside=True)]
        lines = python_lines(head[1:-1], 5, after=",", inside=True)
        return [
            "    (" + lines[0][5:],
            *lines[1:],
            *python_lines(holds, 5, after="),", inside=True),
        ]

    def _uses(self, slots: Iterable[tuple[str, ...]]) -> str:
        """The slots of each use; in short where they are all slots of a series."""
        by_stems: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for one in slots:
            by_stems.setdefault(tuple(map(stem_of, one)), []).append(one)
        parts: list[str] = []
        listed: list[str] = []
        for stems, alike in by_stems.items():
            if text := self._whole_series(stems, alike):
                parts.append(text)
            else:
                listed += [f"[{', '.join(map(self.reference, one))}]" for one in alike]
        return " + ".join([*parts, f"[{', '.join(listed)}]"] if listed else parts)

    def _whole_series(self, stems: tuple[str, ...], slots: list[tuple[str, ...]]) -> str:
        """``slots`` as all pairs of a series, or as slots of equal number of all; else nothing."""
        if not stems or not set(stems) <= set(self.series) or len(slots) == 1:
            return ""
        series = [[name for name in self.plan.order if stem_of(name) == stem] for stem in stems]
        values = [f"{self.series[stem]}.values()" for stem in stems]
        if len(set(stems)) == len(stems) and sorted(zip(*series, strict=False)) == sorted(slots):
            return f"list(zip({', '.join(values)}))"
        if len(stems) == 2 and sorted(combinations(series[0], 2)) == sorted(slots):
            return f"list(combinations({values[0]}, 2))"
        return ""

    def _sentence(self, clause: str, indent: int = 0) -> list[str]:
        rules: dict[str, Clause | ir.Equals | ir.Optimise] = {r.id: r for r in self.p.clauses}
        if isinstance(self.p.goal, ir.Equals | ir.Optimise):
            rules["goal"] = self.p.goal
        text = outline(self.p.lexicon, rules[clause]) if clause in rules else ""
        return comment(text, indent) if text else []

    # --- sums --------------------------------------------------------------------------------

    def _bound_lines(self, bounds: Mapping[_Rule, str]) -> list[str]:
        """``BOUNDS``: each of functions of what a slot costs, with their slots, and the bound.

        What is to be best stands last, with a bound that grows tighter.
        """
        lines = []
        for rule, text in bounds.items():
            lines += [*self._sentence(rule.clause, 4), *python_lines(text, 4, after=",")]
        if isinstance(self.p.goal, ir.Optimise):
            text = self._objective(self.p.goal)
            lines += [*self._sentence("goal", 4), *python_lines(text, 4, after=",")]
        return ["BOUNDS = [", *lines, "]"] if lines else ["BOUNDS = []"]

    def _bound(self, rule: _Rule) -> str | None:
        """A sum of what slots add, with its bound; None if it is none.

        Each part of it reads one slot, two of one item, or two that are chosen before all others.
        """
        expr = rule.expr
        if not isinstance(expr, ir.Cmp) or expr.fn not in ("<", "<=", ">", ">="):
            return None
        if expr_type(expr.left, self.p, {}) != "int":
            return None  # dates are texts: they compare, but don't add up
        flip = 1 if expr.fn in ("<", "<=") else -1
        bound: list[tuple[int, str]] = [(-1, "1")] if expr.fn in ("<", ">") else []
        costs: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for sign, node in [*summands(expr.left, flip), *summands(expr.right, -flip)]:
            slots = self.plan.ordered(slots_of(node))
            value = emit(node, replace(self.scope, slots=self._arguments(slots)))
            apart = len(set(map(_number_of, slots))) > 1 and not self.plan.heads.issuperset(slots)
            if len(slots) > 2 or apart or value.doubts:
                return None
            if slots:
                costs.setdefault(slots, []).append((sign, value.at(MUL)))
            else:
                bound.append((-sign, value.at(MUL)))
        if len(costs) < 2 or (len(bound) > 1 and all(text.isdigit() for _, text in bound)):
            return None  # sums of constants alone are no part of the language
        return self._summed(costs, _signed(bound))

    def _objective(self, goal: ir.Optimise) -> str:
        """What is to be best, as a sum of what slots add: the less, the better."""
        costs, doubts, _ = self._terms(goal.expr, 1 if goal.sense == "min" else -1)
        return self._summed(costs, "LARGE", doubts)

    def _missed(self, rule: Clause) -> str:
        """What a rule bounds that gives way, in the same form, and its bound."""
        expr, own = rule.expr, ir.Param(name=str(rule.gives_way))
        assert isinstance(expr, ir.Cmp)
        sign = 1 if (expr.fn in ("<", "<=")) == (expr.right == own) else -1
        costs, doubts, rest = self._terms(expr.left if expr.right == own else expr.right, sign)
        bound = [(sign, emit(own, self.scope).at(MUL)), *rest]
        bound += [(-1, "1")] if expr.fn in ("<", ">") else []
        return self._summed(costs, _signed(bound), doubts)

    def _terms(self, measure: Node, sign: int) -> tuple[_Terms, _Doubts, list[tuple[int, str]]]:
        """The signed parts of a sum by the slots that they read, what may be unknown in them, and the rest.

        Raises:
            PipelineError: if a summand reads more than two slots, or one that reads none may be unknown.
        """
        costs: _Terms = {}
        doubts: _Doubts = {}
        rest: list[tuple[int, str]] = []
        for one, node in summands(measure, sign):
            slots = self.plan.ordered(slots_of(node))
            value = emit(node, replace(self.scope, slots=self._arguments(slots)))
            if len(slots) > 2 or (value.doubts and not slots):
                raise PipelineError(
                    f"no solution finds the best value: a part of the sum reads {len(slots)} slots",
                    "let each part of the sum read one or two slots",
                )
            if slots:
                costs.setdefault(slots, []).append((one, value.at(MUL)))
                doubts.setdefault(slots, []).extend(value.doubts)
            else:
                rest.append((-one, value.at(MUL)))
        return costs, doubts, rest

    def _summed(
        self,
        costs: Mapping[tuple[str, ...], list[tuple[int, str]]],
        bound: str,
        doubts: Mapping[tuple[str, ...], list[str]] = MappingProxyType({}),
    ) -> str:
        """An entry of ``BOUNDS``: those that cost alike share a function. What is unknown is too much."""
        alike: dict[str, list[tuple[str, ...]]] = {}
        for slots, terms in costs.items():
            text = _signed(terms)
            if known := [f"{doubt} is not None" for doubt in dict.fromkeys(doubts.get(slots, ()))]:
                text = f"{text} if {' and '.join(known)} else 2 * LARGE"
            cost = _lambda(tuple(self._arguments(slots).values()), text)
            alike.setdefault(cost, []).append(slots)
        pairs = [f"({self._uses(slots)}, {cost})" for cost, slots in alike.items()]
        return f"([{', '.join(pairs)}], {bound})"


def _lambda(arguments: Sequence[str], body: str) -> str:
    return f"lambda {', '.join(arguments)}: {body}" if arguments else f"lambda: {body}"


def _signed(terms: list[tuple[int, str]]) -> str:
    """The sum of signed terms, those that are added first."""
    terms = sorted(terms, key=lambda term: -term[0])
    text = " ".join(f"{'+' if sign > 0 else '-'} {term}" for sign, term in terms)
    return text.removeprefix("+ ").replace("- ", "-", 1) if text[:1] == "-" else text[2:] or "0"
