"""One simulated cluster from one seed: built, disturbed, healed, and judged."""

import asyncio
import contextvars
import functools
import hashlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from seaweedmq.broker.broker import Broker
from seaweedmq.codec.paths import LINEAGE_DOCUMENT
from seaweedmq.codec.state.documents import lineage_from_document
from seaweedmq.errors import InvalidArgument, SeaweedMQError
from seaweedmq.model.topic import TopicName
from tests.doubles.memory_converter import MemoryTableConverter
from tests.doubles.memory_store import MemorySegmentStore
from tests.sim.machines.clocks import Clocks
from tests.sim.machines.determinism import deterministic, void
from tests.sim.machines.loop import OWNER, Owner, SimError, SimLoop, place_of
from tests.sim.machines.meta import REQUEST_TIMEOUT_S, SimEtcd
from tests.sim.machines.network import Network
from tests.sim.machines.process import BrokerProcess
from tests.sim.machines.storage import SimDisk, SimStore
from tests.sim.nemesis.nemesis import Nemesis
from tests.sim.rules.checkers import ClusterHistory, content_fits_lineage, skipped
from tests.sim.rules.files import Record, TopicFiles, unconverted
from tests.sim.rules.kafka import Watermarks
from tests.sim.rules.leftovers import let_go
from tests.sim.rules.retention import Retained, without
from tests.sim.rules.served import SERVED_S_MAX, unserved
from tests.sim.rules.watch import SAMPLE_S, InsideWatch
from tests.sim.scenario import RUN_S_MAX, Scenario, TopicPlan
from tests.sim.themes.every import scenario_of
from tests.sim.users.adoption import Adoption
from tests.sim.users.group import Group
from tests.sim.users.kafka import KafkaProducer
from tests.sim.users.kafka_group import KafkaGroup
from tests.sim.users.kafka_reading import KafkaReader
from tests.sim.users.lives import Lives
from tests.sim.users.recreated import RecreatedTopic
from tests.sim.users.sleepers import Sleeper
from tests.sim.users.workload import Dawdler, Publisher, Reader, Subscriber, connect
from tests.support.history import History, Polled, Violation, check

SLOW_CLOSE_SHARE = 0.25
"""Share of worlds in which closing a stream takes time."""
SETTLE_S_MAX = 150.0
"""Seconds after healing by which every record has its outcome and every reader is at the end."""


MAINTENANCE_ROUNDS = 3
"""Final maintenance rounds of the brokers, which convert the last sealed segments before the files are judged."""


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    digest: str
    """Digest of the whole event log: equal for equal runs."""
    violations: list[Violation]
    log: list[str]
    acked: int = 0
    polled: int = 0
    virtual_s: float = 0.0
    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.violations


class World:
    """A whole simulated world, which shares nothing with another one."""

    def __init__(self, seed: int, scenario: Scenario, broker_class: Callable[..., Broker]) -> None:
        self.seed = seed
        self.scenario = scenario
        self.broker_class = broker_class
        self.violations: list[Violation] = []
        self.loop = SimLoop(time_s_max=RUN_S_MAX, steps_max=2_000_000)
        self.context = contextvars.Context()
        self.is_over = False
        self.log: list[str] = []
        thread_rng = self.rng("threads")
        self.loop.thread_latency_s = lambda: thread_rng.uniform(0, 0.002)
        closes_slowly = self.rng("closing streams").random() < SLOW_CLOSE_SHARE
        self.network = Network(self.loop, self.rng("network"), closes_slowly=closes_slowly)
        self.etcd = SimEtcd(self.loop, self.rng("etcd"))
        self.etcd.lost_s_max = REQUEST_TIMEOUT_S
        self.etcd.on_restored = self._on_etcd_restored
        self._watched = 0
        """Revision of etcd that is judged next."""
        self.clocks = Clocks(
            self.loop,
            self.rng("clocks"),
            wild=scenario.wild_clocks,
            of_storage=scenario.storage_clock,
            step=scenario.clocks_step,
        )
        self.disk = SimDisk(MemorySegmentStore(self.clocks.of_files_us), self.rng("disk"))
        plans = {TopicName.parse(t.name): t for t in scenario.topics}
        self.retained = Retained(plans, self.clocks.latest_us, self.clocks.judged_us)
        self.disk.on_delete = lambda file, content: self.retained.on_delete(self.disk.store, file, content)
        self.disk.on_removed = functools.partial(self.retained.on_removed, self.disk.store)
        self.processes = [
            BrokerProcess(self, f"broker-{number}", scenario.broker) for number in range(scenario.brokers)
        ]
        self.cluster = ClusterHistory()
        self.watch = InsideWatch(self)
        self.cluster.on_sealed = self.watch.on_sealed
        self.histories = {topic.name: History() for topic in scenario.topics}
        self.publishers = [Publisher(self, plan, self.histories[plan.topic]) for plan in scenario.publishers]
        self.kafka = [
            KafkaProducer(self, plan, number, self.histories[plan.topic]) for number, plan in enumerate(scenario.kafka)
        ]
        self.watermarks = Watermarks(self.violations)
        self.subscribers: list[Reader] = [
            Subscriber(self, f"follower-{number} of {topic.name}", topic.name, self.histories[topic.name])
            for topic in scenario.topics
            for number in range(scenario.subscribers)
        ]
        first = scenario.topics[0].name
        self.subscribers += [
            KafkaReader(self, f"kafka-reader-{number}", first, self.histories[first])
            for number in range(scenario.kafka_readers)
        ]
        self.dawdlers = [
            Dawdler(self, f"dawdler-{number}", first, self.histories[first]) for number in range(scenario.dawdlers)
        ]
        self.sleepers = [Sleeper(self, f"sleeper-{number}", first) for number in range(scenario.sleepers)]
        self.lives = None if scenario.lives is None else Lives(self, scenario.lives)
        self.recreated = None if scenario.recreated is None else RecreatedTopic(self, scenario.recreated)
        self.group = Group(self, first, scenario.group_members, self.histories[first])
        self.adoptions = [Adoption(self, plan) for plan in scenario.adoptions]
        self.kafka_group = KafkaGroup(self, first, scenario.kafka_members, self.histories[first])
        self.readers: list[Reader] = []
        self._sealed_before: dict[Reader, frozenset[int]] = {}
        """Segments that were sealed when a reader of everything began, by reader."""
        self._following: list[asyncio.Task[None]] = []

    def rng(self, purpose: str) -> random.Random:
        """Return a generator of its own for every purpose: using one does not shift another."""
        return random.Random(f"{self.seed} {purpose}")

    def note(self, who: str, what: str) -> None:
        """Add to the event log. The step count makes any divergence between two runs visible."""
        self.log.append(f"{self.loop.time():10.6f} {self.loop.steps:7d} {who}: {what}")

    def converter(self, store: SimStore) -> MemoryTableConverter:
        return MemoryTableConverter(self.disk.store, row_group_bytes=self.scenario.broker.table_row_group_bytes)

    def lose_all_power(self) -> None:
        """Fail the power of all machines, or of the single one: unflushed writes of dead processes are lost as well."""
        self.note("power", "fails everywhere")
        self.disk.lose_power(None)

    # --- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Build, disturb, heal, judge."""
        watching = self.loop.create_task(self._watch_metadata(), name="metadata checkers")
        looking = self.loop.create_task(self._look_inside(), name="watch")
        for process in self.processes:
            process.start()
        await self._create_topics()
        publishing = [self.network.spawn(p.owner, p.run(), p.plan.name) for p in self.publishers]
        publishing += [self.network.spawn(p.owner, p.run(), p.plan.name) for p in self.kafka]
        readers = (*self.subscribers, *self.dawdlers, *self.sleepers)
        self._following = [self.network.spawn(reader.owner, reader.run(), reader.name) for reader in readers]
        adopting = [(a, self.loop.create_task(a.run(), name="adoption")) for a in self.adoptions]
        living = None if self.lives is None else self.loop.create_task(self.lives.run(), name="lives")
        recreating = None if self.recreated is None else self.loop.create_task(self.recreated.begin(), name="recreated")
        members = (*self.group.members, *self.kafka_group.members)
        grouped = [self.loop.create_task(m.run(), name="a member") for m in members]
        await Nemesis(self).run(self.scenario.chaos_s, self.scenario.pause_s)
        await self._be_served()
        await self._settle("publishers finish after everything is healed", asyncio.gather(*publishing))
        for schema_adopter, finished in adopting:
            await self._settle(f"publishers of {schema_adopter.name} finish", finished)
        if self.lives is not None and living is not None:
            await self._settle(f"{self.lives.name} comes to its last life", living)
            await self._settle(f"publishers of {self.lives.name} finish", self.lives.finish())
        if self.recreated is not None and recreating is not None:
            await self._settle(f"{self.recreated.name} exists", recreating)
            await self._settle(f"the group reads the last life of {self.recreated.name}", self.recreated.finish())
        await self._read_everything("reader")
        await self._settle("followers reach the end", self._followers_reach_the_end())
        if self.group.members:
            await self._settle("the group reads everything", self.group.finish())
        if self.kafka_group.members:
            await self._settle("the group of Kafka's reads everything", self.kafka_group.finish())
        for task in grouped:
            task.cancel()
        for member in members:
            member.kill()
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        if self.lives is not None:
            self.lives.stop()
        if self.scenario.rest_s:
            await self._rest()
        await self._restart_everything()
        await self._read_everything("reader after restart")
        if self.kafka_group.members:
            await self._settle("committed offsets are kept over a restart", self.kafka_group.look())
        await asyncio.sleep(MAINTENANCE_ROUNDS * self.scenario.broker.maintenance_interval_s)
        self.violations += await let_go(self)
        watching.cancel()
        looking.cancel()
        self._judge()
        self.is_over = True

    def join_late(self) -> None:
        """Start one more subscriber of a topic, which reads it from its beginning."""
        topics = self.scenario.topics
        number = len(self.subscribers) - len(topics) * self.scenario.subscribers
        if number < self.scenario.latecomers_max:
            topic = topics[number % len(topics)].name
            late = Subscriber(self, f"latecomer-{number} of {topic}", topic, self.histories[topic])
            self.subscribers.append(late)
            self._following.append(self.network.spawn(late.owner, late.run(), late.name))

    async def _create_topics(self) -> None:
        client = await connect(self, Owner("admin"), self.scenario.subscriber)
        async with client:
            for topic in (*self.scenario.topics, *(plan.topic for plan in self.scenario.adoptions)):
                await self._create(client, topic)
                self.note(
                    "admin",
                    f"created {topic.name}, {topic.segments} segments, {topic.replicas} replicas, {topic.durability}",
                )

    async def _create(self, client: Any, topic: TopicPlan) -> None:
        async with asyncio.timeout(SETTLE_S_MAX):
            while True:
                try:
                    await client.admin.create_topic(
                        topic.name,
                        segments=topic.segments if topic.partitions is None else 1,
                        partitions=topic.partitions,
                        replicas=topic.replicas,
                        durability=topic.durability,
                        retention=topic.retention_s,
                        retention_bytes=topic.retention_bytes,
                    )
                except InvalidArgument:  # not enough brokers are registered yet
                    await asyncio.sleep(0.2)
                else:
                    return

    async def _settle(self, what: str, work: "asyncio.Future[object] | object") -> None:
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                await work  # type: ignore[misc]
        except TimeoutError:
            self.violations.append(Violation("liveness", f"not within {SETTLE_S_MAX} s: {what}"))
            raise

    async def _followers_reach_the_end(self) -> None:
        for subscriber in self.subscribers:
            try:
                await subscriber.reach_the_end()
            except asyncio.CancelledError:
                self.violations.append(Violation("never read", f"{subscriber.name} waits for what others have got"))
                raise

    async def _read_everything(self, name: str) -> None:
        for topic in self.scenario.topics:
            history = self.histories[topic.name]
            whole = f"{name} of {topic.name}"
            readers: list[Reader] = [Subscriber(self, whole, topic.name, history)]
            if self.scenario.kafka_readers or self.scenario.kafka_members:
                readers.append(KafkaReader(self, f"kafka-{whole}", topic.name, history))
            for reader in readers:
                self.readers.append(reader)
                segments = self.cluster.state.segments.get(TopicName.parse(topic.name), {}).values()
                self._sealed_before[reader] = frozenset(s.id for s in segments if not s.is_open)
                reading = self.network.spawn(reader.owner, reader.run(stop_at="latest"), reader.name)
                await self._settle(f"{reader.name} reads to the end", reading)
        if self.lives is not None:
            await self._settle(f"{name} reads {self.lives.name} to its end", self.lives.read(f"{name} of lives"))
        for schema_adopter in self.adoptions:
            reading = schema_adopter.read(f"{name} of {schema_adopter.name.removeprefix('sim/')}")
            await self._settle(f"{name} reads {schema_adopter.name} to its end", reading)

    async def _be_served(self) -> None:
        """Wait until every open segment is served by its primary after the last fault."""
        missing: list[str] = []
        try:
            async with asyncio.timeout(SERVED_S_MAX):
                while missing := list(unserved(self)):  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(SAMPLE_S)
        except TimeoutError:
            self.violations += [Violation("served", f"{SERVED_S_MAX:g} s after the last fault {m}") for m in missing]

    async def _rest(self) -> None:
        """Wait until segments that were sealed before are in tables."""
        before = set(unconverted(self.disk.store, self.cluster.state))
        await asyncio.sleep(self.scenario.rest_s)
        self.violations += [
            Violation("neglected", f"{path} is not in a table after {self.scenario.rest_s:g} s without faults")
            for path in unconverted(self.disk.store, self.cluster.state)
            if path in before
        ]

    async def _restart_everything(self) -> None:
        """Restart all brokers, which loses everything in memory."""
        for process in self.processes:
            if process.is_running:
                process.kill(machine=self.scenario.machines_fail)
        if self.scenario.machines_fail:
            self.lose_all_power()
        for process in self.processes:
            process.start()

    async def _look_inside(self) -> None:
        while True:
            self.watch.sample()
            await asyncio.sleep(SAMPLE_S)

    async def _watch_metadata(self) -> None:
        server = self.etcd.server
        self._watched = server.revision + 1
        while True:
            pulse = server.pulse
            for changes in server.changes_since(self._watched):
                self.note(
                    "etcd", f"revision {changes.revision}: {[p.key for p in changes.puts]} -{list(changes.deletes)}"
                )
                self.cluster.on_change(changes)
                self.retained.learn(self.cluster.state.segments.values())
                if self.lives is not None:
                    self.violations += self.lives.on_deleted(changes.deletes)
                self._watched = changes.revision + 1
            await pulse.wait()

    def _on_etcd_restored(self) -> None:
        left = self.etcd.server.list("/")
        self.note("etcd", f"is replaced by one of revision {left.revision} with {len(left.entries)} keys")
        documents = [bytes(f.data) for path, f in self.disk.files.items() if path.endswith(f"/{LINEAGE_DOCUMENT}")]
        known = [segment for document in documents for segment in lineage_from_document(document)[1]]
        self.cluster.on_lost(left, (segment.key for segment in known if not segment.is_open))
        self._watched = left.revision + 1

    # --- the verdict ------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        for producer in self.kafka:
            producer.locate(functools.partial(self._segment_at, producer.plan.topic))
        for topic in self.scenario.topics:
            name = TopicName.parse(topic.name)
            starts = self.retained.starts(name)
            history = without(self.histories[topic.name], starts)
            readers = [r for r in self.readers if r.topic == topic.name]
            complete = [r.life for r in readers]
            self.violations += check(history, complete=complete)
            segments = self.cluster.state.segments.get(name, {}).values()
            pruned = self.cluster.state.topics[name].pruned
            for reader in readers:
                sealed = self._sealed_before[reader]
                self.violations += content_fits_lineage(history, segments, reader.life, starts, pruned, sealed)
            self._judge_files(topic.name, history.polled_by(complete[-1]), starts)
            self.violations += self.retained.come_back(name, history.polled_by(complete[-1]))
        for schema_adopter in self.adoptions:
            self.violations += schema_adopter.violations()
        if self.lives is not None:
            self.violations += self.lives.violations(["reader of lives", "reader after restart of lives"])
        if self.group.members:
            self.violations += self.group.violations()
        self.violations += self.kafka_group.rules.violations
        if self.recreated is not None:
            self.violations += self.recreated.violations
        for publisher in (*self.publishers, *self.kafka):
            self.violations += [Violation("refused", f"{publisher.plan.name}: {u}") for u in publisher.unexpected]

    def _segment_at(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the segment that holds an offset of a partition, or None if it was sealed below."""
        segments = self.cluster.state.segments.get(TopicName.parse(topic), {}).values()
        holders = [
            s.id for s in segments if partition in s.slots and s.start_offset <= offset < (s.end_offset or offset + 1)
        ]
        return max(holders, default=None)

    def _judge_files(self, name: str, polled: list[Polled], starts: Mapping[int, int]) -> None:
        topic = self.cluster.state.topics[TopicName.parse(name)]
        segments = self.cluster.state.segments[topic.name].values()
        got: dict[int, dict[int, Record]] = {}
        for p in polled:
            got.setdefault(p.segment, {})[p.offset] = Record(p.key, p.value)
        gone = self.retained.gone(topic.name)
        self.violations += TopicFiles(self.disk.store, topic, segments).violations(got, starts, gone)

    def collect(self) -> Report:
        """Report the run, even if its loop ended early."""
        self.violations += self.cluster.violations
        self.violations += self.watch.violations
        self.violations += self.retained.violations
        for topic, history in self.histories.items():
            self.violations += skipped(without(history, self.retained.starts(TopicName.parse(topic))))
        self.violations += [Violation("passed on", sentence) for sentence in self.network.passed_further]
        self.violations += [Violation("unguarded", sentence) for sentence in self.etcd.unguarded]
        self.violations += [Violation("unexpected error", sentence) for sentence in self.network.unexpected]
        self.violations += [late for schema_adopter in self.adoptions for late in schema_adopter.overdue()]
        self.violations += [Violation("raised again", sentence) for sentence in self.network.raised_again]
        self.violations += [Violation("spins", sentence) for sentence in self.loop.spins]
        self.violations += [Violation("unhandled", sentence) for sentence in self.loop.failures()]
        digest = hashlib.sha256("\n".join(self.log).encode()).hexdigest()
        return Report(
            seed=self.seed,
            digest=digest,
            violations=self.violations,
            log=self.log,
            acked=sum(len(h.sent) for h in self.histories.values()),
            polled=sum(len(h.polled) for h in self.histories.values()),
            virtual_s=self.loop.time(),
            steps=self.loop.steps,
        )


class _IntoEventLog(logging.Handler):
    """Handler that adds the processes' log records to the event log, for diagnosis and a stricter digest."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        owner = OWNER.get()
        who = "sim" if owner is None else owner.name
        self._world.note(who, f"{record.levelname.lower()} {record.name.rpartition('.')[2]}: {record.getMessage()}")


@contextmanager
def _logging_into(world: World) -> Iterator[None]:
    logger = logging.getLogger("seaweedmq")
    level, propagate, handler = logger.level, logger.propagate, _IntoEventLog(world)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def simulate(seed: int, *, scenario: Scenario | None = None, broker_class: Callable[..., Broker] = Broker) -> Report:
    """Play one seed from beginning to end."""
    with deterministic():
        world = World(seed, scenario or scenario_of(seed), broker_class)
        try:
            return _play(world)
        finally:
            with void():
                world.loop.close()
            del world  # otherwise it would outlive the collection that follows


def _play(world: World) -> Report:
    try:
        with _logging_into(world):
            world.loop.run_until_complete(world.run())
    except (SimError, SeaweedMQError, TimeoutError) as error:
        world.violations.append(Violation("the run broke off", f"{error!r}; {place_of(error)}"))
        world.note("sim", f"broke off, waiting: {world.loop.describe_pending()}")
    return world.collect()
