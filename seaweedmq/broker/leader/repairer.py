"""The shell around ``core.lineage.repair``: has segments replaced that lost a replica, or lack one."""

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
"""Of the segments that one broker is asked about: they travel together, and one that hangs holds up only its own."""
RECOVERIES_AT_ONCE = 8
"""Of segments that only files are left of, which are read."""
LOOK_S = 0.02
"""Least time between two looks: many changes at a time are looked at once."""
LOOKING_SHARE_MAX = 0.2
"""Of the time that is spent on looking: with many segments one look may be long."""
RETRY_S = 0.5


class Repairer:
    """Finds them in the view and by what replicas say of each other; each is replaced by a task of its own.

    Looks at segments of which something changed, and at all of them when brokers come, go or are being drained.
    """

    def __init__(self, *, metadata: Metadata, placement: Placement) -> None:
        self._metadata = metadata
        self._placement = placement
        self._broken: set[SegmentId] = set()
        """Open segments whose replicas lost each other: nothing is committed there until they are replaced."""
        self._not_before: dict[SegmentId, float] = {}
        """Segments whose replacement failed -> loop time of the next attempt."""
        self._attempts: dict[SegmentId, int] = {}
        """Failed recoveries of unrecoverable segments."""
        self._failed: set[SegmentId] = set()
        """Open segments whose replacement failed: nothing else waits for the next attempt."""
        self._replacing: set[SegmentId] = set()
        self._reinforced: SegmentId | None = None
        """The last segment that was replaced for want of replicas."""
        self._unseen: dict[SegmentId, None] = {}
        """What is to be looked at. Open segments that are neither in it nor being replaced are well."""
        self._short = ShortSegments()
        self._noted: dict[TopicName, set[SegmentId]] = {}
        """Open segments of which anything above is noted, by topic: a look costs what changed, not what is noted."""
        self._renoted: set[TopicName] = set()
        """Topics of which something was noted since the last look."""
        self._brokers: tuple[frozenset[str], frozenset[str]] | None = None
        """Those that lived, and those that were being drained, when all segments were looked at last."""
        self._limits: dict[str, asyncio.Semaphore] = {}
        """By the first replica that lives; "" for segments without one."""
        self._look_again = asyncio.Event()
        self._complaints = OnceLogger(log)

    def add(self, segment: Segment) -> None:
        """The replicas of an open segment lost each other."""
        if segment.is_open and self._metadata.view.segment(segment.key) == segment:
            self._broken.add(segment.key)
            self._note(segment.key)
            self._see_again(segment.key)

    async def run(self, transitions: TransitionRunner) -> None:
        """Replace them, until cancelled."""
        loop = asyncio.get_running_loop()
        with closing(self._metadata.view.news()) as news:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    seen = self._metadata.view.changes
                    self._look_again.clear()
                    began = loop.time()
                    for repair in self._due(news.take_now()):
                        key = repair.segment.key
                        task = tasks.create_task(self.carry_out(transitions, repair), name=f"replace {repair.segment}")
                        self._replacing.add(key)
                        task.add_done_callback(partial(self._ended, key))
                    await asyncio.sleep(max(LOOK_S, (loop.time() - began) / LOOKING_SHARE_MAX))
                    await self._something_to_do(seen)

    def _due(self, touched: Iterable[TopicName]) -> list[Repair]:
        """What nobody repairs yet. ``touched``: topics of which something changed since the last time."""
        placement, live = self._placement, self._metadata.view.brokers
        placement.forget_the_old()
        brokers = frozenset(live), frozenset(placement.draining)
        touched = list(touched)
        self._learn(touched if brokers == self._brokers else list(self._metadata.view.open_segments))
        self._brokers = brokers
        self._forget_closed(touched)
        self._limits = {b: limit for b, limit in self._limits.items() if not b or b in live}
        if not placement.somebody_is_free:
            return []  # the last brokers leave: what they had stays theirs until one comes
        seeing = self._open(key for key in self._unseen if key not in self._not_before and key not in self._replacing)
        self._unseen = {key: None for key in self._unseen if key in self._not_before}
        found = repairs(seeing, live, draining=brokers[1], suspected=placement.suspects, broken=self._broken)
        if not found and not self._replacing - self._failed and self._reinforced not in self._replacing:
            # One at a time: the others stay readable and writable meanwhile.
            reinforced = self._short.next(
                len(live.keys() - placement.shunned),
                self._metadata.view.topics,
                self._open_segment,
                self._replacing.union(self._not_before),
            )
            self._reinforced = None if reinforced is None else reinforced.segment.key
            found = [] if reinforced is None else [reinforced]
        return found

    def _learn(self, names: Iterable[TopicName]) -> None:
        """These topics' segments are to be looked at."""
        view = self._metadata.view
        for name in names:
            topic = view.topics.get(name)
            if topic is None:
                continue
            for segment in view.open_of(name).values():
                self._unseen[segment.key] = None
                if len(segment.replicas) < topic.replicas:
                    self._short.add(segment.key)
                    self._note(segment.key)

    def _open(self, keys: Iterable[SegmentId]) -> list[Segment]:
        """Those of the segments that are open, and whose topics are there."""
        return [segment for segment in map(self._open_segment, keys) if segment is not None]

    def _open_segment(self, key: SegmentId) -> Segment | None:
        view = self._metadata.view
        segment = view.segment(key) if key.topic in view.topics else None
        return segment if segment is not None and segment.is_open else None

    def _note(self, key: SegmentId) -> None:
        self._noted.setdefault(key.topic, set()).add(key)
        self._renoted.add(key.topic)

    def _forget_closed(self, touched: Iterable[TopicName]) -> None:
        """Forget what was noted of segments that are no longer open, and pauses that are over."""
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
        """Replace the segment once there is a turn for it; what fails is logged, and due again after a pause."""
        segment = repair.segment
        live = self._metadata.view.brokers
        asked = next((replica for replica in segment.replicas if replica in live), "")
        at_once = REPLACEMENTS_AT_ONCE if asked else RECOVERIES_AT_ONCE
        async with self._limits.setdefault(asked, asyncio.Semaphore(at_once)):
            if not self._metadata.is_open(segment):
                return
            step = Transition(
                kind="repair",
                predecessors=(segment,),
                ranges=(segment.slots,),
                wishes=(repair.stays,),
                reason=repair.reason,
                timeout_s=None,
            )
            what = f"replacing {segment}"
            try:
                await transitions.carry_out_here(step)
                self._complaints.over(what)
            except Unrecoverable as error:
                self._complaints.add(what, error)
                attempts = self._attempts[segment.key] = self._attempts.get(segment.key, 0) + 1
                self._pause(segment.key, retry_pause_s(attempts))
                await self._record_problem(transitions, segment, error)
            except SeaweedMQError as error:
                if self._placement.somebody_is_free:
                    self._complaints.add(what, error)
                else:  # the last brokers leave, which is no failure
                    log.info("%s stays what it is until there is a broker to take it: %s", segment, error)
                self._pause(segment.key, RETRY_S)

    async def _record_problem(self, transitions: TransitionRunner, segment: Segment, error: Unrecoverable) -> None:
        try:
            await transitions.record_problem(segment, problem_of(segment, error))
        except SeaweedMQError as refusal:  # the next attempt records it
            self._complaints.add(f"recording the problem of {segment}", refusal)

    def _pause(self, key: SegmentId, pause_s: float) -> None:
        """Let nothing else wait for the segment, whose replacement failed and is due again after the pause."""
        self._failed.add(key)
        self._note(key)
        self._not_before[key] = asyncio.get_running_loop().time() + pause_s

    def _ended(self, key: SegmentId, _: "asyncio.Task[None]") -> None:
        self._replacing.discard(key)
        self._see_again(key)

    def _see_again(self, key: SegmentId) -> None:
        self._unseen[key] = None
        self._look_again.set()

    async def _something_to_do(self, seen: int) -> None:
        """Until the metadata has changed, a segment is broken, a task has ended, an attempt is due, or somebody is
        suspected no longer and may take replicas again."""
        now = asyncio.get_running_loop().time()
        times = [*self._not_before.values(), *self._placement.suspects.values()]
        timeout_s = min((at - now for at in times), default=None)
        waiting = {
            asyncio.create_task(self._metadata.view.wait_change(seen), name="repairs wait for a change"),
            asyncio.create_task(self._look_again.wait(), name="repairs wait for more"),
        }
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
