"""Puzzles that have one solution, and counts of solutions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
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
    text_answer,
    worded,
)
from envgen.verifiers.maths import MathAnswer

_PEOPLE = "ABCDEFGHIJKLMN"
_SAYINGS = (
    "{a} is a knave",
    "{a} and {b} are of the same kind",
    "at least one of {a} and {b} is a knight",
    "{a} is a knight and {b} is a knave",
    "{a} and {b} are of different kinds",
)


def _tables(size: int) -> tuple[int, list[int]]:
    """All assignments as bits of a number, and for each variable those in which it is true."""
    whole = (1 << (1 << size)) - 1
    return whole, [
        whole // ((1 << (2 << v)) - 1) * ((1 << (1 << v)) - 1) << (1 << v) for v in range(size)
    ]


def _only(found: list[str]) -> str:
    if len(found) != 1:
        raise ValueError("a puzzle must have one solution")
    return found[0]


def _islanders(rng: Random, level: int) -> Params:
    size = 5 + level
    while True:
        said = []
        for i in [*range(size), *rng.sample(range(size), 2 + size // 3)]:
            a, b = rng.sample([j for j in range(size) if j != i], 2)
            said.append([i, rng.randrange(len(_SAYINGS)), a, b])
        params = drawn(rng, size=size, said=said)
        if len(_islanders_by_tables(params)) == 1:
            return params


def _said(params: Params) -> tuple[int, list[list[int]]]:
    size = number(params, "size", 2, 13)
    return size, rows(params, "said", 40, 4, 0, size - 1)


def _islanders_by_tables(params: Params) -> list[str]:
    size, said = _said(params)
    whole, true = _tables(size)
    left = whole
    for i, kind, a, b in said:
        x, y = true[a], true[b]
        says = (~x, ~(x ^ y), x | y, x & ~y, x ^ y)[kind % 5]
        left &= ~(true[i] ^ says)
    found: list[str] = []
    while left and len(found) < 2:
        row = (left & -left).bit_length() - 1
        found.append("".join("T" if row >> v & 1 else "L" for v in range(size)))
        left &= left - 1
    return found


def _islanders_one_by_one(params: Params) -> list[str]:
    """Person by person; what was said is looked at as soon as all whom it is about are known."""
    size, said = _said(params)
    due: list[list[list[int]]] = [[] for _ in range(size)]
    for saying in said:
        due[max(saying[0], saying[2], saying[3])].append(saying)
    found: list[str] = []

    def holds(kinds: str, saying: list[int]) -> bool:
        i, kind, a, b = saying
        x, y = kinds[a] == "T", kinds[b] == "T"
        says = (not x, x == y, x or y, x and not y, x != y)[kind % 5]
        return says == (kinds[i] == "T")

    def place(kinds: str) -> None:
        if kinds and not all(holds(kinds, saying) for saying in due[len(kinds) - 1]):
            return
        if len(kinds) == size:
            found.append(kinds)
            return
        place(kinds + "T")
        place(kinds + "L")

    place("")
    return found


def _islanders_text(params: Params) -> str:
    size, said = _said(params)
    lines = [
        f"{_PEOPLE[i]} says: {_SAYINGS[kind % 5].format(a=_PEOPLE[a], b=_PEOPLE[b])}."
        for i, kind, a, b in said
    ]
    return _ISLANDERS({**params, "people": ", ".join(_PEOPLE[:size]), "lines": "\n".join(lines)})


_ISLANDERS = worded(
    "Knights always tell the truth and knaves always lie. Each of {people} is one or the other.\n"
    "{lines}\nThere is one solution. Answer with one letter for each of them, in alphabetical order of "
    "their names and without spaces: T for a knight, L for a knave.",
    "On an island everyone is either a knight, whose statements are all true, or a knave, whose "
    "statements are all false. You meet {people}.\n{lines}\nWho is what? Write a word of letters, one "
    "for each person in alphabetical order: T for knights, L for knaves.",
)

ISLANDERS = Maker(
    name="knights_and_knaves",
    kind="logic",
    area="logic",
    draw=_islanders,
    text=_islanders_text,
    solve=lambda p: text_answer(_only(_islanders_by_tables(p))),
    check=lambda p: text_answer(_only(_islanders_one_by_one(p))),
    code=program(
        "size said",
        """
from itertools import product
def says(t, kind, a, b):
    return (not t[a], t[a] == t[b], t[a] or t[b], t[a] and not t[b], t[a] != t[b])[kind]
for t in product((True, False), repeat=size):
    if all(says(t, kind, a, b) == t[i] for i, kind, a, b in said):
        print("".join("T" if x else "L" for x in t))
""",
    ),
)


def _latin(rng: Random, level: int) -> Params:
    size = 5 + level // 4
    order, columns, digits = (rng.sample(range(size), size) for _ in range(3))
    square = [[digits[(i + j) % size] + 1 for j in columns] for i in order]
    for cell in rng.sample(range(size * size), 2 * size * size // 3):
        i, j = divmod(cell, size)
        kept, square[i][j] = square[i][j], 0
        if len(_latin_by_fewest(square)) != 1:
            square[i][j] = kept
    return drawn(rng, size=size, square=square)


def _square(params: Params) -> list[list[int]]:
    square = rows(params, "square", 7, low=0, high=number(params, "size", 2, 7))
    given = sum(map(bool, (cell for row in square for cell in row)))
    if len(square) != number(params, "size") or 4 * given < len(square) ** 2:
        raise ValueError("'square' must be of 'size', with a quarter of its cells given")
    return square


def _latin_by_fewest(square: list[list[int]]) -> list[str]:
    """Always goes on at the cell with the fewest choices; up to two solutions."""
    size, found = len(square), list[str]()
    cells = [row.copy() for row in square]

    def place() -> None:
        best: tuple[int, int, list[int]] | None = None
        for i in range(size):
            for j in range(size):
                if not cells[i][j]:
                    used = {*cells[i], *(row[j] for row in cells)}
                    free = [d for d in range(1, size + 1) if d not in used]
                    if best is None or len(free) < len(best[2]):
                        best = (i, j, free)
        if best is None:
            found.append("".join(str(d) for row in cells for d in row))
            return
        i, j, free = best
        for digit in free:
            if len(found) < 2:
                cells[i][j] = digit
                place()
        cells[i][j] = 0

    place()
    return found


def _latin_by_rows(square: list[list[int]]) -> list[str]:
    """Row by row, each a permutation that fits; up to two solutions."""
    size = len(square)
    digits = range(1, size + 1)
    choices = [
        [p for p in permutations(digits) if all(g in (0, d) for g, d in zip(row, p, strict=True))]
        for row in square
    ]
    order = sorted(range(size), key=lambda i: len(choices[i]))
    found: list[str] = []

    def place(chosen: dict[int, tuple[int, ...]]) -> None:
        if len(chosen) == size:
            found.append("".join(str(d) for i in range(size) for d in chosen[i]))
            return
        for row in choices[order[len(chosen)]]:
            clash = any(
                a == b for other in chosen.values() for a, b in zip(row, other, strict=True)
            )
            if not clash and len(found) < 2:
                place({**chosen, order[len(chosen)]: row})

    place({})
    return found


LATIN = Maker(
    name="latin_square",
    kind="logic",
    area="logic",
    draw=_latin,
    text=worded(
        "Fill a square of {size} by {size} so that each row and each column has each of the digits 1 to "
        "{size} once. Its rows, with 0 for an empty cell, are {square}. There is one way. Write the "
        "digits of all rows, from the first to the last, as one number without spaces.",
        "This Latin square of order {size} (symbols 1 to {size}) has empty cells, written as 0: {square}. "
        "It can be completed in one way only. Give all its digits, row after row, as one number.",
    ),
    solve=lambda p: integer(int(_only(_latin_by_fewest(_square(p))))),
    check=lambda p: integer(int(_only(_latin_by_rows(_square(p))))),
    code=program(
        "size square",
        """
def fill(k):
    if k == size * size:
        return True
    i, j = divmod(k, size)
    if square[i][j]:
        return fill(k + 1)
    for d in range(1, size + 1):
        if d not in square[i] and all(row[j] != d for row in square):
            square[i][j] = d
            if fill(k + 1):
                return True
    square[i][j] = 0
    return False
fill(0)
print("".join(str(d) for row in square for d in row))
""",
    ),
)


def _clauses(rng: Random, level: int) -> Params:
    size = 7 + level
    clauses = []
    for _ in range(2 * size):
        chosen = sorted(rng.sample(range(1, size + 1), 3))
        clauses.append([v * rng.choice((-1, 1)) for v in chosen])
    return drawn(rng, size=size, clauses=clauses)


def _formula(params: Params) -> tuple[int, list[list[int]]]:
    size = number(params, "size", 2, 15)
    clauses = rows(params, "clauses", 40, 3, -size, size)
    if any(0 in clause for clause in clauses):
        raise ValueError("'clauses' must not have 0")
    return size, clauses


def _models_by_tables(params: Params) -> MathAnswer:
    size, clauses = _formula(params)
    left, true = _tables(size)
    for clause in clauses:
        met = 0
        for v in clause:
            met |= true[v - 1] if v > 0 else ~true[-v - 1]
        left &= met
    return integer(left.bit_count())


def _models_by_branches(params: Params) -> MathAnswer:
    """Davis and Putnam's way: sets a variable, strikes what is met, and counts the rest at once."""
    size, clauses = _formula(params)

    def count(left: list[list[int]], free: int) -> int:
        if not left:
            return 1 << free
        if [] in left:
            return 0
        v = min(left, key=len)[0]
        return sum(
            count([[x for x in c if x != -w] for c in left if w not in c], free - 1)
            for w in (v, -v)
        )

    return integer(count(clauses, size))


MODELS = Maker(
    name="count_models",
    kind="logic",
    area="logic",
    draw=_clauses,
    text=worded(
        "Each of the variables 1 to {size} is true or false. Each of these groups must have at least one "
        "true entry, where -n means that variable n is false: {clauses}. How many assignments of all "
        "{size} variables meet all groups?",
        "How many satisfying assignments over the variables x1..x{size} does the CNF formula with these "
        "clauses in DIMACS notation (n for xn, -n for its negation) have: {clauses}?",
    ),
    solve=_models_by_tables,
    check=_models_by_branches,
    code=program(
        "size clauses",
        """
print(sum(all(any((s >> abs(v) - 1 & 1) == (v > 0) for v in c) for c in clauses)
          for s in range(1 << size)))
""",
    ),
)


def _letters_sum(rng: Random, level: int) -> Params:
    length = 5 + level // 5
    while True:
        parts = [rng.randrange(10 ** (length - 1), 10**length) for _ in range(2 + level // 6)]
        names = rng.sample("ABCDEFGHKLMNPRSTUVWXYZ", 10)
        words = ["".join(names[int(d)] for d in str(n)) for n in [*parts, sum(parts)]]
        params = drawn(rng, words=" ".join(words))
        if len(set("".join(words))) >= 7 and len(_sum_by_columns(params)) == 1:
            return params


def _words(params: Params) -> list[str]:
    words = letters(params, "words", 40, "ABCDEFGHIJKLMNOPQRSTUVWXYZ ").split()
    if not 3 <= len(words) <= 4 or len(set("".join(words))) > 10 or len(words[-1]) > 7:
        raise ValueError("'words' must be 3 or 4, with at most 10 letters in all")
    if any(len(word) < 2 or len(word) > len(words[-1]) for word in words):
        raise ValueError("'words' must be of 2 letters or more, the last the longest")
    return words


def _sum_by_columns(params: Params) -> list[str]:
    """Column by column from the right, with a carry; up to two solutions."""
    *parts, total = _words(params)
    first = {word[0] for word in (*parts, total)}
    columns = [
        ([word[-1 - k] for word in parts if k < len(word)], total[-1 - k])
        for k in range(len(total))
    ]
    digits: dict[str, int] = {}
    found: list[str] = []

    def place(k: int, i: int, reached: int) -> None:
        if k == len(columns):
            if not reached:
                found.append("".join(str(digits[letter]) for letter in total))
            return
        if len(found) > 1:
            return
        above, below = columns[k]
        letter = below if i == len(above) else above[i]
        known = digits.get(letter)
        wanted = range(10) if i < len(above) else (reached % 10,)
        for digit in wanted if known is None else (known,):
            if known is None and (digit in digits.values() or (digit == 0 and letter in first)):
                continue
            if i == len(above) and digit != reached % 10:
                continue
            digits[letter] = digit
            place(*((k, i + 1, reached + digit) if i < len(above) else (k + 1, 0, reached // 10)))
            if known is None:
                del digits[letter]

    place(0, 0, 0)
    return found


def _sum_by_weights(params: Params) -> list[str]:
    """As one equation, the heaviest letters first, while the others can still make up for them."""
    *parts, total = _words(params)
    weights: dict[str, int] = {}
    for word, sign in [*((part, 1) for part in parts), (total, -1)]:
        for k, letter in enumerate(reversed(word)):
            weights[letter] = weights.get(letter, 0) + sign * 10**k
    first = {word[0] for word in (*parts, total)}
    order = sorted(weights, key=lambda letter: -abs(weights[letter]))
    rest = [9 * sum(abs(weights[letter]) for letter in order[i:]) for i in range(len(order) + 1)]
    found: list[str] = []

    def place(digits: tuple[int, ...], value: int) -> None:
        if abs(value) > rest[len(digits)] or len(found) > 1:
            return
        if len(digits) == len(order):
            found.append("".join(str(digits[order.index(letter)]) for letter in total))
            return
        letter = order[len(digits)]
        for digit in range(int(letter in first), 10):
            if digit not in digits:
                place((*digits, digit), value + digit * weights[letter])

    place((), 0)
    return found


LETTERS_SUM = Maker(
    name="cryptarithm",
    kind="logic",
    area="logic",
    draw=_letters_sum,
    text=worded(
        "In the words {words} each letter stands for a digit, different letters for different digits, and "
        "no word begins with 0. The last word, read as a number, is the sum of the others. There is one "
        "solution. Which number is the last word?",
        "Solve the cryptarithm in which all of these words but the last add up to the last: {words}. Same "
        "letter, same digit; different letters, different digits; no leading zeros. Give the number "
        "that the last word stands for.",
    ),
    solve=lambda p: integer(int(_only(_sum_by_columns(p)))),
    check=lambda p: integer(int(_only(_sum_by_weights(p)))),
    code=program(
        "words",
        """
from itertools import permutations
*parts, total = words.split()
weights = {}
for word in parts + [total]:
    for k, c in enumerate(reversed(word)):
        weights[c] = weights.get(c, 0) + (-1 if word is total else 1) * 10 ** k
names = sorted(weights)
first = [names.index(word[0]) for word in parts + [total]]
w = [weights[c] for c in names]
for digits in permutations(range(10), len(names)):
    if sum(map(int.__mul__, w, digits)) == 0 and all(digits[i] for i in first):
        print("".join(str(digits[names.index(c)]) for c in total))
        break
""",
    ),
)


def _kings(rng: Random, level: int) -> Params:
    width, height = rng.randint(4, 4 + level // 4), rng.randint(4, 4 + level // 3)
    board = [[int(rng.random() < 0.85) for _ in range(width)] for _ in range(height)]
    return drawn(rng, width=width, board=board, kings=3 + level // 4)


def _board(params: Params) -> tuple[list[list[int]], int]:
    board = rows(params, "board", 8, number(params, "width", 1, 8), 0, 1)
    return board, number(params, "kings", 1, 16)


def _kings_by_rows(params: Params) -> MathAnswer:
    board, kings = _board(params)
    counts = {(0, 0): 1}
    for row in board:
        free = sum(cell << j for j, cell in enumerate(row))
        masks = [m for m in range(1 << len(row)) if not m & ~free and not m & m << 1]
        after: dict[tuple[int, int], int] = {}
        for (above, used), count in counts.items():
            for m in masks:
                if not m & (above | above << 1 | above >> 1):
                    key = (m, used + m.bit_count())
                    after[key] = after.get(key, 0) + count
        counts = after
    return integer(sum(count for (_, used), count in counts.items() if used == kings))


def _kings_by_cells(params: Params) -> MathAnswer:
    """Cell by cell: with a king, all later cells near it are struck."""
    board, kings = _board(params)
    width = len(board[0])
    cells = [i * width + j for i, row in enumerate(board) for j, cell in enumerate(row) if cell]

    @cache
    def count(place: int, struck: frozenset[int], left: int) -> int:
        if not left or place == len(cells):
            return int(not left)
        cell = cells[place]
        alive = frozenset(c for c in struck if c > cell)
        total = count(place + 1, alive, left)
        if cell not in struck:
            total += count(place + 1, alive | set(_near(cell, width)), left - 1)
        return total

    return integer(count(0, frozenset(), kings))


def _near(cell: int, width: int) -> Iterator[int]:
    """The cells after it that a king on it attacks."""
    column = cell % width
    if column + 1 < width:
        yield cell + 1
    yield from (cell + width + d for d in (-1, 0, 1) if 0 <= column + d < width)


KINGS = Maker(
    name="peaceful_kings",
    kind="logic",
    area="logic",
    draw=_kings,
    text=worded(
        "A board has the rows {board}, where 1 is a field and 0 a hole. In how many ways can {kings} "
        "equal kings stand on fields so that no two are neighbours, not even by a corner?",
        "Count the sets of {kings} ones in the 0-1 matrix with rows {board} in which no two touch "
        "horizontally, vertically or diagonally.",
    ),
    solve=_kings_by_rows,
    check=_kings_by_cells,
    code=program(
        "board kings",
        """
from itertools import combinations
cells = [(i, j) for i, row in enumerate(board) for j, c in enumerate(row) if c]
print(sum(all(max(abs(a - c), abs(b - d)) > 1 for (a, b), (c, d) in combinations(s, 2))
          for s in combinations(cells, kings)))
""",
    ),
)

MAKERS = (ISLANDERS, LATIN, MODELS, LETTERS_SUM, KINGS)
