"""The one owner of what a member of a group holds: its lock, and the notices by which threads and the loop meet.

Threads: the one that takes (an iterating user's, or the loop's for handlers), the loop's, and any that acknowledges or
refuses. They meet under the lock, which is never held while something is decoded or awaited. What is decided is decided
in ``core.member``; here it is turned into messages and batches.
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
from seaweedmq.core.member.acks import OUT, Offsets
from seaweedmq.core.member.holdings import Holdings, Instructions
from seaweedmq.core.member.record_dispatch import Bounds, GivenUp, NewRows, RecordDispatch
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted
from seaweedmq.runtime.notice import Notice

log = logging.getLogger(__name__)


class Dispatcher:
    """Around a ``RecordDispatch`` and ``Holdings``. Made in the loop."""

    def __init__(
        self,
        what: str,
        bounds: Bounds,
        assignment_lease: AssignmentLease,
        clock: Callable[[], float],
        give_up: Callable[[GivenUp[Message]], None],
        *,
        auto_ack: bool,
        columns: Sequence[str] | None,
    ) -> None:
        """
        Args:
            what: the group, for people.
            contact: with the coordinator.
            clock: seconds, steady.
            give_up: sees to a record that goes to the dead-letter topic; called under the lock, from any thread.
            auto_ack: what was handed out is acknowledged when the next is asked for.
            columns: of batches.
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
        """For the loop's thread only."""
        self.news = Notice()
        """Whoever waits for records looks again."""
        self.attention = Notice()
        """A position may have changed that others wait for."""
        self._is_paused = False
        self._taken: tuple[GroupOrigin, int, int] | None = None
        """What ``auto_ack`` acknowledges when the next is asked for: from an offset, so many."""
        self._warned = False

    # --- for who waits for records ----------------------------------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Nothing is handed out: paused, closed, or what was assigned may have been given to others."""
        return self._is_paused or self._dispatch.is_closed or not self._assignment_lease.is_fresh

    @property
    def has_rows(self) -> bool:
        """Whether something may be popped now."""
        with self._lock:
            return not self.is_halted and self._dispatch.has_records

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit is reached."""
        return self._dispatch.left == 0

    @property
    def holds_back(self) -> bool:
        """Whether records wait to be delivered again."""
        with self._lock:
            return self._dispatch.holds_back

    @property
    def due_s(self) -> float:
        """When a record that waits may go out at the earliest."""
        with self._lock:
            return NEVER if self.is_halted else self._dispatch.due_s

    def refill(self) -> None:
        """Take what waited and need not wait any more. Requires that there is nothing to pop."""
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
            "%s: delivery waits, for %d records (%d bytes) are not acknowledged: call ack(), or raise max_unacked (%d) "
            "and group_unacked_bytes_max (%d)",
            self._what,
            unacked.records,
            unacked.size_bytes,
            unacked.records_max,
            unacked.bytes_max,
        )

    # --- for who takes ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Message]:
        """Some thousand at most."""
        self._fill()
        dispatch, auto_ack = self._dispatch, self._auto_ack
        ready = dispatch.ready
        assignment_lease, clock = self._assignment_lease, self._assignment_lease.clock
        # ``is_halted``, for each record in 0.1 us
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
        """What is left of the messages, else the next frame, or a part of it; None if all of it has to wait."""
        self.ack_taken()
        rows = self._whole_run()
        if rows is None:
            self._fill()
            rows = self._neighbours()
        if rows is None:
            return None
        if self._auto_ack and isinstance(rows.origin, GroupOrigin):
            self._taken = rows.origin, rows.first_offset, len(rows)
        return record_batch_of(rows, self._columns)

    def for_handler(self) -> Message | None:
        """The next record whose key is free; :meth:`handler_ended` will follow."""
        message = self._take_for_handler()
        if message is None and self._fill():
            message = self._take_for_handler()
        return message

    def ack_taken(self) -> None:
        """With ``auto_ack``, the next is asked for: what was handed out, and not refused, is dealt with."""
        if self._taken is None:
            return
        (origin, first, count), self._taken = self._taken, None
        if count > 1:
            with self._lock:
                origin.span.ack_out(first, count)
            if origin.assigned.is_watched:
                self.on_acked()
        elif origin.span.state(first) == OUT:
            origin.ack(first)

    def _fill(self) -> bool:
        """Turn some new rows into messages that are ready, if none are. False: there are none, or some are."""
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
            return self._dispatch.hand_out(run, messages)

    def _whole_run(self) -> FetchedRows | None:
        """All new rows of a frame that may go out, unless records are to be looked at one by one."""
        with self._lock:
            if self._dispatch.ready or self._dispatch.must_admit():
                return None
            run = self._dispatch.next_run()
            return _rows_of(run) if run is not None and self._dispatch.hand_out(run) else None

    def _neighbours(self) -> FetchedRows | None:
        """Records that are ready, as rows."""
        with self._lock:
            taken = self._dispatch.take_neighbours()
            self._see_to_given_up()
            rows: FetchedRows | None = taken[0].origin.span.rows if taken else None
        return None if rows is None else rows.slice(taken[0].offset - rows.first_offset, len(taken))

    def _admit(self, message: Message) -> bool:
        dispatch = self._dispatch
        with self._lock:
            is_admitted = dispatch.admit(message)
            if dispatch.given_up:
                self._see_to_given_up()
        if not is_admitted and message.origin.assigned.is_revoked:
            self.attention.notify()
        return is_admitted

    def _take_for_handler(self) -> Message | None:
        with self._lock:
            message = self._dispatch.take_for_handler(self._clock())
            self._see_to_given_up()
        return message

    def _see_to_given_up(self) -> None:
        while self._dispatch.given_up:
            self._give_up(self._dispatch.given_up.popleft())

    # --- what becomes of records ------------------------------------------------------------------------------------

    def on_acked(self) -> None:
        """Something that is watched may be dealt with now. From any thread."""
        self.attention.notify()

    def ack(self, segment: int, offsets: Offsets) -> None:
        """The user has dealt with rows. From any thread."""
        with self._lock:
            assigned = self._dispatch.ack(segment, offsets)
        if assigned is not None and assigned.is_watched:
            self.on_acked()

    def refuse_rows(self, segment: int, offsets: Offsets, delay_s: float, reason: str) -> None:
        """The user has not dealt with rows. From any thread."""
        with self._lock:
            parts = [(span.rows, out) for span, out in self._dispatch.out_among(segment, offsets)]
        self.refuse([m for rows, out in parts if rows for m in messages_at(rows, out)], delay_s, reason)

    def refuse(self, messages: Sequence[Message], delay_s: float, reason: str) -> None:
        """Those that are out go out again, all at one time. From any thread."""
        with self._lock:
            due_s = self._clock() + delay_s
            for message in messages:
                self._dispatch.refuse(message, due_s, reason)
            self._see_to_given_up()
        self._wake()

    def handler_ended(self, message: Message) -> None:
        """A handler is done: with its record, too, unless that was refused."""
        with self._lock:
            self._dispatch.handler_ended(message)
            self._see_to_given_up()
        self.news.notify()
        if message.origin.assigned.is_watched:
            self.on_acked()

    def letter_kept(self, message: Message) -> None:
        """A record that was given up is in the dead-letter topic."""
        with self._lock:
            self._dispatch.letter_kept(message)
        self._wake()

    def _wake(self) -> None:
        self.news.notify()
        self.attention.notify()

    # --- changes ----------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.news.notify()

    def hand_to_handlers(self, one_at_a_time: bool) -> None:
        """From here on handlers take, or they do no more."""
        with self._lock:
            self._dispatch.hand_to_handlers(one_at_a_time, self._clock())

    def close(self) -> None:
        """Hand nothing out any more; what is refused goes to the next member."""
        with self._lock:
            self._dispatch.close()

    def mute(self) -> None:
        """Nobody waits any more, and the loop may be closed soon."""
        self.news.mute()
        self.attention.mute()

    # --- for readers ------------------------------------------------------------------------------------------------

    def assigned(self, segment: int) -> AssignedSegment | None:
        with self._lock:
            return self._dispatch.assigned.get(segment)

    def begin_at(self, assigned: AssignedSegment, offset: int) -> None:
        """The broker said where reading begins."""
        with self._lock:
            assigned.begin_at(offset)

    def receive(self, assigned: AssignedSegment, arrived: FetchedRows) -> None:
        """Rows of a frame arrived."""
        with self._lock:
            span = self._dispatch.arrive(assigned, arrived.first_offset, len(arrived), arrived.batch.nbytes)
            origin = GroupOrigin(arrived.origin, assigned, span, self)
            span.rows = replace(arrived, origin=origin)

    def end_at(self, assigned: AssignedSegment, offset: int) -> None:
        """Nothing more will arrive."""
        with self._lock:
            assigned.end_at(offset)
        self.attention.set()

    def is_finished(self, segments: Container[int]) -> bool:
        """Whether all of these that are held are dealt with."""
        with self._lock:
            return all(a.is_finished for a in self._dispatch.assigned.values() if a.segment in segments)

    # --- for the membership: the loop's thread only -----------------------------------------------------------------

    @property
    def held(self) -> Mapping[int, int]:
        """Segment -> generation of what is read, or was not committed for the last time."""
        return self._holdings.held

    @property
    def is_resting(self) -> bool:
        """Whether nothing will have to be committed unless something arrives, or is assigned."""
        with self._lock:
            return self._holdings.is_resting

    @property
    def is_over(self) -> bool:
        """Whether nothing is read or committed any more."""
        return self._holdings.is_over

    def assign(self, assignment: GroupAssignment) -> Instructions[FetchedRows, Message]:
        """The coordinator said what to read from now on."""
        with self._lock:
            instructions = self._holdings.assign(assignment)
        self._look_again()
        return instructions

    def answered(self, committed: GroupCommitted) -> Instructions[FetchedRows, Message]:
        """The coordinator answered a commit."""
        with self._lock:
            instructions = self._holdings.answered(committed)
        self._look_again()
        return instructions

    def end(self) -> Instructions[FetchedRows, Message]:
        """The membership is over: hand nothing out, and commit nothing."""
        with self._lock:
            instructions = self._holdings.end()
        self._look_again()
        return instructions

    def look_after(self, is_time: bool, begun_at: Callable[[int], int | None]) -> Instructions[FetchedRows, Message]:
        """Commit and release what is dealt with.

        Args:
            is_time: commit everything, else only what others wait for.
            begun_at: where reading of a segment began, if that is known.
        """
        with self._lock:
            for assigned in self._dispatch.assigned.values():
                if not assigned.has_begun and (begin := begun_at(assigned.segment)) is not None:
                    assigned.begin_at(begin)
            instructions = self._holdings.look_after(is_time)
            blocks = self._dispatch.unacked.blocks
        if blocks:
            self.news.set()
        return instructions

    def _look_again(self) -> None:
        self.news.set()
        self.attention.set()


def _rows_of(run: NewRows[FetchedRows, Message]) -> FetchedRows:
    if run.span.rows is None:
        raise AssertionError("rows that were not handed out are gone")
    return run.span.rows.slice(run.at, run.count)
