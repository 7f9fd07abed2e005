"""Validation of Kafka clients' batches: all later code trusts the bytes, and passes them on unchanged.

A batch becomes a frame whose payload is the batch, padded with zeros to a multiple of 8 bytes. One batch is one frame.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import COLUMN_FLAGS, ENCODING_KAFKA, RECORDS_MAX, Frame, FrameHeader, encode_header
from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch, RecordError
from seaweedmq.codec.kafka.columns import (
    UNSOUND,
    US_PER_MS,
    not_sound,
    unpacked_records,
)
from seaweedmq.codec.kafka.compression import check_readable
from seaweedmq.codec.kafka.header import HEADER_BYTES, BatchHeader, check_crc, read_header
from seaweedmq.codec.kafka.header import with_append_time as _with_append_time
from seaweedmq.codec.kafka.records import HEADERS_OF_RECORD_MAX, bounds_of, find_records
from seaweedmq.codec.timestamps import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from seaweedmq.model.config import KAFKA_UNPACKED_BYTES_MAX
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS

__all__ = [
    "ALIGNMENT",
    "UNPACKED_BYTES_MAX",
    "BatchErrorCode",
    "CheckedBatch",
    "InvalidBatch",
    "check_batch",
    "frame_of_batch",
    "padded",
    "with_append_time",
]

ALIGNMENT: Final = 8
UNPACKED_BYTES_MAX: Final = KAFKA_UNPACKED_BYTES_MAX
"""Maximum bytes of the unpacked records of one batch, for all readers."""
CALENDAR_MS: Final = TIMESTAMP_MIN_US // US_PER_MS, TIMESTAMP_MAX_US // US_PER_MS
"""Earliest and latest timestamp of any record."""
RECORD_ERRORS_MAX: Final = 1_000
"""Maximum number of records named when a batch is rejected: a million would be a reply of 100 MB."""
_NO_TIMESTAMP: Final = -1
"""Timestamp that Kafka clients send for a record without a time."""
_NOT_COUNTED: Final = (0,) * HISTOGRAM_BUCKETS
_NO_PRODUCER: Final = 0
"""Producer id in a frame's header without a producer."""


class CheckedBatch(NamedTuple):
    """A batch that is sound, record by record."""

    header: BatchHeader
    timestamp_min_us: int
    timestamp_max_us: int

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.header.record_count


def check_batch(
    data: Frames,
    *,
    header: BatchHeader | None = None,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    compacted: bool = False,
    bytes_max: int | None = None,
    has_append_time: bool = False,
    times_ms: tuple[int, int] = CALENDAR_MS,
    record_headers_max: int = HEADERS_OF_RECORD_MAX,
) -> CheckedBatch:
    """Validate exactly one batch, so that later readers find what its header says.

    Takes some 0.3 us per record, plus the time to unpack them: run it in a thread for more than 1 MiB.

    Args:
        data: Exactly one batch.
        header: Header of the batch if the caller has read it.
        unpacked_bytes_max: Maximum bytes of the unpacked records; ``UNPACKED_BYTES_MAX`` is another limit.
        compacted: Whether the topic retains the last record of each key, so that each needs one.
        bytes_max: Maximum bytes of the batch, as the topic is configured; None for no limit.
        has_append_time: Whether ``with_append_time`` may have made the batch, instead of a client.
        times_ms: Earliest and latest timestamp that the topic takes. A record without a time is always taken.
        record_headers_max: Maximum number of headers of a record.

    Raises:
        InvalidBatch: If it breaks a rule, which the error and its message name. Its cause is ``TooManyHeaders`` for too
            many headers.
    """
    header = header or read_header(data)
    if header.size_bytes != len(data):
        raise _invalid(
            f"a batch of {len(data)} bytes has a length of {header.size_bytes}: send one batch per partition"
        )
    if bytes_max is not None and len(data) > bytes_max:
        raise InvalidBatch(
            BatchErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(data)} bytes exceeds {bytes_max} (max.message.bytes of the topic, and "
            "frame_bytes_max of the brokers): send smaller ones",
        )
    check_crc(header, data)
    _check_header(header, has_append_time)
    check_readable(header.compression, data[HEADER_BYTES:])
    unpacked = unpacked_records(header, data, min(unpacked_bytes_max, UNPACKED_BYTES_MAX))
    times_ms = max(times_ms[0], CALENDAR_MS[0]), min(times_ms[1], CALENDAR_MS[1])
    lowest, highest = _check_records(header, unpacked, compacted, times_ms, record_headers_max)
    return CheckedBatch(header, lowest * US_PER_MS, highest * US_PER_MS)


def with_append_time(data: Frames, checked: CheckedBatch, timestamp_ms: int) -> tuple[memoryview, CheckedBatch]:
    """Return a checked batch with one timestamp for all of its records: Kafka's ``LogAppendTime``."""
    header, stamped = _with_append_time(checked.header, data, timestamp_ms)
    return stamped, CheckedBatch(header, timestamp_ms * US_PER_MS, timestamp_ms * US_PER_MS)


def padded(size_bytes: int) -> int:
    """Return the bytes of the payload of a batch of this size."""
    return size_bytes + -size_bytes % ALIGNMENT


def frame_of_batch(data: Frames, slot: int, checked: CheckedBatch) -> Frame:
    """Return the frame of a checked batch; ``slot`` is its partition.

    The payload is a copy, so that it does not keep the received message alive.
    """
    batch = checked.header
    payload = b"".join((data, bytes(padded(len(data)) - len(data))))
    is_anonymous = batch.producer_id < 0
    header = FrameHeader(
        encoding=ENCODING_KAFKA,
        flags=COLUMN_FLAGS,
        record_count=batch.record_count,
        payload_length=len(payload),
        payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=checked.timestamp_min_us,
        timestamp_max=checked.timestamp_max_us,
        producer_id=_NO_PRODUCER if is_anonymous else batch.producer_id,
        first_sequence=0 if is_anonymous else batch.base_sequence,
        producer_epoch=0 if is_anonymous else batch.producer_epoch,
        slot_min=slot,
        slot_max=slot,
        histogram=_NOT_COUNTED,
    )
    return Frame(header, encode_header(header), payload)


def _check_header(header: BatchHeader, has_append_time: bool) -> None:
    if header.is_control:
        raise _invalid("a batch is marked as a control batch: only brokers write those")
    if header.is_transactional:
        raise InvalidBatch(BatchErrorCode.INVALID_TXN_STATE, "a batch of a transaction, but no transaction is open")
    if header.has_append_time and not has_append_time:
        raise InvalidBatch(
            BatchErrorCode.INVALID_TIMESTAMP,
            "a batch is marked with the broker's time: send the time of its creation",
        )
    if not 1 <= header.record_count <= RECORDS_MAX or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"a batch of {header.record_count} records, the last with number {header.last_offset_delta}: it has from 1 "
            f"to {RECORDS_MAX}, counted from 0 without gaps"
        )
    if header.producer_id < -1 or (header.producer_id >= 0 and min(header.producer_epoch, header.base_sequence) < 0):
        raise _invalid(
            f"batch of producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}: "
            "send none negative, or -1 as the first for no producer"
        )


def _check_records(
    header: BatchHeader, unpacked: memoryview, compacted: bool, times_ms: tuple[int, int], record_headers_max: int
) -> tuple[int, int]:
    """Return the lowest and highest timestamp in milliseconds."""
    try:
        bounds = bounds_of(unpacked, header.record_count, record_headers_max)
    except UNSOUND as error:
        raise not_sound(error) from error
    if header.has_append_time:
        lowest = highest = header.max_timestamp_ms
    else:
        lowest = header.first_timestamp_ms + bounds.timestamp_delta_min
        highest = header.first_timestamp_ms + bounds.timestamp_delta_max
    if (compacted and bounds.key_length_min < 0) or not times_ms[0] <= lowest <= highest <= times_ms[1]:
        _refuse_records(header, unpacked, compacted, times_ms)
    return lowest, highest


def _refuse_records(header: BatchHeader, unpacked: memoryview, compacted: bool, times_ms: tuple[int, int]) -> None:
    """Raise InvalidBatch if a rule for single records is broken, as in Apache Kafka's ``LogValidator``."""
    found = list(islice(_record_errors(header, unpacked, compacted, times_ms), RECORD_ERRORS_MAX))
    if not found:  # only records without a time are out of range
        return
    refusals = {refusal for refusal, _ in found}
    records = [error for _, error in found]
    raise InvalidBatch(
        BatchErrorCode.INVALID_TIMESTAMP
        if BatchErrorCode.INVALID_TIMESTAMP in refusals
        else BatchErrorCode.INVALID_RECORD,
        f"{len(records)} of {header.record_count} records of a batch are invalid, the first with number "
        f"{records[0].number}: {records[0].text}",
        records,
    )


def _record_errors(
    header: BatchHeader, unpacked: memoryview, compacted: bool, times_ms: tuple[int, int]
) -> Iterator[tuple[BatchErrorCode, RecordError]]:
    number = 0
    for block in find_records(unpacked, header.record_count):
        for key_length, delta in zip(block.key_length.tolist(), block.timestamp_delta.tolist(), strict=True):
            time_ms = header.max_timestamp_ms if header.has_append_time else header.first_timestamp_ms + delta
            if compacted and key_length < 0:
                text = "it has no key, and the topic retains the last record of each key: give it one"
                yield BatchErrorCode.INVALID_RECORD, RecordError(number, text)
            elif time_ms != _NO_TIMESTAMP and not times_ms[0] <= time_ms <= times_ms[1]:
                yield BatchErrorCode.INVALID_TIMESTAMP, RecordError(number, _bad_time(time_ms, times_ms))
            number += 1


def _bad_time(time_ms: int, times_ms: tuple[int, int]) -> str:
    return (
        f"its timestamp is {time_ms} ms: give milliseconds since 1970, here from {times_ms[0]} to {times_ms[1]} (of "
        "the years 1 to 9999, within message.timestamp.before.max.ms and message.timestamp.after.max.ms)"
    )


def _invalid(text: str) -> InvalidBatch:
    return InvalidBatch(BatchErrorCode.INVALID_RECORD, text)
