"""Repairer of segments: feeds ``core.lineage.repair`` and replaces segments with lost or missing replicas."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import closing
from functools import partial

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.broker.leader.sealer import Unrecoverable
from seaweedmq.broker.leader.transition_runner import Transition, TransitionRunner
from seaweedmq.core.lineage.problems import problem_of, retry_pause_s
from seaweedmq.core.lineage.repair import Repair, repairs
from seaweedmq.core.lineage.short_segments import ShortSegments
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

REPLACEMENTS_AT_ONCE = 1_000
"""Concurrent replacements that query one broker: they share messages, and a stuck one delays only its own segment."""
RECOVERIES_AT_ONCE = 8
"""Concurrent recoveries of segments without live replicas: each reads files."""
CHECK_INTERVAL_S = 0.02
"""Shortest time between two checks, in seconds: one check covers many changes."""
CHECK_SHARE_MAX = 0.2
"""Largest share of time spent on checks: with many segments one check may be long."""
RETRY_S = 0.5


class Repairer:
    """The leader's repairer. It finds segments in the view and by suspicions; each replacement has a task of its own.

    It checks segments that changed, and all segments when brokers come, go or drain.
    """

    def __init__(self, *, metadata: Metadata, placement: Placement) -> None:
        self._metadata = metadata
        self._placement = placement
        self._broken: set[SegmentId] = set()
        """Open segments whose replicas lost each other: nothing is committed there until they are replaced."""
        self._not_before: dict[SegmentId, float] = {}
        """Loop time of the next attempt of each segment whose replacement failed."""
        self._attempts: dict[SegmentId, int] = {}
        """Numbers of failed recoveries of unrecoverable segments."""
        self._failed: set[SegmentId] = set()
        """Open segments whose replacement failed. They do not delay the reinforcement of others."""
        self._replacing: set[SegmentId] = set()
        self._reinforced: SegmentId | None = None
        """The last segment replaced for lack of replicas."""
        self._unchecked: dict[SegmentId, None] = {}
        """Segments to check. Open segments that are neither in it nor being replaced are healthy."""
        self._short = ShortSegments()
        self._noted: dict[TopicName, set[SegmentId]] = {}
        """Open segments with state in the fields above, by topic: a check costs the changes, not all state."""
        self._renoted: set[TopicName] = set()
        """Topics with state added since the last check."""
        self._brokers: tuple[frozenset[str], frozenset[str]] | None = None
        """Brokers that were live, and brokers that were draining, at the last check of all segments."""
        self._limits: dict[str, asyncio.Semaphore] = {}
        """Limits of concurrent replacements by first live replica; "" for segments without one."""
        self._recheck = asyncio.Event()
        self._failures_log = OnceLogger(log)

    def add(self, segment: Segment) -> None:
        """Schedule the replacement of an open segment whose replicas lost each other."""
        if segment.is_open and self._metadata.view.segment(segment.key) == segment:
            self._broken.add(segment.key)
            self._note(segment.key)
            self._schedule(segment.key)

    async def run(self, transitions: TransitionRunner) -> None:
        """Replace segments until cancelled."""
        loop = asyncio.get_running_loop()
        with closing(self._metadata.view.changed_topics()) as changed_topics:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    seen = self._metadata.view.changes
                    self._recheck.clear()
                    began = loop.time()
                    for repair in self._due(changed_topics.take_now()):
                        key = repair.segment.key
                        task = tasks.create_task(self.carry_out(transitions, repair), name=f"replace {repair.segment}")
                        self._replacing.add(key)
                        task.add_done_callback(partial(self._ended, key))
                    await asyncio.sleep(max(CHECK_INTERVAL_S, (loop.time() - began) / CHECK_SHARE_MAX))
                    await self._wait_due(seen)

    def _due(self, touched: Iterable[TopicName]) -> list[Repair]:
        """Return the repairs that are due and not under way; ``touched``: topics that changed since the last call."""
        placement, live = self._placement, self._metadata.view.brokers
        placement.drop_outdated()
        brokers = frozenset(live), frozenset(placement.draining)
        touched = list(touched)
        self._learn(touched if brokers == self._brokers else list(self._metadata.view.open_segments))
        self._brokers = brokers
        self._forget_closed(touched)
        self._limits = {b: limit for b, limit in self._limits.items() if not b or b in live}
        if not placement.has_target:
            return []  # all brokers drain: they keep their segments until another one joins
        seeing = self._open(
            key for key in self._unchecked if key not in self._not_before and key not in self._replacing
        )
        self._unchecked = {key: None for key in self._unchecked if key in self._not_before}
        found = repairs(seeing, live, draining=brokers[1], suspected=placement.suspects, broken=self._broken)
        if not found and not self._replacing - self._failed and self._reinforced not in self._replacing:
            # One at a time: the other segments stay readable and writable meanwhile.
            reinforced = self._short.next(
                len(live.keys() - placement.avoided),
                self._metadata.view.topics,
                self._open_segment,
                self._replacing.union(self._not_before),
            )
            self._reinforced = None if reinforced is None else reinforced.segment.key
            found = [] if reinforced is None else [reinforced]
        return found

    def _learn(self, names: Iterable[TopicName]) -> None:
        """Schedule a check of these topics' segments."""
        view = self._metadata.view
        for name in names:
            topic = view.topics.get(name)
            if topic is None:
                continue
            for segment in view.open_of(name).values():
                self._unchecked[segment.key] = None
                if len(segment.replicas) < topic.replicas:
                    self._short.add(segment.key)
                    self._note(segment.key)

    def _open(self, keys: Iterable[SegmentId]) -> list[Segment]:
        """Return the open segments of existing topics among these."""
        return [segment for segment in map(self._open_segment, keys) if segment is not None]

    def _open_segment(self, key: SegmentId) -> Segment | None:
        view = self._metadata.view
        segment = view.segment(key) if key.topic in view.topics else None
        return segment if segment is not None and segment.is_open else None

    def _note(self, key: SegmentId) -> None:
        self._noted.setdefault(key.topic, set()).add(key)
        self._renoted.add(key.topic)

    def _forget_closed(self, touched: Iterable[TopicName]) -> None:
        """Drop the state of segments that are no longer open, and pauses that are over."""
        for name in self._renoted.union(touched):
            noted = self._noted.pop(name, set())
            still = {segment.key for segment in self._open(noted)}
            for key in noted - still:
                self._broken.discard(key)
                self._failed.discard(key)
                self._short.forget(key)
                self._attempts.pop(key, None)
                self._not_before.pop(key, None)
            if still:
                self._noted[name] = still
        self._renoted.clear()
        now = asyncio.get_running_loop().time()
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}

    async def carry_out(self, transitions: TransitionRunner, repair: Repair) -> None:
        """Replace the segment once the limit allows it. A failure is logged and retried after a pause."""
        segment = repair.segment
        live = self._metadata.view.brokers
        asked = next((replica for replica in segment.replicas if replica in live), "")
        at_once = REPLACEMENTS_AT_ONCE if asked else RECOVERIES_AT_ONCE
        async with self._limits.setdefault(asked, asyncio.Semaphore(at_once)):
            if not self._metadata.is_open(segment):
                return
            transition = Transition(
                kind="repair",
                predecessors=(segment,),
                ranges=(segment.slots,),
                preferred=(repair.healthy_replicas,),
                reason=repair.reason,
                timeout_s=None,
            )
            what = f"replacement of {segment}"
            try:
                await transitions.carry_out_here(transition)
                self._failures_log.over(what)
            except Unrecoverable as error:
                self._failures_log.add(what, error)
                attempts = self._attempts[segment.key] = self._attempts.get(segment.key, 0) + 1
                self._pause(segment.key, retry_pause_s(attempts))
                await self._record_problem(transitions, segment, error)
            except SeaweedMQError as error:
                if self._placement.has_target:
                    self._failures_log.add(what, error)
                else:  # all brokers drain, which is not a failure
                    log.info("replacement delayed: %s: %s; retrying", segment, error)
                self._pause(segment.key, RETRY_S)

    async def _record_problem(self, transitions: TransitionRunner, segment: Segment, error: Unrecoverable) -> None:
        try:
            await transitions.record_problem(segment, problem_of(segment, error))
        except SeaweedMQError as refusal:  # the next attempt records it
            self._failures_log.add(f"record of the problem of {segment}", refusal)

    def _pause(self, key: SegmentId, pause_s: float) -> None:
        """Schedule another attempt after the pause. The failed segment does not delay others meanwhile."""
        self._failed.add(key)
        self._note(key)
        self._not_before[key] = asyncio.get_running_loop().time() + pause_s

    def _ended(self, key: SegmentId, _: "asyncio.Task[None]") -> None:
        self._replacing.discard(key)
        self._schedule(key)

    def _schedule(self, key: SegmentId) -> None:
        self._unchecked[key] = None
        self._recheck.set()

    async def _wait_due(self, seen: int) -> None:
        """Wait until another check is due.

        A check is due when the metadata changes, a segment breaks, a task or a pause ends, or a suspicion expires. The
        suspected broker may then take replicas again.
        """
        now = asyncio.get_running_loop().time()
        times = [*self._not_before.values(), *self._placement.suspects.values()]
        timeout_s = min((at - now for at in times), default=None)
        waiting = {
            asyncio.create_task(self._metadata.view.wait_change(seen), name="repairs wait for a change"),
            asyncio.create_task(self._recheck.wait(), name="repairs wait for more"),
        }
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
