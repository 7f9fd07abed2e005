"""Table of all unary calls: the type of each call and its encoding."""

from collections.abc import Mapping
from typing import Any, Final

from seaweedmq.model.messages.calls import Call, DescribeTopic
from seaweedmq.rpc.messages import admin, cluster, kafka_groups, topics
from seaweedmq.rpc.messages.unary import Unary

METHODS: Final[Mapping[type[Call[Any]], Unary[Any, Any]]] = {
    method.call: method for method in (*topics.CALLS, *admin.CALLS, *kafka_groups.CALLS, *cluster.CALLS)
}

TOGETHER: Final[frozenset[type[Call[Any]]]] = frozenset({DescribeTopic, *(method.call for method in cluster.CALLS)})
"""Repeatable calls that travel together with others of their service: see ``rpc.call_batcher``."""
