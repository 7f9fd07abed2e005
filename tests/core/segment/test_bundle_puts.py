"""PUTs of bundles, as transcripts: what the object store answers, and what may be acknowledged."""

from dataclasses import replace

from seaweedmq.core.segment.bundle_puts import BundlePuts, EndSequence, Put, PutAnswer, RaiseDone, ReadHeader
from seaweedmq.model.bundle import EntryHeader, EntryKind


def nonce(number: int) -> bytes:
    return bytes([number]) * 16


def header(number: int) -> EntryHeader:
    return EntryHeader(
        kind=EntryKind.BUNDLE, number=number, floor=0, done=0, checkpoint=0, nonce=nonce(number), time_us=0
    )


FENCE = replace(header(2), kind=EntryKind.FENCE, nonce=nonce(99))


class Transcript:
    """A writer with bundles 1 to 3 under way since second 1, step by step."""

    def __init__(self) -> None:
        self.puts = BundlePuts()
        self.lines: list[str] = []
        self.now = 1.0
        for number in (1, 2, 3):
            assert self.puts.begin(number, nonce(number), 1.0) == (Put(number),)

    def answer(self, number: int, answer: PutAnswer) -> None:
        self.note(f"{number}: {answer}", self.puts.answered(number, answer, self.now))

    def read(self, number: int, entry: EntryHeader | None) -> None:
        there = "nothing" if entry is None else "a fence" if entry.is_fence else f"bundle {entry.number}"
        self.note(f"{number} has {there}", self.puts.header_read(number, entry))

    def tick(self, now: float) -> None:
        self.now = now
        self.note(f"{now:.2f}", self.puts.second_puts(now))

    def note(self, what: str, actions: object) -> None:
        self.lines.append(f"{what}: {', '.join(map(_told, actions)) or '-'}")  # type: ignore[call-overload]


def _told(action: object) -> str:
    match action:
        case Put(number):
            return f"put {number}"
        case ReadHeader(number):
            return f"read {number}"
        case RaiseDone(number):
            return f"all below {number} are done"
        case EndSequence(number):
            return f"ended at {number}"
    raise AssertionError(action)


def test_a_bundle_is_acknowledged_once_all_lower_ones_are_done() -> None:
    transcript = Transcript()
    transcript.answer(3, PutAnswer.CREATED)
    transcript.answer(2, PutAnswer.CREATED)
    transcript.answer(1, PutAnswer.CREATED)
    assert transcript.lines == [
        "3: created: -",
        "2: created: -",
        "1: created: all below 4 are done",
    ]


def test_a_lost_reply_is_found_by_the_nonce() -> None:
    transcript = Transcript()
    transcript.answer(1, PutAnswer.NO_ANSWER)
    transcript.answer(1, PutAnswer.EXISTS)
    transcript.read(1, header(1))
    transcript.answer(1, PutAnswer.CREATED)
    assert transcript.lines == [
        "1: no answer: put 1",
        "1: exists: read 1",
        "1 has bundle 1: all below 2 are done",
        "1: created: -",
    ]


def test_a_conflict_says_nothing_and_neither_does_a_name_that_is_taken_by_nothing() -> None:
    transcript = Transcript()
    transcript.answer(1, PutAnswer.CONFLICT)
    transcript.answer(1, PutAnswer.EXISTS)
    transcript.read(1, None)
    transcript.answer(1, PutAnswer.CREATED)
    assert transcript.lines == [
        "1: conflict: put 1",
        "1: exists: read 1",
        "1 has nothing: put 1",
        "1: created: all below 2 are done",
    ]


def test_after_a_fence_nothing_is_acknowledged_whatever_answers_come() -> None:
    transcript = Transcript()
    transcript.answer(3, PutAnswer.CREATED)
    transcript.answer(2, PutAnswer.EXISTS)
    transcript.read(2, FENCE)
    transcript.answer(1, PutAnswer.CREATED)
    transcript.answer(2, PutAnswer.CREATED)
    transcript.tick(9.0)
    assert transcript.lines == [
        "3: created: -",
        "2: exists: read 2",
        "2 has a fence: ended at 2",
        "1: created: -",
        "2: created: -",
        "9.00: -",
    ]
    assert transcript.puts.done_below == 1
    assert transcript.puts.begin(4, nonce(4), 9.0) == ()
    assert transcript.puts.second_put_s() is None


def test_entry_0_of_another_broker_of_the_same_id_ends_the_sequence_before_it_begins() -> None:
    puts = BundlePuts(next_number=0)
    puts.begin(0, nonce(7), 0.0)
    assert puts.answered(0, PutAnswer.EXISTS, 0.1) == (ReadHeader(0),)
    assert puts.header_read(0, header(0)) == (EndSequence(0),)


def test_a_slow_put_is_sent_a_second_time_once() -> None:
    transcript = Transcript()
    assert transcript.puts.second_put_s() == 1.3
    transcript.tick(1.29)
    transcript.answer(2, PutAnswer.CREATED)
    transcript.tick(1.95)
    transcript.tick(5.0)
    transcript.answer(1, PutAnswer.CREATED)
    assert transcript.lines == [
        "1.29: -",
        "2: created: -",
        "1.95: put 1, put 3",
        "5.00: -",
        "1: created: all below 3 are done",
    ]


def test_the_second_put_waits_three_times_as_long_as_19_of_20_puts_take() -> None:
    puts = BundlePuts()
    for number in range(1, 101):
        puts.begin(number, nonce(number), 0.0)
        puts.answered(number, PutAnswer.CREATED, 0.2 if number < 96 else 5.0)
    puts.begin(101, nonce(101), 10.0)
    assert puts.second_put_s() == 10.0 + 3 * 0.2
    for number in range(102, 202):
        puts.begin(number, nonce(number), 20.0)
        puts.answered(number, PutAnswer.CREATED, 20.01)
    assert puts.second_put_s() == 10.3, "of a fast store, 0.3 s"
