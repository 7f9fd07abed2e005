"""``table/_delta_log`` of a topic: which of its tables count, for readers of Delta tables. Blocking.

The names of tables are the truth for SeaweedMQ itself; the log is what is published of it for others. Bringing it in
line is one commit that adds and removes, made only if nobody else made that version. Whatever was interrupted, the next
call finishes. Tables are listed under the names that they keep for a while once they do not count any more, so that a
reader which has begun, and travel back in time, find them. Neither ``deltalake`` nor Spark is needed.
"""

import errno
import logging
import os
import random
import shutil
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from seaweedmq.codec.paths import (
    LINEAGE_DOCUMENT,
    delta_log_dir,
    document_path,
    parse_segment_file,
    table_dir,
    table_path,
)
from seaweedmq.codec.state.documents import lineage_from_document
from seaweedmq.codec.tables.delta import Add, Commit, Remove, commit_info, encode_commit
from seaweedmq.core.files.live_tables import (
    Operation,
    TableSpan,
    around,
    change,
    is_checkpoint_due,
    oldest_needed,
    select_live,
)
from seaweedmq.errors import Conflict, Corrupt, NotFound, Unsupported
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.runtime.retrying import backoff
from seaweedmq.storage.store import file_io
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.tables.delta_log import LogFolder
from seaweedmq.storage.tables.delta_state import LogState, configured, damaged, grace_s_of, metadata_of_any, read_state
from seaweedmq.storage.tables.delta_tables import TableColumns, enter, holds_plain, keep_again, log_metadata

logger = logging.getLogger(__name__)

ATTEMPTS = 20
"""Of a commit: with each that fails, another process has made one."""
PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.2
"""Between attempts: two that collide at each are not to go on in step."""
TABLES_KNOWN_MAX = 30_000
"""Of all topics together: what a process remembers between commits, 1 to 1.5 KB for each. The topic that was just seen
to is remembered in any case."""
ASIDE_PREFIX = ".delta_log-aside-"
ASIDE_MAX = 3
UID_KEY = "seaweedmq.topic_uid"
_MAY_NOT_WRITE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def reconcile(root: Path, topic: Topic, *, grace_s: float | None = None) -> int | None:
    """Bring the topic's log in line with the tables that count.

    Args:
        grace_s: how long versions stay readable; no longer than replaced tables keep their names. None: as long as the
            log says, which knows it of the brokers.

    Returns:
        The version that was made; None if the log was in line.

    Raises:
        Corrupt: the log is damaged; it and the tables stay as they are.
        Conflict: other processes were faster, many times.
        StorageFailed: the directory refused.
    """
    return DeltaLogs().reconcile(root, topic, grace_s=grace_s)


def rebuild_log(root: Path, topic: Topic, *, grace_s: float | None = None) -> int | None:
    """Move the topic's log aside, whatever state it is in, and write a new one from the tables.

    The new one begins with version 0, and readers see another table. The last few that were moved aside stay.

    Raises: as :func:`reconcile`.
    """
    folder = root / table_dir(topic.name)
    log = root / delta_log_dir(topic.name)
    try:
        if grace_s is None:
            with suppress(FileNotFoundError), LogFolder.opened(log) as opened:
                grace_s = grace_s_of(metadata_of_any(opened))
        if log.exists():
            log.rename(folder / f"{ASIDE_PREFIX}{time.time_ns():020d}")  # noqa: TID251 - on a real disk
        for old in sorted(folder.glob(f"{ASIDE_PREFIX}*"))[:-ASIDE_MAX]:
            shutil.rmtree(old)
    except OSError as e:
        raise storage_failed("move aside", str(log), e) from e
    return reconcile(root, topic, grace_s=grace_s)


@dataclass(slots=True)
class _Known:
    """What is remembered of a topic's log and tables. Never believed without a look."""

    log: LogState = field(default_factory=LogState)
    active: dict[TableSpan, Add] = field(default_factory=dict)
    """The tables of the log."""
    foreign: list[Add] = field(default_factory=list)
    """What is in the log and can be no table of the topic, or is one that is in it already."""
    names: frozenset[str] = frozenset()
    """Of the files in the folder of the tables, as of the last look."""
    lying: dict[str, TableSpan] = field(default_factory=dict)
    """The tables among them."""
    refused: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Those that are no sound tables of the topic -> size and time of their last change."""
    due: set[TableSpan] = field(default_factory=set)
    """Tables about which something changed, in the folder or in the log, since one or the other was last in line."""
    settings: object = None
    """What of the topic decides which tables count and what their columns are, as of the last look; None: the next
    look has to be at everything."""
    records: int = 0
    """In the tables of the log."""


class DeltaLogs:
    """Keeps logs in line, and remembers what they say from one time to the next."""

    def __init__(self, tables_max: int = TABLES_KNOWN_MAX) -> None:
        self._tables_max = tables_max
        self._known: OrderedDict[tuple[Path, TopicName], _Known] = OrderedDict()
        rng = random.Random(os.urandom(8))  # noqa: TID251 - in a process of its own, on a real disk
        self._pause_s = backoff(rng, PAUSE_S_FIRST, PAUSE_S_MAX)

    def reconcile(self, root: Path, topic: Topic, *, grace_s: float | None = None, confirmed_us: int = 0) -> int | None:
        """Do what the function of this name does.

        Args:
            confirmed_us: time that it is at least, microseconds since 1970 UTC (``core.clock_doubt``): by it versions
                are older than ``grace_s``, and go. 0: none is. A process that ends soon can confirm nothing.
        """
        attempts = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=lambda state: self._pause_s(state.attempt_number),
            retry=retry_if_exception_type(Conflict),
            reraise=True,
        )
        try:
            return attempts(partial(self._attempt, root, topic, grace_s, confirmed_us))
        except OSError as e:
            raise storage_failed("write the Delta log of", str(root / table_dir(topic.name)), e) from e

    def _attempt(self, root: Path, topic: Topic, grace_s: float | None, confirmed_us: int) -> int | None:
        key = (root, topic.name)
        known = self._known.pop(key, None) or _Known()  # forgotten if anything goes wrong
        try:
            version = _Change(root, topic, grace_s, known, confirmed_us).make()
        except Conflict:
            self._remember(key, known)  # as true as it was, and what was due still is
            raise
        self._remember(key, known)
        return version

    def _remember(self, key: tuple[Path, TopicName], known: _Known) -> None:
        """And forget others, but never the one just used: it would be read anew with every table that comes."""
        self._known[key] = known
        while len(self._known) > 1 and sum(len(k.names) for k in self._known.values()) > self._tables_max:
            self._known.popitem(last=False)


class _Change:
    """One attempt to bring a log in line."""

    def __init__(
        self,
        root: Path,
        topic: Topic,
        grace_s: float | None,
        known: _Known,
        confirmed_us: int,
    ) -> None:
        self._root = root
        self._confirmed_us = confirmed_us
        self._topic = topic
        self._grace_given_s = grace_s
        self._known = known
        self._tables = root / table_dir(topic.name)
        self._entered: dict[TableSpan, tuple[Add, TableColumns]] = {}

    def make(self) -> int | None:
        path = delta_log_dir(self._topic.name)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(LogFolder.opened(self._root / path))
            except FileNotFoundError:
                names = self._listed()
                if names is None or not any(self._span(name) for name in names):
                    return None
                # And not what is above it: that would bring back a topic which is deleted just now.
                try:
                    (self._root / path).mkdir(exist_ok=True)
                except FileNotFoundError:
                    return None
                file_io.sync_directories(self._root, self._root / path)
                folder = stack.enter_context(LogFolder.opened(self._root / path))
            self._read(folder)
            # After the log, never before: a table that another process puts there and enters in between would be in the
            # log and not in the listing, as one that went is. What is entered from here on takes the version away.
            names = self._listed()
            if names is None:
                return None
            version = self._commit(folder, self._changed(names))
            now_us = time.time_ns() // 1_000  # noqa: TID251 - in a process of its own, on a real disk
            horizon_us = self._confirmed_us - int(self._grace_s * US_PER_S)
            if self._is_checkpoint_due(now_us):
                self._checkpoint(folder, now_us, horizon_us)
            return version

    @property
    def _grace_s(self) -> float:
        return grace_s_of(self._known.log.metadata) if self._grace_given_s is None else self._grace_given_s

    def _listed(self) -> frozenset[str] | None:
        """Names in the folder of the tables as they are now; None if it is gone."""
        try:
            try:
                file_io.look_anew(self._tables)
            except OSError as e:
                if (
                    e.errno not in _MAY_NOT_WRITE
                ):  # who may not write can still find the log in line, and commits nothing
                    raise
            return frozenset(os.listdir(self._tables))  # noqa: PTH208 - names will do
        except FileNotFoundError:
            return None

    def _read(self, folder: LogFolder) -> None:
        """Make sure that what is known of the log is its newest version."""
        known = self._known
        try:
            taken = known.log.catch_up(folder)
            if taken is None:
                listing = folder.listing()
                known.log = read_state(folder, listing)
                folder.mend_hint(listing.checkpoints)
        except (Corrupt, Unsupported) as e:
            raise damaged(folder.path, self._topic.name, str(e)) from e
        of = configured(known.log).get(UID_KEY)
        if known.log.version >= 0 and of != str(self._topic.uid):
            raise damaged(folder.path, self._topic.name, "it is that of another table or topic")
        if taken is not None:
            self._take_in(taken)
            return
        known.settings = None
        known.active, known.foreign, known.records = {}, [], 0
        self._place(known.log.active.values())
        keep_again(self._root, self._topic, known.active)

    def _take_in(self, commits: Sequence[Commit]) -> None:
        """Have what others committed among what is known, at a cost that goes by that."""
        known = self._known
        paths = {add.path for commit in commits for add in commit.adds}
        paths |= {remove.path for commit in commits for remove in commit.removes}
        for path in paths:
            span = self._span_at(path)
            if span is None:
                continue
            known.due.add(span)
            if span in known.active and known.active[span].path == path:
                del known.active[span]
                known.records -= span.end - span.base
        left = [add for add in known.foreign if add.path not in paths]
        known.foreign = []
        self._place([*left, *(known.log.active[path] for path in paths if path in known.log.active)])
        if any(commit.metadata is not None for commit in commits):
            known.settings = None

    def _place(self, adds: Iterable[Add]) -> None:
        """Tell tables of the log from what is none, or in it twice."""
        known = self._known
        for add in adds:
            span = self._span_at(add.path)
            if span is None or span in known.active:
                known.foreign.append(add)
            else:
                known.active[span] = add
                known.records += span.end - span.base

    def _changed(self, names: frozenset[str]) -> Collection[TableSpan]:
        """Tables that came or went since the last look that led to something, or about which something else changed."""
        known = self._known
        known.due |= {s for n in known.names - names if (s := known.lying.pop(n, None)) is not None}
        came = {n: s for n in names - known.names if (s := self._span(n)) is not None}
        known.lying |= came
        known.names = names
        others = {n for n, stamp in known.refused.items() if _file_stamp(self._tables / n) != stamp}
        known.refused = {n: stamp for n, stamp in known.refused.items() if n not in others}
        known.due |= {*came.values(), *(known.lying[n] for n in others if n in known.lying)}
        settings = (self._topic.schema, self._topic.low_watermarks, self._topic.pruned)
        if settings != known.settings:
            known.settings = settings
            known.due |= {*known.lying.values(), *known.active}
        return known.due

    def _commit(self, folder: LogFolder, changed: Collection[TableSpan]) -> int | None:
        """Make the version that the change calls for, if it does; then nothing is due any more."""
        version = self._commit_due(folder, changed)
        self._known.due = set()
        return version

    def _commit_due(self, folder: LogFolder, changed: Collection[TableSpan]) -> int | None:
        known, log = self._known, self._known.log
        if not changed and not known.foreign:
            return None
        lying = set(around(changed, known.lying.values()))
        lying = self._above_watermarks(lying - {known.lying[n] for n in known.refused if n in known.lying})
        before = {span: known.active[span] for span in around({*changed, *lying}, known.active)}
        while True:
            counted = select_live(lying)
            diff = change(before.keys(), counted.spans)
            refused = self._enter(diff.added)
            if not refused:
                break
            lying -= refused
        for gap in counted.missing:
            logger.warning(
                "%s#%d: offsets [%d, %d) are only in tables that overlap others in part, and not in the Delta log: "
                "`seaweedmq table compact` makes one of them",
                self._topic.name,
                *gap,
            )
        columns = [c for _, c in (self._entered[s] for s in diff.added)]
        plain = TableColumns.PLAIN in columns or (bool(known.active) and holds_plain(log.metadata))
        metadata, features = log_metadata(self._topic, plain, self._grace_s, log.metadata)
        is_first = log.version < 0
        if not (diff.added or diff.removed or known.foreign) and (is_first or metadata == log.metadata):
            return None
        now_ms = time.time_ns() // 1_000_000  # noqa: TID251 - in a process of its own, on a real disk
        removes = [_removed(before[s], now_ms, s in diff.gone) for s in diff.removed]
        removes += [_removed(add, now_ms, True) for add in known.foreign]
        adds = {s: replace(self._entered[s][0], brings_records=s in diff.come) for s in diff.added}
        rows = sum(s.end - s.base for s in diff.added)
        records = known.records + rows - sum(s.end - s.base for s in diff.removed)
        commit = Commit(
            adds=tuple(adds.values()),
            removes=tuple(removes),
            metadata=metadata if metadata != log.metadata else None,
            features=features if is_first or features != log.features else None,
            info=commit_info(
                operation=Operation.CREATE if is_first else diff.operation,
                timestamp_ms=now_ms,
                files=(len(adds), len(removes), len(known.active) + len(adds) - len(diff.removed)),
                rows=(rows, records),
            ),
        )
        data = encode_commit(commit)
        stamp = folder.put_commit(log.version + 1, data)
        log.apply(commit, len(data), stamp)
        for span in diff.removed:
            del known.active[span]
        known.active |= adds
        known.foreign, known.records = [], records
        return log.version

    def _enter(self, spans: Collection[TableSpan]) -> set[TableSpan]:
        """Look into tables that are new to the log; those that are none."""
        refused = set()
        for span in spans:
            if span in self._entered:
                continue
            path = table_path(self._topic.name, *span)
            try:
                self._entered[span] = enter(self._root, self._topic, span)
            except Corrupt as e:
                refused.add(span)
                name = path.rpartition("/")[2]
                self._known.refused[name] = _file_stamp(self._root / path)
                logger.warning("not in the Delta log: %s", e)
            except NotFound as e:
                raise Conflict(f"{path} went while it was looked into") from e
        return refused

    def _above_watermarks(self, spans: set[TableSpan]) -> set[TableSpan]:
        """Without tables all of whose records were deleted by hand, or whose segment is forgotten."""
        topic = self._topic
        if topic.pruned:
            spans = {s for s in spans if s.segment not in topic.pruned}
        if any(topic.low_watermarks):
            lows = _low_watermarks(self._root, topic)
            spans = {s for s in spans if s.end > lows.get(s.segment, 0)}
        return spans

    def _is_checkpoint_due(self, now_us: int) -> bool:
        log = self._known.log
        age_s = (now_us - log.checkpoint_us) / US_PER_S
        return is_checkpoint_due(log.version - log.checkpoint, log.bytes_since, age_s, self._grace_s)

    def _checkpoint(self, folder: LogFolder, now_us: int, horizon_us: int) -> None:
        """So that readers, and this process when it begins, read one file instead of many; and remove those that only
        versions before ``horizon_us`` need. Not if another process has just done so."""
        log, listing = self._known.log, folder.listing()
        made = max((v for v in listing.checkpoints if v <= log.version), default=-1)
        if made > log.checkpoint:
            since = (folder.stamp(version) for version in range(made + 1, log.version + 1))
            log.checkpoint, log.bytes_since = made, sum(stamp[2] for stamp in since if stamp is not None)
            log.checkpoint_us = now_us
            if not self._is_checkpoint_due(now_us):
                log.forget_removed(horizon_us // 1_000)
                return
        folder.put_checkpoint(log.version, log.as_checkpoint(horizon_us // 1_000))
        log.checkpoint, log.checkpoint_us, log.bytes_since = log.version, now_us, 0
        listing = folder.listing()
        needed = oldest_needed(folder.commit_times(listing.commits), listing.checkpoints, horizon_us)
        folder.remove_below(needed, listing)
        folder.remove_stale_temporaries(now_us / US_PER_S)

    def _span_at(self, path: str) -> TableSpan | None:
        return self._span(path.rpartition("/")[2])

    def _span(self, name: str) -> TableSpan | None:
        found = parse_segment_file(f"{table_dir(self._topic.name)}/{name}")
        if found is None or found.end_offset is None:
            return None
        return TableSpan(found.segment, found.base_offset, found.end_offset)


def _removed(add: Add, now_ms: int, takes_records: bool) -> Remove:
    return Remove(path=add.path, size_bytes=add.size_bytes, removed_ms=now_ms, takes_records=takes_records)


def _file_stamp(path: Path) -> tuple[int, int]:
    """Of a file that is gone, too."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return -1, -1
    return stat.st_size, stat.st_mtime_ns


def _low_watermarks(root: Path, topic: Topic) -> Mapping[int, int]:
    """By segment. Without a lineage beside the files nothing is known to be deleted."""
    try:
        _, segments = lineage_from_document((root / document_path(topic.name, LINEAGE_DOCUMENT)).read_bytes())
    except FileNotFoundError:
        return {}
    return {s.id: topic.low_watermark(s.slots) for s in segments}
