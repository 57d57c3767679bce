"""Problems of probability, with exact fractions as answers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from itertools import product as choices
from math import comb
from random import Random

from envgen.pipelines.interpreter.makers.exact import matrix_power, product, solution, subsets
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    number,
    numbers,
    program,
    rational,
    rows,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _dice(rng: Random, level: int) -> Params:
    sides = sorted(rng.choice((4, 6, 8, 10, 12, 20)) for _ in range(3 + level // 2))
    middle = (sum(sides) + len(sides)) // 2
    return drawn(rng, sides=sides, least=middle + rng.randint(-4, 4 + level))


def _dice_by_products(params: Params) -> MathAnswer:
    counts, least = [1], number(params, "least", 0, 200)
    for sides in numbers(params, "sides", 8, 2, 20):
        counts = product(counts, [0] + [1] * sides)
    return rational(Fraction(sum(counts[least:]), sum(counts)))


def _dice_by_exclusion(params: Params) -> MathAnswer:
    """Counts the rolls of a lower sum by stars and bars, less those above the dice's sides."""
    sides, least = numbers(params, "sides", 8, 2, 20), number(params, "least", 0, 200)
    below, total = 0, 1
    for some in subsets(sides):
        rest = least - 1 - len(sides) - sum(some)
        below += (-1) ** len(some) * comb(rest + len(sides), len(sides)) if rest >= 0 else 0
    for side in sides:
        total *= side
    return rational(1 - Fraction(below, total))


DICE = Maker(
    name="dice_sum",
    kind="math",
    area="probability",
    draw=_dice,
    text=worded(
        "Fair dice with {sides} sides, numbered from 1, are thrown once, all together. What is the "
        "probability that their sum is {least} or more? Give a reduced fraction a/b.",
        "You roll one fair die for each of these numbers of sides: {sides}. With which probability "
        "is the total at least {least}? Answer with a reduced fraction a/b.",
    ),
    solve=_dice_by_products,
    check=_dice_by_exclusion,
    code=program(
        "sides least",
        """
from fractions import Fraction
chances = {0: Fraction(1)}
for n in sides:
    new = {}
    for total, p in chances.items():
        for face in range(1, n + 1):
            new[total + face] = new.get(total + face, 0) + p / n
    chances = new
print(sum(p for total, p in chances.items() if total >= least))
""",
    ),
)


def _urn(rng: Random, level: int) -> Params:
    balls = [rng.randint(2, 6 + level) for _ in range(3 + level // 3)]
    return drawn(rng, balls=balls, picked=len(balls) + rng.randint(1, 2 + level // 2))


def _urn_numbers(params: Params) -> tuple[list[int], int]:
    balls = numbers(params, "balls", 6, 1, 20)
    return balls, number(params, "picked", 1, sum(balls))


def _urn_by_exclusion(params: Params) -> MathAnswer:
    balls, picked = _urn_numbers(params)
    good = sum((-1) ** len(some) * comb(sum(balls) - sum(some), picked) for some in subsets(balls))
    return rational(Fraction(good, comb(sum(balls), picked)))


def _urn_colour_by_colour(params: Params) -> MathAnswer:
    balls, picked = _urn_numbers(params)
    ways = [1]
    for count in balls:
        ways = product(ways, [0] + [comb(count, k) for k in range(1, count + 1)])
    return rational(Fraction(ways[picked] if picked < len(ways) else 0, comb(sum(balls), picked)))


URN = Maker(
    name="urn_all_colours",
    kind="math",
    area="probability",
    draw=_urn,
    text=worded(
        "An urn holds balls of different colours, {balls} of them, a number for each colour. "
        "{picked} balls are drawn without putting any back. What is the probability that every "
        "colour is among them? Give a reduced fraction a/b.",
        "From groups of {balls} people, {picked} people are chosen at random, all choices being "
        "equally likely. With what probability does each group have someone chosen? Answer with a "
        "reduced fraction a/b.",
    ),
    solve=_urn_by_exclusion,
    check=_urn_colour_by_colour,
    code=program(
        "balls picked",
        """
from fractions import Fraction
from math import comb
ways = {0: 1}
for n in balls:
    new = {}
    for used, count in ways.items():
        for k in range(1, n + 1):
            new[used + k] = new.get(used + k, 0) + count * comb(n, k)
    ways = new
print(Fraction(ways.get(picked, 0), comb(sum(balls), picked)))
""",
    ),
)


def _chain(rng: Random, level: int) -> Params:
    size, total = 3 + level // 4, rng.choice((8, 9, 10, 11, 12))
    weights = []
    for _ in range(size):
        cuts = sorted(rng.randint(0, total) for _ in range(size - 1))
        ends = [0, *cuts, total]
        weights.append([b - a for a, b in pairwise(ends)])
    return drawn(rng, weights=weights, total=total, steps=2 + 2 * level, end=rng.randint(1, size))


def _chain_numbers(params: Params) -> tuple[list[list[int]], int, int, int]:
    weights, total = rows(params, "weights", 6, low=0, high=20), number(params, "total", 1, 20)
    if any(sum(row) != total for row in weights):
        raise ValueError("'weights' must add up to 'total' in each row")
    return weights, total, number(params, "steps", 1, 30), number(params, "end", 1, len(weights))


def _chain_by_power(params: Params) -> MathAnswer:
    weights, total, steps, end = _chain_numbers(params)
    return rational(Fraction(matrix_power(weights, steps)[0][end - 1], total**steps))


def _chain_by_steps(params: Params) -> MathAnswer:
    weights, total, steps, end = _chain_numbers(params)
    chances = [Fraction(int(i == 0)) for i in range(len(weights))]
    for _ in range(steps):
        chances = [
            sum(
                (p * Fraction(row[j], total) for p, row in zip(chances, weights, strict=True)),
                Fraction(0),
            )
            for j in range(len(weights))
        ]
    return rational(chances[end - 1])


CHAIN = Maker(
    name="markov_chain",
    kind="math",
    area="probability",
    draw=_chain,
    text=worded(
        "A Markov chain has the states 1, 2, and so on. From each state, in order, it goes to the "
        "states 1, 2, ... with {total} times the probabilities being {weights}. It begins in state "
        "1. What is the probability that it is in state {end} after {steps} steps? "
        "Give a reduced fraction a/b.",
        "A token moves between the places 1, 2, .... The row for each place, {weights}, divided by "
        "{total}, says with which probabilities it moves to the places 1, 2, ... next. Starting at "
        "place 1, how likely is it at place {end} after {steps} moves? Answer with a reduced "
        "fraction a/b.",
    ),
    solve=_chain_by_power,
    check=_chain_by_steps,
    code=program(
        "weights total steps end",
        "from sympy import Matrix, Rational\n"
        "print((Matrix(weights) ** steps)[0, end - 1] / Rational(total) ** steps)",
    ),
)


def _walk(rng: Random, level: int) -> Params:
    below = rng.randint(5, 12)
    above = rng.choice([k for k in range(2, below) if 2 * k != below])
    goal = 6 + 2 * level + rng.randint(0, 2)
    return drawn(rng, above=above, below=below, goal=goal, start=rng.randint(2, goal - 2))


def _walk_numbers(params: Params) -> tuple[Fraction, int, int]:
    below, goal = number(params, "below", 2, 20), number(params, "goal", 2, 30)
    chance = Fraction(number(params, "above", 1, below - 1), below)
    if 2 * chance == 1:
        raise ValueError("'above' must not be half of 'below'")
    return chance, goal, number(params, "start", 1, goal - 1)


def _walk_by_formula(params: Params) -> MathAnswer:
    """The gambler's ruin: expected length of the game."""
    up, goal, start = _walk_numbers(params)
    ratio = (1 - up) / up
    wins = (1 - ratio**start) / (1 - ratio**goal)
    return rational((start - goal * wins) / (1 - 2 * up))


def _walk_by_system(params: Params) -> MathAnswer:
    up, goal, start = _walk_numbers(params)
    matrix = [[Fraction(int(i == j)) for j in range(goal - 1)] for i in range(goal - 1)]
    for i in range(goal - 2):
        matrix[i][i + 1] -= up
        matrix[i + 1][i] -= 1 - up
    return rational(solution(matrix, [1] * (goal - 1))[start - 1])


WALK = Maker(
    name="ruin_time",
    kind="math",
    area="probability",
    draw=_walk,
    text=worded(
        "A gambler has {start} coins. Each round he wins one with probability {above}/{below} and "
        "loses one otherwise, until he has none or {goal}. What is the expected number of rounds? "
        "Give a reduced fraction a/b.",
        "A random walk starts at {start} and moves by +1 with probability {above}/{below}, else by "
        "-1. How many steps does it take on average to reach 0 or {goal}, whichever comes first? "
        "Answer with a reduced fraction a/b.",
    ),
    solve=_walk_by_formula,
    check=_walk_by_system,
    code=program(
        "above below goal start",
        """
from sympy import Matrix, Rational, ones
p, n = Rational(above, below), goal - 1
m = Matrix(n, n, lambda i, j: 1 if i == j else -p if j == i + 1 else p - 1 if j == i - 1 else 0)
print(m.LUsolve(ones(n, 1))[start - 1])
""",
    ),
)


def _coupons(rng: Random, level: int) -> Params:
    return drawn(rng, weights=[rng.randint(1, 12) for _ in range(3 + level // 2)])


def _coupons_by_exclusion(params: Params) -> MathAnswer:
    weights = numbers(params, "weights", 8, 1, 12)
    total = sum(weights)
    terms = [
        (-1) ** (len(some) + 1) * Fraction(total, sum(some)) for some in subsets(weights) if some
    ]
    return rational(sum(terms, Fraction(0)))


def _coupons_by_states(params: Params) -> MathAnswer:
    """From the set of cards that one has: the expected number of packs that are still to buy."""
    weights = numbers(params, "weights", 8, 1, 12)
    waits: dict[tuple[int, ...], Fraction] = {}
    for has in sorted(choices((0, 1), repeat=len(weights)), reverse=True):
        missing = [i for i, got in enumerate(has) if not got]
        wait = Fraction(sum(weights) if missing else 0)
        for i in missing:
            wait += weights[i] * waits[(*has[:i], 1, *has[i + 1 :])]
        waits[has] = wait / sum(weights[i] for i in missing) if missing else wait
    return rational(waits[(0,) * len(weights)])


COUPONS = Maker(
    name="coupon_collector",
    kind="math",
    area="probability",
    draw=_coupons,
    text=worded(
        "Each pack holds one card. The kinds of cards come with probabilities in the proportions "
        "{weights} (one number for each kind), packs being independent. How many packs are needed on "
        "average until one has every kind? Give a reduced fraction a/b.",
        "A wheel has sectors in the proportions {weights}. What is the expected number of spins until "
        "each sector has come up at least once? Answer with a reduced fraction a/b.",
    ),
    solve=_coupons_by_exclusion,
    check=_coupons_by_states,
    code=program(
        "weights",
        """
from fractions import Fraction
from itertools import combinations
total = sum(weights)
print(sum((-1) ** (k + 1) * Fraction(total, sum(c))
          for k in range(1, len(weights) + 1) for c in combinations(weights, k)))
""",
    ),
)


def _streak(rng: Random, level: int) -> Params:
    below = rng.randint(3, 9)
    return drawn(
        rng,
        above=rng.randint(1, below - 1),
        below=below,
        streak=rng.randint(2, 3 + level // 3),
        trials=rng.randrange(6 + 2 * level, 10 + 3 * level),
    )


def _streak_numbers(params: Params) -> tuple[Fraction, int, int]:
    below = number(params, "below", 2, 20)
    chance = Fraction(number(params, "above", 1, below - 1), below)
    return chance, number(params, "streak", 1, 10), number(params, "trials", 1, 60)


def _streak_by_states(params: Params) -> MathAnswer:
    chance, streak, trials = _streak_numbers(params)
    states = [Fraction(1)] + [Fraction(0)] * (streak - 1)
    for _ in range(trials):
        states = [sum(states) * (1 - chance), *(p * chance for p in states[:-1])]
    return rational(1 - sum(states))


def _streak_by_first_end(params: Params) -> MathAnswer:
    """The first streak ends at n: a failure before it, and none ended earlier."""
    chance, streak, trials = _streak_numbers(params)
    reached = [Fraction(0)] * (trials + 1)
    for n in range(streak, trials + 1):
        new = chance**streak
        if n > streak:
            new *= (1 - chance) * (1 - reached[n - streak - 1])
        reached[n] = reached[n - 1] + new
    return rational(reached[trials])


STREAK = Maker(
    name="streak_chance",
    kind="math",
    area="probability",
    draw=_streak,
    text=worded(
        "A player hits with probability {above}/{below}, each shot independent of the others. What is "
        "the probability that {trials} shots have somewhere {streak} or more hits in a row? Give a "
        "reduced fraction a/b.",
        "A coin shows heads with probability {above}/{below}. It is tossed {trials} times. How likely "
        "is a run of at least {streak} consecutive heads? Answer with a reduced fraction a/b.",
    ),
    solve=_streak_by_states,
    check=_streak_by_first_end,
    code=program(
        "above below streak trials",
        """
from fractions import Fraction
p = Fraction(above, below)
states = [Fraction(1)] + [Fraction(0)] * (streak - 1)
for _ in range(trials):
    states = [sum(states) * (1 - p)] + [s * p for s in states[:-1]]
print(1 - sum(states))
""",
    ),
)

MAKERS = (DICE, URN, CHAIN, WALK, COUPONS, STREAK)
