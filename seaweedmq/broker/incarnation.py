"""Broker incarnation: lease, broker id, and their tasks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.groups.registry import Groups
from seaweedmq.broker.groups.store import GroupStores
from seaweedmq.broker.leader.leader import HostBroker, Leader
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.upkeep.compaction import AutoCompaction
from seaweedmq.broker.upkeep.conversion import Conversion
from seaweedmq.broker.upkeep.load import LoadReporter
from seaweedmq.broker.upkeep.maintenance import Maintenance
from seaweedmq.broker.upkeep.payload_sweep import SWEEP_CHECK_S, PayloadSweep
from seaweedmq.broker.upkeep.retention import Retention
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.broker import BrokerInfo, EtcdAccess
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.calls import ReportEmptied
from seaweedmq.ports import BrokerApi, DirectoryStore, Environment, MetaStore, TableConverter
from seaweedmq.runtime.supervision import Supervisor


class Incarnation:
    """An incarnation of the broker: a lease, its broker id, and the tasks under it. It ends with the lease."""

    def __init__(
        self,
        info: BrokerInfo,
        session: Session,
        leader: Leader,
        followers: FollowerService,
        supervisor: Supervisor,
        begin: Callable[[], None],
    ) -> None:
        self.id = info.id
        self.session = session
        self.leader = leader
        self.followers = followers
        self._info = info
        self._supervisor = supervisor
        self._begin = begin
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether the lease is gone or about to be revoked, so that nothing may be written under the id."""
        return self._ended or self.session.lost.is_set()

    def lease_alive(self) -> bool:
        """Whether this broker surely still owns the segments assigned to this id."""
        return self.session.alive()

    def begin(self) -> None:
        """Start the duties."""
        self._begin()

    async def announce_draining(self) -> None:
        """Register as draining, under the same lease; raise LeaseEnded if that has ended."""
        self._info = replace(self._info, draining=True)
        await self.session.update(self._info)

    async def end(self) -> None:
        """Stop the duties and revoke the lease. Repeated calls have no effect."""
        if self._ended:
            return
        self._ended = True
        await self._supervisor.stop()
        await self.session.leave(self.id)
        await self.session.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationContext:
    """The objects that all incarnations of a broker share."""

    config: BrokerConfig
    env: Environment
    clock: ConfirmedClock
    view: ClusterView
    meta: MetaStore
    store: DirectoryStore
    converter: TableConverter
    memory: BrokerMemory
    producers: ProducerPool
    owned: OwnedSegments
    descriptions: Descriptions
    dial: Callable[[str], BrokerApi]
    """Returns a connection to a broker by id; raises Unavailable if it is not registered."""
    suspicions: Suspicions
    report_emptied: Callable[[ReportEmptied], Awaitable[None]]
    etcd_trouble: Callable[[], str]
    """Returns the reason why etcd rejects calls of this broker at present; "" if it answers all."""
    is_leaving: Callable[[], bool]
    """Returns whether this broker is being drained, which it knows before the view does."""


def make_incarnation(
    context: IncarnationContext, supervisor: Supervisor, info: BrokerInfo, session: Session
) -> Incarnation:
    """Create an incarnation, with tasks of this supervisor. Nothing runs before ``begin``."""
    election = Election(context.meta, session, info.id, context.env.rng)

    def make_groups() -> Groups:
        return Groups(
            view=context.view,
            stores=GroupStores(context.meta, context.store, election, context.env.rng),
            dial=context.dial,
            catch_up=context.descriptions.catch_up,
            config=context.config,
            env=context.env,
            spawn=supervisor.brief,
            memory_bytes_max=context.memory.groups_bytes,
        )

    def etcd_access() -> EtcdAccess:
        return EtcdAccess(trouble=context.etcd_trouble(), lease_s=session.remaining_s)

    leader = Leader(
        metadata=Metadata(context.view, election, context.env.rng),
        store=context.store,
        env=context.env,
        clock=context.clock,
        host=HostBroker(
            dial=context.dial, stats=context.descriptions.stats, is_leaving=context.is_leaving, etcd=etcd_access
        ),
        config=context.config,
        make_groups=make_groups,
    )
    followers = FollowerService(
        config=context.config,
        env=context.env,
        view=context.view,
        store=context.store,
        memory=context.memory,
        producers=context.producers,
        broker_id=info.id,
        suspicions=context.suspicions,
    )
    reporter = LoadReporter(
        broker_id=info.id,
        view=context.view,
        env=context.env,
        dial=context.dial,
        budget=context.memory.logs,
        segments=context.owned.segments.values,
        etcd=etcd_access,
        interval_s=context.config.load_report_interval_s,
    )
    conversion = Conversion(
        config=context.config,
        broker_id=info.id,
        view=context.view,
        store=context.store,
        converter=context.converter,
        segments=context.owned.segments.values,
        cpu_share=lambda: reporter.cpu_share,
    )
    compaction = AutoCompaction(
        config=context.config,
        broker_id=info.id,
        view=context.view,
        store=context.store,
        converter=context.converter,
        cpu_share=lambda: reporter.cpu_share,
    )
    retention = Retention(
        config=context.config,
        broker_id=info.id,
        view=context.view,
        store=context.store,
        converter=context.converter,
        clock=context.clock,
        report_emptied=context.report_emptied,
    )
    maintenance = Maintenance(
        config=context.config,
        segments=context.owned.segments.values,
        clock=context.clock,
        conversion=conversion,
        compaction=compaction,
        retention=retention,
    )

    payload_sweep = PayloadSweep(
        broker_id=info.id, view=context.view, store=context.store, confirmed_us=context.clock.confirmed_us
    )

    def begin() -> None:
        supervisor.brief(election.run(), "election")  # ends with the lease; the next incarnation has another
        supervisor.spawn(leader.run(), "leader")
        supervisor.spawn(reporter.run(), "load")
        supervisor.spawn(maintenance.run(), "maintenance")
        supervisor.spawn(payload_sweep.run(SWEEP_CHECK_S), "payload sweep")

    return Incarnation(info, session, leader, followers, supervisor, begin)
