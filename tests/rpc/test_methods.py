"""Every unary request and reply crosses the wire unchanged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, Decision, SegmentLoad
from seaweedmq.model.description import AwaitedTopic, SegmentSelection, SegmentStats, TopicDescription, UpdatedTopics
from seaweedmq.model.kafka.group_admin import (
    KafkaGroupDescription,
    KafkaGroupMember,
    KafkaGroupOffset,
    KafkaGroupSummary,
)
from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages.calls import (
    AdoptSchema,
    AlterTopic,
    AwaitTopics,
    CreateTopic,
    CreateTopics,
    DeleteGroup,
    DeleteKafkaGroup,
    DeleteTopic,
    DescribeGroup,
    DescribeKafkaGroup,
    DescribeTopic,
    GetClusterStatus,
    ListGroups,
    ListKafkaGroups,
    ListTopics,
    LocalStats,
    LogEnds,
    MergeSegments,
    MoveSegment,
    RaiseLowWatermark,
    Rebalance,
    ResetGroup,
    ResetKafkaGroup,
    SealSegment,
    SplitSegment,
    TopicStats,
)
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.model.topic_settings import configs_of
from seaweedmq.rpc.messages import cluster, groups
from seaweedmq.rpc.methods import METHODS
from seaweedmq.rpc.v1 import admin_pb2, groups_pb2, types_pb2

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
RATES = st.floats(0, 1e12)
TEXTS = st.text(max_size=20)
NAMES = st.builds(TopicName, st.just("shop"), st.sampled_from(["orders", "x.y-z_0"]))
LIMITS = {
    "retention_s": st.none() | RATES,
    "retention_bytes": st.none() | U64,
    "target_bytes_per_s": st.none() | RATES,
    "target_records_per_s": st.none() | RATES,
}
MARKS = st.dictionaries(U32, U64, max_size=3)
CONFIGS = st.dictionaries(TEXTS, TEXTS, max_size=3).map(configs_of)
OPTIONS = {"schema": st.none() | st.binary(max_size=30), "configs": CONFIGS, **LIMITS}
SPECS = st.builds(
    TopicSpec,
    name=NAMES,
    segments=U32,
    replicas=U32,
    durability=st.none() | st.sampled_from(Durability),
    scaling=st.sampled_from(Scaling),
    **OPTIONS,
)
CHANGES = st.builds(
    TopicChange,
    durability=st.none() | st.sampled_from(Durability),
    scaling=st.none() | st.sampled_from(Scaling),
    configs=st.none() | CONFIGS,
    **LIMITS,
)
TOPICS = st.builds(
    Topic,
    name=NAMES,
    uid=U64,
    replicas=U32,
    durability=st.sampled_from(Durability),
    scaling=st.sampled_from(Scaling),
    next_segment=U32,
    created_us=I64,
    segments_min=st.integers(1, 4096),
    partitions=st.none() | st.integers(1, 4_096),
    low_watermarks=st.lists(U64, max_size=3).map(tuple),
    **OPTIONS,
)
RANGES = st.tuples(st.integers(0, 65_535), st.integers(1, 65_536)).filter(lambda r: r[0] < r[1])
IDS = st.lists(U32, max_size=3).map(tuple)
SEGMENTS = st.builds(
    Segment,
    topic=NAMES,
    id=U32,
    slots=RANGES.map(lambda r: KeyRange(*r)),
    epoch=U64,
    state=st.sampled_from(SegmentState),
    replicas=st.lists(TEXTS, max_size=3).map(tuple),
    predecessors=IDS,
    successors=IDS,
    start_offset=U64,
    end_offset=st.none() | U64,
    opened_us=I64,
    sealed_us=I64,
    problem=TEXTS,
)
DESCRIPTIONS = st.builds(
    lambda topic, segments, addresses, revision, more_above, frame_bytes_max: TopicDescription(
        topic=topic,
        segments=tuple(replace(s, topic=topic.name) for s in segments),
        addresses=addresses,
        revision=revision,
        more_above=more_above,
        frame_bytes_max=frame_bytes_max,
    ),
    TOPICS,
    st.lists(SEGMENTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    U64,
    st.none() | U32,
    U64,
)
WHICH = st.builds(SegmentSelection, open=st.booleans(), sealed_above=st.none() | st.just(-1) | U32, ids=IDS)
AWAITED = st.builds(AwaitedTopic, name=NAMES, topic_uid=U64, above=U64, ids=IDS)
STATS = st.lists(
    st.builds(
        SegmentStats,
        segment=U32,
        start_offset=U64,
        high_watermark=U64,
        flushed_offset=U64,
        bytes_per_s=RATES,
        records_per_s=RATES,
    ),
    max_size=3,
).map(tuple)
LOADS = st.builds(
    BrokerLoad,
    broker=TEXTS,
    cpu_share=RATES,
    memory_bytes=U64,
    buffered_bytes=U64,
    segments=st.lists(
        st.builds(
            SegmentLoad,
            topic=NAMES,
            segment=U32,
            bytes_per_s=RATES,
            records_per_s=RATES,
            unwritten_bytes=U64,
            long_bytes_per_s=RATES,
            long_records_per_s=RATES,
            histogram=st.lists(RATES, max_size=16).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)
DECISIONS = st.lists(
    st.builds(Decision, at_us=I64, topic=NAMES, segments=IDS, kind=TEXTS, reason=TEXTS), max_size=3
).map(tuple)
STATUSES = st.builds(
    ClusterStatus,
    leader=TEXTS,
    brokers=st.lists(
        st.builds(
            BrokerStatus,
            info=st.builds(
                BrokerInfo,
                id=TEXTS,
                address=TEXTS,
                started_us=I64,
                pid=U32,
                version=TEXTS,
                draining=st.booleans(),
                kafka_address=TEXTS,
            ),
            load=st.none() | LOADS,
            open_segments=U32,
            is_leader=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    topics=U32,
    open_segments=U32,
    decisions=DECISIONS,
)
STARTS = st.builds(Start, st.sampled_from(StartKind), I64)
DELIVERIES = st.dictionaries(U64, U32, max_size=3)
GROUP_REQUESTS = st.one_of(
    st.builds(
        g.GroupOpen,
        group=TEXTS,
        topic=NAMES,
        member=TEXTS,
        incarnation=U64,
        start=STARTS,
        client=TEXTS,
        held=st.dictionaries(U32, U64, max_size=3),
        topic_uid=U64,
    ),
    st.builds(
        g.GroupCommit,
        U64,
        st.lists(st.builds(g.Position, segment=U32, generation=U64, offset=U64, deliveries=DELIVERIES), max_size=3).map(
            tuple
        ),
    ),
    st.builds(g.GroupReleased, st.dictionaries(U32, U64, max_size=3)),
    st.just(g.GroupLeave()),
)
GROUP_REPLIES = st.one_of(
    st.builds(
        g.GroupAssignment,
        generation=U64,
        owned=st.lists(
            st.builds(g.Ownership, segment=U32, generation=U64, start=STARTS, deliveries=DELIVERIES, crashes=U32),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(g.GroupCommitted, U64, st.dictionaries(U32, TEXTS, max_size=3)),
)
GROUP_TOPICS = st.builds(
    g.GroupTopic,
    topic=NAMES,
    generation=U64,
    start=STARTS,
    members=st.lists(
        st.builds(g.GroupMember, id=TEXTS, client=TEXTS, connected=st.booleans(), segments=IDS), max_size=2
    ).map(tuple),
    segments=st.lists(
        st.builds(g.SegmentLag, segment=U32, owner=TEXTS, committed=st.none() | U64, end_offset=U64, lag_records=U64),
        max_size=2,
    ).map(tuple),
    finished=IDS,
)
GROUPS = st.builds(g.GroupDescription, group=TEXTS, topics=st.lists(GROUP_TOPICS, max_size=2).map(tuple))
SUMMARIES = st.lists(st.builds(g.GroupSummary, group=TEXTS, topic=NAMES, members=U32, generation=U64), max_size=3).map(
    tuple
)
PARTITIONS = st.tuples(TEXTS, U32)
KAFKA_GROUPS = st.builds(
    KafkaGroupDescription,
    group=TEXTS,
    state=TEXTS,
    protocol_type=TEXTS,
    protocol=TEXTS,
    coordinator=TEXTS,
    members=st.lists(
        st.builds(
            KafkaGroupMember,
            id=TEXTS,
            instance=TEXTS,
            client=TEXTS,
            host=TEXTS,
            partitions=st.lists(PARTITIONS, max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    offsets=st.lists(
        st.builds(
            KafkaGroupOffset,
            partition=PARTITIONS,
            owner=TEXTS,
            committed=st.none() | U64,
            end_offset=st.none() | U64,
        ),
        max_size=2,
    ).map(tuple),
)
KAFKA_SUMMARIES = st.lists(
    st.builds(KafkaGroupSummary, group=TEXTS, state=TEXTS, protocol_type=TEXTS, members=U32), max_size=3
).map(tuple)
NOTHING = st.none()


@pytest.mark.parametrize(
    ("requests", "replies"),
    [
        (st.builds(CreateTopic, SPECS), DESCRIPTIONS),
        (
            st.builds(CreateTopics, st.lists(SPECS, max_size=3).map(tuple)),
            st.lists(DESCRIPTIONS, max_size=3).map(tuple),
        ),
        (st.builds(AlterTopic, NAMES, CHANGES, U64), DESCRIPTIONS),
        (st.builds(DeleteTopic, NAMES, U64), NOTHING),
        (st.builds(RaiseLowWatermark, NAMES, MARKS, U64), MARKS),
        (st.builds(ListTopics), st.lists(TOPICS, max_size=3).map(tuple)),
        (st.builds(DescribeTopic, NAMES, WHICH, U64), DESCRIPTIONS),
        (
            st.builds(AwaitTopics, st.lists(AWAITED, max_size=3).map(tuple), st.sampled_from([0.0, 0.25, 10.0])),
            st.builds(
                UpdatedTopics, st.lists(DESCRIPTIONS, max_size=3).map(tuple), st.lists(U64, max_size=3).map(tuple)
            ),
        ),
        (st.builds(AdoptSchema, NAMES, st.binary(max_size=30), U64), DESCRIPTIONS),
        (st.builds(TopicStats, NAMES), STATS),
        (st.builds(GetClusterStatus), STATUSES),
        (st.builds(LocalStats, NAMES, U64), STATS),
        (st.builds(LogEnds, NAMES, U32, U32), st.dictionaries(U32, U32, max_size=3)),
        (st.builds(SplitSegment, NAMES, U32, st.none() | U32), DESCRIPTIONS),
        (st.builds(MergeSegments, NAMES, U32, U32), DESCRIPTIONS),
        (st.builds(SealSegment, NAMES, U32), DESCRIPTIONS),
        (st.builds(MoveSegment, NAMES, U32, st.lists(TEXTS, max_size=3).map(tuple)), DESCRIPTIONS),
        (st.builds(Rebalance), DECISIONS),
        (st.builds(ListGroups), SUMMARIES),
        (st.builds(DescribeGroup, TEXTS), GROUPS),
        (st.builds(ResetGroup, TEXTS, NAMES, STARTS, st.booleans()), GROUPS),
        (st.builds(DeleteGroup, TEXTS, st.booleans()), NOTHING),
        (st.builds(ListKafkaGroups), KAFKA_SUMMARIES),
        (st.builds(DescribeKafkaGroup, TEXTS), KAFKA_GROUPS),
        (st.builds(ResetKafkaGroup, TEXTS, NAMES, STARTS), KAFKA_GROUPS),
        (st.builds(DeleteKafkaGroup, TEXTS), NOTHING),
    ],
    ids=lambda value: str(value)[:30],
)
def test_requests_and_replies_cross_the_wire(requests, replies):
    @given(requests, replies)
    def holds(request, reply):
        method = METHODS[type(request)]
        assert method.decode_request(method.encode_request(request)) == request
        assert method.decode_reply(method.encode_reply(reply)) == reply

    holds()


@given(LOADS)
def test_load_reports_cross_the_wire(load):
    assert cluster.decode_load(cluster.encode_load(load)) == load


@given(GROUP_REQUESTS, GROUP_REPLIES)
def test_what_members_and_the_coordinator_say_crosses_the_wire(request, reply):
    assert groups.decode_group_request(groups.encode_group_request(request)) == request
    assert groups.decode_group_reply(groups.encode_group_reply(reply)) == reply


def test_a_group_message_of_a_newer_protocol_is_unsupported():
    newer = b"\x7a\x03abc"  # field 15
    for decode, kind in [(groups.decode_group_request, "GroupRequest"), (groups.decode_group_reply, "GroupReply")]:
        with pytest.raises(Unsupported, match=f"seaweedmq.v1.{kind} holds none of the kinds"):
            decode(newer)


def test_a_commit_below_zero_is_refused_before_it_is_sent():
    position = g.Position(segment=0, generation=1, offset=-1, deliveries={})
    with pytest.raises(InvalidArgument, match="GroupCommit was not sent"):
        groups.encode_group_request(g.GroupCommit(1, (position,)))


def test_a_member_that_names_no_start_begins_with_the_oldest_record():
    opening = groups_pb2.GroupOpen(group="billing", topic="shop/orders", member="m-1")
    request = groups.decode_group_request(groups_pb2.GroupRequest(open=opening).SerializeToString())
    assert isinstance(request, g.GroupOpen)
    assert request.start == Start(StartKind.EARLIEST)


def test_a_request_with_nothing_but_a_name_gets_the_defaults():
    data = admin_pb2.CreateTopicRequest(name="shop/orders").SerializeToString()
    assert METHODS[CreateTopic].decode_request(data) == CreateTopic(TopicSpec(name=TopicName("shop", "orders")))


def test_bytes_that_are_no_message_are_the_callers_fault():
    with pytest.raises(InvalidArgument, match=r"seaweedmq\.v1\.CreateTopicRequest"):
        METHODS[CreateTopic].decode_request(b"\xff\xff")


def test_a_number_below_zero_is_refused_before_it_is_sent():
    with pytest.raises(InvalidArgument, match="CreateTopic was not sent"):
        METHODS[CreateTopic].encode_request(CreateTopic(TopicSpec(name=TopicName("a", "b"), retention_bytes=-1)))


def test_a_policy_of_a_newer_protocol_is_unsupported():
    data = admin_pb2.CreateTopicRequest(name="a/b", durability=types_pb2.Durability.ValueType(9)).SerializeToString()
    with pytest.raises(Unsupported, match="durability 9"):
        METHODS[CreateTopic].decode_request(data)
