"""Fields of groups and topics: totals, starts, and unknown values."""

from dataclasses import replace

import pyarrow as pa

from seaweedmq.cli.fields import description_fields, group_fields, start_text
from seaweedmq.cli.options import parse_start
from seaweedmq.client.start import start_of
from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.groups import GroupDescription, GroupMember, GroupTopic, SegmentLag
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.model.topic import TopicName
from tests.support.segments import make_topic


def lag(segment: int, records: int, owner: str = "") -> SegmentLag:
    return SegmentLag(segment=segment, owner=owner, committed=5, end_offset=5 + records, lag_records=records)


def topic(topic: str, *lags: SegmentLag) -> GroupTopic:
    members = (GroupMember(id="m-1", client="host/7", connected=True, segments=(2,)),)
    name = TopicName("shop", topic)
    return GroupTopic(topic=name, generation=3, start=EARLIEST, members=members, segments=lags, finished=(0,))


ORDERS = topic("orders", lag(1, 10), lag(2, 30, "m-1"))


def test_records_add_up_and_time_is_that_of_the_last() -> None:
    group = GroupDescription(group="billing", topics=(ORDERS, topic("returns", lag(7, 1))))
    fields = group_fields(group, {"shop/orders": {1: 2.5, 2: 0.5}, "shop/returns": {7: 9.0}})
    assert (fields["lag_records"], fields["lag_s"]) == (41, 9.0)
    assert [(t["lag_records"], t["lag_s"]) for t in fields["topics"]] == [(40, 2.5), (1, 9.0)]
    assert fields["topics"][0]["segments"] == [
        {"segment": 1, "owner": None, "committed": 5, "end_offset": 15, "lag_records": 10, "lag_s": 2.5},
        {"segment": 2, "owner": "m-1", "committed": 5, "end_offset": 35, "lag_records": 30, "lag_s": 0.5},
    ]
    (member,) = fields["topics"][0]["members"]
    assert member == {"member": "m-1", "client": "host/7", "connected": True, "segments": (2,)}


def test_what_is_not_known_of_one_segment_is_not_known_in_total() -> None:
    fields = group_fields(GroupDescription(group="billing", topics=(ORDERS,)), {"shop/orders": {1: 2.5}})
    assert (fields["lag_records"], fields["lag_s"]) == (40, None)


def test_a_group_that_has_read_everything_lags_by_nothing() -> None:
    fields = group_fields(GroupDescription(group="billing", topics=(topic("orders"),)), {})
    assert (fields["lag_records"], fields["lag_s"]) == (0, 0.0)


def test_a_start_is_shown_as_it_was_written() -> None:
    for text in ("earliest", "latest", "offset:12", "time:2026-01-31T12:00:00+00:00"):
        assert start_text(start_of(parse_start(text))) == text


def test_a_topic_tells_which_columns_its_delta_table_lacks_and_why() -> None:
    columns = pa.schema([("number", pa.int64()), ("at", pa.time64("us")), ("took", pa.duration("ns"))])
    typed = make_topic(schema_to_bytes(columns))
    found = description_fields(TopicDescription(topic=typed, segments=(), addresses={}))
    assert found["left_out_of_delta"] == [
        "at (time64[us]: Delta has no such type)",
        "took (duration[ns]: Delta has no such type)",
    ]
    plain = replace(typed, schema=None)
    assert description_fields(TopicDescription(topic=plain, segments=(), addresses={}))["left_out_of_delta"] is None
