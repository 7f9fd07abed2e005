"""Reader of offset ranges on an executor, wherever the records are by now.

A range was committed when it was planned. So records missing at its front were removed. Records missing at its end are
lost, or not visible yet on a file system that several machines share.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

from seaweedmq.codec.paths import LINEAGE_DOCUMENT
from seaweedmq.codec.state.documents import lineage_from_document
from seaweedmq.core.files.holes import missing_records
from seaweedmq.core.files.snapshot import SnapshotPiece, plan_offsets
from seaweedmq.core.lineage.batch_ranges import Range
from seaweedmq.errors import Corrupt, DataLoss, InvalidArgument, NotFound, OutOfRange
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.column_types import arrow_schema
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.columns import Column
from seaweedmq.storage.scan.range_scan import RangeScan
from seaweedmq.storage.snapshot import list_files, list_removed, read_document, read_topic

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 11
"""Maximum number of attempts of one task to read files that are not visible yet: those of other machines appear within
seconds."""
RETRY_PAUSE_S: Final = 1.0

_Listed: TypeAlias = dict[int, list[SegmentFile]]
"""Files by segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScan:
    """The data that every task of a stream needs; sent to the executors."""

    place: Place
    topic: Topic
    columns: tuple[Column, ...]
    fail_on_data_loss: bool
    attempts_max: int = ATTEMPTS_MAX

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, in this order.

        NotFound is raised if the topic was deleted or recreated, OutOfRange if retention or a manual deletion removed
        records of the ranges, DataLoss if records are lost.
        """
        topic = self._check_topic()
        deleted_below = self._deleted_below(topic)
        budget = _Attempts(self.attempts_max)
        listed = self._list({wanted.segment for wanted in ranges})  # at once: all tables are in one folder
        for wanted in ranges:
            yield from self._range(topic, wanted, deleted_below.get(wanted.segment, 0), listed, budget)
        self._check_topic()  # the records belong to this topic only if it still exists

    def _range(
        self, topic: Topic, wanted: Range, low: int, listed: _Listed, budget: "_Attempts"
    ) -> Iterator[pa.RecordBatch]:
        reached = _Position(wanted.start)
        while reached.position < wanted.end:
            attempts = Retrying(
                retry=retry_if_exception_type(_Missing),
                stop=budget.is_over,
                wait=wait_fixed(RETRY_PAUSE_S),
                reraise=True,
            )
            try:
                for attempt in attempts:
                    with attempt:
                        yield from self._attempt(topic, wanted, low, listed, reached)
            except _Missing as e:
                reached.position = self._passed(wanted, reached.position, e.damage)

    def _passed(self, wanted: Range, position: int, damage: Corrupt | DataLoss | None) -> int:
        """Return where to continue behind records that no attempt found; raise if that is an error."""
        if damage is None:
            self._lose(wanted, position, wanted.end)
            return wanted.end
        if self.fail_on_data_loss or not isinstance(damage, DataLoss) or damage.end_offset is None:
            raise damage from None
        log.warning("%s; the query continues behind them, since failOnDataLoss is false", damage)
        return damage.end_offset

    def _attempt(
        self, topic: Topic, wanted: Range, low: int, listed: _Listed, reached: "_Position"
    ) -> Iterator[pa.RecordBatch]:
        """Yield what files show of the range from the place, which advances with each batch. Raises _Missing."""
        scan = RangeScan(
            place=self.place,
            topic=self.topic,
            timestamps=Interval(),
            columns=self.columns,
            schema=arrow_schema(self.columns),
        )
        while reached.position < wanted.end:
            pieces = self._pieces(topic, wanted, max(reached.position, low), listed)
            begin = pieces[0].start_offset if pieces else wanted.end if low >= wanted.end else reached.position
            if begin > reached.position:
                self._lose(wanted, reached.position, begin)
                reached.position = begin
            before = reached.position
            try:
                for batch in scan.read(pieces):
                    reached.position += batch.num_rows  # nothing is filtered: rows are offsets
                    yield batch
            except (OutOfRange, InvalidArgument) as e:  # retention removed files, or the whole segment
                log.info("files changed: %s#%d: %s; retrying", self.topic.name, wanted.segment, e)
            except (Corrupt, DataLoss) as e:
                raise _Missing(e) from e
            assert reached.position <= wanted.end, f"{wanted} yielded {reached.position - wanted.end} records too many"
            if reached.position == before < wanted.end:
                raise _Missing(None)

    def _pieces(self, topic: Topic, wanted: Range, position: int, listed: _Listed) -> tuple[SnapshotPiece, ...]:
        """Return the pieces that hold the records, up to the first lost one. Raises _Missing if that comes first.

        All records of the range exist, in any state of the segment. A listing is used once.
        """
        files = listed.pop(wanted.segment, None)
        if files is None:
            files = self._list({wanted.segment})[wanted.segment]
        # After the files: retention records what it removes before it deletes it.
        removed_below = list_removed(self.place, topic).get(wanted.segment, 0)
        gaps: list[range] = []
        pieces = plan_offsets(topic, wanted.segment, wanted.end, files, position, lowest=removed_below, missing=gaps)
        if not gaps:
            return pieces
        before = tuple(p for p in pieces if p.start_offset < gaps[0].start)
        if not before:
            raise _Missing(missing_records(topic, wanted.segment, gaps[0].start, gaps[0].stop))
        return before

    def _list(self, segments: Set[int]) -> _Listed:
        listed: _Listed = {segment: [] for segment in segments}
        for file in list_files(self.place, self.topic.name, segments):
            listed[file.segment].append(file)
        return listed

    def _lose(self, wanted: Range, start: int, stop: int) -> None:
        what = f"{self.topic.name}#{wanted.segment}: offsets {start} to {stop} were removed before they were read"
        if self.fail_on_data_loss:
            raise OutOfRange(
                f"{what}: set option failOnDataLoss to false to continue without them, or begin with a new "
                "checkpointLocation; a longer retention keeps them for slower readers"
            )
        log.warning("%s; the query continues behind them, since failOnDataLoss is false", what)

    def _check_topic(self) -> Topic:
        found = read_topic(self.place, self.topic.name)
        if found.uid != self.topic.uid:
            raise NotFound(
                f"topic {self.topic.name} was recreated during the read: begin with a new checkpointLocation"
            )
        return found

    def _deleted_below(self, topic: Topic) -> Mapping[int, int]:
        """Return the offset below which each segment's records were deleted manually, for segments that have one."""
        if not topic.low_watermarks:
            return {}
        _, segments = lineage_from_document(read_document(self.place, topic.name, LINEAGE_DOCUMENT))
        return {s.id: low for s in segments if (low := topic.low_watermark(s.slots))}


@dataclass(slots=True)
class _Position:
    """The read position in a range."""

    position: int


class _Missing(Exception):
    """Committed records that are in no visible file."""

    def __init__(self, damage: Corrupt | DataLoss | None) -> None:
        super().__init__(damage)
        self.damage = damage
        """Reported damage; None if no file has the records, so they may have been removed."""


class _Attempts:
    """The attempts that a task has left, shared by all its ranges."""

    def __init__(self, attempts: int) -> None:
        self._left = attempts

    def is_over(self, _: RetryCallState) -> bool:
        """Count an attempt, and return whether it was the last one; called before each further attempt."""
        self._left -= 1
        return self._left <= 0
