from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import JsonValue
from tool_samples import spec

from envgen.core.errors import EnvError
from envgen.core.types import ToolSpec
from envgen.sandboxes.solution import SolutionHost, SolutionRun, parameter_order, solution_host

BACKENDS = [
    "process",
    pytest.param("bubblewrap", marks=pytest.mark.bwrap),
    pytest.param("docker", marks=pytest.mark.docker),
]
TOOLS = (spec("get", "id"), spec("add", "left", "right"))


@pytest.fixture(scope="module", params=BACKENDS)
def host(request: pytest.FixtureRequest) -> Iterator[SolutionHost]:
    made = solution_host(backend=request.param, trusted=True)
    yield made
    made.close()


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
    "return (lambda *a: a)(1)",
    "def inner(**k):\n    return k\nreturn inner(a=1)",
    "x: int = 1\nreturn x",
]


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


def test_a_solution_without_solve(host: SolutionHost) -> None:
    assert "lacks solve" in str(host.run("x = 1", answer_call, TOOLS).fault)
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
