"""The gate of tools: each is called beside the IR's reference, over all keys and with bad arguments.

What is compared: result, its keys and their order, the order of rows, error codes, and the rows left behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import content_hash, sha256
from envgen.core.errors import EnvError
from envgen.core.ir import Access, Problem, Satisfy
from envgen.core.schema import Validator
from envgen.core.seeding import rng
from envgen.core.types import GateResult, ToolSpec
from envgen.environments.runner import toolbox_of
from envgen.pipelines.general.gates.perturb import perturbed
from envgen.pipelines.general.gates.tool_calls import (
    KEYS,
    Arguments,
    bad_reads,
    good_reads,
    odd_writes,
    write_arguments,
)
from envgen.pipelines.general.gates.trial import Trial, outcome
from envgen.pipelines.general.semantics.replies import argument_kinds, reply
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite

STATES = 4
"""Databases on which write tools are called: the environment's own, with what was inserted, perturbed."""
ALONE = 3
"""Calls of each write tool that succeed, each made in an episode of its own."""
SEQUENCE = 100
"""Calls in a row in one episode of write tools."""
THINNED = 100
"""Good calls, and bad ones, of each read tool on rows of which some are gone and some are perturbed."""
AGAIN = 60
"""Calls of read tools made once more: in another order, and after writes."""
SHORTEST = 3
"""Characters of a key that an error may be found to tell."""


def tools(trial: Trial) -> GateResult:
    """Every tool does what its access says, and its spec tells what it does.

    Read tools are called with all keys (of more than ``KEYS`` rows a sample), each argument at its limits
    and with bad values, each projection and page. Write tools are called such that each precondition
    stands in the way alone, in episodes of one call and of many, on perturbed rows, too. Siblings share
    their tools, so that it is found out once for an environment.
    """
    draft, problem = trial.draft, trial.problem
    records = [record.model_dump(mode="json") for record in (*draft.tools, *problem.access)]
    database = sha256(trial.database.read_bytes())
    key = content_hash([draft.environment_id, draft.tools_source, records, database])
    return trial.hosts.once(key, lambda: _checked(trial))


def _checked(trial: Trial) -> GateResult:
    check = _Check(trial)
    with closing(check):
        fault = next(check.faults(), "")
    return outcome(
        "tools",
        not fault,
        max(1, check.calls),
        figure=float(bool(fault)),
        reason=fault[:400],
        tools=len(trial.draft.tools),
        sampled=any(len(rows) > KEYS for rows in trial.draft.tables.values()),
    )


class _Check:
    """One environment's tools under test; it knows nothing of the task."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.problem: Problem = trial.problem.model_copy(
            update={"clauses": (), "goal": Satisfy(), "params": {}}
        )
        self.specs = {spec.name: spec for spec in trial.draft.tools}
        self.returns = {name: Validator(spec.returns) for name, spec in self.specs.items()}
        self.toolbox = toolbox_of(trial.draft.tools)
        self.reads = [access for access in self.problem.access if access.mode != "write"]
        self.writes = [access for access in self.problem.access if access.mode == "write"]
        self.calls = 0
        self._stack = ExitStack()
        self._rand = rng(0, "tools", trial.draft.environment_id)

    def close(self) -> None:
        """End every episode."""
        self._stack.close()

    def faults(self) -> Iterator[str]:
        """Yield what is wrong, the cheapest to find first."""
        names = [access.tool for access in self.problem.access]
        if list(self.specs) != names:
            yield f"the tools are {', '.join(self.specs)}; the IR's are {', '.join(names)}"
            return
        for access in self.problem.access:
            yield from spec_faults(self.problem, access, self.specs[access.tool])
        tables, database = self.trial.draft.tables, self.trial.database
        yield from self._reading(tables, database)
        thin = perturbed(self.problem, _thinned(tables), self._rand)
        yield from self._reading(thin, self.trial.stored(thin, "tools-thinned"), THINNED)
        thick = _thickened(self.problem, tables)
        yield from self._reading(thick, self.trial.stored(thick, "tools-thickened"), THINNED)
        effects = [effect for access in self.writes for effect in access.effects]
        inserts = {effect.relation for effect in effects if effect.kind == "insert"}
        for i in range(STATES if self.writes else 0):
            episode = self.episode(tables, database)
            yield from self._writing(episode)
            # The environment's rows and those that were inserted, so that inserts meet what is there.
            added = {name: episode.tables[name] for name in inserts}
            tables = {**self.trial.draft.tables, **added}
            if i:
                tables = perturbed(self.problem, tables, self._rand)
            database = self.trial.stored(tables, f"tools-{i}")

    def episode(self, tables: Tables, database: Path) -> _Episode:
        """Fresh tools over a database."""
        found = _Episode(self, tables, database)
        self._stack.callback(found.close)
        return found

    def _reading(self, tables: Tables, database: Path, most: int = 10**9) -> Iterator[str]:
        calls: list[tuple[Access, Arguments]] = []
        again: list[tuple[Access, Arguments]] = []
        episode = self.episode(tables, database)
        for access in self.reads:
            good = _sample(good_reads(self.problem, tables, access, self._rand), most, self._rand)
            for args in good:
                refused = self.toolbox.fault(access.tool, args)
                if refused is not None:
                    yield f"{_call_text(access, args)} is refused: {refused[1]}"
                calls.append((access, args))
            bad = bad_reads(self.problem, tables, access, self._rand)
            calls += [(access, args) for args in _sample(bad, most, self._rand)]
            yield from self._schema(access, (good or [{}])[0])
            again += [(access, args) for args in good[:1]]
        for access, args in (*calls, *again, *_sample(calls, AGAIN, self._rand)):
            yield from episode.faults(access, args)

    def _schema(self, access: Access, base: Arguments) -> Iterator[str]:
        """Whether a call with an argument less, one more or one of another type is taken."""
        wrong = [{**base, "no_such_argument": 1}]
        odd: tuple[Any, ...] = (None, {}, 0.5)
        for name in base:
            wrong.append({key: value for key, value in base.items() if key != name})
            wrong += [{**base, name: value} for value in odd]
        for args in wrong:
            if self.toolbox.fault(access.tool, args) is None:
                yield f"{_call_text(access, args)} fits the declared parameters"

    def _writing(self, last: _Episode) -> Iterator[str]:
        """Calls of write tools on the rows of a fresh episode; the last, a sequence, are made in it."""
        tables, database = last.tables, last.database
        calls: list[tuple[Access, Arguments]] = []
        failing = self.episode(tables, database)
        for access in self.writes:
            tried = write_arguments(self.problem, tables, access, self._rand)
            working = [args for args, found in tried if found.error is None]
            calls += [(access, args) for args, _ in tried]
            for args, found in tried:
                if found.error is not None:
                    yield from failing.faults(access, args)
            base = next(iter(working), tried[0][0] if tried else {})
            for args in odd_writes(access, base):
                if reply(self.problem, tables, access, args).error is not None:
                    yield from failing.faults(access, args)
            yield from self._schema(access, base)
            for args in working[:ALONE]:
                alone = self.episode(tables, database)
                yield from alone.faults(access, args)
                yield from alone.left(_call_text(access, args))
                yield from self._reads_of(alone)
        yield from failing.left("calls that fail")
        yield from self._sequence(calls, last)

    def _sequence(
        self, calls: Sequence[tuple[Access, Arguments]], episode: _Episode
    ) -> Iterator[str]:
        """Many writes in a row, each twice, then reads of what they left."""
        for access, args in _sample([*calls, *calls], SEQUENCE, self._rand):
            yield from episode.faults(access, args)
        yield from episode.left("a sequence of calls")
        yield from self._reads_of(episode)

    def _reads_of(self, episode: _Episode) -> Iterator[str]:
        """What read tools say once writes were made: each of them, of some rows."""
        share = max(1, AGAIN // max(1, len(self.reads)))
        for access in self.reads:
            good = good_reads(self.problem, episode.tables, access, self._rand)
            for args in _sample(good, share, self._rand):
                yield from episode.faults(access, args)


class _Episode:
    """Fresh tools, and beside them the rows as the reference has them."""

    def __init__(self, check: _Check, tables: Tables, database: Path) -> None:
        self.tables, self.database = tables, database
        self._check = check
        self._session = check.trial.session(database)

    def close(self) -> None:
        """End the episode."""
        self._session.close()

    def faults(self, access: Access, args: Arguments) -> Iterator[str]:
        """Yield what is wrong with the answer to a call."""
        check, call = self._check, _call_text(access, args)
        check.calls += 1
        wanted = reply(check.problem, self.tables, access, args)
        self.tables = wanted.after
        try:
            found = self._session.call(access.tool, args)
        except EnvError as error:
            yield f"{call} breaks: {error}"
            return
        if found.error != wanted.error:
            yield f"{call} gives {found.error or 'a result'}, the IR {wanted.error or 'a result'}"
        elif _exact(found.value) != _exact(wanted.value):
            yield f"{call} gives {_exact(found.value)[:120]}, the IR {_exact(wanted.value)[:120]}"
        elif wanted.error is None and (fault := check.returns[access.tool].fault(found.value)):
            yield f"{call} gives what its spec does not declare: {fault}"
        elif named := self._named(found.message, args):
            yield f"{call} gives an error that names {named!r}, of which the call says nothing"
        elif wanted.error not in (None, *(e.code for e in check.specs[access.tool].errors)):
            yield f"{call} gives the error {wanted.error}, which its spec does not document"

    def _named(self, message: str, args: Arguments) -> str:
        """The key of a row that an error tells and the call does not; empty if there is none."""
        if not message:
            return ""
        given = json.dumps(args, ensure_ascii=False)
        spec = self._check.specs
        known = f"{given} {' '.join(spec)} {json.dumps([s.parameters for s in spec.values()])}"
        keys = (key for rows in self.tables.values() for key in rows if len(key) >= SHORTEST)
        return next((key for key in keys if key in message and key not in known), "")

    def left(self, what: str) -> Iterator[str]:
        """Yield what is wrong with the rows as they are now, after ``what``."""
        trial = self._check.trial
        path = trial.folder / f"left-{self._check.calls}.sqlite"
        self._session.snapshot(path)
        found = read_sqlite(trial.draft.relations, path)
        path.unlink()
        for relation, rows in self.tables.items():
            if found[relation] != rows:
                yield f"after {what} the rows of {relation} are not those of the IR"


def spec_faults(p: Problem, access: Access, spec: ToolSpec) -> Iterator[str]:
    """Yield each point in which a tool's spec contradicts its access, whatever the wording."""
    if spec.mutates != (access.mode == "write"):
        yield f"{access.tool}: mutates is {spec.mutates}"
    if not spec.description.startswith(access.description):
        yield f"{access.tool}: its description is not the IR's"
    properties: Any = spec.parameters.get("properties", {})
    for name, kind in argument_kinds(p, access).items():
        relation = kind.removeprefix("entity:")
        source = f"{relation}.{p.relation(relation).key}" if relation != kind else None
        if name in properties and properties[name].get("x-source") != source:
            yield f"{access.tool}: the argument {name!r} has another source than the IR's"
    documented = {error.code: error.when for error in spec.errors}
    for pre in access.pre:
        if documented.get(pre.code) not in {one.text for one in access.pre if one.code == pre.code}:
            yield f"{access.tool}: the error {pre.code!r} is not documented as the IR has it"


def _thinned(tables: Tables) -> Tables:
    """The rows but the last of each relation: other counts, and keys that lead nowhere."""
    return {name: {key: rows[key] for key in sorted(rows)[:-1]} for name, rows in tables.items()}


def _thickened(p: Problem, tables: Tables) -> Tables:
    """The rows of each relation three times, under new keys: more matches than any stored row has."""
    found: Tables = {}
    for relation in p.relations:
        rows = dict(tables.get(relation.name, {}))
        for key, row in list(rows.items()):
            rows |= {f"{key}{end}": {**row, relation.key: f"{key}{end}"} for end in (" B", " C")}
        found[relation.name] = rows
    return found


def _sample(population: Sequence[Any], most: int, rand: Random) -> list[Any]:
    return rand.sample(list(population), min(most, len(population)))


def _exact(value: JsonValue) -> str:
    """A value as text that differs where type or order differs."""
    return json.dumps(value)


def _call_text(access: Access, args: Arguments) -> str:
    return f"{access.tool}({', '.join(f'{k}={v!r:.60}' for k, v in args.items())})"
