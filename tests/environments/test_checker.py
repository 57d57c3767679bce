from __future__ import annotations

import time

import pytest
from tiny_dataset import TOOLS, tiny_tasks

from envgen.environments.checker import check_solution, dates_in, numbers_in

PROMPT = "Find a hotel in Hangzhou below 450. Breakfast ends at 09:30; keep 12.50 in cash."


def check(source: str, prompt: str = PROMPT) -> list[str]:
    return check_solution(source, TOOLS, prompt, {"enum": ["done"]})


def solution(body: str, before: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return f'"""Doc."""\nPARAMS = {{"bound": 450}}\n{before}\ndef solve():\n{lines}\n'


@pytest.mark.parametrize("bundle", tiny_tasks(), ids=lambda bundle: bundle.spec.id)
def test_hand_written_solutions_are_fine(bundle: object) -> None:
    spec, text = bundle.spec, bundle.solution  # type: ignore[attr-defined]  # a TaskBundle
    assert check_solution(text, TOOLS, spec.prompt, spec.submit_schema) == []


def test_everything_that_is_named_is_allowed() -> None:
    source = solution(
        '''
"""Docstrings may say anything: 987654 'secret'."""
found = {}
for place, hotel in enumerate(list_hotels(city="Hangzhou")):
    price = hotel["price"] if "error" not in hotel else 0
    if price <= PARAMS["bound"] and not price < 0 or place == 3:
        found[hotel["name"]] = price
    elif price // 2 * 3 % 7 - 1 == 570:
        continue
    else:
        pass
rows = [(p, n) for n, p in sorted(found.items(), key=lambda pair: (pair[1], pair[0]))]
names = {n for p, n in rows}
total = sum(p for p, n in rows)
while total > 1250:
    total -= 100
    if weekday(date_add("2026-05-31", 1)) == 2:
        break
best = min(rows, key=pick, default=None)
for pair in combinations(rows, 2):
    total += len(pair)
names.add(str(best[0:1]))
for start in range(30, 570 - 30 + 1, 30):
    total += start * (100 * 100)
later = lambda *given: pick(*given)
total += later(*[[1, 2]], 1)
for choose in [len, later]:
    total += choose([3])
return {"hotel": f"{best}", "done": [total, -5, True, None], "message": ", ".join(names)}
''',
        before="def pick(row, place=0):\n    return row[place]\n",
    )
    prompt = PROMPT + " The day is 2026-05-31. Return hotel."
    assert check(source, prompt) == []


ESCAPES = {
    "attribute walk": "return ().__class__.__bases__",
    "attribute walk on a call": "return list().append.__self__",
    "method kept as a value": "found = [].append\nreturn found",
    "globals of a function": "return solve.__globals__",
    "closure cells": "return solve.__closure__",
    "code object": "return solve.__code__",
    "dunder name": "return __builtins__",
    "dunder import": "return __import__('os')",
    "single underscore": "_ = 1\nreturn 1",
    "underscore loop variable": "for _ in [1]:\n    pass\nreturn 1",
    "underscore argument": "return sorted([1], key=lambda _x: 1)",
    "underscore keyword": "return dict(__class__=1)",
    "format method": 'return "error".format(solve)',
    "format_map": 'return "error".format_map({})',
    "encode": 'return "error".encode()',
    "translate": 'return "error".translate({})',
    "mro": "return int.mro()",
    "f-string conversion": 'return f"{solve!r}"',
    "f-string format spec": 'return f"{1:>99}"',
    "nested f-string spec": 'return f"{1:{2}}"',
    "f-string attribute": 'return f"{solve.__globals__}"',
    "f-string debug": 'return f"{PARAMS=}"',
    "generator frame": "rows = (x for x in [1])\nreturn rows.gi_frame",
    "generator frame globals": "return (x for x in [1]).gi_frame.f_globals",
    "generator code": "return (x for x in [1]).gi_code",
    "frame of an exception": "try:\n    1 / 0\nexcept int as e:\n    return e.__traceback__.tb_frame",
    "raise": "raise error",
    "assert": "assert solve",
    "with": "with solve:\n    pass",
    "import": "import os",
    "from import": "from os import system",
    "class": "class Hotel:\n    pass",
    "metaclass call": 'return type("X", (), {})',
    "getattr": 'return getattr(solve, "error")',
    "eval": 'return eval("error")',
    "exec": 'exec("error")',
    "open": 'return open("error")',
    "vars": "return vars()",
    "globals": "return globals()",
    "breakpoint": "breakpoint()",
    "input": "return input()",
    "memoryview": "return memoryview",
    "print": 'print("error")',
    "isinstance": "return isinstance(1, int)",
    "iter": "return iter([])",
    "next": "return next([])",
    "map": "return map(len, [])",
    "hash": "return hash(1)",
    "id": "return id(1)",
    "pow function": "return pow(9, 9)",
    "pow operator": "return 9 ** 9",
    "shift": "return 1 << 99",
    "bit or": "return 1 | 2",
    "invert": "return ~1",
    "unary plus": "return +1",
    "matrix product": "return [] @ []",
    "global": "global hotel\nreturn 1",
    "nonlocal": "def f():\n    nonlocal x\nreturn 1",
    "del": "hotel = 1\ndel hotel",
    "walrus": "return (hotel := 1)",
    "yield": "yield 1",
    "await": "await solve()",
    "match": "match 1:\n    case 2:\n        pass",
    "starred assignment": "a, *b = [1, 2]\nreturn b",
    "starred list": "return [*[1]]",
    "starred set": "return {*[1]}",
    "starred tuple": "return (*[1], 2)",
    "starred index": "hotel = {}\nreturn hotel[*[1]]",
    "starred loop": "for a, *b in [[1, 2]]:\n    pass\nreturn 1",
    "double starred call": "return dict(**{})",
    "double starred dict": "return {**{}}",
    "annotated assignment": "hotel: list_hotels() = 1\nreturn hotel",
    "attribute store": "solve.hotel = 1",
    "async comprehension": "return [x async for x in []]",
    "call of a call": "return solve()()",
    "call of a lambda": "return (lambda: 1)()",
    "call of a subscript": "return [solve][0]()",
    "call of a reserved name": "return __import__(*['os'])",
    "call of a name that nothing binds": "return hotel(*[1])",
    "call of PARAMS": "return PARAMS(*[1])",
    "keywords of a variable": "f = dict\nreturn f(West_Lake=1)",
    "keywords of a lambda": "f = lambda *x: 1\nreturn f(*[1], West_Lake=1)",
    "attribute of a spread": "return max(*[().__class__])",
    "constants spread": "return max(*['Lotus Inn', 451])",
    "tool as a value": "return [list_hotels]",
    "tool called through a variable": "f = list_hotels\nreturn f(*['Hangzhou'])",
    "tool spread": "return max(*[list_hotels])",
    "tool as a rest": "return sorted([1], key=lambda *list_hotels: 1)",
    "underscore rest": "return sorted([1], key=lambda *_x: 1)",
    "tool reassigned": "list_hotels = 1\nreturn 1",
    "builtin reassigned": "len = 1\nreturn 1",
    "prelude reassigned": "product = 1\nreturn 1",
    "builtin as loop variable": "for sum in [1]:\n    pass\nreturn 1",
    "builtin as an argument": "return sorted([1], key=lambda str: 1)",
    "PARAMS reassigned": "PARAMS = {}\nreturn 1",
    "unknown name": "return Nothing",
    "long text": f'return "{"error " * 40}"',
    "long integer": "return 10000000000000",
    "very long integer": f"return {'9' * 5000}",
    "bytes": 'return b"error"',
    "complex": "return 1j",
    "ellipsis": "return ...",
    "strange text": 'return "Lotus Inn"',
    "part of a word": 'return "Hang"',
    "strange integer": "return 451",
    "strange float": "return 0.123",
    "strange text in an f-string": 'return f"Lotus {1}"',
    "strange text as a key": 'return {"Lotus Inn": 1}',
    "strange default": "return sorted([1], key=lambda x, y='Lotus': 1)",
    "call as a default": "return sorted([1], key=lambda x, y=len([]): 1)",
    "positional-only": "return sorted([1], key=lambda x, /: 1)",
    "keyword-only": "return sorted([1], key=lambda x, *, y=1: 1)",
    "keyword of dict": "return dict(West_Lake=1)",
    "keyword of update": "hotel = {}\nhotel.update(West_Lake=1)\nreturn hotel",
    "keyword of a builtin behind an own name": (
        "def f(West_Lake):\n    return 1\ndef g(f):\n    return f(West_Lake=1)\nreturn g(dict)"
    ),
    "names of PARAMS listed": "return [name for name in PARAMS]",
    "PARAMS as a value": "return list(PARAMS.keys())",
    "PARAMS written": 'PARAMS["West_Lake"] = 1\nreturn 1',
    "PARAMS as an argument": 'def f(PARAMS):\n    PARAMS["West_Lake"] = 1\n    return PARAMS\nreturn f({})',
    "slice of a constant": 'return "Hangzhou"[0:4]',
    "index of a constant": 'return "Hangzhou"[0]',
    "slice of an f-string": 'return f"{solve}"[0:9]',
    "constant in an f-string": 'return int(f"{4}{51}")',
    "text in an f-string": "return f\"{'hotel'}{'Find'}\"",
    "method of a constant": 'return "Hangzhou".replace("a", "in")',
    "sum of constants": "return 4 * 100 + 51",
    "long sum of constants": "return 100 + 100 + 51",
    "product of constants": "return 41 * 11",
    "quotient of constants": "return 450 / 7",
    "sum of texts": 'return "Find" + "hotel"',
    "repeated text": 'return "hotel" * 2',
    "negated constant in a sum": "return -99 * 99",
    "percent format": 'return "hotel" % 1',
    "percent text": 'text = "%"\nreturn text % solve',
    "named rest": "return sorted([1], key=lambda **x: 1)",
    "annotated rest": "def f(*x: int):\n    return 1\nreturn f(1)",
}


@pytest.mark.parametrize("body", ESCAPES.values(), ids=ESCAPES.keys())
def test_escape_is_refused(body: str) -> None:
    assert check(solution(body), PROMPT + " A tenth: 1/10 or 10 %.")


@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("@sorted\ndef pick(x):\n    return x", "decorators"),
        ("def pick(x: int):\n    return x", "annotations"),
        ("def pick(x) -> int:\n    return x", "annotations"),
        ("def pick(x=[]):\n    return x", "default"),
        ("def pick(x=list_hotels(city='Hangzhou')):\n    return x", "default"),
        ("def pick(*x):\n    return x", None),
        ("def pick(*x, y):\n    return x", "parameters"),
        ("def pick(**x):\n    return x", "parameters"),
        ("def _pick(x):\n    return x", "'_pick'"),
        ("def list_hotels(city):\n    return []", "can't be assigned"),
        ("def len(city):\n    return []", "can't be assigned"),
        ("async def pick(x):\n    return x", "AsyncFunctionDef"),
        ("pick = lambda x: x", None),
        ("def solve():\n    return 1", "exactly one def solve"),
        ("PARAMS = {}", "exactly one PARAMS"),
    ],
)
def test_definitions_are_restricted(before: str, what: str | None) -> None:
    found = check(solution("return 1", before=before))
    assert (found == []) if what is None else any(what in one for one in found)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = (",
        "def solve():\n    return 1\n",
        "PARAMS = {}\n",
        "PARAMS = {}\ndef solve(x):\n    return 1\n",
        'PARAMS = {"a": len([])}\ndef solve():\n    return 1\n',
        "PARAMS = {\n}\ndef solve():\n    return 1\n",
        'PARAMS = {"bound": 9999}\ndef solve():\n    return 1\n',
        'PARAMS = {"Lotus Inn": 1}\ndef solve():\n    return 1\n',
        "PARAMS = {}\nif 1:\n    def solve():\n        return 1\n",
        "\0",
        "(" * 5000,
        "x=" + "-" * 50_000 + "1",
        "#" * 300_000,
    ],
)
def test_what_is_no_solution_is_refused(source: str) -> None:
    start = time.perf_counter()
    assert check(source)
    assert time.perf_counter() - start < 2


def test_numbers_may_be_quoted_in_the_units_of_the_tools() -> None:
    found = set(numbers_in("1,250.50 yuan before 09:30, 2 hours 15, at most 450"))
    assert {125050, 1250.5, 570, 135, 450, 45000, 120} <= found
    assert 451 not in found


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("Today is 13 June 2025.", ["2025-06-13"]),
        ("from June 3rd, 2025 to the 1st of Sept. 2025", ["2025-06-03"]),
        ("5 May 2024 and December 31 2024", ["2024-05-05", "2024-12-31"]),
        ("31 February 2025, 3 Octobers 2025, 13 June 20255, marching 3, 2025", []),
    ],
)
def test_dates_that_a_text_writes_out(text: str, dates: list[str]) -> None:
    assert list(dates_in(text)) == dates
