"""Pieces of shell that several runners' lines are made of."""

from __future__ import annotations

import shlex

from envgen.verifiers.junit.cases import UNBUILT

BUILD = UNBUILT
RUN = "[run]"
"""Name of the error case that stands for a test program which ended without a report."""

ESCAPE = "sed -e 's/&/\\&amp;/g' -e 's/</\\&lt;/g' -e 's/\"/\\&quot;/g'"
"""A filter that makes text fit for an attribute."""


def error_case(classname: str, name: str, message: str, report: str) -> str:
    """A command that writes a report with one error; the arguments are words of the shell."""
    xml = '<testsuite><testcase classname="%s" name="%s"><error message="%s"/></testcase></testsuite>\\n'
    return f"printf '{xml}' \"$(printf %s {classname} | {ESCAPE})\" {name} {message} >{report}"


def logged(report_dir: str, command: str, after: str) -> str:
    """Run a command, then others that find its output in ``$d/log``; its exit status is kept."""
    return (
        f'd={shlex.quote(report_dir)} && {{ {{ {command}; echo $? >"$d/rc"; }} 2>&1 | tee "$d/log"; '
        f'{after}; rc=$(cat "$d/rc"); rm -f "$d/rc" "$d/log"; exit "$rc"; }}'
    )


CHECK = (
    "x=@{0}_seed@; i=0; while [ $i -lt @steps@ ]; do x=$((x * @factor@ % @modulus@)); "
    "i=$((i + 1)); done; [ $((x % 2)) -eq 1 ]"
)


def checked(template: str, dollar: str = "$") -> str:
    """A canary's template with the shell's arithmetic for ``@one_check@`` and ``@two_check@``.

    Args:
        template: what ``base.source`` fills in after.
        dollar: how the file that holds the command writes a dollar sign.
    """
    for place in ("one", "two"):
        check = CHECK.format(place).replace("$", dollar)
        template = template.replace(f"@{place}_check@", check)
    return template
