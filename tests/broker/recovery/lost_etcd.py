"""A test bed whose etcd is lost, or restored from a backup, and then recovered from the storage."""

import random
from dataclasses import replace
from typing import Any

from seaweedmq.broker.recovery.cluster import recover_cluster
from seaweedmq.broker.recovery.plan import Plan
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_to_json
from seaweedmq.codec.state.documents import lineage_from_document
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Entry, MetaStore, Put, SegmentStore
from tests.broker.testbed import NAME, Host, Testbed
from tests.doubles.memory_meta import MemoryMetaServer
from tests.sim.machines.loop import Owner

STABLE = (keys.TOPICS, keys.SEGMENTS, keys.LOW_WATERMARKS, keys.GROUPS_ROOT, keys.KAFKA_ROOT)


def stored(testbed: Testbed) -> dict[str, bytes]:
    """Return the keys of etcd that concern topics, groups and Kafka's numbers, with their values."""
    return {e.key: e.value for e in testbed.etcd.server.list("/").entries if e.key.startswith(STABLE)}


def copied(testbed: Testbed) -> dict[str, Entry]:
    return {e.key: e for e in testbed.etcd.server.list("/").entries if not e.lease}


async def stop_all(testbed: Testbed, *, kill: bool = False) -> None:
    """Stop every broker, and raise the marker to etcd's revision as the last broker would have."""
    for host in testbed.hosts:
        if not host.lives:
            continue
        if kill:
            host.kill()
        else:
            await host.stop()


def lose_etcd(testbed: Testbed) -> None:
    testbed.etcd.server = testbed.etcd.run(MemoryMetaServer)


def restore_etcd(testbed: Testbed, backup: dict[str, Entry], revision: int) -> None:
    lose_etcd(testbed)
    server = testbed.etcd.server
    server.transact([], [Put(key, entry.value) for key, entry in backup.items()])
    assert server.revision <= revision
    while server.revision < revision:
        server.transact([], [Put("/restored", b"%d" % server.revision)])


async def recover(
    testbed: Testbed,
    *,
    apply: bool = True,
    meta: MetaStore | None = None,
    store: SegmentStore | None = None,
    **more: Any,
) -> Plan:
    return await recover_cluster(
        store or testbed.store,
        meta or testbed.etcd.client(Owner("recovery")),
        apply=apply,
        rng=random.Random(3),
        wall_us=testbed.wall_us,
        **more,
    )


async def until_documented(testbed: Testbed, host: Host, name: TopicName = NAME) -> None:

    def is_documented() -> bool:
        file = testbed.store.files.get(f"topics/{name}/lineage.json")
        known = {n: plain(s) for n, s in host.inspect.view.segments_of(name).items()}
        return file is not None and {s.id: s for s in lineage_from_document(bytes(file.data))[1]} == known

    await testbed.until(is_documented)


def plain(segment: Segment) -> Segment:
    return replace(segment, sequences=(), sequences_complete=False)


async def mark(testbed: Testbed) -> None:
    if await testbed.store.read_marker() is None:
        server = testbed.etcd.server
        made = await testbed.store.create_marker(
            StorageMarker(cluster_id="c1", format=STORAGE_FORMAT, generation=0, etcd_revision=server.revision)
        )
        server.transact([], [Put(keys.CLUSTER, identity_to_json(made.identity))])
    marker = await testbed.store.read_marker()
    assert marker is not None
    await testbed.store.replace_marker(replace(marker, etcd_revision=testbed.etcd.server.revision))
