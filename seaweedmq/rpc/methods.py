"""The one table of unary calls: each kind of call, and how it travels."""

from collections.abc import Mapping
from typing import Any, Final

from seaweedmq.model.calls import Call
from seaweedmq.rpc import admin, cluster
from seaweedmq.rpc.unary import Unary

METHODS: Final[Mapping[type[Call[Any]], Unary[Any, Any]]] = {
    method.call: method for method in (*admin.CALLS, *cluster.CALLS)
}
