"""Kafka client base: connections with replies in the order of requests, and learned metadata."""

import asyncio
import io
import itertools
import random
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, MetadataRequest
from seaweedmq.model.kafka.codes import Code
from tests.sim.machines.kafka import kafka_address
from tests.sim.machines.loop import Owner
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

REPLY_TIMEOUT_S = 3.0
METADATA_VERSION = 13
FIND_COORDINATOR_VERSION = 3
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">hhihs")


class Refused(SeaweedMQError):
    """An error code that the client handles."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{Code(code).name}: {what}")
        self.code = Code(code)


class _Asked(NamedTuple):
    number: int
    api: API
    version: int
    reply: "asyncio.Future[Any]"


class Connection:
    """A connection to one broker. Once it breaks, every request fails."""

    def __init__(self, world: "World", owner: Owner, address: str) -> None:
        self.address = address
        self.is_broken = False
        self._world = world
        self._owner = owner
        self._numbers = itertools.count(1)
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._asked: deque[_Asked] = deque()
        self._data = b""
        self._reading = world.network.spawn(owner, self._read(), f"connection to {address}")

    def begin(self, api: API, version: int, **fields: Any) -> "asyncio.Future[Any]":
        """Send a request without waiting; return the future of its reply, None if none comes."""
        reply: asyncio.Future[Any] = self._world.loop.create_future()
        if self.is_broken:
            reply.set_result(None)
            return reply
        number = next(self._numbers)
        message = REQUESTS[api]
        body = bytes(message(version=version, **fields).encode(version=version))
        tags = b"\0" if message.flexible_version_q(version) else b""
        data = _HEAD.pack(api, version, number, 1, b"c") + tags + body
        self._asked.append(_Asked(number, api, version, reply))
        self._requests.put_nowait(_LENGTH.pack(len(data)) + data)
        return reply

    async def ask(self, api: API, version: int, *, timeout_s: float = REPLY_TIMEOUT_S, **fields: Any) -> Any:
        """Return the reply. Raises Unavailable if none came in time, or the connection broke."""
        return await self.replied(self.begin(api, version, **fields), timeout_s)

    async def replied(self, reply: "asyncio.Future[Any]", timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """Wait for the reply of a request from :meth:`begin`, as :meth:`ask`."""
        try:
            async with asyncio.timeout(timeout_s):
                said = await reply
        except TimeoutError:
            self.close()
            raise Unavailable(f"{self.address} said nothing in time") from None
        if said is None:
            raise Unavailable(f"the connection to {self.address} broke")
        return said

    def close(self) -> None:
        """Close the connection."""
        self._reading.cancel()
        self._fail()

    async def _read(self) -> None:
        api: Any = self._world.network.dialer(self._owner).dial(self.address)
        try:
            async with aclosing(api.kafka(_given(self._requests))) as replies:
                async for data in replies:
                    self._data += data
                    self._take()
        except Unavailable:
            return
        finally:
            self._fail()

    def _take(self) -> None:
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            data, self._data = self._data[_LENGTH.size : end], self._data[end:]
            (number,) = _LENGTH.unpack_from(data)
            asked = self._asked.popleft() if self._asked else None
            if asked is None or asked.number != number:
                wanted = "nothing" if asked is None else f"{asked.api.name} {asked.number}"
                self._world.violations.append(
                    Violation("order of replies", f"{self.address} answered {number} to {self._owner.name}'s {wanted}")
                )
                raise Unavailable("the replies are out of order")
            reply = REPLIES[asked.api]
            skip = _LENGTH.size + int(reply.flexible_version_q(asked.version))
            if not asked.reply.done():
                asked.reply.set_result(reply.decode(io.BytesIO(data[skip:]), version=asked.version))

    def _fail(self) -> None:
        self.is_broken = True
        for asked in self._asked:
            if not asked.reply.done():
                asked.reply.set_result(None)
        self._asked.clear()


async def _given(requests: "asyncio.Queue[bytes | None]") -> AsyncIterator[bytes]:
    while (request := await requests.get()) is not None:
        yield request


def metadata_of(topic: str) -> dict[str, Any]:
    """Return the fields of a metadata request."""
    return {
        "topics": [MetadataRequest.MetadataRequestTopic(topic_id=None, name=topic)],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, as the client last learned it."""

    node: int
    epoch: int


class KafkaClient:
    """A process's view of the cluster, and its connections, one per node and purpose."""

    def __init__(self, world: "World", owner: Owner, rng: random.Random) -> None:
        self.world = world
        self.owner = owner
        self.rng = rng
        self.leaders: dict[int, Leader] = {}
        """Leaders of one topic, by partition."""
        self.topic_id: Any = None
        self._addresses: dict[int, str] = {}
        self._connections: dict[tuple[int, str], Connection] = {}
        self._bootstrap: Connection | None = None

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._connections.values(), *([self._bootstrap] if self._bootstrap else [])):
            connection.close()
        self._connections.clear()

    async def ask_any(self, api: API, version: int, **fields: Any) -> Any:
        """Return the reply of any broker. Raises as ``Connection.ask``."""
        if self._bootstrap is None or self._bootstrap.is_broken or self.rng.random() < 0.1:
            if self._bootstrap is not None:
                self._bootstrap.close()
            process = self.rng.choice(self.world.processes)
            self._bootstrap = Connection(self.world, self.owner, kafka_address(process.address))
        return await self._bootstrap.ask(api, version, **fields)

    async def refresh(self, topic: str) -> None:
        """Learn the leaders of the topic's partitions. Raises as ``Connection.ask``; Refused."""
        reply = await self.ask_any(API.METADATA, METADATA_VERSION, **metadata_of(topic))
        if reply.error_code:
            raise Unavailable(f"nothing is known at all: {Code(reply.error_code).name}")
        if not reply.brokers:  # librdkafka then has no broker to query, and stalls for minutes
            self.world.violations.append(Violation("no broker shown", f"{self.owner.name} was shown no broker at all"))
        for node in reply.brokers:
            self._addresses[node.node_id] = f"{node.host}:{node.port}"
        found = reply.topics[0]
        if found.error_code in (Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION):
            raise Unavailable(f"nothing is known of {topic}: {Code(found.error_code).name}")
        if found.error_code:
            raise Refused(found.error_code, f"metadata of {topic}")
        self.topic_id = found.topic_id
        for partition in found.partitions:
            self.learn(partition.partition_index, partition.leader_id, partition.leader_epoch)

    def learn(self, partition: int, node: int, epoch: int) -> None:
        """Learn a partition's leader; ignore older epochs than the known one."""
        known = self.leaders.get(partition)
        if known is None or epoch >= known.epoch:
            self.leaders[partition] = Leader(node, epoch)

    def note_node(self, node: int, address: str) -> None:
        """Note a node's address."""
        self._addresses[node] = address

    def connection(self, node: int, purpose: str) -> Connection:
        """Return a connection to a known node. Raises Unavailable if its address is unknown."""
        address = self._addresses.get(node)
        if address is None:
            raise Unavailable(f"node {node} is not known")
        key = node, purpose
        found = self._connections.get(key)
        if found is None or found.is_broken or found.address != address:
            if found is not None:
                found.close()
            found = self._connections[key] = Connection(self.world, self.owner, address)
        return found

    async def coordinator(self, group: str) -> int:
        """Return the coordinator's node. Raises as ``Connection.ask``; Refused: there is none at the moment."""
        reply = await self.ask_any(API.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, key=group, key_type=0)
        if reply.error_code:
            raise Refused(reply.error_code, f"coordinator of {group}")
        self.note_node(reply.node_id, f"{reply.host}:{reply.port}")
        return int(reply.node_id)
