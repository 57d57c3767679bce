"""node:test: each file runs alone, since reports do not say which file a test is in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, javascript, scripts

FIND = (
    "find . -name node_modules -prune -o -type f "
    r"\( -regex '.*[._-]test\.[cm]?js' -o -regex '.*/test\.[cm]?js' -o -regex '.*/test-[^/]*\.[cm]?js' "
    r"-o -regex '.*/test/.*\.[cm]?js' \) -print | sed 's|^\./||' | sort"
)
"""The files that ``node --test`` finds by itself."""
LOOP = (
    'n=0; rc=0; while IFS= read -r f; do n=$((n+1)); t="$d/$n.tmp"; '
    'node --test --test-reporter=junit --test-reporter-destination="$t" @options@ "$f" </dev/null || rc=1; '
    f'e=$(printf %s "$f" | {scripts.ESCAPE}); '
    '{ printf \'<testsuites file="%s">\\n\' "$e"; sed \'1,/<testsuites>/d\' "$t"; } >"$d/$n.xml"; '
    'rm -f "$t"; done; exit $rc'
)


class NodeTest:
    """``node --test`` of node 20 or later."""

    name = "node-test"
    languages: tuple[CodeLanguage, ...] = ("javascript", "typescript")
    config_files = (*javascript.CONFIG_FILES, "node.config.json")

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited."""
        listed = f"printf '%s\\n' {base.quoted(files)}" if files else FIND
        folder = f"d={base.quoted([report_dir])}"
        loop = LOOP.replace("@options@", options)
        return f"{base.prepared(report_dir)} && {folder} && {{ {listed}; }} | {{ {loop}; }}"

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A module of either kind: it imports as both can."""
        neighbour = base.usual_neighbour(self.name, javascript.test_files(repo_files), near)
        path = javascript.named_alike(neighbour, nonce)
        if PurePosixPath(path).suffix not in (".js", ".mjs", ".cjs"):
            path = str(PurePosixPath(path).with_suffix(".mjs"))
        text = javascript.canary(path, nonce, "test")
        opening, closing = b'import("node:test").then(({ test }) => {\n', b"});\n"
        found = base.words(nonce)
        return base.Canaries(
            {path: opening + text + closing},
            join_id(path, "test", found.passing),
            join_id(path, "test", found.failing),
        )
