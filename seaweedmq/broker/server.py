"""One broker: its presence in the cluster, the segments it owns, and the calls it answers."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import psutil
from tenacity import AsyncRetrying, RetryError, retry_if_exception, stop_after_delay, wait_random_exponential

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.broker.flush import GroupSync
from seaweedmq.broker.follower import FollowerService
from seaweedmq.broker.forward import Forwarding
from seaweedmq.broker.group_calls import GroupCalls
from seaweedmq.broker.group_leadership import GroupLeadership
from seaweedmq.broker.groups import Groups
from seaweedmq.broker.leader import Leader
from seaweedmq.broker.leader_calls import LeaderCalls
from seaweedmq.broker.load import LoadReporter
from seaweedmq.broker.lookup import Lookup
from seaweedmq.broker.maintenance import Maintenance
from seaweedmq.broker.ownership import Ownership
from seaweedmq.broker.publish import PublishService
from seaweedmq.broker.segment import SegmentContext
from seaweedmq.broker.subscribe import SubscribeService
from seaweedmq.broker.term import Term
from seaweedmq.codec import keys
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import (
    Fenced,
    InvalidArgument,
    NotFound,
    SeaweedMQError,
    Unavailable,
)
from seaweedmq.model.broker import BrokerInfo, BrokerLoad
from seaweedmq.model.config import MIB, BrokerConfig
from seaweedmq.model.protocol import (
    ALL,
    IDS_MAX,
    OPEN,
    PublishReply,
    PublishRequest,
    SegmentStats,
    SubscribeReply,
    SubscribeRequest,
    TopicDescription,
    Which,
)
from seaweedmq.model.replication import (
    FenceReply,
    Progress,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import BrokerApi, Dialer, Environment, MetaStore, SegmentStore, TableConverter

log = logging.getLogger(__name__)
T = TypeVar("T")

DRAIN_TIMEOUT_S = 20.0
LEAVE_TIMEOUT_S = 15.0
SUSPICION_TIMEOUT_S = 30.0
TRANSIT_BYTES = 96 * MIB
"""Set aside of the memory bound for what the runtime holds: messages in gRPC's hands, reads of files."""
BUFFER_BYTES_MIN = 32 * MIB


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
        super().__init__(Forwarding(self._view, dialer, self._leader, config.rpc_timeout_s))
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
            open_segments_max=config.open_segments_max,
            term=lambda: self._term,
            context=self._segment_context,
        )
        self._owned = self._ownership.segments
        buffers = _buffer_bytes(config)
        # Apart, or two brokers that follow each other could each wait for memory that only the other can free.
        self._replica_budget = MemoryBudget(buffers // 3)
        self._budget = MemoryBudget(buffers - buffers // 3)
        self._group_sync = GroupSync(config.flush_interval_s)
        self._lookup = Lookup(self._view, self._owned)
        self._publish = PublishService(config, self._lookup, store)
        self._subscribe = SubscribeService(config, self._lookup, store)
        self._tasks: set[asyncio.Task[None]] = set()
        self._term: Term | None = None
        self._draining = False
        self._stopping = False
        self._ending_term = False
        """The duties of the term are being cancelled."""

    @property
    def id(self) -> str:
        """Broker id of the current lease; "" while there is none."""
        return self._term.id if self._term else ""

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
        first = await self._enter()
        await self._view.ready()
        self._spawn(self._terms(first), "terms")
        self._spawn(self._ownership.run(), "segments")

    async def stop(self) -> None:
        """Take nothing more, store and commit what is there, leave the cluster. Others take the segments over."""
        self._draining = True
        if self._term:
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._drain_self()
            except (SeaweedMQError, TimeoutError) as error:
                log.warning("leaving with segments that others have to recover: %s", error or "no time left")
        await self._ownership.drain(DRAIN_TIMEOUT_S)
        self._stopping = True
        if self._term:
            await self._term.end()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.failed.cancel()
        await self._converter.close()

    # --- membership ---------------------------------------------------------------------------------------------------

    async def _enter(self) -> Term:
        """Register under a new lease and a new id: whatever an earlier id owned is somebody else's business now."""
        broker_id = f"b-{self._env.rng.getrandbits(32):08x}"
        session = Session(self._meta, self._config.lease_ttl_s, self._env.rng)
        info = BrokerInfo(
            id=broker_id,
            address=self.address,
            started_us=self._env.wall_us(),
            pid=os.getpid(),
            version=version("seaweedmq"),
            draining=self._draining,
        )
        await session.open(info)
        log.info("broker %s at %s", broker_id, self.address)
        self._term = self._make_term(info, session)
        self._view.look_again()  # segments may have been assigned to the new id before etcd's answer was here
        return self._term

    async def _terms(self, term: Term) -> None:
        """Stay in the cluster: when the lease is lost, drop everything and come back as somebody new."""
        while True:
            term.begin()
            await term.session.lost.wait()
            log.error("lost the lease as %s: dropping %d segments and rejoining", term.id, len(self._owned))
            gone = Unavailable(f"broker {term.id} lost its lease; the segment moves to another broker")
            await self._ownership.drop(gone)
            await term.followers.close()
            self._ending_term = True
            await term.end()
            self._ending_term = False
            rejoining = AsyncRetrying(
                retry=retry_if_exception(_is_retryable),
                wait=wait_random_exponential(multiplier=0.1, max=self._config.lease_ttl_s),
            )
            term = await rejoining(self._enter)

    def _segment_context(self, term: Term) -> SegmentContext:
        return SegmentContext(
            config=self._config,
            store=self._store,
            budget=self._budget,
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
            in_order = may_end or self._stopping or self._ending_term
            error = AssertionError(f"{task.get_name()} was cancelled before its time")
        else:
            in_order = may_end and task.exception() is None
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
        if owned is None:
            raise NotFound(f"{ref.topic}#{ref.segment}: this broker is not its primary, or not yet")
        if owned.segment.epoch != ref.epoch:
            raise Fenced(f"{owned.segment}: it has epoch {owned.segment.epoch}, not {ref.epoch}")
        return await owned.seal()

    async def _report_suspicion(self, suspicion: Suspicion) -> None:
        """Until the leader has heard, or the segment is sealed; nothing is committed meanwhile anyhow."""
        reporting = AsyncRetrying(
            retry=retry_if_exception(_is_retryable),
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
            await self._dialer.dial(named[0].address).drain_broker(named[0].id)
            return
        if not self._others_stay():
            raise InvalidArgument(f"{self.address} is the last broker that is not being drained: add another one first")
        self._draining = True
        await self._drain_self()

    async def _drain_self(self) -> None:
        """Say that this broker is leaving, and wait until the leader has moved everything away."""
        term = self._member()
        await term.announce_draining()
        while self._others_stay() and any(
            term.id in segment.replicas
            for segments in self._view.open_segments.values()
            for segment in segments.values()
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

    async def describe_topic(self, name: TopicName, which: Which = ALL) -> TopicDescription:
        """See ``ports.BrokerApi``."""
        if len(which.ids) > IDS_MAX:
            raise InvalidArgument(f"{len(which.ids)} segments of {name} asked for by id: ask for {IDS_MAX} at a time")
        await self._catch_up(name)
        return self._leader().metadata.description(name, which)

    async def _catch_up(self, name: TopicName) -> None:
        """A client may come straight from creating the topic at another broker: what the view lacks, etcd may have.

        Raises:
            Unavailable: etcd can not be reached, or the view does not follow in time.
        """
        if name in self._view.topics:
            return
        entry = await self._meta.get(keys.topic_key(name))
        if entry is None:
            return
        try:
            async with asyncio.timeout(self._config.rpc_timeout_s):
                await self._view.wait_revision(entry.mod_revision)
        except TimeoutError:
            raise Unavailable(f"broker {self.address} lags behind and does not know {name} yet: try another") from None

    async def local_stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        """See ``ports.BrokerApi``."""
        return tuple(
            SegmentStats(
                segment=number,
                high_watermark=owned.log.committed,
                flushed_offset=owned.log.flushed,
                bytes_per_s=owned.meter.bytes_per_s,
                records_per_s=owned.meter.records_per_s,
            )
            for (topic, number), owned in sorted(self._owned.items())
            if topic == name and owned.is_sure
        )

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
                self.local_stats(name)
                if primary == self.id
                else self._dialer.dial(description.addresses[primary]).local_stats(name)
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
        )
        followers = FollowerService(
            config=self._config,
            view=self._view,
            store=self._store,
            budget=self._replica_budget,
            broker_id=info.id,
            suspect=self._report_suspicion,
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
                self._spawn(election.run(), "election", may_end=True),  # with the lease; ``_terms`` sees to the next
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


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, SeaweedMQError) and error.retryable


def _buffer_bytes(config: BrokerConfig) -> int:
    runtime = psutil.Process().memory_info().rss + TRANSIT_BYTES
    available = config.memory_bytes_max - runtime
    if available < BUFFER_BYTES_MIN:
        raise InvalidArgument(
            f"memory_bytes_max of {config.memory_bytes_max} bytes is too low: the runtime takes {runtime}, and buffers "
            f"need {BUFFER_BYTES_MIN}: set it to {runtime + BUFFER_BYTES_MIN} or more"
        )
    return available
