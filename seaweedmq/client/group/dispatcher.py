"""The owner of the records that a group member holds, with its lock and the notices between threads and the loop.

Three kinds of threads use it: the one that takes records (an iterating user's, or the loop's for handlers), the loop's,
and any that acknowledges or rejects. The lock is never held while records are decoded, or across an await.
``core.member`` decides; this module converts records to messages and batches.
"""

import logging
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.client.group.origin import AssignedSegment, GroupOrigin, messages_at
from seaweedmq.client.subscribe.messages import FetchedRows, Message, MessageRun, record_batch_of
from seaweedmq.client.subscribe.topic_reader import MESSAGES_AT_ONCE
from seaweedmq.core.member.acks import IN_FLIGHT, Offsets
from seaweedmq.core.member.holdings import Holdings, Instructions
from seaweedmq.core.member.record_dispatch import Bounds, DeadRecord, NewRows, RecordDispatch
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted
from seaweedmq.runtime.notice import Notice

log = logging.getLogger(__name__)


class Dispatcher:
    """A thread-safe wrapper of a ``RecordDispatch`` and its ``Holdings``. Made in the loop."""

    def __init__(
        self,
        what: str,
        bounds: Bounds,
        assignment_lease: AssignmentLease,
        clock: Callable[[], float],
        give_up: Callable[[DeadRecord[Message]], None],
        *,
        auto_ack: bool,
        columns: Sequence[str] | None,
    ) -> None:
        """Make a dispatcher without segments.

        ``clock`` returns steady seconds. ``give_up`` handles a record that goes to the dead-letter topic; it is called
        under the lock, from any thread. With ``auto_ack`` the request for the next records acknowledges the previous
        ones. ``columns`` are those of batches; None for all.
        """
        self._what = what
        self._assignment_lease = assignment_lease
        self._clock = clock
        self._give_up = give_up
        self._auto_ack = auto_ack
        self._columns = columns
        self._lock = threading.Lock()
        self._dispatch: RecordDispatch[FetchedRows, Message] = RecordDispatch(bounds)
        self._holdings = Holdings(self._dispatch)
        self.commits = self._holdings.commits
        """The commits to send. Only the loop's thread may use them."""
        self.wakeup = Notice()
        """A notice that records may be available."""
        self.attention = Notice()
        """A notice that a position that others wait for may have changed."""
        self._is_paused = False
        self._taken: tuple[GroupOrigin, int, int] | None = None
        """The records that ``auto_ack`` acknowledges at the next request: origin, first offset, number."""
        self._warned = False

    @property
    def is_halted(self) -> bool:
        """Whether delivery stands still: paused, closed, or the assignment may no longer be valid."""
        return self._is_paused or self._dispatch.is_closed or not self._assignment_lease.is_fresh

    @property
    def has_rows(self) -> bool:
        """Whether records may be taken now."""
        with self._lock:
            return not self.is_halted and self._dispatch.has_records

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit is reached."""
        return self._dispatch.left == 0

    @property
    def has_waiting(self) -> bool:
        """Whether records wait for redelivery."""
        with self._lock:
            return self._dispatch.has_waiting

    @property
    def due_s(self) -> float:
        """The earliest time by the clock at which a waiting record may be delivered; ``NEVER`` if none may."""
        with self._lock:
            return NEVER if self.is_halted else self._dispatch.due_s

    def refill(self) -> None:
        """Make records available whose wait is over. Requires that no records are available."""
        with self._lock:
            self._dispatch.take_due(self._clock())

    def wants_rows(self) -> bool:
        """Whether :meth:`receive` may be called."""
        with self._lock:
            blocks = self._dispatch.unacked.check()
            if blocks and not self._warned:
                self._warned = True
                self._warn()
            return not blocks and self._dispatch.wants_rows

    def _warn(self) -> None:
        unacked = self._dispatch.unacked
        log.warning(
            "delivery waits: %s has %d unacknowledged records (%d bytes): call ack(), or raise max_unacked (%d) "
            "and group_unacked_bytes_max (%d)",
            self._what,
            unacked.records,
            unacked.size_bytes,
            unacked.records_max,
            unacked.bytes_max,
        )

    def messages(self) -> Iterator[Message]:
        """Yield messages, some thousand at most."""
        self._fill()
        dispatch, auto_ack = self._dispatch, self._auto_ack
        ready = dispatch.ready
        assignment_lease, clock = self._assignment_lease, self._assignment_lease.clock
        # Inlined ``is_halted``: 0.1 us per record.
        while not (self._is_paused or dispatch.is_closed or clock() > assignment_lease.until):
            try:
                message = ready.pop()
            except IndexError:
                return
            if dispatch.is_strict and not self._admit(message):
                continue
            if auto_ack:
                self._taken = message.origin, message.offset, 1
            yield message
            if auto_ack:
                self.ack_taken()

    def batch(self) -> pa.RecordBatch | None:
        """Return the rest of the messages, or the next frame or a part of it; None if all of it has to wait."""
        self.ack_taken()
        rows = self._whole_run()
        if rows is None:
            self._fill()
            rows = self._neighbors()
        if rows is None:
            return None
        if self._auto_ack and isinstance(rows.origin, GroupOrigin):
            self._taken = rows.origin, rows.first_offset, len(rows)
        return record_batch_of(rows, self._columns)

    def for_handler(self) -> Message | None:
        """Return the next record whose key is free. The caller must call :meth:`handler_ended` afterwards."""
        message = self._take_for_handler()
        if message is None and self._fill():
            message = self._take_for_handler()
        return message

    def ack_taken(self) -> None:
        """Acknowledge the records of the previous request with ``auto_ack``, except rejected ones."""
        if self._taken is None:
            return
        (origin, first, count), self._taken = self._taken, None
        if count > 1:
            with self._lock:
                origin.span.ack_in_flight(first, count)
            if origin.assigned.is_watched:
                self.on_acked()
        elif origin.span.state(first) == IN_FLIGHT:
            origin.ack(first)

    def _fill(self) -> bool:
        """Turn some new rows into ready messages if none are ready. Return whether it did."""
        self.ack_taken()
        with self._lock:
            if self._dispatch.ready:
                return False
            self._dispatch.must_admit()
            run = self._dispatch.next_run(MESSAGES_AT_ONCE)
        if run is None:
            return False
        messages = list(MessageRun(_rows_of(run)))
        messages.reverse()
        with self._lock:
            return self._dispatch.deliver(run, messages)

    def _whole_run(self) -> FetchedRows | None:
        """Return all deliverable new rows of a frame, or None if records must be checked one by one."""
        with self._lock:
            if self._dispatch.ready or self._dispatch.must_admit():
                return None
            run = self._dispatch.next_run()
            return _rows_of(run) if run is not None and self._dispatch.deliver(run) else None

    def _neighbors(self) -> FetchedRows | None:
        """Return adjacent ready records as rows."""
        with self._lock:
            taken = self._dispatch.take_neighbors()
            self._pass_dead_letters()
            rows: FetchedRows | None = taken[0].origin.span.rows if taken else None
        return None if rows is None else rows.slice(taken[0].offset - rows.first_offset, len(taken))

    def _admit(self, message: Message) -> bool:
        dispatch = self._dispatch
        with self._lock:
            is_admitted = dispatch.admit(message)
            if dispatch.given_up:
                self._pass_dead_letters()
        if not is_admitted and message.origin.assigned.is_revoked:
            self.attention.notify()
        return is_admitted

    def _take_for_handler(self) -> Message | None:
        with self._lock:
            message = self._dispatch.take_for_handler(self._clock())
            self._pass_dead_letters()
        return message

    def _pass_dead_letters(self) -> None:
        while self._dispatch.given_up:
            self._give_up(self._dispatch.given_up.popleft())

    def on_acked(self) -> None:
        """Handle an acknowledgement in a watched segment. Any thread may call it."""
        self.attention.notify()

    def ack(self, segment: int, offsets: Offsets) -> None:
        """Acknowledge rows. Any thread may call it."""
        with self._lock:
            assigned = self._dispatch.ack(segment, offsets)
        if assigned is not None and assigned.is_watched:
            self.on_acked()

    def refuse_rows(self, segment: int, offsets: Offsets, delay_s: float, reason: str) -> None:
        """Redeliver rows after ``delay_s`` seconds. Any thread may call it."""
        with self._lock:
            parts = [(span.rows, out) for span, out in self._dispatch.in_flight_among(segment, offsets)]
        self.reject([m for rows, out in parts if rows for m in messages_at(rows, out)], delay_s, reason)

    def reject(self, messages: Sequence[Message], delay_s: float, reason: str) -> None:
        """Redeliver messages that are in flight, all ``delay_s`` seconds from now. Any thread may call it."""
        with self._lock:
            due_s = self._clock() + delay_s
            for message in messages:
                self._dispatch.reject(message, due_s, reason)
            self._pass_dead_letters()
        self._wake()

    def handler_ended(self, message: Message) -> None:
        """Handle the end of a handler, which acknowledges its record unless it was rejected."""
        with self._lock:
            self._dispatch.handler_ended(message)
            self._pass_dead_letters()
        self.wakeup.notify()
        if message.origin.assigned.is_watched:
            self.on_acked()

    def dead_letter_stored(self, message: Message) -> None:
        """Handle a dead letter that was published."""
        with self._lock:
            self._dispatch.dead_letter_stored(message)
        self._wake()

    def _wake(self) -> None:
        self.wakeup.notify()
        self.attention.notify()

    def pause(self) -> None:
        """Stop delivery."""
        self._is_paused = True

    def resume(self) -> None:
        """Continue delivery."""
        self._is_paused = False
        self.wakeup.notify()

    def hand_to_handlers(self, one_at_a_time: bool) -> None:
        """Switch between handlers, which take one record per key at a time, and iteration."""
        with self._lock:
            self._dispatch.hand_to_handlers(one_at_a_time, self._clock())

    def close(self) -> None:
        """End delivery. Records rejected from now on go to the next member."""
        with self._lock:
            self._dispatch.close()

    def mute(self) -> None:
        """Silence the notices: there are no waiters, and the loop may be closed soon."""
        self.wakeup.mute()
        self.attention.mute()

    def assigned(self, segment: int) -> AssignedSegment | None:
        """Return an assigned segment; None if it is not assigned."""
        with self._lock:
            return self._dispatch.assigned.get(segment)

    def begin_at(self, assigned: AssignedSegment, offset: int) -> None:
        """Set the first offset of reading, as the broker reports it."""
        with self._lock:
            assigned.begin_at(offset)

    def receive(self, assigned: AssignedSegment, arrived: FetchedRows) -> None:
        """Take in the rows of a frame."""
        with self._lock:
            span = self._dispatch.arrive(assigned, arrived.first_offset, len(arrived), arrived.batch.nbytes)
            origin = GroupOrigin(arrived.origin, assigned, span, self)
            span.rows = replace(arrived, origin=origin)

    def end_at(self, assigned: AssignedSegment, offset: int) -> None:
        """Set the end of a segment: no more rows will arrive."""
        with self._lock:
            assigned.end_at(offset)
        self.attention.set()

    def is_finished(self, segments: Container[int]) -> bool:
        """Whether every held segment among ``segments`` is finished."""
        with self._lock:
            return all(a.is_finished for a in self._dispatch.assigned.values() if a.segment in segments)

    @property
    def held(self) -> Mapping[int, int]:
        """Segment -> generation, of segments that are read or whose last commit is open."""
        return self._holdings.held

    @property
    def is_resting(self) -> bool:
        """Whether no commit can become due until rows arrive or a segment is assigned."""
        with self._lock:
            return self._holdings.is_resting

    @property
    def is_over(self) -> bool:
        """Whether reading and committing have ended."""
        return self._holdings.is_over

    def assign(self, assignment: GroupAssignment) -> Instructions[FetchedRows, Message]:
        """Take in an assignment of the coordinator."""
        return self._changed(lambda: self._holdings.assign(assignment))

    def answered(self, committed: GroupCommitted) -> Instructions[FetchedRows, Message]:
        """Take in the coordinator's reply to a commit."""
        return self._changed(lambda: self._holdings.answered(committed))

    def end(self) -> Instructions[FetchedRows, Message]:
        """End the membership: deliver nothing, and commit nothing."""
        return self._changed(self._holdings.end)

    def commit_and_release(
        self, commit_all: bool, begun_at: Callable[[int], int | None]
    ) -> Instructions[FetchedRows, Message]:
        """Queue commits of all segments with ``commit_all``, else of those that others wait for; release finished ones.

        ``begun_at`` returns the first offset of reading of a segment, if known.
        """
        with self._lock:
            for assigned in self._dispatch.assigned.values():
                if not assigned.has_begun and (begin := begun_at(assigned.segment)) is not None:
                    assigned.begin_at(begin)
            instructions = self._holdings.maintain(commit_all)
            blocks = self._dispatch.unacked.blocks
        if blocks:
            self.wakeup.set()
        return instructions

    def _changed(self, change: Callable[[], Instructions[FetchedRows, Message]]) -> Instructions[FetchedRows, Message]:
        with self._lock:
            instructions = change()
        self.wakeup.set()
        self.attention.set()
        return instructions


def _rows_of(run: NewRows[FetchedRows, Message]) -> FetchedRows:
    assert run.span.rows is not None, "rows that were not delivered are missing"
    return run.span.rows.slice(run.at, run.count)
