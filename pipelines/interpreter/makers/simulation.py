"""Problems of following rules for many steps."""

from __future__ import annotations

from random import Random

from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    integer,
    letters,
    number,
    program,
    rows,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _josephus_numbers(params: Params) -> tuple[int, int]:
    return number(params, "people", 1, 10_000), number(params, "step", 1, 999)


def _josephus_by_rule(params: Params) -> MathAnswer:
    people, step = _josephus_numbers(params)
    place = 0
    for size in range(2, people + 1):
        place = (place + step) % size
    return integer(place + 1)


def _josephus_by_circle(params: Params) -> MathAnswer:
    people, step = _josephus_numbers(params)
    circle, place = list(range(1, people + 1)), 0
    while len(circle) > 1:
        place = (place + step - 1) % len(circle)
        circle.pop(place)
    return integer(circle[0])


JOSEPHUS = Maker(
    name="josephus",
    kind="logic",
    area="simulation",
    draw=lambda rng, level: drawn(
        rng, people=rng.randrange(100 * level, 1_000 * level), step=rng.randint(3, 99)
    ),
    text=worded(
        "{people} people, numbered from 1, stand in a circle. They are counted 1, 2, 3, ... beginning "
        "with number 1; who is counted {step} leaves, and counting starts again with the next. "
        "Which number has the last one?",
        "Players 1..{people} stand in a ring and are counted, from player 1 on. Whoever gets the "
        "count {step} leaves the ring, and the next player is counted 1 again, until one remains. "
        "Which number has this player?",
    ),
    solve=_josephus_by_rule,
    check=_josephus_by_circle,
    code=program(
        "people step",
        "ring, i = list(range(1, people + 1)), 0\nwhile len(ring) > 1:\n"
        "    i = (i + step - 1) % len(ring)\n    ring.pop(i)\nprint(ring[0])",
    ),
)


def _mixing(rng: Random, level: int) -> Params:
    return drawn(
        rng,
        start=rng.randrange(2**32),
        factor=rng.randrange(2**16, 2**32) | 1,
        shift=rng.randint(5, 19),
        turn=rng.randint(3, 17),
        rounds=rng.randrange(2 * level, 12 * level**2),
    )


def _mixing_numbers(params: Params) -> tuple[int, int, int, int, int]:
    start, factor = number(params, "start", 0, 2**32 - 1), number(params, "factor", 0, 2**32 - 1)
    shift, turn = number(params, "shift", 1, 31), number(params, "turn", 1, 31)
    return start, factor, shift, turn, number(params, "rounds", 1, 1_000)


def _mixing_by_words(params: Params) -> MathAnswer:
    x, factor, shift, turn, rounds = _mixing_numbers(params)
    for _ in range(rounds):
        x ^= x >> shift
        x = x * factor % 2**32
        x = (x << turn | x >> 32 - turn) % 2**32
    return integer(x)


def _mixing_by_bits(params: Params) -> MathAnswer:
    """The same on 32 separate bits, the lowest first."""
    start, factor, shift, turn, rounds = _mixing_numbers(params)
    bits = [start >> i & 1 for i in range(32)]
    places = [i for i in range(32) if factor >> i & 1]
    for _ in range(rounds):
        bits = [bit ^ (bits[i + shift] if i + shift < 32 else 0) for i, bit in enumerate(bits)]
        after, carry = [], 0
        for i in range(32):
            carry += sum(bits[i - place] for place in places if place <= i)
            after.append(carry & 1)
            carry >>= 1
        bits = after[32 - turn :] + after[: 32 - turn]
    return integer(int("".join(map(str, reversed(bits))), 2))


MIXING = Maker(
    name="bit_mixing",
    kind="logic",
    area="simulation",
    draw=_mixing,
    text=worded(
        "An unsigned 32-bit number x starts at {start}. One round is: x becomes x XOR (x shifted right "
        "by {shift}); x is multiplied by {factor}, modulo 2^32; x is rotated left by {turn} bits. "
        "What is x, in decimal, after {rounds} round(s)?",
        "Start with the uint32 value {start} and repeat {rounds} time(s): first x ^= x >> {shift}, then "
        "x *= {factor} (modulo 2^32), then rotate x left by {turn} bits. Give the final x in decimal.",
    ),
    solve=_mixing_by_words,
    check=_mixing_by_bits,
    code=program(
        "start factor shift turn rounds",
        """
x = start
for _ in range(rounds):
    x ^= x >> shift
    x = x * factor & 0xFFFFFFFF
    x = (x << turn | x >> (32 - turn)) & 0xFFFFFFFF
print(x)
""",
    ),
)

_RULES = (22, 30, 45, 54, 73, 75, 86, 89, 101, 106, 110, 124, 135, 149, 193, 225)


def _row_of_cells(rng: Random, level: int) -> Params:
    width = 12 + 4 * level
    cells = "".join(rng.choice("01") for _ in range(width))
    return drawn(
        rng, cells=cells, rule=rng.choice(_RULES), steps=rng.randrange(3 * level, 20 * level)
    )


def _row_numbers(params: Params) -> tuple[str, int, int]:
    cells = letters(params, "cells", 60, "01")
    return cells, number(params, "rule", 0, 255), number(params, "steps", 1, 300)


def _row_by_lists(params: Params) -> MathAnswer:
    text, rule, steps = _row_numbers(params)
    cells = [int(cell) for cell in text]
    for _ in range(steps):
        cells = [
            rule >> (4 * cells[i - 1] + 2 * cells[i] + cells[(i + 1) % len(cells)]) & 1
            for i in range(len(cells))
        ]
    return integer(int("".join(map(str, cells)), 2))


def _row_by_words(params: Params) -> MathAnswer:
    """All cells at once, as the bits of a number."""
    text, rule, steps = _row_numbers(params)
    width, x = len(text), int(text, 2)
    full = (1 << width) - 1
    for _ in range(steps):
        left, right = x >> 1 | (x & 1) << width - 1, (x << 1 | x >> width - 1) & full
        after = 0
        for k in range(8):
            if rule >> k & 1:
                parts = (left if k & 4 else ~left, x if k & 2 else ~x, right if k & 1 else ~right)
                after |= parts[0] & parts[1] & parts[2]
        x = after & full
    return integer(x)


ROW_OF_CELLS = Maker(
    name="elementary_automaton",
    kind="logic",
    area="simulation",
    draw=_row_of_cells,
    text=worded(
        "Cells in a ring (the last is a neighbour of the first) hold {cells}. In each step all cells "
        "change at once by the elementary cellular automaton of rule {rule} in Wolfram's numbering. "
        "Read the ring after {steps} steps as a binary number, the first cell first: which number is "
        "it in decimal?",
        "Run Wolfram's rule {rule} for {steps} steps on the cyclic row {cells}. Then read the row, from "
        "left to right, as a number in base 2 and give it in base 10.",
    ),
    solve=_row_by_lists,
    check=_row_by_words,
    code=program(
        "cells rule steps",
        """
row = [int(c) for c in cells]
n = len(row)
for _ in range(steps):
    row = [rule >> (4 * row[i - 1] + 2 * row[i] + row[(i + 1) % n]) & 1 for i in range(n)]
print(int("".join(map(str, row)), 2))
""",
    ),
)


def _orbit(rng: Random, level: int) -> Params:
    modulus = rng.randrange(3 ** (level + 4), 3 ** (level + 5)) * 4 + 1
    return drawn(
        rng,
        a=rng.randrange(2, 50),
        b=rng.randrange(1, modulus),
        modulus=modulus,
        start=rng.randrange(modulus),
    )


def _orbit_numbers(params: Params) -> tuple[int, int, int, int]:
    modulus = number(params, "modulus", 2, 8 * 10**6)
    return (
        number(params, "a", 0, 99),
        number(params, "b", 0, modulus),
        modulus,
        number(params, "start", 0),
    )


def _orbit_by_memory(params: Params) -> MathAnswer:
    """Adds up what comes, until something comes again."""
    a, b, modulus, value = _orbit_numbers(params)
    seen: set[int] = set()
    value %= modulus
    while value not in seen and len(seen) < 50_000:
        seen.add(value)
        value = (value * value + a * value + b) % modulus
    if value not in seen:
        raise ValueError("the sequence must repeat within 50000 steps")
    return integer(sum(seen))


def _orbit_by_two_runners(params: Params) -> MathAnswer:
    """Brent's method for the period, then a walk to where the circle begins, and once around."""
    a, b, modulus, start = _orbit_numbers(params)

    def after(x: int) -> int:
        return (x * x + a * x + b) % modulus

    power = period = 1
    slow, fast = start % modulus, after(start % modulus)
    while slow != fast:
        if power == period:
            slow, power, period = fast, 2 * power, 0
        fast, period = after(fast), period + 1
    slow = fast = start % modulus
    for _ in range(period):
        fast = after(fast)
    total = 0
    while slow != fast:
        total += slow
        slow, fast = after(slow), after(fast)
    for _ in range(period):
        total += slow
        slow = after(slow)
    return integer(total)


ORBIT = Maker(
    name="quadratic_orbit",
    kind="logic",
    area="simulation",
    draw=_orbit,
    text=worded(
        "A sequence starts with {start}. After x comes the remainder of x^2 + {a} x + {b} when it is "
        "divided by {modulus}. Some number is the first to come a second time. What is the sum of all "
        "different numbers of the sequence?",
        "Iterate x -> (x^2 + {a} x + {b}) mod {modulus} from x = {start} for ever. Add up the distinct "
        "values that are met, the start included.",
    ),
    solve=_orbit_by_memory,
    check=_orbit_by_two_runners,
    code=program(
        "a b modulus start",
        "seen, x = set(), start\nwhile x not in seen:\n    seen.add(x)\n"
        "    x = (x * x + a * x + b) % modulus\nprint(sum(seen))",
    ),
)


def _ant(rng: Random, level: int) -> Params:
    cells = [[x, y] for x in range(-3, 4) for y in range(-3, 4)]
    return drawn(
        rng,
        black=sorted(rng.sample(cells, rng.randint(4, 8 + level))),
        steps=rng.randrange(15 * level, 50 * level**2 + 40),
    )


def _ant_by_set(params: Params) -> MathAnswer:
    black = {(x, y) for x, y in rows(params, "black", 49, 2, -9, 9)}
    x, y, dx, dy = 0, 0, 0, 1
    for _ in range(number(params, "steps", 1, 5_000)):
        if (x, y) in black:
            dx, dy = -dy, dx
            black.remove((x, y))
        else:
            dx, dy = dy, -dx
            black.add((x, y))
        x, y = x + dx, y + dy
    return integer(sum(a * a + b * b for a, b in black))


def _ant_by_board(params: Params) -> MathAnswer:
    """On a board of complex numbers, with turns by multiplication."""
    colours: dict[complex, bool] = {
        complex(a, b): True for a, b in rows(params, "black", 49, 2, -9, 9)
    }
    place, ahead = 0j, 1j
    for _ in range(number(params, "steps", 1, 5_000)):
        ahead *= 1j if colours.get(place, False) else -1j
        colours[place] = not colours.get(place, False)
        place += ahead
    return integer(round(sum(p.real**2 + p.imag**2 for p, dark in colours.items() if dark)))


ANT = Maker(
    name="langtons_ant",
    kind="logic",
    area="simulation",
    draw=_ant,
    text=worded(
        "On an endless white grid the cells (x, y) = {black} are black. Langton's ant stands at (0, 0) "
        "and looks up, towards greater y. A step: on a white cell it turns right by 90 degrees, on a "
        "black one left; the cell changes its colour; the ant goes one cell ahead. After {steps} steps, "
        "what is the sum of x^2 + y^2 over all black cells?",
        "Langton's ant begins at the origin, facing (0, 1), with black cells at {black}. White: turn "
        "right, black: turn left; then flip the cell and move forward by one. Find the sum of x^2 + y^2 "
        "over the cells that are black after {steps} steps.",
    ),
    solve=_ant_by_set,
    check=_ant_by_board,
    code=program(
        "black steps",
        """
cells = {tuple(c) for c in black}
x, y, dx, dy = 0, 0, 0, 1
for _ in range(steps):
    dx, dy = (-dy, dx) if (x, y) in cells else (dy, -dx)
    cells ^= {(x, y)}
    x, y = x + dx, y + dy
print(sum(a * a + b * b for a, b in cells))
""",
    ),
)


def _longest_by_memory(params: Params) -> MathAnswer:
    """Collatz's sequences, with the lengths of what was met before."""
    low, high = _chain_numbers(params)
    known, total = {1: 0}, 0
    for start in range(low, high + 1):
        n, path = start, []
        while n not in known:
            path.append(n)
            n = 3 * n + 1 if n % 2 else n // 2
        length = known[n]
        for place, m in enumerate(reversed(path), 1):
            known[m] = length + place
        total += known[start]
    return integer(total)


def _longest_one_by_one(params: Params) -> MathAnswer:
    """Each on its own, all halvings at once."""
    low, high = _chain_numbers(params)
    total = 0
    for start in range(low, high + 1):
        n = start
        while n != 1:
            zeros = (n & -n).bit_length() - 1
            n, total = n >> zeros, total + zeros
            if n != 1:
                n, total = 3 * n + 1, total + 1
    return integer(total)


def _chain_numbers(params: Params) -> tuple[int, int]:
    low = number(params, "low", 1, 10**7)
    return low, number(params, "high", low, low + 2_000)


def _chain(rng: Random, level: int) -> Params:
    low = rng.randrange(10 ** (1 + level // 2), 10 ** (2 + level // 2))
    return drawn(rng, low=low, high=low + rng.randrange(10 * level, 100 * level))


COLLATZ = Maker(
    name="collatz_steps",
    kind="logic",
    area="simulation",
    draw=_chain,
    text=worded(
        "An even number is halved, an odd one is tripled and 1 added, until it is 1. How many steps do "
        "all whole numbers from {low} to {high} take together, each started on its own?",
        "Let c(n) be the number of steps in which n reaches 1 under n -> n/2 (even) and n -> 3n + 1 "
        "(odd). Find the sum of c(n) for n = {low}, ..., {high}.",
    ),
    solve=_longest_by_memory,
    check=_longest_one_by_one,
    code=program(
        "low high",
        "total = 0\nfor n in range(low, high + 1):\n    while n != 1:\n"
        "        n, total = 3 * n + 1 if n % 2 else n // 2, total + 1\nprint(total)",
    ),
)

MAKERS = (JOSEPHUS, MIXING, ROW_OF_CELLS, ORBIT, ANT, COLLATZ)
