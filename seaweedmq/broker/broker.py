"""One assembled broker: its membership in the cluster, its segments, and the calls that it answers."""

import asyncio
import logging

from seaweedmq.broker.admission import Admission
from seaweedmq.broker.api import Api, Local
from seaweedmq.broker.cluster_status import StatusService
from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.drainer import Drainer
from seaweedmq.broker.incarnation import Incarnation, IncarnationContext, make_incarnation
from seaweedmq.broker.inspect import Inspection
from seaweedmq.broker.leader_forwarder import LeaderForwarder
from seaweedmq.broker.local import ServingContext
from seaweedmq.broker.membership import Endpoints, Membership
from seaweedmq.broker.memory.broker_memory import COPIES, BrokerMemory, StreamMemory
from seaweedmq.broker.peer_connections import PeerConnections
from seaweedmq.broker.ports import BrokerRuntime, ClusterAccess, GatewayPorts, PartitionAccess
from seaweedmq.broker.readiness import START, STOP, Readiness, follow_lease
from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.fsync import SyncRounds
from seaweedmq.broker.segment.owned import OwnedSegments, OwningIncarnation
from seaweedmq.broker.segment.replicate import ReplicationContext
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.broker.serve.blobs import BlobService
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.serve.kafka_group_router import KafkaGroupRouter
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.publish import PublishService
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.broker.serve.start_offsets import StartOffsets
from seaweedmq.broker.serve.subscribe import SubscribeService
from seaweedmq.broker.serve.tail import Tails
from seaweedmq.broker.upkeep.storage_space import SpaceGuard
from seaweedmq.coordination.observed import ObservedMetaStore
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.standby import LeaseStandby
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.provenance import provenance
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.messages.calls import ReportEmptied, ReportSuspicions
from seaweedmq.ports import BrokerApi, Dialer, DirectoryStore, Environment, MetaStore, TableConverter
from seaweedmq.runtime.retrying import after_s, backoff, retrying
from seaweedmq.runtime.signal import Signal
from seaweedmq.runtime.supervision import Supervisor

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 20.0
REPLICAS_TIMEOUT_S = 30.0
"""Longest time to close followed segments, in seconds.

It exceeds all others: a follower's frames may be in no file, and in no other memory if the machine of their primary is
lost. Together with ``LEAVE_TIMEOUT_S`` it is shorter than a supervisor's wait before it kills; see deploy/.
"""
LEAVE_TIMEOUT_S = 15.0
SUSPICION_TIMEOUT_S = 30.0


class Broker:
    """A broker process without its network server.

    The server exposes ``api`` and takes the memory of its streams from ``stream_memory``. ``failed`` ends with the
    error that the process cannot survive; ``stop`` cancels it.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Environment,
        store: DirectoryStore,
        meta: MetaStore,
        dialer: Dialer,
        converter: TableConverter,
        endpoints: Endpoints,
        standby: LeaseStandby | None = None,
    ) -> None:
        self.address = address = endpoints.address
        self._config = config
        self._env = env
        self._store = store
        self._converter = converter
        self._supervisor = Supervisor(address)
        self._etcd = meta = ObservedMetaStore(meta, env.rng)
        self.readiness = Readiness()
        """Reasons not to serve at present, set and withdrawn by parts of the broker."""
        self.readiness.reject(START, f"broker {address} is starting; retry")
        self._admission = Admission(
            meta=meta, store=store, rng=env.rng, address=address, readiness=self.readiness, halted=self._halt
        )
        self._view = ClusterView(meta, env.rng, self._admission.recognizes)
        self._peers = PeerConnections(self._view, dialer)
        self._memory = BrokerMemory.of(config, env.resident_bytes())
        self._producers = ProducerPool.of(config)
        self._sync_rounds = SyncRounds(config.flush_interval_s)
        self._suspicions = Suspicions(self._report_suspicions, self._supervisor.brief)
        self._replication = ReplicationContext(
            self._dial, self._memory.relaying, config.replica_timeout_s, self._suspicions
        )
        self.stream_memory = StreamMemory(
            self._memory.logs, self._memory.intake, COPIES * config.frame_bytes_max, end_idle=self._end_idle_stream
        )
        self._owned = OwnedSegments(
            self._view, incarnation=lambda: self._membership.incarnation, context=self._segment_context
        )
        starts = StartOffsets(self._view, store, self._supervisor.brief)
        descriptions = Descriptions(
            view=self._view,
            meta=meta,
            owned=self._owned,
            starts=starts,
            dial=self._dial,
            address=address,
            timeout_s=config.rpc_timeout_s,
            frame_bytes_max=config.frame_bytes_max,
        )
        clock = ConfirmedClock(env)
        self._incarnation_context = IncarnationContext(
            config=config,
            env=env,
            clock=clock,
            view=self._view,
            meta=meta,
            store=store,
            converter=converter,
            memory=self._memory,
            producers=self._producers,
            owned=self._owned,
            descriptions=descriptions,
            dial=self._dial,
            suspicions=self._suspicions,
            report_emptied=self._report_emptied,
            etcd_trouble=lambda: self._etcd.trouble,
            is_leaving=lambda: self._membership.draining,
        )
        self._moved = Signal()
        """Signal of the start or end of an incarnation."""
        self._membership = Membership(
            env=env,
            lease_ttl_s=config.lease_ttl_s,
            endpoints=endpoints,
            make_session=lambda: Session(meta, config.lease_ttl_s, env.rng, env.boot_s, standby),
            admit=self._admit,
            make_incarnation=lambda info, session: make_incarnation(
                self._incarnation_context, self._supervisor.child(info.id), info, session
            ),
            changed=self._membership_changed,
            drop=self._drop,
        )
        self._draining = Drainer(
            view=self._view, dialer=dialer, membership=self._membership, member=self._member, address=address
        )
        self.storage_space = SpaceGuard(config.storage_free_bytes_min, groups_topic(config.kafka_namespace))
        lookup = Lookup(self._view, self._owned.segments, SealedProducers(store), self.storage_space.check)
        self._publish = publish = PublishService(config, lookup, self._memory.intake)
        tails = Tails(lookup, store, self._memory.reading, config.read_chunk_bytes)
        subscribe = SubscribeService(lookup, store, tails, self._memory)
        kafka_groups = KafkaGroupRouter(self._view, config.kafka_namespace, dial=self._dial, broker_id=lambda: self.id)
        forward = LeaderForwarder(self._view, dialer, lambda: self._member().leader, env.rng, config.rpc_timeout_s)
        blobs = BlobService(
            config=config,
            descriptions=descriptions,
            store=store,
            memory=self._memory,
            check_space=self.storage_space.check,
            wall_us=env.wall_us,
        )
        self.api = Api(
            local=Local(descriptions, self._owned, blobs, lambda: self._member().followers),
            publish=publish,
            subscribe=subscribe,
            forward=forward,
            status=StatusService(forward, lambda: self._etcd.trouble, config.rpc_timeout_s),
            draining=self._draining,
            kafka_groups=kafka_groups,
            check_admission=self._admission.check,
        )
        serving = ServingContext(
            view=self._view,
            store=store,
            lookup=lookup,
            tails=tails,
            starts=starts,
            frame_bytes_max=config.frame_bytes_max,
        )
        self.ports = GatewayPorts(
            PartitionAccess(serving),
            ClusterAccess(
                view=self._view,
                meta=meta,
                store=store,
                api=self.api,
                dial=self._dial,
                broker_id=lambda: self.id,
                kafka_address=endpoints.kafka_address,
                kafka_groups=kafka_groups,
            ),
            BrokerRuntime(config=config, env=env, clock=clock, memory=self._memory.kafka, spawn=self._supervisor.brief),
        )
        self.inspect = Inspection(
            owned=self._owned,
            memory=self._memory,
            incarnation=lambda: self._membership.incarnation,
            loop_holds=env.loop_holds,
        )

    @property
    def id(self) -> str:
        """Broker id of the current lease; "" without one."""
        return self._draining.broker_id

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Future of the error that ends the process, see the class."""
        return self._supervisor.failed

    async def start(self) -> None:
        """Wait until etcd and storage belong together and storage is writable, register, and serve.

        Raises StorageFailed as ``Admission.admit_first``, and AlreadyExists if another broker holds the address.
        """
        self._supervisor.spawn(self._etcd.run(), "etcd probes")
        await self._admission.admit_first()
        self._supervisor.spawn(
            follow_lease(self.readiness, self._session, self._moved, lambda: self._etcd.trouble), "readiness"
        )
        self._supervisor.spawn(self._view.run(), "view")
        self._supervisor.spawn(self._sync_rounds.run(), "fsync")
        first = await self._membership.join_when_possible()
        self._membership.run_incarnations(self._supervisor.spawn, first, self._view.ready())
        await self._view.ready()
        self._supervisor.spawn(self._owned.run(), "segments")
        self.readiness.allow(START)

    def watch_storage(self) -> None:
        """Watch the storage until the broker stops.

        The broker reports a storage without its marker as a reason not to serve, and rejects records while little space
        is free.
        """
        self._supervisor.spawn(self._admission.watch_root(), "storage root")
        self._supervisor.spawn(self.storage_space.run(self._store), "storage space")

    async def stop(self) -> None:
        """Reject new work, write and commit the rest, and leave the cluster. Other brokers take the segments over."""
        self.readiness.reject(STOP, f"broker {self.address} is stopping: use another broker")
        self._membership.retire()
        incarnation = self._membership.incarnation
        if incarnation:
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._draining.leave_segments(incarnation)
            except (SeaweedMQError, TimeoutError) as error:
                log.warning(
                    "drain incomplete: other brokers recover the remaining segments: %s", error or "no time left"
                )
        ending = [self._owned.drain(DRAIN_TIMEOUT_S)]
        if self._membership.incarnation:  # while its lease lives, lest the leader trust incomplete files
            ending.append(self._membership.incarnation.followers.close(REPLICAS_TIMEOUT_S))
        await asyncio.gather(*ending)
        self._supervisor.wind_down()
        await self._membership.leave()
        await self._supervisor.stop()
        self.failed.cancel()
        await self._converter.close()

    def _membership_changed(self) -> None:
        self._view.announce_all()  # segments may have been assigned to a new id before etcd's answer arrived
        self._moved.fire()

    def _session(self) -> Session | None:
        incarnation = self._membership.incarnation
        return None if incarnation is None or incarnation.is_over else incarnation.session

    def _member(self) -> Incarnation:
        if self._membership.incarnation is None:
            reason = self._etcd.trouble or "it is about to register"
            raise Unavailable(f"broker {self.address} is not registered: {reason}; use another broker, or retry")
        return self._membership.incarnation

    def _dial(self, broker_id: str) -> BrokerApi:
        """Return a connection to a broker by id; raise Unavailable if it is not registered."""
        if broker_id == self.id:
            return self.api
        return self._peers.dial(broker_id)

    async def _admit(self) -> None:
        """Return once the broker may register: admitted, and with a view of the generation that it joins.

        A leader would otherwise decide by metadata from before a recovery, whose revisions are higher. Raises
        Unavailable if the view is behind, and as ``Admission.admit``.
        """
        joined, known = await self._admission.admit(), self._view.cluster
        if known is not None and known.generation < joined.generation:
            raise Unavailable("the metadata of the recovered etcd is not read yet: retry")

    def _halt(self) -> None:
        """End the incarnation as if its lease were lost: etcd has changed. The next one begins with admission."""
        if self._membership.incarnation is not None:
            self._membership.incarnation.session.lost.set()

    async def _drop(self, incarnation: Incarnation) -> None:
        """Drop the segments of a lost lease: other brokers take them over."""
        log.error("lease lost: broker %s drops %d segments", incarnation.id, len(self._owned.segments))
        gone = Unavailable(f"broker {incarnation.id} lost its lease: the segment moves to another broker")
        await self._owned.drop(gone)
        await incarnation.followers.close()

    async def _report_suspicions(self, suspicions: ReportSuspicions) -> None:
        """Report suspicions until the leader accepts them, or the segments are sealed."""
        reporting = retrying(backoff(self._env.rng, 0.05, 1.0), stop=after_s(SUSPICION_TIMEOUT_S))
        try:
            await reporting(self.api.call, suspicions)
        except SeaweedMQError as error:
            log.info("suspicion dropped: %s: %s", suspicions.suspect or "no broker", error)

    async def _report_emptied(self, emptied: ReportEmptied) -> None:
        await self.api.call(emptied)

    def _end_idle_stream(self) -> bool:
        return self._publish.end_idle()

    def _segment_context(self, incarnation: OwningIncarnation) -> SegmentContext:
        return SegmentContext(
            config=self._config,
            store=self._store,
            budget=self._memory.logs,
            producers=self._producers,
            sync_rounds=self._sync_rounds,
            writer_id=incarnation.id,
            lease_alive=incarnation.lease_alive,
            env=self._env,
            spawn=self._supervisor.brief,
            replication=self._replication,
            provenance=lambda segment: provenance(segment, self._view.segments_of(segment.topic)),
        )
