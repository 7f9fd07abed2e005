"""Records that ``send`` collected, as one Arrow batch. Python lists become columns at some 40 M values a second."""

import pyarrow as pa

from seaweedmq.client.publish.delivery import Batch
from seaweedmq.client.publish.framing import Piece
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_TIMESTAMP
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, payload_schema

_HEADERS = PLAIN_SCHEMA.field("_headers").type
_TIMESTAMP = PLAIN_SCHEMA.field("_timestamp").type


def piece_of_records(batch: Batch) -> Piece:
    """The batch's records with the columns they need: ``_key, _timestamp, _headers`` if any has one, and ``_value``."""
    flags = 0
    columns: list[pa.Array] = []
    if batch.keys is not None:
        flags |= FLAG_KEY
        columns.append(pa.array(batch.keys, type=pa.binary()))
    if batch.timestamps is not None:
        flags |= FLAG_TIMESTAMP
        given = [batch.timestamp if t is None else t for t in batch.timestamps]
        given += [batch.timestamp] * (batch.count - len(given))
        columns.append(pa.array(given, type=pa.int64()).view(_TIMESTAMP))
    if batch.headers is not None:
        flags |= FLAG_HEADERS
        lists = [None if h is None else list(h.items()) for h in batch.headers]
        columns.append(pa.array(lists, type=_HEADERS))
    columns.append(pa.array(batch.values, type=pa.binary()))
    columns = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    table = pa.RecordBatch.from_arrays(columns, schema=payload_schema(flags, None))
    return Piece(table, flags, batch.timestamp, range(batch.count), batch)
