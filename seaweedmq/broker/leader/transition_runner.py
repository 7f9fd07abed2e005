"""Changes of segments: seal what is open, and open successors, for whatever reason."""

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
from seaweedmq.broker.leader.taken_ids import TakenIds
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
    """What is to become of one or more open neighbours of a topic."""

    kind: str
    """``split``, ``merge``, ``move``, ``repair`` or ``seal``: see ``model.broker.Decision``."""
    predecessors: tuple[Segment, ...]
    """In the order of the ring."""
    ranges: tuple[KeyRange, ...]
    """One for each successor; together the parents' slots."""
    wishes: tuple[tuple[str, ...], ...] = ()
    """Replicas for each successor, the primary first. What is missing, or can take nothing, is chosen by load."""
    reason: str
    """In words, for people."""
    timeout_s: float | None = TRANSITION_TIMEOUT_S
    """None: however long the recovery from files takes."""

    @property
    def topic(self) -> TopicName:
        """Of the parents."""
        return self.predecessors[0].topic


class TransitionRunner:
    """Carries steps out, each in one transaction. What one leader leaves half done, any leader finishes by replacing
    what was sealed."""

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
        """``orphaned`` is told of segments that were sealed and did not get their successor."""
        self._metadata = metadata
        self._batcher = MetadataBatcher(metadata)
        self._documents = documents
        self._placement = placement
        self._sealer = sealer
        self._taken_ids = taken_ids
        self._wall_us = wall_us
        self._orphaned = orphaned
        self._under_way: dict[SegmentId, asyncio.Task[Any]] = {}
        """Parents of steps -> the task that carries the step out."""
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        """What was done, and what could not be done, the newest last."""

    @property
    def under_way(self) -> Collection[SegmentId]:
        """Segments that are being changed at present."""
        return self._under_way.keys()

    def concerns(self, segment: Segment) -> bool:
        """Whether the segment is being sealed. Its primary ends its replicate streams, which is no reason to suspect
        it."""
        return segment.key in self._under_way

    async def carry_out(self, step: Transition) -> Decision:
        """Seal the parents, then open their successors. A caller that goes away does not stop it half-way.

        Raises:
            Unavailable: somebody else changes a parent, nobody can take the successors, or a replica lives and does not
                answer. What was sealed is replaced by plain successors.
            SeaweedMQError: the storage failed, or the files are damaged.
        """
        task = asyncio.create_task(self.carry_out_here(step), name=f"{step.kind} {step.predecessors[0]}")
        task.add_done_callback(_ended)
        return await asyncio.shield(task)

    async def carry_out_here(self, step: Transition) -> Decision:
        """As :meth:`carry_out`, in the task of the caller: it is stopped half-way if that is cancelled."""
        busy = [str(predecessor) for predecessor in step.predecessors if self.concerns(predecessor)]
        if busy:
            raise Unavailable(f"{busy[0]} is being changed at this moment: try again")
        task = asyncio.current_task()
        assert task is not None
        self._under_way |= dict.fromkeys((predecessor.key for predecessor in step.predecessors), task)
        try:
            return await self._carry_out(step)
        finally:
            for predecessor in step.predecessors:
                del self._under_way[predecessor.key]

    async def record_problem(self, segment: Segment, problem: str) -> None:
        """Record why the segment cannot be recovered; sealing it removes that. Nothing if it is recorded, or changed.

        Raises:
            Conflict, Deposed, Unavailable: as ``MetadataBatcher.write``.
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
        """No longer leading: what is half done is finished by the next leader."""
        tasks = set(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _carry_out(self, step: Transition) -> Decision:
        topic = self._metadata.topic(step.topic)
        gone = [predecessor for predecessor in step.predecessors if not self._metadata.is_open(predecessor)]
        if gone:
            raise Unavailable(f"{gone[0]} was changed, or deleted with its topic, at this moment: look again")
        self._placement.check_somebody_is_free()
        try:
            async with asyncio.timeout(step.timeout_s):
                await self._taken_ids.learn(topic)  # first: a storage that fails leaves no segment without successor
                await self._succeed(step, topic.uid, await self._seal(topic, step.predecessors))
        except TimeoutError:
            for predecessor in step.predecessors:
                self._orphaned(predecessor)
            raise Unavailable(
                f"{step.predecessors[0]} was not sealed within {step.timeout_s} s: it goes on, later"
            ) from None
        decision = Decision(
            at_us=self._wall_us(),
            topic=step.topic,
            segments=tuple(predecessor.id for predecessor in step.predecessors),
            kind=step.kind,
            reason=step.reason,
        )
        self.decisions.append(decision)
        return decision

    async def _seal(self, topic: Topic, predecessors: Sequence[Segment]) -> list[SegmentEnd]:
        """All of them, at the same time."""
        if len(predecessors) == 1:  # as after a broker's death, for each of its segments: without a task for it
            return [await self._seal_one(topic, predecessors[0])]
        results = await asyncio.gather(
            *(self._seal_one(topic, predecessor) for predecessor in predecessors), return_exceptions=True
        )
        sealings = [result for result in results if isinstance(result, SegmentEnd)]
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            for sealing in sealings:
                self._orphaned(sealing.segment)
            raise failures[0]
        return sealings

    async def _seal_one(self, topic: Topic, segment: Segment) -> SegmentEnd:
        found = await self._sealer.seal(topic, segment, self._placement.suspects)
        if found is None:
            raise Unavailable(f"{segment}: a replica lives but does not answer, so it can not be sealed yet")
        epoch, sealed = found
        return SegmentEnd(
            segment=segment,
            end_offset=sealed.end_offset,
            epoch=epoch,
            sequences=tuple(reversed(sealed.sequences)),
            sequences_complete=sealed.sequences_complete,
        )

    async def _succeed(self, step: Transition, uid: int, sealings: Sequence[SegmentEnd]) -> None:
        try:
            plan = partial(self._change, step, uid, sealings)
            try:
                await self._batcher.write(step.topic, step.predecessors, plan)
            except Conflict:  # the rare case, and the machinery for it
                await self._metadata.on_conflict()(self._batcher.write, step.topic, step.predecessors, plan)
        except SeaweedMQError:
            for sealing in sealings:
                self._orphaned(sealing.segment)
            raise
        self._documents.expect([step.topic])  # written once all segments are served again
        for sealing in sealings:
            log.info("%s: sealed %s at offset %d: %s", step.kind, sealing.segment, sealing.end_offset, step.reason)

    def _change(
        self, step: Transition, uid: int, sealings: Sequence[SegmentEnd], topic: Topic
    ) -> MetadataChange | None:
        """Of the topic as it is now, or will be once others are done."""
        segments = self._metadata.view.segments_of(step.topic)
        opened = [s for s in sealings if s.segment.id in segments and segments[s.segment.id].is_open]
        if topic.uid != uid:
            raise NotFound(f"{step.topic} was deleted meanwhile: there is another topic of that name now")
        if not opened:
            return None  # an attempt whose outcome was unclear had worked
        if len(opened) < len(sealings):
            raise Unavailable(f"{step.topic} was changed by somebody else at the same time: look again")
        return succeed(
            self._taken_ids.raised(topic),
            sealings,
            ranges=step.ranges,
            placement=self._placement.of_successors(topic, step.predecessors, step.wishes or [()] * len(step.ranges)),
            now_us=self._wall_us(),
        )


def _ended(task: "asyncio.Task[Decision]") -> None:
    """The caller knows how, unless it is gone. What is no error of the cluster is a mistake in here."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, SeaweedMQError):
        log.critical("%s failed", task.get_name(), exc_info=error)
