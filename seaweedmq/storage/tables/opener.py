"""Opening of a segment's Parquet table with verification, and its errors, for brokers and Spark."""

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.references import REFERENCE
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.faults import GONE, storage_failed
from seaweedmq.storage.tables.footer import verify_footer
from seaweedmq.storage.tables.format import stored_schema

PAGE_BUFFER_BYTES = 1024 * 1024
"""Bytes of a column per read. Without a buffer, Arrow reads a row group's whole column before it decodes a page."""


def open_table(source: BlockingInput, file: SegmentFile, topic: Topic) -> pq.ParquetFile:
    """Open a table, which the caller closes before ``source``, and verify its footer, number of rows and columns."""
    try:
        verify_footer(source, file.path)
        table = pq.ParquetFile(source, page_checksum_verification=True, buffer_size=PAGE_BUFFER_BYTES)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise table_error(file, e) from e
    rows = (file.end_offset or 0) - file.base_offset
    if table.metadata.num_rows != rows:
        raise Corrupt(
            f"{file.path} has {table.metadata.num_rows} rows, its name requires {rows}, it was renamed or is foreign: "
            "restore it from a copy"
        )
    expected = stored_schema(topic, schema_of(table, topic), has_references=has_references(table))
    if not table.schema_arrow.equals(expected):
        raise Corrupt(f"{file.path} does not have the columns of topic {topic.name}, it is foreign: move it away")
    return table


def schema_of(table: pq.ParquetFile, topic: Topic) -> pa.Schema | None:
    """Return the topic schema of the table's columns; None for plain records, which any topic may have."""
    if topic.schema is None or "_value" in table.schema_arrow.names:
        return None
    return schema_from_bytes(topic.schema)


def has_references(table: pq.ParquetFile) -> bool:
    """Whether the table has the column of payloads by reference."""
    return REFERENCE.name in table.schema_arrow.names and "_value" in table.schema_arrow.names


def table_error(file: SegmentFile, error: Exception, where: str = "") -> SeaweedMQError:
    """Return the error for a failed read of a table by Arrow, at a position ``where`` if it is known."""
    if isinstance(error, OSError) and error.errno in GONE:
        return NotFound(f"{file.path} was deleted: list the segment's files again")
    if isinstance(error, OSError) and error.errno:
        return storage_failed("read", file.path, error)
    said = str(error).splitlines()[0] if str(error) else repr(error)
    return Corrupt(f"{file.path} is damaged{where} ({said}): restore it from a copy")
