"""The Delta log of a topic on a place."""

import shutil
from contextlib import AbstractContextManager

from seaweedmq.codec.paths import delta_log_dir, table_dir
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.delta.directory_log import DirectoryLog
from seaweedmq.storage.tables.delta.log_folder import LogFolder

ASIDE_PREFIX = ".delta_log-aside-"
ASIDE_MAX = 3


def open_log(place: Place, topic: TopicName) -> AbstractContextManager[LogFolder]:
    """Open a topic's log for the length of a block; raises FileNotFoundError if there is no log, or no topic."""
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    return DirectoryLog.opened(place.path(delta_log_dir(topic)))


def move_aside(place: Place, topic: TopicName, now_us: int) -> None:
    """Move a topic's log aside, even a damaged one, and delete all but the last three that were moved."""
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    log, folder = place.path(delta_log_dir(topic)), place.path(table_dir(topic))
    if log.exists():
        log.rename(folder / f"{ASIDE_PREFIX}{now_us * 1_000:020d}")
    for old in sorted(folder.glob(f"{ASIDE_PREFIX}*"))[:-ASIDE_MAX]:
        shutil.rmtree(old)
