"""Registrations of brokers in the etcd that a recovery rewrites.

A restored etcd has the registrations of its backup until their leases end. A broker that finds etcd lost or restored
removes its registration and does not serve. A registration that remains therefore belongs to a broker that may serve,
for example one of a build that never compares etcd and storage. Its writes would mix with those of the recovery.
"""

import asyncio
from collections.abc import Iterable

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_from_json
from seaweedmq.coordination.waiting import until_deleted
from seaweedmq.errors import Corrupt, OutOfRange, Unavailable
from seaweedmq.ports import Entry, MetaStore

LATE_S = 5.0
"""Time in seconds by which etcd may end a lease late."""
NAMED_MAX = 5
"""Most registrations named in an error."""


def registrations(entries: Iterable[Entry]) -> list[str]:
    """Return the brokers registered under a lease, as ``id at host:port``, ordered by id."""
    return [_name(entry) for entry in sorted(entries, key=lambda e: e.key) if _is_registration(entry)]


async def until_ended(meta: MetaStore, lease_ttl_s: float) -> None:
    """Wait until no broker is registered. Leases that are not renewed end within ``lease_ttl_s`` seconds.

    Raises Unavailable if brokers stay registered, or etcd is unreachable.
    """
    try:
        async with asyncio.timeout(lease_ttl_s + LATE_S):
            while (first := next(iter(await _registered(meta)), None)) is not None:
                try:
                    await until_deleted(meta, first.key, first.mod_revision)
                except OutOfRange:
                    continue  # etcd was compacted meanwhile: list again
    except TimeoutError:
        names = registrations(await _registered(meta))
        if not names:
            return
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        raise Unavailable(
            f"brokers are registered in this etcd: {', '.join(names[:NAMED_MAX])}{more}; stop all brokers that serve "
            "(those that do not serve remove their registrations by themselves), and retry the recovery"
        ) from None


async def _registered(meta: MetaStore) -> list[Entry]:
    return [entry for entry in (await meta.list(keys.BROKERS)).entries if _is_registration(entry)]


def _is_registration(entry: Entry) -> bool:
    return entry.key.startswith(keys.BROKERS) and bool(entry.lease)


def _name(entry: Entry) -> str:
    broker_id = entry.key.removeprefix(keys.BROKERS)
    try:
        return f"{broker_id} at {broker_from_json(entry.value).address}"
    except Corrupt:
        return broker_id
