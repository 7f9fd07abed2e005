"""The Delta log of a topic on a place."""

import shutil
from contextlib import AbstractContextManager, nullcontext

from seaweedmq.codec.paths import delta_log_dir, table_dir
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.delta.directory_log import DirectoryLog
from seaweedmq.storage.tables.delta.log_folder import LogFolder
from seaweedmq.storage.tables.delta.log_state import read_state
from seaweedmq.storage.tables.delta.object_log import ObjectLog

ASIDE_PREFIX = ".delta_log-aside-"
ASIDE_MAX = 3
LISTINGS_MAX = 3
"""Limit of the listings of a log that is set aside."""


def open_log(place: Place, topic: TopicName) -> AbstractContextManager[LogFolder]:
    """Open a topic's log for the length of a block; raises FileNotFoundError if there is no log, or no topic."""
    if isinstance(place, ObjectPlace):
        place.uri(delta_log_dir(topic))  # raises if there is no topic
        return nullcontext(ObjectLog(place, delta_log_dir(topic)))
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    return DirectoryLog.opened(place.path(delta_log_dir(topic)))


def move_aside(place: Place, topic: TopicName, now_us: int) -> None:
    """Move a topic's log aside, even a damaged one, and delete all but the last three that were moved.

    An object store cannot move a folder at once: there a readable log stays, since the next version corrects it, and a
    damaged one is copied below ``.damaged`` and deleted, oldest version last.
    """
    if isinstance(place, ObjectPlace):
        _set_damaged_aside(place, topic)
        return
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    log, folder = place.path(delta_log_dir(topic)), place.path(table_dir(topic))
    if log.exists():
        log.rename(folder / f"{ASIDE_PREFIX}{now_us * 1_000:020d}")
    for old in sorted(folder.glob(f"{ASIDE_PREFIX}*"))[:-ASIDE_MAX]:
        shutil.rmtree(old)


def _set_damaged_aside(place: ObjectPlace, topic: TopicName) -> None:
    folder = delta_log_dir(topic)
    with open_log(place, topic) as log:
        try:
            read_state(log, log.listing())
        except (Corrupt, Unsupported):
            for _ in range(LISTINGS_MAX):  # other processes may add versions meanwhile
                for name in reversed(place.names(folder)):
                    place.set_aside(f"{folder}/{name}")
