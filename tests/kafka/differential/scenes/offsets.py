"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from collections.abc import Sequence
from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.batches import batch
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.fetch import fill
from tests.kafka.differential.scenes.produce import produce
from tests.kafka.differential.scenes.reading import wanted

LATEST, EARLIEST, HIGHEST_TIME, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


def listed(*parts: tuple[str, int, int], epoch: int = -1, **more: Any) -> dict[str, Any]:
    """Return the fields of a ListOffsets: topic, partition and timestamp of each."""
    asked = [
        (name, {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": when})
        for name, partition, when in parts
    ]
    return {"replica_id": -1, "isolation_level": 0, "topics": by_topic(asked)} | more


def by_topic(parts: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, part in parts:
        topics.setdefault(name, []).append(part)
    return [{"name": name, "partitions": asked} for name, asked in topics.items()]


async def list_offsets(play: Play) -> None:
    """ListOffsets by marks and timestamps."""
    one, empty = await play.topic("one", 2), await play.topic("empty")
    t0_ms = play.t0_ms
    await fill(play, one)
    mixed = batch(b"a", b"b", b"c", time_ms=t0_ms + 500)
    await play.quietly(API.PRODUCE, 9, **produce((one, 0, mixed)))
    await play.quietly(API.PRODUCE, 9, **produce((one, 0, batch(b"late", time_ms=t0_ms + 100))))
    for version in (1, 2, 4, 5, 6, 7, 8, 9, 10):
        for note, when in (("latest", LATEST), ("earliest", EARLIEST), ("of a time", t0_ms + 11)):
            await play.ask(f"{note}, version {version}", API.LIST_OFFSETS, version, **listed((one, 0, when)))

    async def ask(note: str, *parts: tuple[str, int, int], version: int = 10, **more: Any) -> None:
        await play.ask(note, API.LIST_OFFSETS, version, **listed(*parts, **more))

    for note, when in (
        ("before the first", t0_ms - 5), ("the first", t0_ms), ("between batches", t0_ms + 5),
        ("inside a batch", t0_ms + 501), ("the highest time", t0_ms + 502), ("after the highest time", t0_ms + 503),
        ("1970", 0), ("highest", HIGHEST_TIME), ("earliest local", EARLIEST_LOCAL), ("latest tiered", LATEST_TIERED),
        ("earliest pending", EARLIEST_PENDING), ("-7", -7),
    ):  # fmt: skip
        await ask(note, (one, 0, when))
        await ask(f"{note}, nothing there", (empty, 0, when))
    await ask("highest in version 6", (one, 0, HIGHEST_TIME), version=6)
    await ask("earliest local in version 7", (one, 0, EARLIEST_LOCAL), version=7)
    await ask("latest tiered in version 8", (one, 0, LATEST_TIERED), version=8)
    await ask("committed, latest", (one, 0, LATEST), isolation_level=1)
    await ask("an unknown partition", (one, 9, LATEST))
    await ask("an unknown topic", (play.name("no"), 0, LATEST))
    await ask("a bad topic", ("a/b", 0, LATEST))
    await ask("several", (one, 0, LATEST), (empty, 0, EARLIEST))
    await ask("one twice", (one, 0, LATEST), (one, 0, EARLIEST))
    await ask("an epoch to come", (one, 0, LATEST), epoch=1_000_000)
    await ask("nothing")


async def epochs(play: Play) -> None:
    one = await play.topic("one", 2)
    await fill(play, one)
    known = await play.quietly(API.METADATA, 9, topics=[{"name": one}], allow_auto_topic_creation=False)
    current = {part.partition_index: part.leader_epoch for part in known.topics[0].partitions}[0]

    async def ask(note: str, epoch: int, version: int = 4, now: int = -1, part: int = 0, name: str = one) -> None:
        asked = [{"partition": part, "current_leader_epoch": now, "leader_epoch": epoch}]
        await play.ask(
            note, API.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": name, "partitions": asked}], replica_id=-1
        )

    for version in (2, 3, 4):
        await ask(f"the current, version {version}", current, version)
    await ask("one to come", current + 10)
    await ask("none", -1)
    await ask("with the current", current, now=current)
    await ask("with one to come", current, now=current + 10)
    await ask("an unknown partition", current, part=9)
    await ask("an unknown topic", current, name=play.name("no"))


async def deletions(play: Play) -> None:
    one, compact = await play.topic("one", 2), await play.topic("compact", cleanup_policy="compact")
    await fill(play, one)

    async def ask(note: str, *parts: tuple[str, int, int], version: int = 2) -> None:
        topics = by_topic([(name, {"partition_index": index, "offset": at}) for name, index, at in parts])
        await play.ask(note, API.DELETE_RECORDS, version, topics=topics, timeout_ms=20_000)

    await ask("below 2", (one, 0, 2), version=0)
    await ask("below 3", (one, 0, 3), version=1)
    await ask("below 1, which are gone", (one, 0, 1))
    await ask("below the end and one", (one, 0, 7))
    await ask("below -2", (one, 0, -2))
    await ask("of an unknown partition", (one, 9, 1))
    await ask("of an unknown topic", (play.name("no"), 0, 1))
    await ask("of a bad topic", ("a/b", 0, 1))
    await ask("of an internal topic", ("__consumer_offsets", 0, 0))
    await ask("of a compacted topic", (compact, 0, 0))
    await ask("good and bad", (one, 0, 3), (one, 9, 3))
    await play.ask("the earliest", API.LIST_OFFSETS, 7, **listed((one, 0, EARLIEST)))
    await play.ask("the first time", API.LIST_OFFSETS, 7, **listed((one, 0, play.t0_ms)))
    await play.ask("below the earliest", API.FETCH, 12, **wanted((one, 0, 2)))
    await play.ask("from the earliest", API.FETCH, 12, **wanted((one, 0, 3)))
    await ask("all", (one, 0, -1))
    await play.ask("nothing is left", API.FETCH, 12, **wanted((one, 0, 6)))
    await play.ask("the earliest of nothing", API.LIST_OFFSETS, 7, **listed((one, 0, EARLIEST)))
    await play.ask("a time of nothing", API.LIST_OFFSETS, 7, **listed((one, 0, play.t0_ms)))
    await play.ask("the highest time of nothing", API.LIST_OFFSETS, 7, **listed((one, 0, HIGHEST_TIME)))
    await ask("all of nothing", (one, 1, -1))
    await ask("nothing")


SCENES = {"list-offsets": list_offsets, "epochs": epochs, "deletions": deletions}
