"""Player of scenes to any broker that speaks Kafka's protocol. It keeps each answer under the note of its request."""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.messages import Names, built, said
from tests.kafka.wire.script import TIMEOUT_S, Script, framed

ANSWER_S = 30.0
AGAIN_S = 0.03
CLOSED = "<closed>"
Answers = dict[str, Any]


class Play:
    """One scene at one broker. Each of its connections has a name."""

    def __init__(self, port: int, title: str, names: Names) -> None:
        self._port = port
        self.title = title
        self.names = names
        self.t0_ms = names.t0_ms
        self.answers: Answers = {}
        self._connections: dict[str, Script] = {}
        self._number = 0

    def name(self, stem: str) -> str:
        return f"{self.title}-{stem}"

    async def ask(self, note: str, api: API, version: int, on: str = "", **fields: Any) -> Any:
        """Send a request, and keep the reply under ``note``. ``on``: the connection. None: the broker hung up."""
        assert note not in self.answers, f"{self.title}: two answers to {note!r}"
        self.answers[note] = None
        try:
            reply = await self.quietly(api, version, on, **fields)
        except TimeoutError as error:
            raise TimeoutError(f"{self.title}: {note}: no answer") from error
        self.answers[note] = CLOSED if reply is None else said(api, version, reply, self.names)
        return reply

    async def until(self, note: str, is_it: Callable[[Any], bool], api: API, version: int, **fields: Any) -> Any:
        """Repeat a request until its reply is the expected one, or for ``ANSWER_S``; keep the last reply."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            reply = await self.quietly(api, version, "", **fields)
            if is_it(reply) or time.monotonic() > deadline:
                self.answers[note] = said(api, version, reply, self.names)
                return reply
            await asyncio.sleep(AGAIN_S)

    async def quietly(self, api: API, version: int, on: str = "", **fields: Any) -> Any:
        """Send a request, and return its reply without keeping it."""
        one = await self._connection(on)
        self._number += 1
        number = self._number
        one.say(framed(number, api, version, built(api, version, fields), "differential"))
        try:
            async with asyncio.timeout(ANSWER_S):
                heard, reply = await one.hear(api, version)
        except (asyncio.IncompleteReadError, ConnectionError):
            del self._connections[on]
            return None
        assert heard == number
        return reply

    async def tell(self, api: API, version: int, on: str = "", **fields: Any) -> None:
        """Send a request that has no reply."""
        self._number += 1
        (await self._connection(on)).say(framed(self._number, api, version, built(api, version, fields)))

    async def say(self, note: str, data: bytes, on: str = "") -> None:
        """Send bytes on which the broker hangs up, and keep whether it did."""
        one = await self._connection(on)
        one.say(data)
        self.answers[note] = CLOSED if await one.is_closed() else "<answered>"
        del self._connections[on]

    async def send(self, note: str, data: bytes, api: API, version: int, *, ends: bool = False) -> None:
        """Send bytes that get a reply like a request, and keep it. ``ends``: also end the client's half."""
        one = await self._connection("bytes")
        one.say(data)
        if ends:
            one.writer.write_eof()
        try:
            async with asyncio.timeout(ANSWER_S):
                _, reply = await one.hear(api, version)
            self.answers[note] = said(api, version, reply, self.names)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.answers[note] = CLOSED
        del self._connections["bytes"]
        await one.close()

    async def closed(self, note: str) -> None:
        self.answers[note] = CLOSED if await (await self._connection("")).is_closed() else "<answered>"
        del self._connections[""]

    async def first_code(self, note: str, api: API, version: int, **fields: Any) -> None:
        one = await self._connection("")
        one.say(framed(1, api, version, built(api, version, fields), "differential"))
        (size,) = struct.unpack(">i", await one.reader.readexactly(4))
        data = await one.reader.readexactly(size)
        self.answers[note] = struct.unpack_from(">h", data, 4)[0]

    async def topic(self, stem: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic, and wait until it accepts records. ``configs``: _ for a dot."""
        name = self.name(stem)
        reply = await self.quietly(
            API.CREATE_TOPICS,
            5,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
            timeout_ms=20_000,
            validate_only=False,
        )
        assert reply.topics[0].error_code == 0, reply
        await self.ready(name, partitions)
        return name

    async def ready(self, name: str, partitions: int = 1) -> None:
        asked = [{"partition_index": p, "current_leader_epoch": -1, "timestamp": -1} for p in range(partitions)]
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                reply = await self.quietly(
                    API.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": name, "partitions": asked}]
                )
                if not any(part.error_code for part in reply.topics[0].partitions):
                    return
                await asyncio.sleep(AGAIN_S)

    async def is_ready(self) -> bool:
        """Return whether the broker coordinates groups and gives producers their ids."""
        keys = [f"g{number}" for number in range(64)]
        found = await self.quietly(API.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys)
        given = await self.quietly(API.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1_000)
        return not given.error_code and not any(one.error_code for one in found.coordinators)

    async def hang_up(self, on: str = "") -> None:
        if on in self._connections:
            await self._connections.pop(on).close()

    async def _connection(self, name: str) -> Script:
        if name not in self._connections:
            self._connections[name] = Script(*await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20))
        return self._connections[name]

    async def close(self) -> None:
        for one in self._connections.values():
            await one.close()


@contextlib.asynccontextmanager
async def playing(port: int, title: str, names: Names) -> AsyncIterator[Play]:
    play = Play(port, title, names)
    try:
        yield play
    finally:
        await play.close()


async def awaited(port: int) -> int:
    """Wait until a broker replies and coordinates groups, and return its id."""
    play = Play(port, "awaited", Names(0))
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(ConnectionError):
                    if await play.is_ready():
                        listed = await play.quietly(API.METADATA, 9, topics=[], allow_auto_topic_creation=False)
                        return _only([node.node_id for node in listed.brokers])
                await asyncio.sleep(AGAIN_S)
    finally:
        await play.close()


def _only(ids: Sequence[int]) -> int:
    (one,) = ids
    return one
