from __future__ import annotations

from collections.abc import Iterator

import pytest

from envgen.core.types import Submission
from envgen.sandboxes.verifier import VerifierHost, verifier_host


@pytest.fixture(autouse=True, scope="session")
def _private_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test notes anything in the user's own folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def host() -> Iterator[VerifierHost]:
    """Runs verifiers in a plain process: the ones in these tests are our own."""
    started = verifier_host(backend="process", trusted=True)
    yield started
    started.close()


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The initial database, and the one after the booking that ``tiny-book`` asks for."""
    import sqlite3
    from contextlib import closing

    from tiny_dataset import tiny_database

    folder = tmp_path_factory.mktemp("databases")
    initial, final = folder / "initial.sqlite", folder / "final.sqlite"
    for path in (initial, final):
        path.write_bytes(tiny_database())
    with closing(sqlite3.connect(final)) as db:
        db.execute("INSERT INTO bookings (hotel, nights) VALUES ('Garden Court', 2)")
        db.commit()
    return str(initial), str(final)


@pytest.fixture
def submission(databases: tuple[str, str]) -> Submission:
    return Submission(initial=databases[0], final=databases[0])
