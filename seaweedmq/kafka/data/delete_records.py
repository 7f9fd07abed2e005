"""DeleteRecords: partitions are cut off below an offset."""

from collections.abc import Mapping
from typing import Any

from seaweedmq.errors import OutOfRange, SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges, for_each, patience_s
from seaweedmq.kafka.metadata.partition_lookup import PartitionLookup
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import API, DeleteRecordsResponse, Handler, Reply, Request
from seaweedmq.runtime.turns import Turn

ALL = -1
"""Everything that is committed."""
NO_OFFSET = -1


class DeleteRecordsHandlers:
    """Answers DeleteRecords of the partitions that are led here; the leader of the cluster keeps where they begin."""

    def __init__(self, partitions: PartitionLookup, changes: TopicChanges) -> None:
        self._partitions = partitions
        self._changes = changes

    def handlers(self) -> dict[int, Handler]:
        """By API key."""
        return {API.DELETE_RECORDS: self.delete_records}

    async def delete_records(self, request: Request) -> Reply:
        """Delete what lies before an offset, of each partition that is named."""
        timeout_s = patience_s(request.body.timeout_ms)
        turn = request.turn
        named: dict[str, dict[int, int]] = {}
        for topic in request.body.topics:
            for each in topic.partitions:  # what is named again counts, as in Kafka
                named.setdefault(topic.name, {})[each.partition_index] = each.offset
                await turn.pause()
        topics = await for_each(named.items(), lambda topic: self._topic(*topic, timeout_s, turn), turn)
        return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    async def _topic(self, name: str, before: Mapping[int, int], timeout_s: float, turn: Turn) -> Any:
        outcomes: dict[int, int | SeaweedMQError] = {}
        try:
            topic = self._partitions.topic(name)
            _check(topic)
            wanted, outcomes = await self._offsets(topic, before, turn)
            outcomes |= await self._delete(topic, wanted, timeout_s)
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
                    error_code=Code.NONE if isinstance(outcome, int) else code_of(outcome, place=ErrorScope.DATA),
                )
            )
            await turn.pause()
        return result(name=name, partitions=partitions)

    async def _offsets(
        self, topic: PartitionedTopic, before: Mapping[int, int], turn: Turn
    ) -> tuple[dict[int, int], dict[int, int | SeaweedMQError]]:
        """Offsets below which records are deleted, and the partitions of which none are."""
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
        self, topic: PartitionedTopic, before: Mapping[int, int], timeout_s: float
    ) -> dict[int, int | SeaweedMQError]:
        if not before:
            return {}
        try:
            return dict(await self._changes.delete_records(topic.topic, before, timeout_s))
        except OutOfRange as error:
            if len(before) == 1:
                return dict.fromkeys(before, unraised(error))
        outcomes: dict[int, int | SeaweedMQError] = {}
        for partition, offset in before.items():  # which of them is it?
            outcomes |= await self._delete(topic, {partition: offset}, timeout_s)
        return outcomes


def _check(topic: PartitionedTopic) -> None:
    if topic.is_internal:
        raise KafkaError(Code.INVALID_TOPIC_EXCEPTION, f"topic {topic.name} is Kafka's own: its records stay")
    if not topic.is_writable:
        raise KafkaError(Code.POLICY_VIOLATION, f"topic {topic.name} is a ring: records below an offset stay")
    if not topic.topic.settings.expires:
        raise KafkaError(
            Code.POLICY_VIOLATION, f"topic {topic.name} is compacted: with cleanup.policy=compact alone records stay"
        )
