"""State of a Delta log, read from its last checkpoint and the commits after it."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from seaweedmq.codec.tables.delta import Add, Commit, LogMetadata, Remove
from seaweedmq.codec.tables.delta_checkpoint import Checkpoint
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.tables.delta.log_folder import Listing, LogFolder, Stamp

GRACE_KEY = "delta.deletedFileRetentionDuration"
_SECONDS = re.compile(r"interval ([0-9]{1,15}) seconds", re.ASCII)
"""Form of the interval that SeaweedMQ writes; other forms come only from manual changes."""


@dataclass(slots=True, kw_only=True)
class LogState:
    """The state of a log at one version."""

    version: int = -1
    """Version of the state; -1 before the first."""
    metadata: LogMetadata | None = None
    features: frozenset[str] = frozenset()
    active: dict[str, Add] = field(default_factory=dict)
    """Tables of the version, by path."""
    removed: dict[str, Remove] = field(default_factory=dict)
    checkpoint: int = -1
    """Version of the last checkpoint; -1 if there is none."""
    checkpoint_us: int = 0
    """Time of the last checkpoint, or of the first version, in microseconds since 1970 UTC."""
    bytes_since: int = 0
    """Bytes of the commits since the last checkpoint."""
    stamp: Stamp | None = None
    """Stamp of the commit file of ``version``; None if only a checkpoint is left of it."""

    def apply(self, commit: Commit, size_bytes: int, stamp: Stamp | None) -> None:
        """Apply the commit of the next version."""
        self.version += 1
        if self.version == 0 and stamp is not None:
            self.checkpoint_us = stamp[1] // 1_000
        self.bytes_since += size_bytes
        self.stamp = stamp
        if commit.metadata is not None:
            self.metadata = commit.metadata
        if commit.features is not None:
            self.features = commit.features
        for remove in commit.removes:
            self.active.pop(remove.path, None)
            self.removed[remove.path] = remove
        for add in commit.adds:
            self.active[add.path] = add
            self.removed.pop(add.path, None)

    def catch_up(self, folder: LogFolder) -> list[Commit] | None:
        """Apply and return the commits of other processes; None if the log was replaced by another."""
        if self.version < 0 or self.stamp is None or folder.stamp(self.version) != self.stamp:
            return None
        taken = []
        while (found := folder.commit(self.version + 1)) is not None:
            self.apply(*found, folder.stamp(self.version + 1))
            taken.append(found[0])
        return taken

    def forget_removed(self, before_ms: int) -> None:
        """Drop entries of tables removed before a time: versions that old are no longer readable."""
        self.removed = {path: r for path, r in self.removed.items() if r.removed_ms > before_ms}

    def as_checkpoint(self, removed_since_ms: int) -> Checkpoint:
        """Return the state as a checkpoint, without entries of tables removed before a time."""
        assert self.metadata is not None, "the first commit of a log describes the table"
        self.forget_removed(removed_since_ms)
        return Checkpoint(
            metadata=self.metadata,
            features=self.features,
            adds=list(self.active.values()),
            removes=list(self.removed.values()),
        )


def read_state(folder: LogFolder, listing: Listing) -> LogState:
    """Read the state of a log at the newest version of a listing.

    Raises Corrupt if the log is damaged, or commits are missing; Unsupported if another program wrote it with features
    that this build cannot read.
    """
    newest = max([*listing.commits[-1:], *listing.checkpoints[-1:]], default=-1)
    base = max(listing.checkpoints, default=-1)
    state = LogState()
    if base >= 0:
        found, stamp = folder.checkpoint(base), folder.stamp(base)
        state = LogState(
            version=base,
            metadata=found.metadata,
            features=found.features,
            active={a.path: a for a in found.adds},
            removed={r.path: r for r in found.removes},
            checkpoint=base,
            checkpoint_us=0 if stamp is None else stamp[1] // 1_000,
            stamp=stamp,
        )
    while state.version < newest:
        commit = folder.commit(state.version + 1)
        if commit is None:
            raise Corrupt(f"version {state.version + 1} is missing")
        state.apply(*commit, folder.stamp(state.version + 1))
    if state.version >= 0 and state.metadata is None:
        raise Corrupt("no version describes the table")
    return state


def configured(state: LogState) -> Mapping[str, str]:
    """Return the configuration of the log by name."""
    return {} if state.metadata is None else state.metadata.configuration


def grace_s_of(metadata: LogMetadata | None) -> float:
    """Return the seconds for which removed tables stay readable, by the setting in the log or the default."""
    said = "" if metadata is None else metadata.configuration.get(GRACE_KEY, "")
    match = _SECONDS.fullmatch(said)
    return TABLE_GRACE_S if match is None else float(match[1])


def paths_in_use(folder: LogFolder, now_us: int) -> frozenset[str]:
    """Return the tables of the newest version and of those that were the newest one within the log's grace period.

    ``now_us`` is by the clock that dates the commits. Raises Corrupt or Unsupported as :func:`read_state`.
    """
    listing = folder.listing()
    state = read_state(folder, listing)
    horizon_us = now_us - int(grace_s_of(state.metadata) * US_PER_S)
    paths = set(state.active)
    for version in reversed(listing.commits):
        stamp, found = folder.stamp(version), folder.commit(version)
        if stamp is None or found is None or stamp[1] // 1_000 <= horizon_us:
            break
        paths |= {remove.path for remove in found[0].removes}
    return frozenset(paths)


def metadata_of_any(folder: LogFolder) -> LogMetadata | None:
    """Return the newest readable metadata of a log in any state; None if there is none."""
    try:
        listing = folder.listing()
    except Corrupt:
        return None
    for version in reversed(listing.commits):
        with contextlib.suppress(Corrupt, Unsupported):
            found = folder.commit(version)
            if found is not None and found[0].metadata is not None:
                return found[0].metadata
    for version in reversed(listing.checkpoints):
        with contextlib.suppress(Corrupt, Unsupported):
            return folder.checkpoint(version).metadata
    return None


def damaged(where: str, topic: TopicName, why: str) -> Corrupt:
    """Return the error of an unreadable log."""
    return Corrupt(
        f"{where} cannot be read: {why}; no record is lost, and `seaweedmq table rebuild {topic}` rewrites it from "
        "the tables"
    )
