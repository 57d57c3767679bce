"""The base of the C++ frameworks: find test programs by their contents, and run them one by one."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.verifiers.runners import base, scripts
from envgen.verifiers.runners.ctest import BUILD_FOLDER

ENDS_ODD = """
static bool ends_odd(long long seed) {
    for (int step = 0; step < @steps@; step++) seed = seed * @factor@ % @modulus@;
    return seed % 2 == 1;
}
"""
FIND = (
    f'find "{BUILD_FOLDER}" -type f -perm -u+x -not -name "*.so*" '
    "-exec grep -l -- '@marker@' {} + | sort"
)
"""Programs in the build folder that hold a text only the framework's main function has."""
LOOP = (
    'n=0; rc=0; while IFS= read -r t; do n=$((n+1)); c=0; case "$t" in /*) ;; *) t="./$t";; esac; '
    "( @run@ ) </dev/null || { c=$?; rc=1; }; "
    '[ -s "$d/$n.xml" ] || { rc=1; @missing@; }; done; exit $rc'
)
MISSING = scripts.error_case(
    '"${t#./}"', f"'{scripts.RUN}'", '"exit code $c without a report"', '"$d/$n.xml"'
)
"""A program that ended without its report must not look as if it had no tests."""


def shell(
    report_dir: str, marker: str, run: str, build_canary: str, programs: Sequence[str]
) -> str:
    """The line that builds canaries, then runs each program; ``run`` has ``$t`` and ``$d/$n.xml``.

    Args:
        report_dir: where reports go.
        marker: a text that only test programs of this framework hold.
        run: the command of one program.
        build_canary: commands that compile ``$c`` (a ``canary_*.cpp``) into ``$d/canary_*.bin``.
        programs: the programs; none: all in the build folder.
    """
    folder = f"d={base.quoted([report_dir])}"
    listed = f"ls -d {' '.join(programs)}" if programs else FIND.replace("@marker@", marker)
    built = '[ ! -f "$c" ] || [ -f "$d/${c%.cpp}.bin" ]'  # by the round before
    compiled = f"for c in canary_*.cpp; do {built} || {{ {build_canary}; }}; done"
    loop = LOOP.replace("@run@", run).replace("@missing@", MISSING)
    canaries = 'for t in "$d"/canary_*.bin; do [ ! -f "$t" ] || printf "%s\\n" "$t"; done'
    before = f"{base.prepared(report_dir)} && {folder} && {compiled}"
    return f"{before} && {{ {listed}; {canaries}; }} | {{ {loop}; }}"
