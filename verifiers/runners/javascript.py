"""The base of the JavaScript and TypeScript runners: where tests are, and a canary's arithmetic."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from envgen.verifiers.runners import base

CODE = re.compile(r"\.[cm]?[jt]sx?$")
NAMED = re.compile(
    r"(?:[.\-_]|(?:^|/))(?:test|spec)\.[cm]?[jt]sx?$|(?:^|/)test-[^/]*\.[cm]?[jt]sx?$"
)
END = r"(?:test|spec)\."
IN_FOLDER = re.compile(r"(?:^|/)(?:__tests__|tests?|specs?)/(?:.*/)?[^/]+\.[cm]?[jt]sx?$")
OUTSIDE = re.compile(
    r"(?:^|/)(?:node_modules|dist|build|fixtures?|__fixtures__|__mocks__|helpers?|examples?|bench(?:marks?)?)/"
)
CONFIG_FILES = (
    "package.json",
    "**/.babelrc*",
    "**/babel.config.*",
    "**/tsconfig*.json",
    ".npmrc",
    ".swcrc",
    ".env*",
)
"""What every runner reads, or node does before it."""
TOOLS = 'export PATH="$PWD/node_modules/.bin:/env/node_modules/.bin:$PATH"'
"""The project's own tools come first, then those of the workspace."""
ENDS_ODD = """
function endsOdd(seed@number@) {
  for (let step = 0; step < @steps@; step++) seed = (seed * @factor@) % @modulus@;
  return seed % 2 === 1;
}
"""
CHECK = 'if (!endsOdd(@{0}_seed@)) throw new Error("even");'


def test_files(repo_files: base.Files) -> list[str]:
    """Files that runners collect by their names; without one, code in folders of tests."""
    code = [path for path in repo_files if CODE.search(path) and not OUTSIDE.search(path)]
    return [path for path in code if NAMED.search(path)] or [
        path for path in code if IN_FOLDER.search(path)
    ]


def named_alike(neighbour: str, nonce: str) -> str:
    """A new name beside the neighbour with all its endings (``a.unit.test.ts``: ``x.unit.test.ts``)."""
    name = PurePosixPath(neighbour).name
    word = base.words(nonce).file
    if re.match(r"(?:test|spec)[.\-]", name):
        return base.beside(neighbour, re.sub(r"\.(?=[cm]?[jt]sx?$)", f"-{word}.", name, count=1))
    stem = re.split(rf"\.(?=(?:\w+\.)?{END})|[\-_](?={END})|\.(?=[cm]?[jt]sx?$)", name)[0]
    return base.beside(neighbour, word + name[len(stem) :])


def canary(path: str, nonce: str, define: str, opening: str = "") -> bytes:
    """A test file's text; ``define`` is the expression of the function that defines a test."""
    typed = re.search(r"\.[cm]?tsx?$", path) is not None
    tests = "\n".join(
        f'{define}("@{place}@", () => {{ {CHECK.format(place)} }});' for place in ("one", "two")
    )
    return base.source(opening + ENDS_ODD + tests + "\n", nonce, number=": number" if typed else "")


def resolved(package: str) -> str:
    """A word of the shell: the path of a package of the project's or the workspace's."""
    paths = "paths:[process.cwd(),'/env']"
    return f'"$(node -p "require.resolve(\'{package}\',{{{paths}}})")"'
