"""Common state of the parts of ``store.ObjectSegmentStore``."""

import random
from collections.abc import Callable

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.codec.paths import DELETED_TOPICS, TOPIC_DOCUMENT, document_path, topic_dir
from seaweedmq.errors import SeaweedMQError, StorageFailed
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Objects
from seaweedmq.runtime.process.wall_clock import wall_us
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.object_store.catalog import Catalogs
from seaweedmq.storage.object_store.documents import StoredDocument, TopicDocuments
from seaweedmq.storage.object_store.root import VERIFY_INTERVAL_S, ObjectRoot


class ObjectStoreBase:
    """A prefix of an object store, the documents and the known files below it. Belongs to the event loop."""

    def __init__(
        self,
        objects: Objects,
        place: ObjectPlace,
        rng: random.Random,
        *,
        verify_interval_s: float = VERIFY_INTERVAL_S,
        clock_us: Callable[[], int] = wall_us,
    ) -> None:
        """Create a store, without a request.

        Args:
            objects: The objects below the prefix, of this event loop.
            place: The same prefix for threads.
            rng: Source of pauses between attempts.
            verify_interval_s: Seconds between two checks of the cluster's marker.
            clock_us: Clock that dates what this process creates, until a listing has the store's date.
        """
        self.objects = objects
        self.place = place
        self.root = ObjectRoot(objects, verify_interval_s=verify_interval_s)
        self.documents = TopicDocuments(objects, rng)
        self.catalogs = Catalogs()
        self.wall_us = clock_us

    @property
    def uri(self) -> str:
        """URI by which ``open_directory_store`` opens the same store."""
        return self.objects.uri

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster that the store is bound to."""
        return self.root.cluster_id

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on."""
        self.root.bind(cluster_id)

    async def deleted_uids(self) -> frozenset[int]:
        """Return the uids of recently deleted topics."""
        found = await self.objects.list_folder(DELETED_TOPICS)
        names = (state.key.rpartition("/")[2] for state in found.objects)
        return frozenset(int(name) for name in names if name.isascii() and name.isdecimal())

    async def keys_of(self, topic: TopicName, uid: int | None) -> list[TopicKey]:
        """Return where the objects of a topic lie; without ``uid`` and document, of all that are not deleted."""
        if uid is not None:
            return [TopicKey(topic, uid)]
        stored = await self.documents.stored_topic(topic)
        described = uid_of(stored)
        if described is not None:
            return [TopicKey(topic, described)]
        folders = (await self.objects.list_folder(topic_dir(topic))).folders
        names = [key.rpartition("/")[2] for key in folders]
        uids = {int(name) for name in names if name.isascii() and name.isdecimal() and name == str(int(name))}
        if stored is not None and stored.version is not None and stored.is_deleted:
            uids.discard(stored.version.uid)
        if uids:
            uids -= await self.deleted_uids()
        return [TopicKey(topic, each) for each in sorted(uids)]

    def missing_document(self, topic: TopicName) -> StorageFailed:
        """Return the error of a topic whose document is missing while its files are used."""
        document = f"{self.uri}/{document_path(topic, TOPIC_DOCUMENT)}"
        return StorageFailed(f"{document} is missing: the topic was deleted, or is being created")


def uid_of(stored: StoredDocument | None) -> int | None:
    """Return the uid of ``topic.json``; None without one, for a deleted topic, or if it is damaged."""
    if stored is None or stored.is_deleted:
        return None
    try:
        return stored.topic().uid
    except SeaweedMQError:
        return None
