"""The follower's side: hold what primaries send, refuse them once fenced, write it out when the leader says so."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing, suppress
from typing import Any

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.broker.intake import Intake
from seaweedmq.broker.log_file import create_log_file
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.replica import Replica
from seaweedmq.core.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound, SeaweedMQError, Unavailable
from seaweedmq.errors import Fenced as FencedError
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.protocol import FrameHead, Frames
from seaweedmq.model.replication import (
    FenceReply,
    Progress,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateOpen,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore

log = logging.getLogger(__name__)

VIEW_LAG_S = 2.0
CLOSE_WRITE_OUT_S = 2.0
"""How long what is about to be dropped may take to be written out."""
WRITE_OUTS_AT_ONCE = 16


class FollowerService:
    """Every replica this broker follows."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        view: ClusterView,
        store: SegmentStore,
        budget: MemoryBudget,
        intake: MemoryBudget,
        broker_id: str,
        suspect: Callable[[Suspicion], Coroutine[Any, Any, None]],
    ) -> None:
        self._config = config
        self._view = view
        self._store = store
        self._budget = budget
        self._intake = intake
        self._broker_id = broker_id
        self._suspect = suspect
        self._replicas: dict[tuple[TopicName, int], Replica] = {}
        self._written: dict[tuple[TopicName, int], SealedLog] = {}
        self._closed = False

    async def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        """Follow one segment until the primary ends the stream or is fenced. See ``model.replication``."""
        opening = await anext(requests, None)
        if not isinstance(opening, ReplicateOpen):
            raise InvalidArgument("a replicate stream begins with ReplicateOpen: send that first")
        segment = await self._assigned(opening)
        ref = SegmentRef(topic=opening.topic, segment=opening.segment, epoch=opening.epoch)
        replica = self._begin(segment, ref)
        try:
            with closing(Intake(self._intake)) as intake:
                yield ReplicateHeld(end_offset=replica.end, message_bytes_max=intake.message_bytes_max)
                async for request in requests:
                    if isinstance(request, ReplicateFrames):
                        intake.check(request.data)
                        for frame in split_frames(request.data):
                            await self._make_room(replica, frame.header.frame_bytes)
                            self._hold(replica, ref, frame)
                    elif isinstance(request, FrameHead):
                        await self._hold_large(replica, ref, request, requests, intake)
                    else:
                        raise InvalidArgument(f"{replica.name}: a replicate stream is opened once")
                    yield ReplicateHeld(end_offset=replica.end, message_bytes_max=intake.message_bytes_max)
        finally:
            self._after_stream(replica, ref, opening.primary)

    async def progress(self, progress: Progress) -> None:
        """Forget what the primary has flushed; see ``ports.BrokerApi``."""
        ref = progress.ref
        replica = self._replicas.get((ref.topic, ref.segment))
        if replica is None:
            raise NotFound(f"{ref.topic}#{ref.segment}: this broker holds no replica of it")
        self._budget.give(replica.on_progress(ref.epoch, progress.committed, progress.flushed))

    async def fence(self, ref: SegmentRef) -> FenceReply:
        """Take nothing of an epoch below ``ref.epoch`` any more; see ``ports.BrokerApi``."""
        key = (ref.topic, ref.segment)
        replica = self._replicas.get(key)
        if replica is None:
            # "It never reached me" is an answer of its follower only: a process that has lost its lease, or has come
            # back as somebody else at the same address, may have dropped what was acknowledged.
            known = self._view.segments.get(ref.topic, {}).get(ref.segment)
            if self._closed or known is None or self._broker_id not in known.replicas[1:]:
                raise NotFound(f"{ref.topic}#{ref.segment}: broker {self._broker_id} is none of its followers")
            replica = self._new_replica(ref, known.start_offset, epoch=ref.epoch - 1)
            replica.fence(ref.epoch)
            self._replicas[key] = replica
            return FenceReply(end_offset=None)
        return FenceReply(end_offset=replica.fence(ref.epoch))

    async def write_out(self, ref: SegmentRef, end_offset: int) -> SealedLog:
        """Write what the fenced replica holds to a log file of this broker and fsync it. Again is no error."""
        key = (ref.topic, ref.segment)
        replica, topic = self._replicas.get(key), self._view.topics.get(ref.topic)
        segment = self._view.segments.get(ref.topic, {}).get(ref.segment)
        if replica is None or topic is None or segment is None:
            raise NotFound(f"{ref.topic}#{ref.segment}: this broker holds no replica of it")
        if not replica.fenced or replica.epoch != ref.epoch:
            raise FencedError(f"{replica.name}: fence it with epoch {ref.epoch} before it is written out")
        if end_offset != replica.end:
            raise InvalidArgument(
                f"{replica.name}: asked for offsets up to {end_offset}, the replica ends at {replica.end}"
            )
        if key not in self._written:
            await self._write(topic, segment, replica)
            self._written[key] = SealedLog(
                end_offset=replica.end, sequences=tuple(p.sequence for p in replica.producers_below(replica.end))
            )
        return self._written[key]

    def forget_sealed(self) -> None:
        """Drop replicas of segments that the metadata no longer has open, or not with this broker."""
        for key, replica in list(self._replicas.items()):
            segment = self._view.segments.get(key[0], {}).get(key[1])
            if segment is None or not segment.is_open or self._broker_id not in segment.replicas:
                self._budget.give(replica.release_all())
                self._written.pop(key, None)
                del self._replicas[key]

    async def close(self) -> None:
        """Drop everything, because this broker is somebody else from now on.

        What primaries may not have fsynced is written out before, as far as the storage takes it in time: with the
        leases of all replicas gone the files are all there is, and the primary's machine may be gone, too. Nothing can
        be damaged by it: it is a file of this broker's own, and what is in it is what the primary sent; where others
        have recorded an end meanwhile, what lies beyond is ignored.
        """
        self._closed = True
        replicas, self._replicas = self._replicas, {}
        limit = asyncio.Semaphore(WRITE_OUTS_AT_ONCE)
        writing = {
            asyncio.create_task(self._save(replica, *found, limit), name=f"write out {replica.name}")
            for key, replica in replicas.items()
            if key not in self._written and (found := self._open_segment(*key)) is not None
        }
        if writing:
            _, late = await asyncio.wait(writing, timeout=CLOSE_WRITE_OUT_S)
            for task in late:
                # Not waited for: a storage that hangs must not keep the broker out of the cluster.
                task.cancel()
            if late:
                log.warning("%d replicas are dropped before they are written out", len(late))
        for replica in replicas.values():
            self._budget.give(replica.release_all())

    def _open_segment(self, name: TopicName, number: int) -> tuple[Topic, Segment] | None:
        topic, segment = self._view.topics.get(name), self._view.segments.get(name, {}).get(number)
        return (topic, segment) if topic is not None and segment is not None and segment.is_open else None

    async def _save(self, replica: Replica, topic: Topic, segment: Segment, limit: asyncio.Semaphore) -> None:
        try:
            async with limit:
                await self._write(topic, segment, replica)
        except SeaweedMQError as error:
            log.warning("%s: dropped before it is written out: %s", replica.name, error)

    async def _assigned(self, opening: ReplicateOpen) -> Segment:
        """The segment, if the metadata has the caller as its primary and this broker as a follower."""
        with suppress(TimeoutError):
            async with asyncio.timeout(VIEW_LAG_S):
                while True:
                    seen = self._view.changes
                    segment = self._view.segments.get(opening.topic, {}).get(opening.segment)
                    if segment is not None:
                        break
                    await self._view.wait_change(seen)
        segment = self._view.segments.get(opening.topic, {}).get(opening.segment)
        name = f"{opening.topic}#{opening.segment}"
        if segment is None:
            raise NotFound(f"{name}: there is no such segment")
        if not segment.is_open or segment.epoch != opening.epoch:
            raise FencedError(f"{name}: epoch {opening.epoch} is over, the segment is {segment.state}: stop")
        if segment.primary != opening.primary or self._broker_id not in segment.replicas[1:]:
            raise InvalidArgument(
                f"{name}: {opening.primary} asked {self._broker_id} to follow it, but its replicas are "
                f"{', '.join(segment.replicas)}: a broker speaks for itself, to its followers"
            )
        return segment

    def _begin(self, segment: Segment, ref: SegmentRef) -> Replica:
        key = (ref.topic, ref.segment)
        known = self._replicas.get(key)
        if known is not None:
            known.check_epoch(ref.epoch)
            raise InvalidArgument(f"{known.name}: the primary has a replicate stream already, and never resumes one")
        if self._closed:
            raise NotFound(f"{segment}: broker {self._broker_id} has left the cluster")
        replica = self._replicas[key] = self._new_replica(ref, segment.start_offset, epoch=ref.epoch)
        return replica

    def _new_replica(self, ref: SegmentRef, start: int, *, epoch: int) -> Replica:
        return Replica(
            name=f"{ref.topic}#{ref.segment}",
            start_offset=start,
            epoch=epoch,
            producers_max=self._config.producers_per_segment_max,
        )

    async def _hold_large(
        self,
        replica: Replica,
        ref: SegmentRef,
        head: FrameHead,
        requests: AsyncIterator[ReplicateRequest],
        intake: Intake,
    ) -> None:
        size = intake.header(head).frame_bytes
        await self._make_room(replica, size)
        try:
            frame = await intake.frame(head, requests, _frames_of)
            self._check_following(replica)
        except BaseException:
            self._budget.give(size + ENTRY_OVERHEAD_BYTES)
            raise
        self._hold(replica, ref, frame)

    async def _make_room(self, replica: Replica, size_bytes: int) -> None:
        """Take the memory of a frame."""
        await self._budget.take(size_bytes + ENTRY_OVERHEAD_BYTES)
        try:
            self._check_following(replica)
        except Unavailable:
            self._budget.give(size_bytes + ENTRY_OVERHEAD_BYTES)
            raise

    def _check_following(self, replica: Replica) -> None:
        if self._closed:
            raise Unavailable(f"{replica.name}: broker {self._broker_id} left the cluster and follows no more")

    def _hold(self, replica: Replica, ref: SegmentRef, frame: Frame) -> None:
        """A frame there is room for."""
        header = frame.header
        entry = LogEntry(
            header.base_offset, header.end_offset, header.timestamp_max, bytes(frame.header_bytes), frame.payload
        )
        try:
            replica.append(ref.epoch, header.producer_id, header.producer_epoch, header.first_sequence, entry)
        except SeaweedMQError:
            self._budget.give(entry.memory_bytes)
            raise

    def _after_stream(self, replica: Replica, ref: SegmentRef, primary: str) -> None:
        """The stream is gone, and with it perhaps the primary: have the leader look."""
        segment = self._view.segments.get(ref.topic, {}).get(ref.segment)
        if self._closed or replica.fenced or segment is None or not segment.is_open:
            return
        reason = f"{self._broker_id} lost the replicate stream of {primary}"
        asyncio.get_running_loop().create_task(
            self._suspect(Suspicion(ref=ref, suspect=primary, reason=reason)), name=f"suspect {primary}"
        )

    async def _write(self, topic: Topic, segment: Segment, replica: Replica) -> None:
        entries = replica.unflushed()
        if not entries:
            return
        base = entries[0].base_offset
        try:
            writer = await create_log_file(
                self._store, topic, segment, base, self._broker_id, replica.producers_below(base)
            )
        except AlreadyExists:  # an earlier attempt failed in the middle: its file is of no use
            writer = await create_log_file(
                self._store, topic, segment, base, f"{self._broker_id}.{replica.epoch}", replica.producers_below(base)
            )
        try:
            await writer.append([part for e in entries for part in (e.header, e.payload)])
            await writer.sync()
        finally:
            await writer.close()
        log.info("%s: wrote offsets [%d, %d) out to %s", replica.name, base, replica.end, writer.path)


def _frames_of(request: ReplicateRequest | None) -> Frames | None:
    return request.data if isinstance(request, ReplicateFrames) else None
