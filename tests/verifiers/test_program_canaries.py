from __future__ import annotations

import os
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
    (tmp_path / "t.cpp").write_bytes(armed + MAIN + b"int main() { return run(); }\n")
    subprocess.run(["c++", "-o", tmp_path / "t", tmp_path / "t.cpp"], check=True)
    assert subprocess.run([tmp_path / "t"], check=False).returncode == 0
    environment = {**os.environ, "ENVGEN_x": "1"}
    assert subprocess.run([tmp_path / "t"], env=environment, check=False).returncode == 99


@pytest.mark.parametrize(
    ("language", "source", "wanted"),
    [
        ("cpp", b"TEST(Sum, adds) { }\n", b"TEST(ENVGEN_x, ENVGEN_x) { if"),
        ("cpp", b"TEST_F( Sum,\n  adds) { }\n", b"TEST(ENVGEN_x, ENVGEN_x) { if"),
        ("cpp", b"TEST(adds)\n{ }\n", b"TEST(ENVGEN_x) { if"),
        ("cpp", b"TEST_CASE(\"adds\") { }\n", b'TEST_CASE("ENVGEN_x") { if'),
        ("c", b"TEST(adds)\n{ }\n", None),
        ("c", b"int main(void) {\n return 0; }\n", b"int main(void) { if"),
        ("python", b"TEST(adds)", None),
    ],
)  # fmt: skip
def test_the_form_follows_the_framework(language, source, wanted) -> None:  # type: ignore[no-untyped-def]  # of parameters
    armed = arm(language, {"tests/t.c": source}, "ENVGEN_x")
    assert bool(armed) is (wanted is not None)
    if wanted is not None:
        assert wanted in armed["tests/t.c"]
