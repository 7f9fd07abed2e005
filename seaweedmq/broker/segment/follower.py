"""The follower's side: hold what primaries send, refuse them once fenced, write it out when the leader says so."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import closing, suppress

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
from seaweedmq.errors import Fenced as FencedError
from seaweedmq.errors import InvalidArgument, NotFound, ProtocolViolation, SeaweedMQError, StorageFailed, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.calls import NoteProgress
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.messages.replication import (
    FenceReply,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateOpen,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
)
from seaweedmq.model.segment import ReplicaKey, Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Environment, SegmentStore
from seaweedmq.runtime.retrying import backoff, retrying

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
        env: Environment,
        view: ClusterView,
        store: SegmentStore,
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
        """What is followed."""
        self._write_outs: dict[ReplicaKey, ReplicaWriter] = {}
        """Of each replica, by the same keys."""
        self._by_topic: dict[TopicName, set[ReplicaKey]] = {}
        """The same keys, by their topic's name: of more than one topic for a moment, when it was created again."""
        self._closed = False

    async def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        """Follow one segment until the primary ends the stream or is fenced. See ``model.replication``."""
        opening = await anext(requests, None)
        if not isinstance(opening, ReplicateOpen):
            raise ProtocolViolation("a replicate stream begins with ReplicateOpen: send that first")
        topic, segment = await self._assigned(opening)
        ref = opening.ref
        replica = self._begin(topic, segment, ref)
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
                        raise ProtocolViolation(f"{replica.name}: a replicate stream is opened once")
                    yield ReplicateHeld(end_offset=replica.end, message_bytes_max=intake.message_bytes_max)
        finally:
            self._after_stream(replica, ref, opening.primary)

    async def progress(self, progress: NoteProgress) -> None:
        """Forget what the primary has flushed; see ``model.calls.NoteProgress``."""
        ref = progress.ref
        replica = self.replicas.get(_key(ref))
        if replica is None:
            raise NotFound(f"{ref}: this broker holds no replica of it")
        self._budget.give(replica.on_progress(ref.epoch, progress.committed, progress.flushed))

    async def fence(self, ref: SegmentRef) -> FenceReply:
        """Take nothing of an epoch below ``ref.epoch`` any more; see ``model.calls.Fence``."""
        replica = self.replicas.get(_key(ref))
        if replica is None:
            # "It never reached me" is an answer of its follower only: a process that has lost its lease, or has come
            # back as somebody else at the same address, may have dropped what was acknowledged.
            found = self._view.find(ref.topic, ref.topic_uid, ref.segment)
            if self._closed or found is None or self._broker_id not in found[1].replicas[1:]:
                raise NotFound(f"{ref}: broker {self._broker_id} is none of its followers")
            if not found[1].is_open:  # what was held is forgotten; whoever asks does not lead any more
                raise FencedError(f"{ref}: it is sealed: look again")
            self._new_replica(*found, epoch=ref.epoch - 1).fence(ref.epoch)
            return FenceReply(end_offset=None)
        return FenceReply(end_offset=replica.fence(ref.epoch))

    async def write_out(self, ref: SegmentRef, end_offset: int) -> SealedLog:
        """Write what the fenced replica holds to a log file of this broker and fsync it. Again is no error, and neither
        is asking while it is being written."""
        replica, writing = self.replicas.get(_key(ref)), self._write_outs.get(_key(ref))
        if replica is None or writing is None:
            raise NotFound(f"{ref}: this broker holds no replica of it")
        if not replica.fenced or replica.epoch != ref.epoch:
            raise InvalidArgument(f"{replica.name}: fence it with epoch {ref.epoch} before it is written out")
        if end_offset != replica.end:
            raise InvalidArgument(
                f"{replica.name}: asked for offsets up to {end_offset}, the replica ends at {replica.end}"
            )
        await writing.run()
        now = asyncio.get_running_loop().time()
        return SealedLog(end_offset=replica.end, sequences=replica.sequences(now))

    def forget_sealed(self, names: Iterable[TopicName]) -> None:
        """Drop replicas of these topics' segments that the metadata no longer has open, or not with this broker."""
        for key in [key for name in names for key in self._by_topic.get(name, ())]:
            segment = self._write_outs[key].segment
            found = self._view.find(segment.topic, key.topic_uid, segment.id)
            if found is None or not found[1].is_open or self._broker_id not in found[1].replicas:
                self._drop(key)

    async def close(self, within_s: float = CLOSE_WRITE_OUT_S) -> None:
        """Take nothing more, and drop everything, because this broker is somebody else from now on, or nobody.

        What primaries may not have fsynced is written out before, as far as the storage takes it in time: with the
        leases of all replicas gone the files are all there is, and the primary's machine may be gone, too. Nothing can
        be damaged by it: it is a file of this broker's own, and what is in it is what the primary sent; where others
        have recorded an end meanwhile, what lies beyond is ignored. A leader that asks for the same at the same time is
        answered all the while.
        """
        self._closed = True
        limit = asyncio.Semaphore(WRITE_OUTS_AT_ONCE)
        forgetting = asyncio.create_task(self._forget_on_change(), name="forget what is sealed")
        saving = [
            asyncio.create_task(self._save(replica, self._write_outs[key], limit), name=f"save {replica.name}")
            for key, replica in self.replicas.items()
        ]
        try:
            if saving:
                # No longer: a storage that hangs must not keep the broker in, or out of, the cluster.
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
                "broker %s drops its replicas of %s, which could not be written out in %.0f s: what they hold is lost "
                "if their primaries are lost, too",
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
        """Until it is written out, or dropped."""

        def complain(attempt: int, error: BaseException) -> None:
            if attempt == 1:
                log.warning("%s: not written out yet, trying on: %s", replica.name, error)

        trying = retrying(backoff(self._env.rng, 0.05, 1.0), on=StorageFailed, told=complain)
        async with limit:
            with suppress(NotFound):  # sealed meanwhile
                await trying(writing.run)

    async def _assigned(self, opening: ReplicateOpen) -> tuple[Topic, Segment]:
        """The segment, if the metadata has the caller as its primary and this broker as a follower."""
        ref = opening.ref
        try:
            async with asyncio.timeout(VIEW_LAG_S):
                while (found := self._view.find(ref.topic, ref.topic_uid, ref.segment)) is None:
                    await self._view.wait_change(self._view.changes)
        except TimeoutError:
            raise NotFound(f"{ref}: there is no such segment, or its topic was deleted") from None
        topic, segment = found
        if not segment.is_open or segment.epoch != ref.epoch:
            raise FencedError(f"{ref}: epoch {ref.epoch} is over, the segment is {segment.state}: stop")
        if segment.primary != opening.primary or self._broker_id not in segment.replicas[1:]:
            raise InvalidArgument(
                f"{ref}: {opening.primary} asked {self._broker_id} to follow it, but its replicas are "
                f"{', '.join(segment.replicas)}: a broker speaks for itself, to its followers"
            )
        return topic, segment

    def _begin(self, topic: Topic, segment: Segment, ref: SegmentRef) -> Replica:
        known = self.replicas.get(_key(ref))
        if known is not None:
            known.check_epoch(ref.epoch)
            raise ProtocolViolation(f"{known.name}: the primary has a replicate stream already, and never resumes one")
        if self._closed:
            raise NotFound(f"{segment}: broker {self._broker_id} has left the cluster")
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
        entry = LogEntry(header.base_offset, header.end_offset, bytes(frame.header_bytes), frame.payload)
        now = asyncio.get_running_loop().time()
        try:
            replica.append(ref.epoch, header.producer_id, header.producer_epoch, header.first_sequence, entry, now)
        except SeaweedMQError:
            self._budget.give(entry.memory_bytes)
            raise

    def _after_stream(self, replica: Replica, ref: SegmentRef, primary: str) -> None:
        """The stream is gone, and with it perhaps the primary: have the leader look."""
        found = self._view.find(ref.topic, ref.topic_uid, ref.segment)
        if self._closed or replica.fenced or found is None or not found[1].is_open:
            return
        reason = f"{self._broker_id} lost the replicate stream of {primary}"
        self._suspicions.tell(ref, primary, reason)


def _key(ref: SegmentRef) -> ReplicaKey:
    return ReplicaKey(ref.topic_uid, ref.segment)


def _frames_of(request: ReplicateRequest | None) -> Frames | None:
    return request.data if isinstance(request, ReplicateFrames) else None
