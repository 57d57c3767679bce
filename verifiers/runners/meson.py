"""Meson: what a project registers with ``test()``, subtests of TAP among them.

Meson's JUnit report lists a test that ran out of time, and one that should fail and passes, as passed (seen
in 1.0.1). Its JSON log tells how each one ended, so those get the failure that they lack.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from envgen.core.code_types import CodeLanguage, TestId
from envgen.core.errors import ConfigError, ReportError
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, scripts
from envgen.verifiers.runners.ctest import BUILD_FOLDER

REGISTER = (
    'sed -i "/^subdir(\'canary_/d" meson.build && '
    'for c in canary_*/meson.build; do [ ! -f "$c" ] || printf "\\nsubdir(\'%s\')\\n" '
    '"${c%/meson.build}" >>meson.build; done'
)
MEND = (
    "import json, sys, xml.etree.ElementTree as E; tree = E.parse(sys.argv[1]); "
    "ends = {r['name']: r['result'] for r in map(json.loads, open(sys.argv[2]))}; "
    "[E.SubElement(case, 'failure', message=ends[case.get('name')]) "
    "for case in tree.iter('testcase') if ends.get(case.get('name')) in "
    "('TIMEOUT', 'INTERRUPT', 'UNEXPECTEDPASS') and case.find('failure') is None]; "
    "[E.SubElement(E.SubElement(suite, 'testcase', name='[run]', classname=suite.get('name')), "
    "'error', message=end) "
    "for suite in tree.iter('testsuite') for name, end in ends.items() "
    "if end in ('TIMEOUT', 'INTERRUPT', 'ERROR') and suite.get('name', '').endswith('.' + name)]; "
    "tree.write(sys.argv[3])"
)
"""A program that reads the report and the log, and writes the report anew; a test with subtests that did not
come to its end gets a case that says so."""
CANARY = """test('@one@', find_program('sh'), args: ['-c', '@one_check@'], suite: '@file@')
test('@two@', find_program('sh'), args: ['-c', '@two_check@'], suite: '@file@')
"""
"""In a suite, for Meson tells projects and suites in names as soon as there are several."""
_PROJECT = re.compile(rb"^\s*project\s*\(\s*'([^']+)'", re.M)


class Meson:
    """``meson test`` in the build folder that the recipe has set up."""

    name = "meson"
    languages: tuple[CodeLanguage, ...] = ("c", "cpp")
    config_files = ()

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything runs, for Meson knows nothing of files."""
        run = base.joined(
            'meson test -C "$b" --num-processes 2 --timeout-multiplier 4 --print-errorlogs', options
        )
        report = base.quoted([f"{report_dir}/meson.xml"])
        logs = '"$b/meson-logs/testlog.junit.xml" "$b/meson-logs/testlog.json"'
        mend = f"python3 -c {shlex.quote(MEND)} {logs} {report}"
        return (
            f'{base.prepared(report_dir)} && b="{BUILD_FOLDER}" && rm -f {logs} && {REGISTER} && '
            f"{{ {run}; rc=$?; {mend} && exit $rc; }}"
        )

    def listing(self) -> str:
        """See ``Registering``."""
        return f'meson introspect "{BUILD_FOLDER}" --tests'

    def registered(self, output: bytes) -> dict[TestId, str]:
        """See ``Registering``; subtests are not in it, their programs are."""
        try:
            return base.digests(_entry(test) for test in json.loads(output))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ReportError(f"Meson lists no tests: {error}") from error

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """Two commands in a folder that the line above adds to the project's."""
        found = base.words(nonce)
        project = _PROJECT.search(repo_files.get("meson.build", b""))
        if project is None:
            raise ConfigError(
                f"no test file of {self.name!r} in the repository",
                "Meson's top file is meson.build, and begins with project()",
            )
        name = project[1].decode(errors="replace")
        return base.Canaries(
            {f"canary_{found.file}/meson.build": base.source(scripts.checked(CANARY), nonce)},
            join_id("", name, f"{name}:{found.file} / {found.passing}"),
            join_id("", name, f"{name}:{found.file} / {found.failing}"),
        )


_COMPARED = ("cmd", "env", "workdir", "protocol")


def _entry(test: dict[str, Any]) -> tuple[TestId, object]:
    """The id that the report has where there are suites, and what is registered."""
    parts = [suite.partition(":") for suite in test["suite"]]
    project, more = parts[0][0], "+".join(inner for _, _, inner in parts if inner)
    owner = f"{project}:{more}" if more else project
    name = f"{owner} / {test['name']}"
    return join_id("", project, name), {key: test.get(key) for key in _COMPARED}
