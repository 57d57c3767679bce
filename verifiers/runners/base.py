"""The contract of a test runner: the shell line that leaves JUnit XML, and its canaries."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol, runtime_checkable

from envgen.core.code_types import CodeLanguage, TestId
from envgen.core.errors import ConfigError

Files = Mapping[str, bytes]
"""A repository's files: paths from its root -> contents. May be lazy: all names are looked through, and
few files are read."""

MODULUS, FACTOR, STEPS = 2_147_483_647, 16_807, 101
"""Park and Miller's generator: products stay below 2**53, so every language computes it alike."""


class Canaries(NamedTuple):
    """Two tests with random names, planted before a run: one must pass and one must fail.

    They differ in a number only; which of them passes is known after ``STEPS`` steps of arithmetic.
    A report without both verdicts was not written by an honest run.
    """

    files: dict[str, bytes]
    """Paths from the repository's root; none of them exists."""
    passing: TestId
    failing: TestId


class Runner(Protocol):
    """How one test framework is run. Instances hold nothing."""

    name: str
    languages: tuple[CodeLanguage, ...]
    config_files: tuple[str, ...]
    """Globs (``**`` crosses folders) of files that tell the runner what to run, how, and which code to
    load first. Verification gives them the base's content; what the base lacks is removed."""

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """The line that runs the tests in the repository's folder and leaves ``*.xml`` in ``report_dir``.

        Args:
            report_dir: an absolute folder; made if missing, and emptied of ``*.xml``.
            files: limit the run to these test files (the canaries' must be named too). Runners that
                can't limit a run by files run everything.
            options: words added to the runner's command line, as a shell splits them.
        """

    def canaries(self, nonce: str, repo_files: Files, near: Sequence[str] = ()) -> Canaries:
        """Canaries beside the project's own tests, where its run collects them.

        ``near`` are the tests that matter: canaries go beside the first that is a test file of this
        runner, and so into its process or package; by default into the folder that has most tests.

        Raises:
            ConfigError: if the project has no file that shows where its tests are.
        """


@runtime_checkable
class Registering(Protocol):
    """A runner whose build files tell what each test is: a command, and how its end is judged."""

    def listing(self) -> str:
        """The line that prints what is registered, after the build and before any test runs."""

    def registered(self, output: bytes) -> dict[TestId, str]:
        """Test -> a digest of its command and properties, from what that line printed.

        Raises:
            ReportError: if it is no listing.
        """


@runtime_checkable
class Terse(Protocol):
    """A runner that takes long to say why a test fails, and can leave it."""

    terse: str
    """Options under which tests end as they do without, and a failure costs little."""


def digests(entries: Iterable[tuple[TestId, object]]) -> dict[TestId, str]:
    """A digest of what is registered under each id; of one that stands there twice, of both."""
    found: dict[TestId, list[str]] = {}
    for test, entry in entries:
        found.setdefault(test, []).append(json.dumps(entry, sort_keys=True))
    return {
        test: hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
        for test, texts in found.items()
    }


class NonceWords(NamedTuple):
    """What a nonce stands for: random names, and seeds whose arithmetic ends odd or even."""

    file: str
    passing: str
    failing: str
    odd_seed: int
    """Ends in an odd number: its test passes."""
    even_seed: int


def words(nonce: str) -> NonceWords:
    """Names and seeds of a nonce; nobody can tell from a name which test must fail."""
    letters = [_letters(nonce, part) for part in ("file", "first", "second")]
    return NonceWords(letters[0], letters[1], letters[2], _seed(nonce, 1), _seed(nonce, 0))


def minstd(seed: int) -> int:
    """The number after ``STEPS`` steps: what each canary computes."""
    for _ in range(STEPS):
        seed = seed * FACTOR % MODULUS
    return seed


def source(template: str, nonce: str, **more: str) -> bytes:
    """A canary's text: ``@passing@``, ``@odd@`` and so on replaced; the tests in random order."""
    found = words(nonce)
    tests = [(found.passing, found.odd_seed), (found.failing, found.even_seed)]
    if found.odd_seed % 3 == 0:
        tests.reverse()
    values = {"file": found.file, "factor": FACTOR, "modulus": MODULUS, "steps": STEPS, **more}
    for place, (name, seed) in zip(("one", "two"), tests, strict=True):
        values |= {place: name, f"{place}_seed": seed}
    for key, value in values.items():
        template = template.replace(f"@{key}@", str(value))
    return template.encode()


def prepared(report_dir: str) -> str:
    """The beginning of every line: a report folder without reports."""
    folder = shlex.quote(report_dir)
    return f"mkdir -p {folder} && rm -f {folder}/*.xml"


def joined(*parts: str) -> str:
    """Words of a command line, empty ones left out."""
    return " ".join(part for part in parts if part)


def quoted(files: Iterable[str]) -> str:
    """File names as words of a command line; one that begins with a dash is no option."""
    return " ".join(shlex.quote(f"./{file}" if file.startswith("-") else file) for file in files)


def usual_neighbour(runner: str, tests: Sequence[str], near: Sequence[str]) -> str:
    """The test file beside which canaries go: the first of ``near``, or of the folder that has most.

    Raises:
        ConfigError: if there are no test files.
    """
    known = set(tests)
    if wanted := [test for test in near if test in known]:
        return wanted[0]
    if not tests:
        raise ConfigError(
            f"no test file of {runner!r} in the repository",
            "another runner, or the repository has no tests",
        )
    folders = Counter(str(PurePosixPath(test).parent) for test in tests)
    most = max(sorted(folders), key=lambda folder: folders[folder])
    return min(test for test in tests if str(PurePosixPath(test).parent) == most)


def beside(neighbour: str, name: str) -> str:
    """A path in the folder of another."""
    return str(PurePosixPath(neighbour).parent / name)


def _letters(nonce: str, part: str) -> str:
    """Twelve letters, so that they are a name in every language."""
    digest = hashlib.sha256(f"canary {part} {nonce}".encode()).digest()
    return "".join(chr(ord("a") + byte % 26) for byte in digest[:12])


def _seed(nonce: str, parity: int) -> int:
    """The first seed after the nonce's own whose arithmetic ends with this parity."""
    digest = hashlib.sha256(f"canary seed {parity} {nonce}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big") % (MODULUS - 10_000) + 1
    while minstd(seed) % 2 != parity:
        seed += 1
    return seed
