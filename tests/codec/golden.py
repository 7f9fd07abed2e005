"""The committed bytes in ``golden/``, as hex so that a change shows in a diff.

``python -m tests.codec.golden`` writes them again. Do that only together with a new format version: these bytes are
what files in the field look like.
"""

from pathlib import Path

import pyarrow as pa

from seaweedmq.codec.bundle import encode_bundle, encode_fence
from seaweedmq.codec.frame import HEADER_BYTES, split_frames, stamp
from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.codec.payload.batch import schema_to_bytes
from seaweedmq.model.bundle import BundledFrame, BundleRun, BundleSection, EntryHeader, EntryKind, SegmentTail
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import TopicName
from tests.codec.samples import ALL_COLUMNS, HEADERS, NOON_US, TIMESTAMP, TYPED, Sample, plain_values, sample
from tests.support.kafka_batches import Record, batch_of, frame_bytes

FOLDER = Path(__file__).parent / "golden"

PREAMBLE = LogPreamble(
    topic=TopicName("shop", "orders"),
    topic_uid=0x1122334455667788,
    segment=7,
    base_offset=100,
    writer="b-7f3a91c2",
    producers=(
        ProducerState(
            producer_id=0xABCDEF,
            producer_epoch=3,
            next_sequence=1_000,
            recent=(FrameAck(990, 4, 90), FrameAck(994, 6, 94)),
        ),
        ProducerState(producer_id=2**64 - 1, producer_epoch=0, next_sequence=0),
    ),
)
BUNDLE_HEADER = EntryHeader(
    kind=EntryKind.CHECKPOINT, number=128, floor=60, done=126, checkpoint=64, nonce=bytes(range(16)), time_us=NOON_US
)
FENCE_HEADER = EntryHeader(
    kind=EntryKind.FENCE, number=129, floor=60, done=0, checkpoint=0, nonce=bytes(range(16, 32)), time_us=NOON_US + 1
)
CARRIED = (
    BundleSection(
        number=66,
        runs=(
            BundleRun(topic_uid=7, segment=1, base_offset=0, end_offset=5, length=300, position=224),
            BundleRun(topic_uid=7, segment=2, base_offset=10, end_offset=30, length=8_388_608),
        ),
    ),
    BundleSection(number=127, runs=()),
)
TAILS = (
    SegmentTail(topic_uid=7, segment=1, end_offset=5, producers=PREAMBLE.producers),
    SegmentTail(topic_uid=7, segment=2, end_offset=30),
)
PRICES = pa.schema([pa.field("item", pa.string(), nullable=False), pa.field("price", pa.float64())])


def full_sample() -> Sample:
    """Three records with every optional column."""
    return sample(
        "full",
        [
            pa.array([b"ann", None, b"bob"], pa.binary()),
            pa.array([NOON_US, NOON_US + 1, NOON_US - 1], TIMESTAMP),
            pa.array([[("source", b"web"), ("empty", None)], None, []], HEADERS),
            plain_values([b"first", None, b""]),
        ],
        ALL_COLUMNS,
    )


def bare_sample() -> Sample:
    """Two records with a value and nothing else."""
    return sample("bare", [plain_values([b"fourth", b"fifth"])], 0)


def typed_sample() -> Sample:
    """Two records of a topic with a schema."""
    columns = [pa.array(["pen", "ink"]), pa.array([1.5, None])]
    return sample("typed", columns, TYPED, PRICES)


def kafka_frame() -> bytes:
    """A batch of two records of a Kafka client with an identity, in a frame of partition 3."""
    sent = [
        Record(b"ann", None, (("source", b"web"), ("source", None)), NOON_US // 1_000),
        Record(None, b"second", (), NOON_US // 1_000 - 5),
    ]
    return frame_bytes(batch_of(sent, producer=(5_000, 2, 70)), 200, slot=3)


def stamped(item: Sample, base_offset: int) -> bytes:
    """The frame as a broker writes it into a file."""
    return stamp(item.frame_bytes[:HEADER_BYTES], base_offset) + item.frame_bytes[HEADER_BYTES:]


def bundle_runs() -> list[tuple[BundleRun, tuple[bytes, ...]]]:
    """Runs of two segments, and a reference to a log object."""
    runs = [
        _run(0x1122334455667788, 7, stamped(full_sample(), 100), stamped(bare_sample(), 103)),
        _run(9, 2**32 - 1, stamped(typed_sample(), 5)),
    ]
    reference = BundleRun(
        topic_uid=9,
        segment=3,
        base_offset=0,
        end_offset=40,
        length=5_000_000,
        frames=(BundledFrame(0xABCDEF, 3, 2**33, 30), BundledFrame(0, 0, 0, 10)),
    )
    return [*runs, (reference, ())]


def _run(topic_uid: int, segment: int, *content: bytes) -> tuple[BundleRun, tuple[bytes, ...]]:
    headers = [frame.header for data in content for frame in split_frames(data)]
    run = BundleRun(
        topic_uid=topic_uid,
        segment=segment,
        base_offset=headers[0].base_offset,
        end_offset=headers[-1].end_offset,
        length=sum(map(len, content)),
        frames=tuple(BundledFrame(h.producer_id, h.producer_epoch, h.first_sequence, h.record_count) for h in headers),
    )
    return run, content


def contents() -> dict[str, bytes]:
    """Return file name -> bytes, as the current code encodes them."""
    return {
        "plain.log.hex": encode_preamble(PREAMBLE) + stamped(full_sample(), 100) + stamped(bare_sample(), 103),
        "checkpoint.bundle.hex": b"".join(
            encode_bundle(BUNDLE_HEADER, bundle_runs(), carried=CARRIED, tails=TAILS).buffers
        ),
        "fence.bundle.hex": encode_fence(FENCE_HEADER, "b-00000002"),
        "kafka.frame.hex": kafka_frame(),
        "typed.frame.hex": stamped(typed_sample(), 5),
        "typed.schema.hex": schema_to_bytes(PRICES),
    }


def read(name: str) -> bytes:
    """Return the committed bytes."""
    return bytes.fromhex((FOLDER / name).read_text())


if __name__ == "__main__":
    for file_name, data in contents().items():
        (FOLDER / file_name).write_text("\n".join(data[i : i + 32].hex() for i in range(0, len(data), 32)) + "\n")
