"""Metadata stores that tests can cut and stop, real etcd and the one in memory alike."""

import random
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import Unavailable
from seaweedmq.ports import Changes, Compare, Delete, Entry, MetaStore, Put, Snapshot
from tests.doubles.memory_meta import MemoryMetaServer, MemoryMetaStore

CALL_TIMEOUT_S = 0.5


class CuttableStore:
    """A MetaStore with a connection that tests can cut: every call and watch fails until it is repaired."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self.is_cut = False
        self.is_deaf = False
        """Whether watches drop all events."""

    def _check(self) -> None:
        if self.is_cut:
            raise Unavailable("the test cut the wire")

    async def get(self, key: str) -> Entry | None:
        self._check()
        return await self._store.get(key)

    async def list(self, prefix: str) -> Snapshot:
        self._check()
        return await self._store.list(prefix)

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        self._check()
        return await self._store.transact(compares, then)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        self._check()
        async for changes in self._store.watch(prefix, from_revision):
            self._check()
            if not self.is_deaf:
                yield changes

    async def grant_lease(self, ttl_s: float) -> int:
        self._check()
        return await self._store.grant_lease(ttl_s)

    async def renew_lease(self, lease: int) -> float:
        self._check()
        return await self._store.renew_lease(lease)

    async def revoke_lease(self, lease: int) -> None:
        self._check()
        await self._store.revoke_lease(lease)

    async def close(self) -> None:
        await self._store.close()


class Backend(Protocol):
    """A metadata server and its clients."""

    def client(self) -> CuttableStore: ...

    async def compact(self, revision: int) -> None: ...

    async def stop(self) -> None: ...

    async def start(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    async def close(self) -> None: ...


class MemoryBackend:
    """The simulated etcd."""

    def __init__(self) -> None:
        self._server = MemoryMetaServer()

    def client(self) -> CuttableStore:
        return CuttableStore(MemoryMetaStore(self._server, timeout_s=CALL_TIMEOUT_S))

    async def compact(self, revision: int) -> None:
        self._server.compact(revision)

    async def stop(self) -> None:
        self._server.stop()

    async def start(self) -> None:
        self._server.start()

    def freeze(self) -> None:
        self._server.freeze()

    def thaw(self) -> None:
        self._server.thaw()

    async def close(self) -> None:
        """Release all resources."""


class EtcdBackend:
    """A real etcd. ``stop`` is kill -9."""

    def __init__(self, etcd: LocalEtcd) -> None:
        self._etcd = etcd
        self._clients: list[CuttableStore] = []
        self._maintenance = EtcdMetaStore(etcd.endpoint, rng=random.Random(1))

    def client(self) -> CuttableStore:
        client = CuttableStore(EtcdMetaStore(self._etcd.endpoint, timeout_s=CALL_TIMEOUT_S, rng=random.Random(1)))
        self._clients.append(client)
        return client

    async def compact(self, revision: int) -> None:
        await self._maintenance.compact(revision)

    async def stop(self) -> None:
        await self._etcd.kill()

    async def start(self) -> None:
        await self._etcd.start()

    def freeze(self) -> None:
        self._etcd.freeze()

    def thaw(self) -> None:
        self._etcd.thaw()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self._maintenance.close()
