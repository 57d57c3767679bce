"""``envgen generate arithmetic``."""

from envgen.cli.command import Makes
from envgen_arithmetic.family import ArithmeticConfig


class Arithmetic(ArithmeticConfig, Makes):
    """Make sums to work out with a calculator."""

    examples = ("envgen generate arithmetic --tasks 50 --out sums/",)
    verb = "envgen_arithmetic.family:generate"
