"""Daily sweep of payloads by reference that no record names: those of interrupted uploads and of expired records."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from seaweedmq.broker.upkeep.maintained_segments import is_maintainer
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.config import DAY_S, HOUR_S
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlobStore
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

SWEEP_CHECK_S = 600.0
"""Least time in seconds between two checks for topics that are due."""
FIRST_S = 2.0 * HOUR_S
"""Time in seconds after which a broker sweeps a topic that it has begun to maintain. Its clock is confirmed by then."""
INTERVAL_S = float(DAY_S)
"""Time in seconds between two sweeps of a topic."""


class PayloadSweep:
    """The sweep of the topics that this broker maintains: one topic at a time, in a task of its own."""

    def __init__(
        self,
        *,
        broker_id: str,
        view: ClusterView,
        store: BlobStore,
        confirmed_us: Callable[[float], int],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        """Create the sweep; ``confirmed_us`` is that of ``ConfirmedClock``, and ``spawn`` runs a task that ends."""
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._confirmed_us = confirmed_us
        self._due: dict[TopicName, tuple[int, float]] = {}
        """Maintained topic -> its uid, and the event loop time of its next sweep."""
        self._failures_log = OnceLogger(log)
        self._loop = asyncio.get_running_loop()
        self._spawn = spawn
        self._task: asyncio.Task[None] | None = None
        self._next_s = self._loop.time() + SWEEP_CHECK_S

    def begin(self) -> None:
        """Begin a round in a task if the last one has ended and began ``SWEEP_CHECK_S`` ago. Call at intervals."""
        now_s = self._loop.time()
        if now_s >= self._next_s and (self._task is None or self._task.done()):
            self._next_s = now_s + SWEEP_CHECK_S
            self._task = self._spawn(self.round(), "payload sweep")

    async def round(self) -> None:
        """Sweep every topic that is due."""
        for name in self._due.keys() - self._view.topics.keys():
            del self._due[name]
        for name, topic in list(self._view.topics.items()):
            first = next(iter(self._view.segments_of(name).values()), None)
            if first is None or not is_maintainer(first, self._broker_id, self._view):
                self._due.pop(name, None)
                continue
            uid, due_s = self._due.get(name, (0, 0.0))
            now_s = self._loop.time()
            if uid != topic.uid:
                self._due[name] = topic.uid, now_s + FIRST_S
            elif due_s <= now_s:
                self._due[name] = uid, now_s + INTERVAL_S
                await self._sweep(name, uid)

    async def _sweep(self, name: TopicName, uid: int) -> None:
        what = f"sweep of the payloads of {name}"
        try:
            deleted = await self._store.sweep_blobs(name, uid, self._confirmed_us(HOUR_S))
        except SeaweedMQError as error:
            self._failures_log.add(what, error)
        else:
            self._failures_log.over(what)
            if deleted:
                log.info("payloads swept: %s: %d that no record names", name, deleted)
