"""Handlers of ListOffsets and OffsetForLeaderEpoch: offsets of ends, times and leader epochs of partitions."""

import asyncio
from collections import Counter
from typing import Any

from seaweedmq.broker.local import LocalPartition
from seaweedmq.core.kafka.epochs import NO_EPOCH, NO_OFFSET, end_of_epoch, epoch_of
from seaweedmq.errors import DeadlineExceeded, SeaweedMQError, unraised
from seaweedmq.kafka.metadata.partition_lookup import PartitionLookup
from seaweedmq.kafka.wire.error_mapping import KafkaError, code_of
from seaweedmq.kafka.wire.messages import (
    HandlerGroup,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
    Reply,
    Request,
)
from seaweedmq.model.kafka.codes import Code

LATEST, EARLIEST, HIGHEST_TIME, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
KNOWN_FROM = {LATEST: 0, EARLIEST: 0, HIGHEST_TIME: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Special timestamp -> version of ListOffsets that introduced it."""
NO_TIME = -1
TIMEOUT_S = 30.0
"""Seconds for all searches of a request: the default, and the limit of what a client may request."""
US_PER_MS = 1000


class ListOffsetsHandlers(HandlerGroup):
    """Handlers of ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    async def list_offsets(self, request: Request) -> Reply:
        """Return the offset of a time or of a special timestamp in each requested partition."""
        body = request.body
        timeout_s = body.timeout_ms / 1000 if body.timeout_ms > 0 else TIMEOUT_S
        deadline = asyncio.get_running_loop().time() + min(timeout_s, TIMEOUT_S)
        make = ListOffsetsResponse.ListOffsetsTopicResponse
        times: Counter[tuple[str, int]] = Counter()
        for t in body.topics:
            for part in t.partitions:
                times[t.name, part.partition_index] += 1
                await request.turn.pause()
        topics = []
        for t in body.topics:
            listed: dict[int, Any] = {}
            for part in t.partitions:
                number = part.partition_index
                if number not in listed:
                    listed[number] = await self._listed(t.name, part, deadline, request.version, times[t.name, number])
                await request.turn.pause()
            if listed:
                topics.append(make(name=t.name, partitions=list(listed.values())))
        return ListOffsetsResponse(topics=topics)

    async def offset_for_leader_epoch(self, request: Request) -> Reply:
        """Return the end offsets of leader epochs, by which a consumer detects a truncated log."""
        make = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for t in request.body.topics:
            partitions = []
            for part in t.partitions:
                partitions.append(self._epoch_end(t.topic, part))
                await request.turn.pause()
            topics.append(make(topic=t.topic, partitions=partitions))
        return OffsetForLeaderEpochResponse(topics=topics)

    async def _listed(self, name: str, part: Any, deadline: float, version: int, times: int) -> Any:
        make = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
        error: Exception | None = None
        offset, time_ms, epoch = NO_OFFSET, NO_TIME, NO_EPOCH
        try:
            if times > 1:
                raise KafkaError(
                    Code.INVALID_REQUEST, f"partition {part.partition_index} of {name} is named twice: name it once"
                )
            if part.timestamp < 0 and KNOWN_FROM.get(part.timestamp, version + 1) > version:
                raise KafkaError(
                    Code.UNSUPPORTED_VERSION,
                    f"timestamp {part.timestamp} is unknown in version {version}: give milliseconds, or -1 to -5",
                )
            partition = self._partitions.led(
                self._partitions.topic(name), part.partition_index, part.current_leader_epoch
            )
            async with asyncio.timeout_at(deadline):
                offset, time_ms = await self._offset(partition, part.timestamp)
            epoch = NO_EPOCH if offset == NO_OFFSET else epoch_of(partition.lineage(), offset)
        except SeaweedMQError as failure:
            error = unraised(failure)
        except TimeoutError:
            error = DeadlineExceeded(f"offset of {name} not found in time: retry")
        return make(
            partition_index=part.partition_index,
            error_code=Code.NONE if error is None else code_of(error),
            old_style_offsets=[],
            timestamp=time_ms,
            offset=offset,
            leader_epoch=epoch,
        )

    async def _offset(self, partition: LocalPartition, wanted: int) -> tuple[int, int]:
        """Return an offset and its time in milliseconds; -1 for none."""
        if wanted == LATEST:
            return partition.high_watermark, NO_TIME
        if wanted == EARLIEST:
            return await partition.earliest(), NO_TIME
        if wanted == EARLIEST_LOCAL:
            return await partition.earliest_in_log(), NO_TIME
        if wanted == LATEST_TIERED:
            return await partition.tables_end() - 1, NO_TIME
        if wanted == HIGHEST_TIME:
            return _in_ms(await partition.latest_time())
        return _in_ms(await partition.find_time(wanted * US_PER_MS))

    def _epoch_end(self, name: str, part: Any) -> Any:
        make = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset
        code, epoch, end = Code.NONE, NO_EPOCH, NO_OFFSET
        try:
            partition = self._partitions.led(self._partitions.topic(name), part.partition, part.current_leader_epoch)
            epoch, end = end_of_epoch(partition.lineage(), partition.high_watermark, part.leader_epoch)
        except SeaweedMQError as error:
            code = code_of(error)
        return make(error_code=code, partition=part.partition, leader_epoch=epoch, end_offset=end)


def _in_ms(found: tuple[int, int] | None) -> tuple[int, int]:
    return (NO_OFFSET, NO_TIME) if found is None else (found[0], found[1] // US_PER_MS)
