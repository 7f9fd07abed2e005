"""Versions, coordinators, administration and folders of brokers, and bytes on which they hang up."""

import struct
from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.batches import batch
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.produce import produce


async def versions(play: Play) -> None:
    """ApiVersions, and unknown versions and APIs."""
    for version in (0, 1, 2, 3, 4):
        named = {"client_software_name": "differential", "client_software_version": "1.0"} if version >= 3 else {}
        await play.ask(f"version {version}", API.API_VERSIONS, version, **named)
    await play.first_code(
        "a client with a bad name", API.API_VERSIONS, 3, client_software_name="-", client_software_version=" "
    )

    def head(api: int, version: int, body: bytes = b"") -> bytes:
        data = struct.pack(">hhih", api, version, 7, 4) + b"diff" + body
        return struct.pack(">i", len(data)) + data

    await play.say("an API from nowhere", head(999, 0))
    await play.say("a negative API", head(-1, 0))
    await play.say("Metadata from the future", head(API.METADATA, 99, bytes(20)))
    await play.say("Metadata from the past", head(API.METADATA, -1, bytes(20)))
    await play.say("half a body", head(API.METADATA, 1, b"\0\0"))
    await play.say("an array too long", head(API.METADATA, 1, b"\x7f\xff\xff\xff"))
    await play.say("a request that is too large", b"\x7f\xff\xff\xff")
    await play.say("a request of a negative length", b"\xff\xff\xff\xff")
    await play.say("a request of no length", b"\0\0\0\0")
    await play.say("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await play.say("produced by an old version", head(API.FETCH, 3, bytes(20)))


async def octets(play: Play) -> None:
    """Bytes that no client encodes, and that get a reply."""

    def request(api: int, version: int, body: bytes = b"", client: bytes = b"diff") -> bytes:
        data = struct.pack(">hhih", api, version, 7, len(client)) + client + body
        return struct.pack(">i", len(data)) + data

    async def send(note: str, api: API, version: int, *body: bytes, ends: bool = False) -> None:
        await play.send(note, request(api, version, *body), api, version, ends=ends)

    one = struct.pack(">i", 1)
    await send("bytes behind no topics", API.METADATA, 1, struct.pack(">i", 0) + b"more")
    await send("bytes behind a name", API.METADATA, 1, one + struct.pack(">h", 3) + b"a/b" + bytes(300))
    anything = b"\0\1\0\3\0\0\1\1\0"
    await send("a tag buffer too many", API.DESCRIBE_ACLS, 3, anything + b"\0")
    await send("a topic that is not UTF-8", API.METADATA, 1, one + struct.pack(">h", 2) + b"\xff\xfe")
    await send("a client that is not UTF-8", API.METADATA, 1, struct.pack(">i", 0), b"caf\xe9")
    await send("before the end", API.METADATA, 1, struct.pack(">i", 0), ends=True)
    too_long = b"\x81\x80\x02" + b"g" * 0x8000
    await play.say("a compact string that is too long", request(API.DESCRIBE_GROUPS, 5, b"\0\2" + too_long + b"\0\0"))


async def coordinators(play: Play) -> None:
    for version in (0, 1, 2, 3):
        kind = {"key_type": 0} if version else {}
        await play.ask(f"version {version}", API.FIND_COORDINATOR, version, key=play.name("g"), **kind)
    for version in (4, 5):
        keys = [play.name("g"), play.name("h")]
        await play.ask(f"version {version}", API.FIND_COORDINATOR, version, key_type=0, coordinator_keys=keys)
    await play.ask("of nothing", API.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[])
    await play.ask("of no name", API.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[""])
    await play.ask("of no name, version 2", API.FIND_COORDINATOR, 2, key_type=0, key="")
    await play.ask("of a type that is not", API.FIND_COORDINATOR, 4, key_type=9, coordinator_keys=["a"])
    await play.ask("of share groups", API.FIND_COORDINATOR, 4, key_type=2, coordinator_keys=["a"])


async def administration(play: Play) -> None:
    """Requests that always get an error, or always the same reply."""
    one = await play.topic("one", 2)
    anybody = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    for version in (1, 2, 3):
        await play.ask(f"permissions, version {version}", API.DESCRIBE_ACLS, version, **anybody)
    creation = {
        "resource_type": 2, "resource_name": one, "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    await play.ask("create a permission", API.CREATE_ACLS, 3, creations=[creation])
    await play.ask("delete permissions", API.DELETE_ACLS, 3, filters=[anybody])
    for version in (0, 1):
        await play.ask(f"quotas, version {version}", API.DESCRIBE_CLIENT_QUOTAS, version, components=[], strict=False)

    async def elect(note: str, kind: int, *topics: tuple[str, list[int]], version: int = 2) -> None:
        asked = [{"topic": name, "partitions": partitions} for name, partitions in topics]
        fields: dict[str, Any] = {"topic_partitions": asked, "timeout_ms": 5_000}
        await play.ask(note, API.ELECT_LEADERS, version, **fields, **({"election_type": kind} if version else {}))

    for version in (0, 1, 2):
        await elect(f"elect, version {version}", 0, (one, [0, 1]), version=version)
    await elect("elect of what is not", 0, (one, [7]), (play.name("no"), [0]))
    await elect("elect anybody", 1, (one, [0]))
    await elect("elect in another way", 9, (one, [0]))
    await elect("elect nobody", 0)
    moves = [{"name": one, "partition_indexes": [0]}]
    await play.ask("moves", API.LIST_PARTITION_REASSIGNMENTS, 0, topics=moves, timeout_ms=5_000)
    nowhere = [{"name": play.name("no"), "partition_indexes": [0]}]
    await play.ask("moves of what is not", API.LIST_PARTITION_REASSIGNMENTS, 0, topics=nowhere, timeout_ms=5_000)


async def folders(play: Play) -> None:
    """DescribeLogDirs, without sizes and names of folders."""
    one = await play.topic("one", 2)
    await play.quietly(API.PRODUCE, 9, **produce((one, 0, batch(b"a", time_ms=play.t0_ms))))
    for version in (1, 2, 3, 4):
        said = await play.quietly(API.DESCRIBE_LOG_DIRS, version, topics=[{"topic": one, "partitions": [0, 1, 7]}])
        play.answers[f"version {version}"] = [
            [
                result.error_code,
                [
                    [topic.name, sorted([p.partition_index, p.offset_lag, p.is_future_key] for p in topic.partitions)]
                    for topic in result.topics
                ],
            ]
            for result in said.results
        ]
    said = await play.quietly(API.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": play.name("no"), "partitions": [0]}])
    play.answers["of what is not"] = [[len(result.topics), result.error_code] for result in said.results]


SCENES = {
    "versions": versions, "octets": octets, "coordinators": coordinators, "administration": administration,
    "folders": folders,
}  # fmt: skip
