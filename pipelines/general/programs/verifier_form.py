"""The part of ``verifier.py`` that reads an answer: its form, its values' types, what is bound to SQL."""

from __future__ import annotations

from envgen.core.errors import PipelineError
from envgen.core.ir import Choice, Intervals, IntRange, Layout, Problem, Query, Slot
from envgen.pipelines.general.programs.emit import identifier, join_lines, python_literal
from envgen.pipelines.general.programs.python_text import python_lines
from envgen.pipelines.general.semantics.evaluate import query_type
from envgen.pipelines.general.semantics.layout import slot_paths

_HELPERS = {
    "is_key": '''
def is_key(db, query, value):
    """Whether a value is the key of a row; any text may be asked for, lone surrogates too."""
    if type(value) is not str:
        return False
    return db.execute(query, (value.encode("utf-8", "surrogatepass"),)).fetchone() is not None''',
    "is_one_of": '''
def is_one_of(value, choices):
    """Whether a value is one of the choices; True is not 1."""
    return any(type(value) is type(choice) and value == choice for choice in choices)''',
    "is_int": '''
def is_int(value, low, high, step):
    """Whether a value is a whole number of the range."""
    return type(value) is int and value in range(low, high + 1, step)''',
    "is_interval": '''
def is_interval(value, low, high, step, length):
    """Whether a value is {"start": ..., "end": ...} on the grid, of the right length."""
    if type(value) is not dict or set(value) != {"start", "end"}:
        return False
    start, end = value["start"], value["end"]
    if type(start) is not int or type(end) is not int:
        return False
    return start in range(low, high - length + 1, step) and end == start + length''',
    "is_set": '''
def is_set(value, least, most, fits):
    """Whether a value is a list of at least and at most so many different fitting entries."""
    if type(value) is not list or not least <= len(value) <= most:
        return False
    return all(fits(entry) for entry in value) and len(set(value)) == len(value)''',
    "is_list": '''
def is_list(value, length, fits):
    """Whether a value is a list of so many fitting entries."""
    return type(value) is list and len(value) == length and all(fits(entry) for entry in value)''',
    "bindable": '''
def bindable(value):
    """A number or text that SQLite can hold; anything else equals nothing in it anyway."""
    if type(value) is int:
        return max(-(2**63), min(value, 2**63 - 1))
    return value.encode("utf-8", "replace").decode() if type(value) is str else value''',
}
_FORM = '''
class BadForm(Exception):
    """The answer does not have the form that the task asks for."""


def need(condition):
    """Refuse the answer unless the condition holds."""
    if not condition:
        raise BadForm'''


def form_source(p: Problem) -> str:
    """Helpers and ``read(answer, db)``: the slot values of a well-formed answer, else None."""
    body = "\n".join(_read(p))
    used = body + "".join(given_source(p))
    helpers = [text for name, text in _HELPERS.items() if f"{name}(" in used]
    return join_lines([_FORM, *helpers, body])


def _read(p: Problem) -> list[str]:
    lines = [
        "def read(answer, db):",
        '    """The values in an answer of the right form, None for any other."""',
        "    try:",
    ]
    for test in _structure(p.layout, "answer"):
        lines += python_lines(f"need({test})", 8)
    pairs = [f'"{name}": {_path("answer", pointer)}' for name, pointer in slot_paths(p.layout)]
    lines += python_lines(f"{{{', '.join(pairs)}}}", 8, "slots = ")
    lines += ["    except BadForm:", "        return None"]
    lines += python_lines(" and ".join(_checks(p)) or "True", 4, "fits = ")
    return [*lines, "    return slots if fits else None"]


def _path(root: str, pointer: str) -> str:
    path = root
    for part in pointer.split("/")[1:]:
        path += f"[{part}]" if part.isdigit() else f"[{python_literal(part)}]"
    return path


def _structure(layout: Layout, path: str) -> list[str]:
    """Tests of the answer's structure, outer before inner."""
    if isinstance(layout, list):
        items = {f"{path}[{i}]": item for i, item in enumerate(layout)}
        tests = [f"type({path}) is list and len({path}) == {len(layout)}"]
    elif isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            return []
        items = {f"{path}[{python_literal(key)}]": item for key, item in layout.items()}
        keys = f"{{{', '.join(map(python_literal, layout))}}}" if layout else "set()"
        tests = [f"type({path}) is dict and set({path}) == {keys}"]
    elif layout is None:
        return [f"{path} is None"]
    elif isinstance(layout, str):
        return [f"{path} == {python_literal(layout)}"]
    else:
        return [f"type({path}) is {type(layout).__name__} and {path} == {python_literal(layout)}"]
    return [*tests, *(test for at, item in items.items() for test in _structure(item, at))]


def _entity(slot: Slot, p: Problem) -> str | None:
    if not isinstance(slot.domain, Query):
        return None
    kind, _, relation = query_type(slot.domain, p).partition(":")
    return relation if kind == "entity" else None


def _element(slot: Slot, value: str, p: Problem) -> str:
    domain = slot.domain
    if isinstance(domain, Choice):
        if all(isinstance(choice, str) for choice in domain.values):
            return f"{value} in {python_literal(list(domain.values))}"
        return f"is_one_of({value}, {python_literal(list(domain.values))})"
    if isinstance(domain, IntRange):
        return f"is_int({value}, {domain.low}, {domain.high}, {domain.step})"
    if isinstance(domain, Intervals):
        return f"is_interval({value}, {domain.low}, {domain.high}, {domain.step}, {domain.length})"
    relation = _entity(slot, p)
    if relation is not None:
        key = identifier(p.relation(relation).key)
        query = f"SELECT 1 FROM {identifier(relation)} WHERE {key} = CAST(? AS TEXT)"
        return f"is_key(db, {python_literal(query)}, {value})"
    kind = query_type(domain, p)
    python = {"str": "str", "date": "str", "datetime": "str", "bool": "bool"}.get(kind, "int")
    return f"type({value}) is {python}"


def _check(slot: Slot, value: str, p: Problem) -> str:
    if slot.kind == "map":
        raise PipelineError(f"no verifier for the map slot {slot.name!r} yet")
    if slot.kind not in ("set", "sequence"):
        return _element(slot, value, p)
    entry = f"lambda entry: {_element(slot, 'entry', p)}"
    if slot.kind == "set":
        most = f"len({value})" if slot.length is None else slot.length
        return f"is_set({value}, {slot.least}, {most}, {entry})"
    if slot.length is None:
        raise PipelineError(f"the sequence {slot.name!r} needs a length")
    return f"is_list({value}, {slot.length}, {entry})"


def _checks(p: Problem) -> list[str]:
    groups: dict[str, list[str]] = {}
    for slot in p.slots:
        groups.setdefault(_check(slot, "slots[name]", p), []).append(f'"{slot.name}"')
    return [
        f"all({check} for name in ({', '.join(names)}))"
        if len(names) > 1
        else check.replace("slots[name]", f"slots[{names[0]}]")
        for check, names in groups.items()
    ]


def given_source(p: Problem) -> list[str]:
    """Statements that set ``given``: what the queries' ``:names`` stand for."""
    pairs: dict[str, str] = {}
    for slot in p.slots:
        value = f'slots["{slot.name}"]'
        if slot.kind == "interval":
            pairs |= {f"{slot.name}_{end}": f'{value}["{end}"]' for end in ("start", "end")}
        elif slot.kind in ("set", "sequence"):
            pairs[slot.name] = f"json.dumps({value})"
        elif isinstance(slot.domain, Query) and _entity(slot, p) is None:
            pairs[slot.name] = f"bindable({value})"
        else:
            pairs[slot.name] = value
    if pairs == {slot.name: f'slots["{slot.name}"]' for slot in p.slots}:
        lines = ["        given = dict(slots)"]
    else:
        text = ", ".join(f'"{name}": {value}' for name, value in pairs.items())
        lines = python_lines(f"{{{text}}}", 8, "given = ")
    if p.params:
        update = 'given.update({f"param_{name}": value for name, value in PARAMS.items()})'
        lines.append(f"        {update}")
    return lines
