"""Read the JUnit XML that test runners write, whatever their dialect, into one ``TestReport``.

``read_junit`` takes a file, a folder, bytes, or named bytes. A run that left no XML, or XML that
was cut off, raises ``ReportError``: its tests are unknown, never "missing".
"""

from envgen.verifiers.junit.ids import join_id, steady_id
from envgen.verifiers.junit.read import read_junit
from envgen.verifiers.junit.sources import MAX_BYTES

__all__ = ["MAX_BYTES", "join_id", "read_junit", "steady_id"]
