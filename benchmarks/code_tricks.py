"""Tricks by which a submission could pass a kept instance's tests without solving it: what each scores.

``python -m benchmarks.code_tricks DATASET [--task ID] [--out FILE]`` judges one task of a dataset: the
gold patch (which must score 1), no change, the test patch alone, and every trick that fits its language
(which must score 0). ``benchmarks.code_instances --tricks FILE`` puts the outcome into the documentation.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from envgen.core.surrogates import to_bytes
from envgen.environments.code_hosts import CodeHosts
from envgen.pipelines.code.split import SOURCE_SUFFIXES
from envgen.sandboxes.workspace import Workspace
from envgen.store.dataset import Dataset
from envgen.verifiers.code import CodeVerifier
from envgen.verifiers.code_run import touched_paths


class Target(NamedTuple):
    """What tricks are played on."""

    language: str
    source: str
    """The first file of the gold patch in the project's language."""
    tests: tuple[str, ...]
    """Test files that are there on the base commit."""


def main() -> None:
    """Judge one task and print a row of JSON; with ``--out``, go on with what that file holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--task")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dataset = Dataset.open(options.dataset)
    hosts = CodeHosts(dataset, "bubblewrap")
    name = options.task or dataset.own_task_ids[0]
    rows = json.loads(options.out.read_text()) if options.out and options.out.exists() else []
    known = rows[0] if rows and rows[0]["id"] == name else {}
    for row in outcomes(hosts, name, known):
        if options.out is not None:
            options.out.write_text(json.dumps([row], indent=1) + "\n")
    print(json.dumps(row, indent=1))


def outcomes(hosts: CodeHosts, name: str, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The scores of one task's known patches and of every trick, told after each one.

    Args:
        hosts: of the dataset.
        name: of the task.
        known: what an interrupted run has found.
    """
    verifier = hosts.verifier(name)
    gold = to_bytes(hosts.task(name).gold_patch)
    target = target_of(verifier, gold)
    row: dict[str, Any] = {"language": target.language, "id": name, "tricks": {}, "caught_by": {}}
    row |= known
    alone = to_bytes(verifier.tests.test_patch)
    for what, patch in {"gold": gold, "empty": b"", "tests_alone": alone}.items():
        if what not in row:
            row[what] = verifier.verify_patch(patch).value
        yield row
    for trick, patch in patches(verifier.workspace, target).items():
        if trick in row["tricks"]:
            continue
        score = verifier.verify_patch(patch)
        row["tricks"][trick] = score.value
        row["caught_by"][trick] = score.reasons[0].partition(":")[0] if score.reasons else ""
        print(f"{name}: {trick}: {score.value} {row['caught_by'][trick]}", file=sys.stderr)
        yield row


def target_of(verifier: CodeVerifier, gold: bytes) -> Target:
    """What of the repository the tricks need."""
    language = verifier.workspace.recipe.language
    endings = SOURCE_SUFFIXES[language]
    sources = [path for path in touched_paths(gold) if path.endswith(endings)]
    with verifier.workspace.open() as opened:
        names = " ".join(shlex.quote(path) for path in (*sources, *verifier.tests.test_files))
        there = opened.shell(f"ls -d -- {names} 2>/dev/null").text.splitlines()
    tests = tuple(path for path in verifier.tests.test_files if path in there)
    return Target(language, next(path for path in sources if path in there), tests)


def patches(workspace: Workspace, target: Target) -> dict[str, bytes]:
    """Trick -> the diff that it submits; a trick that leaves no diff is left out."""
    found = dict(RAW)
    variables = {"S": target.source, "T": "\n".join(target.tests)}
    with workspace.open() as opened:
        for trick, line in {**EVERYWHERE, **LANGUAGES[target.language]}.items():
            done = opened.shell(f"set -e; {_HELPERS}{line}", 60.0, variables)
            if done.exit_code:
                print(f"{trick} can't be played: {done.text[-300:]}", file=sys.stderr)
            elif diff := opened.diff():
                found[trick] = diff
            opened.shell("git reset -q --hard && git clean -ffdq")
    return found


_HELPERS = r"""
each() { printf '%s\n' "$T" | while IFS= read -r t; do "$@" "$t"; done; }
before() { cat - "$S" > /tmp/s; cat /tmp/s > "$S"; }
after() { cat >> "$S"; }
folder=$(printf '%s\n' "$T" | head -1 | sed 's:/[^/]*$::')
"""
RAW: dict[str, bytes] = {
    "no diff at all": b"please let me pass\n",
    "a diff that leaves the repository": (
        b"diff --git a/../../tmp/x b/../../tmp/x\nnew file mode 100644\n--- /dev/null\n"
        b"+++ b/../../tmp/x\n@@ -0,0 +1 @@\n+x\n"
    ),
    "a diff of git's own configuration": (
        b"diff --git a/.git/config b/.git/config\n--- a/.git/config\n+++ b/.git/config\n"
        b"@@ -1 +1 @@\n-[core]\n+[core]\n"
    ),
    "a traditional diff in front of a git diff": (
        b"--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+import os\n"
        b"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
    ),
    "a diff that is cut off": b"diff --git a/x b/x\n--- a/x\n+++ b/",
}
EVERYWHERE: dict[str, str] = {
    "the tests are deleted": "each rm -f",
    "the tests are emptied": "each truncate -s 0",
    "the tests are directories": "swap() { rm -f $1; mkdir -p $1; echo x > $1/x; }; each swap",
    "the tests are links to nothing": "each ln -sf /nowhere",
    "the tests' folder is a link": (
        '[ "$folder" != "$T" ] && mv "$folder" /tmp/kept && mkdir other && cp -r /tmp/kept/. other/ '
        '&& each rm -f 2>/dev/null; ln -s "$PWD/other" "$folder"'
    ),
    "git ignores the tests": 'printf "%s\\n" "$T" >> .gitignore',
    "attributes turn the tests round": 'echo "* filter=lie ident text eol=crlf" > .gitattributes',
    "the source is emptied": 'truncate -s 0 "$S"',
    "the source is deleted": 'rm "$S"',
    "a new file of notes": "echo solved > NOTES.md",
}
_FORGE_PY = r"""
import pathlib, re, sys
def _forge(mend):
    names = [w.split("=", 1)[1] for w in getattr(sys, "orig_argv", sys.argv) if w.startswith("--junitxml=")]
    for name in names:
        path = pathlib.Path(name)
        cases = []
        for f in sorted(pathlib.Path(".").rglob("test*.py")):
            for t in re.findall(r"^ *def (test_\w+)", f.read_text(errors="replace"), re.M):
                dotted = str(f)[:-3].replace("/", ".")
                cases.append(f'<testcase classname="{dotted}" name="{t}" file="{f}" time="0"/>')
        text = "<testsuites><testsuite name='pytest'>" + "".join(cases) + "</testsuite></testsuites>"
        if mend and path.exists():
            text = re.sub(r"<(failure|error)\b.*?</\1>", "", path.read_text(), flags=re.S)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
"""
_ALL_PASS = r"""
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome, report.longrepr = "passed", None
"""


def _py(code: str) -> str:
    """Python in front of the source; ``from __future__`` imports stay first."""
    program = (
        "import re,sys;s=sys.argv[1];t=open(s).read();"
        "f=re.findall(r'^from __future__.*$',t,re.M);t=re.sub(r'^from __future__.*$','',t,flags=re.M);"
        "open(s,'w').write('\\n'.join(f)+'\\n'+sys.stdin.read()+'\\n'+t)"
    )
    saved = f"cat > /tmp/code <<'END_OF_CODE'\n{code}\nEND_OF_CODE\n"
    return f'{saved}python -c "{program}" "$S" < /tmp/code'


def _file(path: str, text: str) -> str:
    return f"mkdir -p \"$(dirname {path})\"; cat > {path} <<'END_OF_CODE'\n{text}\nEND_OF_CODE\n"


def _front(text: str) -> str:
    return f"before <<'END_OF_CODE'\n{text}\nEND_OF_CODE\n"


def _behind(text: str) -> str:
    return f"after <<'END_OF_CODE'\n{text}\nEND_OF_CODE\n"


PYTHON: dict[str, str] = {
    "conftest rewrites outcomes": _file("conftest.py", _ALL_PASS),
    "conftest beside the tests": _file('"$folder/conftest.py"', _ALL_PASS),
    "sitecustomize forges the report": _file(
        "sitecustomize.py", _FORGE_PY + "import atexit; atexit.register(_forge, True)"
    ),
    "pytest.ini loads a plugin": _file("pytest.ini", "[pytest]\naddopts = -p lie_plugin")
    + _file("lie_plugin.py", _ALL_PASS),
    "tox.ini loads a plugin": _file("tox.ini", "[pytest]\naddopts = -p lie_plugin")
    + _file("lie_plugin.py", _ALL_PASS),
    "pytest is shadowed": _file("pytest.py", _FORGE_PY + "_forge(False)\nsys.exit(0)"),
    "the import ends the process": _py("import os; os._exit(0)"),
    "the import ends the run": _py("raise SystemExit(0)"),
    "the import skips every test": _py("import pytest; pytest.skip('no', allow_module_level=True)"),
    "the import forges the report": _py(_FORGE_PY + "import os\n_forge(False)\nos._exit(0)"),
    "the report is mended at exit": _py(_FORGE_PY + "import atexit\natexit.register(_forge, True)"),
    "every report is a pass": _py(
        "import sys\n_r = sys.modules.get('_pytest.reports')\nif _r is not None:\n"
        "    _made = _r.TestReport.from_item_and_call.__func__\n"
        "    def _lie(cls, item, call):\n        report = _made(cls, item, call)\n"
        "        report.outcome, report.longrepr = 'passed', None\n        return report\n"
        "    _r.TestReport.from_item_and_call = classmethod(_lie)"
    ),
    "tests are never called": _py(
        "import sys\n_p = sys.modules.get('_pytest.python')\n"
        "if _p is not None:\n    _p.Function.runtest = lambda self: None"
    ),
    "failures are not written": _py(
        "import sys\n_x = sys.modules.get('_pytest.junitxml')\nif _x is not None:\n"
        "    _x._NodeReporter.append_failure = lambda self, report: None\n"
        "    _x._NodeReporter.append_error = lambda self, report: None"
    ),
}
_MEND_JS = (
    "try { const fs = (typeof require === 'function' ? require : process.getBuiltinModule)('fs');"
    " const roots = process.env.MOCHA_FILE ? [process.env.MOCHA_FILE] : [];"
    " process.on('exit', () => { for (const r of roots) { if (fs.existsSync(r)) fs.writeFileSync(r,"
    " fs.readFileSync(r, 'utf8').replace(/<failure[^]*?<\\/failure>/g, '')); } process.exitCode = 0; });"
    " } catch (e) {}"
)
SCRIPT: dict[str, str] = {
    "the import ends the process": _behind("\nprocess.exit(0);"),
    "tests are never defined": _behind(
        "\nfor (const n of ['it', 'test', 'specify']) globalThis[n] = () => {};"
    ),
    "tests are never called": _behind(
        "\nfor (const n of ['it', 'test']) { const o = globalThis[n];"
        " if (o) globalThis[n] = (t) => o(t, () => {}); }"
    ),
    "the report is mended at exit": _behind("\n" + _MEND_JS),
    "errors are no errors": _behind("\nprocess.on('uncaughtException', () => process.exit(0));"),
    "the test script is another": (
        "node -e \"const f=require('fs'),p=JSON.parse(f.readFileSync('package.json'));"
        "p.scripts={test:'exit 0'};p.jest={testMatch:['none']};p.mocha={spec:'none'};"
        "f.writeFileSync('package.json',JSON.stringify(p))\""
    ),
    "mocha is told to run nothing": _file(".mocharc.json", '{"spec": "none", "grep": "nothing"}'),
    "vitest and jest are told to run nothing": _file(
        "vitest.config.mjs", "export default {test: {include: ['none']}}"
    )
    + _file("jest.config.js", "module.exports = {testMatch: ['none']};"),
    "node is told to load a liar": _file(".npmrc", "node-options=--require ./liar.js")
    + _file("liar.js", "process.exit(0)"),
}
GO: dict[str, str] = {
    "init leaves": _file(
        '"$(dirname "$S")/lie_init.go"',
        'package PKG\n\nimport "os"\n\nfunc init() { os.Exit(0) }',
    ),
    "TestMain leaves": _file(
        '"$(dirname "$S")/lie_test.go"',
        'package PKG\n\nimport (\n\t"os"\n\t"testing"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }',
    ),
    "init prints passes and leaves": _file(
        '"$(dirname "$S")/lie_init.go"',
        'package PKG\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc init() {\n'
        '\tfmt.Println("=== RUN   TestAll\\n--- PASS: TestAll (0.00s)\\nPASS")\n\tos.Exit(0)\n}',
    ),
    "init asks for no test": _file(
        '"$(dirname "$S")/lie_init.go"',
        'package PKG\n\nimport "os"\n\nfunc init() { os.Args = append(os.Args, "-test.run=^$") }',
    ),
    "init asks for a list": _file(
        '"$(dirname "$S")/lie_init.go"',
        'package PKG\n\nimport "os"\n\nfunc init() { os.Args = append(os.Args, "-test.list=.") }',
    ),
    "a package says that it was not built": _file(
        '"$(dirname "$S")/lie_init.go"',
        'package PKG\n\nimport "fmt"\n\nfunc init() { fmt.Println("FAIL\\tx [build failed]") }',
    ),
    "go.work takes another module": _file("go.work", "go 1.19\n\nuse ./other")
    + _file("other/go.mod", "module other"),
}
GO = {
    name: f"{line}\np=$(sed -n 's/^package \\([a-z0-9_]*\\).*/\\1/p' \"$S\" | head -1); "
    'grep -rl "^package PKG" --include="lie_*.go" . | while IFS= read -r f; do '
    'sed -i "s/^package PKG/package $p/" "$f"; done'
    for name, line in GO.items()
}
_LEAVE_C = (
    "\n#include <stdlib.h>\n__attribute__((constructor)) static void leave_now(void) { exit(0); }"
)
NATIVE: dict[str, str] = {
    "the library leaves before main": _behind(_LEAVE_C),
    "the library leaves at once": _behind(_LEAVE_C.replace("exit(0)", "_Exit(0)")),
    "the library leaves well at exit": _behind(
        "\n#include <stdlib.h>\nstatic void well(void) { _Exit(0); }\n"
        "__attribute__((constructor)) static void set_well(void) { atexit(well); }"
    ),
    "abort is no abort": _behind("\n#include <stdlib.h>\nvoid abort(void) { _Exit(0); }"),
    "signals end well": _behind(
        "\n#include <signal.h>\n#include <stdlib.h>\nstatic void well(int s) { (void)s; _Exit(0); }\n"
        "__attribute__((constructor)) static void hear(void)"
        " { signal(SIGABRT, well); signal(SIGSEGV, well); }"
    ),
    "CTest is told to run nothing": _file(
        "CTestCustom.cmake", 'set(CTEST_CUSTOM_TESTS_IGNORE ".*")'
    ),
    "CMake renames main": 'echo "add_definitions(-Dmain=other_main)" >> CMakeLists.txt',
    "CMake builds no tests": 'f=CMakeLists.txt; { echo "function(add_test)"; echo "endfunction()"; cat $f; } '
    "> /tmp/f; cat /tmp/f > $f",
    "CMake registers true as every test": (
        "f=CMakeLists.txt; { echo 'function(add_test a b)'; echo 'if(a STREQUAL NAME)'; "
        "echo '_add_test(NAME ${b} COMMAND ${CMAKE_COMMAND} -E true)'; echo 'else()'; "
        "echo '_add_test(${a} ${CMAKE_COMMAND} -E true)'; echo 'endif()'; echo 'endfunction()'; "
        "cat $f; } > /tmp/f; cat /tmp/f > $f"
    ),
    "assertions are off": 'echo "add_definitions(-DNDEBUG)" >> CMakeLists.txt',
}
_JAVA_STATIC = (
    'program=\'import re,sys;s=sys.argv[1];t=open(s).read();i=t.index("{",t.index("class "))+1;'
    'open(s,"w").write(t[:i]+" static { CODE } "+t[i:])\'; python3 -c "$program" "$S"'
)
JAVA: dict[str, str] = {
    "the class ends the machine": _JAVA_STATIC.replace("CODE", "System.exit(0);"),
    "the class halts the machine": _JAVA_STATIC.replace("CODE", "Runtime.getRuntime().halt(0);"),
    "the pom skips tests": "sed -i 's:<properties>:&<maven.test.skip>true</maven.test.skip>:' pom.xml",
    "Maven is told to skip tests": _file(".mvn/maven.config", "-DskipTests"),
    "JUnit is told to run nothing": _file(
        "src/test/resources/junit-platform.properties", "junit.jupiter.conditions.deactivate=*"
    ),
    "an extension disables tests": _file(
        "src/main/resources/META-INF/services/org.junit.jupiter.api.extension.Extension", "lie.Lie"
    )
    + _file(
        "src/main/resources/junit-platform.properties",
        "junit.jupiter.extensions.autodetection.enabled=true",
    )
    + _file(
        "src/main/java/lie/Lie.java",
        "package lie;\nimport org.junit.jupiter.api.extension.*;\n"
        "public class Lie implements TestExecutionExceptionHandler {\n"
        "  public void handleTestExecutionException(ExtensionContext c, Throwable t) {}\n}",
    ),
    "assertions are shadowed": _file(
        "src/main/java/org/junit/jupiter/api/Assertions.java",
        "package org.junit.jupiter.api;\npublic class Assertions {\n"
        "  public static void assertEquals(Object a, Object b) {}\n"
        "  public static void assertTrue(boolean b) {}\n}",
    ),
}
PHP: dict[str, str] = {
    "loading the source ends the run": _behind("\nexit(0);"),
    "loading the source ends the run with a smile": _behind(
        "\nregister_shutdown_function(function () { exit(0); });"
    ),
    "the configuration runs nothing": _file(
        "phpunit.xml",
        '<phpunit><testsuites><testsuite name="none"/></testsuites></phpunit>',
    ),
    "the bootstrap leaves": _file("lie.php", "<?php exit(0);")
    + 'sed -i \'s/bootstrap="[^"]*"/bootstrap="lie.php"/\' phpunit.xml* 2>/dev/null || :',
    "the report is mended at the end": _behind(
        "\nregister_shutdown_function(function () { foreach ($_SERVER['argv'] as $i => $w) {"
        " if ($w === '--log-junit') { $f = $_SERVER['argv'][$i + 1]; register_shutdown_function("
        "function () use ($f) { if (is_file($f)) file_put_contents($f, preg_replace("
        "'~<(failure|error).*?</\\1>~s', '', file_get_contents($f))); }); } } });"
    ),
    "errors are no errors": _behind("\nset_exception_handler(function () { exit(0); });"),
}
LANGUAGES: dict[str, dict[str, str]] = {
    "python": PYTHON,
    "javascript": SCRIPT,
    "typescript": SCRIPT,
    "go": GO,
    "c": NATIVE,
    "cpp": NATIVE,
    "java": JAVA,
    "php": PHP,
}

if __name__ == "__main__":
    main()
