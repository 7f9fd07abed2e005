"""Registrations of brokers in the etcd that a recovery rewrites.

A restored etcd has the registrations of its backup until their leases end. A broker that finds etcd lost or restored
returns its registration, and refuses to serve. So a registration that stays is that of a broker that may serve, such as
one of a build that compares etcd and storage nowhere: its writes and those of the recovery would mix.
"""

import asyncio
from collections.abc import Iterable

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_from_json
from seaweedmq.coordination.waiting import until_deleted
from seaweedmq.errors import Corrupt, OutOfRange, Unavailable
from seaweedmq.ports import Entry, MetaStore

LATE_S = 5.0
"""Time by which etcd may end a lease late."""
NAMED_MAX = 5
"""Registrations that an error names."""


def registrations(entries: Iterable[Entry]) -> list[str]:
    """Return the brokers that are registered under a lease, ``id at host:port``, by id."""
    return [_name(entry) for entry in sorted(entries, key=lambda e: e.key) if _is_registration(entry)]


async def until_ended(meta: MetaStore, lease_ttl_s: float) -> None:
    """Return once no broker is registered; leases that nothing renews end within ``lease_ttl_s``.

    Raises:
        Unavailable: If brokers stay registered, or etcd is unreachable.
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
            "(those that refuse to serve return their registrations by themselves), and run the recovery again"
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
