"""Who answers which of Kafka's requests in one broker, put together."""

from collections.abc import Sequence

from seaweedmq.broker.local import LocalBroker
from seaweedmq.kafka.changes import TopicChanges
from seaweedmq.kafka.cluster import ClusterRoom
from seaweedmq.kafka.configs import ConfigsRoom
from seaweedmq.kafka.coordinators import Coordinators
from seaweedmq.kafka.cursors import Cursors
from seaweedmq.kafka.deletion import DeletionRoom
from seaweedmq.kafka.directory import Directory
from seaweedmq.kafka.fetch import FetchRoom
from seaweedmq.kafka.fetch_memory import FetchMemory
from seaweedmq.kafka.find_coordinator import CoordinatorRoom
from seaweedmq.kafka.gateway import Room
from seaweedmq.kafka.group_admin import GroupAdmin
from seaweedmq.kafka.group_offsets import GroupOffsetsRoom
from seaweedmq.kafka.groups import GroupRoom
from seaweedmq.kafka.identities import IdentitiesRoom
from seaweedmq.kafka.inventory import InventoryRoom
from seaweedmq.kafka.nodes import Nodes
from seaweedmq.kafka.offsets import OffsetsRoom
from seaweedmq.kafka.partitions import Partitions
from seaweedmq.kafka.produce import ProduceRoom
from seaweedmq.kafka.producer_ids import ProducerIds
from seaweedmq.kafka.reading import PartitionReader
from seaweedmq.kafka.reencode import Reencoder
from seaweedmq.kafka.refused import RefusedRoom
from seaweedmq.kafka.shard_snapshots import AFTER_BYTES
from seaweedmq.kafka.topics import TopicsRoom


class Rooms:
    """All of them, of one broker."""

    def __init__(self, local: LocalBroker, *, snapshot_after_bytes: int = AFTER_BYTES) -> None:
        """``snapshot_after_bytes``: a coordinator writes a snapshot of its groups after so much else."""
        config = local.config
        self.nodes = Nodes(local.view, local.meta, local.store, local.env, own_address=local.kafka_address)
        self.directory = Directory(local.view, self.nodes, config.kafka_namespace)
        changes = TopicChanges(local.api, local.view, local.env.rng)
        partitions = Partitions(local, self.directory)
        coordinators = Coordinators(local, snapshot_after_bytes=snapshot_after_bytes)
        local.spawn(coordinators.run(), "coordinators of Kafka groups")  # until the broker has left the cluster
        local.kafka_groups.answer = GroupAdmin(local, coordinators)
        self._cursors = Cursors(
            local.spawn,
            cursors_max=config.kafka_cursors_max,
            rest_bytes_max=local.memory.reencode_bytes // 2,
        )
        self.fetch_memory = FetchMemory(local.memory.fetch_bytes)
        reader = PartitionReader(self._cursors, Reencoder(local.memory.reencode_bytes // 2))
        self.all: Sequence[Room] = (
            ClusterRoom(local, self.directory, changes),
            TopicsRoom(self.directory, changes, config),
            ConfigsRoom(
                self.directory,
                changes,
                config,
                broker_id=lambda: local.id,
                fetch_bytes_max=self.fetch_memory.reply_bytes_max,
            ),
            ProduceRoom(local, partitions),
            FetchRoom(local, partitions, reader, self.fetch_memory),
            OffsetsRoom(partitions),
            CoordinatorRoom(coordinators, self.nodes),
            GroupRoom(coordinators, local.env),
            GroupOffsetsRoom(coordinators, self.directory),
            DeletionRoom(partitions, changes),
            InventoryRoom(self.directory, local.store, broker_id=lambda: local.id, producers=local.producers),
            IdentitiesRoom(ProducerIds(local.meta, local.store, local.env.rng)),
            RefusedRoom(self.directory),
        )

    async def close(self) -> None:
        """Give back what is held between requests."""
        await self._cursors.close()
