"""Conversion of the etcd values of groups, in the format of ``codec.state.metadata``. Readers ignore unknown fields.

A group's record: ``start`` is [kind, value]; ``members`` id -> [incarnation, client, [former incarnations]]; ``owners``
segment -> [member, generation, 0: owned, 1: revoking or 2: revoking and void]; ``crashes`` segment -> count. A
committed offset: ``deliveries`` offset -> count.
"""

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.group_record import CommittedOffset, GroupRecord, MemberRecord, SegmentOwner
from seaweedmq.model.messages.subscribe import Start, StartKind

_KINDS: dict[str, StartKind] = {kind.value: kind for kind in StartKind}


def group_to_json(record: GroupRecord) -> bytes:
    """Return the etcd value of a group."""
    return to_json(
        {
            "v": METADATA_VERSION,
            "topic_uid": record.topic_uid,
            "start": [record.start.kind.value, record.start.value],
            "horizon": record.horizon,
            "generation": record.generation,
            "members": {name: [m.incarnation, m.client, list(m.former)] for name, m in record.members.items()},
            "owners": {str(s): [o.member, o.generation, o.revoking + o.void] for s, o in record.owners.items()},
            "crashes": {str(s): count for s, count in record.crashes.items()},
        }
    )


def group_from_json(data: bytes) -> GroupRecord:
    """Return the group of an etcd value, or raise Corrupt or, for a newer version, Unsupported."""
    fields = JsonFields("group", data)
    record = GroupRecord(
        topic_uid=fields.uint("topic_uid"),
        start=_start(fields),
        horizon=fields.uint("horizon"),
        generation=fields.uint("generation"),
        members={name: _member(fields, value) for name, value in fields.entries("members").items()},
        owners={segment: _owner(fields, value) for segment, value in fields.numbered("owners").items()},
        crashes=_counts(fields, "crashes"),
    )
    non_members = {owner.member for owner in record.owners.values()} - record.members.keys()
    if non_members:
        raise fields.corrupt("owners", f"{min(non_members)!r} is not a member")
    return record


def committed_to_json(committed: CommittedOffset) -> bytes:
    """Return the etcd value of a committed offset."""
    return to_json(
        {
            "v": METADATA_VERSION,
            "offset": committed.offset,
            "deliveries": {str(offset): count for offset, count in committed.deliveries.items()},
            "at_us": committed.at_us,
        }
    )


def committed_from_json(data: bytes) -> CommittedOffset:
    """Return the committed offset of an etcd value; raises as :func:`group_from_json`."""
    fields = JsonFields("offset", data)
    return CommittedOffset(
        offset=fields.uint("offset"), deliveries=_counts(fields, "deliveries"), at_us=fields.uint("at_us")
    )


def _start(fields: JsonFields) -> Start:
    match fields.items("start"):
        case [str(kind), value] if kind in _KINDS:
            return Start(_KINDS[kind], fields.as_uint("start", value))
    raise fields.corrupt("start", f"it is [one of {', '.join(StartKind)}, number]")


def _member(fields: JsonFields, value: object) -> MemberRecord:
    match value:
        case [incarnation, client, [*former]]:
            return MemberRecord(
                incarnation=fields.as_uint("members", incarnation),
                client=fields.as_text("members", client),
                former=tuple(fields.as_uint("members", item) for item in former),
            )
    raise fields.corrupt("members", "each is [incarnation, client, [former incarnations]]")


def _owner(fields: JsonFields, value: object) -> SegmentOwner:
    match value:
        case [member, generation, state] if state in (0, 1, 2):
            name = fields.as_text("owners", member)
            return SegmentOwner(name, fields.as_uint("owners", generation), revoking=state > 0, void=state == 2)
    raise fields.corrupt("owners", "each is [member, generation, 0, 1 or 2]")


def _counts(fields: JsonFields, field: str) -> dict[int, int]:
    return {number: fields.as_uint(field, count, 1) for number, count in fields.numbered(field).items()}
