"""Gradle: the wrapper's if the workspace has it, else the machine's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.runners import base, java

DISTRIBUTIONS = "${GRADLE_USER_HOME:-$HOME/.gradle}/wrapper/dists"
FIND = f'g=./gradlew; {{ [ -x "$g" ] && [ -d "{DISTRIBUTIONS}" ]; }} || g=gradle'
"""A wrapper that was never run would download its Gradle."""


class Gradle:
    """``gradle test``, offline, every module even after a failure."""

    name = "gradle"
    languages: tuple[CodeLanguage, ...] = ("java",)
    config_files = (
        "build.gradle",
        "**/build.gradle",
        "build.gradle.kts",
        "**/build.gradle.kts",
        "settings.gradle*",
        "gradle.properties",
        "gradle/**",
        "gradlew",
        "buildSrc/**",
        *java.CONFIG_FILES,
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files are limited by the names of their classes."""
        classes = [f"--tests {base.quoted([f'*{PurePosixPath(file).stem}'])}" for file in files]
        command = base.joined(
            f'{FIND}; "$g" --offline --continue --no-daemon --console=plain',
            options,
            "test",
            *classes,
        )
        return java.collected(
            report_dir, command, "*/build/test-results/*.xml", "Compilation failed"
        )

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """See ``java.canaries``."""
        return java.canaries(self.name, nonce, repo_files, near)
