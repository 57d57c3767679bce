"""Pieces of shell that several runners' lines are made of."""

from __future__ import annotations

BUILD = "[build]"
"""Name of the error case that stands for tests which could not be built."""
RUN = "[run]"
"""Name of the error case that stands for a test program which ended without a report."""

ESCAPE = "sed -e 's/&/\\&amp;/g' -e 's/</\\&lt;/g' -e 's/\"/\\&quot;/g'"
"""A filter that makes text fit for an attribute."""


def error_case(classname: str, name: str, message: str, report: str) -> str:
    """A command that writes a report with one error; the arguments are words of the shell."""
    xml = '<testsuite><testcase classname="%s" name="%s"><error message="%s"/></testcase></testsuite>\\n'
    return f"printf '{xml}' \"$(printf %s {classname} | {ESCAPE})\" {name} {message} >{report}"
