"""Fetch: offsets, limits, waiting, sessions, epochs, ids."""

import asyncio
from typing import Any

from seaweedmq.kafka.wire.messages import API, UUID
from tests.kafka.differential.batches import batch
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.produce import produce
from tests.kafka.differential.scenes.reading import wanted


async def fill(play: Play, topic: str, partition: int = 0, batches: int = 3, size: int = 5) -> None:
    """Produce batches of two records each."""
    for number in range(batches):
        records = batch(b"a" * size, b"b" * size, time_ms=play.t0_ms + 10 * number)
        reply = await play.quietly(API.PRODUCE, 9, **produce((topic, partition, records)))
        assert reply.responses[0].partition_responses[0].error_code == 0


async def offsets(play: Play) -> None:
    """In range and out of it, in all versions."""
    one = await play.topic("one", 2)
    await fill(play, one)
    for version in (4, 5, 7, 9, 11, 12):
        await play.ask(f"version {version}", API.FETCH, version, **wanted((one, 0, 0)))

    async def ask(note: str, *parts: tuple[str, int, int], **more: Any) -> None:
        await play.ask(note, API.FETCH, 12, **wanted(*parts, **more))

    await ask("inside a batch", (one, 0, 3))
    await ask("at the end", (one, 0, 6))
    await ask("behind the end", (one, 0, 7))
    await ask("below 0", (one, 0, -1))
    await ask("far below 0", (one, 0, -1000))
    await ask("empty partition", (one, 1, 0))
    await ask("empty partition, behind the end", (one, 1, 1))
    await ask("an unknown partition", (one, 2, 0))
    await ask("partition -1", (one, -1, 0))
    await ask("an unknown topic", (play.name("no"), 0, 0))
    await ask("a bad topic", ("a/b", 0, 0))
    await ask("good and bad", (one, 0, 4), (one, 0 + 9, 0), (play.name("no"), 0, 0))
    await ask("nothing")
    await ask("of committed transactions", (one, 0, 0), isolation_level=1)
    await ask("of no isolation level", (one, 0, 4), isolation_level=7)
    await ask("as a replica", (one, 0, 0), replica_id=3)
    await ask("as a consumer that debugs", (one, 0, 0), replica_id=-2)
    await ask("in an old epoch", (one, 0, 0), epoch=-2)
    await ask("in an epoch to come", (one, 0, 0), epoch=1_000_000)


async def limits(play: Play) -> None:
    """Minimum and maximum bytes (KIP-74), and wait time."""
    one = await play.topic("one", 2)
    for partition in (0, 1):
        await fill(play, one, partition, size=100)

    async def ask(note: str, *parts: tuple[str, int, int], **more: Any) -> None:
        await play.ask(note, API.FETCH, 12, **wanted(*parts, **more))

    both = ((one, 0, 0), (one, 1, 0))
    size = len(batch(b"a" * 100, b"b" * 100, time_ms=play.t0_ms))
    await ask("one byte of a partition", (one, 0, 0), bytes_max=1)
    await ask("no byte of a partition", (one, 0, 0), bytes_max=0)
    await ask("-1 bytes of a partition", (one, 0, 0), bytes_max=-1)
    await ask("a batch and a half", (one, 0, 0), bytes_max=size + size // 2)
    await ask("two batches", (one, 0, 0), bytes_max=2 * size)
    await ask("one byte of both", *both, bytes_max=1)
    await ask("one byte at all", *both, max_bytes=1)
    await ask("no byte at all", *both, max_bytes=0)
    await ask("-1 bytes at all", *both, max_bytes=-1)
    await ask("a batch and a half at all", *both, max_bytes=size + size // 2)
    await ask("four batches at all", *both, max_bytes=4 * size)
    await ask("behind the end, and one byte", (one, 0, 6), (one, 1, 4), bytes_max=1)
    await ask("more than there is, for a while", (one, 0, 4), min_bytes=10_000, max_wait_ms=150)
    await ask("at least nothing", (one, 0, 6), min_bytes=0, max_wait_ms=5_000)
    await ask("at least less than nothing", (one, 0, 6), min_bytes=-1, max_wait_ms=5_000)
    await ask("less time than none", (one, 0, 6), max_wait_ms=-1)
    await ask("an error does not wait", (one, 0, 6), (one, 1, 99), max_wait_ms=10_000)
    waiting = asyncio.create_task(
        play.ask("what comes meanwhile", API.FETCH, 12, "waits", **wanted((one, 0, 6), max_wait_ms=15_000))
    )
    await asyncio.sleep(0.05)
    await fill(play, one, batches=1)
    await waiting


async def sessions(play: Play) -> None:
    """Fetch sessions (KIP-227)."""
    one = await play.topic("one", 3)
    for partition in range(3):
        await fill(play, one, partition, batches=1)

    async def ask(note: str, session: int, epoch: int, *parts: tuple[str, int, int], **more: Any) -> Any:
        fields = wanted(*parts, session_id=session, session_epoch=epoch, **more)
        return await play.ask(note, API.FETCH, 12, **fields)

    three = [(one, partition, 0) for partition in range(3)]
    full = await ask("a new session", 0, 0, *three)
    session = full.session_id
    at_end = [(one, partition, 2) for partition in range(3)]
    await ask("all at their ends", session, 1, *at_end)
    await ask("nothing new", session, 2)
    await fill(play, one, 1, batches=1)
    await ask("one of them has more", session, 3)
    await ask("still has, since it was not read", session, 4)
    await ask("read on", session, 5, (one, 1, 4))
    await ask("one back", session, 6, (one, 0, 0))
    await ask("one is forgotten", session, 7, forgotten_topics_data=[{"topic": one, "partitions": [0]}])
    await fill(play, one, 0, batches=1)
    await ask("is not told of", session, 8)
    await ask("one that is not is added", session, 9, (one, 9, 0))
    await ask("and is told of again", session, 10)
    await ask("forgotten, too", session, 11, forgotten_topics_data=[{"topic": one, "partitions": [9]}])
    await ask("one out of range", session, 12, (one, 2, 99))
    await ask("out of range again", session, 13)
    await ask("in range again", session, 14, (one, 2, 2))
    await ask("an epoch again", session, 14)
    await ask("an epoch too far", session, 17)
    await ask("goes on", session, 15)
    await ask("another session in its place", session, 0, *three)
    await ask("the one before", session, 16)
    await ask("an unknown session", 4711 if session != 4711 else 4712, 1)
    await ask("an unknown session to be ended", 4711 if session != 4711 else 4712, -1, *three)
    await ask("no session", 0, -1, *three)
    await ask("no session, in the middle", 0, 5)
    await ask("a negative epoch", 0, -5, *three)
    again = await ask("one more session", 0, 0, (one, 0, 0))
    await ask("that ends", again.session_id, -1, (one, 0, 0))
    await ask("that has ended", again.session_id, 1)
    empty = await ask("a session of nothing", 0, 0)
    await ask("that has something then", empty.session_id, 1, (one, 0, 0))


async def identities(play: Play) -> None:
    """Topics by their ids (version 13 and later)."""
    one = await play.topic("one", 2)
    await fill(play, one, batches=1)
    known = await play.quietly(API.METADATA, 12, topics=[{"topic_id": None, "name": one}])
    identity = known.topics[0].topic_id

    def of(topic_id: UUID | None, partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
        fields = wanted((one, partition, offset), **more)
        topics = [{"topic_id": topic_id, "partitions": each["partitions"]} for each in fields["topics"]]
        return fields | {"topics": topics}

    def consumer(fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if version < 15 or key != "replica_id"}

    for version in (13, 15, 16, 17):
        await play.ask(f"version {version}", API.FETCH, version, **consumer(of(identity), version))
    await play.ask("an unknown id", API.FETCH, 13, **of(UUID(int=4711)))
    await play.ask("no id", API.FETCH, 13, **of(None))
    await play.ask("an unknown partition", API.FETCH, 13, **of(identity, 5))
    await play.ask("out of range", API.FETCH, 13, **of(identity, 0, 99))
    session = await play.ask("a session", API.FETCH, 13, **of(identity, session_epoch=0))
    on = {"session_id": session.session_id, "topics": []}
    await play.ask("goes on", API.FETCH, 13, **(of(identity) | on | {"session_epoch": 1}))
    in_names = wanted((one, 0, 0), session_id=session.session_id, session_epoch=2)
    await play.ask("goes on by names", API.FETCH, 12, **in_names)
    unknown = await play.ask("a session with an unknown id", API.FETCH, 13, **of(UUID(int=4711), session_epoch=0))
    if unknown.session_id:
        on = {"session_id": unknown.session_id, "topics": []}
        await play.ask("goes on with it", API.FETCH, 13, **(of(None) | on | {"session_epoch": 1}))


SCENES = {"fetch": offsets, "limits": limits, "sessions": sessions, "identities": identities}
