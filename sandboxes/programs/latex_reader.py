"""Reads published answers with latex2sympy2-extended: a JSON line in, one out. It runs in a sandbox only.

It knows nothing of how envgen reads: what it found goes back as plain text, for the host to judge. A text
that takes too long raises; one that hangs in C ends the process, and the host starts another one.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

LIMIT_S = 4
"""Of the processor, for one text."""


class _TooLongError(Exception):
    """A text took longer than ``LIMIT_S``."""


def main(libraries: str) -> None:
    """Answer each line of stdin."""
    sys.path.append(libraries)
    import warnings

    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    warnings.simplefilter("ignore")
    tidy = NormalizationConfig(malformed_operators=True)
    letters = ConversionConfig(lowercase_symbols=False)
    signal.signal(signal.SIGPROF, _too_long)
    for line in sys.stdin:
        request = json.loads(line)
        used_s = resource.getrusage(resource.RUSAGE_SELF)
        end_s = int(used_s.ru_utime + used_s.ru_stime) + 2 * LIMIT_S
        resource.setrlimit(resource.RLIMIT_CPU, (end_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        reply = {"id": request["id"], "value": "", "error": ""}
        try:
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            found = latex2sympy(
                request["text"], normalization_config=tidy, conversion_config=letters
            )
            reply["value"] = _shown(found, bool(request["unit"]))[:2_000]
        except Exception as error:  # whatever it is, it is no reading
            reply["error"] = type(error).__name__
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), flush=True)


def _too_long(*_: object) -> None:
    raise _TooLongError


def _shown(found: Any, unit: bool) -> str:
    """A value as text, in plain mathematics."""
    import sympy

    def inside(parts: Any) -> str:
        return ", ".join(_shown(part, unit) for part in parts)

    if isinstance(found, sympy.Equality) and isinstance(found.lhs, sympy.Symbol):
        return _shown(found.rhs, unit)
    if isinstance(found, sympy.MatrixBase):
        return "[" + ", ".join(f"[{inside(row)}]" for row in found.tolist()) + "]"
    if isinstance(found, sympy.Union):
        return " U ".join(_shown(part, unit) for part in found.args)
    if isinstance(found, sympy.Interval):
        begin, end = "[("[bool(found.left_open)], "])"[bool(found.right_open)]
        return f"{begin}{inside((found.start, found.end))}{end}"
    if isinstance(found, sympy.FiniteSet) or found is sympy.S.EmptySet:
        return "{" + inside(found.args) + "}"
    if isinstance(found, sympy.Tuple | tuple | list):
        return f"({inside(found)})"
    if (
        unit
    ):  # a unit is a product of letters; a percent sign is a hundredth, which we take for a unit
        found = found.replace(
            lambda one: isinstance(one, sympy.Symbol | sympy.UnevaluatedExpr) or one is sympy.E,
            lambda one: sympy.S.One,
        )
    found = sympy.sympify(found).doit()
    floats = {one: sympy.Rational(str(one)) for one in found.atoms(sympy.Float)}
    return str(_printer().doprint(found.xreplace(floats).doit()))


def _printer() -> Any:
    from sympy.printing import str as printing

    base: Any = printing.StrPrinter

    class Plain(base):  # type: ignore[misc]  # sympy has no types
        def _print_factorial(self, found: Any) -> str:
            return f"({self._print(found.args[0])})!"

        def _print_exp(self, found: Any) -> str:
            return f"e^({self._print(found.args[0])})"

    return Plain()


if __name__ == "__main__":
    main(sys.argv[1])
