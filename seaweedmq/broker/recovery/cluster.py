"""Recovery of a cluster's etcd: :func:`recover_cluster` plans it from the storage and writes the plan.

The order makes it safe to kill at any step. Every write except the last leaves the identity in etcd unchanged, so
brokers still find etcd lost or behind, and do not serve. The next attempt plans again from the storage and from the
keys already written, with the same result. The last write to etcd is the identity with the next generation: from then
on etcd is complete and ahead of the marker, and brokers may serve. The marker follows. If the recovery is killed
between the two, brokers update the marker. In the other order the marker could name a generation that no etcd has,
which would require a needless second recovery.

Only one recovery runs at a time, and no leader beside it: it holds the leader's lock, and every write compares it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seaweedmq.broker.recovery.application import Application
from seaweedmq.broker.recovery.groups import find_groups, living
from seaweedmq.broker.recovery.plan import EtcdCondition, Plan, PlannedTopic
from seaweedmq.broker.recovery.registrations import registrations, until_ended
from seaweedmq.broker.recovery.topics import FoundTopic, KnownTopic, find_topic
from seaweedmq.codec.state import keys, metadata
from seaweedmq.codec.state.cluster import identity_from_json
from seaweedmq.core.identity import EtcdState, Reject, StorageState, decide
from seaweedmq.core.lineage.reconstruction import Reconstructed
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.cluster import STORAGE_FORMAT, ClusterIdentity, StorageMarker
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import LowWatermarks, TopicName
from seaweedmq.ports import Delete, DirectoryStore, Entry, MetaStore, Put

log = logging.getLogger(__name__)

READ_AT_ONCE = 8
"""Number of topics read in parallel."""
CLUSTER_ID_BITS = 128


@dataclass(slots=True)
class _Found:
    """The content of etcd."""

    entries: dict[str, Entry]
    revision: int
    """The revision at which the leader last noted that the storage has seen this etcd: see ``broker.admission``."""
    identity: ClusterIdentity | None
    topics: dict[TopicName, KnownTopic] = field(default_factory=dict)
    deletions: dict[TopicName, int] = field(default_factory=dict)
    """The uids of the topics whose deletion is under way."""


async def _report_nothing(_: Plan) -> None:
    return


async def recover_cluster(
    store: DirectoryStore,
    meta: MetaStore,
    *,
    apply: bool,
    rng: random.Random,
    wall_us: Callable[[], int],
    planned: Callable[[Plan], Awaitable[None]] = _report_nothing,
    lease_ttl_s: float = BrokerConfig().lease_ttl_s,
) -> Plan:
    """Plan the recovery of etcd from the storage, and apply the plan if ``apply`` is set and it has no problems.

    A broker that has not noticed the loss of etcd acknowledges records until its lease, of up to ``lease_ttl_s``, has
    ended by its own clock. Nothing is sealed before that. ``planned`` gets the plan before anything is written.

    Raises:
        InvalidArgument: If the storage holds no cluster, or another one than etcd.
        Unavailable: If brokers stay registered, or etcd is unreachable.
        Conflict: If another recovery or a leader is active.
        StorageFailed: If the storage cannot be read.
        Corrupt, Unsupported: If the storage's marker or a journal is damaged, or of an unknown format.
    """
    marker = await store.read_marker()
    has_topics = await store.has_topics()
    if marker is None and not has_topics:
        raise InvalidArgument(
            f"storage {store.uri} has no cluster.json and no topics: name the storage of the cluster with --storage"
        )
    if marker is not None:
        store.bind(marker.cluster_id)
    new_id = marker.cluster_id if marker is not None else f"{rng.getrandbits(CLUSTER_ID_BITS):032x}"
    storage = StorageState(uri=store.uri, marker=marker, has_topics=has_topics)

    async def plan_now(*, fences: bool) -> Plan:
        found = await _find_etcd(meta)
        state = _state(found, storage, new_id)
        if state is EtcdCondition.IN_STEP:
            return Plan(state=state, cluster_id=new_id, generation=_generation(found))
        return await _plan(store, marker, found, state, new_id, apply=fences, now_us=wall_us())

    plan = await plan_now(fences=False)
    await planned(plan)
    if not apply or not plan.is_due or plan.problems:
        return plan
    await until_ended(meta, lease_ttl_s)
    await asyncio.sleep(lease_ttl_s)
    plan = await plan_now(fences=True)
    if plan.is_due and not plan.problems:
        # No broker serves now, and the etcd that recorded these unfinished deletions is lost.
        await store.sweep_deleted()
        await Application(store, meta, plan, rng).run(marker)
    return plan


async def is_recovery_due(store: DirectoryStore, meta: MetaStore) -> bool:
    """Whether etcd is lost or behind the storage. False for a cluster that does not exist yet.

    Raises InvalidArgument if they do not belong together, and StorageFailed or Unavailable if one cannot be read.
    """
    # Read twice: if brokers create their cluster between the two reads, the marker seems to be missing.
    for is_last in (False, True):
        marker = await store.read_marker()
        storage = StorageState(uri=store.uri, marker=marker, has_topics=await store.has_topics())
        try:
            if _state(await _find_etcd(meta), storage, "") is EtcdCondition.IN_STEP:
                return False
        except InvalidArgument:
            if is_last:
                raise
    return True


def _state(found: "_Found", storage: StorageState, new_id: str) -> EtcdCondition:
    """Return the condition of etcd by brokers' rule; raise InvalidArgument if it and storage do not belong together."""
    etcd = EtcdState(identity=found.identity, revision=found.revision, has_topics=bool(found.topics))
    decision = decide(etcd, storage, new_id=new_id)
    if not isinstance(decision, Reject):
        return EtcdCondition.IN_STEP
    marker = storage.marker
    if marker is not None and marker.format == STORAGE_FORMAT and found.identity is None and not found.topics:
        return EtcdCondition.LOST
    if marker is None and found.identity is None and not found.topics:
        return EtcdCondition.LOST
    if marker is not None and (found.identity is None or found.identity.cluster_id == marker.cluster_id):
        return EtcdCondition.BEHIND
    raise InvalidArgument(decision.reason)


async def _find_etcd(meta: MetaStore) -> _Found:
    snapshot = await meta.list(keys.ROOT)
    groups = await meta.list(keys.GROUPS_ROOT)
    kafka = await meta.list(keys.KAFKA_ROOT)
    entries = {e.key: e for s in (snapshot, groups, kafka) for e in s.entries}
    identity, seen = entries.get(keys.CLUSTER), entries.get(keys.CLUSTER_SEEN)
    is_current = identity is not None and seen is not None and seen.value == identity.value
    found = _Found(
        entries=entries,
        revision=seen.mod_revision if seen is not None and is_current else snapshot.revision,
        identity=None if identity is None else identity_from_json(identity.value),
    )
    for key, entry in entries.items():
        try:
            if key.startswith(keys.TOPICS):
                topic = metadata.topic_from_json(entry.value)
                found.topics[topic.name] = KnownTopic(topic=topic)
            elif key.startswith(keys.DELETIONS):
                deletion = metadata.deletion_from_json(entry.value)
                found.deletions[deletion.name] = deletion.uid
        except Corrupt as error:
            log.warning("etcd key ignored: %r is unreadable: %s", key, error)
    for name, known in found.topics.items():
        found.topics[name] = _with_segments(known, entries)
    return found


def _with_segments(known: KnownTopic, entries: Mapping[str, Entry]) -> KnownTopic:
    name = known.topic.name
    topic, segments = known.topic, []
    for key, entry in entries.items():
        try:
            if key.startswith(keys.segments_prefix(name)):
                segments.append(metadata.segment_from_json(entry.value))
            elif key == keys.low_watermarks_key(name):
                low = metadata.low_watermarks_from_json(entry.value)
                if low.uid == topic.uid:
                    topic = replace(topic, low_watermarks=low.offsets)
        except Corrupt as error:
            log.warning("etcd key ignored: %r is unreadable: %s", key, error)
    return KnownTopic(topic=topic, segments=tuple(segments))


async def _plan(
    store: DirectoryStore,
    marker: StorageMarker | None,
    found: _Found,
    state: EtcdCondition,
    new_id: str,
    *,
    apply: bool,
    now_us: int,
) -> Plan:
    groups = await find_groups(store)
    generation = 1 + max(0 if marker is None else marker.generation, groups.generation, _generation(found))
    names = await store.list_topics()
    limit = asyncio.Semaphore(READ_AT_ONCE)

    async def find(name: TopicName) -> FoundTopic:
        async with limit:
            return await find_topic(
                store, name, found.topics.get(name), generation=generation, apply=apply, now_us=now_us
            )

    topics = await asyncio.gather(*(find(name) for name in names))
    there = [t.reconstructed for t in topics if t.reconstructed is not None]
    there = [r for r in there if found.deletions.get(r.topic.name) != r.topic.uid]  # else its deletion continues
    uids = {r.topic.name: r.topic.uid for r in there}
    _check_related(store, marker, found, uids)
    values = groups.values
    notes = [note for t in topics for note in t.notes]
    if not groups.journal:
        values = {key: e.value for key, e in found.entries.items() if key.startswith(keys.GROUPS_ROOT)}
        notes.append("storage has no journal of native groups: groups stay as they are in etcd")
    kept, unreadable = living(values, uids)
    wanted = _wanted(there) | kept
    planned = _changes(found, wanted, uids)
    touched = {change.key for change in planned}
    return Plan(
        state=state,
        cluster_id=new_id,
        generation=generation,
        topics=tuple(
            PlannedTopic(
                topic=r.topic,
                segments=r.segments,
                opened=r.opened,
                is_changed=any(key in touched for key in _wanted([r])),
            )
            for r in there
        ),
        removed=tuple(sorted(found.topics.keys() - uids.keys())),
        groups=tuple(keys.parse_group_key(key) for key in sorted(kept) if key.startswith(keys.GROUPS)),
        journal=groups.journal,
        changes=tuple(planned),
        problems=tuple(problem for t in topics for problem in t.problems),
        notes=(*notes, *unreadable),
        brokers=tuple(registrations(found.entries.values())),
    )


def _check_related(
    store: DirectoryStore, marker: StorageMarker | None, found: _Found, uids: Mapping[TopicName, int]
) -> None:
    """Raise InvalidArgument for an etcd without identity all of whose topics the recovery would remove."""
    if found.identity is not None or not found.topics:
        return
    if not any(uids.get(name) == known.topic.uid for name, known in found.topics.items()):
        raise InvalidArgument(
            f"etcd has {len(found.topics)} topics, none of which is in storage {store.uri}: it belongs to another "
            "cluster: name the etcd of this one, or an empty one"
        )


def _generation(found: _Found) -> int:
    return 0 if found.identity is None else found.identity.generation


def _wanted(topics: Sequence[Reconstructed]) -> dict[str, bytes]:
    """Return the keys of topics with their values, each topic before its segments, which need it."""
    wanted: dict[str, bytes] = {}
    for reconstructed in topics:
        topic = reconstructed.topic
        wanted[keys.topic_key(topic.name)] = metadata.topic_to_json(topic)
        if topic.low_watermarks:
            marks = LowWatermarks(name=topic.name, uid=topic.uid, offsets=topic.low_watermarks)
            wanted[keys.low_watermarks_key(topic.name)] = metadata.low_watermarks_to_json(marks)
        for segment in reconstructed.segments:
            wanted[keys.segment_key(topic.name, segment.id)] = metadata.segment_to_json(segment)
    return wanted


def _changes(found: _Found, wanted: Mapping[str, bytes], uids: Mapping[TopicName, int]) -> list[Put | Delete]:
    """Return deletions of the keys without a counterpart in the storage, then puts."""
    owned = (keys.TOPICS, keys.SEGMENTS, keys.LOW_WATERMARKS, keys.GROUPS_ROOT)
    gone = [key for key in found.entries if key.startswith(owned) and key not in wanted]
    gone += [keys.deletion_key(name) for name in found.deletions if name in uids]
    puts = [
        Put(key, value)
        for key, value in wanted.items()
        if key not in found.entries or found.entries[key].value != value
    ]
    # Groups last: a group exists once its own key does.
    puts.sort(key=lambda put: put.key.startswith(keys.GROUPS))
    return [*(Delete(key) for key in sorted(gone)), *puts]
