"""How PHP projects are built: composer's packages, or its autoloader alone where none can be had."""

from __future__ import annotations

import re

from envgen.core.code_types import DEPENDENCIES, CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles

_FLAGS = "--no-interaction --no-progress --no-scripts --no-plugins --ignore-platform-reqs -q"
_KEEP = (
    "{ git ls-files | grep -qx composer.lock || cp composer.lock "
    f"{DEPENDENCIES}/pins.txt 2>/dev/null || :; }} && git checkout -q -- . "
    "&& { git ls-files | grep -qx composer.lock || rm -f composer.lock; }"
)


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from composer.json and phpunit.xml. Raises WorkspaceError without tests for PHPUnit.

    Composer knows no date cut: a committed or pinned composer.lock dates the packages.
    """
    if not files.matching("*Test.php", "*TestCase.php"):
        raise WorkspaceError(
            "no file *Test.php in the repository", "PHPUnit is the only runner for PHP"
        )
    install: tuple[str, ...] = ()
    if "composer.json" in files:
        constraints = f"{DEPENDENCIES}/constraints.txt"
        pinned = f"{{ [ ! -s {constraints} ] || cp {constraints} composer.lock; }}"
        full = f"timeout 600 composer install {_FLAGS}"
        alone = "composer dump-autoload --dev --no-interaction --ignore-platform-reqs -q"
        install = (
            f"{pinned} && {full} || {{ rm -rf vendor; {alone} && echo 'left out: all packages'; }}",
            _KEEP,
        )
    return Recipe(
        language=language,
        runner="phpunit",
        install=install,
        options=_options(files),
        variables={"COMPOSER_HOME": "/tmp/composer", "COMPOSER_ALLOW_SUPERUSER": "1"},
        cutoff=cutoff,
    )


def _options(files: TreeFiles) -> str:
    """The autoloader, where the configuration names no bootstrap; the tests, where there is none.

    Composer's own copy of PHPUnit finds the autoloader by itself, the distribution's does not.
    """
    configured = files.matching("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
    words = []
    if "composer.json" in files and not any(
        "bootstrap=" in files.text(name) for name in configured
    ):
        words += ["--bootstrap", "vendor/autoload.php"]
    if not configured:
        tests = files.matching("*Test.php")
        tops = [
            name.partition("/")[0] for name in tests if re.match(r"tests?/", name, re.IGNORECASE)
        ]
        words.append(max(sorted(set(tops)), key=tops.count) if tops else ".")
    return " ".join(words)
