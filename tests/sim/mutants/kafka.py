"""Mutants of promises to Kafka clients; see ``mutants``."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from seaweedmq.broker.local import LocalPartition
from seaweedmq.broker.serve.inherited_producers import InheritedProducers
from seaweedmq.core.kafka.groups.classic_group import ClassicGroup
from seaweedmq.core.kafka.groups.shard_state import GroupShard
from seaweedmq.core.lineage import predecessor_chain
from seaweedmq.kafka.admin.cursors import CursorKey, Cursors
from seaweedmq.kafka.data import partition_reader
from seaweedmq.kafka.data.produce import ProduceHandlers
from seaweedmq.kafka.groups import committed_offsets
from seaweedmq.kafka.metadata.nodes import Nodes
from seaweedmq.kafka.metadata.partition_lookup import PartitionLookup
from seaweedmq.kafka.wire.reply_queue import ReplyQueue
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import OffsetRecord
from seaweedmq.shards.shard import Shard
from seaweedmq.shards.shard_log import ShardLog


def forget_kafka_producers_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    """A successor knows no producer, and accepts any first sequence."""

    async def nothing(inherited: Any, header: Any) -> None:
        """Search no predecessor."""

    patch.setattr(InheritedProducers, "learn", nothing)


def ask_the_last_segment_alone(patch: pytest.MonkeyPatch) -> None:
    """A producer without records in the last segment counts as unknown."""
    patch.setattr(predecessor_chain, "GENERATIONS_MAX", 1)


def acknowledge_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A producer gets its acknowledgement as soon as its batch is appended."""

    async def at_once(handlers: Any, outcome: Any, alone_by: float, replicated_by: float) -> Any:
        return outcome

    patch.setattr(ProduceHandlers, "_settle", at_once)


def answer_whoever_is_ready_first(patch: pytest.MonkeyPatch) -> None:
    """A connection sends a reply once it is ready, before replies to earlier requests."""
    filled = ReplyQueue.filled

    def at_once(queue: Any, slot: Any) -> None:
        queue._slots = deque(sorted(queue._slots, key=lambda slot: not slot.is_filled))
        filled(queue, slot)

    patch.setattr(ReplyQueue, "filled", at_once)


def go_on_with_any_cursor(patch: pytest.MonkeyPatch) -> None:
    """A reader continues at any idle cursor of its segment, regardless of the offset."""
    take = Cursors.take

    def any_of_the_segment(cursors: Any, key: CursorKey) -> Any:
        found = (other for other in cursors._idle if other[:2] == key[:2])
        return take(cursors, next(found, key))

    patch.setattr(Cursors, "take", any_of_the_segment)


def stamp_what_the_batch_says(patch: pytest.MonkeyPatch) -> None:
    """The leader epoch of batches never changes."""
    patched_head = partition_reader.patched_head
    patch.setattr(partition_reader, "patched_head", lambda payload, base, epoch: patched_head(payload, base, 0))


def answer_consumers_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader ignores the leader epoch that the client knows."""
    patch.setattr(PartitionLookup, "_check_epoch", lambda partitions, topic, slot, epoch: None)


def answer_before_it_is_appended(patch: pytest.MonkeyPatch) -> None:
    """A coordinator replies before it appends its records."""

    def at_once(shard: Any, more: Any) -> None:
        shard._answer(more.answers)
        shard._round.pairs += more.pairs
        shard._work.fire()

    patch.setattr(Shard, "_settle", at_once)


def answer_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A coordinator replies once its records are appended, before they are committed."""

    async def append(shard: Any, pairs: Any) -> None:
        await shard._log.append(pairs, shard._env.wall_us())

    patch.setattr(Shard, "_write", append)


def coordinate_though_others_may(patch: pytest.MonkeyPatch) -> None:
    """A coordinator does not check whether another broker has taken over its shard."""
    patch.setattr(LocalPartition, "is_sure", True)


def load_the_open_segment_alone(patch: pytest.MonkeyPatch) -> None:
    """A coordinator loads only the records of its open segment."""

    async def start(shard_log: Any) -> int:
        return int(shard_log.partition.segment.start_offset)

    patch.setattr(ShardLog, "_start", start)


def leave_offsets_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot omits committed offsets, and the records below it are deleted."""
    snapshot = GroupShard.snapshot

    def members_alone(state: Any) -> Iterator[Any]:
        return (record for record in snapshot(state) if not isinstance(record, OffsetRecord))

    patch.setattr(GroupShard, "snapshot", members_alone)


def let_any_generation_commit(patch: pytest.MonkeyPatch) -> None:
    """A former member's commits are accepted."""
    patch.setattr(ClassicGroup, "commit_error", lambda group, commit: Code.NONE)


def send_away_who_asks_where_to_begin(patch: pytest.MonkeyPatch) -> None:
    """A broker that no longer coordinates the group answers OffsetFetch without errors of the partitions."""
    patch.setattr(committed_offsets, "_unstable", lambda *_: [])


def show_none_but_who_is_registered(patch: pytest.MonkeyPatch) -> None:
    """Metadata lists registered brokers only, and is empty while none is registered."""
    patch.setattr(Nodes, "shown", lambda nodes: nodes.live())
