"""Mutants of promises to clients, and of schema adoption."""

import sys
from bisect import insort
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seaweedmq import errors
from seaweedmq.broker.leader.topics import topic_creator
from seaweedmq.broker.leader.topics.schema_adopter import SchemaAdopter
from seaweedmq.broker.serve.appender import Appender
from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.client.publish import outbox
from seaweedmq.client.publish.batches import framing
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.codec.slots import slots_of
from seaweedmq.core.member.redelivery import KeyOrder
from seaweedmq.core.publish.outgoing_frame import FrameOutcome
from seaweedmq.core.publish.send_window import SendWindow
from seaweedmq.model.messages.publish import PublishSealed
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.topic import TopicName


def raise_kept_errors_again(patch: pytest.MonkeyPatch) -> None:
    """The client raises the same kept error every time: its traceback grows and holds rejected records in memory."""
    fresh = errors.fresh
    for module in [m for name, m in sys.modules.items() if name.startswith("seaweedmq.")]:
        if getattr(module, "fresh", None) is fresh:
            patch.setattr(module, "fresh", lambda error: error)


def adopt_by_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A topic adopts its schema if none of its records is committed, even with records in flight."""

    async def adopt(schema_adopter: Any, name: TopicName, schema: bytes) -> Any:
        topic = schema_adopter._metadata.topic(name)
        if topic.schema is not None:
            return schema_adopter._metadata.view.revision
        return await schema_adopter._write(replace(topic, schema=schema))

    patch.setattr(SchemaAdopter, "adopt", adopt)


def take_plain_frames_while_a_schema_is_adopted(patch: pytest.MonkeyPatch) -> None:
    """A primary reports its end offsets and keeps accepting plain frames."""

    async def decided(appender: Any, version: int) -> None:
        return None

    patch.setattr(Appender, "_schema_decided", decided)


def read_waiting_frames_by_the_new_schema(patch: pytest.MonkeyPatch) -> None:
    """A plain frame that is routed again is read by the schema that the topic adopted meanwhile."""

    def reroute(box: Any, frame: Any) -> Any:
        stored = next(split_frames(frame.data, verify=False))
        columns = decode_frame(stored, box.schema)
        header = stored.header
        return box._queue(Rows(columns, header.flags, header.timestamp_min, frame.positions, frame.promise))

    patch.setattr(outbox.Outbox, "_reroute", reroute)


def send_again_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    """A publisher resends frames that a sealed segment rejected to its successors in the wrong order."""
    sealed = SendWindow.sealed

    def reversed_by_frame(window: SendWindow, answer: PublishSealed) -> list[FrameOutcome]:
        return sealed(window, answer)[::-1]

    patch.setattr(SendWindow, "sealed", reversed_by_frame)


def deliver_after_standing_still(patch: pytest.MonkeyPatch) -> None:
    """A member that was frozen continues with its old assignment."""
    patch.setattr(
        AssignmentLease,
        "until",
        property(lambda assignment_lease: float("inf"), lambda assignment_lease, until: None),
        raising=False,
    )


def hold_back_what_comes_first(patch: pytest.MonkeyPatch) -> None:
    """A record waits while any other record of its key does, even a later one."""
    offer = KeyOrder.offer

    def offer_behind_all(order: KeyOrder, key: bytes | None, offset: int) -> bool:
        line = None if key is None else order._lines.get(key)
        if line is None:
            return offer(order, key, offset)
        insort(line.offsets, offset)
        if line.offsets[0] == offset:
            order._push(key, line)
        return False

    patch.setattr(KeyOrder, "offer", offer_behind_all)


def read_only_the_partitions_of_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """A subscriber never checks for added partitions."""
    patch.setattr(Subscriber, "_on_description", TopicReader._on_description)


def choose_partitions_by_the_ring(patch: pytest.MonkeyPatch) -> None:
    """A key is routed to the partition of its ring slot instead of Kafka's."""
    patch.setattr(framing, "partitions_of", lambda keys, partitions: slots_of(keys) % np.uint16(partitions))


def choose_again_among_more_partitions(patch: pytest.MonkeyPatch) -> None:
    """A record that waited for a moved partition is routed by the current number of partitions."""
    rows_of_frame = framing.rows_of_frame
    patch.setattr(outbox, "rows_of_frame", lambda frame, schema, ring: rows_of_frame(frame, schema, WHOLE_RING))


def give_added_partitions_ids_twice(patch: pytest.MonkeyPatch) -> None:
    """Segments created after added partitions receive the ids of those partitions' segments."""
    with_partitions = topic_creator.with_partitions

    def again(topic: Any, partitions: int, **more: Any) -> Any:
        change = with_partitions(topic, partitions, **more)
        return replace(change, topic=replace(change.topic, next_segment=topic.next_segment))

    patch.setattr(topic_creator, "with_partitions", again)
