"""Client settings that are rejected."""

import pytest

from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import InvalidArgument


def test_nothing_is_delivered_for_longer_than_brokers_recognize_a_repeat_or_negative_times() -> None:
    assert ClientConfig(delivery_timeout_s=600.0).delivery_timeout_s == 600.0
    with pytest.raises(InvalidArgument, match="delivery_timeout_s is 601: use at most 600"):
        ClientConfig(delivery_timeout_s=601.0)
    with pytest.raises(InvalidArgument, match="rpc_timeout_s is -1: it must be positive"):
        ClientConfig(rpc_timeout_s=-1)
