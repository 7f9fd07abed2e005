"""Cache of a topic's Delta log and tables between two updates, and the tables that changed since."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seaweedmq.codec.paths import table_dir, table_path
from seaweedmq.codec.tables.delta import Add, Commit
from seaweedmq.core.files.live_tables import TableSpan
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.place import Place, State
from seaweedmq.storage.tables.delta.entries import restore_retained_links
from seaweedmq.storage.tables.delta.log_folder import LogFolder
from seaweedmq.storage.tables.delta.log_state import LogState, configured, damaged, read_state

UID_KEY = "seaweedmq.topic_uid"


@dataclass(slots=True)
class LogCache:
    """A cache of a topic's log and tables, always verified before use."""

    topic: TopicName
    log: LogState = field(default_factory=LogState)
    active: dict[TableSpan, Add] = field(default_factory=dict)
    """Tables of the log."""
    foreign: list[Add] = field(default_factory=list)
    """Entries of the log that are not tables of the topic, or duplicates."""
    names: frozenset[str] = frozenset()
    """File names in the folder of the tables at the last listing."""
    listed: dict[str, TableSpan] = field(default_factory=dict)
    """Tables among these files."""
    named: dict[TableSpan, tuple[str, ...]] = field(default_factory=dict)
    """Files of each of these tables: on an object store there may be several, with different dates."""
    refused: dict[str, State | None] = field(default_factory=dict)
    """Unsound or foreign tables -> state."""
    due: set[TableSpan] = field(default_factory=set)
    """Tables that changed in the folder or in the log since the log was last up to date."""
    settings: object = None
    """Settings of the topic that determine live tables and columns, at the last update; None: check every table."""
    records: int = 0
    """Number of records in the tables of the log."""

    def catch_up(self, place: Place, topic: Topic, folder: LogFolder) -> None:
        """Read the log up to its newest version. Raises Corrupt if the log is damaged, or of another topic."""
        try:
            taken = self.log.catch_up(folder)
            if taken is None:
                listing = folder.listing()
                self.log = read_state(folder, listing)
                folder.repair_hint(listing.checkpoints)
        except (Corrupt, Unsupported) as e:
            raise damaged(folder.where, topic.name, str(e)) from e
        of = configured(self.log).get(UID_KEY)
        if self.log.version >= 0 and of != str(topic.uid):
            raise damaged(folder.where, topic.name, "it is of another table or topic")
        if taken is not None:
            self._take_in(place, taken)
            return
        self.settings = None
        self.active, self.foreign, self.records = {}, [], 0
        self._divide(place, self.log.active.values())
        restore_retained_links(place, topic, self.active)

    def _take_in(self, place: Place, commits: Sequence[Commit]) -> None:
        """Add the commits of other processes to the cache, at a cost proportional to their size."""
        paths = {add.path for commit in commits for add in commit.adds}
        paths |= {remove.path for commit in commits for remove in commit.removes}
        for path in paths:
            span = self.span(place, path)
            if span is None:
                continue
            self.due.add(span)
            if span in self.active and self.active[span].path == path:
                del self.active[span]
                self.records -= span.end - span.base
        left = [add for add in self.foreign if add.path not in paths]
        self.foreign = []
        self._divide(place, [*left, *(self.log.active[path] for path in paths if path in self.log.active)])
        if any(commit.metadata is not None for commit in commits):
            self.settings = None

    def _divide(self, place: Place, adds: Iterable[Add]) -> None:
        """Divide entries of the log into tables, and foreign entries or duplicates."""
        for add in adds:
            span = self.span(place, add.path)
            if span is None or span in self.active:
                self.foreign.append(add)
            else:
                self.active[span] = add
                self.records += span.end - span.base

    def find_changes(self, place: Place, topic: Topic, names: frozenset[str]) -> Collection[TableSpan]:
        """Return the tables added, removed or changed since the last update; ``names`` are the files that exist now."""
        folder = table_dir(topic.name)
        went = {n: s for n in self.names - names if (s := self.listed.pop(n, None)) is not None}
        came = {n: s for n in names - self.names if (s := self.span(place, n)) is not None}
        self._name(went, came)
        self.due |= set(went.values())
        self.listed |= came
        self.names = names
        others = {n for n, state in self.refused.items() if place.state(f"{folder}/{n}") != state}
        self.refused = {n: state for n, state in self.refused.items() if n not in others}
        self.due |= {*came.values(), *(self.listed[n] for n in others if n in self.listed)}
        settings = (topic.schema, topic.low_watermarks, topic.pruned)
        if settings != self.settings:
            self.settings = settings
            self.due |= {*self.listed.values(), *self.active}
        return self.due

    def _name(self, went: Mapping[str, TableSpan], came: Mapping[str, TableSpan]) -> None:
        for name, span in went.items():
            left = tuple(each for each in self.named.pop(span) if each != name)
            if left:
                self.named[span] = left
        for name, span in came.items():
            self.named[span] = (*self.named.get(span, ()), name)

    def is_gone(self, span: TableSpan) -> bool:
        """Whether the file that the log lists for a table is gone; another one may have the same records."""
        return self.active[span].path.rpartition("/")[2] not in self.names

    def path(self, span: TableSpan) -> str:
        """Return the path of a listed table, the latest by date if it has several."""
        folder = table_dir(self.topic)
        return f"{folder}/{max(self.named[span])}" if span in self.named else table_path(self.topic, *span)

    def span(self, place: Place, path: str) -> TableSpan | None:
        """Return the table of a file name or of a path in the log; None if it is not a table of the topic."""
        found = place.parse_file(f"{table_dir(self.topic)}/{path.rpartition('/')[2]}")
        if found is None or found.end_offset is None:
            return None
        return TableSpan(found.segment, found.base_offset, found.end_offset)
