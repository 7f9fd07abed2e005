"""Listings of the log and table files of a mounted directory."""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Set
from pathlib import Path

from seaweedmq.codec.paths import (
    DELTA_LOG,
    FENCE_PREFIX,
    TOPICS,
    log_dir,
    logs_dir,
    parse_producers_document,
    parse_segment_file,
    table_dir,
    table_prefix,
    topic_dir,
)
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName

logger = logging.getLogger(__name__)

LOCK_NAME = ".converting"
"""Name of the lock file in the folder of a segment's logs during their conversion."""

SCANS_MAX = 5
"""Limit of the listings of a folder that changes continuously."""

_reported: set[str] = set()
_REPORTED_MAX = 10_000


def scan_segment(root: Path, topic: TopicName, segment: int) -> list[SegmentFile]:
    """List the log and table files of a segment, unordered.

    Logs are listed first, so that a log converted meanwhile appears as a table. Names that begin with a dot are
    temporary, and fences are markers: both are skipped. Other foreign names, and entries that are not plain files, are
    skipped and logged once.
    """
    return scan_logs(root, topic, segment) + scan_tables(root, topic, [segment])


def scan_topic(root: Path, topic: TopicName) -> list[SegmentFile]:
    """List the log and table files of all segments by the rules of ``scan_segment``; each folder is listed once."""
    logs = []
    with contextlib.suppress(FileNotFoundError), os.scandir(root / logs_dir(topic)) as folders:
        for folder in folders:
            logs += _scan(root, f"{logs_dir(topic)}/{folder.name}", None) if folder.is_dir() else []
    return logs + _scan_steady(root, table_dir(topic), None)


def scan_logs(root: Path, topic: TopicName, segment: int) -> list[SegmentFile]:
    """List the log files of a segment; none if it has no folder."""
    return _scan(root, log_dir(topic, segment), None)


def scan_tables(root: Path, topic: TopicName, segments: Iterable[int]) -> list[SegmentFile]:
    """List the tables of some segments; tables of other segments cost only their name."""
    return _scan_steady(root, table_dir(topic), {table_prefix(segment) for segment in segments})


def scan_topics(root: Path) -> list[TopicName]:
    """Return the topics that have a non-empty folder, ordered by name; deleted ones have hidden names."""
    found = []
    for namespace in scan_names(root / TOPICS):
        for name in scan_names(root / TOPICS / namespace):
            with contextlib.suppress(InvalidArgument):
                topic = TopicName(namespace, name)
                if scan_names(root / topic_dir(topic)):
                    found.append(topic)
    return sorted(found)


def scan_names(folder: Path, suffix: str = "") -> list[str]:
    """Return the sorted names in a folder that are not hidden and end with ``suffix``; none if it does not exist."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if not name.startswith(".") and name.endswith(suffix))


def _scan_steady(root: Path, directory: str, prefixes: Set[str] | None) -> list[SegmentFile]:
    """List files like ``_scan``, and repeat that if the folder changed meanwhile.

    A listing of many names takes several calls. If a merge replaces tables by another between two of them, the listing
    may show neither.
    """
    try:
        for _ in range(SCANS_MAX):
            before_ns = (root / directory).stat().st_mtime_ns
            files = _scan(root, directory, prefixes)
            if (root / directory).stat().st_mtime_ns == before_ns:
                return files
    except FileNotFoundError:
        return []
    return files


def has_topics(folder: Path) -> bool:
    """Whether the folder of all namespaces holds a non-empty folder of a topic."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as namespaces:
        for namespace in namespaces:
            if namespace.is_dir() and any(map(holds_something, _topic_folders(namespace.path))):
                return True
    return False


def _topic_folders(namespace: str) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [path for path in Path(namespace).iterdir() if not path.name.startswith(".") and path.is_dir()]
    return []


def holds_something(folder: Path) -> bool:
    """Whether the folder exists and is not empty."""
    with contextlib.suppress(FileNotFoundError):
        return next(folder.iterdir(), None) is not None
    return False


def sweep_pruned(root: Path, topic: TopicName, pruned: IdRanges) -> None:
    """Delete the log folders, the tables and the documents of pruned segments."""
    if not pruned:
        return
    with contextlib.suppress(FileNotFoundError), os.scandir(root / logs_dir(topic)) as folders:
        for folder in folders:
            if folder.name.isdecimal() and int(folder.name) in pruned and folder.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder.path)
    for document in scan_names(root / topic_dir(topic), ".json"):
        segment = parse_producers_document(document)
        if segment is not None and segment in pruned:
            (root / topic_dir(topic) / document).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError), os.scandir(root / table_dir(topic)) as entries:
        for entry in entries:
            name = parse_segment_file(f"{table_dir(topic)}/{entry.name}")
            if name is not None and name.segment in pruned:
                Path(entry.path).unlink(missing_ok=True)


def remove_log_folder(folder: Path) -> None:
    """Remove the folder of a segment's logs unless it holds a log or a fence.

    A lock does not keep the folder: its holder has no log left to convert.
    """
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK_NAME]:
            (folder / LOCK_NAME).unlink(missing_ok=True)
        folder.rmdir()


def _scan(root: Path, directory: str, prefixes: Set[str] | None) -> list[SegmentFile]:
    """List the segment files of ``root/directory`` whose name up to the first dash is one of the prefixes."""
    files = []
    try:
        entries = os.scandir(root / directory)
    except FileNotFoundError:
        return []
    with entries:
        for entry in entries:
            if entry.name.startswith((".", FENCE_PREFIX)) or entry.name == DELTA_LOG:
                continue
            if prefixes is not None and entry.name[0].isdigit() and _prefix(entry.name) not in prefixes:
                continue  # a file of another segment
            path = f"{directory}/{entry.name}"
            name = parse_segment_file(path)
            if name is None or not entry.is_file():
                _report_foreign(root / path)
                continue
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue  # deleted since the listing
            files.append(
                SegmentFile(
                    topic=name.topic,
                    segment=name.segment,
                    kind=FileKind(name.kind),
                    base_offset=name.base_offset,
                    end_offset=name.end_offset,
                    writer=name.writer,
                    size_bytes=stat.st_size,
                    path=path,
                    modified_us=stat.st_mtime_ns // 1_000,
                )
            )
    return files


def _prefix(name: str) -> str:
    return name[: name.find("-") + 1]


def _report_foreign(path: Path) -> None:
    if str(path) not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(str(path))
        logger.warning("foreign file ignored: %s is not a file of SeaweedMQ; move it away", path)
