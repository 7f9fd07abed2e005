"""`publish` reports how much of a pipe is published when a record is rejected."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import seaweedmq
from seaweedmq.cli.commands.publish import send
from seaweedmq.errors import InvalidArgument
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster

TOPIC = "shop/orders"
TABLES = [pa.table({"_value": values}) for values in ([b"a", b"b"], [b"c", b"poison"], [b"d"])]


@pytest.fixture
def publisher() -> Iterator[seaweedmq.Publisher]:
    cluster = FakeCluster()
    cluster.refuse_value = b"poison"
    with seaweedmq.connect(
        "fake:9000", dialer=cluster.dialer(), env=environment(boot_s=time.monotonic), config=QUICK
    ) as client:
        client.admin.create_topic(TOPIC)
        with client.publisher(TOPIC) as publisher:
            yield publisher


def test_a_pipe_is_not_read_on_once_a_record_was_rejected(publisher: seaweedmq.Publisher) -> None:
    def endless() -> Iterator[pa.Table]:
        yield from TABLES
        while True:
            time.sleep(0.001)
            yield TABLES[0]

    with pytest.raises(InvalidArgument, match=r"poison.*the first 2 records are published, and only some of the next"):
        send(publisher, endless(), None, lambda _: None)


def test_a_table_that_does_not_fit_is_told_with_what_is_published(publisher: seaweedmq.Publisher) -> None:
    parts = [TABLES[0], pa.table({"_value": [1]})]
    with pytest.raises(
        InvalidArgument, match="the first 2 records are published: correct the next one and publish the rest"
    ):
        send(publisher, parts, None, lambda _: None)
