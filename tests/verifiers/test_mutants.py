from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing

import pytest
from tiny_dataset import BOOK_VERIFIER, CHEAPEST_VERIFIER, PAIR_VERIFIER

from envgen.verifiers.mutants import mutants, sql_mutants

SOURCES = [CHEAPEST_VERIFIER, PAIR_VERIFIER, BOOK_VERIFIER]


@pytest.mark.parametrize("source", SOURCES)
def test_mutants_are_distinct_programs(source: str) -> None:
    found = list(mutants(source))
    assert len(found) >= 25
    texts = [one.source for one in found]
    assert len(set(texts)) == len(texts)
    assert source not in texts
    for text in texts:
        ast.parse(text)
    assert found == list(mutants(source))


SMALL = '''"""Doc."""
import sqlite3

PARAMS = {"bound": 450}
RULES = {"cheap": "SELECT min(price) < 9 FROM t"}


def verify(answer, initial, final):
    """Doc."""
    db = sqlite3.connect("x")
    broken = []
    for price, kind in db.execute("SELECT price FROM t WHERE a <= 3 AND b = 'x'"):
        if price > PARAMS["bound"] and not (kind == "é" or price + 1 < 0):
            broken.append("bound")
        elif price is None:
            continue
    return broken
'''


@pytest.mark.parametrize(
    "change",
    [
        "line 4: 450 -> 451",
        "line 4: 450 -> 449",
        "Gt -> GtE",
        "Gt -> LtE",
        "And -> Or",
        "Or -> And",
        "drop not",
        "drop rule 'cheap'",
        "drop operand price > PARAMS['bound']",
        "Add -> Sub",
        "Eq -> NotEq",
        "Is -> IsNot",
        'drop broken.append("bound")',
        "drop continue",
        "drop return broken",
        "drop for price, kind in",
        "negate price is None",
        "never price is None",
        "SQL <= -> <",
        "SQL 3 -> 4",
        "SQL AND -> OR",
        "SQL drop AND b = 'x'",
    ],
)
def test_change_is_made(change: str) -> None:
    assert any(change in one.description for one in mutants(SMALL))


def test_docstrings_imports_and_connections_stay() -> None:
    for one in mutants(SMALL):
        assert one.source.count('"""Doc."""') == 2
        assert "import sqlite3" in one.source
        assert 'sqlite3.connect("x")' in one.source


@pytest.mark.parametrize(
    "left",
    [
        "SELECT NOT EXISTS (SELECT 1 FROM b WHERE NOT (x <= y OR u >= v))",
        "SELECT NOT EXISTS (SELECT 1 FROM b WHERE p = :p)",
        "SELECT NOT EXISTS (SELECT 1 FROM b WHERE p = :p AND NOT (x <= y))",
        "SELECT NOT EXISTS (SELECT 1 FROM b WHERE p = :p AND NOT ( u >= v))",
    ],
)
def test_sql_conditions_are_dropped(left: str) -> None:
    query = "SELECT NOT EXISTS (SELECT 1 FROM b WHERE p = :p AND NOT (x <= y OR u >= v))"
    found = {re.sub(r"\s+", "", mutant) for _, mutant in sql_mutants(query)}
    assert re.sub(r"\s+", "", left) in found


def test_sql_keeps_the_and_of_between_and_the_1_of_exists() -> None:
    query = "SELECT EXISTS (SELECT 1 FROM b WHERE a BETWEEN 3 AND 5)"
    found = [what for what, _ in sql_mutants(query)]
    assert not any(what.startswith(("drop", "1 ->")) for what in found)
    assert "5 -> 6" in found


def test_every_sql_mutant_of_a_flat_query_still_parses() -> None:
    query = "SELECT count(*) FROM t WHERE a <= 3 AND (b = 'x' OR c IN (1, 2)) AND d > 0 ORDER BY a LIMIT 2"
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (a, b, c, d)")
        found = list(sql_mutants(query))
        assert len(found) > 12
        for _, mutant in found:
            db.execute(mutant)


def test_sql_texts_in_quotes_stay() -> None:
    changed = [query for _, query in sql_mutants("SELECT 1 FROM t WHERE a = 'x < 3 AND y'")]
    assert all("'x < 3 AND y'" in query for query in changed)
    assert changed
