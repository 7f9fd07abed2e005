"""Evidence of taken ids on a file system: files of segments, claims, records of deleted topics. Blocking."""

import contextlib
import os

from seaweedmq.codec import paths
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.faults import NO_SPACE

DELETED_TOPICS_MAX = 1_000
"""Limit of the records of deleted topics; late files of a topic deleted earlier must be moved away manually."""
DELETED_TOPICS_SPARE = 100
"""Records beyond the limit before the oldest are deleted, since the deletion reads the date of each."""


def used_segments(place: DirectoryPlace, topic: TopicName) -> frozenset[int]:
    """Return the ids of the segments that left any file in the topic's folder, from one listing of each folder."""
    own, tables = paths.topic_dir(topic), paths.table_dir(topic)
    found = set()
    for folder in (own, paths.logs_dir(topic), tables, f"{tables}/{paths.KEPT}", f"{own}/{paths.REMOVED}"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found |= {paths.parse_segment_path(topic, f"{folder}/{name}") for name in os.listdir(place.path(folder))}  # noqa: PTH208
    return frozenset(number for number in found if number is not None)


def create_claim(place: DirectoryPlace, kind: ClaimKind, number: int, content: bytes) -> None:
    """Create the claim of a number durably. Raises FileExistsError if the number is taken."""
    place.make_folder(paths.claims_dir(kind))
    place.create(paths.claim_path(kind, number), content)


def read_claims(place: DirectoryPlace, kind: ClaimKind) -> dict[int, bytes]:
    """Return the content of each claim, by number."""
    claims = {}
    with contextlib.suppress(FileNotFoundError):
        for path in place.path(paths.claims_dir(kind)).iterdir():
            number = paths.parse_claim_name(path.name)
            if number is not None:
                with contextlib.suppress(FileNotFoundError):
                    claims[number] = path.read_bytes()
    return claims


def record_deleted(place: DirectoryPlace, uid: int) -> None:
    """Record that a topic was deleted, if a full disk takes a name, and delete the oldest such records."""
    try:
        folder = place.make_folder(paths.DELETED_TOPICS)
        place.path(paths.deleted_topic_path(uid)).touch()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return
    records = list(folder.iterdir())
    if len(records) > DELETED_TOPICS_MAX + DELETED_TOPICS_SPARE:
        dated = []
        for path in records:
            with contextlib.suppress(FileNotFoundError):
                dated.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(dated)[:-DELETED_TOPICS_MAX]:
            path.unlink(missing_ok=True)


def deleted_topics(place: DirectoryPlace) -> frozenset[int]:
    """Return the uids of recently deleted topics."""
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(place.path(paths.DELETED_TOPICS))  # noqa: PTH208
        return frozenset(int(name) for name in names if name.isascii() and name.isdecimal())
    return frozenset()
