"""Connection of a command to etcd."""

import asyncio
import random

from seaweedmq.cli.output import note
from seaweedmq.codec.state.keys import LEADER
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.errors import Unavailable
from seaweedmq.runtime.retrying import after_s, backoff, retrying


async def wait_for_etcd(meta: EtcdMetaStore, endpoints: str, timeout_s: float, rng: random.Random) -> None:
    """Return once etcd answers a read; Unavailable if it does not within ``timeout_s``."""
    is_reported = False

    def report(_: int, __: BaseException) -> None:
        nonlocal is_reported
        if not is_reported:
            is_reported = True
            note(f"waiting for etcd at {endpoints} (at most {timeout_s:g} s)")

    try:
        async with asyncio.timeout(timeout_s):
            asking = retrying(backoff(rng, 0.1, 1.0), on=Unavailable, stop=after_s(timeout_s), on_retry=report)
            await asking(meta.get, LEADER)
    except (TimeoutError, Unavailable) as error:
        raise Unavailable(
            f"etcd at {endpoints} did not answer within {timeout_s:g} s: start it or correct --etcd"
        ) from error
