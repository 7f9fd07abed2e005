"""Validation of Kafka's record batches: accepted batches, and the errors of rejected ones."""

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from seaweedmq.codec.frame import COLUMN_FLAGS, RECORDS_MAX, decode_header, split_frames
from seaweedmq.codec.kafka import records
from seaweedmq.codec.kafka.batch import (
    BatchErrorCode,
    InvalidBatch,
    check_batch,
    frame_of_batch,
    with_append_time,
)
from seaweedmq.codec.kafka.columns import columns_of
from seaweedmq.codec.kafka.header import HEADER_BYTES, patched_head, read_header, stored_bytes
from tests.support.kafka_batches import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    T0_MS,
    UNPACKED_BYTES_MAX,
    ZSTD,
    Record,
    batch_around,
    batch_of,
    changed,
    packed,
    records_in,
)

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
SMALL = batch_of([Record(b"k", b"v"), Record(None, b"w", (("h", b"1"),))])
PLAIN = b"\x10\x00\x00\x00\x02k\x02v\x00"
"""A record, byte by byte: 8 bytes, no attributes, delta 0, number 0, key, value, no headers."""

texts = st.text(max_size=8)
rows = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)), max_size=4).map(tuple),
        st.integers(-62_135_596_800_000, 253_402_300_799_999).filter(lambda ms: ms != -1),
    ),
    min_size=1,
    max_size=100,
)


def read(batch: bytes) -> list[Record]:
    """Decode through SeaweedMQ's columns."""
    columns = columns_of(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    headers = [tuple(some or ()) for some in columns.headers.to_pylist()]
    times = (columns.timestamp_us // 1_000).tolist()
    return [
        Record(*row) for row in zip(columns.key.to_pylist(), columns.value.to_pylist(), headers, times, strict=True)
    ]


def refusal_of(batch: bytes, **arguments: object) -> tuple[BatchErrorCode, str]:
    with pytest.raises(InvalidBatch) as refused:
        check_batch(batch, **{"unpacked_bytes_max": UNPACKED_BYTES_MAX, **arguments})  # type: ignore[arg-type]
    return refused.value.refusal, str(refused.value)


@given(rows, st.sampled_from(CODECS))
def test_what_clients_send_is_read_as_it_was_sent(sent: list[Record], compression: int) -> None:
    batch = batch_of(sent, compression)
    checked = check_batch(memoryview(batch), unpacked_bytes_max=UNPACKED_BYTES_MAX)
    times = [record.timestamp_ms * 1_000 for record in sent]
    assert (checked.record_count, checked.timestamp_min_us, checked.timestamp_max_us) == (
        len(sent),
        min(times),
        max(times),
    )
    assert read(batch) == sent == records_in(batch)


@given(rows)
def test_the_builder_of_another_client_is_understood(sent: list[Record]) -> None:
    builder = KafkaPythonBuilder(2, 0, False, 1_000, 3, 40, 1 << 20)
    for number, record in enumerate(sent):
        builder.append(number, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    checked = check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    assert (checked.header.producer_id, checked.header.producer_epoch, checked.header.base_sequence) == (1_000, 3, 40)
    assert read(batch) == sent


def test_many_records_are_read_like_few() -> None:
    """More records than a block has, with varints of every length and every sort of headers."""
    sent = [
        Record(
            None if n % 7 == 0 else b"k" * (n % 300),
            None if n % 5 == 0 else b"v" * (n % 200),
            tuple((f"h{i}", None if i % 2 else b"x" * (n % 90)) for i in range(n % 4)),
            T0_MS + (n * 7919) % 100_000 - 50_000,
        )
        for n in range(2 * records.BLOCK_RECORDS + 5)
    ]
    sent[9] = sent[9]._replace(headers=tuple((f"h{i}", b"") for i in range(300)))
    batch = batch_of(sent)
    checked = check_batch(batch, unpacked_bytes_max=1 << 24)
    assert checked.record_count == len(sent)
    found = columns_of(batch, unpacked_bytes_max=1 << 24)
    assert found.key.to_pylist() == [record.key for record in sent]
    assert found.value.to_pylist() == [record.value for record in sent]
    assert found.headers.to_pylist() == [list(record.headers) or None for record in sent]


@given(st.data(), rows, st.sampled_from([NONE, NONE, *CODECS]))
def test_what_is_mutated_is_refused_or_read_as_by_others(
    data: st.DataObject, sent: list[Record], compression: int
) -> None:
    sound = batch_of(sent, compression)
    mutated = bytearray(sound[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(mutated) - 1, 0)))
        match data.draw(st.sampled_from(("flip", "drop", "double", "set"))):
            case "flip":
                mutated[place : place + 1] = bytes(
                    b ^ 1 << data.draw(st.integers(0, 7)) for b in mutated[place : place + 1]
                )
            case "drop":
                del mutated[place : place + data.draw(st.integers(1, 9))]
            case "double":
                mutated[place:place] = mutated[place : place + data.draw(st.integers(1, 9))]
            case _:
                mutated[place : place + 1] = bytes([data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))])
    header = read_header(sound)
    batch = batch_around(
        bytes(mutated), len(sent), attributes=header.attributes, first_timestamp_ms=header.first_timestamp_ms
    )
    try:
        check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    except InvalidBatch:
        return
    found = read(batch)
    try:
        expected = records_in(batch)
    except UnicodeDecodeError:  # aiokafka, unlike Java's client, takes only names that are UTF-8
        assert any("\ufffd" in name for record in found for name, _ in record.headers)
        return
    assert found == expected


def together(data: bytes, count: int) -> records.Records:
    return records.joined(records.find_together(data, count))


@given(rows, st.data())
def test_both_ways_to_find_records_agree(sent: list[Record], data: st.DataObject) -> None:
    body = bytearray(batch_of(sent)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    found = []
    for find in (records.find_one_by_one, together):
        try:
            found.append([column.tolist() for column in find(bytes(body), len(sent))])
        except (ValueError, IndexError):
            found.append([])
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [1, 32, 33, 9_000])
def test_the_bounds_of_records_are_those_of_their_columns(count: int) -> None:
    sent = [Record(b"k" * (n % 7), b"v", (), T0_MS + n % 5 - 2) for n in range(count)]
    for some in (sent, [*sent[:-1], Record(None, None)]):
        body = batch_of(some)[HEADER_BYTES:]
        columns = records.joined(records.find_records(body, count))
        deltas = columns.timestamp_delta
        assert records.bounds_of(body, count) == (deltas.min(), deltas.max(), columns.key_length.min())


def longer(number: int, size: int) -> bytes:
    """Encode a variable-length integer in more bytes than it needs."""
    zigzag = number << 1 ^ number >> 63
    octets = [zigzag >> 7 * i & 0x7F for i in range(size)]
    return bytes([octet | 0x80 for octet in octets[:-1]] + octets[-1:])


def sized(rest: bytes) -> bytes:
    """Frame these bytes as a record."""
    return longer(len(rest), 1) + rest


assert sized(PLAIN[1:]) == PLAIN


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PLAIN[:-1], "in the middle of one|its records have 9 of 8 bytes"),
        (PLAIN + b"\x00", "its records have 9 of 10 bytes"),
        (b"\x12" + PLAIN[1:] + b"\x00", "record 0 does not have its stated length"),
        (b"\x0f" + PLAIN[1:], "record 0 does not have its stated length|its records have 8 of 9 bytes"),
        (sized(b"\x00\x00\x02\x02k\x02v\x00"), "record 0 has the number 1"),
        (sized(b"\x80\x00\x00\x02k\x02v\x00"), "record 0 has unknown attributes"),
        (sized(b"\x00\x00\x00\x03\x02v\x00"), "a length of -2"),
        (sized(b"\x00\x00\x00\x02k\x03\x00"), "a length of -2"),
        (sized(b"\x00\x00\x00\x02k\x02v\x01"), "-1 headers"),
        (sized(b"\x00\x00\x00\x02k\x02v\xfe\xff\xff\xff\x0f"), "headers: a record has from 0 to 16384"),
        (sized(b"\x00\x00\x00\x02k\x02v\x02\x01\x01"), "a length of -1"),
        (sized(b"\x00\x00" + longer(0, 6) + b"\x02k\x02v\x00"), "more than 5 bytes"),
        (sized(b"\x00" + longer(0, 11) + b"\x00\x02k\x02v\x00"), "more than 10 bytes"),
        (sized(b"\x00" + b"\xff" * 9 + b"\x02\x00\x02k\x02v\x00"), "does not fit 64 bits"),
    ],
)
@pytest.mark.parametrize("few", [32, 0])
def test_records_that_are_not_as_the_format_says_are_refused(
    few: int, body: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_FEW", few)
    refusal, text = refusal_of(batch_around(body))
    assert refusal is BatchErrorCode.INVALID_RECORD
    assert "the records of a batch are not sound" in text
    assert any(either in text for either in said.split("|"))


def test_names_of_headers_may_be_any_bytes_and_are_read_as_javas_client_reads_them() -> None:
    names = ["Größe".encode("latin-1"), b"\x80\x81", b"plain", "Größe".encode()]
    headers = b"".join(longer(len(name), 1) + name + longer(1, 1) + b"7" for name in names)
    body = sized(b"\x00\x00\x00\x02k\x02v" + longer(len(names), 1) + headers)
    batch = batch_around(body)
    check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    [found] = read(batch)
    assert found.headers == (("Gr\ufffd\ufffde", b"7"), ("\ufffd\ufffd", b"7"), ("plain", b"7"), ("Größe", b"7"))


def test_records_at_fault_are_named() -> None:
    sent = [Record(b"k", b"v"), Record(None, b"no key"), Record(b"k", b"old", (), T0_MS - 9), Record(None, b"", (), -1)]
    batch = batch_of(sent)
    check_batch(batch)
    with pytest.raises(InvalidBatch) as refused:
        check_batch(batch, compacted=True)
    assert refused.value.refusal is BatchErrorCode.INVALID_RECORD
    assert [error.number for error in refused.value.records] == [1, 3]
    with pytest.raises(InvalidBatch) as refused:
        check_batch(batch, compacted=True, times_ms=(T0_MS - 8, T0_MS))
    assert refused.value.refusal is BatchErrorCode.INVALID_TIMESTAMP
    assert [error.number for error in refused.value.records] == [1, 2, 3]
    check_batch(batch_of([Record(b"k", b"v"), sent[3]]), times_ms=(T0_MS, T0_MS))
    check_batch(batch, times_ms=(T0_MS - 9, T0_MS))


@pytest.mark.parametrize("count", [3, 3_000])
def test_no_more_records_at_fault_are_named_than_a_reply_has_room_for(count: int) -> None:
    with pytest.raises(InvalidBatch) as refused:
        check_batch(batch_of([Record(None, b"")] * count), compacted=True)
    assert [error.number for error in refused.value.records] == list(range(min(count, 1_000)))


def test_numbers_may_take_more_bytes_than_they_need() -> None:
    """Read as Java's client does."""
    body = b"\x00" + longer(-5, 10) + longer(0, 5) + longer(1, 5) + b"k" + longer(1, 2) + b"v" + longer(0, 3)
    batch = batch_around(longer(len(body), 5) + body)
    check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    assert read(batch) == [Record(b"k", b"v", (), T0_MS - 5)]


@pytest.mark.parametrize(
    ("batch", "refusal", "said"),
    [
        (SMALL[:60], BatchErrorCode.INVALID_RECORD, "60 bytes are not a record batch"),
        (SMALL[:-1], BatchErrorCode.INVALID_RECORD, "send one batch per partition"),
        (SMALL + SMALL, BatchErrorCode.INVALID_RECORD, "send one batch per partition"),
        (changed(SMALL, batch_length=-1), BatchErrorCode.INVALID_RECORD, "has a length of 11"),
        (changed(SMALL, magic=1), BatchErrorCode.INVALID_RECORD, "message format 1: send format 2"),
        (changed(SMALL, magic=3), BatchErrorCode.CORRUPT_MESSAGE, "message format 3: send format 2"),
        (changed(SMALL, crc=7), BatchErrorCode.CORRUPT_MESSAGE, "should be 00000007"),
        (changed(SMALL, attributes=5), BatchErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
        (changed(SMALL, attributes=4), BatchErrorCode.INVALID_RECORD, "not sound zstd"),
        (changed(SMALL, attributes=0x20), BatchErrorCode.INVALID_RECORD, "control batch"),
        (changed(SMALL, attributes=0x10), BatchErrorCode.INVALID_TXN_STATE, "transaction"),
        (changed(SMALL, attributes=0x08), BatchErrorCode.INVALID_TIMESTAMP, "time of its creation"),
        (changed(SMALL, record_count=0, last_offset_delta=-1), BatchErrorCode.INVALID_RECORD, "0 records"),
        (changed(SMALL, record_count=-1), BatchErrorCode.INVALID_RECORD, "-1 records"),
        (changed(SMALL, last_offset_delta=5), BatchErrorCode.INVALID_RECORD, "the last with number 5"),
        (changed(SMALL, record_count=1, last_offset_delta=0), BatchErrorCode.INVALID_RECORD, "not sound"),
        (changed(SMALL, record_count=3, last_offset_delta=2), BatchErrorCode.INVALID_RECORD, "not sound"),
        (
            changed(SMALL, record_count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX),
            BatchErrorCode.INVALID_RECORD,
            "it has from 1 to",
        ),
        (changed(SMALL, record_count=1000, last_offset_delta=999), BatchErrorCode.INVALID_RECORD, "do not fit"),
        (changed(SMALL, producer_id=-2), BatchErrorCode.INVALID_RECORD, "producer -2"),
        (changed(SMALL, producer_id=1_000, producer_epoch=0), BatchErrorCode.INVALID_RECORD, "sequence -1"),
        (changed(SMALL, first_timestamp_ms=253_402_300_800_000), BatchErrorCode.INVALID_TIMESTAMP, "years 1 to 9999"),
        (changed(SMALL, first_timestamp_ms=-(1 << 63)), BatchErrorCode.INVALID_TIMESTAMP, "years 1 to 9999"),
    ],
)
def test_each_rule_has_its_refusal(batch: bytes, refusal: BatchErrorCode, said: str) -> None:
    found, text = refusal_of(batch)
    assert (found, said in text) == (refusal, True), text


def test_topics_have_rules_of_their_own() -> None:
    keyed = batch_of([Record(b"k", None)])
    check_batch(keyed, unpacked_bytes_max=UNPACKED_BYTES_MAX, compacted=True, bytes_max=len(keyed))
    refusal, text = refusal_of(SMALL, compacted=True)
    assert (refusal, "has no key" in text) == (BatchErrorCode.INVALID_RECORD, True)
    refusal, text = refusal_of(SMALL, bytes_max=len(SMALL) - 1)
    assert (refusal, "max.message.bytes" in text) == (BatchErrorCode.MESSAGE_TOO_LARGE, True)


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_little_that_stands_for_much_is_refused_before_it_is_memory(compression: int) -> None:
    bomb = batch_around(packed(compression, bytes(32 << 20)), attributes=compression)
    tracemalloc.start()
    try:
        refusal, text = refusal_of(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (refusal, f"at most {UNPACKED_BYTES_MAX} bytes" in text) == (BatchErrorCode.INVALID_RECORD, True)
    assert peak < UNPACKED_BYTES_MAX + 3 * len(bomb) + (1 << 18)


def test_blocks_of_snappy_that_lie_about_their_size_are_refused() -> None:
    block = packed(SNAPPY, PLAIN)
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block
    assert read(batch_around(xerial, attributes=SNAPPY)) == [Record(b"k", b"v")]
    for lie in (len(block) + 1, 0, -1, 1 << 30):
        lying = xerial[:16] + struct.pack(">i", lie) + xerial[20:]
        assert refusal_of(batch_around(lying, attributes=SNAPPY))[0] is BatchErrorCode.INVALID_RECORD
    assert refusal_of(batch_around(xerial[:18], attributes=SNAPPY))[0] is BatchErrorCode.INVALID_RECORD


@pytest.mark.parametrize("find", [records.find_one_by_one, together])
def test_there_are_no_more_headers_than_readers_can_hold(
    find: Callable[..., records.Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, is_sound in ((16_384, True), (16_385, False)):
        body = batch_of([Record(b"k", b"v", (("", None),) * number)])[HEADER_BYTES:]
        if is_sound:
            assert len(find(body, 1).name_at) == number
        else:
            with pytest.raises(ValueError, match="16385 headers: a record has from 0 to 16384"):
                find(body, 1)
    monkeypatch.setattr(records, "HEADERS_MAX", 100)
    few = [Record(b"k", b"v", (("", None),) * 20)] * 5
    assert len(find(batch_of(few)[HEADER_BYTES:], 5).name_at) == 100
    with pytest.raises(ValueError, match="headers"):
        find(batch_of([*few, Record(None, None, (("", None),))])[HEADER_BYTES:], 6)


@given(rows, st.sampled_from(CODECS), st.integers(0, 63))
def test_a_batch_becomes_a_frame_and_comes_out_of_it_as_it_was(sent: list[Record], compression: int, slot: int) -> None:
    batch = batch_of(sent, compression, producer=(5_000, 2, 70))
    checked = check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    frame = frame_of_batch(memoryview(batch), slot, checked)
    (found,) = split_frames(bytes(frame.header_bytes) + bytes(frame.payload))
    header = found.header
    assert header == frame.header == decode_header(frame.header_bytes)
    assert (header.encoding, header.flags, header.record_count) == (2, COLUMN_FLAGS, len(sent))
    assert (header.timestamp_min, header.timestamp_max) == (checked.timestamp_min_us, checked.timestamp_max_us)
    assert (header.producer_id, header.producer_epoch, header.first_sequence) == (5_000, 2, 70)
    assert (header.slot_min, header.slot_max, set(header.histogram)) == (slot, slot, {0})
    assert len(found.payload) % 8 == 0
    assert found.payload[: stored_bytes(found.payload)] == batch
    head = patched_head(found.payload, 1 << 40, 77)
    out = head + bytes(found.payload[len(head) : stored_bytes(found.payload)])
    assert (read_header(out).base_offset, read_header(out).leader_epoch, len(head)) == (1 << 40, 77, 16)
    assert read_header(out)[3:] == read_header(batch)[3:]
    assert records_in(out) == sent


def test_a_batch_of_nobody_is_a_frame_of_nobody() -> None:
    header = frame_of_batch(SMALL, 3, check_batch(SMALL, unpacked_bytes_max=UNPACKED_BYTES_MAX)).header
    assert (header.producer_id, header.producer_epoch, header.first_sequence) == (0, 0, 0)


@pytest.mark.parametrize("compression", CODECS)
def test_a_broker_may_give_all_records_its_own_time(compression: int) -> None:
    sent = [Record(b"a", b"1", (), T0_MS), Record(b"b", None, (), T0_MS - 7)]
    batch = batch_of(sent, compression)
    checked = check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
    stamped, after = with_append_time(batch, checked, T0_MS + 9)
    assert after == check_batch(stamped, unpacked_bytes_max=UNPACKED_BYTES_MAX, has_append_time=True)
    assert after.timestamp_min_us == after.timestamp_max_us == (T0_MS + 9) * 1_000
    assert read(stamped) == records_in(stamped) == [r._replace(timestamp_ms=T0_MS + 9) for r in sent]


def test_the_minute_before_1970_has_a_millisecond_that_others_take_for_none() -> None:
    body = b"\x10\x00\x00\x00\x02k\x02v\x00"
    batch = batch_around(body, first_timestamp_ms=-1)
    assert check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX).timestamp_min_us == -1_000
    assert read(batch) == [Record(b"k", b"v", (), -1)]
