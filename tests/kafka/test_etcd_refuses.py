"""Errors of etcd neither hide the brokers from Kafka clients nor end a producer that could continue later."""

from collections.abc import Callable

import pytest

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from tests.broker.test_etcd_refuses import KINDS, refuse
from tests.broker.testbed import Testbed
from tests.kafka.byte_client import byte_client, byte_clients

REQUESTS = 20


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_known_nodes_are_shown_while_etcd_refuses_to_number_a_new_one(
    testbed: Testbed, kind: type[SeaweedMQError], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await byte_clients(testbed, 2)
    await first.ask(API.METADATA, topics=[])
    end = refuse(first.host, kind("database space exceeded"), ("get", "transact"))
    third = await byte_client(await testbed.start())
    await testbed.until(lambda: len(first.host.inspect.view.brokers) == 3)
    for _ in range(REQUESTS):
        said = await first.ask(API.METADATA, topics=[])
        assert said.error_code == Code.NONE
        assert [node.host for node in said.brokers] == ["broker-0", "broker-1"]
    assert caplog.text.count("numbering of Kafka's nodes") == 1, "the same warning is repeated"
    end()
    said = await first.ask(API.METADATA, topics=[])
    assert [node.host for node in said.brokers] == ["broker-0", "broker-1", "broker-2"]
    assert not any(one.host.has_failed for one in (first, second, third))


@pytest.mark.parametrize("call", ["get", "transact"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_a_producer_repeats_its_request_for_an_id_while_that_can_help(
    testbed: Testbed, kind: type[SeaweedMQError], call: str
) -> None:
    (here,) = await byte_clients(testbed, 1)
    end: Callable[[], None] = refuse(here.host, kind("no answer for you"), (call,))
    said = await here.ask(API.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1)
    assert said.error_code != Code.NONE
    assert said.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS or not kind.retryable
    end()
    said = await here.ask(API.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1)
    assert said.error_code == Code.NONE
    assert not here.host.has_failed
