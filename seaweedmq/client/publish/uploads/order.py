"""The order of records per key while payloads are uploaded. Pure.

A record whose payload is being uploaded is not sent yet. Later records of its key wait behind it, in the order of the
calls, and so do rows of tables with this key; all others pass. A record takes its sequence number when it is released,
so what waits here takes no part in the order of frames.

Invariant: the first entry of each key is an upload that has not ended.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.codec.frame import FLAG_KEY
from seaweedmq.core.publish.outgoing_frame import FrameFailed, Positions, Promise
from seaweedmq.errors import DeadlineExceeded, SeaweedMQError
from seaweedmq.model.config import DAY_S

REFERENCE_AGE_S_MAX = float(DAY_S)
"""Longest time in seconds from the end of an upload to its record. The sweep deletes payloads of twice that age if no
record names them."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A record whose payload is being uploaded."""

    key: bytes | None
    entry: "_Entry | None" = None


@dataclass(slots=True, eq=False)
class _Entry:
    """An upload with its record, or rows that wait behind one."""

    rows: list[Rows] = field(default_factory=list)
    is_upload: bool = False
    is_pending: bool = False
    """Whether it is an upload that has not ended."""
    uploaded_s: float = 0.0
    """Loop time at which an upload ended."""


@dataclass(frozen=True, slots=True)
class LatePromise:
    """The promise of rows that waited: their time to be acknowledged begins when they are released.

    The promise of their batch keeps its deadline, which also bounds the repetition of rows that did not wait.
    """

    promise: Promise
    deadline_s: float

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        """Settle rows as acknowledged: see ``Promise``."""
        self.promise.acked(positions, segment, base_offset)

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        """Settle rows as failed: see ``Promise``."""
        self.promise.failed(positions, error)


Released: TypeAlias = Rows | FrameFailed


class UploadOrder:
    """The records of one publisher that wait for uploads, by key."""

    def __init__(self, delivery_timeout_s: float) -> None:
        self._delivery_timeout_s = delivery_timeout_s
        self._waiting: dict[bytes, deque[_Entry]] = {}

    @property
    def keys(self) -> set[bytes]:
        """The keys with records that wait."""
        return set(self._waiting)

    def begin(self, ticket: Ticket) -> None:
        """Take in a record whose payload is to be uploaded. A record without a key has no order."""
        if ticket.key is not None:
            ticket.entry = _Entry(is_upload=True, is_pending=True)
            self._waiting.setdefault(ticket.key, deque()).append(ticket.entry)

    def admit(self, rows: Rows) -> Rows | None:
        """Return the rows that may be sent now, if any; the others wait behind the uploads of their keys."""
        if not self._waiting or not rows.flags & FLAG_KEY:
            return rows
        keys = rows.columns.column(0)
        is_held = pc.is_in(keys, value_set=pa.array(sorted(self._waiting), keys.type))
        held = np.flatnonzero(is_held.to_numpy(zero_copy_only=False))
        if not len(held):
            return rows
        by_key: dict[bytes, list[int]] = {}
        for at in held.tolist():
            by_key.setdefault(keys[at].as_py(), []).append(at)
        for key, numbers in by_key.items():
            self._hold(key, rows.take(np.array(numbers, np.int64)))
        if len(held) == len(rows):
            return None
        return rows.take(np.flatnonzero(~is_held.to_numpy(zero_copy_only=False)))

    def _hold(self, key: bytes, rows: Rows) -> None:
        entries = self._waiting[key]
        if entries[-1].is_upload:
            entries.append(_Entry())
        entries[-1].rows.append(rows)

    def finish(self, ticket: Ticket, rows: Rows | None, now_s: float) -> list[Released]:
        """End an upload, and return what may be sent now, in order.

        Args:
            ticket: The upload.
            rows: The record with the reference; None if the upload failed, which fails no later record of the key.
            now_s: The loop time.

        Returns:
            Rows with a deadline from now, and failures of records whose payload is too old to refer to.
        """
        entry = ticket.entry or _Entry(is_upload=True)
        entry.is_pending = False
        entry.uploaded_s = now_s
        entry.rows = [] if rows is None else [rows]
        if ticket.key is None:
            return self._released(entry, now_s)
        entries = self._waiting[ticket.key]
        released: list[Released] = []
        while entries and not entries[0].is_pending:
            released += self._released(entries.popleft(), now_s)
        if not entries:
            del self._waiting[ticket.key]
        return released

    def _released(self, entry: _Entry, now_s: float) -> list[Released]:
        if entry.is_upload and now_s - entry.uploaded_s > REFERENCE_AGE_S_MAX:
            error = DeadlineExceeded(
                f"the payload was uploaded {(now_s - entry.uploaded_s) / 3_600:.0f} hours before its record could be "
                f"sent, behind earlier uploads of its key; the limit is {REFERENCE_AGE_S_MAX / 3_600:.0f}: resend it"
            )
            return [FrameFailed(rows.positions, rows.promise, error) for rows in entry.rows]
        deadline_s = now_s + self._delivery_timeout_s
        return [replace(rows, promise=LatePromise(rows.promise, deadline_s)) for rows in entry.rows]
