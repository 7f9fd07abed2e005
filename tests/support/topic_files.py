"""Files of a topic as brokers leave them, written with the real codec and converter."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.frame import COLUMN_FLAGS, HEADER_BYTES, SCHEMA_VERSION_SHIFT, stamp
from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path, kept_path, log_path
from seaweedmq.codec.payload.batch import encode_frame, full_schema, schema_to_bytes
from seaweedmq.codec.state.documents import lineage_document, topic_document
from seaweedmq.core.lineage.topology import SegmentEnd, succeed
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.ring import KeyRange, even_ranges
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.snapshot import list_files
from seaweedmq.storage.tables.files import convert_files
from seaweedmq.storage.tables.footer import seal_footer

NOON_US = 1_600_000_000_000_000
STEP_US = 1_000_000
"""Microseconds between records: offset n has the timestamp noon + n seconds."""


@dataclass
class TopicFiles:
    """Files of a topic: record ``n`` of segment ``s`` has key ``k<n>``, value ``s<s>v<n>`` and header ``n``; see
    ``rows``."""

    root: Path
    name: TopicName = field(default_factory=lambda: TopicName("shop", "orders"))
    schema: pa.Schema | None = None
    segments: dict[int, Segment] = field(default_factory=dict)
    uid: int = 7
    partitions: int | None = None
    retention_s: float | None = None

    def __post_init__(self) -> None:
        self.open_segments(self.partitions or 1)

    def open_segments(self, count: int) -> None:
        """Start over with this number of open segments."""
        self.segments = {
            i: Segment(topic=self.name, id=i, slots=slots, epoch=1, state=SegmentState.OPEN, replicas=("b-1",))
            for i, slots in enumerate(even_ranges(self.topic.ring, count))
        }
        self.write_documents()

    def seal(self, segment: int, end_offset: int) -> None:
        self.segments[segment] = replace(self.segments[segment], state=SegmentState.SEALED, end_offset=end_offset)
        self.write_documents()

    def split(self, segment: int, end_offset: int, count: int = 2) -> list[int]:
        """Seal a segment, with ``count`` successors, and return their ids."""
        return self.succeed([segment], [end_offset], count)

    def merge(self, segments: Sequence[int], end_offsets: Sequence[int]) -> list[int]:
        """Seal neighbors, with one successor, and return its id."""
        return self.succeed(segments, end_offsets, 1)

    def succeed(self, parents: Sequence[int], end_offsets: Sequence[int], count: int) -> list[int]:
        """Seal segments at their ends, as one change, and open their successors."""
        sealings = [
            SegmentEnd(
                segment=replace(self.segments[n], end_offset=None, state=SegmentState.OPEN),
                end_offset=end,
                epoch=1,
                sequences=(),
            )
            for n, end in zip(parents, end_offsets, strict=True)
        ]
        slots = KeyRange(self.segments[parents[0]].slots.lo, self.segments[parents[-1]].slots.hi)
        edges = [slots.lo + slots.width * i // count for i in range(count + 1)]
        ranges = [KeyRange(lo, hi) for lo, hi in pairwise(edges)]
        change = succeed(self.topic, sealings, ranges=ranges, placement=[("b-1",)] * count, now_us=NOON_US)
        self.segments |= {segment.id: segment for segment in change.segments}
        self.write_documents()
        return [segment.id for segment in change.segments if segment.is_open]

    def compact(self, segment: int, start: int, end: int) -> SegmentFile:
        """Replace some tables by one."""
        replaced = [f for f in self.files(segment) if f.kind is FileKind.TABLE and start <= f.base_offset < end]
        folder = self.root / "aside"
        aside = TopicFiles(folder, self.name, self.schema, uid=self.uid, partitions=self.partitions)
        aside.segments = {segment: replace(self.segments[segment], end_offset=None, state=SegmentState.OPEN)}
        made = aside.table(start, end, segment=segment)
        for file in replaced:
            (self.root / file.path).unlink()
        (folder / made.path).rename(self.root / made.path)
        shutil.rmtree(folder)
        return made

    @property
    def topic(self) -> Topic:
        return Topic(
            name=self.name,
            uid=self.uid,
            replicas=1,
            durability=Durability.STORED,
            scaling=Scaling.AUTO,
            schema=None if self.schema is None else schema_to_bytes(self.schema),
            retention_s=self.retention_s,
            retention_bytes=None,
            next_segment=len(self.segments),
            created_us=NOON_US,
            partitions=self.partitions,
        )

    def write_documents(self) -> None:
        for name, content in (
            (TOPIC_DOCUMENT, topic_document(self.topic)),
            (LINEAGE_DOCUMENT, lineage_document(self.name, self.segments.values())),
        ):
            path = self.root / document_path(self.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def log(self, start: int, end: int, *, segment: int = 0, writer: str = "b-1", per_frame: int = 10) -> Path:
        """Write a log file of offsets ``[start, end)``."""
        path = self.root / log_path(self.name, segment, start, writer)
        path.parent.mkdir(parents=True, exist_ok=True)
        preamble = LogPreamble(
            topic=self.name, topic_uid=self.uid, segment=segment, base_offset=start, writer=writer, producers=()
        )
        frames = [self.frame(segment, base, min(base + per_frame, end)) for base in range(start, end, per_frame)]
        path.write_bytes(b"".join((encode_preamble(preamble), *frames)))
        return path

    def frame(self, segment: int, base: int, end: int) -> bytes:
        encoded = encode_frame(
            self.rows(segment, base, end),
            flags=COLUMN_FLAGS | (0 if self.schema is None else 1) << SCHEMA_VERSION_SHIFT,
            producer_id=1,
            producer_epoch=1,
            first_sequence=base,
            timestamp_min=NOON_US + base * STEP_US,
            timestamp_max=NOON_US + (end - 1) * STEP_US,
            slot_min=self.segments[segment].slots.lo,
            slot_max=self.segments[segment].slots.lo,
            histogram=(0,) * 16,
        )
        return stamp(encoded[:HEADER_BYTES], base) + encoded[HEADER_BYTES:]

    def rows(self, segment: int, base: int, end: int) -> pa.RecordBatch:
        schema = full_schema(self.schema)
        numbers = range(base, end)
        content = {
            "_key": [b"k%d" % n for n in numbers],
            "_timestamp": [NOON_US + n * STEP_US for n in numbers],
            "_headers": [[("n", b"%d" % n)] for n in numbers],
            "_value": [b"s%dv%d" % (segment, n) for n in numbers],
        }
        arrays = [
            pa.array(content[f.name], f.type) if f.name in content else pa.array(list(numbers), pa.int64()).cast(f.type)
            for f in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def table(
        self, start: int, end: int, *, segment: int = 0, keep_log: bool = False, row_group_bytes: int = 1 << 24
    ) -> SegmentFile:
        """Write a Parquet file of offsets ``[start, end)``, like the conversion of a log file with them."""
        log = self.log(start, end, segment=segment)
        (made,) = self.convert(segment=segment, row_group_bytes=row_group_bytes, only=start)
        if not keep_log:
            log.unlink()
        return made

    def convert(
        self, *, segment: int = 0, row_group_bytes: int = 1 << 24, only: int | None = None
    ) -> list[SegmentFile]:
        logs = [f for f in self.files(segment) if f.kind is FileKind.LOG and only in (None, f.base_offset)]
        end = self.segments[segment].end_offset
        return convert_files(DirectoryPlace(self.root), self.topic, logs, end, row_group_bytes)

    def write_again(self, table: SegmentFile, column: str, row: int, value: object) -> None:
        """Write the same table, undamaged, with another value."""
        path = self.root / table.path
        rows = pq.read_table(path)
        index = rows.schema.get_field_index(column)
        values = rows.column(index).to_pylist()
        values[row] = value
        rows = rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type))
        with path.open("w+b") as sink:
            pq.write_table(rows, sink, write_page_checksum=True)
            seal_footer(sink)

    def files(self, segment: int = 0) -> tuple[SegmentFile, ...]:
        return list_files(DirectoryPlace(self.root), self.name, [segment])

    def keep_tables(self) -> None:
        """Give every table its retained link, as brokers do when they publish it."""
        for file in (f for number in self.segments for f in self.files(number) if f.kind is FileKind.TABLE):
            kept = self.root / kept_path(file.path)
            kept.parent.mkdir(exist_ok=True)
            if not kept.exists():
                kept.hardlink_to(self.root / file.path)
