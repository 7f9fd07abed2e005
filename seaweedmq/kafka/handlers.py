"""Assembly of the request handlers of one broker."""

from collections.abc import Sequence

from seaweedmq.broker.ports import GatewayPorts
from seaweedmq.kafka.admin.changes import TopicChanges
from seaweedmq.kafka.admin.configs import ConfigHandlers
from seaweedmq.kafka.admin.cursors import Cursors
from seaweedmq.kafka.admin.inventory import InventoryHandlers
from seaweedmq.kafka.admin.topics import TopicHandlers
from seaweedmq.kafka.data.delete_records import DeleteRecordsHandlers
from seaweedmq.kafka.data.fetch import FetchHandlers
from seaweedmq.kafka.data.fetch_memory import FetchMemory
from seaweedmq.kafka.data.init_producer_id import InitProducerIdHandlers
from seaweedmq.kafka.data.list_offsets import ListOffsetsHandlers
from seaweedmq.kafka.data.partition_reader import PartitionReader
from seaweedmq.kafka.data.produce import ProduceHandlers
from seaweedmq.kafka.data.producer_ids import ProducerIds
from seaweedmq.kafka.data.reencode import Reencoder
from seaweedmq.kafka.groups.classic import ClassicGroupHandlers
from seaweedmq.kafka.groups.committed_offsets import CommittedOffsetsHandlers
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.groups.find_coordinator import FindCoordinatorHandlers
from seaweedmq.kafka.groups.group_admin import GroupAdmin
from seaweedmq.kafka.metadata.metadata_api import MetadataHandlers
from seaweedmq.kafka.metadata.nodes import Nodes
from seaweedmq.kafka.metadata.partition_lookup import PartitionLookup
from seaweedmq.kafka.metadata.topic_creation import TopicCreator
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.unsupported_apis import UnsupportedHandlers
from seaweedmq.kafka.wire.messages import HandlerGroup
from seaweedmq.shards.snapshots import AFTER_BYTES


class Handlers:
    """Request handlers of one broker."""

    def __init__(self, ports: GatewayPorts, *, snapshot_after_bytes: int = AFTER_BYTES) -> None:
        """Create the handlers; coordinators write a snapshot after ``snapshot_after_bytes`` of other records."""
        partitions, cluster, runtime = ports
        config, env, memory = runtime.config, runtime.env, runtime.memory
        self.nodes = Nodes(cluster.view, cluster.meta, cluster.store, env, own_address=cluster.kafka_address)
        self.directory = TopicDirectory(cluster.view, self.nodes, config.kafka_namespace)
        changes = TopicChanges(cluster.api, cluster.view, env.rng)
        lookup = PartitionLookup(partitions, self.directory)
        coordinators = Coordinators(*ports, snapshot_after_bytes=snapshot_after_bytes)
        runtime.spawn(coordinators.run(), "coordinators of Kafka groups")  # until the broker has left the cluster
        cluster.kafka_groups.answer = GroupAdmin(partitions, cluster, coordinators)
        self._cursors = Cursors(
            runtime.spawn, cursors_max=config.kafka_cursors_max, rest_bytes_max=memory.reencode_bytes // 2
        )
        self.fetch_memory = FetchMemory(memory.fetch_bytes)
        reader = PartitionReader(self._cursors, Reencoder(memory.reencode_bytes // 2))
        self.all: Sequence[HandlerGroup] = (
            MetadataHandlers(cluster, self.directory, TopicCreator(self.directory, changes, config)),
            TopicHandlers(self.directory, changes, config),
            ConfigHandlers(
                self.directory,
                changes,
                config,
                broker_id=cluster.broker_id,
                fetch_bytes_max=self.fetch_memory.reply_bytes_max,
            ),
            ProduceHandlers(runtime, lookup),
            FetchHandlers(lookup, reader, self.fetch_memory, env.rng),
            ListOffsetsHandlers(lookup),
            FindCoordinatorHandlers(coordinators, self.nodes),
            ClassicGroupHandlers(coordinators, env),
            CommittedOffsetsHandlers(coordinators, self.directory),
            DeleteRecordsHandlers(lookup, changes),
            InventoryHandlers(
                self.directory, cluster.store, broker_id=cluster.broker_id, producers=partitions.producers
            ),
            InitProducerIdHandlers(ProducerIds(cluster.meta, cluster.store, env.rng)),
            UnsupportedHandlers(self.directory),
        )

    async def close(self) -> None:
        """Release the cursors that are held between requests."""
        await self._cursors.close()
