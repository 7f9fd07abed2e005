"""Handler of DeleteRecords, which deletes the records of partitions below an offset."""

from collections.abc import Mapping
from typing import Any

from seaweedmq.errors import OutOfRange, SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges, for_each, patience_s
from seaweedmq.kafka.metadata.partition_lookup import PartitionLookup
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import DeleteRecordsResponse, HandlerGroup, Reply, Request
from seaweedmq.model.kafka.codes import Code
from seaweedmq.runtime.turns import Turn

ALL = -1
"""Offset in a request that means the high watermark: delete all committed records."""
NO_OFFSET = -1


class DeleteRecordsHandlers(HandlerGroup):
    """Handler of DeleteRecords for partitions led by this broker; the cluster's leader stores the low watermarks."""

    def __init__(self, partitions: PartitionLookup, changes: TopicChanges) -> None:
        self._partitions = partitions
        self._changes = changes

    async def delete_records(self, request: Request) -> Reply:
        """Delete the records below an offset in each named partition."""
        turn = request.turn
        named: dict[str, dict[int, int]] = {}
        for topic in request.body.topics:
            for each in topic.partitions:  # the last mention of a partition counts, as in Kafka
                named.setdefault(topic.name, {})[each.partition_index] = each.offset
                await turn.pause()
        topics = await for_each(named.items(), lambda topic: self._topic(*topic, request), turn)
        return DeleteRecordsResponse(topics=topics)

    async def _topic(self, name: str, before: Mapping[int, int], request: Request) -> Any:
        outcomes: dict[int, int | SeaweedMQError] = {}
        try:
            topic = self._partitions.topic(name)
            _check(topic)
            wanted, outcomes = await self._offsets(topic, before, request.turn)
            outcomes |= await self._delete(topic, wanted, request)
        except SeaweedMQError as error:
            outcomes = {**dict.fromkeys(before, unraised(error)), **outcomes}
        result = DeleteRecordsResponse.DeleteRecordsTopicResult
        partitions = []
        for partition in before:
            outcome = outcomes[partition]
            partitions.append(
                result.DeleteRecordsPartitionResult(
                    partition_index=partition,
                    low_watermark=outcome if isinstance(outcome, int) else NO_OFFSET,
                    error_code=Code.NONE if isinstance(outcome, int) else code_of(outcome, scope=ErrorScope.DATA),
                )
            )
            await request.turn.pause()
        return result(name=name, partitions=partitions)

    async def _offsets(
        self, topic: PartitionedTopic, before: Mapping[int, int], turn: Turn
    ) -> tuple[dict[int, int], dict[int, int | SeaweedMQError]]:
        """Return the offsets below which to delete records, and the errors of the other partitions."""
        wanted: dict[int, int] = {}
        refused: dict[int, int | SeaweedMQError] = {}
        for partition, offset in before.items():
            try:
                led = self._partitions.led(topic, partition)
                if offset < ALL:
                    raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
                wanted[partition] = led.high_watermark if offset == ALL else offset
            except SeaweedMQError as error:
                refused[partition] = unraised(error)
            await turn.pause()
        return wanted, refused

    async def _delete(
        self, topic: PartitionedTopic, before: Mapping[int, int], request: Request
    ) -> dict[int, int | SeaweedMQError]:
        if not before:
            return {}
        try:
            timeout_s = patience_s(request.body.timeout_ms)
            return dict(await self._changes.delete_records(topic.topic, before, timeout_s, request.context))
        except OutOfRange as error:
            if len(before) == 1:
                return dict.fromkeys(before, unraised(error))
        outcomes: dict[int, int | SeaweedMQError] = {}
        for partition, offset in before.items():  # finds the partitions that fail
            outcomes |= await self._delete(topic, {partition: offset}, request)
        return outcomes


def _check(topic: PartitionedTopic) -> None:
    if topic.is_internal:
        raise KafkaError(Code.INVALID_TOPIC_EXCEPTION, f"topic {topic.name} is internal: its records cannot be deleted")
    if not topic.is_writable:
        raise KafkaError(
            Code.POLICY_VIOLATION, f"topic {topic.name} is a ring: its records cannot be deleted by offset"
        )
    if not topic.topic.settings.expires:
        raise KafkaError(
            Code.POLICY_VIOLATION, f"topic {topic.name} is compacted: add delete to cleanup.policy to delete records"
        )
