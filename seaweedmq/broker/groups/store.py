"""Stores of groups in etcd, each read once, then written by the leader alone.

Each write compares the revisions of what it changes. A transaction whose answer was lost may take effect late. That is
harmless, since it would have to find every key as it was before. It is retried until its outcome is known.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.broker.groups.journal import GroupJournal
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_metadata import committed_from_json, committed_to_json, group_from_json, group_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION
from seaweedmq.errors import Conflict, Corrupt, Deposed, ResourceExhausted, StaleMetadata, Unavailable, Unsupported
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Compare, Delete, MetaStore, Put, SegmentStore
from seaweedmq.runtime.retrying import after_s, backoff, retrying

log = logging.getLogger(__name__)

CHUNK_BYTES_MAX = 1_000_000
"""Limit of a chunk, in bytes; leaves room for the record below the default limit of etcd."""
UNANSWERED = (Unavailable, ResourceExhausted)
"""Retried rejections: etcd returns, or an operator raises a limit."""
WRITE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class GroupName:
    """The name of a group and of the topic that it reads."""

    topic: TopicName
    group: str

    def __str__(self) -> str:
        return f"group {self.group} of {self.topic}"


class GroupStore:
    """The store of one group and topic in etcd. One task uses it at a time."""

    def __init__(
        self,
        meta: MetaStore,
        election: Election,
        name: GroupName,
        rng: random.Random,
        record: Callable[[int, Sequence[Put | Delete]], Awaitable[None]],
    ) -> None:
        """Create the store; ``record`` writes a transaction's changes to storage, at its revision: see ``journal``."""
        self._record = record
        self._meta = meta
        self._election = election
        self._name = name
        self._rng = rng
        self._key = keys.group_key(name.topic, name.group)
        self._prefix = keys.offsets_prefix(name.topic, name.group)
        self._revisions: dict[str, int] = {}
        """Modification revisions of the group's record and committed offsets, without missing keys."""

    async def load(self, *, is_again: bool = False) -> tuple[GroupRecord, dict[int, CommittedOffset]] | None:
        """Load the group; return None if it does not exist.

        ``is_again``: whether this leader loaded the group before. A write with an unknown outcome, or of a cancelled
        writer, may be in etcd and not in the journal yet. Raises Unavailable, and Corrupt or Unsupported for a foreign
        value.
        """
        entry = await self._meta.get(self._key)
        if entry is None:
            return None
        snapshot = await self._meta.list(self._prefix)
        self._revisions = {e.key: e.mod_revision for e in (entry, *snapshot.entries)}
        if is_again:
            puts = [Put(e.key, e.value) for e in (entry, *snapshot.entries)]
            await self._record(snapshot.revision, [Delete(self._key), Delete(self._prefix, prefix=True)])
            for at in range(0, len(puts), CHANGES_PER_TRANSACTION):
                await self._record(snapshot.revision, puts[at : at + CHANGES_PER_TRANSACTION])
        committed = {keys.parse_offset_key(e.key)[2]: committed_from_json(e.value) for e in snapshot.entries}
        return group_from_json(entry.value), committed

    async def create(self, record: GroupRecord, committed: Mapping[int, CommittedOffset], topic_revision: int) -> None:
        """Write a group that does not exist, while the topic is at this revision.

        A group exists only with its record: the record comes last, after the deletion of what an interrupted creation
        may have left. Raises Conflict if the group exists or the topic changed, and as :meth:`write`.
        """
        self._revisions = {self._key: 0}
        puts = {self._offset_key(s): committed_to_json(value) for s, value in committed.items()}
        await self._tried({}, [Delete(self._prefix, prefix=True)], ())
        for chunk in _chunks(puts):
            await self._write(chunk)
        topic = Compare(keys.topic_key(self._name.topic), mod_revision=topic_revision)
        await self._write({self._key: group_to_json(record)}, topic)

    async def write(self, record: GroupRecord | None, committed: Mapping[int, CommittedOffset | None]) -> None:
        """Write changes; None deletes an offset. The record comes last, together with the last offsets.

        Raises:
            Conflict: If the group was changed elsewhere, or the topic was deleted; the loaded state is void.
            StaleMetadata: If this broker does not lead.
            Unavailable, ResourceExhausted: If etcd keeps rejecting the write; its outcome is unknown.
        """
        new = {self._offset_key(s): committed_to_json(c) if c else None for s, c in committed.items()}
        if record is not None and not any(new.values()) and self._revisions.keys() <= {*new, self._key}:
            await self._forget_offsets(record)
            return
        chunks = _chunks(new)
        if record is not None:
            last = chunks.pop() if chunks and len(chunks[-1]) < CHANGES_PER_TRANSACTION else {}
            chunks.append({**last, self._key: group_to_json(record)})
        for chunk in chunks:
            await self._write(chunk)

    def check_leading(self) -> None:
        """Raise StaleMetadata unless this broker surely leads. Replies without a write also require that."""
        if self._election.revision is None:
            raise StaleMetadata(f"{self._name} continues at another leader")

    async def delete(self) -> None:
        """Remove the group. Errors are those of :meth:`write`."""
        gone = dict.fromkeys(self._revisions)
        await self._tried({self._key: None}, [Delete(self._key), Delete(self._prefix, prefix=True)], ())
        self._adopt(gone, 0)

    async def _forget_offsets(self, record: GroupRecord) -> None:
        """Delete all offsets in one transaction, regardless of their number."""
        value = group_to_json(record)
        gone: dict[str, bytes | None] = {key: None for key in self._revisions if key != self._key}
        revision = await self._tried({self._key: value}, [Put(self._key, value), Delete(self._prefix, prefix=True)], ())
        self._adopt({**gone, self._key: value}, revision)

    async def _write(self, new: Mapping[str, bytes | None], *compares: Compare) -> None:
        then: list[Put | Delete] = [Delete(k) if value is None else Put(k, value) for k, value in new.items()]
        self._adopt(new, await self._tried(new, then, compares))

    async def _tried(
        self, new: Mapping[str, bytes | None], then: list[Put | Delete], compares: tuple[Compare, ...]
    ) -> int:
        """Retry the transaction until its outcome is known; return its revision."""
        every = [*compares, *(Compare(key, mod_revision=self._revisions.get(key, 0)) for key in {*new, self._key})]
        trying = retrying(backoff(self._rng, 0.05, 1.0), on=UNANSWERED, stop=after_s(WRITE_TIMEOUT_S))
        unclear = False
        async for attempt in trying:
            with attempt:
                try:
                    revision = await self._election.transact(every, then)
                    if revision is None and unclear:
                        revision = await self._done_at(new)
                except UNANSWERED:
                    unclear = True
                    raise
                except Deposed as error:  # a member would take Deposed for its own end
                    raise StaleMetadata(f"{self._name} continues at another leader: {error}") from error
        if revision is None:
            raise Conflict(f"{self._name} changed concurrently: retry")
        await self._record(revision, then)
        return revision

    async def _done_at(self, new: Mapping[str, bytes | None]) -> int | None:
        """Return the revision at which an earlier attempt succeeded, if one did."""
        record = await self._meta.get(self._key)
        snapshot = await self._meta.list(self._prefix)
        found = {e.key: e for e in (*snapshot.entries, *([record] if record else []))}
        if any((found[key].value if key in found else None) != value for key, value in new.items()):
            return None
        return max((found[key].mod_revision for key in new if key in found), default=0)

    def _adopt(self, new: Mapping[str, bytes | None], revision: int) -> None:
        for key, value in new.items():
            if value is None:
                self._revisions.pop(key, None)
            else:
                self._revisions[key] = revision

    def _offset_key(self, segment: int) -> str:
        return keys.offset_key(self._name.topic, self._name.group, segment)


class GroupStores:
    """The stores of all groups of one leadership, which share its journal."""

    def __init__(self, meta: MetaStore, store: SegmentStore, election: Election, rng: random.Random) -> None:
        self._meta = meta
        self._election = election
        self._rng = rng
        self.journal = GroupJournal(meta=meta, store=store, election=election, rng=rng)

    def of(self, name: GroupName) -> GroupStore:
        """Return the store of a group, which may not exist yet."""
        return GroupStore(self._meta, self._election, name, self._rng, self.journal.record)

    async def records(self) -> dict[GroupName, GroupRecord]:
        """Return the record of every readable group by name, also of deleted topics."""
        found = {}
        for entry in (await self._meta.list(keys.GROUPS)).entries:
            try:
                topic, group = keys.parse_group_key(entry.key)
                found[GroupName(topic, group)] = group_from_json(entry.value)
            except (Corrupt, Unsupported) as error:
                log.error("etcd key ignored: %r: %s", entry.key, error)
        return found


def _chunks(new: Mapping[str, bytes | None]) -> list[dict[str, bytes | None]]:
    chunks: list[dict[str, bytes | None]] = []
    size_bytes = 0
    for key, value in new.items():
        added_bytes = len(key) + len(value or b"")
        if not chunks or len(chunks[-1]) == CHANGES_PER_TRANSACTION or size_bytes + added_bytes > CHUNK_BYTES_MAX:
            chunks.append({})
            size_bytes = 0
        chunks[-1][key] = value
        size_bytes += added_bytes
    return chunks
