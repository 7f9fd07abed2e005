"""Runner of transitions: seals open segments and opens their successors."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.metadata_batcher import MetadataBatcher
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.broker.leader.topics.taken_ids import TakenIds
from seaweedmq.core.lineage.topology import MetadataChange, SegmentEnd, succeed
from seaweedmq.errors import Conflict, NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.broker import Decision
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName

log = logging.getLogger(__name__)

DECISIONS_KEPT = 100
TRANSITION_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A transition of one or more open neighbors of a topic."""

    kind: str
    """Kind: ``split``, ``merge``, ``move``, ``repair`` or ``seal``, see ``model.broker.Decision``."""
    predecessors: tuple[Segment, ...]
    """Open segments to replace, in ring order."""
    ranges: tuple[KeyRange, ...]
    """Slot ranges of the successors; together they cover the predecessors' slots."""
    preferred: tuple[tuple[str, ...], ...] = ()
    """Preferred replicas of each successor, the primary first. Missing or full brokers are replaced by load."""
    reason: str
    """Reason in words, for people."""
    timeout_s: float | None = TRANSITION_TIMEOUT_S
    """Deadline in seconds; None for as long as the recovery from files takes."""

    @property
    def topic(self) -> TopicName:
        """Topic of the predecessors."""
        return self.predecessors[0].topic


class TransitionRunner:
    """The leader's runner of transitions, each in one transaction.

    A transition that one leader leaves unfinished is completed by any other: it replaces what was sealed.
    """

    def __init__(
        self,
        *,
        metadata: Metadata,
        documents: Documents,
        placement: Placement,
        sealer: Sealer,
        taken_ids: TakenIds,
        wall_us: Callable[[], int],
        orphaned: Callable[[Segment], None],
    ) -> None:
        """Create the runner; ``orphaned`` receives segments that were sealed but got no successor."""
        self._metadata = metadata
        self._batcher = MetadataBatcher(metadata)
        self._documents = documents
        self._placement = placement
        self._sealer = sealer
        self._taken_ids = taken_ids
        self._wall_us = wall_us
        self._orphaned = orphaned
        self._under_way: dict[SegmentId, asyncio.Task[Any]] = {}
        """Task that carries out the transition, by predecessor."""
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        """Completed transitions, newest last."""

    @property
    def under_way(self) -> Collection[SegmentId]:
        """Segments in a transition at present."""
        return self._under_way.keys()

    def concerns(self, segment: Segment) -> bool:
        """Whether the segment is in a transition: its primary then ends its streams, which raises no suspicion."""
        return segment.key in self._under_way

    async def carry_out(self, transition: Transition) -> Decision:
        """Seal the predecessors, then open their successors. A cancelled caller does not stop it midway.

        Raises Unavailable if a predecessor is in another transition, no broker can take the successors, or a live
        replica does not answer; sealed predecessors then get plain successors.
        """
        task = asyncio.create_task(
            self.carry_out_here(transition), name=f"{transition.kind} {transition.predecessors[0]}"
        )
        task.add_done_callback(_ended)
        return await asyncio.shield(task)

    async def carry_out_here(self, transition: Transition) -> Decision:
        """Carry out the transition as :meth:`carry_out`, in the caller's task: its cancellation stops it midway."""
        busy = [str(predecessor) for predecessor in transition.predecessors if self.concerns(predecessor)]
        if busy:
            raise Unavailable(f"{busy[0]} is in a transition: retry")
        task = asyncio.current_task()
        assert task is not None
        self._under_way |= dict.fromkeys((predecessor.key for predecessor in transition.predecessors), task)
        try:
            return await self._carry_out(transition)
        finally:
            for predecessor in transition.predecessors:
                del self._under_way[predecessor.key]

    async def record_problem(self, segment: Segment, problem: str) -> None:
        """Record why the segment cannot be recovered, unless that is recorded or outdated; its sealing removes it.

        Raises as ``MetadataBatcher.write``.
        """
        if problem != segment.problem:
            uid = self._metadata.topic(segment.topic).uid
            plan = partial(self._with_problem, uid, replace(segment, problem=problem))
            await self._batcher.write(segment.topic, (segment,), plan)

    def _with_problem(self, uid: int, segment: Segment, topic: Topic) -> MetadataChange | None:
        known = self._metadata.view.segment(segment.key)
        is_as_was = topic.uid == uid and known is not None and replace(known, problem=segment.problem) == segment
        return MetadataChange(topic, (segment,)) if is_as_was else None

    async def stop(self) -> None:
        """Cancel all transitions at the end of the leadership: the next leader completes them."""
        tasks = set(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _carry_out(self, transition: Transition) -> Decision:
        topic = self._metadata.topic(transition.topic)
        gone = [predecessor for predecessor in transition.predecessors if not self._metadata.is_open(predecessor)]
        if gone:
            raise Unavailable(f"{gone[0]} was replaced, or deleted with its topic: refresh the metadata")
        self._placement.check_target()
        try:
            async with asyncio.timeout(transition.timeout_s):
                await self._taken_ids.learn(topic)  # first: if the storage fails, no segment is sealed yet
                await self._succeed(transition, topic.uid, await self._seal(topic, transition.predecessors))
        except TimeoutError:
            for predecessor in transition.predecessors:
                self._orphaned(predecessor)
            raise Unavailable(
                f"{transition.predecessors[0]} was not sealed within {transition.timeout_s} s: retry"
            ) from None
        decision = Decision(
            at_us=self._wall_us(),
            topic=transition.topic,
            segments=tuple(predecessor.id for predecessor in transition.predecessors),
            kind=transition.kind,
            reason=transition.reason,
        )
        self.decisions.append(decision)
        return decision

    async def _seal(self, topic: Topic, predecessors: Sequence[Segment]) -> list[SegmentEnd]:
        """Seal all predecessors concurrently."""
        if len(predecessors) == 1:  # as after a broker's death, for each of its segments: save the task
            return [await self._seal_one(topic, predecessors[0])]
        results = await asyncio.gather(
            *(self._seal_one(topic, predecessor) for predecessor in predecessors), return_exceptions=True
        )
        ends = [result for result in results if isinstance(result, SegmentEnd)]
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            for sealing in ends:
                self._orphaned(sealing.segment)
            raise failures[0]
        return ends

    async def _seal_one(self, topic: Topic, segment: Segment) -> SegmentEnd:
        found = await self._sealer.seal(topic, segment, self._placement.suspects)
        if found is None:
            raise Unavailable(f"{segment} cannot be sealed yet, as a live replica does not answer: retry")
        epoch, sealed = found
        return SegmentEnd(
            segment=segment,
            end_offset=sealed.end_offset,
            epoch=epoch,
            sequences=tuple(reversed(sealed.sequences)),
            sequences_complete=sealed.sequences_complete,
        )

    async def _succeed(self, transition: Transition, uid: int, ends: Sequence[SegmentEnd]) -> None:
        try:
            plan = partial(self._change, transition, uid, ends)
            try:
                await self._batcher.write(transition.topic, transition.predecessors, plan)
            except Conflict:  # rare: only then pay for the retrier
                await self._metadata.on_conflict()(self._batcher.write, transition.topic, transition.predecessors, plan)
        except SeaweedMQError:
            for sealing in ends:
                self._orphaned(sealing.segment)
            raise
        self._documents.expect([transition.topic])  # later: serving the segments comes first
        for sealing in ends:
            log.info(
                "%s: sealed %s at offset %d: %s",
                transition.kind,
                sealing.segment,
                sealing.end_offset,
                transition.reason,
            )

    def _change(
        self, transition: Transition, uid: int, ends: Sequence[SegmentEnd], topic: Topic
    ) -> MetadataChange | None:
        """Return the change of the topic as it is now, or will be after the changes before it."""
        segments = self._metadata.view.segments_of(transition.topic)
        opened = [s for s in ends if s.segment.id in segments and segments[s.segment.id].is_open]
        if topic.uid != uid:
            raise NotFound(f"{transition.topic} was deleted and recreated: refresh the metadata")
        if not opened:
            return None  # an earlier attempt with an unknown outcome succeeded
        if len(opened) < len(ends):
            raise Unavailable(f"{transition.topic} changed concurrently: retry")
        return succeed(
            self._taken_ids.raised(topic),
            ends,
            ranges=transition.ranges,
            placement=self._placement.of_successors(
                topic, transition.predecessors, transition.preferred or [()] * len(transition.ranges)
            ),
            now_us=self._wall_us(),
        )


def _ended(task: "asyncio.Task[Decision]") -> None:
    """Report a bug: the caller gets the outcome unless it is gone, and only a SeaweedMQError is expected."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, SeaweedMQError):
        log.critical("%s failed", task.get_name(), exc_info=error)
