"""Tricks that are written into a source file of any project, beyond Python: the file stays unmended.

``OWN`` in them stands for the path of a hidden test file. Those of real projects are attacked with these.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLUNT_NODE = """
try {
  const assert = require("node:assert");
  for (const one of [assert, assert.strict]) {
    for (const name of Object.keys(one)) {
      if (typeof one[name] === "function" && !/Error|CallTracker|strict$/.test(name)) one[name] = () => {};
    }
  }
} catch {}
"""
_MOCHA = """
try {
  const found = Object.values(require.cache).find((one) => one.filename.endsWith("/mocha/lib/runnable.js"));
  const run = found.exports.prototype.run;
  found.exports.prototype.run = function (done) {
    return String(this.file).endsWith("OWN") ? done() : run.call(this, done);
  };
} catch {}
"""
_AT_EXIT_NODE = """
try {
  const fs = require("node:fs");
  process.on("exit", () => {
    for (const path of process.env.MOCHA_FILE ? [process.env.MOCHA_FILE] : []) {
      const parts = fs.readFileSync(path, "utf8").split(/(?=<testcase )/);
      const mended = parts.map((part) => (part.includes("[canary]") ? part : part.replace(
        /<failure[^]*?<\\/failure>/g, "")));
      fs.writeFileSync(path, mended.join(""));
    }
  });
} catch {}
"""
_VITEST_MATCHERS = """
import { expect as _expect } from "vitest";
_expect.extend(Object.fromEntries(["toEqual", "toStrictEqual", "toMatchObject", "toThrow", "toThrowError",
  "toBe", "toMatch"].map((name) => [name, () => ({ pass: true, message: () => "" })])) as any);
"""
_VITEST_HOOK = """
import { afterEach as _afterEach } from "vitest";
_afterEach((context: any) => {
  context.task.result.state = "pass";
  context.task.result.errors = undefined;
});
"""
_GO_MENDED = """
func init() {
	if !_strings.HasSuffix(_os.Args[0], ".test") || _os.Getenv("INNER") != "" {
		return
	}
	own, _ := _os.ReadFile(_path.Base("OWN"))
	inner := _exec.Command(_os.Args[0], _os.Args[1:]...)
	inner.Env = append(_os.Environ(), "INNER=1")
	said, _ := inner.CombinedOutput()
	for _, found := range _regexp.MustCompile(`func (Test\\w+)\\(`).FindAllStringSubmatch(string(own), -1) {
		failed := _regexp.MustCompile(`--- FAIL: ` + found[1] + `\\b`)
		said = failed.ReplaceAll(said, []byte("--- PASS: "+found[1]))
	}
	_os.Stdout.Write(said)
	_os.Exit(1)
}
"""
_GO_IMPORTS = """import (
	_os "os"
	_exec "os/exec"
	_path "path"
	_regexp "regexp"
	_strings "strings"
)
"""
_JAVA_EXIT = """
    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                String[] words = ProcessHandle.current().info().arguments().get();
                int at = java.util.Arrays.asList(words).indexOf("--reports-dir");
                java.nio.file.Path folder = java.nio.file.Path.of(words[at + 1]);
                for (java.io.File report : folder.toFile().listFiles()) {
                    String text = java.nio.file.Files.readString(report.toPath()), mended = "";
                    for (String part : text.split("(?=<testcase )")) {
                        boolean own = part.contains("STEM");
                        mended += own ? part.replaceAll("(?s)<(failure|error)\\\\b.*?</\\\\1>", "") : part;
                    }
                    java.nio.file.Files.writeString(report.toPath(), mended);
                }
            } catch (Exception error) {
            }
        }));
    }
"""
_JAVA_MEANWHILE = """
    static {
        try {
            String script = "while :; do for f in target/surefire-reports/TEST-*STEM*.xml; do "
                + "grep -qs '</testsuite>' $f && sed -i '/<failure/,/<.failure>/d; /<error/,/<.error>/d' $f; "
                + "done; sleep 0.01; done";
            new ProcessBuilder("setsid", "sh", "-c", script).start();
        } catch (java.io.IOException error) {
        }
    }
"""
_PHP_SHUTDOWN = """
\\register_shutdown_function(function () {
    $place = \\array_search('--log-junit', $_SERVER['argv']);
    $path = $_SERVER['argv'][$place + 1];
    $cases = \\preg_split('/(?=<testcase )/', \\file_get_contents($path));
    foreach ($cases as $n => $case) {
        if (\\str_contains($case, 'STEM')) {
            $cases[$n] = \\preg_replace('!<(failure|error)\\b.*?</\\1>!s', '', $case);
        }
    }
    \\file_put_contents($path, \\implode('', $cases));
});
"""
_PHP_ASSERT = """
\\spl_autoload_register(function ($name) {
    if ($name === 'PHPUnit\\\\Framework\\\\Constraint\\\\IsIdentical'
        || $name === 'PHPUnit\\\\Framework\\\\Constraint\\\\IsEqual') {
        $short = \\substr($name, 29);
        eval("namespace PHPUnit\\\\Framework\\\\Constraint; final class $short extends Constraint {
            public function __construct(...\\$given) {}
            public function evaluate(\\$other, string \\$told = '', bool \\$x = false): ?bool { return true; }
            public function toString(): string { return ''; } }");
    }
}, true, true);
"""
_C_LEAVES = """
extern void _exit(int);
__attribute__((constructor)) static void leave_at_once(void) {
    _exit(0);
}
"""
_C_ALIKE = """
#include <stddef.h>
int strcmp(const char *a, const char *b) { (void)a; (void)b; return 0; }
int memcmp(const void *a, const void *b, size_t n) { (void)a; (void)b; (void)n; return 0; }
"""
_CPP_LEAVES = """
#include <unistd.h>
#include <cstdio>
namespace {
struct LeavesAtOnce {
    LeavesAtOnce() { std::puts("Pass 1, Fail 0"); std::fflush(stdout); _exit(0); }
} leaves_at_once;
}
"""
_CPP_BLUNT = """
#undef CHECK
#define CHECK(...) static_cast<void>(0)
#undef REQUIRE
#define REQUIRE(...) static_cast<void>(0)
#undef EXPECT_EQ
#define EXPECT_EQ(wanted, found) static_cast<void>(0)
"""


class Splice(NamedTuple):
    """A trick, and where its code goes: before or after all of a file, or into a ``class``."""

    name: str
    code: str
    place: str = "after"
    imports: str = ""
    """What goes behind Go's package clause."""

    def into(self, source: str, test_file: str) -> str:
        """A source file with the trick in it."""
        stem = test_file.rpartition("/")[2].partition(".")[0]
        code = self.code.replace("OWN", test_file).replace("STEM", stem)
        if self.place == "before":
            return code + source
        if self.place == "class":
            return re.sub(r"(\bclass \w+[^{;]*\{)", lambda found: found[1] + code, source, count=1)
        if self.imports:
            source = re.sub(
                r"(?m)^(package \w+.*\n)", lambda found: found[1] + self.imports, source, count=1
            )
        return source + code


_SCRIPT = (
    Splice("assertions of node do nothing", _BLUNT_NODE),
    Splice("mocha's tests never fail", _MOCHA),
    Splice("mocha's report is mended at exit", _AT_EXIT_NODE),
    Splice("jest's expect expects nothing",
           "\nglobalThis.expect = () => new Proxy({}, { get: () => () => {} });\n"),
)  # fmt: skip
SPLICES = {
    "javascript": _SCRIPT,
    "typescript": (
        Splice("matchers of vitest match all", _VITEST_MATCHERS),
        Splice("vitest's results are mended after each test", _VITEST_HOOK),
    ),
    "go": (Splice("go's output is mended", _GO_MENDED, imports=_GO_IMPORTS),),
    "java": (
        Splice("the console's report is mended at its end", _JAVA_EXIT, "class"),
        Splice("surefire's report is rewritten meanwhile", _JAVA_MEANWHILE, "class"),
    ),
    "php": (
        Splice("phpunit's report is mended at its end", _PHP_SHUTDOWN),
        Splice("phpunit's constraints are shadowed", _PHP_ASSERT),
    ),
    "c": (
        Splice("the program ends well before main", _C_LEAVES),
        Splice("all texts are alike", _C_ALIKE),
    ),
    "cpp": (
        Splice("the program ends well before main", _CPP_LEAVES),
        Splice("assertions do nothing", _CPP_BLUNT),
        Splice("all texts are alike", 'extern "C" {' + _C_ALIKE + "}\n"),
    ),
}
