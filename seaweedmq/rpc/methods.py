"""Table of all unary calls with their encodings."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from seaweedmq.model.description import AwaitedTopic, SegmentSelection
from seaweedmq.model.messages import calls
from seaweedmq.model.messages.replication import SealedLog
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages.converter import Converter, converter_of, register
from seaweedmq.rpc.messages.unary import Unary, unary
from seaweedmq.rpc.transport import ADMIN_SERVICE, CLUSTER_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, cluster_pb2

CREATE_TIMEOUT_S = 60.0
"""Deadline in seconds of the creation of many topics: each is slow on slow storage."""
PACED_TIMEOUT_S = 120.0
"""Deadline in seconds of a drain or rebalance: the leader moves many segments at a limited pace."""
CHANGE_TIMEOUT_S = 30.0
"""Deadline in seconds of a segment change: sealing a segment of a lost broker waits for the end of its lease."""

_AWAITED = converter_of(AwaitedTopic, admin_pb2.AwaitTopicsRequest.Topic)
_SEALED = converter_of(SealedLog, cluster_pb2.SealedLog, without=("sequences_complete",))


def _write_sealed(sealed: SealedLog) -> cluster_pb2.SealedLog:
    assert sealed.sequences_complete, (
        "a log sealed from memory has all producer states: the protocol cannot express a partial set"
    )
    return _SEALED.write(sealed)


def _write_describe(call: calls.DescribeTopic) -> admin_pb2.DescribeTopicRequest:
    which = call.which
    above = which.sealed_above
    return admin_pb2.DescribeTopicRequest(
        name=str(call.name),
        topic_uid=call.topic_uid,
        without_open=not which.open,
        without_sealed=above is None,
        sealed_above=None if above is None or above < 0 else above,
        segments=which.ids,
    )


def _read_describe(message: admin_pb2.DescribeTopicRequest) -> calls.DescribeTopic:
    above = message.sealed_above if message.HasField("sealed_above") else -1
    which = SegmentSelection(
        open=not message.without_open,
        sealed_above=None if message.without_sealed else above,
        ids=tuple(message.segments),
    )
    return calls.DescribeTopic(TopicName.parse(message.name), which, message.topic_uid)


def _write_await(call: calls.AwaitTopics) -> admin_pb2.AwaitTopicsRequest:
    return admin_pb2.AwaitTopicsRequest(
        topics=map(_AWAITED.write, call.topics), patience_ms=round(1_000 * call.patience_s)
    )


def _read_await(message: admin_pb2.AwaitTopicsRequest) -> calls.AwaitTopics:
    return calls.AwaitTopics(tuple(map(_AWAITED.read, message.topics)), message.patience_ms / 1_000)


register(SealedLog, Converter(_write_sealed, _SEALED.read))
register(calls.DescribeTopic, Converter(_write_describe, _read_describe))
register(calls.AwaitTopics, Converter(_write_await, _read_await))

_admin = partial(unary, ADMIN_SERVICE)
_cluster = partial(unary, CLUSTER_SERVICE)
_ADMIN: tuple[Unary[Any, Any], ...] = (
    _admin(calls.CreateTopic),
    _admin(calls.CreateTopics, timeout_s=CREATE_TIMEOUT_S),
    _admin(calls.AlterTopic),
    _admin(calls.DeleteTopic),
    _admin(calls.RaiseLowWatermark),
    _admin(calls.ListTopics),
    _admin(calls.DescribeTopic),
    _admin(calls.AwaitTopics),
    _admin(calls.AdoptSchema),
    _admin(calls.TopicStats),
    _admin(calls.GetClusterStatus, "ClusterStatus"),
    _admin(calls.DrainBroker, timeout_s=PACED_TIMEOUT_S),
    _admin(calls.SplitSegment, timeout_s=CHANGE_TIMEOUT_S),
    _admin(calls.MergeSegments, timeout_s=CHANGE_TIMEOUT_S),
    _admin(calls.SealSegment, timeout_s=CHANGE_TIMEOUT_S),
    _admin(calls.MoveSegment, timeout_s=CHANGE_TIMEOUT_S),
    _admin(calls.Rebalance, timeout_s=PACED_TIMEOUT_S),
    _admin(calls.ListGroups),
    _admin(calls.DescribeGroup),
    _admin(calls.ResetGroup),
    _admin(calls.DeleteGroup),
    _admin(calls.ListKafkaGroups),
    _admin(calls.DescribeKafkaGroup),
    _admin(calls.ResetKafkaGroup),
    _admin(calls.DeleteKafkaGroup),
)
_CLUSTER: tuple[Unary[Any, Any], ...] = (
    _cluster(calls.LocalStats),
    _cluster(calls.LogEnds),
    _cluster(calls.NoteProgress),
    _cluster(calls.Fence),
    _cluster(calls.WriteOut),
    _cluster(calls.Seal),
    _cluster(calls.ReportSuspicions, "Suspect"),
    _cluster(calls.ReportEmptied),
)

METHODS: Final[Mapping[type[calls.Call[Any]], Unary[Any, Any]]] = {
    method.call: method for method in (*_ADMIN, *_CLUSTER)
}

TOGETHER: Final[frozenset[type[calls.Call[Any]]]] = frozenset(
    {calls.DescribeTopic, *(method.call for method in _CLUSTER)}
)
"""Repeatable calls that travel together with others of their service: see ``rpc.call_batcher``."""
