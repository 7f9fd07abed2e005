"""Mutants of duplicate detection: known producers, their remembered frames, and the meaning of a missing producer."""

from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.serve import publish
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.core.lineage import topology
from seaweedmq.core.segment.producer_limits import ProducerLimits
from seaweedmq.core.segment.producers import ProducerTable


def forget_producers_with_open_streams(patch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the longest idle producer is forgotten even with an open stream, and restarts at sequence 0."""
    find_repeat, record = ProducerTable.find_repeat, ProducerTable.record

    def forget(table: Any, now: float, *, keep: int) -> int:
        keep = table._limits.producers if keep else 0
        forgotten = max(0, len(table._producers) - keep)
        for producer_id in list(table._producers)[:forgotten]:
            table._forget(producer_id)
        return forgotten

    def open_at_0(table: Any, producer_id: int, producer_epoch: int, first_sequence: int, now: float) -> int:
        known = table._producers.get(producer_id)
        return known.next_sequence if known is not None else 0

    def find(table: Any, producer_id: int, producer_epoch: int, first_sequence: int, count: int, now: float) -> Any:
        if producer_id not in table._producers:
            table._add(producer_id, producer_epoch, 0)
        return find_repeat(table, producer_id, producer_epoch, first_sequence, count, now)

    def record_and_forget(table: Any, producer_id: int, producer_epoch: int, ack: Any, now: float) -> None:
        record(table, producer_id, producer_epoch, ack, now)
        table._forget_idle(0.0, keep=1)

    patch.setattr(ProducerTable, "_forget_idle", forget)
    patch.setattr(ProducerTable, "open", open_at_0)
    patch.setattr(ProducerTable, "close", lambda table, producer_id, now: None)
    patch.setattr(ProducerTable, "find_repeat", find)
    patch.setattr(ProducerTable, "record", record_and_forget)


def take_a_short_record_for_a_whole_one(patch: pytest.MonkeyPatch) -> None:
    """A sealed segment records one producer, and every other one counts as without stored records."""
    patch.setattr(topology, "SEALED_SEQUENCES_MAX", 1)
    progress = SealedProducers.progress

    async def by_record(service: Any, topic: Any, segment: Any, producer_id: int, epoch: int, first: int) -> Any:
        return await progress(service, topic, replace(segment, sequences_complete=True), producer_id, epoch, first)

    patch.setattr(SealedProducers, "progress", by_record)


def remember_fewer_frames_than_may_be_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A segment remembers only the last frame of each producer."""
    of = ProducerLimits.of
    patch.setattr(ProducerLimits, "of", classmethod(lambda cls, config: replace(of(config), frames=1)))


def let_older_streams_append(patch: pytest.MonkeyPatch) -> None:
    """A newer stream of a producer does not end the older one."""
    patch.setattr(publish._Stream, "supersede", lambda stream: None)
