"""Versions of a topic's Delta log. Blocking."""

import contextlib
from dataclasses import dataclass
from typing import Any

from seaweedmq.codec.paths import delta_log_dir
from seaweedmq.codec.tables.delta import Commit
from seaweedmq.errors import Corrupt, NotFound, Unsupported
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.delta.log_state import damaged, paths_in_use
from seaweedmq.storage.tables.delta.open_log import open_log


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


def history(place: Place, name: TopicName) -> list[Version]:
    """Return the readable versions of a topic's tables, oldest first. Raises NotFound if the topic has no log."""
    where = place.where(delta_log_dir(name))
    versions = []
    try:
        with open_log(place, name) as folder:
            listing = folder.listing()
            if not listing.commits and not listing.checkpoints:
                raise FileNotFoundError
            for number in listing.commits:
                found = folder.commit(number)
                if found is not None:
                    versions.append(_version(number, found[0]))
    except FileNotFoundError:
        raise NotFound(
            f"topic {name} has no Delta log in {place}: it gets one with its first table, or by "
            f"`seaweedmq table rebuild {name}`"
        ) from None
    except (Corrupt, Unsupported) as e:
        raise damaged(where, name, str(e)) from e
    except OSError as e:
        raise storage_failed("read", where, e) from e
    return versions


def tables_in_use(place: Place, topic: Topic) -> frozenset[str]:
    """Return the file names of tables that readers of the Delta log may still open, on an object store.

    On a directory there are none: there they open retained links. Raises Corrupt, Unsupported or StorageFailed.
    """
    if not isinstance(place, ObjectPlace):
        return frozenset()
    place = place.of(topic)
    with failing("read", place.where(delta_log_dir(topic.name))), open_log(place, topic.name) as folder:
        return paths_in_use(folder, int(place.clock_s() * US_PER_S))


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
