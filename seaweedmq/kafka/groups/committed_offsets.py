"""Handlers of OffsetCommit, OffsetFetch and OffsetDelete."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import HandlerGroup, OffsetDeleteResponse, OffsetFetchResponse, Reply, Request
from seaweedmq.kafka.wire.replies.group_replies import TopicErrors, commit_reply
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import OffsetValue
from seaweedmq.runtime.turns import Turn, at_once, in_turns

MANY_GROUPS_FROM, NAMED_ERRORS_FROM = 8, 9
NOT_SETTLED_IN, NOT_SETTLED_FROM = 7, 9
"""Versions of OffsetFetch, see ``CommittedOffsetsHandlers.offset_fetch``."""
NO_OFFSET = -1
RETRY_OFFSET = -1_000
"""Committed offset in a reply for a partition that is not settled. librdkafka uses the offset in spite of the error if
its assignment changed meanwhile. At -1 it starts at ``auto.offset.reset``; at this value, its own
``RD_KAFKA_OFFSET_STORED``, it retries."""
ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS})
AT_ONCE = 20
"""Maximum number of partitions in one event: each costs about 60 us to commit."""
PARTS_IN_FLIGHT = 10
"""Maximum number of events of one request that are written and answered together, in one iteration of the loop."""
UNKNOWN = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
TopicOffsets: TypeAlias = tuple[str, Sequence[tuple[int, OffsetValue | None]]]
"""A topic, with the number and the committed offset of each partition."""


class CommittedOffsetsHandlers(HandlerGroup):
    """Handlers of requests about committed offsets, also of the group without a name: very old consumers use it."""

    def __init__(self, coordinators: Coordinators, directory: TopicDirectory) -> None:
        self._coordinators = coordinators
        self._directory = directory

    def offset_commit(self, request: Request) -> Awaitable[Reply]:
        """Handle OffsetCommit of existing partitions; many are committed in parts, with pauses for other tasks."""
        topics, version = request.body.topics, request.version
        if sum(len(topic.partitions) + 1 for topic in topics) > AT_ONCE:
            return self._commit_in_parts(request)
        return self._commit(request, topics, lambda said: at_once(_commit_reply(version, said)))

    async def _commit_in_parts(self, request: Request) -> Reply:
        said: list[_Joined] = []
        parts = _parts(request.body.topics)
        while some := list(islice(parts, PARTS_IN_FLIGHT)):
            answers = []
            for part in some:
                answers.append(self._commit(request, part, list))
                await request.turn.pause()
            for part, errors in zip(some, await asyncio.gather(*answers), strict=True):
                _join(said, part, errors)
            await request.turn.pause()
        return await in_turns(_commit_reply(request.version, said), request.turn)

    def _commit(
        self, request: Request, topics: Sequence[Any], reply_of: Callable[[list[TopicErrors]], Any]
    ) -> "asyncio.Future[Any]":
        body, version = request.body, request.version
        shard = self._coordinators.shard_of(body.group_id)
        counts = [self._count(topic.name) for topic in topics]
        topic_ids = [
            self._coordinators.topic_ids.known(topic.name) if n else None
            for topic, n in zip(topics, counts, strict=True)
        ]
        offsets = tuple(
            events.OffsetToCommit(
                topic=topic.name,
                partition=each.partition_index,
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=each.committed_metadata or "",
                topic_id=topic_id,
            )
            for topic, count, topic_id in zip(topics, counts, topic_ids, strict=True)
            for each in topic.partitions
            if 0 <= each.partition_index < count
        )

        def said_of(reply: events.CommitReply) -> Any:
            return reply_of(_with_errors(topics, counts, reply.errors))

        if not offsets:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_result(said_of(events.CommitReply(token=0, errors=())))
            return answer
        return shard.submit(
            lambda token: events.CommitOffsets(
                token=token,
                group=body.group_id,
                member=body.member_id,
                instance=body.group_instance_id,
                generation=body.generation_id_or_member_epoch,
                retention_ms=body.retention_time_ms if body.retention_time_ms >= 0 else None,
                offsets=offsets,
                is_v9=version >= NAMED_ERRORS_FROM,
            ),
            said_of,
        )

    def _count(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if there is no such topic."""
        try:
            return self._directory.find(topic).count
        except KafkaError:
            return 0

    async def offset_fetch(self, request: Request) -> Reply:
        """Handle OffsetFetch of one or many groups; all offsets are stable, since there are no transactions.

        While the coordinator is at another broker or loads, no offset is stable. In the versions that librdkafka
        uses, each partition then has UNSTABLE_OFFSET_COMMIT in addition to the error of its group. librdkafka gives up
        on a group with an error (its issue 5586: a consumer that never starts), and retries only after
        UNSTABLE_OFFSET_COMMIT. Other clients check the error of the group first. librdkafka requests stable offsets in
        version 9, and up to librdkafka 2.3 in version 7. Sarama checks the errors of partitions first: it uses version
        8, and in version 7 usually requests any offsets.
        """
        body = request.body
        if request.version >= MANY_GROUPS_FROM:
            return OffsetFetchResponse(groups=[await self._of_group(group, request) for group in body.groups])
        make = OffsetFetchResponse.OffsetFetchResponseTopic
        of_each = make.OffsetFetchResponsePartition
        try:
            committed = await self._committed(body.group_id, body.topics, request.turn)
        except SeaweedMQError as error:
            code = code_of(error, scope=ErrorScope.COORDINATOR)
            if code not in ELSEWHERE or request.version != NOT_SETTLED_IN or not body.require_stable:
                raise
            return OffsetFetchResponse(topics=_unstable(make, of_each, body.topics), error_code=code)
        return OffsetFetchResponse(topics=await _with_offsets(make, of_each, committed, request.turn))

    async def _of_group(self, group: Any, request: Request) -> Any:
        make = OffsetFetchResponse.OffsetFetchResponseGroup
        of_topic = make.OffsetFetchResponseTopics
        of_each = of_topic.OffsetFetchResponsePartitions
        try:
            committed = await self._committed(group.group_id, group.topics, request.turn)
        except SeaweedMQError as error:
            code = code_of(error, scope=ErrorScope.COORDINATOR)
            is_listed = code in ELSEWHERE and request.version >= NOT_SETTLED_FROM
            topics = _unstable(of_topic, of_each, group.topics) if is_listed else []
            return make(group_id=group.group_id, topics=topics, error_code=code)
        topics = await _with_offsets(of_topic, of_each, committed, request.turn)
        return make(group_id=group.group_id, topics=topics)

    async def _committed(self, group: str, topics: Sequence[Any] | None, turn: Turn) -> list[TopicOffsets]:
        """Return the offsets of the named topics, or of all topics with offsets if ``topics`` is None."""
        asked: list[events.Partition] | None = None if topics is None else []
        for each in topics or ():
            assert asked is not None
            for number in each.partition_indexes:
                asked.append((each.name, number))
                await turn.pause()
        try:
            found = await self._seen(group, asked, turn)
        except Unavailable as error:
            # The exact code, COORDINATOR_NOT_AVAILABLE, ends consumers of Java up to 3.8 and of aiokafka in this reply;
            # after NOT_COORDINATOR they look for the coordinator.
            raise KafkaError(Code.NOT_COORDINATOR, str(error)) from error
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic, number in sorted(found):
                by_topic.setdefault(topic, []).append(number)
                await turn.pause()
            named = list(by_topic.items())
        else:
            named = [(topic.name, topic.partition_indexes) for topic in topics]
        offsets: list[TopicOffsets] = []
        for name, numbers in named:
            of_topic = []
            for number in numbers:
                of_topic.append((number, found.get((name, number))))
                await turn.pause()
            offsets.append((name, of_topic))
        return offsets

    async def _seen(
        self, group: str, asked: Sequence[events.Partition] | None, turn: Turn
    ) -> Mapping[events.Partition, OffsetValue]:
        shard, found = self._coordinators.shard_of(group), dict[events.Partition, OffsetValue]()
        if asked is None:
            found = dict(await shard.read(lambda state: state.offsets(group, None)))
        else:
            for first in range(0, max(len(asked), 1), AT_ONCE):  # runs once for an empty list, to check the coordinator
                part = asked[first : first + AT_ONCE]
                found |= await shard.read(lambda state, part=part: state.offsets(group, part))  # type: ignore[misc]
                await turn.pause()
        return await self._coordinators.topic_ids.without_deleted(found)

    async def offset_delete(self, request: Request) -> Reply:
        """Handle OffsetDelete; raise KafkaError INVALID_GROUP_ID if the group id is empty."""
        body = request.body
        if not body.group_id:
            raise KafkaError(Code.INVALID_GROUP_ID, "group id is empty: name the group whose offsets to delete")
        make = OffsetDeleteResponse.OffsetDeleteResponseTopic
        of_each = make.OffsetDeleteResponsePartition
        said: list[_Joined] = []
        for part in _parts(body.topics):
            error, of_part = await self._delete(body.group_id, part)
            if error:
                return OffsetDeleteResponse(error_code=error)
            _join(said, part, of_part)
            await request.turn.pause()
        return OffsetDeleteResponse(
            topics=[
                make(name=name, partitions=[of_each(partition_index=n, error_code=error) for n, error in partitions])
                for name, partitions in said
                if partitions
            ]
        )

    async def _delete(self, group: str, topics: Sequence[Any]) -> tuple[int, list[TopicErrors]]:
        """Return the error of the group, and those of its partitions."""
        counts = [self._count(topic.name) for topic in topics]
        partitions = tuple(
            (topic.name, each.partition_index)
            for topic, count in zip(topics, counts, strict=True)
            for each in topic.partitions
            if 0 <= each.partition_index < count
        )
        reply = await self._coordinators.shard_of(group).submit(
            lambda token: events.DeleteOffsets(token, group, partitions)
        )
        assert isinstance(reply, events.DeleteOffsetsReply)
        return reply.error, [] if reply.error else _with_errors(topics, counts, reply.errors)


class _Part(NamedTuple):
    """Some partitions of a topic in a request."""

    name: str
    partitions: Sequence[Any]
    is_rest: bool
    """Whether an earlier part has the preceding partitions of the topic."""


def _parts(topics: Sequence[Any]) -> Iterator[list[_Part]]:
    """Yield the topics of a request in lists of about ``AT_ONCE`` partitions, at least one list."""
    part: list[_Part] = []
    left = AT_ONCE
    for topic in topics:
        partitions, first = topic.partitions, 0
        while True:
            some = partitions[first : first + max(left, 1)]
            part.append(_Part(topic.name, some, is_rest=first > 0))
            first, left = first + len(some), left - len(some) - 1
            if left <= 0:
                yield part
                part, left = [], AT_ONCE
            if first >= len(partitions):
                break
    if part or not topics:
        yield part


def _commit_reply(version: int, said: Iterable[TopicErrors]) -> Generator[None, None, Reply]:
    """Make the reply in steps; as in Apache Kafka, it omits topics without partitions."""
    return commit_reply(version, [topic for topic in said if topic[1]])


_Joined: TypeAlias = tuple[str, list[tuple[int, int]]]
"""``TopicErrors`` with a mutable list of errors."""


def _join(said: list[_Joined], part: Sequence[_Part], errors: Iterable[TopicErrors]) -> None:
    """Append the errors of a part to those of earlier parts; a topic split over parts stays one entry."""
    for topic, (name, of_topic) in zip(part, errors, strict=True):
        if topic.is_rest:
            said[-1][1].extend(of_topic)
        else:
            said.append((name, list(of_topic)))


def _with_errors(topics: Sequence[Any], counts: Sequence[int], errors: Iterable[int]) -> list[TopicErrors]:
    """Return the error of each partition; ``errors`` has those of existing partitions only."""
    known = iter(errors)
    return [
        (
            topic.name,
            [(n, next(known) if 0 <= n < count else UNKNOWN) for n in (p.partition_index for p in topic.partitions)],
        )
        for topic, count in zip(topics, counts, strict=True)
    ]


async def _with_offsets(make_topic: Any, make: Any, committed: Iterable[TopicOffsets], turn: Turn) -> list[Any]:
    topics = []
    for topic, partitions in committed:
        made = []
        for number, value in partitions:
            made.append(
                make(partition_index=number, committed_offset=NO_OFFSET, metadata="")
                if value is None
                else make(
                    partition_index=number,
                    committed_offset=value.offset,
                    committed_leader_epoch=value.leader_epoch,
                    metadata=value.metadata,
                )
            )
            await turn.pause()
        topics.append(make_topic(name=topic, partitions=made))
    return topics


def _unstable(make_topic: Any, make: Any, topics: Sequence[Any] | None) -> list[Any]:
    """Return partitions with UNSTABLE_OFFSET_COMMIT, so that the client retries."""
    return [
        make_topic(
            name=topic.name,
            partitions=[
                make(
                    partition_index=number,
                    committed_offset=RETRY_OFFSET,
                    metadata="",
                    error_code=Code.UNSTABLE_OFFSET_COMMIT,
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in topics or ()
    ]
