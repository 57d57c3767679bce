"""Solutions that search: one function per slot, each rule checked as soon as it can be.

Sums are carried along and cut off by the least that the open slots can add. A state that failed is
remembered by what the rest can still see of it, so that nothing is searched twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Choice, Intervals, IntRange, Node, Problem, Query, Slot
from envgen.pipelines.general.emit import (
    Block,
    Doc,
    call,
    flat,
    glued,
    if_line,
    layout_text,
    line_of,
    python_literal,
)
from envgen.pipelines.general.names import Names
from envgen.pipelines.general.solution_answer import answer_doc, state_doc
from envgen.pipelines.general.solution_data import Data, Pin
from envgen.pipelines.general.solution_expr import Item, Scope, emit, needs_of, solid
from envgen.pipelines.general.solution_plan import (
    Linear,
    Link,
    Plan,
    Rule,
    Term,
    make_plan,
    slots_of,
)

_FAILED_BEFORE = '''def failed_before(failed, state, sums):
    """Whether the rest failed in this state before, with sums that were no worse."""
    return any(all(a >= b for a, b in zip(sums, old)) for old in failed.get(state, []))'''

_SOLVE = '''def solve():
    """The answer, None if there is none."""
'''


@dataclass(frozen=True)
class _Choices:
    """The candidates of a slot as code, the slot's item, and the rules that they satisfy by themselves."""

    source: Doc
    item: Item
    satisfied: frozenset[Rule]
    rows: Doc | None = None
    """For sets: the rows that they are drawn from, ``<slot>_rows``."""


class Search:
    """Builds the functions of one problem."""

    def __init__(self, p: Problem, data: Data, names: Names, extra: list[Node]) -> None:
        self.p, self.data, self.names = p, data, names
        self.plan: Plan = make_plan(p, extra)
        self.scope = Scope(p, data, names)
        self.order = [slot.name for slot in self.plan.order]
        self.variables = {name: names.new(name, local=True) for name in self.order}
        self.functions = {name: names.new(f"choose_{self.variables[name]}") for name in self.order}
        self.totals = {i: names.new(f"{linear.clause}_sum", local=True)
                       for i, linear in enumerate(self.plan.linears)}  # fmt: skip
        self.bounds: dict[str, str] = {}
        self.caches: list[str] = []
        self.remembers = False

    def source(self) -> list[str]:
        """The functions, ``solve`` last."""
        functions = []
        scope = self.scope
        self.scopes: list[Scope] = [scope]
        self.made: list[_Choices] = []
        for depth, slot in enumerate(self.plan.order):
            made = self._choices(slot, set(self.order[:depth]), self.variables[slot.name], scope)
            self.made.append(made)
            slots: Mapping[str, Item] = {**scope.slots, slot.name: made.item}
            scope = Scope(self.p, self.data, self.names, slots)
            self.scopes.append(scope)
        for depth in range(len(self.order)):
            functions.append(self._chooser(depth))
        start = ", ".join(["0"] * len(self.totals))
        first = self.functions[self.order[0]]
        solve = _SOLVE + f"    return {first}({start})"
        helpers = [_FAILED_BEFORE] if self.remembers else []
        caches = ["\n".join(self.caches)] if self.caches else []
        return [*caches, *helpers, *self.bounds.values(), *reversed(functions), solve]

    # --- candidates ------------------------------------------------------------------------

    def _choices(self, slot: Slot, assigned: set[str], var: str, scope: Scope) -> _Choices:
        domain = slot.domain
        if isinstance(domain, Choice):
            return _Choices(python_literal(list(domain.values)), Item(var), frozenset())
        if isinstance(domain, IntRange):
            step = f", {domain.step}" if domain.step != 1 else ""
            return _Choices(f"range({domain.low}, {domain.high} + 1{step})", Item(var), frozenset())
        if isinstance(domain, Intervals):
            stop = f"{domain.high} - {domain.length} + 1"
            text = f"range({domain.low}, {stop}, {domain.step})"
            return _Choices(text, Item(var, length=domain.length), frozenset())
        if slot.kind == "set":
            return self._subsets(slot, domain, assigned, var, scope)
        if slot.kind != "entity" or domain.select is not None:
            raise PipelineError(f"a solution can't search the {slot.kind} slot {slot.name!r}")
        return self._rows(slot, domain, assigned, var, scope)

    def _rows(
        self, slot: Slot, domain: Query, assigned: set[str], var: str, scope: Scope
    ) -> _Choices:
        pins: dict[str, Pin] = {}
        used: dict[str, Link] = {}
        for link in self.plan.links:
            if link.child == slot.name and link.parents <= assigned and link.column not in pins:
                value = emit(link.value, scope)
                if value.known:
                    pins[link.column] = Pin(value.doc, solid=solid(link.value, scope))
                    used[link.column] = link
        needs = self._needs(slot, domain)
        scan = self.data.scan(domain.relation, needs, pins, var, scope.taken)
        satisfied = frozenset(used[column].rule for column in scan.pinned if column in used)
        source = scan.rows
        if len(scan.loops) > 1:
            source = Block("[", (var, *scan.loops), " ", "]")
        return _Choices(source, Item(var, domain.relation, scan.source), satisfied)

    def _needs(self, slot: Slot, domain: Query) -> set[str]:
        """Columns of the slot's row that rules, sums and the answer read."""
        relation = self.p.relation(domain.relation)
        needs = {relation.key}
        for clause in self.p.clauses:
            for root in (clause.expr, *([clause.guard] if clause.guard is not None else [])):
                for node in root.walk():
                    if isinstance(node, ir.Get) and node.entity == ir.SlotRef(slot=slot.name):
                        if node.relation == relation.name:
                            needs.add(node.column)
                    elif isinstance(node, ir.Sum | ir.Count | ir.All | ir.Any):
                        if node.over == ir.SlotRef(slot=slot.name):
                            needs |= needs_of(node.var, relation, [node.body])
        return needs

    def _subsets(
        self, slot: Slot, domain: Query, assigned: set[str], var: str, scope: Scope
    ) -> _Choices:
        if domain.select is not None:
            raise PipelineError(f"a solution can't search the set {slot.name!r} of values")
        row = self.names.free("row_1", set(self.variables.values()))
        scan = self.data.scan(domain.relation, self._needs(slot, domain), {}, row, scope.taken)
        item = Item(row, domain.relation, scan.source)
        satisfied, tests = set(), list[Doc]()
        for rule in self.plan.rules:
            if isinstance(rule.expr, ir.All) and rule.expr.over == ir.SlotRef(slot=slot.name):
                if slots_of(rule.expr.body) <= assigned:
                    tests.append(
                        emit(rule.expr.body, scope.bind(rule.expr.var, item), "true").at(3)
                    )
                    satisfied.add(rule)
        filters = (Block("if ", (Block("", tuple(tests), " and "),)),) if tests else ()
        rows = Block("[", (row, *scan.loops, *filters), " ", "]")
        most = f"len({var}_rows)" if slot.length is None else str(slot.length)
        source = f"combinations({var}_rows, size)"
        text = f"[subset for size in range({most} + 1) for subset in {source}]"
        many = Item(var, domain.relation, scan.source, many=True)
        return _Choices(text, many, frozenset(satisfied), rows)

    # --- one function per slot -------------------------------------------------------------

    def _chooser(self, depth: int) -> str:
        slot, made = self.plan.order[depth], self.made[depth]
        before, scope = self.order[:depth], self.scopes[depth + 1]
        live = list(self.totals.values())
        arguments = [*(self.variables[name] for name in before), *live]
        lines = [layout_text(call(f"def {self.functions[slot.name]}(", arguments, "):"))]
        lines.append(
            f'    """Try every choice of {slot.name.replace("_", " ")}; None if none works."""'
        )
        memo = self._memo(depth)
        if memo is not None:
            lines += [if_line(call("failed_before(", memo), 4), "        return None"]
        if made.rows is not None:
            lines.append(line_of(f"{made.item.text}_rows = ", made.rows, 4))
        source = self._sorted(slot, made)
        lines.append(if_line(source, 4, f"for {made.item.text} in"))
        lines += self._sums(depth, scope)
        for rule in self._due(depth, made):
            broken = emit(rule.expr, scope, "false").doc
            if not emit(rule.expr, scope).known:
                broken = Block("not (", (emit(rule.expr, scope, "true").doc,), "", ")")
            lines += [if_line(broken, 8), "            continue"]
        lines += self._descend(depth)
        if memo is not None:
            failed = Block("", (f"{memo[0]}.setdefault({memo[1]}, [])", f"({memo[2]})"), ".append")
            lines.append("    " + flat(failed))
        return "\n".join([*lines, "    return None"])

    def _due(self, depth: int, made: _Choices) -> list[Rule]:
        """Rules that can be checked now and could not before."""
        done, name = set(self.order[: depth + 1]), self.order[depth]
        rules = [*self.plan.rules, *(link.rule for link in self.plan.links)]
        due = [
            r for r in rules if r.slots <= done and (name in r.slots or (not depth and not r.slots))
        ]
        return sorted((r for r in due if r not in made.satisfied), key=lambda r: len(r.slots))

    def _descend(self, depth: int) -> list[str]:
        if depth + 1 == len(self.order):
            answer = answer_doc(self.p, self.scopes[-1])
            return [line_of("return ", answer, 8)]
        totals = [
            f"{total}_now" if self._changes(i, depth) else total for i, total in self.totals.items()
        ]
        arguments = [*(self.variables[name] for name in self.order[: depth + 1]), *totals]
        following = self.functions[self.order[depth + 1]]
        return [
            "        " + layout_text(call(f"found = {following}(", arguments), 8),
            "        if found is not None:",
            "            return found",
        ]

    # --- sums ------------------------------------------------------------------------------

    def _new_terms(self, linear: Linear, depth: int) -> list[Term]:
        done, name = set(self.order[: depth + 1]), self.order[depth]
        return [term for term in linear.terms if term.slots <= done and name in term.slots]

    def _changes(self, i: int, depth: int) -> bool:
        return bool(self._new_terms(self.plan.linears[i], depth))

    def _sums(self, depth: int, scope: Scope) -> list[str]:
        lines: list[str] = []
        for i, linear in enumerate(self.plan.linears):
            terms = self._new_terms(linear, depth)
            total = self.totals[i]
            if terms:
                added, more = self._added(terms, scope)
                lines += [*more, f"        {total}_now = {total} {added}"]
                total = f"{total}_now"
            open_terms = [t for t in linear.terms if not t.slots <= set(self.order[: depth + 1])]
            rest = [self._least(term, linear.fn, depth) for term in open_terms]
            if (not terms and not self._opens(linear, depth)) or None in rest:
                continue
            left = Block("", (total, *(text for text in rest if text)), " + ")
            bound = _signed([(sign, emit(node, scope).at(7)) for sign, node in linear.bound])
            test = Block("", (left, bound.removeprefix("+ ") or "0"), f" {_NOT[linear.fn]} ")
            lines += [if_line(test, 8), "            continue"]
        return lines

    def _added(self, terms: list[Term], scope: Scope) -> tuple[str, list[str]]:
        """What a choice adds to a sum, and statements that skip it where that is unknown."""
        parts: list[tuple[int, Doc]] = []
        lines: list[str] = []
        for n, term in enumerate(terms, 1):
            value = emit(term.expr, scope)
            if value.known:
                parts.append((term.sign, value.at(7)))
                continue
            lines += [line_of(f"added_{n} = ", value.doc, 8), f"        if added_{n} is None:"]
            lines.append("            continue")
            parts.append((term.sign, f"added_{n}"))
        return _signed(parts), lines

    def _opens(self, linear: Linear, depth: int) -> bool:
        """Whether choosing this slot says more about what the open terms can be."""
        name = self.order[depth]
        later = set().union(*(t.slots for t in linear.terms)) - set(self.order[: depth + 1])
        return any(link.child in later and name in link.parents for link in self.plan.links)

    def _least(self, term: Term, fn: str, depth: int) -> str | None:
        """The call that gives the least (for >: the most) that an open term can add."""
        if len(term.slots) != 1:
            return None
        (name,) = term.slots
        slot = self.p.slot(name)
        if slot.kind not in ("entity", "value") or isinstance(slot.domain, Intervals):
            return None
        scope, assigned = self.scopes[depth + 1], set(self.order[: depth + 1])
        parents = [
            parent
            for link in self.plan.links
            if link.child == name and link.parents <= assigned
            for parent in sorted(link.parents)
        ]
        parents = list(dict.fromkeys(parents))
        variables = [self.variables[parent] for parent in parents]
        made = self._choices(slot, assigned, "row", scope)
        inner = Scope(self.p, self.data, self.names, {**scope.slots, name: made.item})
        value = emit(term.expr, inner)
        if not value.known:
            return None
        fold = ("min" if fn in ("<", "<=") else "max") if term.sign > 0 else (
            "max" if fn in ("<", "<=") else "min")  # fmt: skip
        state = [flat(state_doc(parent, scope)) for parent in parents]
        text = self._bound_function(slot, fold, flat(value.doc), made.source, variables, state)
        return text if term.sign > 0 else f"-{text}"

    def _bound_function(
        self, slot: Slot, fold: str, value: str, source: Doc, variables: list[str], state: list[str]
    ) -> str:
        word = "least" if fold == "min" else "most"
        body = f"{value}|{flat(source)}|{fold}"
        key = f"({', '.join(state)})" if len(state) > 1 else "".join(state) or "0"
        if body not in self.bounds:
            name = self.names.new(f"{word}_{self.variables[slot.name]}")
            cache = name.upper()
            self.caches.append(f"{cache} = {{}}")
            values = call(
                f"{fold}(",
                (Block("[", (value, glued("for row in ", source)), " ", "]"), "default=0"),
            )
            self.bounds[body] = "\n".join(
                [
                    f"def {name}({', '.join(variables)}):",
                    f'    """The {word} that {slot.name.replace("_", " ")} can add."""',
                    f"    if {key} not in {cache}:",
                    line_of(f"{cache}[{key}] = ", values, 8),
                    f"    return {cache}[{key}]",
                ]
            )
        name = self.bounds[body].split("(")[0].removeprefix("def ")
        return f"{name}({', '.join(variables)})"

    def _sorted(self, slot: Slot, made: _Choices) -> Doc:
        """Candidates, those that add least to a sum first."""
        for linear in self.plan.linears:
            for term in linear.terms:
                if term.slots == {slot.name} and slot.kind == "entity":
                    value = emit(
                        term.expr, Scope(self.p, self.data, self.names, {slot.name: made.item})
                    )
                    upward = (term.sign > 0) == (linear.fn in ("<", "<="))
                    order = "" if upward else ", reverse=True"
                    if value.known:
                        key = f"key=lambda {made.item.text}: {flat(value.doc)}{order}"
                        return call("sorted(", (made.source, key))
        return made.source

    # --- memory of failures ----------------------------------------------------------------

    def _memo(self, depth: int) -> tuple[str, str, str] | None:
        """(cache, state, sums) if the rest does not see everything that was chosen before."""
        before = self.order[:depth]
        seen = self._seen(depth)
        if depth == 0 or len(seen) == len(before):
            return None
        self.remembers = True
        cache = f"FAILED_{self.variables[self.order[depth]].upper()}"
        self.caches.append(f"{cache} = {{}}")
        parts = [flat(state_doc(name, self.scopes[depth])) for name in before if name in seen]
        state = f"({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0"
        sums = [
            total if self.plan.linears[i].fn in ("<", "<=") else f"-{total}"
            for i, total in self.totals.items()
        ]
        return cache, state, f"({', '.join(sums)}{',' if len(sums) == 1 else ''})"

    def _seen(self, depth: int) -> set[str]:
        """Chosen slots that rules, links or sums over open slots still read."""
        done = set(self.order[:depth])
        groups = [rule.slots for rule in self.plan.rules]
        groups += [link.rule.slots for link in self.plan.links]
        groups += [term.slots for linear in self.plan.linears for term in linear.terms]
        return {name for slots in groups if not slots <= done for name in slots & done}


_NOT = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _signed(parts: list[tuple[int, Doc]]) -> str:
    return " ".join(f"{'+' if sign > 0 else '-'} {flat(doc)}" for sign, doc in parts)
