"""Records that ``send`` collects, and their columns. Python lists become columns at some 30 M values a second."""

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
    """Records of one publisher, appended until they are cut off from those that follow. Who appends may be late and
    not see that yet: what was not counted when it was cut does not belong to it."""

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
        """Bytes it may grow to; -1 when it takes no more."""
        self.filled_bytes = 0
        """Bytes appended so far."""
        self.size_bytes = 0
        """The same once it takes no more."""
        self.timestamp_us = timestamp_us
        """Of every record that brings none."""
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[HeaderPairs | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.has_extras = False
        """Some record brought headers or a timestamp, so every later one is put with ``put_extras``."""
        self.promise = BatchPromise(deadline_s, partial(on_settled, self), loop_thread)

    def put_extras(self, index: int, headers: HeaderPairs | None, timestamp_us: int | None) -> None:
        """Headers and timestamp of record ``index``; records before it had none unless they were put here too."""
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
        """Take no more records. In this order: see ``buffer``."""
        self.limit_bytes = -1
        self.size_bytes = self.filled_bytes
        self.promise.begin(len(self.values))

    def rows(self, rows_bytes: int) -> list[Rows]:
        """All records at once, which forgets them here: with the columns they need, ``_key, _timestamp, _headers`` if
        any has one, and ``_value``."""
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
        """The frames hold the records now, or nobody does any more."""
        self.values = []
        self.keys = self.headers = self.timestamps = None
