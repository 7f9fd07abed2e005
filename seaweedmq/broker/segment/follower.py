"""Follower side of replication: replicas that hold frames, reject them once fenced, and are written out on request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import closing, suppress

from seaweedmq import errors
from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.broker.segment.write_out import ReplicaWriter
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.provenance import provenance
from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages import replication
from seaweedmq.model.messages.calls import NoteProgress
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.segment import ReplicaKey, Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import DirectoryStore, Environment
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

VIEW_LAG_S = 2.0
"""Longest wait in seconds for the cluster view to show a segment that a primary already replicates."""
CLOSE_WRITE_OUT_S = 2.0
"""Default limit in seconds on writing out replicas that are about to be dropped."""
WRITE_OUTS_AT_ONCE = 16
"""Number of replicas written out in parallel on close."""


class FollowerService:
    """The follower side of all segments that this broker follows."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Environment,
        view: ClusterView,
        store: DirectoryStore,
        memory: BrokerMemory,
        producers: ProducerPool,
        broker_id: str,
        suspicions: Suspicions,
    ) -> None:
        self._config = config
        self._env = env
        self._view = view
        self._store = store
        self._budget = memory.replicas
        self._producers = producers
        self._intake = memory.intake
        self._broker_id = broker_id
        self._suspicions = suspicions
        self.replicas: dict[ReplicaKey, Replica] = {}
        """All replicas of this broker."""
        self._write_outs: dict[ReplicaKey, ReplicaWriter] = {}
        """The writers of all replicas, by the same keys."""
        self._by_topic: dict[TopicName, set[ReplicaKey]] = {}
        """The same keys by topic name. A recreated topic briefly has keys of two topics."""
        self._closed = False

    async def replicate(
        self, requests: AsyncIterator[replication.ReplicateRequest]
    ) -> AsyncIterator[replication.ReplicateReply]:
        """Follow one segment until the primary ends the stream or is fenced: see ``model.messages.replication``.

        Raises:
            ProtocolViolation: If the primary breaks the protocol, or opens a second stream for the segment.
            NotFound: If the segment does not exist, or this broker has left the cluster.
            Fenced: If the segment is sealed, or the replica is fenced for a later epoch.
            InvalidArgument: If the caller is not the primary, or this broker is not a follower.
        """
        opening = await anext(requests, None)
        if not isinstance(opening, replication.ReplicateOpen):
            raise errors.ProtocolViolation("replicate stream does not begin with ReplicateOpen: send that first")
        topic, segment = await self._assigned(opening)
        ref = opening.ref
        replica = self._begin(topic, segment, ref)
        try:
            with closing(Intake(self._intake)) as intake:
                yield replication.ReplicateHeld(end_offset=replica.end, message_bytes_max=intake.message_bytes_max)
                async for request in requests:
                    if isinstance(request, replication.ReplicateFrames):
                        intake.check(request.data)
                        for frame in split_frames(request.data):
                            await self._make_room(replica, frame.header.frame_bytes)
                            self._hold(replica, ref, frame)
                    elif isinstance(request, FrameHead):
                        await self._hold_large(replica, ref, request, requests, intake)
                    else:
                        raise errors.ProtocolViolation(
                            f"{replica.name}: second ReplicateOpen in one stream: send frames"
                        )
                    yield replication.ReplicateHeld(end_offset=replica.end, message_bytes_max=intake.message_bytes_max)
        finally:
            self._after_stream(replica, ref, opening.primary)

    async def progress(self, progress: NoteProgress) -> None:
        """Free the frames that the primary has flushed: see ``calls.NoteProgress``.

        Raises NotFound if this broker holds no replica of the segment.
        """
        ref = progress.ref
        replica = self.replicas.get(_key(ref))
        if replica is None:
            raise errors.NotFound(f"{ref}: broker holds no replica of this segment")
        self._budget.give(replica.on_progress(ref.epoch, progress.committed, progress.flushed))

    async def fence(self, ref: replication.SegmentRef) -> replication.FenceReply:
        """Reject frames of epochs below ``ref.epoch`` from now on: see ``calls.Fence``.

        The reply's end offset is None if no replicate stream of the segment reached this broker.

        Raises:
            NotFound: If this broker is not a follower of the segment.
            Deposed: If the segment is sealed, or the replica is fenced for a later epoch: the caller no longer leads.
            InvalidArgument: If ``ref.epoch`` is the epoch that the replica follows.
        """
        replica = self.replicas.get(_key(ref))
        if replica is None:
            # Only a current follower may answer "received nothing". A process that lost its lease, or registered
            # under another broker id at the same address, may have dropped acknowledged frames.
            found = self._view.find(ref.topic, ref.topic_uid, ref.segment)
            if self._closed or found is None or self._broker_id not in found[1].replicas[1:]:
                raise errors.NotFound(f"{ref}: broker {self._broker_id} is not a follower of this segment")
            if not found[1].is_open:  # the replica was dropped, and the caller is no longer the leader
                raise errors.Deposed(f"{ref}: segment is already sealed: reload the metadata")
            self._new_replica(*found, epoch=ref.epoch - 1).fence(ref.epoch)
            return replication.FenceReply(end_offset=None)
        return replication.FenceReply(end_offset=replica.fence(ref.epoch))

    async def write_out(self, ref: replication.SegmentRef, end_offset: int) -> replication.SealedLog:
        """Write the frames of the fenced replica to a log file of this broker and fsync it.

        Repeated and concurrent calls share one attempt; after StorageFailed the next call makes another, after a pause.
        Raises NotFound if this broker holds no replica, or dropped it meanwhile, and InvalidArgument if the replica is
        not fenced with ``ref.epoch``, or does not end at ``end_offset``.
        """
        replica, writing = self.replicas.get(_key(ref)), self._write_outs.get(_key(ref))
        if replica is None or writing is None:
            raise errors.NotFound(f"{ref}: broker holds no replica of this segment")
        if not replica.fenced or replica.epoch != ref.epoch:
            raise errors.InvalidArgument(
                f"{replica.name}: replica is not fenced with epoch {ref.epoch}: fence it first"
            )
        if end_offset != replica.end:
            raise errors.InvalidArgument(
                f"{replica.name}: replica ends at offset {replica.end}, not {end_offset}: fence it again"
            )
        await writing.run()
        now = asyncio.get_running_loop().time()
        return replication.SealedLog(end_offset=replica.end, sequences=replica.sequences(now))

    def forget_sealed(self, names: Iterable[TopicName]) -> None:
        """Drop these topics' replicas whose segment is sealed, deleted, or no longer replicated to this broker."""
        for key in [key for name in names for key in self._by_topic.get(name, ())]:
            segment = self._write_outs[key].segment
            found = self._view.find(segment.topic, key.topic_uid, segment.id)
            if found is None or not found[1].is_open or self._broker_id not in found[1].replicas:
                self._drop(key)

    async def close(self, within_s: float = CLOSE_WRITE_OUT_S) -> None:
        """Write out and drop all replicas, because this incarnation of the broker ends.

        Frames that primaries may not have flushed are written out first, for up to ``within_s`` seconds. If the leases
        of all replicas ended, only files are left, and the primary's machine may be lost as well. The write is
        harmless: the file belongs to this broker and contains exactly the primary's frames. Readers ignore everything
        beyond an end offset that others recorded meanwhile. ``fence`` and ``write_out`` keep working until the drop.
        """
        self._closed = True
        limit = asyncio.Semaphore(WRITE_OUTS_AT_ONCE)
        forgetting = asyncio.create_task(self._forget_on_change(), name="drop sealed replicas")
        saving = [
            asyncio.create_task(self._save(replica, self._write_outs[key], limit), name=f"save {replica.name}")
            for key, replica in self.replicas.items()
        ]
        try:
            if saving:
                # Bounded: hanging storage must not keep the broker from leaving or rejoining the cluster.
                await asyncio.wait(saving, timeout=within_s)
        finally:
            for task in (forgetting, *saving):
                task.cancel()
            await asyncio.wait({forgetting, *saving})
        unsaved = [
            replica.name
            for key, replica in self.replicas.items()
            if replica.unflushed() and not self._write_outs[key].is_done
        ]
        if unsaved:
            log.error(
                "replicas dropped: broker %s could not write out %s in %.0f s; their frames are lost "
                "if their primaries are lost as well",
                self._broker_id,
                ", ".join(unsaved),
                within_s,
            )
        for key in list(self.replicas):
            self._drop(key)

    def _drop(self, key: ReplicaKey) -> None:
        writing = self._write_outs.pop(key)
        writing.drop()
        keys = self._by_topic[writing.segment.topic]
        keys.remove(key)
        if not keys:
            del self._by_topic[writing.segment.topic]
        self._budget.give(self.replicas.pop(key).release_all())

    async def _forget_on_change(self) -> None:
        while True:
            seen = self._view.changes
            self.forget_sealed(list(self._by_topic))
            await self._view.wait_change(seen)

    async def _save(self, replica: Replica, writing: ReplicaWriter, limit: asyncio.Semaphore) -> None:
        """Retry until the replica is written out or dropped."""

        def log_failure(attempt: int, error: BaseException) -> None:
            if attempt == 1:
                log.warning("write-out failed: %s: %s; retrying", replica.name, error)

        trying = retrying(backoff(self._env.rng, 0.05, 1.0), on=errors.StorageFailed, on_retry=log_failure)
        async with limit:
            with suppress(errors.NotFound):  # the segment was sealed meanwhile
                await trying(writing.run)

    async def _assigned(self, opening: replication.ReplicateOpen) -> tuple[Topic, Segment]:
        """Return the segment if the metadata names the caller its primary and this broker its follower."""
        ref = opening.ref
        try:
            async with asyncio.timeout(VIEW_LAG_S):
                while (found := self._view.find(ref.topic, ref.topic_uid, ref.segment)) is None:
                    await self._view.wait_change(self._view.changes)
        except TimeoutError:
            raise errors.NotFound(f"{ref}: segment does not exist, or its topic was deleted") from None
        topic, segment = found
        if not segment.is_open or segment.epoch != ref.epoch:
            raise errors.Fenced(f"{ref}: epoch {ref.epoch} has ended, the segment is {segment.state}: stop replicating")
        if segment.primary != opening.primary or self._broker_id not in segment.replicas[1:]:
            raise errors.InvalidArgument(
                f"{ref}: {opening.primary} cannot replicate to {self._broker_id}: the replicas of this segment are "
                f"{', '.join(segment.replicas)}, primary first"
            )
        return topic, segment

    def _begin(self, topic: Topic, segment: Segment, ref: replication.SegmentRef) -> Replica:
        known = self.replicas.get(_key(ref))
        if known is not None:
            known.check_epoch(ref.epoch)
            raise errors.ProtocolViolation(
                f"{known.name}: second replicate stream of the primary: a stream is never resumed"
            )
        if self._closed:
            raise errors.NotFound(f"{segment}: broker {self._broker_id} left the cluster")
        return self._new_replica(topic, segment, epoch=ref.epoch)

    def _new_replica(self, topic: Topic, segment: Segment, *, epoch: int) -> Replica:
        key = ReplicaKey(topic.uid, segment.id)
        replica = self.replicas[key] = Replica(
            name=str(segment),
            start_offset=segment.start_offset,
            epoch=epoch,
            limits=ProducerLimits.of(self._config),
            pool=self._producers,
        )
        self._by_topic.setdefault(topic.name, set()).add(key)
        self._write_outs[key] = ReplicaWriter(
            self._store,
            topic,
            segment,
            replica,
            self._broker_id,
            self._env.rng,
            lambda found: provenance(found, self._view.segments_of(found.topic)),
        )
        return replica

    async def _hold_large(
        self,
        replica: Replica,
        ref: replication.SegmentRef,
        head: FrameHead,
        requests: AsyncIterator[replication.ReplicateRequest],
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
        """Take the memory of a frame, waiting until the budget allows it."""
        await self._budget.take(size_bytes + ENTRY_OVERHEAD_BYTES)
        try:
            self._check_following(replica)
        except errors.Unavailable:
            self._budget.give(size_bytes + ENTRY_OVERHEAD_BYTES)
            raise

    def _check_following(self, replica: Replica) -> None:
        if self._closed:
            raise errors.Unavailable(f"{replica.name}: broker {self._broker_id} left the cluster and stopped following")

    def _hold(self, replica: Replica, ref: replication.SegmentRef, frame: Frame) -> None:
        """Append a frame whose memory has been taken."""
        header = frame.header
        entry = LogEntry(
            header.base_offset, header.end_offset, header.encoding, bytes(frame.header_bytes), frame.payload
        )
        now = asyncio.get_running_loop().time()
        try:
            replica.append(ref.epoch, header.producer_id, header.producer_epoch, header.first_sequence, entry, now)
        except errors.SeaweedMQError:
            self._budget.give(entry.memory_bytes)
            raise

    def _after_stream(self, replica: Replica, ref: replication.SegmentRef, primary: str) -> None:
        """Report the lost stream to the leader, since the primary may have failed."""
        found = self._view.find(ref.topic, ref.topic_uid, ref.segment)
        if self._closed or replica.fenced or found is None or not found[1].is_open:
            return
        reason = f"{self._broker_id} lost the replicate stream of {primary}"
        self._suspicions.add(ref, primary, reason)


def _key(ref: replication.SegmentRef) -> ReplicaKey:
    return ReplicaKey(ref.topic_uid, ref.segment)


def _frames_of(request: replication.ReplicateRequest | None) -> Frames | None:
    return request.data if isinstance(request, replication.ReplicateFrames) else None
