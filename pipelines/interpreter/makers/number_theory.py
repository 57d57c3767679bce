"""Problems of number theory."""

from __future__ import annotations

from math import factorial, gcd, isqrt, lcm
from random import Random

from envgen.pipelines.interpreter.makers.exact import subsets
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    integer,
    number,
    numbers,
    program,
    worded,
)
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
    return drawn(rng, low=low, high=low + rng.randrange(200, 400 * level))


def _count_by_sieve(params: Params) -> MathAnswer:
    low, high = number(params, "low", 0), number(params, "high", 2, 10**6 + 4_000)
    return integer(sum(_primes(high)[low:]))


def _count_by_trial(params: Params) -> MathAnswer:
    high = number(params, "high", 2, 10**6 + 4_000)
    low = number(params, "low", high - 4_000)
    return integer(
        sum(n > 1 and all(n % d for d in range(2, isqrt(n) + 1)) for n in range(low, high + 1))
    )


PRIME_COUNT = Maker(
    name="prime_count",
    kind="math",
    area="number theory",
    draw=_prime_range,
    text=worded(
        "How many prime numbers are there from {low} to {high}, both included?",
        "Count the primes p with {low} <= p <= {high}.",
    ),
    solve=_count_by_sieve,
    check=_count_by_trial,
    code=program(
        "low high", "from sympy import primerange\nprint(len(list(primerange(low, high + 1))))"
    ),
)


def _power(rng: Random, level: int) -> Params:
    return drawn(
        rng,
        base=rng.randrange(3, 10 ** (level // 2 + 1)),
        power=rng.randrange(10**level, 10 ** (level + 1)),
        modulus=rng.randrange(10 ** (level // 2 + 1), 3 * 10 ** (level // 2 + 1)),
    )


def _power_by_cycle(params: Params) -> MathAnswer:
    """The powers of a number repeat: find where, and take the place in the cycle."""
    base, modulus = number(params, "base"), number(params, "modulus", 2, 10**6)
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
    text=worded(
        "What is the remainder of {base}^{power} when it is divided by {modulus}?",
        "Compute {base}^{power} modulo {modulus}, a number from 0 to {modulus} - 1.",
    ),
    solve=lambda p: integer(
        pow(number(p, "base"), number(p, "power", 1), number(p, "modulus", 2, 10**6))
    ),
    check=_power_by_cycle,
    code=program("base power modulus", "print(pow(base, power, modulus))"),
)


def _coprime_by_totient(params: Params) -> MathAnswer:
    n = rest = number(params, "n", 1, 10**6)
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
    draw=lambda rng, level: drawn(rng, n=rng.randrange(4_000 * level, 12_000 * level)),
    text=worded(
        "How many whole numbers from 1 to {n} have no common divisor with {n} but 1?",
        "Among the fractions 1/{n}, 2/{n}, ..., {n}/{n}, how many can't be reduced?",
    ),
    solve=_coprime_by_totient,
    check=lambda p: integer(sum(gcd(i, number(p, "n")) == 1 for i in range(1, number(p, "n") + 1))),
    code=program("n", "from sympy import totient\nprint(totient(n))"),
)


_SMALL_PRIMES = [p for p in range(5, 100) if all(p % d for d in range(2, p))]


def _remainders(rng: Random, level: int) -> Params:
    moduli = rng.sample(_SMALL_PRIMES, 3 + level // 2)
    return drawn(rng, moduli=moduli, rests=[rng.randrange(m) for m in moduli])


def _congruences(params: Params) -> list[tuple[int, int]]:
    moduli = numbers(params, "moduli", 8, 2, 100)
    rests = numbers(params, "rests", 8, 0, 99)
    if lcm(*moduli) != _product(moduli) or len(rests) != len(moduli):
        raise ValueError("'moduli' must have no common divisors, and a rest each")
    return list(zip(rests, moduli, strict=True))


def _product(values: list[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def _remainders_by_inverses(params: Params) -> MathAnswer:
    pairs = _congruences(params)
    whole = _product([m for _, m in pairs])
    return integer(sum(r * (whole // m) * pow(whole // m, -1, m) for r, m in pairs) % whole)


def _remainders_by_steps(params: Params) -> MathAnswer:
    value, step = 0, 1
    for rest, modulus in _congruences(params):
        while value % modulus != rest % modulus:
            value += step
        step *= modulus
    return integer(value)


REMAINDERS = Maker(
    name="chinese_remainders",
    kind="math",
    area="number theory",
    draw=_remainders,
    text=worded(
        "What is the least whole number, 0 or more, that leaves the remainders {rests} (in this "
        "order) when it is divided by {moduli}?",
        "Dividing N by each of {moduli} leaves, in this order, the remainders {rests}. "
        "Find the smallest such N >= 0.",
    ),
    solve=_remainders_by_inverses,
    check=_remainders_by_steps,
    code=program(
        "moduli rests", "from sympy.ntheory.modular import crt\nprint(crt(moduli, rests)[0])"
    ),
)


def _divisor_range(rng: Random, level: int) -> Params:
    low = rng.randrange(10 ** (level // 2 + 1), 10 ** (level // 2 + 2))
    return drawn(rng, low=low, high=low + rng.randrange(50, 150 * level))


def _divisor_bounds(params: Params) -> tuple[int, int]:
    high = number(params, "high", 1, 10**6 + 2_000)
    return number(params, "low", max(1, high - 2_000), high), high


def _divisors_by_floors(params: Params) -> MathAnswer:
    """Sums of d * floor(n / d), in blocks where the floor stays the same."""

    def up_to(n: int) -> int:
        total, d = 0, 1
        while d <= n:
            last = n // (n // d)
            total += (n // d) * (d + last) * (last - d + 1) // 2
            d = last + 1
        return total

    low, high = _divisor_bounds(params)
    return integer(up_to(high) - up_to(low - 1))


def _divisors_one_by_one(params: Params) -> MathAnswer:
    low, high = _divisor_bounds(params)
    total = 0
    for n in range(low, high + 1):
        root = isqrt(n)
        total += sum(d + n // d for d in range(1, root + 1) if n % d == 0)
        total -= root if root * root == n else 0
    return integer(total)


DIVISOR_SUM = Maker(
    name="divisor_sum",
    kind="math",
    area="number theory",
    draw=_divisor_range,
    text=worded(
        "For each whole number from {low} to {high}, both included, add up all its positive "
        "divisors, itself and 1 too. What is the sum of all these sums?",
        "Let s(n) be the sum of the positive divisors of n, n itself included. "
        "Find s({low}) + ... + s({high}), over all whole numbers from {low} to {high}.",
    ),
    solve=_divisors_by_floors,
    check=_divisors_one_by_one,
    code=program(
        "low high",
        "from sympy import divisor_sigma\n"
        "print(sum(divisor_sigma(n) for n in range(low, high + 1)))",
    ),
)


def _logarithm(rng: Random, level: int) -> Params:
    low = 90 * 3**level
    modulus = rng.randrange(low, 2 * low)
    while not all(modulus % d for d in range(2, isqrt(modulus) + 1)):
        modulus += 1
    base = rng.randrange(2, modulus - 1)
    return drawn(
        rng, base=base, modulus=modulus, power=pow(base, rng.randrange(low // 2, low), modulus)
    )


def _logarithm_numbers(params: Params) -> tuple[int, int, int]:
    modulus = number(params, "modulus", 3, 2 * 10**6)
    base, power = number(params, "base", 1), number(params, "power", 1)
    if gcd(base * power, modulus) != 1:
        raise ValueError("'base' and 'power' must have no divisor in common with 'modulus'")
    return base, modulus, power


def _logarithm_by_giant_steps(params: Params) -> MathAnswer:
    """Shanks's baby and giant steps."""
    base, modulus, power = _logarithm_numbers(params)
    width = isqrt(modulus) + 1
    small: dict[int, int] = {}
    value = power % modulus
    for i in range(width):
        small[value] = i  # the last i of a value: the least k
        value = value * base % modulus
    giant = pow(base, width, modulus)
    value = 1
    for j in range(1, width + 1):
        value = value * giant % modulus
        if value in small:
            return integer(j * width - small[value])
    raise ValueError("'power' is no power of 'base'")


def _logarithm_by_trying(params: Params) -> MathAnswer:
    base, modulus, power = _logarithm_numbers(params)
    value, k = base % modulus, 1
    while value != power % modulus:
        value, k = value * base % modulus, k + 1
    return integer(k)


LOGARITHM = Maker(
    name="discrete_logarithm",
    kind="math",
    area="number theory",
    draw=_logarithm,
    text=worded(
        "What is the least whole number k > 0 for which {base}^k leaves the remainder {power} when "
        "it is divided by {modulus}?",
        "Find the smallest positive k with {base}^k = {power} (mod {modulus}).",
    ),
    solve=_logarithm_by_giant_steps,
    check=_logarithm_by_trying,
    code=program(
        "base power modulus",
        "value, k = base % modulus, 1\nwhile value != power:\n"
        "    value, k = value * base % modulus, k + 1\nprint(k)",
    ),
)


def _digits_by_columns(params: Params) -> MathAnswer:
    """The power as a list of digits, multiplied by hand."""
    digits = [1]
    for _ in range(number(params, "power", 1, 400)):
        carry = 0
        for i, digit in enumerate(digits):
            carry, digits[i] = divmod(digit * number(params, "base", 2, 99) + carry, 10)
        while carry:
            carry, last = divmod(carry, 10)
            digits.append(last)
    return integer(sum(d**2 for d in digits))


DIGIT_SQUARES = Maker(
    name="digits_of_power",
    kind="math",
    area="number theory",
    draw=lambda rng, level: drawn(
        rng, base=rng.randrange(12, 99), power=rng.randrange(14 * level, 28 * level)
    ),
    text=worded(
        "What is the sum of the squares of the decimal digits of {base}^{power}?",
        "Write {base}^{power} in decimal and square every digit. What do the squares add up to?",
    ),
    solve=lambda p: integer(
        sum(int(d) ** 2 for d in str(number(p, "base", 2, 99) ** number(p, "power", 1, 400)))
    ),
    check=_digits_by_columns,
    code=program("base power", "print(sum(int(d) ** 2 for d in str(base ** power)))"),
)


def _tail_without_tens(params: Params) -> MathAnswer:
    """Factors 2 and 5 taken out of each factor, and the 2s that are left put back."""
    size = 10 ** number(params, "digits", 1, 12)
    value, twos, fives = 1, 0, 0
    for factor in range(2, number(params, "n", 5, 4_000) + 1):
        rest = factor
        while rest % 2 == 0:
            rest, twos = rest // 2, twos + 1
        while rest % 5 == 0:
            rest, fives = rest // 5, fives + 1
        value = value * rest % size
    return integer(value * pow(2, twos - fives, size) % size)


def _tail_of_all(params: Params) -> MathAnswer:
    value = factorial(number(params, "n", 5, 4_000))
    while value % 10**50 == 0:
        value //= 10**50
    while value % 10 == 0:
        value //= 10
    return integer(value % 10 ** number(params, "digits", 1, 12))


FACTORIAL_TAIL = Maker(
    name="factorial_tail",
    kind="math",
    area="number theory",
    draw=lambda rng, level: drawn(
        rng, n=rng.randrange(30 * level, 480 * level), digits=4 + level // 2
    ),
    text=worded(
        "Strike all zeros from the end of {n}! (the factorial, in decimal). Which number do the "
        "last {digits} digits of what is left form? Leave out zeros in front.",
        "Let M be {n}! divided by the greatest power of 10 that divides it. "
        "What is the remainder of M when it is divided by 10^{digits}?",
    ),
    solve=_tail_without_tens,
    check=_tail_of_all,
    code=program(
        "n digits",
        "import math\nm = math.factorial(n)\nwhile m % 10 == 0:\n    m //= 10\n"
        "print(m % 10 ** digits)",
    ),
)


def _multiples(rng: Random, level: int) -> Params:
    return drawn(
        rng,
        divisors=sorted(rng.sample(range(6, 60), 2 + (level + 1) // 2)),
        most=rng.randrange(10 ** (level // 3 + 3), 4 * 10 ** (level // 3 + 3)),
    )


def _multiples_by_exclusion(params: Params) -> MathAnswer:
    most, total = number(params, "most", 1, 400_000), 0
    for some in subsets(numbers(params, "divisors", 6, 2, 60)):
        if some:
            step = lcm(*some)
            count = most // step
            total -= (-1) ** len(some) * step * count * (count + 1) // 2
    return integer(total)


def _multiples_by_marks(params: Params) -> MathAnswer:
    marked = bytearray(number(params, "most", 1, 400_000) + 1)
    for divisor in numbers(params, "divisors", 6, 2, 60):
        marked[::divisor] = b"\x01" * len(range(0, len(marked), divisor))
    return integer(sum(i for i, mark in enumerate(marked) if mark))


MULTIPLES = Maker(
    name="sum_of_multiples",
    kind="math",
    area="number theory",
    draw=_multiples,
    text=worded(
        "Add up all whole numbers from 1 to {most} that are divisible by at least one of "
        "{divisors}. What is the sum?",
        "What is the sum of the whole numbers n with 1 <= n <= {most} that are a multiple of one "
        "or more of the numbers {divisors}?",
    ),
    solve=_multiples_by_exclusion,
    check=_multiples_by_marks,
    code=program(
        "divisors most",
        "print(sum(n for n in range(1, most + 1) if any(n % d == 0 for d in divisors)))",
    ),
)

MAKERS = (
    PRIME_COUNT,
    POWER_REST,
    COPRIME_COUNT,
    REMAINDERS,
    DIVISOR_SUM,
    LOGARITHM,
    DIGIT_SQUARES,
    FACTORIAL_TAIL,
    MULTIPLES,
)
