"""Opening one Parquet table of a segment, and what it means when that fails. For brokers and for Spark alike."""

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.store.faults import GONE, storage_failed
from seaweedmq.storage.tables.footer import verify_footer
from seaweedmq.storage.tables.format import stored_schema

PAGE_BUFFER_BYTES = 1024 * 1024
"""Read of a column at once. Without a buffer Arrow reads what a row group has of it, before it decodes a page."""


def open_table(source: BlockingInput, file: SegmentFile, topic: Topic) -> pq.ParquetFile:
    """Open a table and make sure that it is what its name says: sound, of these offsets, with the topic's columns.

    ``source`` stays the caller's, who closes it after the table.

    Raises:
        Corrupt: it is not; the message names the file.
        NotFound: it was deleted.
        StorageFailed: it can not be read at all.
    """
    try:
        verify_footer(source, file.path)
        table = pq.ParquetFile(source, page_checksum_verification=True, buffer_size=PAGE_BUFFER_BYTES)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise table_error(file, e) from e
    rows = (file.end_offset or 0) - file.base_offset
    if table.metadata.num_rows != rows:
        raise Corrupt(
            f"{file.path} has {table.metadata.num_rows} rows where its name says {rows}: it was renamed, or is not "
            "ours; restore it from a copy"
        )
    if not table.schema_arrow.equals(stored_schema(topic, schema_of(table, topic))):
        raise Corrupt(f"{file.path} does not have the columns of topic {topic.name}: a foreign file; move it away")
    return table


def schema_of(table: pq.ParquetFile, topic: Topic) -> pa.Schema | None:
    """The topic schema whose columns the table has; None if it has plain records: they may be in any topic."""
    if topic.schema is None or "_value" in table.schema_arrow.names:
        return None
    return schema_from_bytes(topic.schema)


def table_error(file: SegmentFile, error: Exception, where: str = "") -> SeaweedMQError:
    """What a failure of Arrow to read a table means. ``where`` in it, as in " in row group 3", if that is known."""
    if isinstance(error, OSError) and error.errno in GONE:
        return NotFound(f"{file.path} is gone: list the segment's files again")
    if isinstance(error, OSError) and error.errno:
        return storage_failed("read", file.path, error)
    said = str(error).splitlines()[0] if str(error) else repr(error)
    return Corrupt(f"{file.path} is damaged{where} ({said}): restore it from a copy")
