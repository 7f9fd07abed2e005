"""Every unary request and reply crosses the wire unchanged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, SegmentLoad
from seaweedmq.model.protocol import SegmentStats, TopicDescription
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.rpc import methods, wire
from seaweedmq.rpc.v1 import admin_pb2, types_pb2

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
RATES = st.floats(0, 1e12)
TEXTS = st.text(max_size=20)
NAMES = st.builds(TopicName, st.just("shop"), st.sampled_from(["orders", "x.y-z_0"]))
OPTIONS = {
    "schema": st.none() | st.binary(max_size=30),
    "retention_s": st.none() | RATES,
    "retention_bytes": st.none() | U64,
}
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
    retention_s=OPTIONS["retention_s"],
    retention_bytes=OPTIONS["retention_bytes"],
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
    sequences=st.lists(
        st.builds(ProducerSequence, producer_id=U64, producer_epoch=U32, next_sequence=U64), max_size=2
    ).map(tuple),
)
DESCRIPTIONS = st.builds(
    lambda topic, segments, addresses: TopicDescription(
        topic=topic, segments=tuple(replace(s, topic=topic.name) for s in segments), addresses=addresses
    ),
    TOPICS,
    st.lists(SEGMENTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)
STATS = st.lists(
    st.builds(
        SegmentStats, segment=U32, high_watermark=U64, flushed_offset=U64, bytes_per_s=RATES, records_per_s=RATES
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
            unflushed_bytes=U64,
            histogram=st.lists(U64, max_size=16).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)
STATUSES = st.builds(
    ClusterStatus,
    leader=TEXTS,
    brokers=st.lists(
        st.builds(
            BrokerStatus,
            info=st.builds(BrokerInfo, id=TEXTS, address=TEXTS, started_us=I64, pid=U32, version=TEXTS),
            load=st.none() | LOADS,
            open_segments=U32,
            is_leader=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    topics=U32,
    open_segments=U32,
)
NOTHING = st.none()


@pytest.mark.parametrize(
    ("method", "requests", "replies"),
    [
        (methods.CREATE_TOPIC, SPECS, DESCRIPTIONS),
        (methods.ALTER_TOPIC, st.tuples(NAMES, CHANGES), DESCRIPTIONS),
        (methods.DELETE_TOPIC, NAMES, NOTHING),
        (methods.LIST_TOPICS, NOTHING, st.lists(TOPICS, max_size=3).map(tuple)),
        (methods.DESCRIBE_TOPIC, NAMES, DESCRIPTIONS),
        (methods.ADOPT_SCHEMA, st.tuples(NAMES, st.binary(max_size=30)), DESCRIPTIONS),
        (methods.TOPIC_STATS, NAMES, STATS),
        (methods.CLUSTER_STATUS, NOTHING, STATUSES),
        (methods.LOCAL_STATS, NAMES, STATS),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_requests_and_replies_cross_the_wire(method, requests, replies):
    @given(requests, replies)
    def holds(request, reply):
        assert method.decode_request(method.encode_request(request)) == request
        assert method.decode_reply(method.encode_reply(reply)) == reply

    holds()


@given(LOADS)
def test_load_reports_cross_the_wire(load):
    assert wire.decode_load(wire.encode_load(load)) == load


def test_a_request_with_nothing_but_a_name_gets_the_defaults():
    data = admin_pb2.CreateTopicRequest(name="shop/orders").SerializeToString()
    assert methods.CREATE_TOPIC.decode_request(data) == TopicSpec(name=TopicName("shop", "orders"))


def test_bytes_that_are_no_message_are_the_callers_fault():
    with pytest.raises(InvalidArgument, match=r"seaweedmq\.v1\.CreateTopicRequest"):
        methods.CREATE_TOPIC.decode_request(b"\xff\xff")


def test_a_number_below_zero_is_refused_before_it_is_sent():
    with pytest.raises(InvalidArgument, match="CreateTopic refused before it was sent"):
        methods.CREATE_TOPIC.encode_request(TopicSpec(name=TopicName("a", "b"), retention_bytes=-1))


def test_a_policy_of_a_newer_protocol_is_unsupported():
    data = admin_pb2.CreateTopicRequest(name="a/b", durability=types_pb2.Durability.ValueType(9)).SerializeToString()
    with pytest.raises(Unsupported, match="durability 9"):
        methods.CREATE_TOPIC.decode_request(data)
