"""Places by their URI."""

from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place


def parse_place(uri: str) -> Place:
    """Return the place of a path or ``file://`` URI, without access to it; raises InvalidArgument for others."""
    return DirectoryPlace.parse(uri)
