"""Description of a group and a topic for administration."""

from collections.abc import Collection, Mapping

from seaweedmq.core.group.group_progress import GroupProgress
from seaweedmq.model.group_record import GroupRecord
from seaweedmq.model.messages.groups import GroupMember, GroupTopic, SegmentLag
from seaweedmq.model.topic import TopicName


def describe(
    topic: TopicName,
    record: GroupRecord,
    progress: GroupProgress,
    connected: Collection[str],
    high_watermarks: Mapping[int, int],
) -> GroupTopic:
    """Return the members, owners and lag of a group in a topic.

    ``high_watermarks`` has the open segments; a missing one counts up to its known end.
    """
    owned: dict[str, list[int]] = {name: [] for name in record.members}
    for segment, owner in sorted(record.owners.items()):
        owned[owner.member].append(segment)
    finished = tuple(s for s in sorted(progress.segments) if progress.finished(s))
    return GroupTopic(
        topic=topic,
        generation=record.generation,
        start=record.start,
        members=tuple(
            GroupMember(id=name, client=member.client, connected=name in connected, segments=tuple(owned[name]))
            for name, member in sorted(record.members.items())
        ),
        segments=tuple(
            _lag(segment, record, progress, high_watermarks)
            for segment in sorted(progress.segments.keys() - set(finished))
        ),
        finished=finished,
    )


def _lag(segment: int, record: GroupRecord, progress: GroupProgress, high_watermarks: Mapping[int, int]) -> SegmentLag:
    owner = record.owners.get(segment)
    committed = progress.committed.get(segment)
    end = max(progress.end(segment), high_watermarks.get(segment, 0))
    return SegmentLag(
        segment=segment,
        owner=owner.member if owner else "",
        committed=committed.offset if committed else None,
        end_offset=end,
        lag_records=max(0, end - progress.position(segment)),
    )
