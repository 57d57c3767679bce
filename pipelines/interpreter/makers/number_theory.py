"""Problems of number theory."""

from __future__ import annotations

from math import gcd, isqrt
from random import Random

from envgen.pipelines.interpreter.makers.maker import Maker, Params, integer, number
from envgen.verifiers.maths import MathAnswer


def _primes(limit: int) -> list[bool]:
    """Which numbers up to ``limit`` are prime, by the sieve of Eratosthenes."""
    sieve = [False, False] + [True] * (limit - 1)
    for i in range(2, isqrt(limit) + 1):
        if sieve[i]:
            sieve[i * i :: i] = [False] * len(range(i * i, limit + 1, i))
    return sieve


def _prime_range(rng: Random, level: int) -> Params:
    low = rng.randrange(10 ** (level // 2 + 1), 10 ** (level // 2 + 2))
    return {"low": low, "high": low + rng.randrange(200, 400 * level)}


def _count_by_sieve(params: Params) -> MathAnswer:
    low, high = number(params, "low"), number(params, "high")
    return integer(sum(_primes(high)[low:]))


def _count_by_trial(params: Params) -> MathAnswer:
    low, high = number(params, "low"), number(params, "high")
    return integer(
        sum(n > 1 and all(n % d for d in range(2, isqrt(n) + 1)) for n in range(low, high + 1))
    )


PRIME_COUNT = Maker(
    name="prime_count",
    kind="math",
    area="number theory",
    draw=_prime_range,
    text=lambda p: (
        f"How many prime numbers are there from {p['low']} to {p['high']}, both included?"
    ),
    solve=_count_by_sieve,
    check=_count_by_trial,
    code=lambda p: (
        f"from sympy import primerange\nprint(len(list(primerange({p['low']}, {p['high']} + 1))))"
    ),
)


def _power(rng: Random, level: int) -> Params:
    return {
        "base": rng.randrange(3, 10 ** (level // 2 + 1)),
        "power": rng.randrange(10**level, 10 ** (level + 1)),
        "modulus": rng.randrange(10 ** (level // 2 + 1), 10 ** (level // 2 + 2)),
    }


def _power_by_cycle(params: Params) -> MathAnswer:
    """The powers of a number repeat: find where, and take the place in the cycle."""
    base, modulus = number(params, "base"), number(params, "modulus")
    seen: dict[int, int] = {}
    powers: list[int] = []
    value = 1 % modulus
    while value not in seen:
        seen[value] = len(powers)
        powers.append(value)
        value = value * base % modulus
    start = seen[value]
    power = number(params, "power")
    place = power if power < start else start + (power - start) % (len(powers) - start)
    return integer(powers[place])


POWER_REST = Maker(
    name="power_rest",
    kind="math",
    area="number theory",
    draw=_power,
    text=lambda p: (
        f"What is the remainder of {p['base']}^{p['power']} when it is divided by {p['modulus']}?"
    ),
    solve=lambda p: integer(pow(number(p, "base"), number(p, "power"), number(p, "modulus"))),
    check=_power_by_cycle,
    code=lambda p: f"print(pow({p['base']}, {p['power']}, {p['modulus']}))",
)


def _coprime_by_totient(params: Params) -> MathAnswer:
    n = rest = number(params, "n")
    result, d = n, 2
    while d * d <= rest:
        if rest % d == 0:
            result -= result // d
            while rest % d == 0:
                rest //= d
        d += 1
    return integer(result - result // rest if rest > 1 else result)


COPRIME_COUNT = Maker(
    name="coprime_count",
    kind="math",
    area="number theory",
    draw=lambda rng, level: {
        "n": rng.randrange(2 * 10 ** (level // 3 + 2), 10 ** (level // 3 + 3))
    },
    text=lambda p: (
        f"How many whole numbers from 1 to {p['n']} have no common divisor with {p['n']} but 1?"
    ),
    solve=_coprime_by_totient,
    check=lambda p: integer(sum(gcd(i, number(p, "n")) == 1 for i in range(1, number(p, "n") + 1))),
    code=lambda p: f"from sympy import totient\nprint(totient({p['n']}))",
)

MAKERS = (PRIME_COUNT, POWER_REST, COPRIME_COUNT)
