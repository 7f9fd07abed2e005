"""The second name of a table, by which readers that have begun with it find it when it does not count any more.

It is a hard link, made before the first name, so that whoever sees a table can rely on it. Deleting a table takes the
first name; the second one follows when its time is up. Where there are no links a table has one name, and a query that
begins with it may end with an error.
"""

import contextlib
import logging
from pathlib import Path

from seaweedmq.codec.paths import KEPT, kept_path, parse_segment_file, table_dir
from seaweedmq.errors import NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store import file_io

logger = logging.getLogger(__name__)

_told: set[Path] = set()
_TOLD_MAX = 100


def retain(root: Path, temporary: Path, table: str) -> bool:
    """Give a complete file the second name of ``table``, a path below ``root``, durably. One that is there already was
    left by somebody who was killed before the first name came, or is of a table that was deleted: it is replaced.
    False: there are no links here."""
    kept = root / kept_path(table)
    folder = kept.parent
    folder.mkdir(exist_ok=True)  # and not what is above it: that would bring back a topic that is deleted just now
    try:
        try:
            kept.hardlink_to(temporary)
        except FileExistsError:
            with file_io.written_aside(folder) as link:
                link.hardlink_to(temporary)
                link.replace(kept)
    except OSError as e:
        if e.errno not in file_io.NO_LINKS:
            raise
        if root not in _told and len(_told) < _TOLD_MAX:
            _told.add(root)
            logger.warning(
                "%s has no hard links (%s): tables that are replaced or expire are gone at once, also for queries that "
                "have begun with them and must be started again",
                root,
                e.strerror,
            )
        return False
    file_io.sync_directory(folder)
    return True


def retain_table(root: Path, table: str) -> bool:
    """Give a table that is there its second name, if it has none. False: there are no links here.

    Raises:
        NotFound: it is gone.
    """
    if (root / kept_path(table)).exists():
        return True
    try:
        return retain(root, root / table, table)
    except FileNotFoundError:
        raise NotFound(f"{table} is gone") from None


def sweep_retained(root: Path, topic: TopicName, kept_s: float, now_us: int | None = None) -> None:
    """Remove second names of tables whose first one went ``kept_s`` ago, or never came, as when the process that made
    them was killed in between. The inode, which changes with its names, is dated by the clock of the storage.

    Args:
        now_us: as ``SegmentStore.sweep``.
    """
    folder = root / table_dir(topic) / KEPT
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
