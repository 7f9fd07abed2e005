"""Reconstruction of lineages from true histories, of which any older documents and the log files survive."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.core.lineage.provenance import RECENT_US, provenance
from seaweedmq.core.lineage.reconstruction import (
    Reconstructed,
    first_new_id,
    latest_topic,
    merged,
    reconstruct,
    unsealed,
)
from seaweedmq.core.lineage.topology import MetadataChange, SegmentEnd, new_topic, succeed, with_partitions
from seaweedmq.errors import Corrupt
from seaweedmq.model.ring import covers_ring
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName, TopicSpec

NAME = TopicName("test", "topic")
NOW_US = 10**15


@dataclass
class History:
    """A topic's true history: every version of its metadata, and the log files that its segments wrote."""

    topic: Topic
    segments: dict[int, Segment]
    now_us: int = NOW_US
    versions: list[tuple[Topic, tuple[Segment, ...]]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """End offset of each segment, as its files have it."""
    files: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    """Segments that a log file of each segment records; a segment without records has no file."""

    @classmethod
    def begun(cls, spec: TopicSpec) -> "History":
        change = new_topic(spec, uid=7, now_us=NOW_US, placement=[("b-1",)] * spec.first_segments)
        history = cls(change.topic, {})
        history.take(change)
        return history

    def take(self, change: MetadataChange) -> None:
        self.topic = change.topic
        self.segments |= {segment.id: segment for segment in change.segments}
        self.versions.append((self.topic, tuple(self.segments.values())))

    @property
    def open(self) -> list[Segment]:
        return sorted((s for s in self.segments.values() if s.is_open), key=lambda s: s.slots)

    def store(self, segment: Segment, records: int) -> None:
        """Store records on the primary, in a new file."""
        self.files[segment.id] = provenance(segment, self.segments)
        self.ends[segment.id] = self.ends.get(segment.id, segment.start_offset) + records

    def replace(self, parents: Sequence[Segment], ranges: Sequence[object]) -> None:
        sealings = [
            SegmentEnd(segment=p, end_offset=self.ends.get(p.id, p.start_offset), epoch=p.epoch, sequences=())
            for p in parents
        ]
        placement = [("b-2",)] * len(ranges)
        self.take(succeed(self.topic, sealings, ranges=ranges, placement=placement, now_us=self.now_us))  # type: ignore[arg-type]


@st.composite
def histories(draw: st.DrawFn) -> History:
    partitions = draw(st.sampled_from([None, None, 1, 3]))
    segments = 1 if partitions else draw(st.integers(1, 3))
    history = History.begun(TopicSpec(name=NAME, partitions=partitions, segments=segments))
    for _ in range(draw(st.integers(0, 14))):
        history.now_us += draw(st.sampled_from([0, 1_000, RECENT_US, 3 * RECENT_US]))
        chosen = draw(st.integers(0, len(history.open) - 1))
        segment = history.open[chosen]
        step = draw(st.sampled_from(["store", "store", "move", "split", "merge", "grow"]))
        if step == "store":
            history.store(segment, draw(st.integers(1, 5)))
        elif step == "split" and not partitions and segment.slots.width > 4:
            lower, upper = segment.slots.split(segment.slots.lo + segment.slots.width // 3)
            history.replace([segment], [lower, upper])
        elif step == "merge" and not partitions and chosen + 1 < len(history.open):
            after = history.open[chosen + 1]
            history.replace([segment, after], [replace_range(segment, after)])
        elif step == "grow" and partitions and history.topic.partitions == partitions:
            history.take(
                with_partitions(history.topic, partitions + 2, now_us=history.now_us, placement=[("b-3",)] * 2)
            )
        else:
            history.replace([segment], [segment.slots])
    return history


def replace_range(first: Segment, after: Segment) -> object:
    return replace(first.slots, hi=after.slots.hi)


def rebuilt(history: History, topic_at: int, lineage_at: int, *, known_at: int | None = None) -> Reconstructed:
    """Reconstruct from documents of earlier versions, the log files, and an earlier etcd if there is one."""
    document, lineage = history.versions[topic_at][0], history.versions[lineage_at][1]
    topic = latest_topic(document, None if known_at is None else history.versions[known_at][0])
    stored = [*lineage, *(record for records in history.files.values() for record in records)]
    floor = first_new_id(document, merged(topic, stored), history.files.keys(), generation=1)
    known = () if known_at is None else history.versions[known_at][1]
    records = merged(topic, [*stored, *known])
    ends = {n: history.ends.get(n, records[n].start_offset) for n in unsealed(topic, records)}
    return reconstruct(topic, records, ends=ends, first_new=floor, now_us=NOW_US)


def check(history: History, found: Reconstructed) -> None:
    """Assert the promises of a recovered lineage."""
    segments = {segment.id: segment for segment in found.segments}
    assert covers_ring([s.slots for s in found.segments if s.is_open], found.topic.ring)
    assert history.files.keys() <= segments.keys(), "every record is reachable"
    for number in history.files:
        truth, mine = history.segments[number], segments[number]
        assert (mine.slots, mine.start_offset) == (truth.slots, truth.start_offset)
        if mine.end_offset is not None:
            assert mine.end_offset >= history.ends[number], "a record lies beyond the end"
            assert mine.end_offset == (history.ends[number] if truth.end_offset is None else truth.end_offset)
    used = set(history.segments)
    assert found.topic.next_segment > max(used), "an id is given twice"
    assert not used & set(found.opened), "an id is given twice"
    for segment in found.segments:
        assert segment.is_open == (not segment.successors)
        for number in segment.predecessors:
            before = segments[number]
            assert number < segment.id
            assert segment.id in before.successors
            assert before.end_offset is not None
            assert before.end_offset <= segment.start_offset, "offsets rise along the lineage"
        for number in segment.successors:
            assert segment.id in segments[number].predecessors
    for slot in {s.slots.lo for s in found.segments} | {s.slots.hi - 1 for s in found.segments}:
        chain = sorted((s for s in found.segments if slot in s.slots), key=lambda s: s.id)
        truth_of_slot = [n for n in sorted(history.files) if slot in history.segments[n].slots]
        assert [s.id for s in chain if s.id in history.files] == truth_of_slot
        for before, after in pairwise(chain):
            assert before.id in after.predecessors, "a reader would pass to the successor too early"


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_a_lineage_is_rebuilt_from_any_older_documents_and_the_log_files(data: st.DataObject) -> None:
    history = data.draw(histories())
    last = len(history.versions) - 1
    versions = st.integers(0, last)
    known = data.draw(st.none() | versions)
    check(history, rebuilt(history, data.draw(versions), data.draw(versions), known_at=known))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_documents_that_are_up_to_date_are_the_lineage(data: st.DataObject) -> None:
    history = data.draw(histories())
    last = len(history.versions) - 1
    found = rebuilt(history, last, data.draw(st.integers(0, last)) if history.files else last)
    check(history, found)
    whole = rebuilt(history, last, last)
    assert {s.id: s for s in whole.segments} == history.segments
    assert whole.opened == ()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_second_attempt_comes_to_the_same_end(data: st.DataObject) -> None:
    """A killed attempt leaves the topic and some of its segments in etcd."""
    history = data.draw(histories())
    versions = st.integers(0, len(history.versions) - 1)
    topic_at, lineage_at = data.draw(versions), data.draw(versions)
    first = rebuilt(history, topic_at, lineage_at)
    written = first.segments[: data.draw(st.integers(0, len(first.segments)))]
    document, lineage = history.versions[topic_at][0], history.versions[lineage_at][1]
    topic = latest_topic(document, first.topic)
    stored = [*lineage, *(record for records in history.files.values() for record in records)]
    floor = first_new_id(document, merged(topic, stored), history.files.keys(), generation=1)
    records = merged(topic, [*stored, *written])
    ends = {n: history.ends.get(n, records[n].start_offset) for n in unsealed(topic, records)}
    second = reconstruct(topic, records, ends=ends, first_new=floor, now_us=NOW_US)
    assert second.topic == first.topic
    assert second.segments == first.segments


def test_a_second_recovery_repeats_no_id_of_segments_that_stored_nothing_since_the_first() -> None:
    history = History.begun(TopicSpec(name=NAME))
    history.store(history.segments[0], 3)
    document, records = history.versions[0][0], history.files[0]
    known = merged(document, records)
    first, second = (first_new_id(document, known, history.files.keys(), generation=g) for g in (1, 2))
    assert second >= first + 1_000


@pytest.mark.parametrize("at", [None, 100])
def test_a_move_or_split_that_only_a_log_file_knows_keeps_its_ids(at: int | None) -> None:
    """The first half of the split stored nothing."""
    history = History.begun(TopicSpec(name=NAME))
    first = history.segments[0]
    history.store(first, 3)
    history.replace([first], [first.slots] if at is None else first.slots.split(at))
    history.store(history.open[-1], 2)
    found = rebuilt(history, 0, 0)
    assert found.segments == tuple(history.segments.values())


def test_segments_that_no_record_seals_end_where_their_files_end_or_their_successor_begins() -> None:
    """Two neighbors with ends 5 and 2 are merged into a segment that stores nothing and is moved much later."""
    history = History.begun(TopicSpec(name=NAME, segments=2))
    history.store(history.segments[0], 5)
    history.store(history.segments[1], 2)
    for _ in range(2):
        history.now_us += 3 * RECENT_US
        history.replace(history.open, [history.topic.ring])
    history.store(history.segments[3], 1)
    found = rebuilt(history, 0, 0)
    assert [(s.id, s.end_offset) for s in found.segments] == [(0, 5), (1, 2), (2, 5), (3, None)]
    history.ends[0] += 10  # its file was written on after the seal
    found = rebuilt(history, 0, 0)
    assert found.segments[0].end_offset == history.segments[3].start_offset == 5


def test_the_later_record_of_a_topic_has_the_settings_and_each_what_only_grows() -> None:
    history = History.begun(TopicSpec(name=NAME))
    first = replace(history.topic, retention_s=1.0, low_watermarks=(4,))
    later = replace(history.topic, retention_s=2.0, next_segment=3)
    for found in (latest_topic(first, later), latest_topic(later, first)):
        assert (found.retention_s, found.next_segment, found.low_watermarks) == (2.0, 3, (4,))
    assert latest_topic(first, replace(first, retention_s=9.0)) == first, "a document is as late as an equal etcd"
    assert latest_topic(first, replace(later, uid=8)) == first


def test_partitions_that_only_a_log_file_knows_are_found_and_records_of_two_clusters_told_apart() -> None:
    history = History.begun(TopicSpec(name=NAME, partitions=1))
    history.take(with_partitions(history.topic, 4, now_us=NOW_US, placement=[("b-1",)] * 3))
    history.store(history.segments[2], 1)
    found = rebuilt(history, 0, 0)
    assert found.topic.partitions == 3
    assert [s.slots.lo for s in found.segments if s.id in found.opened] == [1]
    history = History.begun(TopicSpec(name=NAME))
    other = replace(history.segments[0], start_offset=5)
    with pytest.raises(Corrupt, match="another cluster"):
        merged(history.topic, [history.segments[0], other])
