"""A candidate as a separate process: reports when it leads, and on each line of input writes as the leader.

``python candidate.py ETCD NAME TTL_S``; answers ``leading``, ``written`` or the name of the error, a line each.
"""

import asyncio
import random
import sys

from seaweedmq.coordination.election import Election
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.session import Session
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.ports import Put


async def main(endpoint: str, name: str, ttl_s: float) -> None:
    rng = random.Random(name)
    store = EtcdMetaStore(endpoint, timeout_s=ttl_s / 4, rng=rng)
    session = Session(store, ttl_s, rng)
    await session.open(BrokerInfo(id=name, address=f"{name}:1", started_us=0, pid=1, version="0"))
    election = Election(store, session, name, rng)
    running = asyncio.create_task(election.run())
    await election.wait_leading()
    print("leading", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            await election.transact([], [Put("/written", name.encode())])
            print("written", flush=True)
        except SeaweedMQError as error:
            print(type(error).__name__, flush=True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await session.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
