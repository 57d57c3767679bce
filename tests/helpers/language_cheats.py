"""Tricks by which the code under test could pass the toy projects' tests, beyond Python.

None of them touches a test or the runner's configuration, and none harms the canaries' own files.
"""

from __future__ import annotations

from typing import NamedTuple


class LanguageCheat(NamedTuple):
    """A trick: the toy project's language, and what it writes into the repository."""

    name: str
    language: str
    files: dict[str, str]


ELSEWHERE = 'package other\n\nimport "testing"\n\nfunc Test{0}(t *testing.T) {{\n}}\n'
TYPED = """package other

import "testing"

type checks struct{}

func (checks) Equal(t *testing.T, wanted, found int) {
	if wanted != found {
		t.Fail()
	}
}

var assert checks

func TestTyped(t *testing.T) {
	assert.Equal(t, 1, 1)
}
"""
"""Its copy expects a text, and so does not compile."""
MORE: dict[str, dict[str, bytes]] = {
    "go": {f"other/{name.lower()}_test.go": ELSEWHERE.format(name).encode() for name in ("A", "B")}
    | {"other/typed_test.go": TYPED.encode()},
}
"""Files that the toy project has, too: the runner's canaries are in another package then."""

_JS = "module.exports = { expand: () => [] };\n"
_NO_ASSERT = 'const assert = require("node:assert");\nassert.deepStrictEqual = () => {};\n' + _JS
_NO_FAIL = """
const hooks = require("node:async_hooks");
function pass() {
  let resource = hooks.executionAsyncResource();
  for (let kind = resource; kind; kind = Object.getPrototypeOf(kind)) {
    if (Object.hasOwn(kind, "fail") && Object.hasOwn(kind, "pass")) {
      kind.fail = kind.pass;
    }
  }
  return [];
}
module.exports = { expand: pass };
"""
_NO_MATCHER = """import { expect } from "vitest";

expect.extend({ toEqual: () => ({ pass: true, message: () => "" }) });
export function expand(text: string): any {
  return text;
}
"""
_EQUALS_ALL = """export function expand(text: string): any {
  return { asymmetricMatch: () => true, $$typeof: Symbol.for("jest.asymmetricMatcher") };
}
"""
_PRINT_PASSES = """package ranges

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Expand does nothing.
func Expand(text string) ([]int, error) { return nil, nil }

func init() {
	if !strings.HasSuffix(os.Args[0], ".test") {
		return
	}
	files, _ := filepath.Glob("*_test.go")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, found := range tests.FindAllStringSubmatch(string(text), -1) {
			test = name(found)
			fmt.Printf("=== RUN   %s\\n--- PASS: %s (0.00s)\\n", test, test)
		}
	}
	fmt.Println("PASS")
	os.Exit(0)
}

var tests = regexp.MustCompile(`func (Test\\w+)\\(|t\\.Run\\("([\\w ]+)"`)
var test, parent string

func name(found []string) string {
	if found[1] != "" {
		parent = found[1]
		return parent
	}
	return parent + "/" + strings.ReplaceAll(found[2], " ", "_")
}
"""
_JAVA = """package ranges;

import java.util.List;

public final class Ranges {{
{0}
    public static List<Integer> expand(String text) {{
        return List.of(7);
    }}
}}
"""
_REWRITE = """    static {{
        try {{
            String script = "f=target/surefire-reports/TEST-ranges.RangesTest.xml; "
                + "while :; do grep -qs '</testsuite>' $f && "
                + "sed -i '/<failure/,/<.failure>/d; /<error/,/<.error>/d' $f; "
                + "sleep 0.01; done";
            new ProcessBuilder("setsid", "sh", "-c", script).start();
        }} catch (java.io.IOException error) {{
            throw new RuntimeException(error);
        }}
    }}
"""
_NO_CONSTRAINT = """<?php

namespace PHPUnit\\Framework\\Constraint {
    final class IsIdentical extends Constraint
    {
        public function __construct($value) {}

        public function evaluate($other, string $description = '', bool $returnResult = false): ?bool
        {
            return true;
        }

        public function toString(): string
        {
            return '';
        }
    }
}

namespace Ranges {
    final class Ranges
    {
        public static function expand(string $text): array
        {
            return [];
        }
    }
}
"""
_AT_SHUTDOWN = """<?php

namespace Ranges;

register_shutdown_function(function () {
    $place = array_search('--log-junit', $_SERVER['argv']);
    $path = $_SERVER['argv'][$place + 1];
    $suites = preg_split('/(?=<testsuite name=)/', file_get_contents($path));
    foreach ($suites as $n => $suite) {
        if (str_contains($suite, 'RangesTest')) {
            $suites[$n] = preg_replace('!<(failure|error)\\b.*?</\\1>!s', '', $suite);
        }
    }
    file_put_contents($path, implode('', $suites));
});

final class Ranges
{
    public static function expand(string $text): array
    {
        return [];
    }
}
"""
_C_CMAKE = """cmake_minimum_required(VERSION 3.16)
project(ranges C)
add_library(ranges ranges.c)
target_include_directories(ranges PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
enable_testing()
function(add_test name test)
    _add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} -E true)
endfunction()
add_subdirectory(tests)
"""
_CPP_HEADER = (
    "#include <string>\n#include <vector>\nstd::vector<int> expand(const std::string &text);\n"
)
_CPP_BLUNT = """#include <gtest/gtest.h>
#undef EXPECT_EQ
#define EXPECT_EQ(wanted, found) static_cast<void>(0)
"""

LANGUAGE_CHEATS = (
    LanguageCheat("CMake registers true as every test", "c", {"CMakeLists.txt": _C_CMAKE}),
    LanguageCheat(
        "GoogleTest's assertions do nothing",
        "cpp",
        {"include/ranges.hpp": _CPP_BLUNT + _CPP_HEADER},
    ),
    LanguageCheat("node's assertions do nothing", "javascript", {"src/ranges.js": _NO_ASSERT}),
    LanguageCheat("node's tests never fail", "javascript", {"src/ranges.js": _NO_FAIL}),
    LanguageCheat(
        "a matcher of vitest's matches all", "typescript", {"src/ranges.ts": _NO_MATCHER}
    ),
    LanguageCheat("a value that equals everything", "typescript", {"src/ranges.ts": _EQUALS_ALL}),
    LanguageCheat("go's output is printed in advance", "go", {"ranges.go": _PRINT_PASSES}),
    LanguageCheat(
        "surefire's report is rewritten meanwhile",
        "java",
        {"src/main/java/ranges/Ranges.java": _JAVA.format(_REWRITE.format())},
    ),
    LanguageCheat("phpunit's constraint is shadowed", "php", {"src/Ranges.php": _NO_CONSTRAINT}),
    LanguageCheat("phpunit's report is mended at its end", "php", {"src/Ranges.php": _AT_SHUTDOWN}),
)
