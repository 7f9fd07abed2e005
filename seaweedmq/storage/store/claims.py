"""Evidence of taken ids on a file system: files of segments, claims, records of deleted topics. Blocking."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from seaweedmq.codec.paths import (
    DELETED_TOPICS,
    KEPT,
    REMOVED,
    claim_path,
    claims_dir,
    deleted_topic_path,
    logs_dir,
    parse_claim_name,
    parse_segment_path,
    table_dir,
    topic_dir,
)
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store import file_io
from seaweedmq.storage.store.faults import NO_SPACE

DELETED_TOPICS_MAX = 1_000
"""Limit of the records of deleted topics; late files of a topic deleted earlier must be moved away manually."""
DELETED_TOPICS_SPARE = 100
"""Records beyond the limit before the oldest are deleted, since the deletion reads the date of each."""


def used_segments(root: Path, topic: TopicName) -> frozenset[int]:
    """Return the ids of the segments that left any file in the topic's folder, from one listing of each folder.

    Raises:
        OSError: If a folder is unreadable.
    """
    folders = (topic_dir(topic), logs_dir(topic), table_dir(topic), f"{table_dir(topic)}/{KEPT}")
    found = set()
    for folder in (*folders, f"{topic_dir(topic)}/{REMOVED}"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found |= {parse_segment_path(topic, f"{folder}/{name}") for name in os.listdir(root / folder)}  # noqa: PTH208
    return frozenset(number for number in found if number is not None)


def create_claim(root: Path, kind: ClaimKind, number: int, content: bytes) -> None:
    """Create the claim of a number durably.

    Raises:
        FileExistsError: If the number is taken.
        OSError: If the file system reports an error.
    """
    file_io.make_directories(root, claims_dir(kind))
    file_io.create_whole(root, root / claim_path(kind, number), content)


def read_claims(root: Path, kind: ClaimKind) -> dict[int, bytes]:
    """Return the content of each claim, by number.

    Raises:
        OSError: If the folder or a claim is unreadable.
    """
    claims = {}
    with contextlib.suppress(FileNotFoundError):
        for path in (root / claims_dir(kind)).iterdir():
            number = parse_claim_name(path.name)
            if number is not None:
                with contextlib.suppress(FileNotFoundError):
                    claims[number] = path.read_bytes()
    return claims


def delete_claims(root: Path, kind: ClaimKind, numbers: Collection[int]) -> None:
    """Delete claims.

    Raises:
        OSError: If the file system reports an error.
    """
    for number in numbers:
        (root / claim_path(kind, number)).unlink(missing_ok=True)


def record_deleted(root: Path, uid: int) -> None:
    """Record that a topic was deleted, and delete the oldest such records.

    On a full disk it records nothing, since the deletion itself frees space.

    Raises:
        OSError: If the file system reports another error.
    """
    try:
        folder = file_io.make_directories(root, DELETED_TOPICS)
        (root / deleted_topic_path(uid)).touch()
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


def deleted_topics(root: Path) -> frozenset[int]:
    """Return the uids of recently deleted topics.

    Raises:
        OSError: If the folder is unreadable.
    """
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(root / DELETED_TOPICS)  # noqa: PTH208
        return frozenset(int(name) for name in names if name.isascii() and name.isdecimal())
    return frozenset()
