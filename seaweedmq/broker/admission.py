"""Admission of a broker to its cluster: a broker serves nothing before etcd and storage prove to belong together.

Nor does it serve before the storage takes a file. A full storage is admitted: the broker serves what is there, and its
retention makes room.

``core.identity`` decides. A rejected broker answers every call with the reason and its remedy, and reports NOT_SERVING.
It decides again until an operator has removed the cause; its process never ends for that. The mirror of the metadata
checks each listing before it applies it. So an etcd that is lost or restored while the broker runs halts it likewise.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from seaweedmq.broker.readiness import Readiness
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_from_json, identity_to_json
from seaweedmq.core.identity import Create, Decision, EtcdState, Join, Reject, StorageState, decide
from seaweedmq.errors import Corrupt, SeaweedMQError, StorageFailed, StorageFull, Unavailable, Unsupported
from seaweedmq.model.cluster import ClusterIdentity
from seaweedmq.ports import Compare, MetaStore, Put, SegmentStore, Snapshot
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

RETRY_S_FIRST, RETRY_S_MAX = 0.2, 5.0
CLUSTER = "cluster"
"""Cause: etcd and storage do not belong together, or are not of the same time."""
STORAGE = "storage"
"""Cause: the root of the storage has lost its marker since the broker was admitted."""
ROOT_CHECK_S = 1.0
CREATE_ATTEMPTS_MAX = 5
CLUSTER_ID_BITS = 64


class NotAdmitted(Unavailable):
    """The error of a broker that may not serve its cluster.

    Its etcd and storage do not belong together, etcd has to be recovered, or the storage cannot be written. The message
    has the remedy; the broker resumes by itself.
    """


class Admission:
    """The admission check of one broker. Its rejection is the cause ``cluster`` of the broker's readiness."""

    def __init__(
        self,
        *,
        meta: MetaStore,
        store: SegmentStore,
        rng: random.Random,
        address: str,
        readiness: Readiness,
        halted: Callable[[], None],
    ) -> None:
        """Create the check; ``halted`` is called when an admitted broker is rejected."""
        self._readiness = readiness
        self._meta = meta
        self._store = store
        self._rng = rng
        self._address = address
        self._halted = halted
        self._identity: ClusterIdentity | None = None
        self._mirrored = -1
        """Generation of the last listing that was recognized."""

    def check(self) -> None:
        """Raise NotAdmitted with the reason, if the broker is rejected or not admitted yet.

        The view is empty before the admission: calls answered from it would report that there are no topics.
        """
        if self._rejection:
            raise NotAdmitted(f"broker {self._address} does not serve: {self._rejection}")
        if self._identity is None:
            raise NotAdmitted(f"broker {self._address} is starting: retry")

    async def admit(self) -> ClusterIdentity:
        """Bind the storage to its cluster, if etcd and storage belong together; return the joined cluster's identity.

        Raises NotAdmitted if they do not, and StorageFailed or Unavailable if one of them cannot be read.
        """
        for _ in range(CREATE_ATTEMPTS_MAX):
            decision = await self._decide()
            match decision:
                case Join(identity):
                    await self._join(identity)
                    return identity
                case Reject(reason):
                    self._reject(reason)
                    self.check()
                case Create():
                    await self._create(decision)
        raise Unavailable("the identity of the cluster keeps changing: retry")

    async def admit_first(self) -> None:
        """Admit the broker at its start: wait for etcd, and for an operator to remove the cause of a rejection.

        Raises StorageFailed if storage cannot be read, or takes no marker, and the broker was not rejected before.
        """
        await retrying(backoff(self._rng, RETRY_S_FIRST, RETRY_S_MAX), on=self._may_heal)(self.admit)

    async def watch_root(self) -> None:
        """Keep the cause ``storage`` of the readiness current, until cancelled."""
        while True:
            try:
                await self._store.verify_root()
            except StorageFailed as error:
                self._readiness.reject(STORAGE, str(error))
            else:
                self._readiness.allow(STORAGE)
            await asyncio.sleep(ROOT_CHECK_S)

    def recognizes(self, snapshot: Snapshot, revision: int, seen: int) -> bool:
        """Return whether a listing is of this cluster and not older than the mirror; else halt the broker.

        ``seen`` is the mirror's modification revision of ``keys.CLUSTER_SEEN``: unlike ``revision``, it does not rise
        when leases end after a restore.
        """
        mine = self._identity
        if mine is None:
            return False
        try:
            found, now_seen = _identity_in(snapshot)
        except (Corrupt, Unsupported) as error:
            self._halt(str(error))
            return False
        if found is None or found.cluster_id != mine.cluster_id:
            has = "no cluster" if found is None else f"cluster {found.cluster_id}"
            self._halt(f"etcd holds {has}, and this broker serves cluster {mine.cluster_id}")
            return False
        is_older = snapshot.revision < revision or now_seen < seen
        if (found.generation == self._mirrored and is_older) or found.generation < mine.generation:
            self._halt(f"etcd went back behind revision {seen or revision}: it was restored from a backup")
            return False
        self._mirrored = found.generation
        return True

    @property
    def _rejection(self) -> str:
        return self._readiness.reasons.get(CLUSTER, "")

    def _may_heal(self, error: BaseException) -> bool:
        return isinstance(error, SeaweedMQError) and (bool(self._rejection) or not isinstance(error, StorageFailed))

    async def _decide(self) -> Decision:
        """Read etcd between two reads of the marker, and decide.

        The leader raises etcd before the marker, so an etcd that is read after the marker is never behind it. A marker
        is created before the key, so one that is read after etcd exists if the key does.
        """
        try:
            marker = await self._store.read_marker()
            found = await self._meta.list(keys.CLUSTER)
            identity, seen = _identity_in(found)
            if marker is None:
                marker = await self._store.read_marker()
        except (Corrupt, Unsupported) as error:
            return Reject(str(error))
        has_topics = identity is None and bool((await self._meta.list(keys.TOPICS)).entries)
        stores_topics = (marker is None or identity is None) and await self._store.has_topics()
        decision = decide(
            EtcdState(identity=identity, revision=seen or found.revision, has_topics=has_topics),
            StorageState(uri=self._store.uri, marker=marker, has_topics=stores_topics),
            new_id=f"c-{self._rng.getrandbits(CLUSTER_ID_BITS):016x}",
        )
        known = self._identity
        if isinstance(decision, Join) and known is not None and decision.identity.cluster_id != known.cluster_id:
            return Reject(
                f"etcd and storage now belong to cluster {decision.identity.cluster_id}, and this broker to "
                f"{known.cluster_id}: restore both, or restart the broker"
            )
        return decision

    async def _join(self, identity: ClusterIdentity) -> None:
        is_new = self._identity is None
        self._store.bind(identity.cluster_id)
        if is_new:
            await self._check_storage()
        self._identity = identity
        if is_new:
            log.info("cluster joined: %s, generation %d", identity.cluster_id, identity.generation)
        elif self._rejection:
            log.info("cluster joined again: %s, generation %d", identity.cluster_id, identity.generation)
        self._readiness.allow(CLUSTER)

    async def _check_storage(self) -> None:
        """Reject the broker while the storage takes no file for any reason but lack of space.

        A machine that boots may mount it for writing later. A broker that already serves is not checked again.
        """
        try:
            await self._store.check()
        except StorageFull as error:
            log.error("storage full: reads and retention continue, publishers wait: %s", error)
        except StorageFailed as error:
            self._reject(str(error))
            self.check()

    async def _create(self, decision: Create) -> None:
        cluster_id, generation = decision.cluster_id, decision.generation
        if decision.marker is not None:
            marker = await self._store.create_marker(decision.marker)
            cluster_id, generation = marker.cluster_id, marker.generation
        identity = ClusterIdentity(cluster_id=cluster_id, generation=generation)
        absent = Compare(keys.CLUSTER, create_revision=0)
        await self._meta.transact([absent], [Put(keys.CLUSTER, identity_to_json(identity))])
        log.info("cluster created: %s", cluster_id)

    def _reject(self, reason: str) -> None:
        if reason != self._rejection:
            log.error("broker rejected: %s: %s; retrying", self._address, reason)
        self._readiness.reject(CLUSTER, reason)

    def _halt(self, reason: str) -> None:
        """Stop serving; the next :meth:`admit` finds the remedy."""
        if not self._rejection:
            self._reject(reason)
            self._halted()


def _identity_in(snapshot: Snapshot) -> tuple[ClusterIdentity | None, int]:
    """Return the identity among the entries, or None, and the revision at which the storage last saw this etcd.

    The revision is 0 if the storage did not see etcd in this generation. Raises Corrupt or Unsupported.
    """
    entries = {entry.key: entry for entry in snapshot.entries if entry.key in (keys.CLUSTER, keys.CLUSTER_SEEN)}
    found, seen = entries.get(keys.CLUSTER), entries.get(keys.CLUSTER_SEEN)
    if found is None:
        return None, 0
    is_current = seen is not None and seen.value == found.value
    return identity_from_json(found.value), seen.mod_revision if seen is not None and is_current else 0
