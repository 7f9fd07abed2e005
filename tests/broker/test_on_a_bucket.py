"""A whole broker, with real sockets, whose storage is a bucket of a server of S3."""

import asyncio

import boto3
import pytest

from seaweedmq import aio
from seaweedmq.codec.object_keys import parse_bundle_key, parse_log_object
from seaweedmq.model.config import BrokerConfig
from tests.support.moto_server import KEY_ID, SECRET, MotoServer
from tests.support.whole_broker import whole_broker

RECORDS = 500


def keys_below(moto: MotoServer, bucket: str, prefix: str) -> list[str]:
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{moto.port}",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [each["Key"].removeprefix(prefix) for page in pages for each in page.get("Contents", ())]


@pytest.mark.parametrize("durability", ["stored", "replicated"])
async def test_records_are_acknowledged_read_and_sealed(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    bucket = moto.new_bucket()
    async with whole_broker(f"s3://{bucket}/cluster", BrokerConfig()) as whole:
        async with aio.connect(whole.address) as client:
            await client.admin.create_topic("shop/orders", replicas=1, durability=durability)
            async with client.publisher("shop/orders") as publisher:
                receipts = [await publisher.send(b"order %d" % number) for number in range(RECORDS)]
                await asyncio.gather(*map(asyncio.wrap_future, receipts))
            read = []
            async with client.subscriber("shop/orders", start="earliest") as subscriber:
                async with asyncio.timeout(30):
                    async for message in subscriber:
                        read.append(message.value)
                        if len(read) == RECORDS:
                            break
            assert sorted(read) == sorted(b"order %d" % number for number in range(RECORDS))
        assert any(parse_bundle_key(key) for key in keys_below(moto, bucket, "cluster/"))
    logs = [log for key in keys_below(moto, bucket, "cluster/") if (log := parse_log_object(key)) is not None]
    assert sum(log.end_offset - log.base_offset for log in logs) == RECORDS, "a broker that stops leaves log objects"
