"""Client of the handlers on a broker of the test bed, with encoded requests and replies."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_from_json, broker_to_json
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.gateway import handlers_of
from seaweedmq.kafka.handlers import Handlers
from seaweedmq.kafka.wire.error_mapping import code_of
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, EncodedReply, Handler, Request
from seaweedmq.kafka.wire.replies.error_reply import error_reply, error_scope_of
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from seaweedmq.ports import Put
from tests.broker.testbed import CONFIG, Host, Testbed
from tests.kafka.differential.messages import built
from tests.support.kafka_wire import decode


def versions(api: API) -> range:
    return range(ADVERTISED[api].lowest, ADVERTISED[api].highest + 1)


class ByteClient:
    def __init__(self, host: Host) -> None:
        self.host = host
        groups = Handlers(host.broker.ports)
        self.directory, self.nodes = groups.directory, groups.nodes
        self.handlers: Mapping[int, Handler] = handlers_of(groups.all)

    async def ask(self, api: API, version: int | None = None, **fields: Any) -> Any:
        """Return the reply to a request in this version, by default the newest, as a client decodes it."""
        version = ADVERTISED[api].highest if version is None else version
        asking = answered(self.handlers, api, version, **fields)
        return await self.host.testbed.network.spawn(self.host.owner, asking)


async def answered(
    handlers: Mapping[int, Handler], api: API, version: int, *, client_id: str = "tests", **fields: Any
) -> Any:
    """Return the reply of handlers as a client decodes it. ``fields``: those of the message, see ``built``."""
    sent = bytes(built(api, version, fields).encode(version=version))
    request = Request(
        api=api,
        version=version,
        correlation_id=1,
        body=decode(REQUESTS[api], version, memoryview(sent)),
        context=CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:40000", client_id=client_id),
        size_bytes=len(sent),
        connection=1,
    )
    try:
        reply = await handlers[api](request)
    except SeaweedMQError as error:
        reply = error_reply(request, code_of(error, scope=error_scope_of(api)), str(error))
    encoded = b"".join(reply.buffers) if isinstance(reply, EncodedReply) else bytes(reply.encode(version=version))
    return REPLIES[api].decode(encoded, version=version)


async def byte_client(host: Host, kafka_address: str | None = None) -> ByteClient:
    """Register a broker as one that serves Kafka clients, and return its client."""
    address = kafka_address or host.address.replace(":7777", ":9092")
    key = keys.broker_key(host.broker.id)
    entry = await host.meta.get(key)
    assert entry is not None
    info = replace(broker_from_json(entry.value), kafka_address=address)
    assert await host.meta.transact([], [Put(key, broker_to_json(info), entry.lease)])
    await host.testbed.until(
        lambda: all(h.inspect.view.brokers[host.broker.id].kafka_address for h in host.testbed.hosts if h.lives)
    )
    return ByteClient(host)


async def byte_clients(testbed: Testbed, count: int, config: BrokerConfig = CONFIG) -> list[ByteClient]:
    """Start a cluster of this many brokers that all serve Kafka clients."""
    return [await byte_client(host) for host in await testbed.cluster(count, config)]
