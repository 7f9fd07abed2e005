"""Retained links of tables, by which running queries find tables that are superseded or expired.

A retained link is a hard link in ``.kept``. It is created before the table's name, so that readers of the table can
rely on it. Deleting a table removes its name; a sweep removes the link some time later. On a file system without hard
links there is no retained link, and a query that has begun with the table may fail.
"""

import contextlib
import logging
from pathlib import Path

from seaweedmq.codec.paths import KEPT, kept_path, parse_segment_file, table_dir
from seaweedmq.errors import NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place

logger = logging.getLogger(__name__)

_warned: set[DirectoryPlace] = set()
_WARNED_MAX = 100


def retain(place: DirectoryPlace, temporary: Path, table: str) -> bool:
    """Create or replace the retained link of a complete file, durably; return False if hard links are unsupported."""
    kept = place.path(kept_path(table))
    folder = kept.parent
    folder.mkdir(exist_ok=True)  # not its parents: that would recreate the folder of a topic that is being deleted
    try:
        try:
            kept.hardlink_to(temporary)
        except FileExistsError:
            with file_io.temporary_file(folder) as link:
                link.hardlink_to(temporary)
                link.replace(kept)
    except OSError as e:
        if e.errno not in file_io.NO_LINKS:
            raise
        if place not in _warned and len(_warned) < _WARNED_MAX:
            _warned.add(place)
            logger.warning(
                "hard links unsupported: %s: %s; running queries fail if their tables are replaced or expire, "
                "restart them",
                place,
                e.strerror,
            )
        return False
    file_io.sync_directory(folder)
    return True


def retain_table(place: Place, table: str) -> bool:
    """Create the retained link of an existing table unless it has one; return False if hard links are unsupported.

    An object store has none: there the table itself stays until it is swept.
    """
    if not isinstance(place, DirectoryPlace):
        return False
    if place.path(kept_path(table)).exists():
        return True
    try:
        return retain(place, place.path(table), table)
    except FileNotFoundError:
        raise NotFound(f"{table} was deleted") from None


def sweep_retained(place: DirectoryPlace, topic: TopicName, kept_s: float, now_us: int | None = None) -> None:
    """Remove retained links of tables that were deleted ``kept_s`` ago.

    A table that was never named, since its process was killed, counts from the creation of its link.

    The storage's clock dates the inode, whose change time changes with its names. ``now_us`` is an upper bound of the
    current time, as in ``SegmentStore.sweep``; None: the storage's clock.
    """
    folder = place.path(f"{table_dir(topic)}/{KEPT}")
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return
    first = {path.name for path in folder.parent.iterdir()}
    alone = [name for name in names if name not in first and _is_ours(topic, name)]
    if not alone:
        return
    now_s = file_io.clock_s(folder)
    if now_us is not None:
        now_s = min(now_s, now_us / US_PER_S)
    for name in alone:
        with contextlib.suppress(FileNotFoundError):
            if now_s - (folder / name).lstat().st_ctime >= kept_s:
                (folder / name).unlink()


def _is_ours(topic: TopicName, name: str) -> bool:
    return name.startswith(file_io.TEMPORARY_PREFIX) or parse_segment_file(f"{table_dir(topic)}/{name}") is not None
