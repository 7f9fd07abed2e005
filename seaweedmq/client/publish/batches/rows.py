"""The carrier of rows between ``send`` and their frames."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.codec.arrays import array_of
from seaweedmq.core.publish.outgoing_frame import Positions, Promise

Slots = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one batch or table, in the order in which they are to be appended."""

    columns: pa.RecordBatch
    """Exactly the columns of ``payload_schema(flags, ...)``."""
    flags: int
    """The flags of their frames."""
    timestamp_us: int
    """The timestamp of every row if there is no ``_timestamp`` column, in microseconds since 1970."""
    positions: Positions
    """The positions in the batch or table."""
    promise: Promise
    """The promise of the batch or table."""
    slots: Slots | None = None
    """The slots of the keys; None until routing needs them."""

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def slice(self, at: int, count: int) -> "Rows":
        """Return rows ``[at, at + count)``, zero-copy."""
        if count == self.columns.num_rows:
            return self
        return replace(
            self,
            columns=self.columns.slice(at, count),
            positions=self.positions[at : at + count],
            slots=None if self.slots is None else self.slots[at : at + count],
        )

    def take(self, order: npt.NDArray[np.int64]) -> "Rows":
        """Return a copy of the rows with these numbers, in this order."""
        positions = self.positions
        return replace(
            self,
            columns=self.columns.take(array_of(order, pa.int64())),
            positions=order + positions.start if isinstance(positions, range) else positions[order],
            slots=None if self.slots is None else self.slots[order],
        )
