"""A whole broker in this process, with real sockets and files and an in-memory etcd."""

import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.membership import Endpoints
from seaweedmq.cli.servers.own_process import OwnProcess
from seaweedmq.kafka.gateway import Gateway
from seaweedmq.kafka.handlers import Handlers
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment
from seaweedmq.rpc.address import parse_address
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.process.free_ports import ReservedPort
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.stores import open_store
from seaweedmq.storage.tables.converter import ProcessTableConverter
from tests.doubles.memory_meta import MemoryMetaServer, MemoryMetaStore


@dataclass(frozen=True)
class WholeBroker:
    """A broker with its parts."""

    broker: Broker
    handlers: Handlers
    gateway: Gateway
    address: str
    kafka_port: int


@contextlib.asynccontextmanager
async def whole_broker(storage: Path | str, config: BrokerConfig) -> AsyncIterator[WholeBroker]:
    """Start it on an existing directory, or on the URI of an object store; stop it in the end."""
    async with contextlib.AsyncExitStack() as stack:
        native, kafka = stack.enter_context(ReservedPort()), stack.enter_context(ReservedPort())
        config = replace(config, kafka_listen=kafka.address)
        rng = random.Random(1)
        place = DirectoryPlace(storage) if isinstance(storage, Path) else parse_place(storage)
        store = FileSegmentStore(storage) if isinstance(storage, Path) else open_store(storage, rng)
        stack.push_async_callback(store.close)
        meta = MemoryMetaStore(MemoryMetaServer())
        stack.push_async_callback(meta.close)
        dialer = GrpcDialer()
        stack.push_async_callback(dialer.close)
        gateway = Gateway(config, parse_address(kafka.address))
        stack.push_async_callback(gateway.stop)
        broker = Broker(
            config=config,
            env=Environment(lambda: time.time_ns() // 1_000, rng, boot_s, resident_bytes=OwnProcess().resident_bytes),
            store=store,
            meta=meta,
            dialer=dialer,
            converter=ProcessTableConverter(place, cluster_id=lambda: store.cluster_id, rng=rng),
            endpoints=Endpoints(native.address, gateway.address),
        )
        server = await serve(
            broker.api, native.address, config, memory=broker.stream_memory, readiness=broker.readiness
        )
        stack.push_async_callback(server.stop, 0)
        stack.push_async_callback(broker.stop)
        await broker.start()
        handlers = Handlers(broker.ports)
        stack.push_async_callback(handlers.close)
        await gateway.start(handlers.all, broker.ports.runtime.memory.in_flight_bytes)
        yield WholeBroker(broker, handlers, gateway, native.address, kafka.port)
