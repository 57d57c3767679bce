"""Maven's surefire and failsafe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.runners import base, java

OPTIONS = (
    "-o -B --fail-at-end -Dmaven.test.failure.ignore=true -Dmaven.test.skip=false -DskipTests=false "
    "-Dsurefire.skipAfterFailureCount=0"
)
JVM = 'MAVEN_OPTS="${MAVEN_OPTS:--XX:TieredStopAtLevel=1}"'
"""Of Maven's own process, unless the recipe says otherwise: most builds end before the JVM's second
compiler has paid for itself. The tests' processes are the project's own matter (``argLine``)."""
REPOSITORY_OPTION = '${MAVEN_REPOSITORY:+-Dmaven.repo.local="$MAVEN_REPOSITORY"}'
"""Where the recipe keeps Maven's artifacts; unset: ``~/.m2``."""


class Surefire:
    """``mvn test``, offline."""

    name = "surefire"
    languages: tuple[CodeLanguage, ...] = ("java",)
    config_files = ("pom.xml", "**/pom.xml", *java.CONFIG_FILES)

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files are limited by the names of their classes."""
        classes = ",".join(sorted({PurePosixPath(file).stem for file in files}))
        test = f"-Dtest={base.quoted([classes])}"
        limit = (
            f"-DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false {test}" if files else ""
        )
        command = base.joined(JVM, "mvn", OPTIONS, REPOSITORY_OPTION, limit, options, "test")
        return java.collected(
            report_dir, command, "*/target/*-reports/TEST-*.xml", "COMPILATION ERROR"
        )

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """See ``java.canaries``."""
        return java.canaries(self.name, nonce, repo_files, near)
