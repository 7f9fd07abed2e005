"""Sealer of segments by ``core.segment.sealing``: query the primary, else fence the followers, else read the files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.segment.sealing import longest_first, seal_candidates
from seaweedmq.errors import Corrupt, SeaweedMQError, Unsupported
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import Fence, Seal, WriteOut
from seaweedmq.model.messages.replication import SealedLog, SegmentRef
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BrokerApi, DirectoryStore
from seaweedmq.runtime.grouped_logger import GroupedLogger
from seaweedmq.storage.read.recovery import recover_segment

log = logging.getLogger(__name__)

SEAL_TIMEOUT_S = 5.0
SUSPECT_SEAL_TIMEOUT_S = 0.3
"""Deadline of a suspected primary, in seconds. It may be healthy, and only its connection to a follower broken."""
FENCE_TIMEOUT_S = 1.0
WRITE_OUT_TIMEOUT_S = 10.0


class Unrecoverable(Corrupt):
    """The error of a segment whose files do not show its end: one is damaged, foreign, or of a later version."""


class Sealer:
    """The leader's sealer, which ends the log of an open segment with the replicas left. Calls are idempotent."""

    def __init__(
        self,
        view: ClusterView,
        store: DirectoryStore,
        dial: Callable[[str], BrokerApi],
        await_expired_leases: Callable[[], Awaitable[None]],
        severity: Callable[[str], int],
    ) -> None:
        """Create the sealer.

        ``await_expired_leases`` returns once leases that are gone from etcd have also ended by their holders' clocks.
        ``severity`` returns the log level for a broker that does not answer.
        """
        self._view = view
        self._store = store
        self._dial = dial
        self._await_expired_leases = await_expired_leases
        self._severity = severity
        self._failures = GroupedLogger(log)

    async def seal(self, topic: Topic, segment: Segment, suspects: Container[str]) -> tuple[int, SealedLog] | None:
        """Seal the segment; suspected brokers get a shorter deadline.

        Returns the epoch of the sealing and the sealed log; None while no replica that holds the log answers. Raises
        Unrecoverable, with the file's name, if no replica lives and a file is damaged or foreign.
        """
        candidates = seal_candidates(segment, self._view.brokers)
        if candidates.files:
            # After the fence, a primary that turns out to be alive commits nothing that the read below may miss.
            await self._store.fence(topic.name, topic.uid, segment.id)
            if segment.primary not in self._view.left:
                await self._await_expired_leases()  # until then it may commit without a fence check
            # Flush first: the writers may have died before they flushed frames that now count, and their machines may
            # fail at any moment. Flush again afterwards, for frames that a surviving writer wrote in between.
            await self._sync_logs(topic, segment)
            try:
                recovered = await recover_segment(self._store, topic, segment)
            except (Corrupt, Unsupported) as error:
                raise Unrecoverable(str(error)) from error
            await self._sync_logs(topic, segment)
            return segment.epoch, SealedLog(
                end_offset=recovered.end_offset,
                sequences=tuple(p.sequence for p in recovered.producers),
                sequences_complete=recovered.producers_complete,
            )
        if candidates.primary is not None:
            timeout_s = SUSPECT_SEAL_TIMEOUT_S if candidates.primary in suspects else SEAL_TIMEOUT_S
            sealed = await self._by_primary(topic, segment, candidates.primary, timeout_s)
            if sealed is not None:
                return segment.epoch, sealed
        if candidates.followers:
            sealed = await self._by_followers(topic, segment, candidates.followers)
            if sealed is not None:
                return segment.epoch + 1, sealed
        return None

    async def _sync_logs(self, topic: Topic, segment: Segment) -> None:
        files = await self._store.list_files(topic.name, segment.id, uid=topic.uid)
        await self._store.sync_files([f for f in files if f.kind is FileKind.LOG])

    async def _by_primary(self, topic: Topic, segment: Segment, primary: str, timeout_s: float) -> SealedLog | None:
        ref = SegmentRef.of(topic, segment)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._dial(primary).call(Seal(ref))
        except (SeaweedMQError, TimeoutError) as error:
            reason = f"the primary {primary} did not seal: {error or 'no answer in time'}"
            self._failures.add(logging.INFO, segment, reason)
            return None

    async def _by_followers(self, topic: Topic, segment: Segment, followers: tuple[str, ...]) -> SealedLog | None:
        ref = SegmentRef.of(topic, segment, segment.epoch + 1)
        if len(followers) == 1:  # the usual case, with two replicas: save the tasks
            answers = [await self._fence(followers[0], ref)]
        else:
            answers = await asyncio.gather(*(self._fence(follower, ref) for follower in followers))
        ends = {follower: end for follower, (fenced, end) in zip(followers, answers, strict=True) if fenced}
        for follower, end in longest_first(ends):
            if end is None:
                return SealedLog(end_offset=segment.start_offset, sequences=())
            try:
                async with asyncio.timeout(WRITE_OUT_TIMEOUT_S):
                    return await self._dial(follower).call(WriteOut(ref, end))
            except (SeaweedMQError, TimeoutError) as error:
                reason = f"follower {follower} did not write out: {error or 'no answer in time'}"
                self._failures.add(self._severity(follower), segment, reason)
        return None

    async def _fence(self, follower: str, ref: SegmentRef) -> tuple[bool, int | None]:
        try:
            async with asyncio.timeout(FENCE_TIMEOUT_S):
                return True, (await self._dial(follower).call(Fence(ref))).end_offset
        except (SeaweedMQError, TimeoutError) as error:
            reason = f"follower {follower} was not fenced: {error or 'no answer'}"
            self._failures.add(self._severity(follower), ref, reason)
            return False, None
