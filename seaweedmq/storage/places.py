"""Places by their URI."""

from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.objects.uri import is_objects_uri
from seaweedmq.storage.place import Place


def parse_place(uri: str) -> Place:
    """Return the place of a path, a ``file://`` URI, or that of an object store, without access to it.

    Raises:
        InvalidArgument: If the URI is of neither, or breaks a rule.
        Unsupported: If it is of an object store, and ``obstore`` is not installed.
    """
    return ObjectPlace.parse(uri) if is_objects_uri(uri) else DirectoryPlace.parse(uri)
