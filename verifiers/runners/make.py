"""make: the project's ``check`` or ``test``, and Automake's tests where it has them.

make tells nothing but its exit code, so what it was told to make is one case. Automake's harness leaves a
``.trs`` file for each test program, which is another; what a program says of its own tests (TAP) has no
names there.
"""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.core.errors import ConfigError
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, scripts

FOLDER = "${BUILD_DIR:-.}"
TARGET = "${MAKE_TARGET:-check}"
"""A recipe that makes something else sets them in its variables."""
CLASS = "make"
CASE = (
    'say() { printf \'<testcase classname="%s" name="%s">%s</testcase>\' "$1" '
    f'"$(printf %s "$2" | {scripts.ESCAPE})" "$3"; }}'
)
"""``say CLASS NAME BODY`` prints a case."""
MADE = (
    f'if {{0}}; then say {CLASS} "{{1}}" ""; else rc=$?; '
    f'say {CLASS} "{{1}}" "<failure message=\\"exit code $rc\\"/>"; fi'
)
RESULTS = (
    'find "$b" -name "*.trs" | sort | while IFS= read -r t; do n="${t#"$b"/}"; n="${n%.trs}"; '
    'r=$(sed -n "s/^:global-test-result: //p" "$t"); case "$r" in PASS|XFAIL) v="";; '
    'SKIP) v="<skipped/>";; ERROR) v="<error message=\\"ERROR\\"/>";; '
    '*) v="<failure message=\\"$r\\"/>";; esac; say "$n" "$n" "$v"; done'
)
CANARY = """.PHONY: @one@ @two@
@one@:
	@one_check@
@two@:
	@two_check@
"""
NAMES = ("GNUmakefile", "makefile", "Makefile", "Makefile.am", "Makefile.in")


class Make:
    """``make check`` in the folder that has the Makefile."""

    name = "make"
    languages: tuple[CodeLanguage, ...] = ("c", "cpp")
    config_files = (
        "**/GNUmakefile",
        "**/makefile",
        "**/Makefile",
        "**/Makefile.am",
        "configure.ac",
    )
    """A recipe may say anything here, ``true`` too, so a change can't have one of its own."""

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything runs, for make knows nothing of files."""
        report = base.quoted([f"{report_dir}/make.xml"])
        run = base.joined('make -C "$b" -k -s', options)
        first = MADE.format(f'{run} "$g" >&2', "$g")
        canary = MADE.format('make -C "$b" -s -f "$f" -f "$c" "$g" >&2', "$g")
        canaries = (
            'f=$(cd "$b" && ls GNUmakefile makefile Makefile 2>/dev/null | head -n 1); '
            'for c in "$PWD"/canary_*.mk; do [ -f "$c" ] && for g in $(sed -n "s/^.PHONY: //p" "$c"); do '
            f"{canary}; done; done"
        )
        body = f'g="{TARGET}"; {first}; {RESULTS}; {canaries}'
        return (
            f'{base.prepared(report_dir)} && b="{FOLDER}" && find "$b" -name "*.trs" -delete && {CASE} && '
            f'{{ rc=0; printf "<testsuites><testsuite>"; {body}; printf "</testsuite></testsuites>"; }} '
            f">{report}; exit $rc"
        )

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """Two targets in a file that make reads after the project's own."""
        if not any(path.rpartition("/")[2] in NAMES for path in repo_files):
            raise ConfigError(
                f"no test file of {self.name!r} in the repository",
                "it has no Makefile, and no Makefile.am to make one of",
            )
        found = base.words(nonce)
        return base.Canaries(
            {f"canary_{found.file}.mk": base.source(scripts.checked(CANARY, "$$"), nonce)},
            join_id("", CLASS, found.passing),
            join_id("", CLASS, found.failing),
        )
