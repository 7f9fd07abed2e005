"""What the leader does. It keeps nothing: metadata is in etcd, loads come in from the brokers, a successor starts anew.

Every write is a transaction guarded by the lock's creation revision, so that a deposed leader changes nothing.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from seaweedmq.broker.sealer import Sealer
from seaweedmq.codec import keys
from seaweedmq.codec.documents import lineage_document, topic_document
from seaweedmq.codec.metadata import segment_to_json, topic_to_json
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.allocation import Candidate, place
from seaweedmq.core.sealing import must_move
from seaweedmq.core.topology import Change, altered, check_spec, new_topic, succeed
from seaweedmq.errors import (
    AlreadyExists,
    Corrupt,
    Fenced,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.broker import BrokerLoad, BrokerStatus, ClusterStatus
from seaweedmq.model.protocol import SegmentStats, TopicDescription
from seaweedmq.model.replication import SealedLog, Suspicion
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.ports import BrokerApi, Compare, Delete, Put, SegmentStore

log = logging.getLogger(__name__)

PUTS_PER_TRANSACTION = 100
RECOVERIES_AT_ONCE = 8
RETRY_S = 0.5
"""How soon the leader looks again after something it has to do failed."""
RETRY_DAMAGED_S = 15.0
"""The same for a segment whose files are damaged: somebody has to mend them, and reading them costs."""
CONFLICT_TIMEOUT_S = 10.0
SUSPECT_S = 5.0


class Leader:
    """The leader's duties, on every broker; they act only while ``election`` says that this one leads."""

    def __init__(
        self,
        *,
        view: ClusterView,
        election: Election,
        store: SegmentStore,
        rng: random.Random,
        wall_us: Callable[[], int],
        dial: Callable[[str], BrokerApi],
        stats: Callable[[TopicName], Awaitable[tuple[SegmentStats, ...]]],
        open_segments_max: int,
    ) -> None:
        self._view = view
        self._election = election
        self._store = store
        self._rng = rng
        self._wall_us = wall_us
        self._stats = stats
        self._open_segments_max = open_segments_max
        self._loads: dict[str, BrokerLoad] = {}
        self._suspects: dict[str, float] = {}
        """Broker id -> loop time until which it gets no new segments. A hint; losing it costs a second attempt."""
        self._broken: set[tuple[TopicName, int]] = set()
        """Open segments whose replicas lost each other: nothing is committed there until they are replaced."""
        self._moving: set[tuple[TopicName, int]] = set()
        """Segments being sealed. Their primary ends its replicate streams, which is no reason to suspect it."""
        self._suspected = asyncio.Event()
        self._sealer = Sealer(view, store, dial)
        self._damaged: dict[tuple[TopicName, int], float] = {}
        """Segments whose recovery met damage -> loop time of the next attempt."""
        self._creating = asyncio.Lock()
        """One creation at a time: two of one name would mix their segments."""
        self._deletions_due: dict[TopicName, int] = {}
        """Deleted topics, and their uid, whose files could not be deleted yet."""
        self._writing = asyncio.Lock()
        """One at a time changes documents and folders: an older document must not overtake a newer one."""
        self._documents_due: set[TopicName] = set()
        """Topics whose ``topic.json`` and ``lineage.json`` are not known to be up to date."""
        self._complained: set[str] = set()
        """What failed and was logged, so that a retry does not log it again."""

    @property
    def broker_id(self) -> str:
        """Of the broker whose candidacy this is."""
        return self._election.broker_id

    @property
    def leading(self) -> bool:
        """Whether this broker surely leads now."""
        return self._election.revision is not None

    async def run(self) -> None:
        """Lead whenever elected, until cancelled."""
        while True:
            await self._election.wait_leading()
            log.info("leading")
            duties = asyncio.create_task(self._lead(), name="lead")
            deposed = asyncio.create_task(self._election.wait_not_leading(), name="deposed")
            try:
                await asyncio.wait({duties, deposed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (duties, deposed):
                    task.cancel()
                await asyncio.wait({duties, deposed})
            self._loads.clear()
            self._deletions_due.clear()  # the next leader may give a name away that we would still delete
            if not duties.cancelled():
                duties.result()
            log.info("no longer leading")

    # --- duties -------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        self._documents_due = set(self._view.topics)
        while True:
            seen = self._view.changes
            self._suspected.clear()
            replaced = await self._replace_orphans()
            written = await self._write_due_documents()
            deleted = await self._delete_due_files()
            await self._something_to_do(seen, None if replaced and written and deleted else RETRY_S)

    async def _something_to_do(self, seen: int, timeout_s: float | None) -> None:
        """Until the metadata has changed, somebody is suspected, or the time is up."""
        waiting = {
            asyncio.create_task(self._view.wait_change(seen), name="leader waits for a change"),
            asyncio.create_task(self._suspected.wait(), name="leader waits for a suspicion"),
        }
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    async def _replace_orphans(self) -> bool:
        """Seal the open segments that lost a replica, and open successors. Whether all is done."""
        self._forget_old_suspicions()
        live, draining, now = self._view.brokers, self._draining(), asyncio.get_running_loop().time()
        self._damaged = {key: until for key, until in self._damaged.items() if until > now}
        orphans = [
            segment
            for name, segments in self._view.segments.items()
            if name in self._view.topics
            for segment in segments.values()
            if segment.is_open
            and (must_move(segment, live, draining) or (name, segment.id) in self._broken)
            and (name, segment.id) not in self._damaged
        ]
        thin = [] if orphans else self._under_replicated()
        limit = asyncio.Semaphore(RECOVERIES_AT_ONCE)
        done = await asyncio.gather(*(self._replace_orphan(segment, limit) for segment in [*orphans, *thin[:1]]))
        return (
            all(done) and not thin and not self._damaged
        )  # one repair a turn: the others stay readable and writable meanwhile

    def _under_replicated(self) -> list[Segment]:
        """Open segments that were opened when brokers were missing, and could have more replicas now."""
        available = len(self._view.brokers.keys() - self._shunned())
        return [
            segment
            for name, segments in self._view.segments.items()
            if name in self._view.topics
            for segment in segments.values()
            if segment.is_open and len(segment.replicas) < min(self._view.topics[name].replicas, available)
        ]

    async def _replace_orphan(self, segment: Segment, limit: asyncio.Semaphore) -> bool:
        key = segment.topic, segment.id
        async with limit:
            self._moving.add(key)
            try:
                if not self._placement(self._topic(segment.topic)):
                    return False  # nowhere to go: it stays where it is until a broker comes
                sealed = await self._sealer.seal(self._topic(segment.topic), segment, self._suspects)
                if sealed is None:
                    return self._failed(f"sealing {segment}", Unavailable("a replica lives but does not answer"))
                await self._succeed(segment, *sealed)
            except SeaweedMQError as error:
                if isinstance(error, Corrupt):
                    self._damaged[key] = asyncio.get_running_loop().time() + RETRY_DAMAGED_S
                return self._failed(f"replacing {segment}", error)
            finally:
                self._moving.discard(key)
        return True

    async def _succeed(self, segment: Segment, epoch: int, sealed: SealedLog) -> None:
        async for attempt in self._on_conflict():
            with attempt:
                topic = self._topic(segment.topic)
                known = self._view.segments.get(segment.topic, {}).get(segment.id)
                if known is None or not known.is_open:
                    return
                placement = self._placement(topic)
                if not placement:
                    raise Unavailable("every broker is suspected or being drained: it goes on when one is not")
                change = succeed(
                    topic,
                    segment,
                    end_offset=sealed.end_offset,
                    epoch=epoch,
                    sequences=tuple(reversed(sealed.sequences)),
                    ranges=[segment.slots],
                    placement=placement,
                )
                revision = self._view.segment_revision(segment.topic, segment.id)
                done = await self._write(
                    change, [Compare(keys.segment_key(segment.topic, segment.id), mod_revision=revision)]
                )
                await self._view.wait_revision(done)
                self._documents_due.add(segment.topic)  # written once all segments are served again
        log.info("sealed %s at offset %d", segment, sealed.end_offset)

    def _placement(self, topic: Topic) -> list[tuple[str, ...]]:
        """Replicas of one new segment; fewer than the topic wants rather than none, when brokers are missing."""
        shunned = self._shunned()
        candidates = [c for c in self._candidates() if c.broker not in shunned]
        if not candidates:
            return []
        return place(candidates, segments=1, replicas=min(topic.replicas, len(candidates)), tie=self._rng.random)

    def _shunned(self) -> set[str]:
        """Brokers that get nothing new: suspected, or being drained."""
        return self._draining() | set(self._suspects)

    def _draining(self) -> set[str]:
        return {b.id for b in self._view.brokers.values() if b.draining}

    def _forget_old_suspicions(self) -> None:
        segments = self._view.segments
        self._broken = {(t, s) for t, s in self._broken if s in segments.get(t, {}) and segments[t][s].is_open}
        now = asyncio.get_running_loop().time()
        for broker, until in list(self._suspects.items()):
            if until <= now or broker not in self._view.brokers:
                del self._suspects[broker]

    async def suspect(self, suspicion: Suspicion) -> None:
        """See ``ports.BrokerApi``. Fenced, if the segment is sealed or has another epoch by now."""
        ref = suspicion.ref
        segment = self._view.segments.get(ref.topic, {}).get(ref.segment)
        if segment is None or not segment.is_open or segment.epoch != ref.epoch:
            raise Fenced(f"{ref.topic}#{ref.segment}: epoch {ref.epoch} is over already")
        if suspicion.suspect and suspicion.suspect not in segment.replicas:
            raise InvalidArgument(f"{segment}: {suspicion.suspect} is none of its replicas")
        if (ref.topic, ref.segment) in self._moving:
            return
        log.warning("%s: %s is suspected: %s", segment, suspicion.suspect or "nobody", suspicion.reason)
        if suspicion.suspect:
            self._suspects[suspicion.suspect] = asyncio.get_running_loop().time() + SUSPECT_S
        self._broken.add((ref.topic, ref.segment))
        self._suspected.set()

    def _failed(self, what: str, error: Exception) -> bool:
        complaint = f"{what}: {error}"
        if complaint not in self._complained:
            self._complained.add(complaint)
            log.error("%s (trying on)", complaint)
        return False

    # --- documents ----------------------------------------------------------------------------------------------------

    async def _write_due_documents(self) -> bool:
        async with self._writing:
            return await self._write_documents()

    async def _write_documents(self) -> bool:
        for name in sorted(self._documents_due):
            topic = self._view.topics.get(name)
            if topic is None:
                self._documents_due.discard(name)
                continue
            if not self.leading:
                return False
            segments = self._view.segments.get(name, {}).values()
            self._documents_due.discard(name)
            try:
                await self._store.put_document(name, TOPIC_DOCUMENT, topic_document(topic))
                await self._store.put_document(name, LINEAGE_DOCUMENT, lineage_document(name, segments))
            except SeaweedMQError as error:
                self._documents_due.add(name)
                return self._failed(f"writing the documents of {name}", error)
        return True

    # --- administration -----------------------------------------------------------------------------------------------

    async def create_topic(self, spec: TopicSpec) -> TopicDescription:
        """See ``ports.BrokerApi``."""
        check_spec(spec)
        if spec.schema is not None:
            spec = replace(spec, schema=_normal(spec.schema))
        async with self._creating:
            return await self._create(spec)

    async def _create(self, spec: TopicSpec) -> TopicDescription:
        if spec.name in self._view.topics:
            raise _taken(spec.name)
        await self._store.check()
        await self._delete_files(spec.name)
        candidates = [c for c in self._candidates() if not self._view.brokers[c.broker].draining]
        placement = place(candidates, segments=spec.segments, replicas=spec.replicas, tie=self._rng.random)
        self._check_room(spec, placement)
        change = new_topic(spec, uid=self._rng.getrandbits(63), now_us=self._wall_us(), placement=placement)
        key = keys.topic_key(spec.name)
        absent = Compare(key, create_revision=0)
        # etcd bounds a transaction. Segments of a topic that is not there yet mean nothing; the topic comes last. A
        # leader that died in between may have left some, which would not fit ours.
        if await self._election.transact([absent], [Delete(keys.segments_prefix(spec.name), prefix=True)]) is None:
            raise _taken(spec.name)
        for start in range(0, len(change.segments), PUTS_PER_TRANSACTION):
            chunk = change.segments[start : start + PUTS_PER_TRANSACTION]
            puts: list[Put | Delete] = [_segment_put(s) for s in chunk]
            if await self._election.transact([absent], puts) is None:
                raise _taken(spec.name)
        revision = await self._election.transact([absent], [Put(key, topic_to_json(change.topic))])
        if revision is None:
            raise _taken(spec.name)
        return await self._changed(spec.name, revision)

    def _check_room(self, spec: TopicSpec, placement: Sequence[tuple[str, ...]]) -> None:
        counts = Counter({c.broker: c.segments for c in self._candidates()})
        counts.update(broker for replicas in placement for broker in replicas)
        if max(counts.values(), default=0) > self._open_segments_max:
            raise ResourceExhausted(
                f"{spec.segments} segments of {spec.name} are more than the brokers have room for, "
                f"{self._open_segments_max} open segments each: add brokers, or raise open_segments_max on all"
            )

    async def alter_topic(self, name: TopicName, change: TopicChange) -> TopicDescription:
        """See ``ports.BrokerApi``."""
        return await self._update(name, lambda topic: altered(topic, change))

    async def delete_topic(self, name: TopicName) -> None:
        """See ``ports.BrokerApi``."""
        async for attempt in self._on_conflict():
            with attempt:
                topic = self._topic(name)
                revision = await self._election.transact(
                    [Compare(keys.topic_key(name), mod_revision=self._view.topic_revision(name))],
                    [Delete(keys.topic_key(name)), Delete(keys.segments_prefix(name), prefix=True)],
                )
                if revision is None:
                    raise _Conflict(f"{name} was changed by somebody else at the same time: try again")
        self._deletions_due[name] = topic.uid
        await self._view.wait_revision(revision or 0)
        await self._delete_files(name)

    async def _delete_files(self, name: TopicName) -> None:
        """Delete what a deleted topic left in the storage, if that was not done yet."""
        async with self._writing:
            uid = self._deletions_due.get(name)
            if uid is not None:
                await self._store.delete_topic(name, uid)
                del self._deletions_due[name]

    async def _delete_due_files(self) -> bool:
        for name in sorted(self._deletions_due):
            try:
                await self._delete_files(name)
            except SeaweedMQError as error:
                return self._failed(f"deleting the files of {name}", error)
        return True

    async def adopt_schema(self, name: TopicName, schema: bytes) -> TopicDescription:
        """See ``ports.BrokerApi``."""
        schema = _normal(schema)
        topic = self._topic(name)
        if topic.schema is None:
            stats = await self._stats(name)
            silent = {s.id for s in self.description(name).segments if s.is_open} - {s.segment for s in stats}
            if silent:
                raise Unavailable(f"segment {min(silent)} of {name} is being moved, it may hold records: try again")
            if any(s.high_watermark > 0 for s in stats):
                raise InvalidArgument(
                    f"topic {name} holds plain records already and can not get a schema: create a new topic for tables"
                )
        return await self._update(name, lambda topic: _with_schema(topic, schema))

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        """See ``ports.BrokerApi``."""
        async for load in reports:
            if not self.leading:
                raise StaleMetadata("this broker does not lead: report to the leader")
            if load.broker in self._view.brokers:
                self._loads[load.broker] = load

    def status(self) -> ClusterStatus:
        """The cluster as the leader sees it."""
        counts = {c.broker: c.segments for c in self._candidates()}
        return ClusterStatus(
            leader=self._view.leader or "",
            brokers=tuple(
                BrokerStatus(
                    info=info,
                    load=self._loads.get(info.id),
                    open_segments=counts.get(info.id, 0),
                    is_leader=info.id == self._view.leader,
                )
                for info in sorted(self._view.brokers.values(), key=lambda b: b.address)
            ),
            topics=len(self._view.topics),
            open_segments=sum(s.is_open for segments in self._view.segments.values() for s in segments.values()),
        )

    def description(self, name: TopicName) -> TopicDescription:
        """The topic as the metadata has it; NotFound."""
        return TopicDescription(
            topic=self._topic(name),
            segments=tuple(sorted(self._view.segments.get(name, {}).values(), key=lambda s: s.id)),
            addresses={broker.id: broker.address for broker in self._view.brokers.values()},
        )

    # --- shared -------------------------------------------------------------------------------------------------------

    def _topic(self, name: TopicName) -> Topic:
        topic = self._view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name}: see `seaweedmq topic list`")
        return topic

    def _candidates(self) -> list[Candidate]:
        counts = dict.fromkeys(self._view.brokers, 0)
        for segments in self._view.segments.values():
            for segment in segments.values():
                for replica in segment.replicas if segment.is_open else ():
                    if replica in counts:
                        counts[replica] += 1
        for_load = self._loads.get
        return [
            Candidate(
                broker=broker,
                segments=count,
                cpu_share=load.cpu_share if (load := for_load(broker)) else 0.0,
                bytes_per_s=sum(s.bytes_per_s for s in load.segments) if load else 0.0,
            )
            for broker, count in sorted(counts.items())
        ]

    async def _update(self, name: TopicName, edit: Callable[[Topic], Topic]) -> TopicDescription:
        async for attempt in self._on_conflict():
            with attempt:
                topic = self._topic(name)
                new = edit(topic)
                if new == topic:
                    return self.description(name)
                return await self._changed(name, await self._write(Change(new, ()), []))
        raise AssertionError("tenacity ends with a result or an error")

    async def _write(self, change: Change, compares: Sequence[Compare]) -> int:
        """Write the topic and its changed segments, if the topic is as the view has it; the revision."""
        name = change.topic.name
        revision = await self._election.transact(
            [Compare(keys.topic_key(name), mod_revision=self._view.topic_revision(name)), *compares],
            [Put(keys.topic_key(name), topic_to_json(change.topic)), *map(_segment_put, change.segments)],
        )
        if revision is None:
            raise _Conflict(f"{name} was changed by somebody else at the same time: try again")
        return revision

    async def _changed(self, name: TopicName, revision: int) -> TopicDescription:
        await self._view.wait_revision(revision)
        self._documents_due.add(name)
        await self._write_due_documents()
        return self.description(name)

    def _on_conflict(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(_Conflict),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            stop=stop_after_delay(CONFLICT_TIMEOUT_S),
            reraise=True,
        )


class _Conflict(Unavailable):
    """The metadata moved on between reading and writing."""


def _taken(name: TopicName) -> AlreadyExists:
    return AlreadyExists(f"topic {name} exists: choose another name, or alter it")


def _segment_put(segment: Segment) -> Put:
    return Put(keys.segment_key(segment.topic, segment.id), segment_to_json(segment))


def _normal(schema: bytes) -> bytes:
    """The one form in which equal schemas have equal bytes."""
    return schema_to_bytes(schema_from_bytes(schema))


def _with_schema(topic: Topic, schema: bytes) -> Topic:
    if topic.schema is not None and topic.schema != schema:
        raise InvalidArgument(f"topic {topic.name} has another schema already: send tables that fit it")
    return replace(topic, schema=schema)
