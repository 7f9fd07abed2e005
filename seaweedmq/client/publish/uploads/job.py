"""A record whose value is a payload to be uploaded."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from seaweedmq.client.publish.batches.arguments import Headers, as_bytes, as_headers
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.promise import NO_THREAD, BatchPromise
from seaweedmq.client.publish.uploads.order import Ticket
from seaweedmq.client.publish.uploads.sources import Source
from seaweedmq.client.start import Timestamp, to_us
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_REFERENCE, FLAG_TIMESTAMP
from seaweedmq.codec.payload.batch import payload_schema
from seaweedmq.codec.references import REFERENCE, column_of
from seaweedmq.model.reference import PayloadReference

JOB_BYTES = 16 * 1024
"""Bytes of the send buffer that a waiting upload takes beyond its key, headers and value. It bounds their number."""


class UploadJob:
    """A record of a publisher from ``send_file`` to its reference; then it is one row."""

    def __init__(
        self,
        source: Source,
        *,
        key: bytes | None,
        headers: Headers | None,
        timestamp: Timestamp | None,
        now_us: int,
    ) -> None:
        """Make the record; InvalidArgument if an argument has the wrong type."""
        self.source = source
        self.ticket = Ticket(None if key is None else as_bytes("key", key))
        self._headers, headers_bytes = as_headers(headers)
        self._timestamp_us = None if timestamp is None else to_us(timestamp)
        self._now_us = now_us
        self.record_bytes = headers_bytes + len(self.ticket.key or b"")
        """Bytes of key and headers, which a frame has to hold."""
        self.size_bytes = JOB_BYTES + self.record_bytes + source.memory_bytes
        """Bytes of the send buffer that the record takes."""
        self.promise = BatchPromise(0.0, lambda: None)

    def begin(self, deadline_s: float, on_settled: "Callable[[UploadJob], None]", loop_thread: int = NO_THREAD) -> None:
        """Take the record in, with the promise of its outcome."""
        self.promise = BatchPromise(deadline_s, partial(on_settled, self), loop_thread)
        self.promise.begin(1)

    def record(self, reference: PayloadReference) -> Rows:
        """Return the record, as a reference to its uploaded payload."""
        flags = FLAG_REFERENCE
        given = {"_key": self.ticket.key, "_timestamp": self._timestamp_us, "_headers": self._headers, "_value": None}
        for name, flag in (("_key", FLAG_KEY), ("_timestamp", FLAG_TIMESTAMP), ("_headers", FLAG_HEADERS)):
            flags |= flag if given[name] is not None else 0
        schema = payload_schema(flags, None)
        columns = [
            column_of([reference]) if field.name == REFERENCE.name else pa.array([given[field.name]], field.type)
            for field in schema
        ]
        return Rows(pa.RecordBatch.from_arrays(columns, schema=schema), flags, self._now_us, range(1), self.promise)

    def forget(self) -> None:
        """Release the payload: it was uploaded, or has failed."""
        self.source.close()
