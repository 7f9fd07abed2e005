"""Client of the Kafka handlers of one broker of a test bed, which passes requests as connections do."""

import asyncio
import io
import itertools
from dataclasses import replace
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from seaweedmq.kafka.handlers import Handlers
from seaweedmq.kafka.wire import messages
from seaweedmq.kafka.wire.messages import API, EncodedReply, Line, Request
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.broker.testbed import CONFIG, Host, Testbed
from tests.integration.kafka.raw import FETCH, PRODUCE, fetch_fields, produce_fields
from tests.kafka.differential.batches import batch as batch  # for those who produce
from tests.kafka.differential.messages import built
from tests.kafka.differential.scenes.offsets import listed

KAFKA = replace(CONFIG, kafka_listen="127.0.0.1:0")
NO_PRODUCER = -1


class InProcessClient:
    """The handlers of one broker, and one connection to them."""

    def __init__(self, testbed: Testbed, host: Host) -> None:
        self.testbed = testbed
        self.host = host
        self.handlers = Handlers(host.broker.ports)
        self._handlers = {api: handler for group in self.handlers.all for api, handler in group.handlers().items()}
        self._numbers = itertools.count(1)
        self._line = Line()
        self.reads = asyncio.Event()
        """Event: while it is clear, the client reads no reply."""
        self.reads.set()

    async def ask(self, api: API, version: int, **fields: Any) -> Any:
        return await self.send(self.request(api, version, **fields))

    async def send(self, request: Request) -> Any:
        return await self.testbed.network.spawn(self.host.owner, self._answer(API(request.api), request))

    def request(self, api: API, version: int, **fields: Any) -> Request:
        """Return a request as the connection would build it."""
        request = Request(
            api=api,
            version=version,
            correlation_id=next(self._numbers),
            body=built(api, version, fields),
            context=CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1", client_id="tests"),
            size_bytes=100,
            connection=1,
            line=self._line,
            ahead=self._line.urgent,
        )
        self._line.join(api)
        return request

    async def begin(self, request: Request) -> Any:
        """Pass a request to its handler, and return the handler's result: for Produce an awaitable of the reply."""
        return await self._handlers[request.api](request)

    async def _answer(self, api: API, request: Request) -> Any:
        reply = await self.begin(request)
        if api is API.PRODUCE:
            reply = await reply
        if isinstance(reply, EncodedReply):
            body = b"".join(reply.buffers)
            try:
                await self.reads.wait()
            finally:  # a canceled read also ends the reply
                if reply.sent is not None:
                    reply.sent()
            return messages.REPLIES[api].decode(io.BytesIO(body), version=request.version)
        return reply

    # --- what most tests ask ------------------------------------------------------------------------------------------

    async def produce(
        self, topic: str, partition: int, records: bytes, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> Any:
        fields = produce_fields(topic, partition, records, acks=acks, timeout_ms=timeout_ms)
        reply = await self.ask(API.PRODUCE, PRODUCE, **fields)
        return reply and reply.responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        partition_bytes_max: int = 1 << 20,
        wait_ms: int = 0,
        min_bytes: int = 1,
        epoch: int = -1,
    ) -> Any:
        sizes = {"min_bytes": min_bytes, "max_bytes": bytes_max, "partition_max_bytes": partition_bytes_max}
        fields = fetch_fields(topic, partition, offset, epoch=epoch, max_wait_ms=wait_ms, **sizes)
        reply = await self.ask(API.FETCH, FETCH, **fields)
        assert reply.error_code == Code.NONE
        return reply.responses[0].partitions[0]

    async def list_offset(self, topic: str, partition: int, timestamp: int) -> Any:
        reply = await self.ask(API.LIST_OFFSETS, 10, **listed((topic, partition, timestamp)))
        return reply.topics[0].partitions[0]


async def in_process_clients(testbed: Testbed, count: int = 1, **settings: Any) -> list[InProcessClient]:
    """Start brokers that serve Kafka clients, and return a client of each."""
    hosts = await testbed.cluster(count, replace(KAFKA, **settings))
    return [await _opened(InProcessClient(testbed, host)) for host in hosts]


async def more_in_process_clients(testbed: Testbed, count: int) -> list[InProcessClient]:
    """Start more such brokers in a running cluster, and return a client of each."""
    return [await _opened(InProcessClient(testbed, await testbed.start(KAFKA))) for _ in range(count)]


async def _opened(client: InProcessClient) -> InProcessClient:
    await client.testbed.network.spawn(client.host.owner, client.handlers.nodes.ready())
    return client


def records_of(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all records in a reply."""
    found, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        one = DefaultRecordBatch(bytearray(data[position : position + size]))
        assert one.validate_crc()
        found += [(record.offset, record.key, record.value) for record in one]
        position += size
    return found


async def settled() -> None:
    """Let all ready tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)
