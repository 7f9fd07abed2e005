"""The leader of the cluster.

It is stateless: metadata is in etcd, brokers report their loads, and the next leader starts from both.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.groups.registry import Groups
from seaweedmq.broker.leader.balancer import Balancer
from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.marker_keeper import MarkerKeeper
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.placement import Placement, Reserve
from seaweedmq.broker.leader.pruner import Pruner
from seaweedmq.broker.leader.registration_reaper import RegistrationReaper
from seaweedmq.broker.leader.repairer import Repairer
from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.broker.leader.segment_admin import SegmentAdmin
from seaweedmq.broker.leader.topics.deletion import wait_closed
from seaweedmq.broker.leader.topics.record_deletion import RecordDeletion
from seaweedmq.broker.leader.topics.schema_adopter import SchemaAdopter
from seaweedmq.broker.leader.topics.taken_ids import TakenIds
from seaweedmq.broker.leader.topics.topic_admin import TopicAdmin
from seaweedmq.broker.leader.topics.topic_creator import TopicCreator
from seaweedmq.broker.leader.transition_runner import TransitionRunner
from seaweedmq.core.lineage.replication import under_replicated
from seaweedmq.errors import InvalidArgument, NotFound, StaleMetadata, Unavailable
from seaweedmq.model.broker import ETCD_OK, BrokerLoad, BrokerStatus, ClusterStatus, EtcdAccess
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.description import SegmentStats
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.messages.calls import ReportSuspicions
from seaweedmq.model.messages.replication import SegmentRef
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BrokerApi, DirectoryStore, Environment
from seaweedmq.runtime.grouped_logger import named
from seaweedmq.runtime.retrying import backoff

log = logging.getLogger(__name__)

RESERVED_PART = 4
"""Inverse of the largest share of open segments that is reserved."""
DUTIES_RETRY_S_FIRST, DUTIES_RETRY_S_MAX = 0.2, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBroker:
    """The broker that runs for leader, as its duties use it."""

    dial: Callable[[str], BrokerApi]
    """Function that returns a connection to a broker by id. It raises Unavailable if that broker is not registered."""
    stats: Callable[[TopicName], Awaitable[tuple[SegmentStats, ...]]]
    """Function that returns the statistics of a topic's segments."""
    is_leaving: Callable[[], bool]
    """Predicate: whether this broker is being drained, which it knows before the view does."""
    etcd: Callable[[], EtcdAccess]
    """Function that returns this broker's access to etcd."""


class NoLeader(Unavailable):
    """The error of a cluster without a leader. Unlike with other failures, the call certainly had no effect."""


class Leader:
    """The leader's duties. Every broker has them; they act only while ``election`` confirms that this broker leads."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        store: DirectoryStore,
        env: Environment,
        clock: ConfirmedClock,
        host: HostBroker,
        config: BrokerConfig,
        make_groups: Callable[[], Groups],
    ) -> None:
        self._rng = env.rng
        self._make_groups = make_groups
        self._groups: Groups | None = None
        self._host = host
        self.metadata = metadata
        self._view = view = metadata.view
        self.election = election = metadata.election
        """Candidacy of this broker."""
        self.placement = Placement(
            view,
            env.rng,
            report_interval_s=config.load_report_interval_s,
            open_segments_max=config.open_segments_max,
            reserve=_reserve(config),
        )
        self._documents = Documents(
            self.metadata,
            store,
            wait_closed=lambda deletion: wait_closed(
                deletion, view, host.dial, election.await_expired_leases, rng=env.rng, lease_ttl_s=config.lease_ttl_s
            ),
        )
        self._taken_ids = taken_ids = TakenIds(store, view)
        self._marker_keeper = MarkerKeeper(self.metadata, store)
        self._reaper = RegistrationReaper(self.metadata)
        self._repairs = Repairer(metadata=self.metadata, placement=self.placement)
        self.transitions = TransitionRunner(
            metadata=self.metadata,
            documents=self._documents,
            placement=self.placement,
            sealer=Sealer(view, store, host.dial, election.await_expired_leases, self._severity),
            taken_ids=taken_ids,
            wall_us=env.wall_us,
            orphaned=self._repairs.add,
        )
        self.segment_admin = SegmentAdmin(
            metadata=self.metadata, placement=self.placement, transitions=self.transitions
        )
        self.balancing = Balancer(
            metadata=self.metadata,
            placement=self.placement,
            transitions=self.transitions,
            config=config,
            wall_us=env.wall_us,
        )
        self._schema_adopter = SchemaAdopter(self.metadata, host.dial)
        self.pruning = Pruner(
            metadata=self.metadata,
            documents=self._documents,
            config=config,
            clock=clock,
            forget_offsets=self._forget_offsets,
        )
        self.record_deletion = RecordDeletion(metadata=self.metadata, documents=self._documents, stats=host.stats)
        self.topics = TopicAdmin(
            metadata=self.metadata,
            schema_adopter=self._schema_adopter,
            documents=self._documents,
            topic_creator=TopicCreator(
                metadata=self.metadata,
                documents=self._documents,
                placement=self.placement,
                taken_ids=taken_ids,
                store=store,
                env=env,
            ),
            stats=host.stats,
        )

    @property
    def broker_id(self) -> str:
        """Id of the broker that runs for leader."""
        return self.election.broker_id

    @property
    def groups(self) -> Groups:
        """The consumer groups that this leader coordinates. Raises NoLeader if it does not lead, or began just now."""
        if self._groups is None or self.election.revision is None:
            raise NoLeader("the leader was elected a moment ago and does not coordinate groups yet: retry")
        return self._groups

    @property
    def leading(self) -> bool:
        """Whether this broker surely leads now."""
        return self.metadata.leading

    async def run(self) -> None:
        """Lead whenever elected, until cancelled. Failed duties restart: on another leader they would fail likewise."""
        pause_s = backoff(self._rng, DUTIES_RETRY_S_FIRST, DUTIES_RETRY_S_MAX)
        failed = 0
        while True:
            await self.election.wait_leading()
            log.info("leading")
            duties = asyncio.create_task(self._lead(), name="lead")
            deposed = asyncio.create_task(self.election.wait_not_leading(), name="deposed")
            try:
                await asyncio.wait({duties, deposed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._groups = None
                for task in (duties, deposed):
                    task.cancel()
                try:
                    await asyncio.wait({duties, deposed})
                finally:  # also if the incarnation ends meanwhile, which cancels this task again
                    self.placement.forget()
                    await self.transitions.stop()
                    self._taken_ids.forget()
            log.info("no longer leading")
            error = None if duties.cancelled() else duties.exception()
            failed = 0 if error is None else failed + 1
            if error is not None:
                handling = {"message": "leader duties failed; retrying", "exception": error}
                asyncio.get_running_loop().call_exception_handler(handling)
                await asyncio.sleep(pause_s(failed))

    async def _lead(self) -> None:
        self._documents.expect(self._view.topics)
        groups = self._groups = self._make_groups()
        async with asyncio.TaskGroup() as duties:
            duties.create_task(self._repairs.run(self.transitions), name="repairs")
            duties.create_task(self.topics.sweep(), name="sweep")
            duties.create_task(self._marker_keeper.run(), name="marker")
            duties.create_task(self._reaper.run(), name="ghosts")
            duties.create_task(self._schema_adopter.run(), name="adoption")
            duties.create_task(self._documents.run(), name="documents")
            duties.create_task(self.balancing.run(), name="balancing")
            duties.create_task(self.pruning.run(), name="pruning")
            duties.create_task(groups.run(), name="groups")

    async def _forget_offsets(self, name: TopicName) -> None:
        await self.groups.forget_pruned(name)

    async def suspect(self, suspicions: ReportSuspicions) -> None:
        """Answer ``calls.ReportSuspicions``."""
        suspect, level = suspicions.suspect, self._severity(suspicions.suspect)
        segments = [found for ref in suspicions.refs if (found := self._open_at(ref)) is not None]
        if not segments:
            raise NotFound(f"{named(suspicions.refs)}: already sealed, or an earlier epoch")
        for segment in segments:
            if suspect and suspect not in segment.replicas:
                raise InvalidArgument(f"{segment}: {suspect} is not one of its replicas")
        new = [segment for segment in segments if not self.transitions.concerns(segment)]
        if not new:
            return
        log.log(level, "replica suspected: %s: %s: %s", named(new), suspect or "no broker", suspicions.reason)
        if suspect:
            self.placement.suspect(suspect)
        for segment in new:
            self._repairs.add(segment)

    def _open_at(self, ref: SegmentRef) -> Segment | None:
        """Return the segment, if it is open and has that epoch."""
        found = self._view.find(ref.topic, ref.topic_uid, ref.segment)
        return found[1] if found is not None and found[1].is_open and found[1].epoch == ref.epoch else None

    def _severity(self, broker: str) -> int:
        """Return the log level of an unanswered request: a broker that drains is expected to stop."""
        return logging.INFO if self._host.is_leaving() or broker in self.placement.draining else logging.WARNING

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        """Handle ``ports.BrokerApi.report_load``."""
        async for load in reports:
            if not self.leading:
                raise StaleMetadata("this broker does not lead: send the report to the leader")
            self.placement.report(load)

    def status(self, *, leads: bool = True) -> ClusterStatus:
        """Return the cluster as the leader sees it; with ``leads`` False, as this broker sees it without a leader."""
        counts = self.placement.open_counts()
        leader = self._view.leader if leads else None
        brokers = tuple(
            BrokerStatus(
                info=info,
                load=self.placement.loads.get(info.id),
                open_segments=counts.get(info.id, 0),
                is_leader=info.id == leader,
                etcd=self._etcd_of(info.id),
            )
            for info in sorted(self._view.brokers.values(), key=lambda b: b.address)
        )
        troubles = [self._host.etcd().trouble]
        troubles += [f"{b.info.address}: {b.etcd.trouble}" for b in brokers if b.etcd and b.etcd.trouble]
        return ClusterStatus(
            leader=leader or "",
            etcd=next(filter(None, troubles), ETCD_OK),
            brokers=brokers,
            topics=len(self._view.topics),
            open_segments=sum(map(len, self._view.open_segments.values())),
            under_replicated_segments=self._under_replicated(),
            unrecoverable_segments=sum(bool(segment.problem) for segment in self.metadata.open_segments()),
            decisions=tuple(
                sorted(
                    [*self.transitions.decisions, *self.balancing.holds.values()], key=lambda decision: decision.at_us
                )
            ),
        )

    def _etcd_of(self, broker: str) -> EtcdAccess | None:
        if broker == self.broker_id:
            return self._host.etcd()
        load = self.placement.loads.get(broker)
        return None if load is None else load.etcd

    def _under_replicated(self) -> int:
        view = self._view
        return sum(
            under_replicated(segments.values(), topic.replicas, view.brokers).total()
            for name, segments in view.open_segments.items()
            if (topic := view.topics.get(name)) is not None
        )


def _reserve(config: BrokerConfig) -> Reserve | None:
    """Return the open segments reserved for the topic of Kafka groups: a broker has one replica per partition."""
    if not config.kafka_listen:
        return None
    share_max = config.open_segments_max // RESERVED_PART
    return Reserve(groups_topic(config.kafka_namespace), min(config.kafka_internal_partitions, share_max))
