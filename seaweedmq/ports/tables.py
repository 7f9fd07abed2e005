"""The writer of tables, as a broker uses it. Adapter: ``storage.tables``."""

from collections.abc import Sequence
from typing import Protocol

from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic


class TableConverter(Protocol):
    """Conversion of sealed log files to Parquet, and of small tables to large ones, off the event loop."""

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        """Write the Parquet files that hold the logs' records below ``end_offset``, and return them. Idempotent."""

    async def reconcile(self, topic: Topic) -> bool:
        """Publish the topic's live tables for other programs after a deletion; a conversion does so by itself.

        Returns False if that is impossible now, with the reason in the log of this process. Nothing depends on it.
        """

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        """Replace consecutive tables of a segment by one, and return the new tables.

        Args:
            topic: The topic of the tables.
            tables: The tables by offset. One is enough if the low watermark lies in it.
            low_watermark: Offset below which records are deleted; the new table leaves them out.

        Raises:
            Unavailable: If another process was faster.
            NotFound: If another process was faster.
            Corrupt: If a table is damaged; nothing was replaced.
        """

    async def close(self) -> None:
        """Stop converting and release resources."""
