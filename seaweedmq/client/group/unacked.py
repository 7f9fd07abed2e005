"""The bound on what a member handed out and did not see acknowledged: in records, and in bytes that are kept for it."""

import logging
import threading
from collections.abc import Mapping

from seaweedmq.client.group.assigned import Owned
from seaweedmq.client.subscribe.messages import Arrived

log = logging.getLogger(__name__)


class Unsettled:
    """Counts generously, and anew only when that would be too much: counting looks at every frame that is out.

    Methods require the lock, unless they say otherwise.
    """

    def __init__(self, owned: Mapping[int, Owned], group: str, records_max: int, bytes_max: int) -> None:
        self.lock = threading.Lock()
        """Of everything about the ownerships."""
        self._owned = owned
        self._group = group
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._records = 0
        self._bytes = 0
        self.blocks = False
        """Delivery waits; ownerships are watched, so that acknowledgements are heard of."""
        self._warned = False

    def arrived(self, rows: Arrived) -> None:
        self._bytes += rows.batch.nbytes

    def handed_out(self, count: int) -> None:
        self._records += count

    def room(self, wanted: int) -> int:
        """How many more records may go out; exactly only if there are fewer than ``wanted``."""
        if self._records + wanted > self._records_max:
            self._records = sum(owned.ledger.unsettled() for owned in self._owned.values())
        return self._records_max - self._records

    def check(self) -> bool:
        """Whether no more rows may be taken in now. Takes the lock."""
        with self.lock:
            self.blocks = self._is_full()
            if self.blocks:
                for owned in self._owned.values():
                    owned.watched = True
                self.blocks = self._is_full()  # once more: from here on, who acknowledges says so
            if self.blocks and not self._warned:
                self._warned = True
                log.warning(
                    "group %s: delivery waits, for %d records (%d bytes) are not acknowledged: call ack(), or raise "
                    "max_unacked (%d) and group_unacked_bytes_max (%d)",
                    self._group,
                    self._records,
                    self._bytes,
                    self._records_max,
                    self._bytes_max,
                )
            return self.blocks

    def _is_full(self) -> bool:
        if self._bytes > self._bytes_max:
            for owned in self._owned.values():
                owned.ledger.position()
            self._bytes = sum(owned.ledger.size_bytes() for owned in self._owned.values())
        return self._bytes > self._bytes_max or self.room(1) <= 0
