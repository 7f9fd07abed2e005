"""The rooms of admin requests on a real broker of the test bed, asked and answered in bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seaweedmq.broker.broker import Broker
from seaweedmq.codec import keys
from seaweedmq.codec.metadata import broker_from_json, broker_to_json
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, StaleMetadata
from seaweedmq.kafka.changes import TopicChanges
from seaweedmq.kafka.cluster import ClusterRoom
from seaweedmq.kafka.configs import ConfigsRoom
from seaweedmq.kafka.deletion import DeletionRoom
from seaweedmq.kafka.directory import Directory
from seaweedmq.kafka.gateway import Room
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
from seaweedmq.ports import Environment, MetaStore, Put, SegmentStore
from tests.broker.bed import CONFIG, Bed, Host

NAMESPACE = "kafka"


def rooms(
    *,
    view: ClusterView,
    meta: MetaStore,
    store: SegmentStore,
    env: Environment,
    config: BrokerConfig,
    broker: Broker,
    producers: Callable[[TopicName, int], Sequence[ProducerState]],
) -> tuple[Directory, list[Room]]:
    """What answers admin requests on one broker, and what they know of it."""
    directory = Directory(view, Nodes(view, meta, env), NAMESPACE)
    changes = TopicChanges(broker.api, view, env.rng)
    return directory, [
        ClusterRoom(directory, changes, config),
        TopicsRoom(directory, changes, config),
        ConfigsRoom(directory, changes, config, broker_id=lambda: broker.id),
        DeletionRoom(directory, changes),
        InventoryRoom(directory, store, broker_id=lambda: broker.id, producers=producers),
        IdentitiesRoom(ProducerIds(meta, env.rng)),
        RefusedRoom(directory),
    ]


class Office:
    """The rooms on one broker of the test bed."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self.host = host
        self.directory, found = rooms(
            view=host.inspect.view,
            meta=host.meta,
            store=host.bed.store,
            env=Environment(host.wall_us, host.bed.etcd.rng),
            config=config,
            broker=host.broker,
            producers=self._producers,
        )
        self.nodes = self.directory.nodes
        self.handlers: Mapping[int, Handler] = {api: h for room in found for api, h in room.handlers().items()}

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
