"""vitest, whose own JUnit reporter tells files."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, javascript

WRITABLE = (
    "if [ -L node_modules ]; then m=$(readlink -f node_modules) && rm node_modules && mkdir node_modules && "
    'find "$m" -mindepth 1 -maxdepth 1 -exec ln -s {} node_modules/ ";"; fi'
)
"""vite writes into ``node_modules``: a link to a read-only folder becomes a folder of links."""


class Vitest:
    """``vitest run``."""

    name = "vitest"
    languages: tuple[CodeLanguage, ...] = ("javascript", "typescript")
    config_files = (
        *javascript.CONFIG_FILES,
        "**/vitest.config.*",
        "**/vite.config.*",
        "vitest.workspace.*",
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited (vitest takes them as parts of paths)."""
        report = base.quoted([f"{report_dir}/vitest.xml"])
        command = base.joined(
            "vitest run --bail=0 --coverage.enabled=false --reporter=default --reporter=junit",
            f"--outputFile.junit={report}",
            options,
            base.quoted(files),
        )
        return f"{base.prepared(report_dir)} && {WRITABLE} && {javascript.TOOLS} && {command}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A file named as its neighbour is."""
        neighbour = base.usual_neighbour(self.name, javascript.test_files(repo_files), near)
        path = javascript.named_alike(neighbour, nonce)
        text = javascript.canary(path, nonce, "test", 'import { test } from "vitest";\n')
        found = base.words(nonce)
        return base.Canaries(
            {path: text}, join_id("", path, found.passing), join_id("", path, found.failing)
        )
