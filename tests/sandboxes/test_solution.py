from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pydantic import JsonValue
from tool_samples import spec

from envgen.core.errors import EnvError
from envgen.core.types import ToolSpec
from envgen.sandboxes.solution import (
    SolutionHost,
    SolutionRun,
    SolutionSeries,
    WorkerSolutionHost,
    parameter_order,
    solution_host,
)

BACKENDS = [
    "process",
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
TOOLS = (spec("get", "id"), spec("add", "left", "right"))
over_local = pytest.mark.parametrize("host", BACKENDS[:2], indirect=True)
"""For what the worker's program decides, which is the same in a container."""


@pytest.fixture(scope="module", params=BACKENDS)
def host(request: pytest.FixtureRequest) -> Iterator[SolutionHost]:
    started = solution_host(backend=request.param, trusted=True)
    yield started
    started.close()


def answer_call(name: str, arguments: dict[str, JsonValue]) -> JsonValue:
    if name == "add":
        return int(str(arguments["left"])) + int(str(arguments["right"]))
    if arguments["id"] == 9:
        return {"error": "not_found", "message": "no item 9"}
    return {"id": arguments["id"], "price": 100}


def run(host: SolutionHost, body: str, max_calls: int = 20_000, cpu_s: float = 1.0) -> SolutionRun:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"PARAMS = {{'bound': 3}}\n\ndef solve():\n{lines}\n"
    return host.run(source, answer_call, TOOLS, max_calls=max_calls, cpu_s=cpu_s)


def test_a_solution_calls_tools_and_answers(host: SolutionHost) -> None:
    body = """\
total = 0
for number in range(PARAMS['bound']):
    total += get(number)['price'] + add(number, right=1)
missing = get(id=9)
return {'total': total, 'error': missing['error']}"""
    done = run(host, body)
    assert done.fault is None
    assert done.answer == {"total": 306, "error": "not_found"}
    assert done.num_calls == 7


@over_local
def test_the_prelude(host: SolutionHost) -> None:
    body = """\
return [
    date_add('2026-02-27', 3), days_between('2026-03-02', '2026-02-27'), minutes('09:30'),
    weekday('2026-11-21'), len(list(combinations([1, 2, 3, 4], 2))),
    [list(p) for p in permutations('ab')], [list(p) for p in product([1], 'xy')],
    f'{sum([1, 2])}-{max(3, 4)}', sorted({3, 1}), [a for a, b in zip([1], [2])],
]"""
    done = run(host, body)
    assert done.fault is None
    assert done.answer == [
        "2026-03-02", -3, 570, 5, 6, [["a", "b"], ["b", "a"]], [[1, "x"], [1, "y"]],
        "3-4", [1, 3], [1],
    ]  # fmt: skip


ATTACKS = [
    "return ().__class__.__base__.__subclasses__()",
    "return get.__globals__",
    "return get.__closure__[0].cell_contents",
    "return solve.__code__",
    "return '{0.__class__}'.format(1)",
    "return '{x.__class__}'.format_map({'x': 1})",
    "return f'{get.__globals__}'",
    "return (x for x in [1]).gi_frame",
    "return [].append.__self__",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    return error.__traceback__.tb_frame",
    "import os\nreturn os.listdir('/')",
    "from os import system\nreturn 1",
    "return __import__('os')",
    "return __builtins__",
    "return getattr(get, 'x')",
    "return open('/etc/passwd')",
    "return eval('1')",
    "return exec('1')",
    "return globals()",
    "return vars()",
    "return type(1)",
    "return object()",
    "return print(1)",
    "return input()",
    "return compile('1', '', 'eval')",
    "class A:\n    pass\nreturn 1",
    "yield 1",
    "global x\nreturn 1",
    "with get as x:\n    return 1",
    "raise ValueError(1)",
    "assert False",
    "return (x := 1)",
    "del get\nreturn 1",
    "_x = 1\nreturn 1",
    "return get(__class__=1)",
    "x = get\nx.name = 3\nreturn 1",
    "match 1:\n    case int():\n        return 1",
    "return {**{'a': 1}}.__len__()",
    "f = lambda self: self.__dict__\nreturn f(get)",
    "return ''.join.__call__(['a'])",
    "return max([1], key=lambda x: x.real)",
    "return f'{1!r}'",
    "return f'{1:>{PARAMS}}'",
    "return 2 ** 100000",
    "return sum([*range(3)])",
    "return (lambda **a: a)(b=1)",
    "a, *b = [1, 2]\nreturn b",
    "f = get\nreturn f(*[().__class__])",
    "f = max\nreturn f(*[get.__self__])",
    "def inner(*_a):\n    return _a\nreturn inner(1)",
    "def inner(**k):\n    return k\nreturn inner(a=1)",
    "x: int = 1\nreturn x",
]


@over_local
@pytest.mark.parametrize("body", ATTACKS)
def test_attacks_are_refused_at_run_time(host: SolutionHost, body: str) -> None:
    done = run(host, body)
    assert done.fault is not None
    assert done.answer is None
    assert done.num_calls == 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("while True:\n    pass", "ended without an answer"),
        ("x = [0] * 1000000000\nreturn 1", "MemoryError"),
        ("return globals()", "NameError|globals"),
    ],
)
def test_limits(host: SolutionHost, body: str, text: str) -> None:
    done = run(host, body)
    assert done.answer is None
    assert re.search(text, str(done.fault))


@over_local
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return list(product(range(1000), range(1000), [1, 2]))", "more than 1000000 items"),
        ("return add(1, 2, 3)", "takes 2 arguments"),
        ("return add(1, left=2)", "two values"),
        ("return solve()", "RecursionError"),
        ("return {1: 2}", "not JSON"),
        ("return {1, 2}", "not JSON"),
        ("return get", "not JSON"),
        ("return float('nan')", "JSON"),
        ("return 1 / 0", "ZeroDivisionError"),
        ("return nothing", "NameError"),
    ],
)
def test_faults(host: SolutionHost, body: str, text: str) -> None:
    done = run(host, body)
    assert done.answer is None
    assert text in str(done.fault)


def test_calls_are_counted_and_limited(host: SolutionHost) -> None:
    assert run(host, "while True:\n    get(1)", max_calls=50, cpu_s=5).num_calls == 50
    assert "more than 50" in str(run(host, "while True:\n    get(1)", max_calls=50).fault)


@over_local
def test_a_solution_without_solve(host: SolutionHost) -> None:
    assert "is missing solve" in str(host.run("x = 1", answer_call, TOOLS).fault)
    assert "SyntaxError" in str(host.run("def solve(:", answer_call, TOOLS).fault)


def test_errors_of_the_tools_pass_through(host: SolutionHost) -> None:
    def broken(name: str, arguments: dict[str, JsonValue]) -> JsonValue:
        raise EnvError("the tools broke")

    source = "def solve():\n    return get(1)\n"
    with pytest.raises(EnvError, match="the tools broke"):
        host.run(source, broken, TOOLS)
    assert run(host, "return 1").answer == 1


def test_each_run_is_fresh(host: SolutionHost) -> None:
    body = "PARAMS['bound'] += 1\nreturn PARAMS['bound']"
    assert [run(host, body).answer for _ in range(3)] == [4, 4, 4]


def source(bound: int, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"SEEN = []\nPARAMS = {{'bound': {bound}}}\n\ndef solve():\n{lines}\n"


@pytest.fixture
def series(host: SolutionHost) -> Iterator[SolutionSeries]:
    opened = host.series()
    yield opened
    opened.close()


def forks(host: SolutionHost) -> int:
    """How many workers the host's zygote has been asked for."""
    assert isinstance(host, WorkerSolutionHost)
    return host._zygote._next


def test_a_series_runs_re_seeds_in_one_fork_and_nothing_is_left_behind(
    host: SolutionHost, series: SolutionSeries
) -> None:
    body = "SEEN.append(PARAMS['bound'])\nPARAMS['bound'] += get(1)['price']\nreturn [SEEN, PARAMS]"
    before = forks(host)
    for bound in (3, 4, 3, 5):
        done = series.run(source(bound, body), answer_call, TOOLS)
        assert done.fault is None
        assert done.answer == [[bound], {"bound": bound + 100}]
        assert done.num_calls == 1
        assert done.answer == host.run(source(bound, body), answer_call, TOOLS).answer
    assert forks(host) - before == 1 + 4


@over_local
def test_another_program_and_other_tools_get_another_fork(
    host: SolutionHost, series: SolutionSeries
) -> None:
    before = forks(host)
    assert series.run(source(1, "return PARAMS['bound']"), answer_call, TOOLS).answer == 1
    assert series.run(source(2, "return -PARAMS['bound']"), answer_call, TOOLS).answer == -2
    assert series.run(source(3, "return -PARAMS['bound']"), answer_call, TOOLS[:1]).answer == -3
    assert forks(host) - before == 3


@over_local
def test_a_series_begins_a_new_fork_after_many_runs(
    host: SolutionHost, series: SolutionSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SolutionSeries, "RUNS", 2)
    before = forks(host)
    for bound in range(5):
        assert (
            series.run(source(bound, "return PARAMS['bound']"), answer_call, TOOLS).answer == bound
        )
    assert forks(host) - before == 3


def test_a_fault_in_a_series_is_its_own_run_s_only(
    host: SolutionHost, series: SolutionSeries
) -> None:
    body = "if PARAMS['bound'] == 2:\n    return 1 / 0\nreturn PARAMS['bound']"
    runs = [series.run(source(bound, body), answer_call, TOOLS) for bound in (1, 2, 3)]
    assert [run.answer for run in runs] == [1, None, 3]
    assert "ZeroDivisionError: division by zero (solution.py, line 6)" in str(runs[1].fault)


def test_every_run_of_a_series_has_its_own_cpu_time(series: SolutionSeries) -> None:
    body = """\
spent = 0
while PARAMS['bound'] < 0 or spent < PARAMS['bound']:
    spent += 1
return spent"""

    def timed(bound: int) -> SolutionRun:
        return series.run(source(bound, body), answer_call, TOOLS, cpu_s=1.0)

    step = 1_000_000
    while timed(step).wall_s < 0.3:
        step *= 2
    runs = [timed(step) for _ in range(5)]  # far more than a second together
    assert [run.answer for run in runs] == [step] * 5
    endless = timed(-1)
    assert "ended without an answer" in str(endless.fault)
    assert endless.wall_s < 10
    assert timed(3).answer == 3


@over_local
@pytest.mark.parametrize("body", ATTACKS)
def test_attacks_are_refused_in_a_series_too(series: SolutionSeries, body: str) -> None:
    assert series.run(source(1, "return 1"), answer_call, TOOLS).answer == 1
    done = series.run(source(1, body), answer_call, TOOLS)
    assert done.fault is not None
    assert done.num_calls == 0


@over_local
@pytest.mark.parametrize(
    "line",
    [
        "PARAMS = {}; import os",
        "PARAMS = get.__globals__",
        "PARAMS = {'bound': open('/etc/passwd')}",
        "PARAMS = __builtins__",
        "PARAMS = [get(1) for _ in [1]]",
        "PARAMS = {",
        "PARAMS = (lambda: (yield))()",
    ],
)
def test_the_params_line_is_checked_like_the_rest(series: SolutionSeries, line: str) -> None:
    good = source(1, "return 1")
    assert series.run(good, answer_call, TOOLS).answer == 1
    done = series.run(good.replace("PARAMS = {'bound': 1}", line), answer_call, TOOLS)
    assert done.fault is not None
    assert done.num_calls == 0
    assert series.run(good, answer_call, TOOLS).answer == 1


@over_local
def test_a_params_line_inside_something_else_is_compiled_with_it(series: SolutionSeries) -> None:
    text = 'TEXT = """\nPARAMS = {}\n"""\n\ndef solve():\n    return TEXT\n'
    for _ in range(2):
        assert series.run(text, answer_call, TOOLS).answer == "\nPARAMS = {}\n"


@over_local
def test_errors_of_the_tools_pass_through_a_series(series: SolutionSeries) -> None:
    def broken(name: str, arguments: dict[str, JsonValue]) -> JsonValue:
        raise EnvError("the tools broke")

    body = "return get(PARAMS['bound'])['id']"
    with pytest.raises(EnvError, match="the tools broke"):
        series.run(source(1, body), broken, TOOLS)
    assert series.run(source(2, body), answer_call, TOOLS).answer == 2


@pytest.mark.bwrap
def test_hash_seeds_differ() -> None:
    body = "return [x for x in {'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta'}]"
    orders = set()
    for seed in range(3):
        host = solution_host(hash_seed=seed, backend="bubblewrap")
        orders.add(str(run(host, body).answer))
        assert str(run(host, body).answer) in orders
        host.close()
    assert len(orders) > 1


def test_positional_order_is_the_required_list() -> None:
    tool = ToolSpec(
        name="move",
        description="",
        parameters={"properties": {"a": {}, "speed": {}, "to": {}}, "required": ["to", "a"]},
    )
    assert parameter_order(tool) == ["to", "a", "speed"]


@over_local
@pytest.mark.parametrize(
    "value",
    ["combinations([1], 1)", "solve", "[solve]", "{1: (solve,)}", "{1: solve}.values()", "get"],
)
@pytest.mark.parametrize("text", ["f'{ %s }'", "str(%s)", "[f'{[%s]}']", "sorted([%s], key=str)"])
def test_what_is_no_data_has_no_text(host: SolutionHost, value: str, text: str) -> None:
    done = run(host, "return " + text % value)
    assert done.answer is None
    assert "has no text" in str(done.fault)


@over_local
def test_data_has_its_text(host: SolutionHost) -> None:
    done = run(host, "a = {'b': (1, [None, 2.5])}\nreturn [f'x {a}', str(a), str(), f'{3}']")
    assert done.answer == ["x {'b': (1, [None, 2.5])}", "{'b': (1, [None, 2.5])}", "", "3"]
