"""Read and write the records that others publish: one file per family of formats."""

from envgen.pipelines.code.formats.base import RecordFormat, Row
from envgen.pipelines.code.formats.registry import FORMATS, detect_format, record_format

__all__ = ["FORMATS", "RecordFormat", "Row", "detect_format", "record_format"]
