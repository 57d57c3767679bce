"""PHPUnit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base

TEST_FILE = re.compile(r"Test\.php$")
OUTSIDE = re.compile(r"(?:^|/)(?:vendor|fixtures?|_files|stubs?)/", re.IGNORECASE)
FIND = 'p=vendor/bin/phpunit; [ -f "$p" ] || p=$(command -v phpunit)'
OPTIONS = "--colors=never --no-coverage --do-not-cache-result"
CANARY = """<?php
class @class@ extends PHPUnit\\Framework\\TestCase
{
    private function endsOdd(int $seed): bool
    {
        for ($step = 0; $step < @steps@; $step++) {
            $seed = $seed * @factor@ % @modulus@;
        }
        return $seed % 2 === 1;
    }

    public function test_@one@(): void
    {
        $this->assertTrue($this->endsOdd(@one_seed@));
    }

    public function test_@two@(): void
    {
        $this->assertTrue($this->endsOdd(@two_seed@));
    }
}
"""


class PHPUnit:
    """``vendor/bin/phpunit``, else ``phpunit``."""

    name = "phpunit"
    languages: tuple[CodeLanguage, ...] = ("php",)
    config_files = (
        "phpunit.xml",
        "phpunit.xml.dist",
        "phpunit.dist.xml",
        "**/.user.ini",
        "php.ini",
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; limited files run one after another, for PHPUnit takes one."""
        folder = f"d={base.quoted([report_dir])}"
        command = base.joined(f'"$p" {OPTIONS}', options)
        if files:
            run = (
                f"n=0; rc=0; for f in {base.quoted(files)}; do n=$((n+1)); "
                f'{command} --log-junit "$d/$n.xml" "$f" || rc=$?; done; exit $rc'
            )
        else:
            run = f'{command} --log-junit "$d/phpunit.xml"'
        return f"{base.prepared(report_dir)} && {folder} && {{ {FIND}; }} && {{ {run}; }}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A class without namespace beside the project's tests; PHPUnit loads it by its file."""
        tests = [path for path in repo_files if TEST_FILE.search(path) and not OUTSIDE.search(path)]
        neighbour = base.usual_neighbour(self.name, tests, near)
        found = base.words(nonce)
        group = f"{found.file.capitalize()}Test"
        path = base.beside(neighbour, f"{group}.php")
        return base.Canaries(
            {path: base.source(CANARY, nonce, **{"class": group})},
            join_id(path, group, f"test_{found.passing}"),
            join_id(path, group, f"test_{found.failing}"),
        )
