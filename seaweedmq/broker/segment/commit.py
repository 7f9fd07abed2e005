"""When what is durable becomes visible: while the lease lives, or while the shared storage shows no fence.

A segment is ended by its primary, by fencing a follower, which the primary notices because nothing is written that a
follower does not hold, or from its files, once the leases of all its replicas have ended. Only the last happens behind
the back of a primary, and only once its lease has ended. So while the lease surely lives, what is durable is committed.

Afterwards a segment with followers goes on: whoever is about to believe the files puts a fence there first
(``sealer``), and the primary looks for it. What it had fsynced before a look that found none may be committed, at any
time later: a fence put after the look is followed by a reading that sees those frames. Fsynced and not just written,
whatever the durability, for two reasons. File systems of several machines promise to show others only that. And
followers may have lost their leases as well and drop what they hold: then the file is all there is, and the primary's
machine may be next.

A segment without followers stops: nothing but the lease would keep it apart from its successor on a mount that does not
show at once what others did. So does one that lost a follower: nothing new is held by all, and nobody is there to
replace it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.segment import Segment
from seaweedmq.runtime.retrying import backoff, retrying, when

log = logging.getLogger(__name__)

LEASE_CHECK_S = 0.05
"""How soon a commit that waits for the lease, or for an fsync, is tried again."""
LOOK_S_MAX = 2.0
"""A look for the fence that takes longer is told to publishers; it is not repeated before it has ended."""
LOOK_RETRY_S_MAX = 1.0


class Committer:
    """Moves the high watermark of one open segment. ``advance`` after everything that may let it rise."""

    def __init__(
        self,
        segment: Segment,
        segment_log: SegmentLog,
        *,
        lease_alive: Callable[[], bool],
        is_fenced: Callable[[], Awaitable[bool]],
        ask_sync: Callable[[], None],
        on_change: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        rng: random.Random,
    ) -> None:
        self.failure: SeaweedMQError | None = None
        """Why nothing is committed at the moment."""
        self.fenced = False
        """Others believe the files: nothing is committed here any more."""
        self._segment = segment
        self._log = segment_log
        self._lease_alive = lease_alive
        self._is_fenced = is_fenced
        self._ask_sync = ask_sync
        """Have what is written fsynced soon, and ``advance`` called."""
        self._on_change = on_change
        """The high watermark or ``failure`` is another."""
        self._spawn = spawn
        self._rng = rng
        self._stuck: SeaweedMQError | None = self._waits("it has no followers") if len(segment.replicas) == 1 else None
        """What keeps it from going on without the lease."""
        self._lost_follower = False
        self._over = False
        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def advance(self) -> None:
        """Commit what may be committed now, after the durable step: a broker that was frozen between the two must not
        acknowledge what its successor may not have."""
        self._stop_timer()
        if self._over:
            return
        if self._lease_alive():
            self._tell(None)
            self._commit(self._log.committable)
            unsettled = self._lost_follower
        else:
            unsettled = self._advance_without_lease()
        if unsettled:
            self._timer = self._loop.call_later(LEASE_CHECK_S, self.advance)

    def lose(self, follower: str, error: SeaweedMQError) -> None:
        """A follower is gone. While the lease lives the leader hears of it and publishers go on elsewhere soon.

        What it held is fsynced at once: it may be in the page cache of this machine only.
        """
        self._log.thin = True
        self._ask_sync()
        if isinstance(error, Fenced):
            self._stuck = self._sealed_by_others(f"follower {follower} was fenced")
        else:
            self._stuck = self._waits(f"follower {follower} can not be replaced ({error})")
        self._lost_follower = True
        self.advance()

    def stop(self) -> None:
        """Commit nothing from here on."""
        self._over = True
        self._stop_timer()
        if self._looking:
            self._looking.cancel()
        if not self.fenced:
            self._tell(None)

    async def close(self) -> None:
        """As ``stop``; on return nothing of it runs any more."""
        looking = self._looking
        self.stop()
        if looking:
            await asyncio.wait({looking})

    def _advance_without_lease(self) -> bool:
        """Whether to look again soon."""
        if self._stuck and (self._lost_follower or self._log.committable > self._log.committed):
            self._tell(self._stuck)
        elif not self._stuck and self._log.flushed > self._log.committed:
            if self._looking is None:
                self._looking = self._spawn(self._look(), f"look for the fence of {self._segment}")
        elif not self._stuck and self._log.written > self._log.committed:
            self._ask_sync()
        return self._lost_follower or self._log.written > self._log.committed

    async def _look(self) -> None:
        """One look, for everything that is fsynced by now."""
        target = self._log.flushed
        try:
            fenced = await self._looked()
        except SeaweedMQError:
            return  # stopped meanwhile
        finally:
            self._looking = None
        if self._over:
            return
        if fenced:
            self._stop_for_good()
            return
        self._tell(None)
        self._commit(target)
        self.advance()

    async def _looked(self) -> bool:
        """Until the storage answers, or ``stop``. Publishers hear of it when it does not."""

        def note(_: int, error: BaseException) -> None:
            assert isinstance(error, SeaweedMQError)
            self._tell(error)

        looks = retrying(
            backoff(self._rng, 0.05, LOOK_RETRY_S_MAX), on=SeaweedMQError, stop=when(lambda: self._over), told=note
        )
        slow = Unavailable(
            f"{self._segment}: etcd is out of reach, and the storage does not say whether others sealed the segment; "
            "nothing is acknowledged until one of them answers"
        )
        timer = self._loop.call_later(LOOK_S_MAX, self._tell, slow)
        try:
            async for look in looks:
                with look:
                    fenced = await self._is_fenced()
            return fenced
        finally:
            timer.cancel()

    def _stop_for_good(self) -> None:
        log.error("%s: fenced in the storage: sealed by others while this broker had no lease", self._segment)
        self.fenced = True
        self.stop()
        self._tell(self._sealed_by_others("its files are taken for all it has"))

    def _waits(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self._segment}: this broker could not renew its lease, etcd is out of reach; nothing is acknowledged "
            f"until it is back, because {why}"
        )

    def _sealed_by_others(self, how: str) -> StaleMetadata:
        return StaleMetadata(
            f"{self._segment}: others seal it while this broker can not reach etcd ({how}); nothing is acknowledged "
            "here any more: go on in its successors"
        )

    def _commit(self, target: int) -> None:
        if target > self._log.committed:
            self._log.on_committed(target)
            self._on_change()

    def _tell(self, failure: SeaweedMQError | None) -> None:
        if (failure is None) == (self.failure is None) and type(failure) is type(self.failure):
            return  # told already; a new wording of the same makes no difference to publishers
        self.failure = failure
        if failure is not None:
            log.warning("%s", failure)
            self._on_change()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
