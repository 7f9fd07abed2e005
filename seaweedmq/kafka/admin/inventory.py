"""Handlers of DescribeLogDirs and DescribeProducers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, TopicDirectory
from seaweedmq.kafka.wire.error_mapping import ErrorScope, code_of
from seaweedmq.kafka.wire.messages import (
    DescribeLogDirsResponse,
    DescribeProducersResponse,
    HandlerGroup,
    Reply,
    Request,
)
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.producer import KAFKA_SEQUENCES, is_kafka_producer
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore

LOG_DIR = "seaweedmq"
"""Name of the one log directory: all brokers share one storage, whose path is not shown."""
LISTINGS_AT_ONCE = 8
LISTED_WITHIN_S = 30.0
NOT_KNOWN = -1


class InventoryHandlers(HandlerGroup):
    """Handlers of requests about partitions of which this broker is a replica, or the leader."""

    def __init__(
        self,
        directory: TopicDirectory,
        store: SegmentStore,
        *,
        broker_id: Callable[[], str],
        producers: Callable[[TopicName, int], Sequence[ProducerState]],
    ) -> None:
        """Create the handlers; ``producers`` returns the producers of the open segment with a slot.

        It raises NotFound, StaleMetadata or Unavailable if this broker is not the primary.
        """
        self._directory = directory
        self._store = store
        self._broker_id = broker_id
        self._producers = producers

    async def describe_log_dirs(self, request: Request) -> Reply:
        """Return the bytes of the files of each partition of which this broker is a replica.

        All brokers share one storage, so another replica counts the same files.
        """
        asked = request.body.topics
        if asked is None:
            wanted = {topic.name: set(range(topic.count)) for topic in self._directory.topics()}
        else:
            wanted = {}
            for topic in asked:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)
        error, topics = Code.NONE, []
        try:
            async with asyncio.timeout(LISTED_WITHIN_S):
                topics = await self._held(wanted)
        except (SeaweedMQError, TimeoutError) as failure:
            error = code_of(failure, scope=ErrorScope.ADMIN)
        return DescribeLogDirsResponse(
            error_code=Code.NONE,
            results=[
                DescribeLogDirsResponse.DescribeLogDirsResult(
                    error_code=error, log_dir=LOG_DIR, topics=topics, total_bytes=NOT_KNOWN, usable_bytes=NOT_KNOWN
                )
            ],
        )

    async def _held(self, wanted: Mapping[str, set[int]]) -> list[Any]:
        turns = asyncio.Semaphore(LISTINGS_AT_ONCE)

        async def held(topic: PartitionedTopic, partitions: Sequence[int]) -> Any:
            async with turns:
                return _sizes(topic, partitions, await self._sizes(topic))

        shown = (topic for topic in self._directory.topics() if topic.name in wanted)
        here = [(topic, self._replicated(topic, wanted[topic.name])) for topic in shown]
        return await asyncio.gather(*(held(topic, partitions) for topic, partitions in here if partitions))

    def _replicated(self, topic: PartitionedTopic, partitions: set[int]) -> list[int]:
        """Return the partitions of which this broker is a replica."""
        segments = {number: topic.segment(number) for number in sorted(partitions) if 0 <= number < topic.count}
        own = self._broker_id()
        return [number for number, segment in segments.items() if segment is not None and own in segment.replicas]

    async def _sizes(self, topic: PartitionedTopic) -> Counter[int]:
        """Return the bytes of files by the first slot of their segment."""
        segments = self._directory.view.segments_of(topic.topic.name)
        sizes: Counter[int] = Counter()
        for file in await self._store.list_topic_files(topic.topic.name, uid=topic.topic.uid):
            if file.segment in segments:
                sizes[segments[file.segment].slots.lo] += file.size_bytes
        return sizes

    async def describe_producers(self, request: Request) -> Reply:
        """Return the remembered producers of partitions that this broker leads."""
        result, topics = DescribeProducersResponse.TopicResponse, []
        for topic in request.body.topics:
            partitions = []
            for number in topic.partition_indexes:
                partitions.append(self._active(topic.name, number))
                await request.turn.pause()
            topics.append(result(name=topic.name, partitions=partitions))
        return DescribeProducersResponse(topics=topics)

    def _active(self, name: str, partition: int) -> Any:
        result = DescribeProducersResponse.TopicResponse.PartitionResponse
        try:
            topic = self._directory.find(name)
            states = self._producers(topic.topic.name, topic.slot(partition))
        except SeaweedMQError as error:
            code = code_of(error, scope=ErrorScope.DATA)
            return result(partition_index=partition, error_code=code, error_message=str(error), active_producers=[])
        return result(
            partition_index=partition,
            error_code=Code.NONE,
            error_message=None,
            active_producers=[
                result.ProducerState(
                    producer_id=state.producer_id,
                    producer_epoch=state.producer_epoch,
                    last_sequence=(state.next_sequence - 1) % KAFKA_SEQUENCES,
                    last_timestamp=NOT_KNOWN,
                    coordinator_epoch=NOT_KNOWN,
                    current_txn_start_offset=NOT_KNOWN,
                )
                for state in states
                if is_kafka_producer(state.producer_id)
            ],
        )


def _sizes(topic: PartitionedTopic, partitions: Sequence[int], by_slot: Mapping[int, int]) -> Any:
    result = DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
    return result(
        name=topic.name,
        partitions=[
            result.DescribeLogDirsPartition(
                partition_index=partition,
                partition_size=by_slot.get(topic.slot(partition), 0),
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )
