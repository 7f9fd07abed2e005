"""Claim: a topic's history does not slow down daily work: descriptions, seals, the leader's rounds.

It compares 10,000 sealed segments of 100 producers each with 100 sealed segments; CPU time of the event loop.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import lineage_document, lineage_line
from seaweedmq.codec.state.metadata import segment_to_json, topic_to_json
from seaweedmq.coordination.description import describe
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.pruning import is_older, trimmable
from seaweedmq.core.lineage.topology import SegmentEnd, new_topic, succeed
from seaweedmq.model.description import ALL, OPEN, SegmentSelection
from seaweedmq.model.segment import ProducerSequence
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.ports import Put
from seaweedmq.rpc.messages.types import write_description
from tests.doubles.memory_meta import MemoryMetaServer, MemoryMetaStore

NAME = TopicName("bench", "history")
SHORT, LONG = 100, 10_000
PRODUCERS = 100
PUTS_AT_ONCE = 100
PAGE_MS_MAX = 10.0
SHORT_HISTORY = f"of {SHORT} sealed segments"


def run(scale: Scale) -> list[Measure]:
    """Measure pairs: the long history, and the short one that it should equal."""
    long = LONG // 10 if scale.quick else LONG
    short_view, _ = asyncio.run(_mirrored(SHORT))
    view, size_bytes = asyncio.run(_mirrored(long))
    measures = [yardstick("etcd_history", [size_bytes / 1e6], "MB", segments=long, producers=PRODUCERS)]
    rounds: list[tuple[str, Callable[[ClusterView], object], float | None]] = [
        ("describe_open", lambda v: _described(v, OPEN), None),
        ("describe_page", lambda v: _described(v, ALL), PAGE_MS_MAX),
        ("open_segments", lambda v: Metadata(v, cast(Any, None), random.Random(1)).open_segments(), None),
        ("leader_round", _leader_round, None),
        ("lineage_rewrite", _lineage, None),
    ]
    for name, work, limit in rounds:
        yards = [_ms(work, short_view) for _ in range(scale.rounds)]
        ours = [_ms(work, view) for _ in range(scale.rounds)]
        measures.append(yardstick(f"{name} {SHORT_HISTORY}", yards, "ms"))
        measures.append(compared(name, ours, "ms", f"{name} {SHORT_HISTORY}", yards, value_max=limit))
    return measures


async def _mirrored(sealed: int) -> tuple[ClusterView, int]:
    """Return a topic of one range that was sealed so often, as a broker has it, and its size in etcd."""
    spec = TopicSpec(name=NAME)
    change = new_topic(spec, uid=1, now_us=1, placement=[("b-12345678",)])
    sequences = [
        ProducerSequence(producer_id=10**15 + n, producer_epoch=0, next_sequence=10**6) for n in range(PRODUCERS)
    ]
    (last,) = change.segments
    puts: dict[str, bytes] = {}
    topic = change.topic
    for number in range(sealed):
        end = SegmentEnd(segment=last, end_offset=1_000 * number, epoch=1, sequences=sequences)
        step = succeed(topic, [end], ranges=[last.slots], placement=[("b-12345678",)], now_us=number + 2)
        topic, last = step.topic, step.segments[-1]
        puts |= {keys.segment_key(NAME, s.id): segment_to_json(s) for s in step.segments}
    size_bytes = sum(len(key) + len(value) for key, value in puts.items())
    puts[keys.topic_key(NAME)] = topic_to_json(replace(topic, created_us=1))
    store = MemoryMetaStore(MemoryMetaServer())
    items = list(puts.items())
    revision = None
    for at in range(0, len(items), PUTS_AT_ONCE):
        revision = await store.transact([], [Put(key, value) for key, value in items[at : at + PUTS_AT_ONCE]])
    view = ClusterView(store, random.Random(1))
    mirroring = asyncio.create_task(view.run())
    await view.wait_revision(revision or 0)
    mirroring.cancel()
    await asyncio.wait({mirroring})
    return view, size_bytes


def _described(view: ClusterView, which: SegmentSelection) -> int:
    """Return the bytes of the answer."""
    return len(write_description(describe(view, NAME, which)).SerializeToString())


_lines: dict[tuple[int, int], bytes] = {}


def _leader_round(view: ClusterView) -> object:
    known = view.segments[NAME]
    return trimmable(known, is_older(known, 0, lambda _: 0.0, 1.0))


def _lineage(view: ClusterView) -> int:
    """Rewrite ``lineage.json`` when nearly every line is known."""
    known = view.segments[NAME]

    def line(segment: Any) -> bytes:
        key = len(known), segment.id
        if key not in _lines:
            _lines[key] = lineage_line(segment)
        return _lines[key]

    return len(lineage_document(NAME, known.values(), line))


def _ms(work: Callable[[ClusterView], object], view: ClusterView) -> float:
    work(view)
    began = time.process_time()
    work(view)
    return max((time.process_time() - began) * 1e3, 1e-3)
