"""Ranges of numbers, as people write them."""


def expand(text: str) -> list[int]:
    """The numbers of ``1-3,7``: 1, 2, 3, 7."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash:
            numbers.extend(range(int(first), int(last) + 1))
        else:
            numbers.append(int(first))
    return numbers
