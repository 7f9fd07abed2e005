"""A member of a group as a reader: joins the group, and reads the segments that are assigned to it."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from seaweedmq.client.background_tasks import BackgroundTasks
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.client.group.completion import wait_finished
from seaweedmq.client.group.dispatcher import Dispatcher
from seaweedmq.client.group.member_stream import MemberStream
from seaweedmq.client.group.membership import GroupMembership
from seaweedmq.client.group.options import GroupOptions
from seaweedmq.client.group.origin import AssignedSegment
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import Message, check_columns
from seaweedmq.client.subscribe.options import ReadOptions
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.core.member.record_dispatch import Bounds, DeadRecord
from seaweedmq.errors import Closed, OutOfRange, SeaweedMQError, Unavailable, fresh
from seaweedmq.model.messages.groups import GroupOpen
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)


class MemberReader(TopicReader):
    """A reader of the segments that a group assigns to one of its members; the dispatcher gets the rows.

    The membership begins and ends reading.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[[Any], None],
        options: ReadOptions,
        member: GroupOptions,
        give_up: Callable[[DeadRecord[Message]], None],
    ) -> None:
        super().__init__(cluster, topic, config, on_close, options)
        rng = cluster.env.rng
        self.group = member.group
        self.member = f"m-{rng.getrandbits(64):016x}" if member.member is None else member.member
        self._incarnation = rng.getrandbits(63)
        self._loop = asyncio.get_running_loop()
        self._assignment_lease = AssignmentLease(cluster.env.boot_s)
        bounds = Bounds(
            limit=options.limit,
            deliveries_max=member.max_deliveries,
            unacked_max=member.max_unacked,
            unacked_bytes_max=config.group_unacked_bytes_max,
        )
        self._dispatcher = Dispatcher(
            f"group {member.group}",
            bounds,
            self._assignment_lease,
            self._loop.time,
            give_up,
            auto_ack=member.auto_ack,
            columns=options.columns,
        )
        self._wakeup = self._dispatcher.wakeup
        self._membership = GroupMembership(self, self._dispatcher, config, f"group {member.group} of {topic}")
        self._helpers = BackgroundTasks(f"in {member.group}", self._on_helper_failed)
        self._error: SeaweedMQError | None = None

    async def open(self) -> None:
        """Join the group, and return after the first assignment; raises as ``Client.subscriber``."""
        try:
            description = await (self._view.whole() if self._stop_at_latest else self.description(True))
            check_columns(self._columns, self.schema, self.has_partitions)
            if self._stop_at_latest:
                segments = description.by_id()
                ends = await self._stop_offsets(segments, ())
                self._stops = {number: end for number, end in ends.items() if end > segments[number].start_offset}
            opening = self._opening(description.topic.uid)
            commits = self._dispatcher.commits
            stream = MemberStream(self._cluster, opening, self._membership, commits, self._assignment_lease)
            await self._membership.join(stream, self._config.admin_timeout_s)
        except TimeoutError:
            await self.close()
            raise Unavailable(
                f"could not join group {self.group} of {self._topic} within {self._config.admin_timeout_s:g} s: "
                "the cluster has no leader: retry"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._helpers.spawn(self._membership.keep(), "commit loop")
        if self._stops is not None:
            self._helpers.spawn(self._watch_stop(self._stops), "watch of the stop offsets")

    def _opening(self, topic_uid: int) -> GroupOpen:
        return GroupOpen(
            group=self.group,
            topic=self._topic,
            member=self.member,
            incarnation=self._incarnation,
            start=self._start,
            client=f"{socket.gethostname()} {os.getpid()}",
            held={},
            topic_uid=topic_uid,
        )

    def start_reading(self, assigned: AssignedSegment) -> None:
        """Begin to read a segment."""
        self._helpers.spawn(self._read(assigned, assigned.start), f"opening of segment {assigned.segment}")

    def stop_reading(self, assigned: AssignedSegment) -> None:
        """Stop reading a segment."""
        begin = self.begun_at(assigned.segment)
        if begin is not None:  # The group's first offset is committed even if no record arrived.
            self._dispatcher.begin_at(assigned, begin)
        self._drop_reader(assigned.segment)

    def begun_at(self, segment: int) -> int | None:
        """Return the offset at which reading of a segment began; None if unknown, or if it is not read."""
        reader = self._readers.get(segment)
        return None if reader is None else reader.begin_offset

    def fail(self, error: SeaweedMQError) -> None:
        """End the subscription with an error, which iteration raises."""
        if self._error is None:
            self._error = error
            self._membership.end()
        self._wakeup.set()

    async def _read(self, assigned: AssignedSegment, start: Start) -> None:
        segment = await self._segment(assigned.segment)
        if segment is None or assigned.is_revoked or self._ended:
            return  # The coordinator notices a pruned segment by itself.
        stop = None
        if self._stops is not None:
            stop = self._stops.get(segment.id)
            if stop is None:
                return
        if start.kind is StartKind.OFFSET and start.value <= segment.start_offset:
            start = EARLIEST
        self._start_reader(segment, start, stop)

    async def _segment(self, number: int) -> Segment | None:
        """Return a segment, waiting for a broker that knows it; None if it was pruned."""
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                description = await self.description(attempt.retry_state.attempt_number > 1, (number,))
                found = description.segment(number)
                if found is None and description.topic.next_segment <= number:
                    raise Unavailable(f"segment {number} of {self._topic} is not known yet: retry")
                return found
        raise AssertionError("retrying ended without a result")

    def _on_reader_error(self, assigned: AssignedSegment, reader: SegmentReader, error: SeaweedMQError) -> None:
        if not isinstance(error, OutOfRange):
            self.on_arrived(reader)
            raise fresh(error)
        log.warning("records removed: group %s continues from the earliest: %s", self.group, error)
        self.stop_reading(assigned)
        self._helpers.spawn(self._read(assigned, EARLIEST), f"opening of segment {assigned.segment}")

    def _pull_rows(self) -> None:
        while self._dispatcher.wants_rows():
            pulled = self._pull()
            if pulled is None:
                return
            reader, arrived = pulled
            assigned = self._dispatcher.assigned(reader.segment.id)
            if assigned is None or self._readers.get(assigned.segment) is not reader:
                raise AssertionError(f"rows of {reader.segment} arrived, which is not assigned")
            if arrived is not None:
                self._dispatcher.receive(assigned, arrived)
                self._membership.on_rows()
            elif reader.error is None:
                self._drop_reader(assigned.segment)
                self._dispatcher.end_at(assigned, reader.end_offset)
            else:
                self._on_reader_error(assigned, reader, reader.error)

    async def _watch_stop(self, stops: Mapping[int, int]) -> None:
        """End iteration when the group has reached the stops."""

        def is_done_here() -> bool:
            return self._dispatcher.is_finished(stops)

        await wait_finished(self._cluster, self.group, self._topic, self.description, stops, is_done_here)
        self._end()

    def _on_helper_failed(self, what: str, error: BaseException) -> None:
        if not isinstance(error, SeaweedMQError):
            broken = Closed(f"the {what} in group {self.group} failed: {error!r}: report this")
            broken.__cause__ = error
            error = broken
        self.fail(error)
