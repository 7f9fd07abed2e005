"""What a Delta log says, commit by commit from its last checkpoint on."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seaweedmq.codec.tables.delta import Add, Commit, LogMetadata, Remove
from seaweedmq.codec.tables.delta_checkpoint import Checkpoint
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.tables.delta_log import Listing, LogFolder, Stamp

GRACE_KEY = "delta.deletedFileRetentionDuration"
_SECONDS = re.compile(r"interval ([0-9]{1,15}) seconds", re.ASCII)
"""As we write it. Other programs know other words, which nobody has put there unless by hand."""


@dataclass(slots=True, kw_only=True)
class LogState:
    """A log as of one version."""

    version: int = -1
    """-1: it has none yet."""
    metadata: LogMetadata | None = None
    features: frozenset[str] = frozenset()
    active: dict[str, Add] = field(default_factory=dict)
    """By path: the tables that belong to the version."""
    removed: dict[str, Remove] = field(default_factory=dict)
    checkpoint: int = -1
    """The last one; -1: there is none."""
    checkpoint_us: int = 0
    """When that was, microseconds since 1970 UTC; without one, when the log began."""
    bytes_since: int = 0
    """Of the commits since."""
    stamp: Stamp | None = None
    """Of the file of ``version``; None if that is gone, and a checkpoint has taken its place."""

    def apply(self, commit: Commit, size_bytes: int, stamp: Stamp | None) -> None:
        """Go on to the next version."""
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
        """Take in what others have added, and return it. None: it is another log by now.

        Raises:
            Corrupt, Unsupported: the log is damaged.
        """
        if self.version < 0 or self.stamp is None or folder.stamp(self.version) != self.stamp:
            return None
        taken = []
        while (found := folder.commit(self.version + 1)) is not None:
            self.apply(*found, folder.stamp(self.version + 1))
            taken.append(found[0])
        return taken

    def forget_removed(self, before_ms: int) -> None:
        """No reader of a version that old is served."""
        self.removed = {path: r for path, r in self.removed.items() if r.removed_ms > before_ms}

    def as_checkpoint(self, removed_since_ms: int) -> Checkpoint:
        """All that holds; forgets what was removed earlier."""
        if self.metadata is None:
            raise AssertionError("the first commit of a log describes the table")
        self.forget_removed(removed_since_ms)
        return Checkpoint(
            metadata=self.metadata,
            features=self.features,
            adds=list(self.active.values()),
            removes=list(self.removed.values()),
        )


def read_state(folder: LogFolder, listing: Listing, version: int | None = None) -> LogState:
    """The log as of a version, which is there; None: the newest.

    Raises:
        Corrupt: damaged, or commits are missing. Unsupported: another program wrote it, and readers have to know more.
    """
    newest = max([*listing.commits[-1:], *listing.checkpoints[-1:]], default=-1) if version is None else version
    base = max((v for v in listing.checkpoints if v <= newest), default=-1)
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
    """What was set by name in the log."""
    return {} if state.metadata is None else state.metadata.configuration


def grace_s_of(metadata: LogMetadata | None) -> float:
    """How long removed tables keep their name, as whoever created the log said."""
    said = "" if metadata is None else metadata.configuration.get(GRACE_KEY, "")
    match = _SECONDS.fullmatch(said)
    return TABLE_GRACE_S if match is None else float(match[1])


def metadata_of_any(folder: LogFolder) -> LogMetadata | None:
    """The youngest that can be read of a log in whatever state; None if none can."""
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


def damaged(path: Path, topic: TopicName, why: str) -> Corrupt:
    """What a user is told of a log that can not be read."""
    return Corrupt(
        f"{path} can not be read: {why}; no record is lost by that, and `seaweedmq table rebuild {topic}` writes it "
        "anew from the tables"
    )
