"""`seaweedmq broker`: one broker process, put together from its parts."""

import asyncio
import contextlib
import random
import secrets
import time
from pathlib import Path
from typing import Annotated

import tenacity
import typer

from seaweedmq.broker.server import Broker
from seaweedmq.cli.config_file import read_config
from seaweedmq.cli.output import note
from seaweedmq.cli.process import die_with_parent, log_to_stderr, tune, until_signal
from seaweedmq.codec.keys import LEADER
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment
from seaweedmq.rpc.address import Address, parse_address
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from seaweedmq.storage.converter import ProcessTableConverter
from seaweedmq.storage.files import open_store

STOP_GRACE_S = 2.0
"""How long open calls may end by themselves when the broker stops."""
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})


def broker(
    etcd: Annotated[str, typer.Option(metavar="HOST:PORT[,...]", help="etcd endpoints.")],
    storage: Annotated[str, typer.Option(metavar="URI", help="Folder that all brokers share: a path or file:///path.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:17777",
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients and brokers find it (as --listen).", show_default=False),
    ] = None,
    lease_ttl: Annotated[
        float | None,
        typer.Option(metavar="S", min=1, help="Seconds after which a silent broker is gone (5).", show_default=False),
    ] = None,
    etcd_timeout: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds to wait for etcd at the start.")
    ] = 30,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file of settings.", exists=True, dir_okay=False, show_default=False),
    ] = None,
    log_level: Annotated[
        str, typer.Option(metavar="debug|info|warning|error", help="What to log on stderr.", envvar="SEAWEEDMQ_LOG")
    ] = "info",
    parent_pid: Annotated[int | None, typer.Option(hidden=True, help="Stop when this parent process ends.")] = None,
) -> None:
    """Run one broker until SIGTERM or SIGINT."""
    if parent_pid is not None:
        die_with_parent(parent_pid)
    log_to_stderr(log_level)
    tune()
    settings = read_config(config, lease_ttl_s=lease_ttl)
    address = parse_address(listen)
    asyncio.run(
        until_signal(run_broker(etcd, etcd_timeout, storage, address, _reachable(address, advertise), settings))
    )


def _reachable(listen: Address, advertise: str | None) -> str:
    if advertise is not None:
        return str(parse_address(advertise))
    if listen.host in WILDCARD_HOSTS or listen.port == 0:
        raise InvalidArgument(f"{listen} is no address that others can dial: name one with --advertise HOST:PORT")
    return str(listen)


async def run_broker(
    etcd: str, etcd_timeout_s: float, storage: str, listen: Address, address: str, config: BrokerConfig
) -> None:
    """Serve until cancelled.

    Raises:
        StorageFailed: the storage can not be written.
        Unavailable: etcd did not answer in time.
        AlreadyExists: the port or the address is taken.
    """
    async with contextlib.AsyncExitStack() as stack:
        store = open_store(storage)
        stack.push_async_callback(store.close)
        await store.check()
        meta = EtcdMetaStore(etcd)
        stack.push_async_callback(meta.close)
        await _wait_for_etcd(meta, etcd, etcd_timeout_s)
        dialer = GrpcDialer()
        stack.push_async_callback(dialer.close)
        converter = ProcessTableConverter(store.root, row_group_bytes=config.table_row_group_bytes)
        one = Broker(
            config=config,
            env=Environment(wall_us=lambda: time.time_ns() // 1000, rng=random.Random(secrets.randbits(64))),
            store=store,
            meta=meta,
            dialer=dialer,
            converter=converter,
            address=address,
        )
        server = await serve(one, str(listen), config)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        stack.push_async_callback(one.stop)
        await one.start()
        await one.failed


async def _wait_for_etcd(meta: EtcdMetaStore, endpoints: str, timeout_s: float) -> None:
    said = False

    def say(_: tenacity.RetryCallState) -> None:
        nonlocal said
        if not said:
            said = True
            note(f"waiting for etcd at {endpoints} (at most {timeout_s:g} s)")

    try:
        async with asyncio.timeout(timeout_s):
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(Unavailable),
                wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
                stop=tenacity.stop_after_delay(timeout_s),
                before_sleep=say,
                reraise=True,
            ):
                with attempt:
                    await meta.get(LEADER)
    except (TimeoutError, Unavailable) as error:
        raise Unavailable(
            f"etcd at {endpoints} did not answer within {timeout_s:g} s: start it or correct --etcd"
        ) from error
