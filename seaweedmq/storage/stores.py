"""Stores by the URI of their storage."""

import random

from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri, is_objects_uri
from seaweedmq.storage.store.files import FileSegmentStore, open_directory_store


def open_store(uri: str, rng: random.Random) -> FileSegmentStore | ObjectSegmentStore:
    """Return the store at a path, a ``file://`` URI or an object store, without access to it.

    ``check()`` tests whether it is usable.

    Args:
        uri: Location of the storage.
        rng: Source of pauses between requests to an object store.

    Raises:
        InvalidArgument: If the URI is of neither, or breaks a rule.
        Unsupported: If it is of an object store, and ``obstore`` is not installed.
    """
    if not is_objects_uri(uri):
        return open_directory_store(uri)
    return ObjectSegmentStore(ObstoreObjects(ObjectsUri.parse(uri), rng=rng), ObjectPlace.parse(uri), rng)
