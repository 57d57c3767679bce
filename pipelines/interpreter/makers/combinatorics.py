"""Problems of combinatorics: how many ways there are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, factorial, gcd
from random import Random

from envgen.pipelines.interpreter.makers.exact import subsets
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    integer,
    letters,
    number,
    numbers,
    program,
    rows,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _paths(rng: Random, level: int) -> Params:
    width, height = rng.randint(4 + level, 6 + 2 * level), rng.randint(4 + level, 6 + 2 * level)
    cells = [[x, y] for x in range(1, width) for y in range(1, height)]
    return drawn(rng, width=width, height=height, closed=sorted(rng.sample(cells, 2 + 2 * level)))


def _paths_numbers(params: Params) -> tuple[int, int, list[list[int]]]:
    closed = rows(params, "closed", 20, 2, 0, 40)
    if [0, 0] in closed:
        raise ValueError("'closed' must not have the start")
    return number(params, "width", 1, 40), number(params, "height", 1, 40), closed


def _paths_by_table(params: Params) -> MathAnswer:
    width, height, closed = _paths_numbers(params)
    column = [1] + [0] * height
    for x in range(width + 1):
        for y in range(height + 1):
            column[y] = 0 if [x, y] in closed else column[y] + (column[y - 1] if y else 0)
    return integer(column[height])


def _paths_by_first_block(params: Params) -> MathAnswer:
    """All paths minus those through closed points, grouped by the first closed point that they meet."""
    width, height, closed = _paths_numbers(params)
    points = sorted({(x, y) for x, y in [*closed, [width, height]]})
    if [width, height] in closed:
        return integer(0)
    first: dict[tuple[int, int], int] = {}
    for x, y in points:
        ways = comb(x + y, x)
        for (a, b), count in first.items():
            if a <= x and b <= y:
                ways -= count * comb(x - a + y - b, x - a)
        first[x, y] = ways
    return integer(first[width, height])


LATTICE_PATHS = Maker(
    name="lattice_paths",
    kind="math",
    area="combinatorics",
    draw=_paths,
    text=worded(
        "A path goes from (0, 0) to ({width}, {height}) in steps of 1 to the right or 1 up, and "
        "never through one of the points {closed}. How many such paths are there?",
        "In how many ways can a robot walk from (0, 0) to ({width}, {height}), if each move adds 1 "
        "to x or 1 to y and the points {closed} are forbidden?",
    ),
    solve=_paths_by_table,
    check=_paths_by_first_block,
    code=program(
        "width height closed",
        """
from functools import cache
bad = {tuple(c) for c in closed}
@cache
def ways(x, y):
    if x < 0 or y < 0 or (x, y) in bad:
        return 0
    return 1 if x == y == 0 else ways(x - 1, y) + ways(x, y - 1)
print(ways(width, height))
""",
    ),
)


def _coins(rng: Random, level: int) -> Params:
    coins = sorted(rng.sample(range(2, 12 + 3 * level), 3 + level // 2))
    return drawn(rng, coins=coins, most=5 + level, total=rng.randrange(30 * level, 45 * level) + 30)


def _coins_numbers(params: Params) -> tuple[list[int], int]:
    coins = numbers(params, "coins", 8, 1, 50)
    if len(set(coins)) != len(coins):
        raise ValueError("'coins' must differ")
    return coins, number(params, "total", 1, 500)


def _coins_by_table(params: Params) -> MathAnswer:
    coins, total = _coins_numbers(params)
    most = number(params, "most", 1, 20)
    ways = [1] + [0] * total
    for coin in coins:
        before = ways
        ways = [
            sum(before[n - k * coin] for k in range(min(most, n // coin) + 1))
            for n in range(total + 1)
        ]
    return integer(ways[total])


def _coins_by_series(params: Params) -> MathAnswer:
    """The coefficient in the product of (1 - x^(c (most + 1))) / (1 - x^c)."""
    coins, total = _coins_numbers(params)
    series = [1] + [0] * total
    for coin in coins:
        above = coin * (number(params, "most", 1, 20) + 1)
        for n in range(total, above - 1, -1):
            series[n] -= series[n - above]
        for n in range(coin, total + 1):
            series[n] += series[n - coin]
    return integer(series[total])


COINS = Maker(
    name="coin_change",
    kind="math",
    area="combinatorics",
    draw=_coins,
    text=worded(
        "There are {most} coins of each of the values {coins}. In how many ways can exactly {total} "
        "be paid? Coins of one value are alike and their order does not matter.",
        "How many ways are there to write {total} as a sum of parts from {coins}, each part used at "
        "most {most} times, where the order of the parts does not matter?",
    ),
    solve=_coins_by_table,
    check=_coins_by_series,
    code=program(
        "coins most total",
        """
ways = {0: 1}
for c in coins:
    new = {}
    for paid, count in ways.items():
        for k in range(most + 1):
            new[paid + k * c] = new.get(paid + k * c, 0) + count
    ways = new
print(ways.get(total, 0))
""",
    ),
)

_ALPHABET = "ABCD"


def _avoiding(rng: Random, level: int) -> Params:
    size = 2 + level % 3
    word = "".join(rng.choice(_ALPHABET[:size]) for _ in range(3 + level // 3))
    length = rng.randrange(5 + 3 * level, 10 + 5 * level)
    return drawn(rng, alphabet=_ALPHABET[:size], word=word, length=length)


def _avoiding_numbers(params: Params) -> tuple[str, str, int]:
    alphabet = letters(params, "alphabet", 4, _ALPHABET)
    if alphabet not in _ALPHABET:
        raise ValueError(f"'alphabet' must be the beginning of {_ALPHABET}")
    return alphabet, letters(params, "word", 6, alphabet), number(params, "length", 1, 60)


def _avoiding_by_automaton(params: Params) -> MathAnswer:
    """States are how much of the word the text ends with."""
    alphabet, word, length = _avoiding_numbers(params)

    def after(state: int, letter: str) -> int:
        text = word[:state] + letter
        return next(k for k in range(len(text), -1, -1) if text.endswith(word[:k]))

    counts = [1] + [0] * len(word)
    for _ in range(length):
        new = [0] * (len(word) + 1)
        for state, count in enumerate(counts[:-1]):
            for letter in alphabet:
                new[after(state, letter)] += count
        counts = new
    return integer(sum(counts[:-1]))


def _avoiding_by_first_place(params: Params) -> MathAnswer:
    """Counts texts by where the word first ends, with its overlaps with itself (Guibas, Odlyzko)."""
    alphabet, word, length = _avoiding_numbers(params)
    size, long = len(alphabet), len(word)
    overlaps = [k for k in range(1, long) if word[k:] == word[:-k]]
    first = [0] * (length + 1)
    for n in range(long, length + 1):
        first[n] = size ** (n - long)
        first[n] -= sum(first[m] * size ** (n - m - long) for m in range(long, n - long + 1))
        first[n] -= sum(first[n - k] for k in overlaps)
    met = sum(first[n] * size ** (length - n) for n in range(long, length + 1))
    return integer(size**length - met)


AVOIDING = Maker(
    name="words_avoiding",
    kind="math",
    area="combinatorics",
    draw=_avoiding,
    text=worded(
        "How many words of {length} letters over the alphabet {alphabet} do not contain {word} as a "
        "block of neighbouring letters?",
        "Each of {length} places in a row gets one of the letters {alphabet}. In how many of all "
        "these strings does {word} never appear as a contiguous substring?",
    ),
    solve=_avoiding_by_automaton,
    check=_avoiding_by_first_place,
    code=program(
        "alphabet word length",
        """
ends = {"": 1}
for _ in range(length):
    new = {}
    for end, count in ends.items():
        for letter in alphabet:
            if end + letter != word and not (end + letter).endswith(word):
                key = (end + letter)[-(len(word) - 1):] if len(word) > 1 else ""
                new[key] = new.get(key, 0) + count
    ends = new
print(sum(ends.values()))
""",
    ),
)


def _boxes_numbers(params: Params) -> tuple[int, int, int]:
    return (
        number(params, "balls", 1, 60),
        number(params, "boxes", 1, 12),
        number(params, "least", 0, 5),
    )


def _boxes_box_by_box(params: Params) -> MathAnswer:
    balls, boxes, least = _boxes_numbers(params)
    ways = [1] + [0] * balls
    for _ in range(boxes):
        ways = [
            sum(comb(n, k) * ways[n - k] for k in range(least, n + 1)) for n in range(balls + 1)
        ]
    return integer(ways[balls])


def _boxes_by_series(params: Params) -> MathAnswer:
    """By the coefficient of x^balls in (sum of x^k / k! over k >= least)^boxes."""
    balls, boxes, least = _boxes_numbers(params)
    base = [Fraction(int(k >= least), factorial(k)) for k in range(balls + 1)]
    result = [Fraction(1)] + [Fraction(0)] * balls
    for bit in bin(boxes)[2:]:
        result = _series_product(result, result)
        result = _series_product(result, base) if bit == "1" else result
    return integer(int(result[balls] * factorial(balls)))


def _series_product(a: Sequence[Fraction], b: Sequence[Fraction]) -> list[Fraction]:
    terms = [
        [x * y for x, y in zip(a[: n + 1], b[n::-1], strict=True) if x and y] for n in range(len(a))
    ]
    return [sum(row, Fraction(0)) for row in terms]


BOXES = Maker(
    name="balls_in_boxes",
    kind="math",
    area="combinatorics",
    draw=lambda rng, level: drawn(
        rng,
        balls=rng.randrange(12 + 2 * level, 20 + 4 * level),
        boxes=rng.randint(3, 4 + level // 2),
        least=rng.randint(1, 3),
    ),
    text=worded(
        "In how many ways can {balls} people, all different, be put into {boxes} numbered rooms so "
        "that each room has at least {least} of them?",
        "How many functions from a set of {balls} elements to a set of {boxes} elements take every "
        "value at least {least} time(s)?",
    ),
    solve=_boxes_box_by_box,
    check=_boxes_by_series,
    code=program(
        "balls boxes least",
        """
from math import comb
ways = {0: 1}
for _ in range(boxes):
    new = {}
    for used, count in ways.items():
        for k in range(least, balls - used + 1):
            new[used + k] = new.get(used + k, 0) + count * comb(balls - used, k)
    ways = new
print(ways.get(balls, 0))
""",
    ),
)


def _necklace(rng: Random, level: int) -> Params:
    unit = rng.choice((1, 2, 2, 3))
    beads = [unit * rng.randint(1, 5 + level // 2) for _ in range(3 + level // 3)]
    beads[0] += unit * (1 + level // 2)
    return drawn(rng, beads=beads)


def _arrangements(beads: Sequence[int]) -> int:
    result = factorial(sum(beads))
    for count in beads:
        result //= factorial(count)
    return result


def _necklaces_by_turns(params: Params) -> MathAnswer:
    """Burnside's lemma: the arrangements that each rotation leaves alone."""
    beads = numbers(params, "beads", 6, 1, 40)
    size, total = sum(beads), 0
    for turn in range(size):
        repeats = size // gcd(turn, size)
        if all(count % repeats == 0 for count in beads):
            total += _arrangements([count // repeats for count in beads])
    return integer(total // size)


def _necklaces_by_periods(params: Params) -> MathAnswer:
    """Arrangements of a least period p fall into classes of p."""
    beads = numbers(params, "beads", 6, 1, 40)
    whole, total = gcd(*beads), 0
    own: dict[int, int] = {}
    for repeats in sorted((d for d in range(1, whole + 1) if whole % d == 0), reverse=True):
        fixed = _arrangements([count // repeats for count in beads])
        own[repeats] = fixed - sum(n for r, n in own.items() if r % repeats == 0)
        total += own[repeats] * repeats // sum(beads)
    return integer(total)


NECKLACES = Maker(
    name="necklaces",
    kind="math",
    area="combinatorics",
    draw=_necklace,
    text=worded(
        "Beads of different colours, {beads} of them (one number for each colour), are all threaded "
        "on a ring. How many different rings are there, if two are the same when one is the other "
        "turned, but a mirror image counts as different?",
        "How many circular arrangements are there of coloured balls, with {beads} balls of the "
        "colours 1, 2, 3 and so on? Rotations count as one arrangement, reflections do not.",
    ),
    solve=_necklaces_by_turns,
    check=_necklaces_by_periods,
    code=program(
        "beads",
        """
from math import factorial, gcd
n, total = sum(beads), 0
for turn in range(n):
    r = n // gcd(turn, n)
    if all(b % r == 0 for b in beads):
        ways = factorial(n // r)
        for b in beads:
            ways //= factorial(b // r)
        total += ways
print(total // n)
""",
    ),
)


def _seating(rng: Random, level: int) -> Params:
    size = 6 + level // 2
    refused = [rng.sample(range(1, size + 1), 2) for _ in range(size)]
    return drawn(rng, size=size, refused=[sorted(pair) for pair in refused])


def _seats(params: Params) -> list[list[int]]:
    refused = rows(params, "refused", 10, 2, 1, 10)
    if number(params, "size", 1, 10) != len(refused):
        raise ValueError("'refused' must have a row for each person")
    return [[int(j + 1 not in row) for j in range(len(refused))] for row in refused]


def _seating_by_sets(params: Params) -> MathAnswer:
    ways = {0: 1}
    for row in _seats(params):
        after: dict[int, int] = {}
        for used, count in ways.items():
            for j, free in enumerate(row):
                if free and not used >> j & 1:
                    after[used | 1 << j] = after.get(used | 1 << j, 0) + count
        ways = after
    return integer(sum(ways.values()))


def _seating_by_ryser(params: Params) -> MathAnswer:
    """Ryser's formula for a permanent."""
    seats = _seats(params)
    total = 0
    for some in subsets(range(len(seats))):
        term = (-1) ** (len(seats) - len(some))
        for row in seats:
            term *= sum(row[j] for j in some)
        total += term
    return integer(total)


SEATING = Maker(
    name="refused_seats",
    kind="math",
    area="combinatorics",
    draw=_seating,
    text=worded(
        "{size} people sit down on {size} seats, numbered from 1. Each refuses two seats; in the "
        "order of the people: {refused}. In how many ways can they all sit, one on each seat?",
        "Count the permutations p of 1..{size} in which p(i) is never one of the two numbers of the "
        "i-th pair of {refused}.",
    ),
    solve=_seating_by_sets,
    check=_seating_by_ryser,
    code=program(
        "size refused",
        """
from functools import cache
@cache
def ways(i, used):
    if i == size:
        return 1
    return sum(ways(i + 1, used | 1 << j) for j in range(1, size + 1)
               if not used >> j & 1 and j not in refused[i])
print(ways(0, 0))
""",
    ),
)


def _bounded_sum(rng: Random, level: int) -> Params:
    low = [rng.randint(-3, 5) for _ in range(3 + level // 2)]
    high = [a + rng.randint(5, 10 + 4 * level) for a in low]
    return drawn(rng, low=low, high=high, total=(sum(low) + sum(high)) // 2 + rng.randint(-4, 4))


def _bounded_numbers(params: Params) -> tuple[list[int], list[int], int]:
    low, high = numbers(params, "low", 8, -9, 9), numbers(params, "high", 8, -9, 99)
    if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("'high' must be as many as 'low', and not below")
    return low, high, number(params, "total", -500, 1_000)


def _bounded_by_table(params: Params) -> MathAnswer:
    low, high, total = _bounded_numbers(params)
    ways = {0: 1}
    for a, b in zip(low, high, strict=True):
        after: dict[int, int] = {}
        for reached, count in ways.items():
            for x in range(a, b + 1):
                after[reached + x] = after.get(reached + x, 0) + count
        ways = after
    return integer(ways.get(total, 0))


def _bounded_by_exclusion(params: Params) -> MathAnswer:
    """Stars and bars, less those above a bound, by inclusion and exclusion."""
    low, high, total = _bounded_numbers(params)
    count, rest = 0, total - sum(low)
    for some in subsets(range(len(low))):
        left = rest - sum(high[i] - low[i] + 1 for i in some)
        if left >= 0:
            count += (-1) ** len(some) * comb(left + len(low) - 1, len(low) - 1)
    return integer(count)


BOUNDED_SUM = Maker(
    name="bounded_sums",
    kind="math",
    area="combinatorics",
    draw=_bounded_sum,
    text=worded(
        "How many lists of whole numbers x1, x2, ... have the sum {total}, if the numbers are, in "
        "order, at least {low} and at most {high}?",
        "Count the integer solutions of x1 + x2 + ... = {total} with lower bounds {low} and upper "
        "bounds {high}, both allowed, for x1, x2, ... in this order.",
    ),
    solve=_bounded_by_table,
    check=_bounded_by_exclusion,
    code=program(
        "low high total",
        """
from functools import cache
@cache
def ways(i, left):
    if i == len(low):
        return int(left == 0)
    return sum(ways(i + 1, left - x) for x in range(low[i], high[i] + 1))
print(ways(0, total))
""",
    ),
)


def _binomial_by_digits(params: Params) -> MathAnswer:
    """Lucas's theorem: digit by digit in the prime's base."""
    n, prime = number(params, "n", 0, 60_000), number(params, "prime", 2, 2_000)
    k, result = number(params, "k", 0, n), 1
    if any(prime % d == 0 for d in range(2, prime)):
        raise ValueError("'prime' must be one")
    while n or k:
        result = result * comb(n % prime, k % prime) % prime
        n, k = n // prime, k // prime
    return integer(result)


def _binomial_in_full(params: Params) -> MathAnswer:
    n, prime = number(params, "n", 0, 60_000), number(params, "prime", 2, 2_000)
    return integer(comb(n, number(params, "k", 0, n)) % prime)


def _binomial(rng: Random, level: int) -> Params:
    prime = rng.choice([p for p in range(200, 2_000) if all(p % d for d in range(2, 45))])
    n = rng.randrange(2_000 + 500 * level, 3_000 + 6_000 * level)
    high, low = divmod(n, prime)
    k = rng.randint(high // 3, high) * prime + rng.randint(low // 3, low)
    return drawn(rng, n=n, k=k, prime=prime)


BINOMIAL = Maker(
    name="binomial_rest",
    kind="math",
    area="combinatorics",
    draw=_binomial,
    text=worded(
        "A committee of {k} is chosen from {n} people. What remainder does the number of possible "
        "committees leave when it is divided by {prime}?",
        "What is the binomial coefficient C({n}, {k}) modulo {prime}?",
    ),
    solve=_binomial_by_digits,
    check=_binomial_in_full,
    code=program("n k prime", "from math import comb\nprint(comb(n, k) % prime)"),
)

MAKERS = (
    LATTICE_PATHS,
    COINS,
    AVOIDING,
    BOXES,
    NECKLACES,
    SEATING,
    BOUNDED_SUM,
    BINOMIAL,
)
