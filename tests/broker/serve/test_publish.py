"""The publish stream: what is acknowledged, what is rejected, and how it ends."""

import asyncio
import re
from dataclasses import replace

import pytest

from seaweedmq.broker.serve.publish import IDLE_S
from seaweedmq.codec.frame import HEADER_BYTES, decode_header, encode_header
from seaweedmq.errors import (
    Corrupt,
    Fenced,
    InvalidArgument,
    NotFound,
    ProtocolViolation,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
)
from seaweedmq.model.config import KIB
from seaweedmq.model.messages.publish import PublishFrames, PublishOpen, PublishReady
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import CONFIG, NAME, Testbed, frame, values
from tests.doubles.memory_store import StorageOp

OPEN = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=1, producer_epoch=0)


async def test_frames_are_acknowledged_in_order_and_a_repeated_one_is_not_stored_again(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    assert publisher.ready == PublishReady(
        next_sequence=0,
        frame_bytes_max=CONFIG.frame_bytes_max,
        in_flight_frames_max=CONFIG.stream_in_flight_frames_max,
        in_flight_bytes_max=CONFIG.stream_in_flight_bytes_max,
    )
    for count in (3, 1, 2):
        await publisher.send(count)
    assert await publisher.acks(3) == [(0, 0), (3, 3), (4, 4)]
    for first, count in ((0, 3), (3, 1)):
        await publisher.send(count, first=first)
    await publisher.send()
    assert await publisher.acks(3) == [(0, 0), (3, 3), (6, 6)]
    log = host.inspect.segments[NAME, 0].log
    assert host.inspect.memory.logs.used == log.cached_bytes, "nothing is held for repeated frames"
    assert await (await host.subscriber()).until(7) == values(1, 7)
    again = await host.publisher()
    assert again.ready.next_sequence == 7
    await again.store()
    assert (await host.publisher(producer=2)).ready.next_sequence == 0


async def test_one_message_may_hold_many_frames_and_one_reply_their_acknowledgements(testbed: Testbed) -> None:
    _, publisher = await testbed.publishing()
    await publisher.stream.send(PublishFrames(b"".join(publisher.frame(2) for _ in range(40))))
    await testbed.until(lambda: publisher.stream.replies)
    assert any(len(reply.frames) > 1 for reply in publisher.stream.replies)
    assert await publisher.acks(40) == [(2 * n, 2 * n) for n in range(40)]


async def test_a_frame_sent_again_on_a_new_stream_is_stored_once_and_the_old_stream_is_over(testbed: Testbed) -> None:
    host = await testbed.single()
    synced = testbed.faults.hold(StorageOp.SYNC)
    first = await host.publisher()
    await first.send(2)
    assert await first.quiet(1)
    second = await host.publisher()
    assert second.ready.next_sequence == 2
    await second.send(2, first=0)
    synced.set()
    assert await second.acks() == [(0, 0)]
    assert host.inspect.segments[NAME, 0].log.end == 2
    assert await first.acks() == [(0, 0)], "its own stream also acknowledges what it appended"
    with pytest.raises(Fenced, match="stop this one"):
        await first.acks()


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def lying(**fields: object) -> bytes:
    """Return a frame with false fields in its header, and sound checksums."""
    data = frame(2)
    return encode_header(decode_header(data)._replace(**fields)) + data[HEADER_BYTES:]  # type: ignore[arg-type]


BAD_FRAMES: dict[str, tuple[bytes, type[SeaweedMQError], str]] = {
    "nothing of a frame": (b"hello", Corrupt, "frame"), "a damaged header": (damaged(frame(), 20), Corrupt, "checksum"),
    "a damaged payload": (damaged(frame(), HEADER_BYTES + 60), Corrupt, "checksum"),
    "another magic": (damaged(frame(), 0), Corrupt, "not a frame"),
    "a truncated header": (frame()[:100], Corrupt, "frame"), "a truncated payload": (frame()[:-1], Corrupt, "frame"),
    "bytes behind the frame": (frame() + b"x", Corrupt, "frame"),
    "more records than it has": (lying(record_count=3, histogram=(3,) + (0,) * 15), InvalidArgument, "record"),
    "fewer records than it has": (lying(record_count=1, histogram=(1,) + (0,) * 15), InvalidArgument, "record"),
    "another producer": (frame(producer=2), ProtocolViolation, "producer 2 epoch 0 in the stream of producer 1"),
    "another producer epoch": (frame(epoch=1), ProtocolViolation, "open a stream for each"),
    "a gap": (frame(first=9), InvalidArgument, "resend from 0"),
    "slots of another segment": (frame(slots=(0, 40_000)), StaleMetadata, "which has \\[0, 32768\\)"),
    "another schema version": (lying(flags=1 << 8), StaleMetadata, "schema version 1 sent to topic test/case"),
    "too much": (frame(size=80 * KIB), InvalidArgument, "above the limit of 65536"),
}  # fmt: skip


async def test_a_bad_frame_ends_the_stream_with_one_clear_error_and_nothing_is_lost(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    for number, (case, (data, kind, sentence)) in enumerate(BAD_FRAMES.items()):
        name = TopicName("test", f"case-{number}")
        await testbed.topic(host, name, segments=2)
        other = await host.publisher(9, name=name)
        await other.store(frames=2)
        publisher = await host.publisher(name=name)
        await publisher.stream.send(PublishFrames(data))
        error = await publisher.stream.failure()
        assert isinstance(error, kind), (case, error)
        assert re.search(sentence, str(error)), (case, error)
        await other.store(frames=2)
        reader = await host.subscriber(name=name)
        got = await reader.until(host.inspect.segments[name, 0].log.committed)
        assert [v for v in got if v.startswith(b"9:")] == values(9, 4), case
        for stream in (other.stream, reader.stream):
            await stream.close()
        await testbed.until(lambda: host.inspect.memory.intake.used == 0)  # else streams get small messages
    assert host.inspect.memory.logs.used == sum(s.log.cached_bytes for s in host.inspect.segments.values())
    assert not host.has_failed


async def test_good_frames_in_front_of_a_bad_one_are_stored_and_acknowledged(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    await publisher.stream.send(PublishFrames(publisher.frame(2) + damaged(frame(first=2), HEADER_BYTES + 60)))
    assert await publisher.acks() == [(0, 0)]
    assert isinstance(await publisher.stream.failure(), Corrupt)
    assert await (await host.subscriber()).until(2) == values(1, 2)


OPENINGS: dict[str, tuple[object, type[SeaweedMQError], str]] = {
    "no opening": (PublishFrames(frame()), ProtocolViolation, "does not begin with PublishOpen"),
    "unknown topic": (replace(OPEN, topic=TopicName("no", "such")), NotFound, "there is no topic no/such: create it"),
    "unknown segment": (replace(OPEN, segment=7), NotFound, "topic test/topic has no segment 7"),
    "wrong epoch": (replace(OPEN, epoch=2), StaleMetadata, "has epoch 1, not 2"),
    "older producer epoch": (replace(OPEN, producer_id=9), Fenced, "producer 9 epoch 0 is fenced by epoch 3"),
}


async def test_an_opening_that_does_not_fit_is_refused(testbed: Testbed) -> None:
    primary, other = await testbed.pair(2)
    await (await primary.publisher(9, epoch=3)).store()
    for case, (request, kind, sentence) in OPENINGS.items():
        stream = primary.publish_stream()
        await stream.send(request)
        error = await stream.failure()
        assert isinstance(error, kind), (case, error)
        assert sentence in str(error), case
    publisher = await primary.publisher()
    await publisher.stream.send(OPEN)
    with pytest.raises(ProtocolViolation, match="second PublishOpen"):
        await publisher.stream.receive()
    stream = other.publish_stream()
    await stream.send(OPEN)
    with pytest.raises(
        StaleMetadata, match=f"served by broker {primary.broker.id} at {primary.address}, not by this one"
    ):
        await stream.receive()


async def test_the_client_may_end_the_stream_and_gets_all_its_acknowledgements(testbed: Testbed) -> None:
    _, publisher = await testbed.publishing()
    for _ in range(30):
        await publisher.send(2)
    await publisher.stream.half_close()
    assert await publisher.stream.failure() is None
    assert len(await publisher.acks(30)) == 30


async def test_no_more_frames_are_taken_than_may_be_in_flight(testbed: Testbed) -> None:
    config = replace(CONFIG, stream_in_flight_frames_max=2)
    host = await testbed.single(config)
    synced = testbed.faults.hold(StorageOp.SYNC)
    publisher = await host.publisher()
    for _ in range(6):
        await publisher.send()
    assert await publisher.quiet(5)
    assert host.inspect.segments[NAME, 0].log.end == 2
    synced.set()
    assert await publisher.acks(6) == [(n, n) for n in range(6)]


async def test_the_longest_idle_stream_is_ended_for_another_one_and_no_busy_one(testbed: Testbed) -> None:
    host = await testbed.single()
    first, second = await host.publisher(1), await host.publisher(2)
    service = host.broker._publish  # noqa: SLF001 - the memory of streams queries it
    assert not service.end_idle(), "both were opened just now"
    await asyncio.sleep(IDLE_S)
    await first.store(frames=1, count=1)
    await asyncio.sleep(IDLE_S)
    assert service.end_idle()
    with pytest.raises(ResourceExhausted, match=r"idle publish stream to .* ended .* open it again"):
        await second.acks(1)
    await first.store(frames=1, count=1)
    assert not service.end_idle(), "it carried something a moment ago"
