"""Test that a broker imports no unneeded package: Arrow imports pandas if it is installed, which takes 62 MB."""

import subprocess
import sys
from pathlib import Path

SERVE = """
import asyncio
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

import seaweedmq.cli.servers.broker
from seaweedmq import aio
from seaweedmq.codec.arrays import array_of, binary_of
from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.model.config import BrokerConfig
from tests.integration.kafka.raw import FETCH, PRODUCE, fetch_fields, produce_fields
from tests.kafka.wire.script import script
from tests.support.kafka_batches import Record, batch_of
from tests.support.whole_broker import whole_broker

PACKAGES = ("pandas", "pyspark", "polars", "duckdb", "deltalake", "pyiceberg")
# Not of Python values: Arrow would import pandas for these here.
COLUMNS = pa.table({"number": array_of(np.array([1, 2]), pa.int64()), "text": binary_of([b"a", b"b"])})

class Finder:
    def find_spec(self, name, *_):
        if name in PACKAGES:
            traceback.print_stack()
            os._exit(1)

sys.meta_path.insert(0, Finder())

async def main():
    async with whole_broker(Path(sys.argv[1]), BrokerConfig(storage_free_bytes_min=1)) as broker:
        async with aio.connect(broker.address) as client:
            for topic in ("kafka/rows", "kafka/columns"):
                await client.admin.create_topic(topic, partitions=1)
            async with client.publisher("kafka/rows") as publisher:
                await (await publisher.send(b"value", key=b"key"))
            async with client.publisher("kafka/columns") as publisher:
                await publisher.send_table(COLUMNS)
            for topic in ("kafka/rows", "kafka/columns"):
                async with client.subscriber(topic, start=datetime(2020, 1, 1, tzinfo=UTC)) as subscriber:
                    await anext(aiter(subscriber))
                async with client.subscriber(topic, group="readers", start="earliest") as subscriber:
                    (await anext(aiter(subscriber))).ack()
        async with script(broker.kafka_port) as kafka:
            for version, api, fields in (
                (PRODUCE, API.PRODUCE, produce_fields("rows", 0, batch_of([Record(b"key", b"value")]))),
                (FETCH, API.FETCH, fetch_fields("rows", 0, 0)),
                (FETCH, API.FETCH, fetch_fields("columns", 0, 0)),
            ):
                kafka.ask(1, api, version, REQUESTS[api](version=version, **fields))
                await kafka.hear(api, version)

asyncio.run(main())
"""


def test_a_broker_that_serves_every_kind_of_client_imports_no_data_frames(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", SERVE, str(tmp_path)], cwd=root, check=True, timeout=100)
