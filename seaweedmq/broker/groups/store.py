"""A group in etcd: read once, then written by the leader alone, each write comparing the revisions of what it changes.

A transaction whose answer was lost may still be done late. It can not do harm: it would have to find every key as it
was before. It is tried again until it is clear what became of it.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.codec import keys
from seaweedmq.codec.group_metadata import committed_from_json, committed_to_json, group_from_json, group_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION
from seaweedmq.errors import Conflict, Deposed, ResourceExhausted, StaleMetadata, Unavailable
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Compare, Delete, MetaStore, Put
from seaweedmq.runtime.retrying import after_s, backoff, retrying

CHUNK_BYTES_MAX = 1_000_000
"""Leaves room for the record below what a default etcd takes."""
UNANSWERED = (Unavailable, ResourceExhausted)
"""Refusals that are retried: etcd returns, or an operator gives one at a limit more space."""
WRITE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group and the topic it reads."""

    topic: TopicName
    group: str

    def __str__(self) -> str:
        return f"group {self.group} of {self.topic}"


class GroupStore:
    """What etcd keeps of one group and topic. One task uses it at a time."""

    def __init__(
        self,
        meta: MetaStore,
        election: Election,
        name: GroupName,
        rng: random.Random,
        record: Callable[[int, Sequence[Put | Delete]], Awaitable[None]],
    ) -> None:
        """``record`` keeps the changes of a transaction in the storage, at its revision: see ``journal``."""
        self._record = record
        self._meta = meta
        self._election = election
        self._name = name
        self._rng = rng
        self._key = keys.group_key(name.topic, name.group)
        self._prefix = keys.offsets_prefix(name.topic, name.group)
        self._revisions: dict[str, int] = {}
        """Of the group's record and of its committed offsets; what is not there is left out."""

    async def load(self, *, is_again: bool = False) -> tuple[GroupRecord, dict[int, CommittedOffset]] | None:
        """What is there; None if there is no such group.

        Args:
            is_again: whether this leader loaded the group before. A write of unknown outcome, or one whose writer was
                cancelled, may be in etcd and not in the journal yet.

        Raises:
            Unavailable: etcd can not be reached.
            Corrupt, Unsupported: somebody else wrote it.
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
        """Write a group that is not there, while the topic is at this revision.

        Without its record a group does not exist: that comes last, and what a leader that died in between may have
        left goes first.

        Raises:
            Conflict: it is there, or the topic was changed.
            StaleMetadata: this broker does not lead any more.
            Unavailable, ResourceExhausted: etcd refuses for long; it may or may not have happened.
        """
        self._revisions = {self._key: 0}
        puts = {self._offset_key(s): committed_to_json(value) for s, value in committed.items()}
        await self._transact([Delete(self._prefix, prefix=True)])
        for chunk in _chunks(puts):
            await self._write(chunk)
        topic = Compare(keys.topic_key(self._name.topic), mod_revision=topic_revision)
        await self._write({self._key: group_to_json(record)}, topic)

    async def write(self, record: GroupRecord | None, committed: Mapping[int, CommittedOffset | None]) -> None:
        """Write what changed; None deletes an offset. The record comes last, together with the last offsets.

        Raises:
            Conflict: somebody else wrote it, or the topic was deleted; what is known here is worthless.
            StaleMetadata: this broker does not lead any more.
            Unavailable, ResourceExhausted: etcd refuses for long; it may or may not have happened.
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
        """Raise StaleMetadata unless this broker surely leads: what is said without being written needs that, too."""
        if self._election.revision is None:
            raise StaleMetadata(f"{self._name} goes on at another leader")

    async def delete(self) -> None:
        """Remove the group. Errors as for :meth:`write`."""
        gone = dict.fromkeys(self._revisions)
        await self._tried({self._key: None}, [Delete(self._key), Delete(self._prefix, prefix=True)], ())
        self._adopt(gone, 0)

    async def _forget_offsets(self, record: GroupRecord) -> None:
        """All at once, however many they are."""
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
        """Do it until it is clear that it was done, and return the revision."""
        every = [
            *compares,
            *(Compare(key, mod_revision=self._revisions.get(key, 0)) for key in {*new, self._key}),
        ]
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
                except Deposed as error:  # a member would take it for its own end
                    raise StaleMetadata(f"{self._name} goes on at another leader: {error}") from error
        if revision is None:
            raise Conflict(f"{self._name} was changed by somebody else at the same time: try again")
        await self._record(revision, then)
        return revision

    async def _done_at(self, new: Mapping[str, bytes | None]) -> int | None:
        """The revision at which an earlier attempt did it, if one did."""
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

    async def _transact(self, then: list[Put | Delete]) -> None:
        await self._tried({}, then, ())

    def _offset_key(self, segment: int) -> str:
        return keys.offset_key(self._name.topic, self._name.group, segment)


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
