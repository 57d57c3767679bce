"""JUnit's console launcher: tests without a build tool."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.runners import base, java, scripts

CLASSES = "${TEST_CLASSES:-build/classes}"
"""Where the recipe's build puts compiled tests; another place is TEST_CLASSES in its variables."""
LAUNCHER = "org.junit.platform.console.ConsoleLauncher"
JARS = (
    "$(ls /env/*.jar /env/lib/*.jar /usr/share/java/junit-platform-*.jar /usr/share/java/junit-jupiter-*.jar "
    "/usr/share/java/junit-vintage-engine.jar /usr/share/java/junit4.jar /usr/share/java/hamcrest*.jar "
    "/usr/share/java/opentest4j.jar /usr/share/java/apiguardian-api.jar /usr/share/java/picocli.jar "
    "/usr/share/java/univocity-parsers.jar 2>/dev/null | tr '\\n' ':')"
)
"""Jars of the workspace, and the distribution's packages junit5 and junit4."""
LEFT_OUT = scripts.error_case('"$k"', '"$k"', '"not compiled"', '"$d/left-$n.xml"')
"""A test class that could not be compiled, and so was left out, is an error."""


class JUnitConsole:
    """``ConsoleLauncher --scan-classpath`` over the classes that the recipe's build compiled.

    Test files that it had to leave out stand in ``$TEST_CLASSES.left``, one path a line.
    """

    name = "junit-console"
    languages: tuple[CodeLanguage, ...] = ("java",)
    config_files = java.CONFIG_FILES

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything on the class path runs. CLASSPATH is searched too."""
        reports = base.quoted([report_dir])
        command = base.joined(
            f'c="{CLASSES}" && java -cp "$c:${{CLASSPATH:-}}:{JARS}" {LAUNCHER} --scan-classpath "$c"',
            "--disable-banner --disable-ansi-colors --details=tree",
            options,
            f"--reports-dir {reports}",
        )
        left = (
            f'd={reports}; n=0; [ ! -f "$c.left" ] || sed -e "s:.*src/test/java/::" -e "s:[.]java$::" '
            f'-e "s:/:.:g" "$c.left" | while IFS= read -r k; do n=$((n+1)); {LEFT_OUT}; done'
        )
        return f"{base.prepared(report_dir)} && {{ {command}; rc=$?; {left}; exit $rc; }}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """See ``java.canaries``; the recipe's build must compile them with the tests."""
        return java.canaries(self.name, nonce, repo_files, near)
