"""Listing one folder of log or table files."""

import logging
import os
from pathlib import Path

from seaweedmq.codec.paths import parse_segment_file
from seaweedmq.ports import FileKind, SegmentFile

logger = logging.getLogger(__name__)

_reported: set[str] = set()
_REPORTED_MAX = 10_000


def scan_directory(root: Path, directory: str) -> list[SegmentFile]:
    """The files of ``root/directory`` that are ours, in no order; empty if there is no such folder.

    Names that begin with a dot are being written. Other foreign names are reported once and left alone, and so is
    what is not a plain file.
    """
    files = []
    try:
        entries = os.scandir(root / directory)
    except FileNotFoundError:
        return []
    with entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
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


def _report_foreign(path: Path) -> None:
    if str(path) not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(str(path))
        logger.warning("%s is not a file of SeaweedMQ: left alone; move it away", path)
