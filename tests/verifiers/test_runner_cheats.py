"""Tricks against runners that no toy project uses: each works without look-alikes, which catch it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import toy_repository
from code_runs import need, node_packages

from envgen.core.code_types import CodeLanguage, CodeTests, Recipe, Status, VerdictKind
from envgen.pipelines.code.verdicts import prove_verdicts
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import base_tree, build_workspace
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import Exam, run_tests

pytestmark = [pytest.mark.bwrap, pytest.mark.toolchain, pytest.mark.slow]


class Project(NamedTuple):
    """A project whose issue is that ``expand("3-1")`` counts no way down."""

    language: CodeLanguage
    source: str
    test: str
    text: str
    """The test file, with ``@more@`` where the test patch adds a test."""
    more: str
    wrong: str
    right: str


NODE_RIGHT = """exports.expand = (text) => {
  const [first, last = first] = text.split("-").map(Number);
  const step = first > last ? -1 : 1;
  return Array.from({ length: Math.abs(last - first) + 1 }, (_, n) => first + n * step);
};
"""
NODE_WRONG = NODE_RIGHT.replace("first > last ? -1 : 1", "1")
MOCHA_TEST = """const assert = require("node:assert");
const { expand } = require("../src/ranges.js");

it("expands a number", () => {
  assert.deepStrictEqual(expand("7"), [7]);
});
@more@"""
MOCHA_MORE = """
it("counts down", () => {
  assert.deepStrictEqual(expand("3-1"), [3, 2, 1]);
});
"""
JAVA_RIGHT = """package ranges;

public final class Ranges {
    public static String expand(String text) {
        String[] ends = text.split("-");
        int first = Integer.parseInt(ends[0]), last = Integer.parseInt(ends[ends.length - 1]);
        StringBuilder found = new StringBuilder();
        for (int n = first; n != last; n += first < last ? 1 : -1) found.append(n).append(' ');
        return found.append(last).toString();
    }
}
"""
JAVA_WRONG = JAVA_RIGHT.replace("n != last; n += first < last ? 1 : -1", "n < last; n++")
JAVA_TEST = """package ranges;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class RangesTest {
    @Test
    public void range() {
        assertEquals("1 2 3", Ranges.expand("1-3"));
    }
@more@}
"""
JAVA_MORE = """
    @Test
    public void down() {
        assertEquals("3 2 1", Ranges.expand("3-1"));
    }
"""
PROJECTS = {
    "mocha": Project(
        "javascript",
        "src/ranges.js",
        "test/ranges.js",
        MOCHA_TEST,
        MOCHA_MORE,
        NODE_WRONG,
        NODE_RIGHT,
    ),
    "jest": Project(
        "javascript",
        "src/ranges.js",
        "test/ranges.test.js",
        MOCHA_TEST.replace("assert.deepStrictEqual(expand", "expect(expand").replace(
            '"), [', '")).toEqual(['
        ),
        MOCHA_MORE.replace("assert.deepStrictEqual(expand", "expect(expand").replace(
            '"), [', '")).toEqual(['
        ),
        NODE_WRONG,
        NODE_RIGHT,
    ),
    "junit-console": Project(
        "java",
        "src/main/java/ranges/Ranges.java",
        "src/test/java/ranges/RangesTest.java",
        JAVA_TEST,
        JAVA_MORE,
        JAVA_WRONG,
        JAVA_RIGHT,
    ),
}
JAVAC = (
    "mkdir -p build/classes && javac -d build/classes -cp /usr/share/java/junit4.jar "
    "$(find src -name '*.java')"
)
EMPTY = "exports.expand = () => [];\n"
AT_EXIT = """package ranges;

import java.nio.file.*;

public final class Ranges {
    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            String[] words = ProcessHandle.current().info().arguments().get();
            String folder = words[java.util.Arrays.asList(words).indexOf("--reports-dir") + 1];
            try (DirectoryStream<Path> reports = Files.newDirectoryStream(Path.of(folder), "*.xml")) {
                for (Path report : reports) {
                    String text = Files.readString(report), mended = "";
                    for (String part : text.split("(?=<testcase )")) {
                        boolean own = part.contains("ranges.RangesTest");
                        mended += own ? part.replaceAll("(?s)<failure.*?</failure>", "") : part;
                    }
                    Files.writeString(report, mended);
                }
            } catch (java.io.IOException error) {
                throw new RuntimeException(error);
            }
        }));
    }

    public static String expand(String text) {
        return "";
    }
}
"""
CHEATS = {
    "mocha's tests never fail": (
        "mocha",
        "const found = Object.values(require.cache);\n"
        'const file = found.find((one) => one.filename.endsWith("/mocha/lib/runnable.js"));\n'
        "const run = file.exports.prototype.run;\n"
        "file.exports.prototype.run = function (done) {\n"
        '  return this.file.endsWith("ranges.js") ? done() : run.call(this, done);\n'
        "};\n" + EMPTY,
    ),
    "mocha's assertions do nothing": (
        "mocha",
        'require("node:assert").deepStrictEqual = () => {};\n' + EMPTY,
    ),
    "jest's expect expects nothing": (
        "jest",
        "globalThis.expect = () => new Proxy({}, { get: () => () => {} });\n" + EMPTY,
    ),
    "jest's tests are empty": (
        "jest",
        "const { it } = globalThis;\nglobalThis.it = (name) => it(name, () => {});\n" + EMPTY,
    ),
    "the console's report is mended at its end": ("junit-console", AT_EXIT),
}


@pytest.fixture(scope="module")
def verifiers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CodeVerifier]:
    cached: dict[str, CodeVerifier] = {}

    def verifier(name: str) -> CodeVerifier:
        if name not in cached:
            npm = None
            if name == "junit-console":
                need(
                    "javac", "/usr/share/java/junit4.jar", apt="default-jdk-headless junit4 junit5"
                )
            else:
                packages = {
                    "mocha": ("mocha@10", "mocha-junit-reporter@2"),
                    "jest": ("jest@29", "jest-junit@16"),
                }[name]
                npm = node_packages(tmp_path_factory.mktemp("npm"), *packages)
            cached[name] = built(name, tmp_path_factory.mktemp(name), npm)
        return cached[name]

    return verifier


def built(name: str, folder: Path, npm: Path | None) -> CodeVerifier:
    """The project's verifier, its tests sorted by running them before and after."""
    project = PROJECTS[name]
    clone = folder / "clone"
    texts = {project.source: project.wrong, project.test: project.text.replace("@more@", "")}
    if npm is not None:
        texts["package.json"] = '{"private": true}\n'
    for path, text in texts.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    toy_repository.git(clone, "init", "-q", "-b", "main")
    toy_repository.git(clone, "add", "-A")
    toy_repository.git(clone, "commit", "-q", "-m", "base")
    recipe = Recipe(
        language=project.language,
        runner=name,
        install=("cp -r /packages/node_modules /env/",) if npm else (),
        build=() if npm else (JAVAC,),
    )
    mounts = (Mount(source=npm, target="/packages"),) if npm else ()
    tree = base_tree(clone, "HEAD", folder / "tree.tar")
    workspace = build_workspace(
        recipe, tree, backend="bubblewrap", mounts=mounts, cache_root=folder / "cache"
    )
    (clone / project.test).write_text(project.text.replace("@more@", project.more))
    patch = toy_repository.git(clone, "diff")
    exam = Exam(test_patch=patch.encode(), test_files=(project.test,))
    with workspace.open() as opened:
        opened.write(project.source, project.right.encode())
        gold = opened.diff()
    after, before = run_tests(workspace, exam, gold), run_tests(workspace, exam)
    assert after.report is not None, after.reason
    assert before.report is not None, before.reason
    good = {id_ for id_, status in after.report.statuses().items() if status is Status.PASS}
    failing = {id_ for id_, status in before.report.statuses().items() if status is not Status.PASS}
    tests = CodeTests(
        runner=name,
        test_patch=patch,
        test_files=(project.test,),
        fail_to_pass=tuple(good & failing),
        pass_to_pass=tuple(good - failing),
    )
    assert (len(tests.fail_to_pass), len(tests.pass_to_pass)) == (1, 1)
    proven = prove_verdicts(workspace, tests, gold, rehearsals=0).tests
    assert [one.kind for one in proven.verdicts.values()] == [VerdictKind.MANY]
    return CodeVerifier(workspace, proven)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.replace(" ", "-"))
def test_a_trick_is_caught_by_look_alikes_alone(
    cheat: str, verifiers: Callable[[str], CodeVerifier]
) -> None:
    name, text = CHEATS[cheat]
    verifier = verifiers(name)
    with verifier.workspace.open() as opened:
        opened.write(PROJECTS[name].source, text.encode())
        patch = opened.diff()
    without = run_tests(verifier.workspace, exam_of(verifier.tests), patch)
    believed = score_run(without, verifier.tests)
    assert believed.passed, believed.reasons
    score = verifier.verify_patch(patch)
    assert score.value == 0
    assert score.reasons[0].startswith("forged: "), score.reasons
