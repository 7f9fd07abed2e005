"""Scenario of one seed: the size of the cluster, its settings, its users and its faults, as values only."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from seaweedmq.client.config import ClientConfig
from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.model.topic import Durability

RETENTION_SHARE = 0.6
"""Share of the runs without a group that have retention: it may delete unread records."""


PASSAGE_BYTES_MIN = 128 * KIB
"""Room for one reader of files, or for some messages."""


IMPATIENT_SHARE = 0.2
IMPATIENT_S = 4.0
"""Delivery timeout in seconds of impatient publishers; brokers forget their producers a little later."""


RUN_S_MAX = 600.0
"""Longest virtual time of a run in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    segments: int
    durability: Durability
    replicas: int
    retention_s: float | None = None
    retention_bytes: int | None = None
    partitions: int | None = None
    """Initial number of partitions; if set, ``segments`` has no meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherPlan:
    name: str
    topic: str
    keys: int
    records: int
    pause_s_max: float
    """Longest pause in seconds between two records; 0 sends them all at once."""
    value_bytes: int
    config: ClientConfig
    starts_s: float = 0.0
    """Seconds after the start of the other publishers."""
    waits_s: float = 0.0
    """Seconds between learning of the topic and sending the first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPlan:
    """A Kafka producer."""

    name: str
    topic: str
    partitions: int
    """Number of partitions it sends to, from the first on."""
    records: int
    """Number of records for each of them."""
    pause_s_max: float
    first_sequence: int
    starts_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LivesPlan:
    """A topic that is repeatedly deleted and recreated."""

    topic: TopicPlan
    lives: int
    life_s_max: float
    life_s_min: float = 0.0
    records: int
    """Number of records per incarnation of the topic."""
    config: ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    """A topic that gets plain records and tables from the beginning."""

    topic: TopicPlan
    sends: int
    """Number of sends by each of the two publishers, one after another."""
    starts_s_max: float
    pause_s_max: float
    config: ClientConfig
    begins_s: float = 0.0
    """Seconds after the start of all other users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreatedPlan:
    """A topic with partitions that is recreated while coordinators of groups are down."""

    topic: TopicPlan
    lives_max: int
    records: int
    """Number of records per incarnation of the topic."""
    config: ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All decisions that precede a run."""

    brokers: int
    broker: BrokerConfig
    topics: tuple[TopicPlan, ...]
    publishers: tuple[PublisherPlan, ...]
    subscribers: int
    """Number of subscribers that follow each topic from the beginning during faults."""
    subscriber: ClientConfig
    dawdlers: int
    """Number of subscribers of the first topic that stop reading at intervals."""
    lives: LivesPlan | None
    adoptions: tuple[AdoptionPlan, ...]
    group_members: int
    """Number of members of a group that reads the first topic; 0: no group."""
    members_refuse: bool = False
    """Whether they hold several records before they process them, and reject some, in any order."""
    chaos_s: float
    pause_s: tuple[float, float]
    """Shortest and longest pause in seconds between two blows of the nemesis."""
    machines_fail: bool
    """Whether power may fail at any time, also everywhere at once: only if every topic is ``stored``. (On one machine
    it may fail whenever the promise covers that: see ``losses``.)"""
    wild_clocks: bool
    """Whether clocks are wrong by many seconds, and are set during the run."""
    storage_clock: bool = False
    """Whether the storage dates files by its own clock, as a file server does, instead of the writing machine's."""
    clocks_step: bool = False
    """Whether clocks step by up to days, and rules judge every file by its true age."""
    rest_s: float = 0.0
    """Seconds without faults at the end, in which maintenance catches up; 0: no check of that."""
    budget_bytes: int
    """Bytes of memory for frames in each of a broker's two budgets."""
    passage_bytes: int
    """Bytes of memory for each direction of transit: files, publishers, followers and subscribers."""
    sleepers: int = 0
    """Number of streams from the first topic that give credit and read nothing."""
    latecomers_max: int = 0
    """Largest number of subscribers that start to follow a topic during a blow."""
    lone_replicas_fail: bool = False
    """Whether power may also fail at a machine with the only replica of a segment whose topic requires more."""
    kafka: tuple[KafkaPlan, ...] = ()
    """Kafka producers of topics with partitions."""
    kafka_readers: int = 0
    """Number of Kafka consumers that read the first topic by offsets, and commit nothing."""
    kafka_members: int = 0
    """Number of members of a Kafka group that reads the first topic."""
    recreated: RecreatedPlan | None = None
    favoured: Mapping[str, int] = field(default_factory=dict)
    """Weights of blows by name, which replace their default weights."""

    @property
    def all_topics(self) -> tuple[TopicPlan, ...]:
        """Return all topics, including those with a plan of their own."""
        lives = () if self.lives is None else (self.lives.topic,)
        recreated = () if self.recreated is None else (self.recreated.topic,)
        return (*self.topics, *lives, *recreated, *(plan.topic for plan in self.adoptions))

    @property
    def has_kafka(self) -> bool:
        """Whether brokers listen for Kafka clients."""
        return bool(self.kafka or self.kafka_readers or self.kafka_members or self.recreated)

    @property
    def fences_matter(self) -> bool:
        """Whether a segment can have a primary and a follower, neither of which leads."""
        return any(1 < topic.replicas < self.brokers for topic in self.topics)

    @property
    def forgets(self) -> bool:
        """Whether etcd may prune sealed segments, or their producers, that users may still return to."""
        return min(self.broker.segment_retention_s, self.broker.producer_retention_s) < RUN_S_MAX

    def impatiently(self) -> "Scenario":
        """Return the same scenario with a short delivery timeout, which brokers know."""
        return replace(
            self,
            broker=replace(self.broker, producer_idle_s=IMPATIENT_S + 1),
            publishers=tuple(_impatient(plan) for plan in self.publishers),
            lives=None if self.lives is None else _impatient(self.lives),
            adoptions=tuple(_impatient(plan) for plan in self.adoptions),
        )

    @classmethod
    def of(cls, seed: int) -> "Scenario":
        """Return the scenario of a seed without a theme (see ``themes``)."""
        rng = random.Random(f"scenario {seed}")
        brokers = rng.choice((1, 2, 2, 3, 3, 4))
        topics = tuple(
            TopicPlan(
                name=f"sim/topic-{number}",
                segments=rng.choice((1, 1, 2, 3, 4)),
                durability=rng.choice(tuple(Durability)),
                replicas=min(rng.choice((1, 2, 2, 3)), brokers),
            )
            for number in range(rng.choice((1, 1, 2)))
        )
        chaos_s = rng.uniform(3, 8)
        lively = rng.uniform(0.3, 2.5)
        broker = _broker_config(rng)
        group_rng = random.Random(f"group {seed}")
        broker = replace(broker, group_session_timeout_s=group_rng.choice((2.0, 6.0)), group_rebalance_delay_s=0.05)
        users_rng = random.Random(f"users {seed}")
        broker = _drawn(users_rng, broker)
        machines_fail = all(t.durability is Durability.STORED for t in topics) and rng.random() < 0.7
        impatient = users_rng.random() < IMPATIENT_SHARE
        group_members = group_rng.choice((0, 0, 1, 2, 3))
        clock_rng = random.Random(f"clocks {seed}")
        if not group_members and clock_rng.random() < RETENTION_SHARE:
            topics = tuple(_with_retention(clock_rng, topic) for topic in topics)
            broker = _that_deletes_soon(clock_rng, broker)
        scenario = cls(
            brokers=brokers,
            broker=broker,
            topics=topics,
            publishers=tuple(
                _publisher_plan(rng, f"publisher-{number}", rng.choice(topics).name, chaos_s)
                for number in range(rng.choice((1, 2, 3)))
            )
            + tuple(
                _visitor_plan(users_rng, f"visitor-{number}", topics[0].name, chaos_s)
                for number in range(users_rng.choice((0, 0, 0, 4, 12)))
            ),
            subscribers=rng.choice((1, 1, 2)),
            subscriber=_client_config(rng),
            dawdlers=users_rng.choice((0, 0, 1, 3)),
            lives=_lives_plan(users_rng, brokers, chaos_s, machines_fail) if users_rng.random() < 0.3 else None,
            adoptions=(_adoption_plan(users_rng, brokers, machines_fail),) if users_rng.random() < 0.15 else (),
            group_members=group_members,
            chaos_s=chaos_s,
            pause_s=(0.1 * lively, lively),
            machines_fail=machines_fail,
            wild_clocks=clock_rng.random() < 0.5,
            budget_bytes=rng.choice((4, 64)) * broker.frame_bytes_max,
            passage_bytes=users_rng.choice((PASSAGE_BYTES_MIN, 64 * PASSAGE_BYTES_MIN)),
        )
        return scenario.impatiently() if impatient else scenario


P = TypeVar("P", PublisherPlan, LivesPlan, AdoptionPlan)


def _impatient(plan: P) -> P:
    return replace(plan, config=replace(plan.config, delivery_timeout_s=IMPATIENT_S))


def _with_retention(rng: random.Random, topic: TopicPlan) -> TopicPlan:
    by_time, by_size = rng.choice(((True, False), (False, True), (True, True)))
    return replace(
        topic,
        retention_s=rng.choice((1.0, 5.0, 15.0)) if by_time else None,
        retention_bytes=rng.choice((4, 16)) * KIB if by_size else None,
    )


def _that_deletes_soon(rng: random.Random, broker: BrokerConfig) -> BrokerConfig:
    return replace(
        broker,
        log_roll_bytes=2 * KIB,
        log_roll_age_s=0.5,
        log_grace_s=rng.choice((0.2, 1.0)),
        maintenance_interval_s=rng.choice((0.3, 1.0)),
    )


def _broker_config(rng: random.Random) -> BrokerConfig:
    """Draw limits so small that a few hundred records reach all of them."""
    frame_bytes_max = rng.choice((8, 32)) * KIB
    cache_age_s = 300.0 if frame_bytes_max == 8 * KIB else 4.0  # so that some readers read from files
    return BrokerConfig(
        cache_age_s=cache_age_s,
        lease_ttl_s=rng.choice((1.0, 2.0)),
        segment_buffer_bytes_max=rng.choice((1, 2, 8)) * frame_bytes_max,
        frame_bytes_max=frame_bytes_max,
        replica_timeout_s=rng.choice((0.3, 1.0, 3.0)),
        stream_in_flight_bytes_max=rng.choice((1, 4)) * frame_bytes_max,
        stream_in_flight_frames_max=rng.choice((1, 2, 4, 16)),
        read_chunk_bytes=rng.choice((1, 4, 64)) * KIB,
        log_roll_bytes=rng.choice((2, 8, 64)) * KIB,
        log_roll_age_s=rng.choice((0.5, 2.0, 10.0)),
        flush_interval_s=rng.choice((0.05, 0.2, 1.0)),
        log_grace_s=rng.choice((0.5, 2.0, 600.0)),
        table_row_group_bytes=rng.choice((1, 64)) * KIB,
        maintenance_interval_s=rng.choice((0.3, 1.0, 5.0)),
        conversion_backlog_bytes_max=64 * KIB,
        conversion_delay_s_max=1.5,
        load_report_interval_s=1.0,
        producers_per_segment_max=rng.choice((4, 1_000)),
        rpc_timeout_s=rng.choice((1.0, 3.0)),
    )


def _drawn(rng: random.Random, broker: BrokerConfig) -> BrokerConfig:
    """Draw unusual settings: every accepted combination must work."""
    return replace(
        broker,
        stream_in_flight_frames_max=rng.choice((broker.stream_in_flight_frames_max, 1, 64)),
        producers_per_segment_max=rng.choice((1, 2, 4, 1_000)),
        changes_at_once_max=rng.choice((1, 8)),
        balance_interval_s=rng.choice((0.3, 1.0, 3.0)),
        segment_target_records_per_s=rng.choice((20.0, 1_000_000.0, 1_000_000.0)),
        split_after_s=rng.choice((0.5, 2.0)),
        merge_after_s=rng.choice((1.0, 60.0)),
        load_short_s=rng.choice((0.5, 2.0)),
        load_long_s=rng.choice((1.0, 20.0)),
        group_revoke_timeout_s=rng.choice((2.0, 300.0)),
    )


def _client_config(rng: random.Random) -> ClientConfig:
    return ClientConfig(
        rpc_timeout_s=rng.choice((1.0, 3.0)),
        stall_timeout_s=rng.choice((1.0, 3.0)),
        linger_s=rng.choice((0.0, 0.002, 0.02, 0.1)),
        batch_bytes=rng.choice((256, 1_024, 4_096)),
        buffer_bytes_max=rng.choice((8, 64)) * KIB,
        subscribe_buffer_bytes_max=rng.choice((4, 64)) * KIB,
        credit_bytes_min=rng.choice((1, 4)) * KIB,
        backoff_s_max=0.5,
    )


def _publisher_plan(rng: random.Random, name: str, topic: str, chaos_s: float) -> PublisherPlan:
    records = rng.choice((20, 60, 100))
    return PublisherPlan(
        name=name,
        topic=topic,
        keys=rng.choice((1, 2, 5)),
        records=records,
        pause_s_max=rng.choice((0.0, 2 * chaos_s / records, 2 * chaos_s / records)),
        value_bytes=rng.choice((20, 100, 1_000)),
        config=_client_config(rng),
    )


def _visitor_plan(rng: random.Random, name: str, topic: str, chaos_s: float) -> PublisherPlan:
    """Plan a publisher that starts, sends a record or two, perhaps after a pause, and ends."""
    records = rng.choice((1, 2, 3))
    return PublisherPlan(
        name=name,
        topic=topic,
        keys=1,
        records=records,
        pause_s_max=rng.choice((0.0, 0.05, chaos_s / records)),
        value_bytes=20,
        config=_client_config(rng),
        starts_s=rng.uniform(0, chaos_s),
    )


def _lives_plan(rng: random.Random, brokers: int, chaos_s: float, machines_fail: bool) -> LivesPlan:
    lives = rng.choice((2, 3, 5))
    return LivesPlan(
        topic=_own_topic(rng, "sim/lives", brokers, machines_fail),
        lives=lives,
        life_s_max=chaos_s / lives,
        records=rng.choice((5, 20)),
        config=_client_config(rng),
    )


def _adoption_plan(rng: random.Random, brokers: int, machines_fail: bool) -> AdoptionPlan:
    return AdoptionPlan(
        topic=_own_topic(rng, "sim/adoption", brokers, machines_fail),
        sends=rng.choice((1, 3)),
        starts_s_max=rng.choice((0.005, 0.05, 1.0)),
        pause_s_max=rng.choice((0.0, 0.5)),
        config=_client_config(rng),
    )


def _own_topic(rng: random.Random, name: str, brokers: int, machines_fail: bool) -> TopicPlan:
    return TopicPlan(
        name=name,
        segments=rng.choice((1, 2)),
        durability=Durability.STORED if machines_fail else rng.choice(tuple(Durability)),
        replicas=min(rng.choice((1, 2, 2)), brokers),
    )
