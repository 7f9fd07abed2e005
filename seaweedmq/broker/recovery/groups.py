"""Native groups, read from their journals in the storage."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.codec.paths import parse_journal_name
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_journal import replayed
from seaweedmq.codec.state.group_metadata import group_from_json
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore

READ_ATTEMPTS = 3
"""Number of times that journals are listed if one is deleted before it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroups:
    """The native groups of the storage: their etcd keys and values."""

    values: Mapping[str, bytes]
    journal: str
    """The name of the journal that was read; empty if there is none."""
    generation: int = 0
    """The highest generation of any journal."""


async def find_groups(store: SegmentStore) -> FoundGroups:
    """Read the last journal with a complete snapshot: a leader that began a later one acknowledged nothing in it.

    Raises StorageFailed; Corrupt if a journal is damaged, or journals disappear while they are read; and Unsupported.
    """
    for _ in range(READ_ATTEMPTS):
        names = await store.list_journals()
        generation = max((parsed[0] for name in names if (parsed := parse_journal_name(name))), default=0)
        try:
            for name in reversed(names):
                values = replayed(await store.read_journal(name))
                if values is not None:
                    return FoundGroups(values=values, journal=name, generation=generation)
        except NotFound:
            continue  # a leader replaced it meanwhile
        return FoundGroups(values={}, journal="", generation=generation)
    raise Corrupt(
        "journals of groups disappear while they are read: stop the program that deletes files in the storage"
    )


def living(values: Mapping[str, bytes], uids: Mapping[TopicName, int]) -> tuple[dict[str, bytes], list[str]]:
    """Return the keys of groups whose topic exists, with their offsets, and notes about unreadable values.

    A group is deleted with its topic, so a group of another topic uid is dropped. So are offsets without a group.
    """
    kept: dict[str, bytes] = {}
    notes: list[str] = []
    groups: set[tuple[TopicName, str]] = set()
    for key, value in values.items():
        if not key.startswith(keys.GROUPS):
            continue
        try:
            topic, group = keys.parse_group_key(key)
            if group_from_json(value).topic_uid == uids.get(topic):
                groups.add((topic, group))
                kept[key] = value
        except Corrupt as error:
            notes.append(f"group {key!r} is omitted: {error}")
    for key, value in values.items():
        if not key.startswith(keys.OFFSETS):
            continue
        try:
            topic, group, _ = keys.parse_offset_key(key)
        except Corrupt as error:
            notes.append(f"offset {key!r} is omitted: {error}")
            continue
        if (topic, group) in groups:
            kept[key] = value
    return kept, notes
