"""Problems of the package reasoning-gym (Apache-2.0), answered a second time by methods of our own.

The package draws a question and its answer, and both are a problem's numbers. Our method reads the question's
text and nothing else: text that isn't of its form makes no problem. Only drawing needs the package.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from random import Random

from envgen.core.errors import MissingExtraError, install_hint
from envgen.pipelines.interpreter.makers.maker import Maker, Params, integer, rational, text_answer
from envgen.verifiers.maths import MathAnswer

MAX_CHARS = 6_000
MAX_SHIFT = 64
Grid = list[list[int]]


@dataclass(frozen=True)
class GymSource:
    """A dataset of reasoning-gym that has one exact answer."""

    name: str
    question: str
    """Its text, with regular expressions between << and >> for what varies: the groups of a match."""
    solve: Callable[[re.Match[str]], MathAnswer]
    """Our method."""
    answer: Callable[[str], MathAnswer]
    """The type of the package's answer."""
    code: Callable[[re.Match[str]], str]
    """Python that prints the answer."""
    hardest: int = 3
    """The last step of the curriculum that is used: later ones are too long to print."""


def _draw(source: GymSource, rng: Random, level: int) -> Params:
    try:
        from reasoning_gym import factory
    except ImportError as error:
        raise MissingExtraError(
            "reasoning-gym is not installed", install_hint("reasoning-gym")
        ) from error
    curriculum = factory.create_curriculum(source.name)
    for name, attribute in curriculum.attributes.items():
        step = min((level - 1) // 2, source.hardest, len(attribute.levels) - 1)
        curriculum.set_attr_level(name, step)
    config = curriculum.generate_configuration({"seed": rng.randrange(1 << 31), "size": 1})
    entry = factory.DATASETS[source.name][0](config)[0]
    return {"question": entry["question"], "answer": str(entry["answer"])}


def _text(params: Params, name: str) -> str:
    found = params.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= MAX_CHARS:
        raise ValueError(f"{name!r} must be a text of at most {MAX_CHARS} characters")
    return found


def _read(source: GymSource, params: Params) -> re.Match[str]:
    parts = re.split(r"<<(.*?)>>", source.question, flags=re.DOTALL)
    form = "".join(f"({one})" if at % 2 else re.escape(one) for at, one in enumerate(parts))
    read = re.fullmatch(form, _text(params, "question").strip(), re.ASCII)
    if read is None:
        raise ValueError(f"this is no question of {source.name}")
    return read


def _maker(source: GymSource) -> Maker:
    return Maker(
        name=f"rg_{source.name}",
        kind="reasoning-gym",
        area="reasoning-gym",
        draw=partial(_draw, source),
        text=lambda params: _read(source, params)[0],
        solve=lambda params: source.answer(_text(params, "answer")),
        check=lambda params: source.solve(_read(source, params)),
        code=lambda params: source.code(_read(source, params)),
    )


def _ints(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"-?\d{1,40}", text)]


def _primes(read: re.Match[str]) -> MathAnswer:
    low, high = int(read[1]), int(read[2])
    sieve = bytearray([1]) * (high + 1)
    sieve[:2] = b"\0\0"[: high + 1]
    for at in range(2, math.isqrt(high) + 1):
        sieve[at * at :: at] = bytes(len(range(at * at, high + 1, at)))
    return integer(sum(sieve[low:]))


def _gcd(one: int, other: int) -> int:
    while other:
        one, other = other, one % other
    return one


def _lcm(one: int, other: int) -> int:
    return one * other // _gcd(one, other)


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAMED = {"binary": 2, "hexadecimal": 16}


def _base(text: str) -> int:
    base = _NAMED.get(text) or int(text.removeprefix("base-"))
    if not 2 <= base <= 36:
        raise ValueError(f"there is no base {base}")
    return base


def _converted(read: re.Match[str]) -> MathAnswer:
    value, base, digits = int(read[2], _base(read[1])), _base(read[3]), ""
    while value:
        value, digit = divmod(value, base)
        digits = _DIGITS[digit] + digits
    return text_answer(digits or "0")


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip


def _computed(node: ast.expr) -> int:
    """The value of a sum of whole numbers, whose size its text bounds."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            one, other = _computed(left), _computed(right)
            if isinstance(op, ast.LShift | ast.RShift) and not 0 <= other <= MAX_SHIFT:
                raise ValueError("a shift is too far")
            return _OPERATIONS[type(op)](one, other)
    raise ValueError("this is no sum of whole numbers")


def _hexadecimal(read: re.Match[str]) -> MathAnswer:
    return text_answer(hex(_computed(ast.parse(read[1], mode="eval").body)))


def _odds(read: re.Match[str]) -> MathAnswer:
    dice, least = [int(one) for one in re.findall(r"1d(\d+)", read[1])], int(read[2])
    ways = [1]
    for sides in dice:
        ways = [sum(ways[max(0, at - sides) : at]) if at else 0 for at in range(len(ways) + sides)]
    return rational(Fraction(sum(ways[least:]), math.prod(dice)))


def _bits(value: int) -> int:
    return value % 2 + _bits(value // 2) if value else 0


def _grid(text: str) -> Grid:
    grid = [_ints(row) for row in text.splitlines()]
    if len({len(row) for row in grid}) != 1:
        raise ValueError("rows of a grid must be as wide as each other")
    return grid


def _largest(grid: Grid) -> MathAnswer:
    sizes, seen = [0], set[tuple[int, int]]()
    for start in product(range(len(grid)), range(len(grid[0]))):
        todo, size = [start], 0
        while todo:
            row, column = todo.pop()
            inside = 0 <= row < len(grid) and 0 <= column < len(grid[row])
            if inside and grid[row][column] and (row, column) not in seen:
                seen.add((row, column))
                size += 1
                todo += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        sizes.append(size)
    return integer(max(sizes))


def _lives(read: re.Match[str]) -> MathAnswer:
    steps, grid = int(read[1]), _grid(read[2])
    high, wide = len(grid), len(grid[0])
    alive = {(r, c) for r, c in product(range(high), range(wide)) if grid[r][c]}
    for _ in range(steps):
        near: dict[tuple[int, int], int] = {}
        for (r, c), (down, right) in product(alive, product((-1, 0, 1), repeat=2)):
            if down or right:
                cell = ((r + down) % high, (c + right) % wide)
                near[cell] = near.get(cell, 0) + 1
        alive = {cell for cell, n in near.items() if n == 3 or (n == 2 and cell in alive)}
    rows = [[int((r, c) in alive) for c in range(wide)] for r in range(high)]
    return _matrix(str(rows))


def _matrix(text: str) -> MathAnswer:
    return MathAnswer(kind="matrix", value=text.replace(" ", ""))


def _root(read: re.Match[str]) -> MathAnswer:
    """Of a linear equation: its sides are ``slope * x + rest``."""
    slope, rest = 0, 0
    for side, sign in ((read[4], 1), (read[5], -1)):
        for minus, factor, name in re.findall(r"(-?)(\d*)\*?([a-z]?)", side.replace(" ", "")):
            if factor or name:
                value = sign * (-1 if minus else 1) * int(factor or 1)
                slope, rest = (slope + value, rest) if name else (slope, rest + value)
    return rational(Fraction(-rest, slope))


def _word(text: str) -> MathAnswer:
    if not re.fullmatch(r"[0-9a-zx-]{1,200}", text):
        raise ValueError("an answer must be a number")
    return text_answer(text)


def _number(text: str) -> MathAnswer:
    return integer(int(text))


_PRIMES = "from sympy import primepi\nprint(primepi({}) - primepi({} - 1))"
_LIFE = """\
import numpy as np
board = np.array({})
for _ in range({}):
    near = sum(np.roll(board, (r, c), (0, 1)) for r in (-1, 0, 1) for c in (-1, 0, 1)) - board
    board = ((near == 3) | ((near == 2) & (board == 1))).astype(int)
print(str(board.tolist()).replace(" ", ""))"""
_ISLANDS = """\
from scipy import ndimage
import numpy as np
parts, count = ndimage.label(np.array({}))
print(max([int((parts == one).sum()) for one in range(1, count + 1)], default=0))"""
_ODDS = """\
from fractions import Fraction
import numpy as np
ways = np.array([1], dtype=object)
for sides in {dice}:
    ways = np.convolve(ways, np.array([0] + [1] * sides, dtype=object))
print(Fraction(int(sum(ways[{least}:])), int(sum(ways))))"""
_BASE = """\
value, base, digits = int({!r}, {}), {}, ""
while value:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"[value % base] + digits
    value //= base
print(digits or 0)"""
_ROOT = """\
from sympy import Eq, Integer, solve, symbols
{name} = symbols({name!r})
print(solve(Eq(Integer(0) + {left}, Integer(0) + {right}), {name})[0])"""
_ISLAND_TEXT = """

An island is a group of 1's (representing land) connected 4-directionally (horizontal or vertical).
You may assume all four edges of the grid are surrounded by water.

The area of an island is the number of cells with a value 1 in the island.

Return the maximum area of an island in grid. If there is no island, return 0."""
_LIFE_TEXT = (
    "What will this Game of Life board look like after <<\\d{1,2}>> steps of simulation? Assume a Moore"
    " neighborhood and wrapping topology. Reply as array of arrays representing rows in the grid from top to"
    " bottom in JSON format. (An empty 3x3 grid would look like this: [[0,0,0],[0,0,0],[0,0,0]])\n\n"
    "<<[01,\\[\\]\n ]+>>."
)
_BASE_TEXT = (
    "Your task is to convert a number between two different bases.\n\nIf the target base is > 10, use"
    " lowercase letters a-z for digits above 9.\n\nNow, convert the <<base-\\d\\d?|binary|hexadecimal>>"
    " number <<[0-9a-z]{1,40}>> to <<base-\\d\\d?|binary|hexadecimal>>"
)
_HEX_TEXT = (
    "Please solve this problem. Assume there is arbitrary bit depth and that there are signed integers. If"
    " the answer is negative, reply as a negative value (ex., -0x3), not the two's-compliment form. Reply"
    " only with the final hexidecimal value.\n<<[0-9a-fx()+*<> -]{1,600}>>"
)
_DICE_TEXT = (
    "I have these dice: <<1d\\d{1,3}(?:, 1d\\d{1,3}){0,15}>>. What are the odds of rolling <<\\d{1,5}>> or"
    " higher? (Assume that all dice are rolled at once, and that '1d6' represents one roll of a 6-sided"
    " dice.) Please respond with a reduced fraction representing the probability [ex., 1/60]."
)
_EQUATION_TEXT = (
    "<<Solve for|(?:Find|Determine) the value of>> <<[a-z]>><<: | in the equation: | that satisfies: >>"
    "<<[\\da-z*+ -]{1,300}>> = <<[\\da-z*+ -]{1,300}>>"
)
_SOURCES = (
    GymSource(
        "count_primes",
        "Count how many prime numbers there are between <<\\d{1,7}>> and <<\\d{1,7}>> (inclusive) ?",
        _primes,
        _number,
        lambda read: _PRIMES.format(int(read[2]), int(read[1])),
    ),
    GymSource(
        "lcm",
        "Find the Least Common Multiple (LCM) of these numbers: <<[\\d, ]{1,200}>>",
        lambda read: integer(reduce(_lcm, _ints(read[1]))),
        _number,
        lambda read: f"import math\nprint(math.lcm(*{_ints(read[1])}))",
    ),
    GymSource(
        "chain_sum",
        "State the final answer to the following arithmetic problem: <<\\d+(?: [+-] \\d+){1,40}>> =",
        lambda read: integer(sum(_ints(read[1].replace("- ", "-")))),
        _number,
        lambda read: f"print({read[1]})",
    ),
    GymSource(
        "products",
        "Solve the following multiplication: <<\\d+(?: \\* \\d+){1,40}>>."
        " Give only the result as your final answer.",
        lambda read: integer(math.prod(_ints(read[1]))),
        _number,
        lambda read: f"print({read[1]})",
    ),
    GymSource(
        "base_conversion",
        _BASE_TEXT,
        _converted,
        _word,
        lambda read: _BASE.format(read[2], _base(read[1]), _base(read[3])),
    ),
    GymSource(
        "bitwise_arithmetic",
        _HEX_TEXT,
        _hexadecimal,
        _word,
        lambda read: f"print(hex({ast.unparse(ast.parse(read[1], mode='eval'))}))",
    ),
    GymSource(
        "count_bits",
        "How many 1 bits are there in the binary representation of the number <<\\d{1,12}>>?",
        lambda read: integer(_bits(int(read[1]))),
        _number,
        lambda read: f"print(bin({int(read[1])}).count('1'))",
    ),
    GymSource(
        "dice",
        _DICE_TEXT,
        _odds,
        lambda text: rational(Fraction(text)),
        lambda read: _ODDS.format(
            dice=[int(one) for one in re.findall(r"1d(\d+)", read[1])], least=int(read[2])
        ),
    ),
    GymSource(
        "largest_island",
        "You are given the following <<\\d{1,2} x \\d{1,2}>> binary matrix grid:\n<<[01 \n]+>>"
        + _ISLAND_TEXT,
        lambda read: _largest(_grid(read[2])),
        _number,
        lambda read: _ISLANDS.format(_grid(read[2])),
        hardest=1,
    ),
    GymSource(
        "game_of_life",
        _LIFE_TEXT,
        _lives,
        _matrix,
        lambda read: _LIFE.format(_grid(read[2]), int(read[1])),
        hardest=0,
    ),
    GymSource(
        "simple_equations",
        _EQUATION_TEXT,
        _root,
        lambda text: rational(Fraction(text)),
        lambda read: _ROOT.format(name=read[2], left=read[4], right=read[5]),
        hardest=2,
    ),
)
MAKERS = tuple(map(_maker, _SOURCES))
