"""One broker: its presence in the cluster, the segments it owns, and the calls it answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryError, retry_if_exception, stop_after_delay, wait_random_exponential

from seaweedmq.broker.forward import Forwarding
from seaweedmq.broker.group_calls import GroupCalls
from seaweedmq.broker.groups.leadership import GroupLeadership
from seaweedmq.broker.groups.registry import Groups
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.broker.leader_calls import LeaderCalls
from seaweedmq.broker.membership import Membership, is_retryable
from seaweedmq.broker.memory.shares import COPIES, BrokerMemory, StreamMemory
from seaweedmq.broker.passed_on import PassedOn
from seaweedmq.broker.segment.flush import GroupSync
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.owned import Ownership
from seaweedmq.broker.segment.primary import SegmentContext
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.publish import PublishService
from seaweedmq.broker.serve.subscribe import SubscribeService
from seaweedmq.broker.term import Term
from seaweedmq.broker.upkeep.load import LoadReporter
from seaweedmq.broker.upkeep.maintenance import Maintenance
from seaweedmq.broker.upkeep.start_offsets import StartOffsets
from seaweedmq.codec import keys
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.errors import (
    Fenced,
    InvalidArgument,
    NotFound,
    SeaweedMQError,
    Unavailable,
)
from seaweedmq.model.broker import BrokerInfo, BrokerLoad
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.description import ALL, IDS_MAX, OPEN, SegmentStats, TopicDescription, Which
from seaweedmq.model.publish import PublishReply, PublishRequest
from seaweedmq.model.replication import (
    FenceReply,
    Progress,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.subscribe import SubscribeReply, SubscribeRequest
from seaweedmq.model.topic import Topic, TopicName, created_again
from seaweedmq.ports import BrokerApi, Dialer, Environment, MetaStore, SegmentStore, TableConverter

log = logging.getLogger(__name__)
T = TypeVar("T")

DRAIN_TIMEOUT_S = 20.0
REPLICAS_TIMEOUT_S = 30.0
"""Longer than anything else: what a follower holds may be in no file, and in no other memory once the machine of its
primary is lost. With LEAVE_TIMEOUT_S below what a supervisor waits before it kills; see deploy/."""
LEAVE_TIMEOUT_S = 15.0
SUSPICION_TIMEOUT_S = 30.0


class Broker(LeaderCalls, GroupCalls):
    """A broker process without its network server. Implements ``ports.BrokerApi``.

    ``failed`` ends with the error that made going on impossible; it is cancelled by ``stop``.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Environment,
        store: SegmentStore,
        meta: MetaStore,
        dialer: Dialer,
        converter: TableConverter,
        address: str,
    ) -> None:
        self._view = ClusterView(meta, env.rng)
        forward = partial(Forwarding, self._view, dialer, self._leader, config.rpc_timeout_s)
        super().__init__(forward())
        self.passed_on = PassedOn(forward(passed_on=True), broker_id=lambda: self.id, drain=self._drain_here)
        self.address = address
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._env = env
        self._store = store
        self._meta = meta
        self._dialer = dialer
        self._converter = converter
        self._ownership = Ownership(
            view=self._view,
            term=lambda: self._term,
            context=self._segment_context,
        )
        self._owned = self._ownership.segments
        self.memory = BrokerMemory.of(config, env.resident_bytes())
        self.stream_memory = StreamMemory(self.memory.logs, COPIES * config.frame_bytes_max)
        self._budget, self._replica_budget = self.memory.logs, self.memory.replicas
        self._producers = ProducerPool.of(config)
        self._group_sync = GroupSync(config.flush_interval_s)
        self._lookup = Lookup(self._view, self._owned)
        self._publish = PublishService(config, self._lookup, store, self.memory.intake)
        self._subscribe = SubscribeService(config, self._lookup, store, self.memory)
        self._starts = StartOffsets(self._view, store, partial(self._spawn, may_end=True))
        self._tasks: set[asyncio.Task[None]] = set()
        self._membership = Membership(
            meta=meta,
            env=env,
            lease_ttl_s=config.lease_ttl_s,
            address=address,
            make_term=self._make_term,
            # Segments may have been assigned to a new id before etcd's answer was here.
            changed=self._view.look_again,
            drop=self._drop,
        )
        self._stopping = False

    @property
    def id(self) -> str:
        """Broker id of the current lease; "" while there is none."""
        return self._term.id if self._term else ""

    @property
    def _term(self) -> Term | None:
        return self._membership.term

    async def start(self) -> None:
        """Check the storage, register, and serve what is assigned.

        Raises:
            StorageFailed: the storage can not be written.
            AlreadyExists: another broker holds the address.
            Unavailable: etcd can not be reached.
        """
        await self._store.check()
        self._spawn(self._view.run(), "view")
        self._spawn(self._group_sync.run(), "fsync")
        first = await self._membership.join()
        self._membership.stay(self._spawn, first, self._view.ready())
        await self._view.ready()
        self._spawn(self._ownership.run(), "segments")

    async def stop(self) -> None:
        """Take nothing more, store and commit what is there, leave the cluster. Others take the segments over."""
        self._membership.retire()
        if self._term:
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._drain_self(self._term)
            except (SeaweedMQError, TimeoutError) as error:
                log.warning("leaving with segments that others have to recover: %s", error or "no time left")
        ending = [self._ownership.drain(DRAIN_TIMEOUT_S)]
        if self._term:  # while its lease lives, so that nobody believes files in which something is missing
            ending.append(self._term.followers.close(REPLICAS_TIMEOUT_S))
        await asyncio.gather(*ending)
        self._stopping = True
        await self._membership.leave()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.failed.cancel()
        await self._converter.close()

    # --- membership ---------------------------------------------------------------------------------------------------

    async def _drop(self, term: Term) -> None:
        """The lease is lost: what it owned is somebody else's by now, or soon."""
        log.error("lost the lease as %s: dropping %d segments", term.id, len(self._owned))
        gone = Unavailable(f"broker {term.id} lost its lease; the segment moves to another broker")
        await self._ownership.drop(gone)
        await term.followers.close()

    def _segment_context(self, term: Term) -> SegmentContext:
        return SegmentContext(
            config=self._config,
            store=self._store,
            budget=self._budget,
            producers=self._producers,
            relaying=self.memory.relaying,
            group_sync=self._group_sync,
            writer_id=term.id,
            lease_alive=term.session.alive,
            wall_us=self._env.wall_us,
            spawn=partial(self._spawn, may_end=True),
            dial=self._dial,
            suspect=self._report_suspicion,
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str, *, may_end: bool = False) -> asyncio.Task[None]:
        """Run for the life of the broker or of its term. An earlier end ends the broker: ``failed`` says why.

        With ``may_end`` only an error does.
        """
        task = asyncio.create_task(work, name=f"{name} of {self.address}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, may_end))
        return task

    def _ended(self, may_end: bool, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error: BaseException | None
        if task.cancelled():
            in_order = may_end or self._stopping or self._membership.is_ending
            error = AssertionError(f"{task.get_name()} was cancelled before its time")
        else:
            in_order = (may_end or self._stopping) and task.exception() is None
            error = task.exception() or AssertionError(f"{task.get_name()} ended by itself")
        if not in_order and not self.failed.done():
            log.critical("%s failed", task.get_name(), exc_info=error)
            self.failed.set_exception(error)

    # --- data ---------------------------------------------------------------------------------------------------------

    def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        """See ``ports.BrokerApi``."""
        return self._publish.publish(requests)

    def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """See ``ports.BrokerApi``."""
        return self._subscribe.subscribe(requests)

    # --- replication --------------------------------------------------------------------------------------------------

    def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        """See ``ports.BrokerApi``."""
        return self._member().followers.replicate(requests)

    async def progress(self, progress: Progress) -> None:
        """See ``ports.BrokerApi``."""
        await self._member().followers.progress(progress)

    async def fence(self, ref: SegmentRef) -> FenceReply:
        """See ``ports.BrokerApi``."""
        return await self._member().followers.fence(ref)

    async def write_out(self, ref: SegmentRef, end_offset: int) -> SealedLog:
        """See ``ports.BrokerApi``."""
        return await self._member().followers.write_out(ref, end_offset)

    async def seal(self, ref: SegmentRef) -> SealedLog:
        """See ``ports.BrokerApi``."""
        owned = self._owned.get((ref.topic, ref.segment))
        if owned is None or owned.topic.uid != ref.topic_uid:
            raise NotFound(f"{ref}: this broker is not its primary, or not yet")
        if owned.segment.epoch != ref.epoch:
            raise Fenced(f"{owned.segment}: it has epoch {owned.segment.epoch}, not {ref.epoch}")
        return await owned.seal()

    async def _report_suspicion(self, suspicion: Suspicion) -> None:
        """Until the leader has heard, or the segment is sealed; nothing is committed meanwhile anyhow."""
        reporting = AsyncRetrying(
            retry=retry_if_exception(is_retryable),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            stop=stop_after_delay(SUSPICION_TIMEOUT_S),
        )
        try:
            await reporting(self.suspect, suspicion)
        except (SeaweedMQError, RetryError) as error:
            log.info("suspicion of %s about %s is void: %s", suspicion.suspect, suspicion.ref, error)

    def _dial(self, broker_id: str) -> BrokerApi:
        """A broker by id; Unavailable if it is gone."""
        if broker_id == self.id:
            return self
        info = self._view.brokers.get(broker_id)
        if info is None:
            raise Unavailable(f"broker {broker_id} is gone")
        return self._dialer.dial(info.address)

    # --- administration ---------------------------------------------------------------------------------------------

    async def drain_broker(self, broker: str) -> None:
        """See ``ports.BrokerApi``."""
        named = [b for b in self._view.brokers.values() if broker in (b.id, b.address)]
        if not named:
            known = ", ".join(sorted(b.address for b in self._view.brokers.values()))
            raise NotFound(f"there is no broker {broker}: the cluster has {known}")
        if named[0].id != self.id:
            await self._dialer.dial(named[0].address).passed_on.drain_broker(named[0].id)
            return
        await self._drain_here()

    async def _drain_here(self) -> None:
        if not self._others_stay():
            raise InvalidArgument(f"{self.address} is the last broker that is not being drained: add another one first")
        await self._drain_self(self._member())

    async def _drain_self(self, term: Term) -> None:
        """Say that this broker is leaving, and wait until the leader has moved everything away; if the lease is lost
        meanwhile and nobody comes back, there is nothing left to wait for."""
        await self._membership.announce_draining()
        while (
            not (term.is_over and self._membership.retiring)
            and self._others_stay()
            and any(
                term.id in segment.replicas
                for segments in self._view.open_segments.values()
                for segment in segments.values()
            )
        ):
            seen = self._view.changes
            await self._view.wait_change(seen)

    def _others_stay(self) -> bool:
        return any(b.id != self.id and not b.draining for b in self._view.brokers.values())

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        """See ``ports.BrokerApi``."""
        await self._leader().report_load(reports)

    async def list_topics(self) -> tuple[Topic, ...]:
        """See ``ports.BrokerApi``."""
        return tuple(sorted(self._view.topics.values(), key=lambda t: t.name))

    async def describe_topic(self, name: TopicName, which: Which = ALL, topic_uid: int = 0) -> TopicDescription:
        """See ``ports.BrokerApi``."""
        if len(which.ids) > IDS_MAX:
            raise InvalidArgument(f"{len(which.ids)} segments of {name} asked for by id: ask for {IDS_MAX} at a time")
        await self._catch_up(name, topic_uid)
        return self._leader().metadata.description(name, which)

    async def _catch_up(self, name: TopicName, uid: int = 0) -> None:
        """A client may come straight from creating the topic at another broker: what the view lacks, etcd may have.

        Raises:
            NotFound: another topic has the name than the one with this uid, if it is not 0.
            Unavailable: etcd can not be reached, or the view does not follow in time.
        """
        if not self._knows(name, uid):
            await self._follow_up(name)
            if name in self._view.topics and not self._knows(name, uid):
                raise created_again(name)

    def _knows(self, name: TopicName, uid: int) -> bool:
        topic = self._view.topics.get(name)
        return topic is not None and uid in (0, topic.uid)

    async def _follow_up(self, name: TopicName) -> None:
        """Return once the view shows the topic as etcd has it now."""
        entry = await self._meta.get(keys.topic_key(name))
        if entry is None:
            return
        try:
            async with asyncio.timeout(self._config.rpc_timeout_s):
                await self._view.wait_revision(entry.mod_revision)
        except TimeoutError:
            raise Unavailable(f"broker {self.address} lags behind and does not know {name} yet: try another") from None

    async def local_stats(self, name: TopicName, topic_uid: int = 0) -> tuple[SegmentStats, ...]:
        """See ``ports.BrokerApi``."""
        topic = self._view.topics.get(name)
        if topic is None:
            return ()
        starts = await self._starts.of(topic)
        return tuple(
            SegmentStats(
                segment=number,
                start_offset=max(owned.segment.start_offset, starts.get(number, 0)),
                high_watermark=owned.log.committed,
                flushed_offset=owned.log.flushed,
                bytes_per_s=owned.meter.bytes_per_s,
                records_per_s=owned.meter.records_per_s,
            )
            for (of, number), owned in sorted(self._owned.items())
            if of == name and owned.is_sure and topic_uid in (0, owned.topic.uid)
        )

    async def log_ends(self, name: TopicName, uid: int, revision: int) -> Mapping[int, int]:
        """See ``ports.BrokerApi``."""
        await self._view.wait_revision(revision)
        return {
            number: owned.log.end
            for (topic, number), owned in self._owned.items()
            if topic == name and owned.topic.uid == uid
        }

    async def topic_stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        """See ``ports.BrokerApi``."""
        await self._catch_up(name)
        description = self._leader().metadata.description(name, OPEN)
        primaries = sorted({s.primary for s in description.segments})
        gone = [p for p in primaries if p not in description.addresses]
        if gone:
            raise Unavailable(f"broker {gone[0]} is gone and its segments of {name} are being moved: try again")
        parts = await asyncio.gather(
            *(
                self.local_stats(name, description.topic.uid)
                if primary == self.id
                else self._dialer.dial(description.addresses[primary]).local_stats(name, description.topic.uid)
                for primary in primaries
            )
        )
        return tuple(sorted((s for part in parts for s in part), key=lambda s: s.segment))

    def _member(self) -> Term:
        if self._term is None:
            raise Unavailable(f"broker {self.address} is not in the cluster at the moment: try another one")
        return self._term

    def _leader(self) -> Leader:
        return self._member().leader

    def _make_term(self, info: BrokerInfo, session: Session) -> Term:
        """Everything that runs under one broker id."""
        election = Election(self._meta, session, info.id, self._env.rng)
        groups = GroupLeadership(election, partial(self._make_groups, election))
        leader = Leader(
            view=self._view,
            election=election,
            store=self._store,
            rng=self._env.rng,
            wall_us=self._env.wall_us,
            dial=self._dial,
            stats=self.topic_stats,
            config=self._config,
            groups=groups,
            is_leaving=lambda: self._membership.draining,
        )
        followers = FollowerService(
            config=self._config,
            view=self._view,
            store=self._store,
            budget=self._replica_budget,
            producers=self._producers,
            intake=self.memory.intake,
            broker_id=info.id,
            suspect=self._report_suspicion,
            spawn=partial(self._spawn, may_end=True),
        )
        reporter = LoadReporter(
            broker_id=info.id,
            view=self._view,
            dialer=self._dialer,
            budget=self._budget,
            segments=self._owned.values,
            interval_s=self._config.load_report_interval_s,
            local=self,
        )
        maintenance = Maintenance(
            config=self._config,
            broker_id=info.id,
            view=self._view,
            store=self._store,
            converter=self._converter,
            segments=self._owned.values,
            wall_us=self._env.wall_us,
            report_emptied=self.report_emptied,
        )

        def begin() -> list[asyncio.Task[None]]:
            return [
                self._spawn(election.run(), "election", may_end=True),  # with the lease; the next term has another
                self._spawn(leader.run(), "leader"),
                self._spawn(groups.run(), "groups"),
                self._spawn(reporter.run(), "load"),
                self._spawn(maintenance.run(), "maintenance"),
            ]

        return Term(info, session, leader, followers, begin)

    def _make_groups(self, election: Election) -> Groups:
        return Groups(
            view=self._view,
            election=election,
            meta=self._meta,
            dial=self._dial,
            catch_up=self._catch_up,
            config=self._config,
            wall_us=self._env.wall_us,
            spawn=partial(self._spawn, may_end=True),
        )
