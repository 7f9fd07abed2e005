"""Messages of Apache Kafka that kafka-python does not have, from schemas in its form beside this file."""

import sys

from kafka.protocol.api_message import ApiMessage

_HERE = sys.modules[__name__]


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Of a member of a group as KIP-848 has them."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """What it is to read from now on."""
