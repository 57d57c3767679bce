"""Go through gotestsum, which writes JUnit XML from ``go test -json``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from envgen.core.code_types import CodeLanguage
from envgen.core.errors import ConfigError
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, scripts

TEST_FILE = re.compile(r"_test\.go$")
OUTSIDE = re.compile(r"(?:^|/)(?:vendor|testdata|node_modules|[._][^/]*)/")
NOT_BUILT = (
    "sed -n 's/.*FAIL[[:space:]]\\{1,\\}\\([^[:space:]]*\\) \\[\\(build\\|setup\\) failed\\].*/\\1/p' "
    '"$d/log" | sort -u'
)
"""gotestsum's report has no word of a package that does not build; go's output has."""
CANARY = """package @package@

import "testing"

func endsOdd@file@(seed int64) bool {
	for step := 0; step < @steps@; step++ {
		seed = seed * @factor@ % @modulus@
	}
	return seed%2 == 1
}

func Test_@one@(t *testing.T) {
	if !endsOdd@file@(@one_seed@) {
		t.Fatal("even")
	}
}

func Test_@two@(t *testing.T) {
	if !endsOdd@file@(@two_seed@) {
		t.Fatal("even")
	}
}
"""


class Gotestsum:
    """``gotestsum``; a package that can't be built is an error case named ``[build]``."""

    name = "gotestsum"
    languages: tuple[CodeLanguage, ...] = ("go",)
    config_files = ("go.work", "**/*.test")

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files are limited to their packages."""
        packages = sorted({f"./{PurePosixPath(file).parent}" for file in files}) or ["./..."]
        command = base.joined(
            'gotestsum --format standard-verbose --junitfile "$d/gotestsum.xml" -- -count=1',
            options,
            base.quoted(packages),
        )
        message = "'the package does not build'"
        mark = scripts.error_case('"$p"', f"'{scripts.BUILD}'", message, '"$d/build$n.xml"')
        marks = f"n=0; {NOT_BUILT} | while IFS= read -r p; do n=$((n+1)); {mark}; done"
        return f"{base.prepared(report_dir)} && {scripts.logged(report_dir, command, marks)}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A test file in a package that has tests; the module's file tells the package's path."""
        tests = [path for path in repo_files if TEST_FILE.search(path) and not OUTSIDE.search(path)]
        neighbour = base.usual_neighbour(self.name, tests, near)
        found = base.words(nonce)
        path = base.beside(neighbour, f"{found.file}_test.go")
        package = re.search(rb"^package\s+(\w+)", repo_files[neighbour], re.MULTILINE)
        text = base.source(CANARY, nonce, package=package[1].decode() if package else "main")
        classname = _import_path(neighbour, repo_files)
        return base.Canaries(
            {path: text},
            join_id("", classname, f"Test_{found.passing}"),
            join_id("", classname, f"Test_{found.failing}"),
        )


def _import_path(path: str, repo_files: base.Files) -> str:
    """The import path of a file's package: the nearest module above it, and what lies between.

    Raises:
        ConfigError: if there is no ``go.mod``.
    """
    for folder in PurePosixPath(path).parents:
        module = str(folder / "go.mod")
        if module not in repo_files:
            continue
        if name := re.search(rb"^module\s+\"?([^\s\"]+)", repo_files[module], re.MULTILINE):
            rest = PurePosixPath(path).parent.relative_to(folder)
            return str(PurePosixPath(name[1].decode()) / rest)
    raise ConfigError(f"no go.mod above {path!r}", "gotestsum needs a module")
