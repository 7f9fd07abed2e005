"""The synchronous publisher."""

import os
from typing import Any, BinaryIO

import pyarrow as pa

from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import BlockingContext, blocking, documented_as
from seaweedmq.client.publish import publisher as aio_publisher
from seaweedmq.client.publish.batches.arguments import Headers
from seaweedmq.client.publish.futures import RecordFuture, TableFuture
from seaweedmq.client.publish.uploads.sources import FileSource, Source, StreamSource
from seaweedmq.client.start import Timestamp


class Publisher(BlockingContext):
    """A publisher to one topic. Any number of threads may use it.

    Records of one key keep the order of the calls. A record is stored once, however often its frame is sent. With
    ``with``, the end of the block delivers all records.
    """

    def __init__(self, core: aio_publisher.Publisher, background: Background) -> None:
        self._core = core
        self._background = background
        self.send = core.buffer.send  # type: ignore[method-assign]  # saves one call per record

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
        return self._core.topic

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        timeout: float | None = None,
    ) -> RecordFuture:
        """Send a record, and return the future of its :class:`Receipt`. Blocks while ``buffer_bytes_max`` is reached.

        Args:
            value: The value.
            key: The key. Records of one key stay in order; a record without a key goes to any segment.
            headers: Names with bytes or None, as a mapping, or as pairs, which may repeat a name.
            timestamp: A datetime with a time zone, or microseconds since 1970. Default: now.
            timeout: The longest wait for room, in seconds. Default: unlimited.

        Raises:
            InvalidArgument: If an argument has the wrong type, or the topic has a schema (use ``send_table``).
            DeadlineExceeded: If there is no room within ``timeout``. The record was not sent.
            Closed: If the publisher is closed.
        """
        return self._core.buffer.send(value, key=key, headers=headers, timestamp=timestamp, timeout=timeout)

    def send_file(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        content_type: str = "",
        timeout: float | None = None,
    ) -> RecordFuture:
        """Upload a file, then send a record that refers to it; return the future of its :class:`Receipt`.

        The file may have any size, also none; neither client nor broker holds it in memory. Later records of the key
        wait until the upload has ended, so that they stay in order. An upload continues where an earlier one of the
        same, unchanged file stopped, also after the process was killed: send the file again within a day.

        Args:
            path: The file. It must not change before the future has an outcome.
            key: The key, as in :meth:`send`.
            headers: As in :meth:`send`.
            timestamp: As in :meth:`send`.
            content_type: The media type that subscribers see. Default: by the extension of the file.
            timeout: The longest wait while ``buffer_bytes_max`` is reached, in seconds. Default: unlimited.

        Raises:
            InvalidArgument: If the path is not a regular file that can be read, an argument has the wrong type, or the
                topic has a schema. The future fails with it if the file changes while it is sent.
            DeadlineExceeded: If there is no room within ``timeout``. Nothing was sent.
            Closed: If the publisher is closed.
        """
        return self._send_payload(FileSource(path, content_type), (key, headers, timestamp), timeout)

    def send_stream(
        self,
        stream: BinaryIO,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        content_type: str = "",
        timeout: float | None = None,
    ) -> RecordFuture:
        """Upload what an open binary file, pipe or socket has left, then send a record that refers to it.

        A thread of the client reads it to its end; keep it open until the future has an outcome. At most 16 MiB of it
        are in memory. It can be read only once, so its upload does not survive the process.

        Args:
            stream: An object with ``read(n)``, which returns bytes, and none at the end.
            key: As in :meth:`send_file`.
            headers: As in :meth:`send`.
            timestamp: As in :meth:`send`.
            content_type: The media type that subscribers see. Default: ``application/octet-stream``.
            timeout: As in :meth:`send_file`.

        Raises:
            InvalidArgument: If ``stream`` is not an open binary file, an argument has the wrong type, or the topic has
                a schema. The future fails with it if the stream cannot be read.
            DeadlineExceeded: If there is no room within ``timeout``. Nothing was sent.
            Closed: If the publisher is closed.
        """
        source = StreamSource(stream, self._core.buffer.new_upload_id(), content_type)
        return self._send_payload(source, (key, headers, timestamp), timeout)

    def _send_payload(self, source: Source, options: tuple[Any, ...], timeout: float | None) -> RecordFuture:
        job = self._core.buffer.upload_job(source, *options)
        while not self._core.buffer.add_upload(job):
            self._core.buffer.room.wait(job.size_bytes, timeout)
        return RecordFuture(job.promise, 0)

    def send_table(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str | None = None,
        timestamp: str | None = None,
        timeout: float | None = None,
    ) -> TableFuture:
        """Publish every row of a table, and return the future of a :class:`TableReceipt`.

        No row becomes a Python object. The topic's schema determines the table's columns. A topic without a schema
        takes tables of ``_value`` and optionally ``_key``, ``_timestamp`` and ``_headers``. An empty topic adopts the
        schema of any other table.

        Args:
            table: The rows.
            key: The column of the keys: text (as UTF-8), bytes, or integers (as decimal text). Default: ``_key``.
            timestamp: The column of the timestamps; UTC if it has no time zone. Default: ``_timestamp``.
            timeout: The longest wait while ``buffer_bytes_max`` is reached, in seconds. Default: unlimited.

        Raises:
            InvalidArgument: If a column does not fit. The message names it.
            DeadlineExceeded: If there is no room within ``timeout``. Nothing was sent.
            Closed: If the publisher is closed.
        """
        job = self._background.run(self._core.prepare(table, key, timestamp))
        while not self._core.buffer.add_table(job):
            self._core.buffer.room.wait(job.size_bytes, timeout)
        return job.promise

    flush = blocking(aio_publisher.Publisher.flush)

    @documented_as(aio_publisher.Publisher.close)
    def close(self, timeout: float | None = None) -> None:
        """Deliver all records, then stop."""
        if not (self._core.is_close_reported or (self._core.is_closed and self._background.is_stopped)):
            self._background.run(self._core.close(timeout))
