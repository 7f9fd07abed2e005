"""Upkeep of the storage's marker: the newest revision of etcd that the storage has seen.

The marker identifies an etcd that was restored from an older backup. Within ``KEEP_INTERVAL_S`` of a change the leader
writes the key ``cluster-seen``, then that key's revision into the marker. The current revision of etcd does not
suffice: leases that end after a restore raise it. A leader deposed during its write may set the marker back; the
present leader raises it in its next round. A restore may hide the changes of those seconds.
"""

import asyncio
import logging
import math
from dataclasses import replace

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_to_json
from seaweedmq.errors import Conflict, SeaweedMQError, StorageFailed
from seaweedmq.model.cluster import ClusterIdentity
from seaweedmq.ports import Compare, Put, SegmentStore
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

KEEP_INTERVAL_S = 2.0
KEEP_INTERVAL_S_MAX = 60.0
"""Longest pause between rounds while topics and segments are unchanged: groups and Kafka ids also advance etcd."""


class MarkerKeeper:
    """The leader's duty to keep the marker current."""

    def __init__(self, metadata: Metadata, store: SegmentStore) -> None:
        self._metadata = metadata
        self._store = store
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Raise the marker whenever etcd has advanced, until cancelled."""
        loop = asyncio.get_running_loop()
        view = self._metadata.view
        kept, kept_at_s = 0, -math.inf
        # The first round precedes the changes of a new leader: the last one may be long ago.
        await view.wait_revision(self._metadata.election.revision or 0)
        while True:
            is_due = view.revision > kept or loop.time() - kept_at_s > KEEP_INTERVAL_S_MAX
            if self._metadata.leading and view.cluster is not None and is_due:
                try:
                    kept = await self._keep(view.cluster)
                    kept_at_s = loop.time()
                except SeaweedMQError as error:
                    self._failures_log.add("storage marker", error)
                else:
                    self._failures_log.over("storage marker")
            await asyncio.sleep(KEEP_INTERVAL_S)

    async def _keep(self, identity: ClusterIdentity) -> int:
        """Record in etcd and storage that they have seen each other; return the revision of that record in etcd."""
        marker = await self._store.read_marker()
        if marker is None:
            raise StorageFailed(f"storage {self._store.uri} has no marker: mount the storage")
        unchanged = Compare(keys.CLUSTER, mod_revision=self._metadata.view.cluster_revision)
        revision = await self._metadata.transact([unchanged], [Put(keys.CLUSTER_SEEN, identity_to_json(identity))])
        if revision is None:
            raise Conflict("the identity of the cluster changed in etcd: retry")
        if marker.position < (identity.generation, revision):
            raised = replace(marker, generation=identity.generation, etcd_revision=revision)
            await self._store.replace_marker(raised)
        return revision
