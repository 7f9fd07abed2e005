"""Delta log of a topic, ``table/_delta_log``: its live tables, for readers of Delta tables. Blocking.

For SeaweedMQ, the names of tables are authoritative; the log publishes them to other readers. An update is one commit
that adds and removes tables, made only if no other process made that version. The next call completes an interrupted
update. The log lists tables by their retained links, so that running readers and time travel find replaced tables for a
while. It needs neither ``deltalake`` nor Spark.
"""

import errno
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, delta_log_dir, document_path, table_dir
from seaweedmq.codec.state.documents import lineage_from_document
from seaweedmq.codec.tables.delta import Add, Commit, LogMetadata, Remove, commit_info, encode_commit
from seaweedmq.core.files.live_tables import (
    Operation,
    TableChange,
    TableSpan,
    around,
    change,
    is_checkpoint_due,
    oldest_needed,
    select_live,
)
from seaweedmq.errors import Conflict, Corrupt, NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.runtime.process.wall_clock import wall_us
from seaweedmq.runtime.retrying import backoff
from seaweedmq.storage.faults import failing
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.delta.cache import LogCache
from seaweedmq.storage.tables.delta.entries import TableColumns, declared_kinds, enter, log_metadata
from seaweedmq.storage.tables.delta.log_folder import LogFolder
from seaweedmq.storage.tables.delta.log_state import grace_s_of, metadata_of_any
from seaweedmq.storage.tables.delta.open_log import move_aside, open_log

logger = logging.getLogger(__name__)

ATTEMPTS = 20
"""Limit of the attempts of a commit; each failed one means that another process made a commit."""
PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.2
"""Longest pause between attempts in seconds; its jitter separates processes that collide."""
TABLES_KNOWN_MAX = 30_000
"""Limit of the cached tables of all topics, 1 to 1.5 KB each; the topic used last always stays in the cache."""
_MAY_NOT_WRITE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def reconcile(
    place: Place, topic: Topic, *, grace_s: float | None = None, wall_us: Callable[[], int] = wall_us
) -> int | None:
    """Update the topic's log to its live tables; return the new version, None if it was up to date.

    Versions stay readable for ``grace_s``, at most the life of retained links; None: the setting in the log, which
    brokers wrote. Raises Corrupt if the log is damaged; it and the tables are unchanged; Conflict if other processes
    made the version first, 20 times.
    """
    return DeltaLogs(wall_us=wall_us).reconcile(place, topic, grace_s=grace_s)


def rebuild_log(
    place: Place, topic: Topic, *, grace_s: float | None = None, wall_us: Callable[[], int] = wall_us
) -> int | None:
    """Move the topic's log aside, even a damaged one, and write a new one from the tables.

    The new log begins with version 0, and readers see another table. The last three old logs stay beside it. The errors
    are those of :func:`reconcile`.
    """
    place = place.of(topic)
    with failing("move aside", place.where(delta_log_dir(topic.name))):
        if grace_s is None:
            with suppress(FileNotFoundError), open_log(place, topic.name) as opened:
                grace_s = grace_s_of(metadata_of_any(opened))
        move_aside(place, topic.name, wall_us())
    return reconcile(place, topic, grace_s=grace_s, wall_us=wall_us)


class DeltaLogs:
    """An updater of Delta logs that caches their state between calls."""

    def __init__(
        self,
        tables_max: int = TABLES_KNOWN_MAX,
        *,
        wall_us: Callable[[], int] = wall_us,
        rng: random.Random | None = None,
    ) -> None:
        """Create an updater without cached logs; ``wall_us`` dates commits, and ``rng`` spreads retries."""
        self._tables_max = tables_max
        self._wall_us = wall_us
        self._known: OrderedDict[tuple[Place, TopicName], LogCache] = OrderedDict()
        self._pause_s = backoff(rng or random.Random(), PAUSE_S_FIRST, PAUSE_S_MAX)

    def reconcile(
        self, place: Place, topic: Topic, *, grace_s: float | None = None, confirmed_us: int = 0
    ) -> int | None:
        """Update a topic's log like the function of this name.

        ``confirmed_us`` is a lower bound of the current time (``core.clock_doubt``), by which versions older than
        ``grace_s`` are removed; 0: none is, for processes too short-lived to confirm a time.
        """
        attempts = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=lambda state: self._pause_s(state.attempt_number),
            retry=retry_if_exception_type(Conflict),
            reraise=True,
        )
        place = place.of(topic)
        with failing("write the Delta log of", place.where(table_dir(topic.name))):
            return attempts(partial(self._attempt, place, topic, grace_s, confirmed_us))

    def _attempt(self, place: Place, topic: Topic, grace_s: float | None, confirmed_us: int) -> int | None:
        key = (place, topic.name)
        known = self._known.pop(key, None) or LogCache(topic.name)  # dropped on any other error
        try:
            version = _Change(place, topic, grace_s, known, confirmed_us, self._wall_us).make()
        except Conflict:
            self._remember(key, known)  # still valid, and its due tables stay due
            raise
        self._remember(key, known)
        return version

    def _remember(self, key: tuple[Place, TopicName], known: LogCache) -> None:
        """Cache a topic and drop others above the limit, never the one just used: it is needed for the next table."""
        self._known[key] = known
        while len(self._known) > 1 and sum(len(k.names) for k in self._known.values()) > self._tables_max:
            self._known.popitem(last=False)


@dataclass(slots=True)
class _Change:
    """An attempt to update a log."""

    _place: Place
    _topic: Topic
    _grace_given_s: float | None
    _known: LogCache
    _confirmed_us: int
    _wall_us: Callable[[], int]
    _entered: dict[TableSpan, tuple[Add, TableColumns]] = field(default_factory=dict)

    def make(self) -> int | None:
        """Update the log, and return the new version; None if it was up to date or the topic was deleted."""
        path = delta_log_dir(self._topic.name)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(open_log(self._place, self._topic.name))
            except FileNotFoundError:
                names = self._listed()
                if names is None or not any(self._known.span(self._place, name) for name in names):
                    return None
                # Not its parents: that would recreate the folder of a topic that is being deleted.
                try:
                    self._place.make_below(table_dir(self._topic.name), path)
                except FileNotFoundError:
                    return None
                self._place.sync(path)
                folder = stack.enter_context(open_log(self._place, self._topic.name))
            self._known.catch_up(self._place, self._topic, folder)
            # Always listed after the log: a table that another process publishes and commits in between would be in the
            # log and not in the listing, like a deleted one. A later commit of another process takes the version.
            names = self._listed()
            if names is None:
                return None
            version = self._commit(folder, self._known.find_changes(self._place, self._topic, names))
            now_us = self._wall_us()
            horizon_us = self._confirmed_us - int(self._grace_s * US_PER_S)
            if self._is_checkpoint_due(now_us):
                self._checkpoint(folder, now_us, horizon_us)
            return version

    @property
    def _grace_s(self) -> float:
        return grace_s_of(self._known.log.metadata) if self._grace_given_s is None else self._grace_given_s

    def _listed(self) -> frozenset[str] | None:
        """List the current names in the folder of the tables; None if it was deleted."""
        folder = table_dir(self._topic.name)
        try:
            try:
                self._place.refresh(folder)
            except OSError as e:
                if e.errno not in _MAY_NOT_WRITE:  # a read-only process can still find the log up to date
                    raise
            return frozenset(self._place.listdir(folder))
        except FileNotFoundError:
            return None

    def _commit(self, folder: LogFolder, changed: Collection[TableSpan]) -> int | None:
        """Commit a version if the changes require one; then no table is due."""
        version = self._commit_due(folder, changed)
        self._known.due = set()
        return version

    def _commit_due(self, folder: LogFolder, changed: Collection[TableSpan]) -> int | None:
        known, log = self._known, self._known.log
        if not changed and not known.foreign:
            return None
        listed = set(around(changed, known.listed.values()))
        listed = self._above_watermarks(listed - {known.listed[n] for n in known.refused if n in known.listed})
        before = {span: known.active[span] for span in around({*changed, *listed}, known.active)}
        while True:
            counted = select_live(listed)
            diff = change(before.keys(), counted.spans)
            renamed = tuple(span for span in before if span in counted.spans and known.is_gone(span))
            diff = diff._replace(added=(*diff.added, *renamed), removed=(*diff.removed, *renamed))
            refused = self._enter(diff.added)
            if not refused:
                break
            listed -= refused
        for gap in counted.missing:
            logger.warning(
                "offsets missing from the Delta log: %s#%d [%d, %d) are only in tables that overlap others in part; "
                "run `seaweedmq table compact`",
                self._topic.name,
                *gap,
            )
        kinds = {kind for _, kind in (self._entered[s] for s in diff.added)}
        kinds |= declared_kinds(log.metadata) if known.active else frozenset()
        metadata, features = log_metadata(self._topic, kinds, self._grace_s, log.metadata)
        is_first = log.version < 0
        if not (diff.added or diff.removed or known.foreign) and (is_first or metadata == log.metadata):
            return None
        now_ms = self._wall_us() // 1_000
        removes = [_removed(before[s], now_ms, s in diff.gone) for s in diff.removed]
        removes += [_removed(add, now_ms, True) for add in known.foreign]
        adds = {s: replace(self._entered[s][0], data_change=s in diff.come) for s in diff.added}
        rows = sum(s.end - s.base for s in diff.added)
        records = known.records + rows - sum(s.end - s.base for s in diff.removed)
        commit = Commit(
            adds=tuple(adds.values()),
            removes=tuple(removes),
            metadata=metadata if metadata != log.metadata else None,
            features=features if is_first or features != log.features else None,
            info=commit_info(
                operation=_operation(diff, removes, metadata, log.metadata),
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
        """Check tables that are new to the log, and return those that are unsound."""
        refused = set()
        for span in spans:
            if span in self._entered:
                continue
            path = self._known.path(span)
            try:
                self._entered[span] = enter(self._place, self._topic, path, span)
            except Corrupt as e:
                refused.add(span)
                name = path.rpartition("/")[2]
                self._known.refused[name] = self._place.state(path)
                logger.warning("table omitted from the Delta log: %s", e)
            except NotFound as e:
                raise Conflict(f"{path} was deleted while it was checked: retry") from e
        return refused

    def _above_watermarks(self, spans: set[TableSpan]) -> set[TableSpan]:
        """Remove tables below their low watermark and tables of pruned segments."""
        topic = self._topic
        if topic.pruned:
            spans = {s for s in spans if s.segment not in topic.pruned}
        if any(topic.low_watermarks):
            lows = _low_watermarks(self._place, topic)
            spans = {s for s in spans if s.end > lows.get(s.segment, 0)}
        return spans

    def _is_checkpoint_due(self, now_us: int) -> bool:
        log = self._known.log
        age_s = (now_us - log.checkpoint_us) / US_PER_S
        return is_checkpoint_due(log.version - log.checkpoint, log.bytes_since, age_s, self._grace_s)

    def _checkpoint(self, folder: LogFolder, now_us: int, horizon_us: int) -> None:
        """Write a checkpoint, and remove files that only versions before ``horizon_us`` need.

        With a checkpoint, readers and a restarted process read one file instead of many. It is skipped if another
        process has just written one.
        """
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


def _operation(
    diff: TableChange, removes: Sequence[Remove], metadata: LogMetadata, before: LogMetadata | None
) -> Operation:
    """Return the operation of a version; ``before`` is the metadata of the version before, None for the first one."""
    if before is None:
        return Operation.CREATE
    if diff.operation is not Operation.COLUMNS or metadata.schema != before.schema:
        return diff.operation
    return Operation.DELETE if removes else Operation.PROPERTIES


def _removed(add: Add, now_ms: int, data_change: bool) -> Remove:
    return Remove(path=add.path, size_bytes=add.size_bytes, removed_ms=now_ms, data_change=data_change)


def _low_watermarks(place: Place, topic: Topic) -> Mapping[int, int]:
    """Return the low watermark of each segment; none without a lineage document."""
    try:
        _, segments = lineage_from_document(place.read(document_path(topic.name, LINEAGE_DOCUMENT)))
    except FileNotFoundError:
        return {}
    return {s.id: topic.low_watermark(s.slots) for s in segments}
