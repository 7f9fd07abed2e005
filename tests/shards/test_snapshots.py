"""Snapshots of a shard: when they are due, and how their records mix with others."""

from collections.abc import Iterator

from seaweedmq.codec.kafka.group_records import encode_record
from seaweedmq.model.kafka.groups import OffsetRecord, OffsetValue, ShardRecord
from seaweedmq.shards.machine import Pair
from seaweedmq.shards.shard_log import ShardContents
from seaweedmq.shards.snapshots import AFTER_BYTES, AFTER_S, PIECE_BYTES, ROUND_BYTES, Snapshots


def offset(partition: int, at: int = 0) -> OffsetRecord:
    return OffsetRecord("group", "topic", partition, OffsetValue(offset=at, metadata="x" * 1_000, commit_ms=0))


def state(count: int) -> Iterator[ShardRecord]:
    return (offset(partition) for partition in range(count))


class Written:
    """A log, and the snapshots in it."""

    def __init__(self, after_bytes: int, round_bytes: int = 0) -> None:
        self.snapshots = Snapshots(encode_record, after_bytes, round_bytes)
        self.log: list[Pair] = []
        self.marks: list[int] = []
        self.now = 0.0

    def write(self, *records: ShardRecord, states: int = 1_000) -> int:
        """Append these records, and return the number of snapshot records that were appended with them."""
        self.snapshots.begin_if_due(len(self.log), lambda: state(states), self.now)
        pairs = [encode_record(record) for record in records]
        self.snapshots.note(pairs)
        piece = self.snapshots.piece()
        self.log += [*pairs, *piece]
        mark = self.snapshots.take_mark()
        if mark is not None:
            self.marks.append(mark)
        return len(piece)

    def latest(self, start: int) -> dict[bytes, bytes | None]:
        return dict(self.log[start:])


def test_one_is_due_when_so_much_was_written_and_is_appended_in_pieces() -> None:
    written = Written(after_bytes=100_000)
    rounds = 0
    while not written.snapshots.under_way:
        assert not written.marks
        written.write(offset(0, rounds))
        rounds += 1
    assert 90 < rounds < 110
    pieces = 1
    while written.snapshots.under_way:
        assert written.write() * 1_000 <= PIECE_BYTES
        pieces += 1
    assert pieces == 5
    assert written.marks == [rounds - 1]
    assert len(written.latest(written.marks[0])) == 1_000


def test_what_is_written_meanwhile_counts_more_than_what_the_snapshot_says_of_it() -> None:
    written = Written(after_bytes=1)
    written.write(offset(7, 1))
    begun = written.write(offset(7, 2))
    assert 0 < begun < 1_000
    while written.snapshots.under_way:
        written.write(offset(999, 3))
    (mark,) = written.marks
    latest = written.latest(mark)
    assert len(latest) == 1_000
    assert latest[encode_record(offset(7))[0]] == encode_record(offset(7, 2))[1]
    assert latest[encode_record(offset(999))[0]] == encode_record(offset(999, 3))[1]


def test_what_is_gone_meanwhile_does_not_come_back() -> None:
    written = Written(after_bytes=1)
    written.write(offset(7, 1))
    written.write(offset(7, 2))
    while written.snapshots.under_way:
        written.write(OffsetRecord("group", "topic", 999, None))
    assert written.latest(written.marks[0])[encode_record(offset(999))[0]] is None


def test_a_large_state_is_not_written_again_and_again() -> None:
    written = Written(after_bytes=10_000)
    for number in range(3_000):
        written.write(offset(0, number))
    assert len(written.log) < 3 * 3_000
    assert 1 <= len(written.marks) <= 3


def test_what_had_to_be_read_counts_as_written() -> None:
    written = Written(after_bytes=10_000)
    written.snapshots.loaded(ShardContents({}, read_bytes=9_000), 0.0)
    assert written.write() == 0
    written.write(offset(0, 1))
    assert written.write() > 0


def test_many_small_appends_bring_one_sooner_than_their_bytes_do() -> None:
    """A new coordinator loads them one by one, and meanwhile the groups have none."""
    written = Written(AFTER_BYTES, ROUND_BYTES)
    rounds = 0
    while not written.snapshots.under_way:
        written.write(OffsetRecord("group", "topic", 0, None))
        rounds += 1
    assert 3_000 < rounds < 5_000
    again = Snapshots(encode_record)
    again.loaded(ShardContents({}, read_bytes=50 * rounds, read_frames=rounds), 0.0)
    again.begin_if_due(7, lambda: state(1), 0.0)
    assert again.under_way


def test_a_group_of_few_commits_has_one_as_often_as_its_log_is_rolled() -> None:
    written = Written(after_bytes=1_000_000)
    for number in range(10):
        written.now += AFTER_S / 10
        written.write(offset(0, number), states=1)
    assert written.marks == [9], "of what was written in the first nine tenths"
    for _ in range(3):
        written.now += AFTER_S
        written.write(states=1)
    assert written.marks == [9, 10], "once more for the commit of the round that began it, then nothing comes"


def test_a_large_state_is_not_written_for_a_few_commits() -> None:
    written = Written(after_bytes=1_000_000)
    while not written.marks:
        written.write(offset(0), states=100)
    behind = len(written.log)
    for _ in range(11):
        written.now += AFTER_S
        written.write(offset(0), states=100)
    assert len(written.log) == behind + 11, "the last one took 100 kB, an eighth is 12 kB"
    for _ in range(3):
        written.write(offset(0), states=100)
    assert len(written.marks) == 2
