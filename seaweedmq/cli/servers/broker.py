"""Assembly of one broker process."""

import asyncio
import contextlib
import random
import secrets
import time
from dataclasses import replace

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.membership import Endpoints
from seaweedmq.broker.memory.broker_memory import heap_bytes
from seaweedmq.broker.readiness import KAFKA
from seaweedmq.cli.servers.etcd import wait_for_etcd
from seaweedmq.cli.servers.kafka import open_gateway, start_gateway
from seaweedmq.cli.servers.own_process import OwnProcess
from seaweedmq.cli.servers.process import keep_memory, trim_heap
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.etcd_lease import EtcdLeaseRenewal
from seaweedmq.coordination.standby import LeaseStandby
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment
from seaweedmq.rpc.address import Address
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from seaweedmq.runtime.loop_watch import LoopWatch
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.process.open_files import PART, files_max, within_open_files
from seaweedmq.storage.store.files import open_directory_store
from seaweedmq.storage.tables.converter import ProcessTableConverter

STOP_GRACE_S = 2.0
"""Time in seconds for open calls to end by themselves when the broker stops."""


READERS_PART = 4 * PART
"""Divisor of the open-file limit for readers of files, and for those retained for Kafka consumers."""


def within_its_files(config: BrokerConfig) -> BrokerConfig:
    """Return the settings reduced to the number of files that this process may open."""
    limit = files_max()
    return replace(
        config,
        connections_max=within_open_files("connections_max", config.connections_max, limit),
        kafka_connections_max=within_open_files("kafka_connections_max", config.kafka_connections_max, limit),
        open_segments_max=within_open_files("open_segments_max", config.open_segments_max, limit),
        kafka_cursors_max=within_open_files("kafka_cursors_max", config.kafka_cursors_max, limit, READERS_PART),
        file_readers_max=within_open_files("file_readers_max", config.file_readers_max, limit, READERS_PART),
    )


async def run_broker(
    etcd: str, etcd_timeout_s: float, storage: str, listen: Address, address: str, config: BrokerConfig
) -> None:
    """Serve until cancelled; an etcd that does not answer a read within ``etcd_timeout_s`` ends it with Unavailable.

    An etcd out of space answers, and the broker waits to register. StorageFailed is raised if the storage cannot be
    written, AlreadyExists if the port or the address is taken.
    """
    config = within_its_files(config)
    keep_memory(heap_bytes(config))  # freed but retained memory is part of the bound
    async with contextlib.AsyncExitStack() as stack:
        rng = random.Random(secrets.randbits(64))
        process = OwnProcess()
        store = open_directory_store(storage)
        stack.push_async_callback(store.close)
        await store.read_marker()  # a missing folder fails before any wait
        meta = EtcdMetaStore(etcd, timeout_s=min(2.0, config.lease_ttl_s / 4), rng=rng)
        stack.push_async_callback(meta.close)
        await wait_for_etcd(meta, etcd, etcd_timeout_s, rng)
        dialer = GrpcDialer()
        stack.push_async_callback(dialer.close)
        converter = ProcessTableConverter(
            store.place,
            row_group_bytes=config.table_row_group_bytes,
            table_grace_s=config.table_grace_s,
            cluster_id=lambda: store.cluster_id,
            rng=rng,
        )
        renewal = EtcdLeaseRenewal(etcd)
        stack.callback(renewal.close)
        standby = LeaseStandby(renewal)
        stack.callback(standby.stop)
        limit_bytes = config.memory_bytes_max - heap_bytes(config)
        trimming = asyncio.create_task(trim_heap(process.resident_bytes, limit_bytes), name="trim the heap")
        stack.callback(trimming.cancel)
        watch = LoopWatch()
        watch.start()
        stack.callback(watch.stop)
        gateway = open_gateway(config)
        if gateway is not None:
            stack.push_async_callback(gateway.stop)
        one = Broker(
            config=config,
            env=Environment(
                wall_us=lambda: time.time_ns() // 1000,
                rng=rng,
                boot_s=boot_s,
                resident_bytes=process.resident_bytes,
                cpu_share=process.cpu_share,
                loop_holds=lambda: watch.holds,
            ),
            store=store,
            meta=meta,
            dialer=dialer,
            converter=converter,
            endpoints=Endpoints(address, "" if gateway is None else gateway.address),
            standby=standby,
        )
        server = await serve(one.api, str(listen), config, memory=one.stream_memory, readiness=one.readiness)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        stack.push_async_callback(one.stop)
        if gateway is not None:
            one.readiness.reject(KAFKA, f"broker {address} does not listen for Kafka clients yet: retry")
        await one.start()
        one.watch_storage()
        if gateway is not None:
            await start_gateway(gateway, one.ports, stack)
            one.readiness.allow(KAFKA)
        await one.failed
