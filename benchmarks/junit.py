"""Reading a JUnit report of 50,000 test cases: envgen's reader beside plain junitparser.

    python -P benchmarks/junit.py [--cases 50000] [--rounds 5]

The report is like pytest's: files, classes, parameters, a tenth of the cases failing with a traceback.
*broken* is the same with a control character in every failure, which a strict parser refuses; *surefire* is
one file per hundred cases. junitparser reads cases and results into the same statuses, without ids, merging
or repair. Times are processor time of one thread, the best of a few rounds; the target is 2 s.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from junitparser import Error, Failure, JUnitXml, Skipped

from envgen.verifiers.junit import read_junit
from envgen.verifiers.junit.sources import Source

TARGET_S = 2.0
TRACE = "".join(
    f"tests/test_module.py:{line}: in helper\n    assert a == b\n" for line in range(12)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    strict, broken = (report(range(arguments.cases), mark) for mark in ("", "\x1b[31m"))
    many = {
        f"TEST-{n:05}.xml": report(range(n, n + 100), "") for n in range(0, arguments.cases, 100)
    }
    print(f"{arguments.cases} cases, {len(strict) / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}")
    peer = best(lambda: list(plain(strict)), arguments.rounds)
    print(f"{'junitparser, strict':24} {peer:6.2f} s")
    sources: dict[str, Source] = {"strict": strict, "broken": broken, "surefire": many}
    for name, source in sources.items():
        # , strict), ("broken", broken), ("surefire", many)):
        seconds = best(partial(read_junit, source), arguments.rounds)
        verdict = "ok" if seconds <= TARGET_S else "MISSED"
        ratio = f"{seconds / peer:.1f} x junitparser"
        print(
            f"{f'envgen, {name}':24} {seconds:6.2f} s   {ratio}, target {TARGET_S:.0f} s: {verdict}"
        )


def report(cases: range, mark: str) -> bytes:
    """A report like pytest's; ``mark`` is put into every failure."""
    failure = f'<failure message="assert 1 == 2{mark}">{TRACE}{mark}</failure>'
    lines = (
        f'<testcase classname="tests.test_{n % 97}.TestGroup{n % 7}" name="test_case[{n}-value]" '
        f'file="tests/test_{n % 97}.py" line="{n % 500}" time="0.00{n % 10}">'
        f"{failure if n % 10 == 0 else ''}</testcase>"
        for n in cases
    )
    opening = f'<testsuites><testsuite name="pytest" timestamp="2026-01-01T00:00:00" tests="{len(cases)}">'
    return f'<?xml version="1.0"?>{opening}{"".join(lines)}</testsuite></testsuites>'.encode()


def plain(content: bytes) -> Iterator[tuple[str | None, str | None, float | None, str]]:
    """What junitparser alone tells of each case."""
    for suite in JUnitXml.fromstring(content):
        for case in suite:
            kinds = {type(result) for result in case.result}
            status = "skip" if Skipped in kinds else "error" if Error in kinds else "fail"
            yield case.classname, case.name, case.time, status if kinds else "pass"
            assert not kinds or kinds <= {Skipped, Error, Failure}


def best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of processor time of the fastest round."""
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
