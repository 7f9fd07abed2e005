"""More publishers on a segment than it, or its record, remembers: no frame is rejected, lost or stored twice."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.serve import sealed_producers
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.client.client import Client
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.core.lineage import topology
from seaweedmq.errors import Fenced, OutOfRange, ResourceExhausted, SeaweedMQError, StorageFailed
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import Call, DescribeTopic, MergeSegments, SealSegment, SplitSegment
from seaweedmq.model.messages.publish import PublishAck, PublishFrames, PublishOpen, PublishReady, PublishSealed
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.model.segment import ProducerSequence, Segment
from tests.broker.testbed import CONFIG, NAME, Host, Publishing, Testbed, frame, values
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.sim.machines.loop import Owner
from tests.support.segments import make_segment, make_topic

SMALL = replace(CONFIG, producers_per_segment_max=3)
IDLE_S = 20.0
HASTY = replace(SMALL, producer_idle_s=IDLE_S)
"""A config that forgets publishers soon; the publishers of these tests repeat nothing that old."""
OPEN = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=1, producer_epoch=0)


async def connect(testbed: Testbed, name: str, **settings: Any) -> tuple[Client, Owner]:
    owner = Owner(name)
    return await testbed.client(owner, **settings), owner


# --- one segment ------------------------------------------------------------------------------------------------------


async def test_a_publisher_whose_stream_broke_is_known_when_many_others_came_meanwhile(testbed: Testbed) -> None:
    host = await testbed.single(SMALL)
    client, owner = await connect(testbed, "unlucky")
    async with client, client.publisher(str(NAME)) as publisher:
        await (await publisher.send(b"first"))
        synced = testbed.faults.hold(StorageOp.SYNC)
        sent = await publisher.send(b"second")
        await testbed.until(lambda: host.inspect.segments[NAME, 0].log.end == 2)
        testbed.network.cut(host.address, "unlucky")
        testbed.network.break_streams_of(owner)
        synced.set()
        others = [await host.publisher(100 + n) for n in range(10)]
        for other in others:
            await other.store()
        testbed.network.join()
        assert (await sent).offset == 1
    reader = await host.subscriber()
    assert (await reader.until(12))[:2] == [b"first", b"second"]


async def test_a_publisher_that_was_forgotten_goes_on_with_its_sequences(testbed: Testbed) -> None:
    host = await testbed.single(HASTY)
    client, owner = await connect(testbed, "idle")
    async with client, client.publisher(str(NAME)) as publisher:
        for n in range(3):
            await (await publisher.send(b"%d" % n))
        table = host.inspect.segments[NAME, 0].log.producers
        (mine,) = (s.producer_id for s in table.snapshot())
        testbed.network.break_streams_of(owner)
        await asyncio.sleep(2 * IDLE_S)  # both sides notice, each in its own time
        others = [await host.publisher(100 + n) for n in range(4)]
        assert table.state(mine) is None
        assert (await (await publisher.send(b"3"))).offset == 3
        state = table.state(mine)
        assert state is not None
        assert state.next_sequence == 4
        assert len(others) == 4
    assert await (await host.subscriber()).until(4) == [b"0", b"1", b"2", b"3"]


async def test_one_publisher_too_many_for_the_broker_waits_until_there_is_room(testbed: Testbed) -> None:
    config = replace(HASTY, producers_max=5)
    host = await testbed.single(config)
    publishers = [await host.publisher(100 + n) for n in range(5)]
    for publisher in publishers:
        await publisher.store()
    refused = host.publish_stream()
    await refused.send(OPEN)
    assert isinstance(await refused.failure(), ResourceExhausted)
    client, _ = await connect(testbed, "late")
    async with client, client.publisher(str(NAME)) as late:
        sent = await late.send(b"late")
        await publishers[0].stream.close()
        await asyncio.sleep(IDLE_S - 1)
        assert not sent.done()
        for publisher in publishers[1:]:
            await publisher.store()
        assert (await sent).segment == 0
    await testbed.primary(host)


@pytest.mark.parametrize("in_flight", [1, 1_024])
async def test_every_frame_in_flight_finds_its_acknowledgement_again(testbed: Testbed, in_flight: int) -> None:
    host, publisher = await testbed.publishing(replace(CONFIG, stream_in_flight_frames_max=in_flight))
    log = host.inspect.segments[NAME, 0].log
    sent = 3 * in_flight
    await publisher.stream.send(PublishFrames(b"".join(publisher.frame() for _ in range(sent))))
    await testbed.until(lambda: log.flushed == sent)
    await publisher.stream.close()
    again = await host.publisher()
    repeated = range(sent - in_flight, sent)
    for first in repeated:
        await again.send(first=first)
    assert await again.acks(in_flight) == [(n, n) for n in repeated]
    assert log.end == sent


# --- two streams of one publisher -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5])
async def test_of_streams_that_open_in_one_moment_one_goes_on(testbed: Testbed, count: int) -> None:
    host = await testbed.single()
    streams = [host.publish_stream() for _ in range(count)]
    for stream in streams:
        await stream.send(OPEN)
        await stream.send(PublishFrames(frame()))
    await asyncio.sleep(5)
    assert [type(s.error) for s in streams if s.ended] == [Fenced] * (count - 1)
    (last,) = (s for s in streams if not s.ended)
    await last.send(PublishFrames(frame(first=1)))
    await testbed.until(lambda: sum(len(r.frames) for r in last.replies if isinstance(r, PublishAck)) == 2)
    assert await (await host.subscriber()).until(2) == values(1, 2)
    assert host.inspect.segments[NAME, 0].log.end == 2


async def test_a_stream_that_waits_to_be_read_appends_nothing_once_a_newer_one_is_open(testbed: Testbed) -> None:
    """The broker has replied to the first one, whose client is slow to read the reply."""
    host = await testbed.single()
    requests: asyncio.Queue[object] = asyncio.Queue()

    async def sent() -> Any:
        while True:
            yield await requests.get()

    requests.put_nowait(OPEN)
    requests.put_nowait(PublishFrames(frame(3)))
    replies = host.broker.api.publish(sent())
    assert isinstance(await anext(replies), PublishReady)  # requests no more
    newer = await host.publisher()
    await newer.store(count=2)
    with pytest.raises(Fenced, match="opened a newer stream"):
        await anext(replies)
    assert host.inspect.segments[NAME, 0].log.end == 2


async def test_a_newer_epoch_is_told_that_it_is_new_where_an_older_one_is_remembered(testbed: Testbed) -> None:
    hosts = await testbed.several(2, SMALL)
    primary = await testbed.primary(hosts[0])
    first = await primary.publisher()
    assert not first.ready.is_new_epoch, "the producer is unknown"
    await first.store(2)
    assert not (await primary.publisher()).ready.is_new_epoch, "the same epoch continues"
    assert (await primary.publisher(epoch=1)).ready.is_new_epoch
    assert not (await primary.publisher(epoch=2)).ready.is_new_epoch, "of epoch 1 nothing is stored"
    await (await primary.publisher(9)).store(2)
    await primary.api.call(SealSegment(NAME, 0))
    sealed = [await _ask(hosts[0], 9, 1 << 62, epoch=epoch) for epoch in (0, 1)]
    assert [(each.next_sequence, each.is_new_epoch) for each in sealed] == [(2, False), (1 << 62, True)]


# --- sealed segments --------------------------------------------------------------------------------------------------


async def _sealed_with_records_in_flight(testbed: Testbed, host: Host, count: int) -> list[Publishing]:
    """Each has one acknowledged record, and a stored one whose acknowledgement is lost."""
    publishers = [await host.publisher(n) for n in range(1, count + 1)]
    for publisher in publishers:
        await publisher.store()
    synced = testbed.faults.hold(StorageOp.SYNC)
    log = host.inspect.segments[NAME, 0].log
    for end, publisher in enumerate(publishers, count + 1):
        await publisher.send()
        await testbed.until(lambda end=end: log.end == end)  # type: ignore[misc]
    for publisher in publishers:
        await publisher.stream.close()
    synced.set()
    await host.api.call(SealSegment(NAME, 0))
    return publishers


async def _ask(host: Host, producer: int, first: int, *, epoch: int = 0) -> PublishSealed:
    stream = host.publish_stream()
    await stream.send(replace(OPEN, producer_id=producer, producer_epoch=epoch, first_sequence=first))
    sealed = await stream.receive()
    assert isinstance(sealed, PublishSealed), sealed
    return sealed


async def test_who_is_not_in_the_record_is_searched_in_files(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 2)
    hosts = await testbed.several(2, SMALL)
    primary = await testbed.primary(hosts[0])
    await _sealed_with_records_in_flight(testbed, primary, 6)
    segment = next(s for s in hosts[0].inspect.view.segments[NAME].values() if s.id == 0)
    assert (len(segment.sequences), segment.sequences_complete) == (2, False)
    for host in hosts:
        answers = [await _ask(host, producer, 1) for producer in range(1, 7)]
        assert [a.next_sequence for a in answers] == [2] * 6
        assert [a.recent[-1].base_offset for a in answers] == list(range(6, 12))
        assert (await _ask(host, 99, 0)).next_sequence == 0, "it was never there"
        assert (await _ask(host, 99, 7)).next_sequence == 7, "or so long ago that it repeats nothing"


async def test_if_neither_record_nor_files_know_it_is_said(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 2)
    host = await testbed.single(SMALL)
    await _sealed_with_records_in_flight(testbed, host, 6)
    await testbed.store.delete(testbed.files(FileKind.LOG))
    assert [(await _ask(host, producer, 1)).next_sequence for producer in (5, 6)] == [2, 2]
    with pytest.raises(OutOfRange, match=r"no room for producer 1.* retained for producer_idle_s"):
        await _ask(host, 1, 1)


async def test_a_whole_record_needs_no_files(testbed: Testbed) -> None:
    host = await testbed.single(SMALL)
    await _sealed_with_records_in_flight(testbed, host, 6)
    await testbed.store.delete(testbed.files(FileKind.LOG))
    testbed.faults.failing[StorageOp.LIST] = "it is gone"
    assert [(await _ask(host, producer, 1)).next_sequence for producer in range(1, 7)] == [2] * 6
    assert (await _ask(host, 99, 3)).next_sequence == 3


# --- a crowd ----------------------------------------------------------------------------------------------------------


class Crowd:
    """A number of publishers, each with records of its own key, and the outcomes of their records."""

    def __init__(self, testbed: Testbed, count: int) -> None:
        self.testbed = testbed
        self.count = count
        self.clients: list[tuple[Client, Owner]] = []
        self.publishers: list[Publisher] = []
        self.sent: list[Any] = []

    async def start(self) -> None:
        self.clients = [await connect(self.testbed, f"crowd {n}", linger_s=0.0) for n in range(3)]
        for n in range(self.count):
            client, _ = self.clients[n % 3]
            self.publishers.append(await client.publisher(str(NAME)).__aenter__())

    async def send(self, number: int) -> list[Any]:
        futures = [await p.send(b"%d/%d" % (n, number), key=b"%d" % n) for n, p in enumerate(self.publishers)]
        self.sent += futures
        return futures

    def lose_acknowledgements(self) -> None:
        """Lose the acknowledgements of two thirds of the publishers, with their connections."""
        for _, owner in self.clients[:2]:
            self.testbed.network.break_streams_of(owner)

    async def close(self) -> None:
        failed: list[BaseException] = []
        for future in self.sent:
            try:
                await future
            except SeaweedMQError as error:
                failed.append(error)
        assert not failed, f"{len(failed)} of {len(self.sent)} failed, the first: {failed[0]!r}"
        for client, _ in self.clients:
            await client.close()

    async def check(self, host: Host, numbers: int) -> None:
        """Check that every record is there once, and in order along the lineage of its key."""
        got: dict[int, list[tuple[int, int]]] = defaultdict(list)
        description = await host.api.call(DescribeTopic(NAME))
        for segment in description.segments:
            server = (
                host if not segment.is_open else next(h for h in self.testbed.hosts if h.broker.id == segment.primary)
            )
            reader = await server.subscriber(EARLIEST, segment=segment.id, credit=1 << 24)
            await asyncio.sleep(2)
            reader.take()
            for offset, value in enumerate(reader.values, reader.ready.start_offset):
                publisher, number = value.split(b"/")
                got[int(publisher)].append((offset, int(number)))
        wrong = {n: sorted(got[n]) for n in range(self.count) if [v for _, v in sorted(got[n])] != list(range(numbers))}
        assert not wrong, f"{len(wrong)} of {self.count} publishers, such as {next(iter(wrong.items()))}"


BLOWS: dict[str, Call[Any] | None] = {
    "seal": SealSegment(NAME, 0),
    "split": SplitSegment(NAME, 0, 32_768),
    "merge": MergeSegments(NAME, 0, 1),
    "failover": None,
}


async def _strike(testbed: Testbed, blow: str, replicas: int, count: int, config: BrokerConfig) -> None:
    """Strike while every publisher has a record in flight, and most lose its acknowledgement."""
    primary, other = await testbed.pair(4, config, replicas=replicas, segments=2 if blow == "merge" else 1)
    crowd = Crowd(testbed, count)
    await crowd.start()
    await asyncio.gather(*await crowd.send(0))
    held = [testbed.faults.hold(op) for op in (StorageOp.SYNC, StorageOp.APPEND)[:replicas]]
    await crowd.send(1)
    await asyncio.sleep(1)  # the brokers have the records, and have not acknowledged them
    crowd.lose_acknowledgements()
    call = BLOWS[blow]
    if call is None:
        primary.kill()
    changing = None if call is None else asyncio.create_task(other.api.call(call))
    await asyncio.sleep(0.3)
    testbed.faults.held.clear()
    for event in held:
        event.set()
    if changing is not None:
        await changing
    await crowd.send(2)
    await crowd.close()
    await crowd.check(other, 3)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("blow", BLOWS)
async def test_a_crowd_loses_and_doubles_nothing(
    testbed: Testbed, blow: str, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 4)
    await _strike(testbed, blow, replicas, 12, SMALL)


@pytest.mark.timeout(600)
@pytest.mark.deep
async def test_with_1200_publishers_and_the_usual_limits_as_well(testbed: Testbed) -> None:
    await _strike(testbed, "failover", 2, 1_200, CONFIG)


TOPIC = make_topic()


class Sequences(tuple[ProducerSequence, ...]):
    """The sequences in a segment's record; counts full iterations."""

    passes = 0

    def __iter__(self) -> Iterator[ProducerSequence]:
        Sequences.passes += 1
        return super().__iter__()


def sealed(number: int, next_sequence: int, producers: int = 10) -> Segment:
    sequences = Sequences(
        ProducerSequence(producer_id=n, producer_epoch=0, next_sequence=next_sequence) for n in range(producers)
    )
    return replace(make_segment(100), id=number, sequences=sequences, sequences_complete=True)


async def ask(answering: SealedProducers, segment: Segment) -> list[int]:
    return [(await answering.progress(TOPIC, segment, n, 0, 50))[0] for n in range(10)]


@pytest.fixture
def answering() -> SealedProducers:
    Sequences.passes = 0
    return SealedProducers(MemorySegmentStore(lambda: 0))


async def test_the_record_is_gone_through_once_and_anew_when_it_is_another(answering: SealedProducers) -> None:
    assert await ask(answering, sealed(1, 7)) == [7] * 10
    assert Sequences.passes == 1
    trimmed = replace(sealed(1, 7), sequences=())
    assert await ask(answering, trimmed) == [50] * 10
    assert await ask(answering, sealed(1, 8)) == [8] * 10
    assert Sequences.passes == 2


async def test_few_records_are_kept(answering: SealedProducers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_producers, "RECORDED_WEIGHT_MAX", 25)
    segments = [sealed(n, n) for n in range(40)]
    for segment in segments:
        assert await ask(answering, segment) == [segment.id] * 10
    empty = [sealed(n, 0, producers=0) for n in range(40, 140)]
    for segment in empty:
        await ask(answering, segment)
    Sequences.passes = 0
    for segment in empty[-25:]:
        await ask(answering, segment)
    assert Sequences.passes == 0, "the last are kept"
    await ask(answering, empty[-26])
    assert Sequences.passes == 1, "and nothing else"
    assert await ask(answering, segments[0]) == [0] * 10


async def test_each_of_those_who_wait_for_the_same_files_gets_an_error_of_its_own() -> None:
    async def broken(op: StorageOp, path: str) -> None:
        await asyncio.sleep(0)
        raise StorageFailed("input/output error")

    answering = SealedProducers(MemorySegmentStore(lambda: 0, broken))
    segment = replace(sealed(1, 7, producers=0), sequences_complete=False)
    waiting = (answering.progress(TOPIC, segment, n, 0, 50) for n in range(3))
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [StorageFailed] * 3
    assert len(set(map(id, errors))) == 3
