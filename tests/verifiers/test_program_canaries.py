from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from code_runs import need

from envgen.verifiers.program_canaries import arm

NAMED = b"""
#include <cstdio>
struct test { const char* name; void (*run)(); test* next; static test* all;
  test(const char* n, void (*r)()) : name(n), run(r), next(all) { all = this; } };
#define TEST(name) static void run_##name(); static test t_##name(#name, run_##name); static void run_##name()
TEST(adds) { if (1 + 1 != 2) std::puts("no"); }
"""
MAIN = b"test* test::all;\nint run() { for (test* t = test::all; t; t = t->next) t->run(); return 0; }\n"


@pytest.mark.toolchain
def test_a_test_of_one_name_gets_a_canary_that_fails(tmp_path: Path) -> None:
    need("c++", apt="g++")
    armed = arm("cpp", {"tests/t.cpp": NAMED}, "ENVGEN_x")["tests/t.cpp"]
    program = _built(tmp_path, armed + MAIN + b"int main() { return run(); }\n")
    assert _exit_code(program) == 0
    assert _exit_code(program, ENVGEN_x_main="1") == -signal.SIGABRT
    assert _exit_code(program, ENVGEN_x_assertions="1") == 0  # it has none that is understood


@pytest.mark.parametrize(
    ("language", "source", "wanted"),
    [
        ("cpp", b"TEST(Sum, adds) { }\n", b"TEST(ENVGEN_x_main, ENVGEN_x_main) { if"),
        ("cpp", b"TEST_F( Sum,\n  adds) { }\n", b"TEST(ENVGEN_x_main, ENVGEN_x_main) { if"),
        ("cpp", b"TEST(adds)\n{ }\n", b"TEST(ENVGEN_x_main) { if"),
        ("cpp", b"TEST_CASE(\"adds\") { }\n", b'TEST_CASE("ENVGEN_x_main") { if'),
        ("c", b"TEST(adds)\n{ }\n", None),
        ("c", b"int main(void) {\n return 0; }\n", b"int main(void) { if"),
        ("c", b"int CJSON_CDECL main(void)\n{\n return 0; }\n", b"int CJSON_CDECL main(void)\n{ if"),
        ("python", b"TEST(adds)", None),
    ],
)  # fmt: skip
def test_the_form_follows_the_framework(language, source, wanted) -> None:  # type: ignore[no-untyped-def]  # of parameters
    armed = arm(language, {"tests/t.c": source}, "ENVGEN_x")
    assert bool(armed) is (wanted is not None)
    if wanted is not None:
        assert wanted in armed["tests/t.c"]


@pytest.mark.parametrize(
    ("statement", "contrary"),
    [
        ("assert(a == b);", "assert(!(a == b));"),
        ('assert(ok && "a;b)");', 'assert(!(ok && "a;b)"));'),
        ("CHECK(f(1, 2));", "CHECK(!(f(1, 2)));"),
        ("TEST_ASSERT_TRUE(x);", "TEST_ASSERT_TRUE(!(x));"),
        ("EXPECT_FALSE(x);", "EXPECT_FALSE(!(x));"),
        ("EXPECT_EQ(f({1, 2}), 3);", "EXPECT_NE(f({1, 2}), 3);"),
        ("ASSERT_STRNE(a, b);", "ASSERT_STREQ(a, b);"),
        ("ck_assert_int_ge(a, b);", "ck_assert_int_lt(a, b);"),
        ("EXPECT_THROW(f(), int);", None),
        ("EXPECT_NEAR(a, b, 1);", None),
        ("static_assert(a);", None),
        ("printf(a);", None),
        ("x = check(a);", None),
        ('EXPECT_EQ(a, b) << "why";', None),
        ("assert(a,", None),
    ],
)
def test_assertions_get_their_contrary(statement: str, contrary: str | None) -> None:
    source = f"int f() {{ g(); {statement} }}\n".encode()
    armed = arm("c", {"t.c": source}, "V", ("assertions",))
    if contrary is None:
        assert armed == {}
    else:
        both = f'{{ if (envgen_getenv("V_assertions")) {{ {contrary} }} else {{ {statement} }} }}'
        assert f"g(); {both} }}" in armed["t.c"].decode()


def test_an_assertion_of_a_macro_stays() -> None:
    source = b"#define BOTH(a, b) \\\n    assert(a); \\\n    assert(b);\n  assert(c);\n"
    armed = arm("c", {"t.c": source}, "V", ("assertions",))["t.c"].decode()
    assert "    assert(b);\n" in armed
    assert "assert(!(c));" in armed


@pytest.mark.toolchain
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_a_program_with_alarms_is_the_program_until_one_is_set_off(
    tmp_path: Path, language: str
) -> None:
    need("c++", apt="g++")
    source = b"""#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <assert.h>
#include <string.h>
static int check(int ok) { if (!ok) return 0; return 1; }
int main(int n, char **v) {
    if (n > 9)
        assert(v[0]);
    else assert(!strcasestr("Abc", "x"));
    switch (n) {
        case 2:
            assert(n == 1);
    }
    for (int i = 0; i < 2; i++)
        check(i);
    int same = (int) check(n);
    assert(same); assert(n > 0);
    return 0;
}
"""
    armed = arm("c" if language == "c" else "cpp", {"t.c": source}, "V")["t.c"]
    assert armed.count(b"V_assertions") == 6
    program = _built(tmp_path, armed, language)
    assert _exit_code(program) == 0
    assert _exit_code(program, V_main="1") == 99
    assert _exit_code(program, V_assertions="1") == -signal.SIGABRT


def _built(folder: Path, source: bytes, language: str = "cpp") -> Path:
    suffix, compiler = (".c", "cc") if language == "c" else (".cpp", "c++")
    (folder / f"t{suffix}").write_bytes(source)
    command = [compiler, "-Wall", "-Werror", "-o", "t", f"t{suffix}"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "t"


def _exit_code(program: Path, **variables: str) -> int:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [program], env=environment, check=False, stderr=subprocess.DEVNULL
    ).returncode
