"""A group moves to another broker while a member is about to query where to begin.

The broker that the member queries no longer has the group. librdkafka (issue 5586 there, open with 2.16) accepts its
error as an answer and never repeats the query, unless the error is that the offsets are not settled yet.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.kafka import confluent_client, elsewhere, moving
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.records import Sent

pytestmark = pytest.mark.integration

COMMITTED, COUNT = 5, 10
Place = tuple[str, str, str, str]
"""Return bootstrap servers, those of native clients, a group, and a topic of which it has read half."""


@pytest.fixture
def place(kafka: Kafka, create: Callable[..., str], request: pytest.FixtureRequest) -> Place:
    topic, group = create(), request.node.name
    confluent_client.publish(kafka.bootstrap, topic, [Sent(None, b"%d" % n) for n in range(COUNT)])
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    return kafka.bootstrap, kafka.native, group, topic


REST = [b"%d" % n for n in range(COMMITTED, COUNT)]


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_librdkafka_asks_again(place: Place, isolation_level: str) -> None:
    assert moving.librdkafka(*place, len(REST), isolation_level=isolation_level) == REST


def test_old_librdkafka_asks_again(place: Place, others: Callable[[str], Path]) -> None:
    folder = others("librdkafka 2.0")
    assert elsewhere.call(folder, moving.__name__, moving.librdkafka.__name__, *place, len(REST)) == REST
