"""One broker process, put together from its parts."""

import asyncio
import contextlib
import random
import secrets
import time

import psutil

from seaweedmq.broker.broker import Broker
from seaweedmq.cli.output import note
from seaweedmq.cli.servers.kafka import open_gateway, start_gateway
from seaweedmq.codec.keys import LEADER
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.errors import Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment
from seaweedmq.rpc.address import Address
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from seaweedmq.runtime.boot_clock import boot_s
from seaweedmq.runtime.retrying import after_s, backoff, retrying
from seaweedmq.storage.store.files import open_store
from seaweedmq.storage.tables.converter import ProcessTableConverter

STOP_GRACE_S = 2.0
"""How long open calls may end by themselves when the broker stops."""


async def run_broker(
    etcd: str, etcd_timeout_s: float, storage: str, listen: Address, address: str, config: BrokerConfig
) -> None:
    """Serve until cancelled.

    Raises:
        StorageFailed: the storage can not be written.
        Unavailable: etcd did not answer a read in time; out of space it answers, and the broker waits to register.
        AlreadyExists: the port or the address is taken.
    """
    async with contextlib.AsyncExitStack() as stack:
        rng = random.Random(secrets.randbits(64))
        process = psutil.Process()
        store = open_store(storage)
        stack.push_async_callback(store.close)
        await store.read_marker()  # a missing folder is found out before anything is waited for
        meta = EtcdMetaStore(etcd, timeout_s=min(2.0, config.lease_ttl_s / 4), rng=rng)
        stack.push_async_callback(meta.close)
        await _wait_for_etcd(meta, etcd, etcd_timeout_s, rng)
        dialer = GrpcDialer()
        stack.push_async_callback(dialer.close)
        converter = ProcessTableConverter(
            store.root,
            row_group_bytes=config.table_row_group_bytes,
            table_grace_s=config.table_grace_s,
            rng=rng,
        )
        gateway = open_gateway(config)
        if gateway is not None:
            stack.push_async_callback(gateway.stop)
        one = Broker(
            config=config,
            env=Environment(
                wall_us=lambda: time.time_ns() // 1000,
                rng=rng,
                boot_s=boot_s,
                resident_bytes=lambda: process.memory_info().rss,
                cpu_share=lambda: process.cpu_percent(interval=None) / 100,
            ),
            store=store,
            meta=meta,
            dialer=dialer,
            converter=converter,
            address=address,
            kafka_address="" if gateway is None else gateway.address,
        )
        server = await serve(one.api, str(listen), config, memory=one.stream_memory, readiness=one.readiness)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        stack.push_async_callback(one.stop)
        await one.start()
        if gateway is not None:
            await start_gateway(gateway, one.local, stack)
        await one.failed


async def _wait_for_etcd(meta: EtcdMetaStore, endpoints: str, timeout_s: float, rng: random.Random) -> None:
    said = False

    def say(_: int, __: BaseException) -> None:
        nonlocal said
        if not said:
            said = True
            note(f"waiting for etcd at {endpoints} (at most {timeout_s:g} s)")

    try:
        async with asyncio.timeout(timeout_s):
            asking = retrying(backoff(rng, 0.1, 1.0), on=Unavailable, stop=after_s(timeout_s), told=say)
            await asking(meta.get, LEADER)
    except (TimeoutError, Unavailable) as error:
        raise Unavailable(
            f"etcd at {endpoints} did not answer within {timeout_s:g} s: start it or correct --etcd"
        ) from error
