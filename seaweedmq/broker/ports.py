"""Ports of a broker for a gateway in its process: the partitions that it leads, the cluster, and its runtime.

A gateway's handlers take those that they need, so that a constructor shows what a handler may touch.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.local import LocalPartition, ServingContext
from seaweedmq.broker.memory.broker_memory import KafkaMemory
from seaweedmq.broker.serve.kafka_group_router import KafkaGroupRouter
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import NotFound, StaleMetadata, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BrokerApi, DirectoryStore, Environment, MetaStore

TOPICS_KNOWN_MAX = 1_000
"""Topics whose partitions are cached."""


class PartitionAccess:
    """The partitions of all topics, and those that this broker leads: to find, to append to, and to read."""

    def __init__(self, serving: ServingContext) -> None:
        self.serving = serving
        self._known: OrderedDict[TopicName, _Partitions] = OrderedDict()

    def lineages(self, name: TopicName) -> Mapping[int, Sequence[Segment]]:
        """Return the present segments of every partition, oldest first, by number; empty if there is no such topic.

        Without partitions the number is the lowest slot of each range.
        """
        return self._partitions_of(name).lineages

    def leads(self, name: TopicName, number: int) -> LocalPartition:
        """Return a partition that this broker leads, by its number in ``lineages``.

        Raises NotFound if there is no such topic or partition, StaleMetadata if another broker is its primary,
        Unavailable if it has none at the moment, and Corrupt, with the file's name, if its open segment cannot be
        recovered.
        """
        known = self._partitions_of(name)
        partition = known.led.get(number)
        if partition is not None and not partition.is_over:
            return partition
        topic, lineage = self.serving.view.topics.get(name), known.lineages.get(number)
        if topic is None or lineage is None:
            raise NotFound(f"there is no partition {number} of topic {name}: refresh the metadata")
        segment = lineage[-1]
        if not segment.is_open:
            raise Unavailable(f"partition {number} of {name} has no open segment at the moment: retry")
        check_recoverable(segment)
        found = self.serving.lookup.try_segment(name, segment.id, topic.uid)
        if found is None or found.open is None:
            raise StaleMetadata(f"segment {segment} is served by broker {segment.primary}: refresh the metadata")
        known.led[number] = LocalPartition(self.serving, topic, lineage, found.open)
        return known.led[number]

    def producers(self, name: TopicName, number: int) -> Sequence[ProducerState]:
        """Return the producer states of a partition. Errors are those of :meth:`leads`."""
        return self.leads(name, number).open_segment.log.producers.snapshot()

    def _partitions_of(self, name: TopicName) -> "_Partitions":
        known = self._known.get(name)
        if known is None or known.seen != self.serving.view.changes:
            known = self._known[name] = _Partitions(self.serving.view, name)
            self._known.move_to_end(name)
            if len(self._known) > TOPICS_KNOWN_MAX:
                self._known.popitem(last=False)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The cluster of a broker: its metadata, its other brokers, its storage, and the broker's identity in it."""

    view: ClusterView
    meta: MetaStore
    store: DirectoryStore
    api: BrokerApi
    """The broker itself, which forwards calls that another one has to answer."""
    dial: Callable[[str], BrokerApi]
    """Returns a connection to a broker by id; raises Unavailable if it is not registered."""
    broker_id: Callable[[], str]
    """Returns the broker id of the current lease; "" without one."""
    kafka_address: str
    """Address at which Kafka clients dial this process; "" for none."""
    kafka_groups: KafkaGroupRouter
    """Router of calls about Kafka groups; a gateway registers their handler there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuntime:
    """The process of a broker: its settings, clocks, randomness, memory and tasks."""

    config: BrokerConfig
    env: Environment
    clock: ConfirmedClock
    memory: KafkaMemory
    """Memory reserved for a gateway."""
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Starts a task that ends; an error that it does not handle ends the broker."""


class GatewayPorts(NamedTuple):
    """The ports of one broker."""

    partitions: PartitionAccess
    cluster: ClusterAccess
    runtime: BrokerRuntime


class _Partitions:
    """The partitions of one topic, as of one moment of the view."""

    def __init__(self, view: ClusterView, name: TopicName) -> None:
        self.seen = view.changes
        self.lineages: dict[int, list[Segment]] = {}
        self.led: dict[int, LocalPartition] = {}
        for segment in sorted(view.segments_of(name).values(), key=lambda s: s.id):
            self.lineages.setdefault(segment.slots.lo, []).append(segment)
