"""Versions of a topic's Delta log, and the tables of each. Blocking."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seaweedmq.codec.paths import delta_log_dir, parse_segment_file, table_dir
from seaweedmq.codec.tables.delta import Commit
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, OutOfRange, Unsupported
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.tables.delta.log_folder import Listing, LogFolder
from seaweedmq.storage.tables.delta.log_state import damaged, read_state

GONE_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a topic's tables."""

    version: int
    timestamp_us: int
    """Time since 1970 UTC, by the clock of its writer."""
    operation: str
    added: int
    """Number of added tables."""
    removed: int
    records: int | None
    """Number of records in all tables of the version; None if its writer did not record it."""


def history(root: Path, name: TopicName) -> list[Version]:
    """Return the readable versions of a topic's tables, oldest first.

    Raises:
        NotFound: If the topic has no log.
        Corrupt: If the log is damaged.
        StorageFailed: If the log cannot be read.
    """
    versions = []
    with _opened(root, name) as (folder, listing):
        for number in listing.commits:
            found = folder.commit(number)
            if found is not None:
                versions.append(_version(number, found[0]))
    return versions


def _version(number: int, commit: Commit) -> Version:
    metrics: Any = commit.info.get("operationMetrics")
    said: dict[str, Any] = metrics if isinstance(metrics, dict) else {}
    records = said.get("numTotalRows")
    return Version(
        version=number,
        timestamp_us=_whole(commit.info.get("timestamp")) * 1_000,
        operation=str(commit.info.get("operation", "?")),
        added=len(commit.adds),
        removed=len(commit.removes),
        records=None if records is None else _whole(records),
    )


def _whole(value: object) -> int:
    """Return a number of a commit's info, 0 if it is not one: other programs write any value there."""
    with contextlib.suppress(TypeError, ValueError):
        return int(str(value))
    return 0


def tables_of_version(root: Path, name: TopicName, version: int) -> list[SegmentFile]:
    """Return the tables of one version, ordered by segment and offset; their paths are retained links if those exist.

    Raises:
        InvalidArgument: If there is no such version.
        OutOfRange: If the version or some of its tables are no longer available.
        NotFound: If the topic has no log.
        Corrupt: If the log is damaged.
        StorageFailed: If the log cannot be read.
    """
    with _opened(root, name) as (folder, listing):
        newest = max([*listing.commits[-1:], *listing.checkpoints[-1:]])
        oldest = 0 if 0 in listing.commits else min(listing.checkpoints, default=newest)
        if not 0 <= version <= newest:
            raise InvalidArgument(
                f"topic {name} has no version {version} of its tables: there are {oldest} to {newest}"
            )
        if version < oldest:
            raise OutOfRange(
                f"version {version} of the tables of topic {name} is removed, the oldest is {oldest}, the newest "
                f"{newest}: versions are readable for table_grace_s, like replaced tables"
            )
        active = read_state(folder, listing, version).active
    files = []
    gone = []
    for path, add in active.items():
        shown = f"{table_dir(name)}/{path.rpartition('/')[2]}"
        found = parse_segment_file(shown)
        if found is None:
            raise Corrupt(f"version {version} of topic {name} names {path}, which is not a table of SeaweedMQ")
        kept = f"{table_dir(name)}/{path}"
        there = next((p for p in (kept, shown) if (root / p).is_file()), None)
        if there is None:
            gone.append(path)
            continue
        files.append(
            SegmentFile(
                topic=name,
                segment=found.segment,
                kind=FileKind.TABLE,
                base_offset=found.base_offset,
                end_offset=found.end_offset,
                writer="",
                size_bytes=add.size_bytes,
                path=there,
                modified_us=add.modified_ms * 1_000,
            )
        )
    if gone:
        more = f" and {len(gone) - GONE_SHOWN_MAX} more" if len(gone) > GONE_SHOWN_MAX else ""
        raise OutOfRange(
            f"version {version} of the tables of topic {name} can no longer be read: "
            f"{', '.join(gone[:GONE_SHOWN_MAX])}{more} were deleted after their grace period "
            f"(table_grace_s); take a later version, up to {newest}"
        )
    return sorted(files, key=lambda f: (f.segment, f.base_offset))


@contextlib.contextmanager
def _opened(root: Path, name: TopicName) -> Iterator[tuple[LogFolder, Listing]]:
    path = root / delta_log_dir(name)
    try:
        with LogFolder.opened(path) as folder:
            listing = folder.listing()
            if not listing.commits and not listing.checkpoints:
                raise FileNotFoundError
            yield folder, listing
    except FileNotFoundError:
        raise NotFound(
            f"topic {name} has no Delta log in {root}: it gets one with its first table, or by "
            f"`seaweedmq table rebuild {name}`"
        ) from None
    except (Corrupt, Unsupported) as e:
        raise damaged(path, name, str(e)) from e
    except OSError as e:
        raise storage_failed("read", str(path), e) from e
