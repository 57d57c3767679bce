"""mocha with the reporter mocha-junit-reporter.

Its reports do not tell the file of a test outside all suites: such tests of one name are one case.
"""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, javascript

REPORTER_OPTIONS = "includePending=true,testCaseSwitchClassnameAndName=true"
"""Without the first one pending tests are left out; the second puts the last title into the name."""


class Mocha:
    """``mocha``; needs the package mocha-junit-reporter, the project's or the workspace's."""

    name = "mocha"
    languages: tuple[CodeLanguage, ...] = ("javascript", "typescript")
    config_files = (*javascript.CONFIG_FILES, "**/.mocharc*", "**/mocha.opts")

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited where the project's configuration names none."""
        report = base.quoted([f"{report_dir}/mocha.xml"])
        reporter = f"--reporter {javascript.resolved('mocha-junit-reporter')}"
        command = base.joined(
            f"MOCHA_FILE={report} mocha --no-bail",
            reporter,
            f"--reporter-options '{REPORTER_OPTIONS}'",
            options,
            base.quoted(files),
        )
        return f"{base.prepared(report_dir)} && {javascript.TOOLS} && {command}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A suite in a file named as its neighbour is, for either interface (``it``, ``test``)."""
        neighbour = base.usual_neighbour(self.name, javascript.test_files(repo_files), near)
        path = javascript.named_alike(neighbour, nonce)
        typed = path.endswith(("ts", "tsx"))
        scope = "(globalThis as any)" if typed else "globalThis"
        found = base.words(nonce)
        text = javascript.canary(path, nonce, f"({scope}.it || {scope}.test)")
        group = f"({scope}.describe || {scope}.suite)"
        opening = f'{group}("{found.file}", () => {{\n'.encode()
        return base.Canaries(
            {path: opening + text + b"});\n"},
            join_id(path, f"{found.file} {found.passing}", found.passing),
            join_id(path, f"{found.file} {found.failing}", found.failing),
        )
