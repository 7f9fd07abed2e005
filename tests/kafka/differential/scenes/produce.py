"""Produce: accepted and rejected batches, and sequences of idempotent producers."""

import itertools
from typing import Any

from seaweedmq.codec.kafka.header import read_header
from seaweedmq.kafka.wire.messages import API, UUID
from tests.kafka.differential import batches
from tests.kafka.differential.batches import batch
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.reading import wanted
from tests.support.kafka_batches import changed, lz4_frame

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ALL, LEADER, NOBODY = -1, 1, 0
REFUSALS = 48
"""Number of partitions: one for each batch that may be rejected."""
FORMATS = 16


def sent(*parts: tuple[str, int, bytes | None]) -> list[dict[str, Any]]:
    """Return batches for partitions of topics."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, index, records in parts:
        topics.setdefault(name, []).append({"index": index, "records": records})
    return [{"name": name, "partition_data": data} for name, data in topics.items()]


def produce(*parts: tuple[str, int, bytes | None], acks: int = ALL, **more: Any) -> dict[str, Any]:
    return {"transactional_id": None, "acks": acks, "timeout_ms": 20_000, "topic_data": sent(*parts)} | more


async def taken(play: Play) -> None:
    one = await play.topic("one", 2)
    time_ms = play.t0_ms

    async def ask(note: str, *parts: tuple[str, int, bytes | None], version: int = 9, **more: Any) -> Any:
        return await play.ask(note, API.PRODUCE, version, **produce(*parts, **more))

    for version in (3, 5, 8, 9, 10, 11, 12):
        await ask(f"version {version}", (one, 0, batch(b"a", b"b", time_ms=time_ms)), version=version)
    await ask("acknowledged by the leader", (one, 0, batch(b"c", time_ms=time_ms)), acks=LEADER)
    await play.tell(API.PRODUCE, 9, **produce((one, 0, batch(b"silent", time_ms=time_ms)), acks=NOBODY))
    await ask("behind one that is silent", (one, 0, batch(b"d", time_ms=time_ms)))
    for name, codec in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD)):
        data = batch(*[b"x" * 50] * 20, time_ms=time_ms, codec=codec)
        await ask(f"packed by {name}", (one, 0, data))
    headers = [("k", b"v"), ("", b""), ("k", None)]
    keyed = batch(b"v", None, b"", time_ms=time_ms, keys=[b"k", b"tombstone", None], headers=headers)
    await ask("with keys, headers, tombstones", (one, 1, keyed))
    await ask("of two partitions", *((one, p, batch(b"both", time_ms=time_ms)) for p in (0, 1)))
    await ask("one there, one not", (one, 1, batch(b"e", time_ms=time_ms)), (one, 7, batch(b"f", time_ms=time_ms)))
    with_times = batch(b"g", b"h", time_ms=time_ms + 5000)
    await ask("with times to come", (one, 0, with_times))
    known = await play.quietly(API.METADATA, 12, topics=[{"topic_id": None, "name": one}])
    identity = known.topics[0].topic_id
    for note, topic_id in (("by id", identity), ("by an id of nothing", UUID(int=4711)), ("by no id", None)):
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch(b"i", time_ms=time_ms)}]}]
        await play.ask(note, API.PRODUCE, 13, **produce(topic_data=data))
    for partition in (0, 1):
        await play.ask(f"what is in {partition}", API.FETCH, 12, **wanted((one, partition, 0)))
    appended = await play.topic("appended", message_timestamp_type="LogAppendTime")
    data = batch(b"a", b"b", time_ms=time_ms)
    await ask("with the time of arrival", (appended, 0, data))
    await ask("packed, with the time of arrival", (appended, 0, batch(b"c", b"d", time_ms=time_ms, codec=GZIP)))
    await play.ask("what arrived", API.FETCH, 12, **wanted((appended, 0, 0)))


async def refused(play: Play) -> None:
    """Requests and batches that break rules, each for a partition of its own."""
    one = await play.topic("one", REFUSALS)
    free = itertools.count()
    small = await play.topic("small", max_message_bytes="200")
    compact = await play.topic("compact", cleanup_policy="compact")
    time_ms = play.t0_ms
    good = batch(b"a", b"b", b"c", time_ms=time_ms)

    async def ask(note: str, records: bytes | None, topic: str = one, index: int | None = None, **more: Any) -> None:
        if index is None:
            index = next(free) if topic == one else 0
        await play.ask(note, API.PRODUCE, 9, **produce((topic, index, records), **more))

    await ask("acks=2", good, acks=2)
    await ask("acks=-2", good, acks=-2)
    await ask("an unknown topic", good, play.name("no"))
    await ask("a bad topic", good, "a/b")
    await ask("an unknown partition", good, index=REFUSALS)
    await ask("partition -1", good, index=-1)
    await ask("a wrong CRC", changed(good, crc=read_header(good).crc ^ 1))
    for magic in (0, 1, 3, -1):
        await ask(f"magic {magic}", changed(good, magic=magic))
    await ask("a count too large", changed(good, record_count=4))
    await ask("a count too small", changed(good, record_count=2))
    await ask("a count of 0", changed(good, record_count=0))
    await ask("a negative count", changed(good, record_count=-1))
    await ask("a last delta too large", changed(good, last_offset_delta=5))
    await ask("a last delta too small", changed(good, last_offset_delta=1))
    await ask("a length too large", changed(good, batch_length=len(good)))
    await ask("a length too small", changed(good, batch_length=len(good) - 20))
    await ask("a length of 0", changed(good, batch_length=0))
    await ask("half a batch", good[:40])
    await ask("some bytes", b"12345")
    await ask("no bytes", b"")
    await ask("two batches", good + good)
    await ask("bytes behind it", good + b"\0\0\0")
    await ask("codec 5", changed(good, attributes=5))
    await ask("codec 7", changed(good, attributes=7))
    await ask("said to be packed, and is not", changed(good, attributes=GZIP))
    await ask("a control batch", changed(good, attributes=0x20))
    await ask("a control batch of a transaction", changed(good, attributes=0x30))
    await ask("of no transaction", changed(good, attributes=0x10))
    await ask("with the time of arrival", changed(good, attributes=0x08))
    await ask("a base offset", changed(good, base_offset=77))
    await ask("too large", batch(b"x" * 300, time_ms=time_ms), small)
    await ask("as large as may be", batch(b"x" * 60, time_ms=time_ms), small)
    await ask("without a key, to be compacted", good, compact)
    await ask("with keys, to be compacted", batch(b"a", time_ms=time_ms, keys=[b"k"]), compact)
    await ask("one with a key, one without", batch(b"a", b"b", time_ms=time_ms, keys=[b"k", None]), compact)
    await ask("in two hours", batch(b"a", time_ms=time_ms + 3 * 3600 * 1000 + 3600 * 1000))
    await ask("before 1970", batch(b"a", time_ms=-5))
    await ask("of no time", batch(b"a", time_ms=-1))
    await ask("long ago", batch(b"a", time_ms=1000))
    await ask("at an end of time", batch(b"a", time_ms=2**62))
    await ask("with a transactional id", good, transactional_id="t")
    await ask("a producer with no epoch", batch(b"a", time_ms=time_ms, producer=(5, -1, 0)))
    await ask("a producer with no sequence", batch(b"a", time_ms=time_ms, producer=(5, 0, -1)))
    await ask("producer -2", batch(b"a", time_ms=time_ms, producer=(-2, 0, 0)))
    await play.ask("no topics", API.PRODUCE, 9, **produce())
    last = REFUSALS - 1
    await play.ask("one partition twice", API.PRODUCE, 9, **produce((one, last, good), (one, last, good)))
    for version in (0, 2):
        fields = {"acks": ALL, "timeout_ms": 1000, "topic_data": sent((one, 0, good))}
        await play.ask(f"in version {version}", API.PRODUCE, version, **fields)
    for number in range(REFUSALS):
        await play.ask(f"what is in {number}", API.FETCH, 12, **wanted((one, number, 0)))
    for topic, note in ((small, "small"), (compact, "compact")):
        await play.ask(f"what is in {note}", API.FETCH, 12, **wanted((topic, 0, 0)))


async def formats(play: Play) -> None:
    """Codecs of batches, headers of records, and malformed records."""
    one = await play.topic("one", FORMATS)
    free = itertools.count()
    time_ms = play.t0_ms
    values = [b"%d" % number * 700 for number in range(200)]
    plain = batch(*values, time_ms=time_ms)
    body = plain[batches.HEADER_BYTES :]

    async def ask(note: str, records: bytes, topic: str = one, version: int = 9, **more: Any) -> None:
        index = next(free) if topic == one else 0
        await play.ask(note, API.PRODUCE, version, **produce((topic, index, records), **more))

    frame = lz4_frame(body)
    for note, packed in (
        ("independent blocks", frame),
        ("a checksum of the content", lz4_frame(body, content_checksum=True)),
        ("linked blocks", lz4_frame(body, linked=True)),
        ("two frames", lz4_frame(body[:1000]) + lz4_frame(body[1000:])),
        ("no end mark", frame[:-4]),
        ("a dictionary", frame[:4] + bytes([frame[4] | 1]) + frame[5:]),
    ):
        await ask(f"lz4 of {note}", batches.with_body(plain, packed, LZ4))
    await ask("no time for replicas", batch(b"a", time_ms=time_ms), timeout_ms=0)
    await ask("no time for replicas, packed", batch(*values, time_ms=time_ms, codec=GZIP), timeout_ms=0)
    late = batch(b"a", time_ms=time_ms + 4 * 3600 * 1000)
    for version in (7, 8, 9, 12):
        await ask(f"a time to come in version {version}", late, version=version)
    compact = await play.topic("compact", cleanup_policy="compact")
    keys = [b"k", None, b"k", None]
    await ask("two of four without a key", batch(b"a", b"b", b"c", b"d", time_ms=time_ms, keys=keys), compact)
    both = batch(b"a", b"b", time_ms=time_ms + 4 * 3600 * 1000, keys=keys[:2])
    await ask("without a key, and late", both, compact)
    for index in range(next(free)):
        await play.ask(f"what is in {index}", API.FETCH, 12, **wanted((one, index, 0)))
    unread = await play.topic("unread")
    for note, names in (
        ("of Latin-1", ["Größe".encode("latin-1")]),
        ("of bytes", [b"\x80\x81"]),
        ("of nothing", [b""]),
        ("by thousands", [b"n%d" % number for number in range(5_000)]),
    ):
        await ask(f"headers {note}", batches.with_body(batch(b"v", time_ms=time_ms), batches.record(names)), unread)
    await ask(
        "a header without a name", batches.with_body(batch(b"v", time_ms=time_ms), batches.record([None])), unread
    )


async def behind(play: Play) -> None:
    """Batches of idempotent producers behind one that was rejected."""
    given = await play.quietly(API.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    small = await play.topic("small", 3, max_message_bytes="300")

    async def ask(note: str, partition: int, sequence: int, size: int, **more: int) -> None:
        records = batch(
            bytes(size), time_ms=play.t0_ms + more.get("ahead_ms", 0), producer=(given.producer_id, 0, sequence)
        )
        if "crc" in more:
            records = changed(records, crc=read_header(records).crc ^ 1)
        await play.ask(note, API.PRODUCE, 7, **produce((small, partition, records)))

    await ask("a new one that is large", 0, 0, 1_000)
    await ask("a new one, behind it", 0, 1, 10)
    await ask("a new one, behind that", 0, 2, 10)
    await ask("a known one", 1, 0, 10)
    await ask("a known one that is large", 1, 1, 1_000)
    await ask("a known one, behind it", 1, 2, 10)
    await ask("a known one, instead of it", 1, 1, 10)
    await ask("late", 2, 0, 10, ahead_ms=4 * 3600 * 1000)
    await ask("damaged", 2, 1, 10, crc=1)
    await ask("behind both", 2, 2, 10)
    for partition in range(3):
        await play.ask(f"what is in {partition}", API.FETCH, 12, **wanted((small, partition, 0)))


async def silent_failure(play: Play) -> None:
    """acks=0 to an unknown partition: the connection ends."""
    records = batch(b"a", time_ms=play.t0_ms)
    await play.tell(API.PRODUCE, 9, **produce((play.name("no"), 0, records), acks=NOBODY))
    await play.closed("behind it")


async def sequences(play: Play) -> None:
    one = await play.topic("one", 3)
    given = await play.ask("an id", API.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    pid = given.producer_id

    async def ask(note: str, producer: tuple[int, int, int], *values: bytes, partition: int = 0) -> None:
        records = batch(*values, time_ms=play.t0_ms, producer=producer)
        await play.ask(note, API.PRODUCE, 9, **produce((one, partition, records)))

    await ask("the first", (pid, 0, 0), b"a", b"b")
    await ask("the second", (pid, 0, 2), b"c")
    await ask("the second again", (pid, 0, 2), b"c")
    await ask("the first again", (pid, 0, 0), b"a", b"b")
    await ask("a gap", (pid, 0, 5), b"f")
    await ask("the first, with fewer", (pid, 0, 0), b"a")
    await ask("half of the first", (pid, 0, 1), b"b")
    for sequence in range(3, 9):
        await ask(f"sequence {sequence}", (pid, 0, sequence), b"x")
    await ask("one long ago", (pid, 0, 2), b"c")
    await ask("a recent one", (pid, 0, 5), b"x")
    await ask("a new epoch, not at 0", (pid, 1, 3), b"x")
    await ask("a new epoch", (pid, 1, 0), b"y")
    await ask("the old epoch", (pid, 0, 9), b"x")
    await ask("epochs later", (pid, 5, 0), b"z")
    await ask("another partition, in the middle", (pid, 0, 40), b"x", partition=1)
    await ask("another partition, the next", (pid, 0, 41), b"x", partition=1)
    await ask("another partition, from 0", (pid, 0, 0), b"x", partition=1)
    await ask("nobody's id", (pid + 400, 3, 7), b"x", partition=2)
    await ask("nobody's id, the next", (pid + 400, 3, 8), b"x", partition=2)
    await ask("nobody's id, an older epoch", (pid + 400, 2, 0), b"x", partition=2)
    last = 2**31 - 1
    await ask("near the last sequence", (pid + 401, 0, last - 1), b"x", b"y", partition=2)
    await ask("behind the last sequence", (pid + 401, 0, 0), b"x", partition=2)
    await ask("over the last sequence", (pid + 402, 0, last), b"x", b"y", b"z", partition=2)
    await ask("on from there", (pid + 402, 0, 2), b"x", partition=2)
    await ask("no sequences", (-1, -1, -1), b"x", partition=2)
    asked = [{"name": one, "partition_indexes": [0, 1, 7]}, {"name": play.name("no"), "partition_indexes": [0]}]
    await play.ask("who produced", API.DESCRIBE_PRODUCERS, 0, topics=asked)
    for partition in range(3):
        await play.ask(f"what is in {partition}", API.FETCH, 12, **wanted((one, partition, 0)))


async def producer_ids(play: Play) -> None:
    base = {"transactional_id": None, "transaction_timeout_ms": 1000}
    for version in (0, 2, 3, 4, 5):
        await play.ask(f"version {version}", API.INIT_PRODUCER_ID, version, **base)
    known = await play.quietly(API.INIT_PRODUCER_ID, 4, **base)
    await play.ask("again", API.INIT_PRODUCER_ID, 4, **base, producer_id=known.producer_id, producer_epoch=0)
    await play.ask("half of an identity", API.INIT_PRODUCER_ID, 4, **base, producer_id=known.producer_id)
    await play.ask("the other half", API.INIT_PRODUCER_ID, 4, **base, producer_epoch=3)
    await play.ask(
        "with an empty transactional id", API.INIT_PRODUCER_ID, 4, transactional_id="", transaction_timeout_ms=1000
    )


SCENES = {
    "produce": taken, "refused": refused, "formats": formats, "behind": behind, "silent": silent_failure,
    "sequences": sequences, "producer-ids": producer_ids,
}  # fmt: skip
