"""Messages of Apache Kafka that kafka-python lacks, made from the schemas beside this file."""

import sys

from kafka.protocol.api_message import ApiMessage

_HERE = sys.modules[__name__]


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """The heartbeat of a member of a KIP-848 group."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """The assignment of a member of a KIP-848 group."""
