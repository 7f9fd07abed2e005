"""Reading of offset ranges of single segments, for engines that divide a topic among workers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.subscribe.iteration import Iteration
from seaweedmq.client.subscribe.messages import FetchedRows, check_columns, record_batch_of
from seaweedmq.client.subscribe.options import OnMissing, ReadOptions
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.errors import NotFound, OutOfRange, fresh
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.topic import TopicName


class RangeReader(TopicReader):
    """A reader of ``{segment: (start, end)}``: segments in turn, each in order, nothing beyond. One task takes from it.

    The ends are exclusive and should be committed; otherwise reading waits until they are.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[[Any], None],
        ranges: Mapping[int, tuple[Start, int]],
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> None:
        options = ReadOptions(start="earliest", columns=columns, on_missing=on_missing)
        super().__init__(cluster, topic, config, on_close, options)
        self._ranges = dict(ranges)
        self._rows: FetchedRows | None = None
        """The rows fetched and not yet taken."""

    async def open(self) -> None:
        """Begin to read; NotFound if the topic or a segment does not exist, InvalidArgument if a column is unknown."""
        description = await self.description(True, self._ranges)
        check_columns(self._columns, self.schema, self.has_partitions)
        segments = description.by_id()
        for number, (start, end) in self._ranges.items():
            if number not in segments:
                raise NotFound(f"topic {self._topic} has no segment {number}: retention removed all of it")
            self._start_reader(segments[number], start, end)

    def batches(self) -> Iteration[pa.RecordBatch]:
        """Iterate over batches, each of one segment, without gap in its offsets.

        The columns are those of :meth:`TopicReader.batches`.

        Raises:
            OutOfRange: If retention removed records of a range.
            DataLoss: If records are lost; not with ``on_missing="skip"``.
            Unavailable: If a segment is unreachable for ``read_retry_timeout_s``.
        """
        return Iteration(self._fetch_in_loop, self._pop_batches)

    @property
    def has_rows(self) -> bool:
        """Whether ``pop_batch`` may be called."""
        return self._rows is not None

    async def fetch(self) -> bool:
        """Wait for rows. Return False at the end."""
        while self._rows is None and self._readers and not self._closed:
            pulled = self._pull()
            if pulled is None:
                self._wakeup.clear()
                await self._wakeup.wait()
                continue
            reader, arrived = pulled
            self._check_begin(reader)
            if arrived is not None:
                self._rows = arrived
            elif reader.error is not None:
                self.on_arrived(reader)
                raise fresh(reader.error)
            else:
                self._drop_reader(reader.segment.id)
        return self._rows is not None

    def pop_batch(self) -> pa.RecordBatch:
        """Return the fetched batch. Requires ``has_rows``."""
        rows, self._rows = self._rows, None
        assert rows is not None, "fetch() must be called first"
        return record_batch_of(rows, self._columns)

    def _check_begin(self, reader: SegmentReader) -> None:
        start, _ = self._ranges[reader.segment.id]
        begin = reader.begin_offset
        if start.kind is StartKind.OFFSET and begin is not None and begin > start.value:
            raise OutOfRange(
                f"{reader.segment}: retention removed offsets {start.value} to {begin - 1} before they were read: read "
                "again with a later start"
            )

    async def begins(self) -> dict[int, int]:
        """Return the first offset of each segment by its start, at most its end. Ends the reading.

        Returns:
            Segment -> offset.

        Raises:
            Unavailable: As :meth:`batches`.
        """
        found: dict[int, int] = {}
        while self._readers and not self._closed:
            for number, reader in list(self._readers.items()):
                if reader.error is not None:
                    raise fresh(reader.error)
                if reader.begin_offset is not None or reader.ended:
                    end = self._ranges[number][1]
                    found[number] = end if reader.begin_offset is None else min(end, reader.begin_offset)
                    self._drop_reader(number)
            if self._readers:
                self._wakeup.clear()
                await self._wakeup.wait()
        return found
