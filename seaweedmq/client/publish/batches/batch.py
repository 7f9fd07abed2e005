"""Batches of sent records, and their conversion to columns.

Python lists become columns at about 30 million values per second.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from seaweedmq.client.publish.batches.arguments import HeaderPairs
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.promise import NO_THREAD, BatchPromise
from seaweedmq.codec.arrays import array_of, binary_of
from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_TIMESTAMP
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, payload_schema

_HEADERS = PLAIN_SCHEMA.field("_headers").type
_TIMESTAMP = PLAIN_SCHEMA.field("_timestamp").type


class Batch:
    """The records of one publisher up to a cut.

    A thread may append without seeing a concurrent cut. Records that the cut did not count do not belong to the batch.
    """

    __slots__ = (
        "filled_bytes", "has_extras", "headers", "keys", "limit_bytes", "promise", "size_bytes", "timestamp_us",
        "timestamps", "values",
    )  # fmt: skip

    def __init__(
        self,
        limit_bytes: int,
        timestamp_us: int,
        deadline_s: float,
        on_settled: "Callable[[Batch], None]",
        loop_thread: int = NO_THREAD,
    ) -> None:
        self.limit_bytes = limit_bytes
        """The limit of ``filled_bytes``; -1 once the batch is cut."""
        self.filled_bytes = 0
        """The bytes appended so far."""
        self.size_bytes = 0
        """``filled_bytes`` at the cut; 0 before."""
        self.timestamp_us = timestamp_us
        """The timestamp of records without one of their own, in microseconds since 1970."""
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[HeaderPairs | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.has_extras = False
        """Whether a record has headers or a timestamp, so that later ones also need ``put_extras``."""
        self.promise = BatchPromise(deadline_s, partial(on_settled, self), loop_thread)

    def put_extras(self, index: int, headers: HeaderPairs | None, timestamp_us: int | None) -> None:
        """Set the headers and timestamp of record ``index``; earlier records have none unless set here."""
        self.has_extras = True
        if headers is not None and self.headers is None:
            self.headers = [None] * index
        if self.headers is not None:
            self.headers.append(headers)
        if timestamp_us is not None and self.timestamps is None:
            self.timestamps = [None] * index
        if self.timestamps is not None:
            self.timestamps.append(timestamp_us)

    def cut(self) -> None:
        """End the batch. The order of the steps matters: see ``buffer``."""
        self.limit_bytes = -1
        self.size_bytes = self.filled_bytes
        self.promise.begin(len(self.values))

    def rows(self, rows_bytes: int) -> list[Rows]:
        """Return all records as rows in one part of any size, and release them here.

        The columns are ``_key``, ``_timestamp`` and ``_headers`` if any record has one, and ``_value``.
        """
        flags = 0
        count = self.promise.count
        columns: list[pa.Array] = []
        if self.keys is not None:
            flags |= FLAG_KEY
            columns.append(binary_of(self.keys))
        if self.timestamps is not None:
            flags |= FLAG_TIMESTAMP
            given = [self.timestamp_us if t is None else t for t in self.timestamps]
            given += [self.timestamp_us] * (count - len(given))
            columns.append(array_of(np.array(given, np.int64), _TIMESTAMP))
        if self.headers is not None:
            flags |= FLAG_HEADERS
            columns.append(pa.array(self.headers, type=_HEADERS))
        columns.append(binary_of(self.values))
        columns = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
        columns = [c if len(c) == count else c[:count] for c in columns]
        whole = pa.RecordBatch.from_arrays(columns, schema=payload_schema(flags, None))
        self.forget()
        return [Rows(whole, flags, self.timestamp_us, range(count), self.promise)]

    def forget(self) -> None:
        """Release the records: frames hold them, or they have an outcome."""
        self.values = []
        self.keys = self.headers = self.timestamps = None
