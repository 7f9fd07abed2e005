"""The rooms of admin requests on a real broker of the test bed, asked and answered in bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seaweedmq.codec import keys
from seaweedmq.codec.metadata import broker_from_json, broker_to_json
from seaweedmq.errors import SeaweedMQError, StaleMetadata
from seaweedmq.kafka.changes import TopicChanges
from seaweedmq.kafka.cluster import ClusterRoom
from seaweedmq.kafka.configs import ConfigsRoom
from seaweedmq.kafka.deletion import DeletionRoom
from seaweedmq.kafka.directory import Directory
from seaweedmq.kafka.identities import IdentitiesRoom
from seaweedmq.kafka.inventory import InventoryRoom
from seaweedmq.kafka.nodes import Nodes
from seaweedmq.kafka.producer_ids import ProducerIds
from seaweedmq.kafka.refused import RefusedRoom
from seaweedmq.kafka.topics import TopicsRoom
from seaweedmq.kafka.wire.decoding import decode
from seaweedmq.kafka.wire.failed import failed_reply, place_of
from seaweedmq.kafka.wire.failure import code_of
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, Handler, Request
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Environment, Put
from tests.broker.bed import CONFIG, Bed, Host

NAMESPACE = "kafka"


class Office:
    """What answers admin requests on one broker."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self.host = host
        view = host.inspect.view
        env = Environment(host.wall_us, host.bed.etcd.rng)
        self.nodes = Nodes(view, host.meta, env)
        self.directory = Directory(view, self.nodes, NAMESPACE)
        self.changes = TopicChanges(host.broker.api, view)
        self.handlers: Mapping[int, Handler] = {
            **ClusterRoom(self.directory, self.changes, config).handlers(),
            **TopicsRoom(self.directory, self.changes, config).handlers(),
            **ConfigsRoom(self.directory, self.changes, config, broker_id=lambda: host.broker.id).handlers(),
            **DeletionRoom(self.directory, self.changes).handlers(),
            **InventoryRoom(
                self.directory, host.bed.store, broker_id=lambda: host.broker.id, producers=self._producers
            ).handlers(),
            **IdentitiesRoom(ProducerIds(host.meta, env.rng)).handlers(),
            **RefusedRoom(self.directory).handlers(),
        }

    def _producers(self, name: TopicName, slot: int) -> Sequence[ProducerState]:
        found = [s for s in self.host.inspect.segments.values() if s.topic.name == name and slot in s.segment.slots]
        if not found:
            raise StaleMetadata(f"slot {slot} of {name} is served elsewhere")
        return found[0].log.producers.snapshot()

    async def ask(self, api: API, version: int | None = None, **fields: Any) -> Any:
        """The reply to a request in this version, by default the newest, as a client reads it."""
        version = ADVERTISED[api].highest if version is None else version
        message = REQUESTS[api]
        sent = bytes(message(version=version, **fields).encode(version=version))
        request = Request(
            api=api,
            version=version,
            correlation_id=1,
            client_id="test",
            body=decode(message, version, memoryview(sent)),
            peer="127.0.0.1:40000",
            client_host="/127.0.0.1",
            size_bytes=len(sent),
            connection=1,
        )
        try:
            reply = await self.host.bed.network.spawn(self.host.owner, self.handlers[api](request))
        except SeaweedMQError as error:
            reply = failed_reply(request, code_of(error, place=place_of(api)), str(error))
        return REPLIES[api].decode(bytes(reply.encode(version=version)), version=version)


async def office(host: Host, config: BrokerConfig = CONFIG, kafka_address: str | None = None) -> Office:
    """Have a broker serve Kafka's clients, and register so."""
    address = kafka_address or host.address.replace(":7777", ":9092")
    key = keys.broker_key(host.broker.id)
    entry = await host.meta.get(key)
    assert entry is not None
    info = replace(broker_from_json(entry.value), kafka_address=address)
    assert await host.meta.transact([], [Put(key, broker_to_json(info), entry.lease)])
    await host.bed.until(
        lambda: all(h.inspect.view.brokers[host.broker.id].kafka_address for h in host.bed.hosts if h.lives)
    )
    return Office(host, config)


async def offices(bed: Bed, count: int, config: BrokerConfig = CONFIG) -> list[Office]:
    """A cluster of so many brokers that all serve Kafka's clients."""
    return [await office(host, config) for host in await bed.cluster(count, config)]
