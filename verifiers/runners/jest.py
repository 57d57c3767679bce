"""jest with the reporter jest-junit, and so ts-jest."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, javascript

VARIABLES = (
    "JEST_JUNIT_ADD_FILE_ATTRIBUTE=true JEST_JUNIT_CLASSNAME='{classname}' JEST_JUNIT_TITLE='{title}' "
    "JEST_JUNIT_ANCESTOR_SEPARATOR=' > ' JEST_JUNIT_SUITE_NAME='{filepath}' "
    "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS=true JEST_JUNIT_TEST_CASE_PROPERTIES_JSON_FILE=status.js"
)
"""Without the errors of suites a file that can't be loaded is left out of the report."""
STATUS = "module.exports = test => ({status: test.status})"
"""jest-junit writes ``test.todo`` as a test that passed; so each test tells its status as a property."""


class Jest:
    """``jest``; needs the package jest-junit, the project's or the workspace's."""

    name = "jest"
    languages: tuple[CodeLanguage, ...] = ("javascript", "typescript")
    config_files = (
        *javascript.CONFIG_FILES,
        "**/jest.config.*",
        "**/jest.setup.*",
        "**/setupTests.*",
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited."""
        folder = base.quoted([report_dir])
        output = (
            f"JEST_JUNIT_OUTPUT_FILE={folder}/jest.xml JEST_JUNIT_TEST_CASE_PROPERTIES_DIR={folder}"
        )
        reporter = f"--reporters={javascript.resolved('jest-junit')}"
        command = base.joined(
            output,
            VARIABLES,
            "jest --ci --bail=0 --coverage=false --reporters=default",
            reporter,
            options,
        )
        if files:
            command += f" --runTestsByPath {base.quoted(files)}"
        status = f"echo '{STATUS}' > {folder}/status.js"
        return f"{base.prepared(report_dir)} && {status} && {javascript.TOOLS} && {command}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A file named as its neighbour is; it uses the global ``test``, as either kind of module."""
        neighbour = base.usual_neighbour(self.name, javascript.test_files(repo_files), near)
        path = javascript.named_alike(neighbour, nonce)
        typed = path.endswith(("ts", "tsx"))
        text = javascript.canary(path, nonce, "(globalThis as any).test" if typed else "test")
        text += b"export {};\n" if typed else b""
        found = base.words(nonce)
        return base.Canaries(
            {path: text}, join_id(path, "", found.passing), join_id(path, "", found.failing)
        )
