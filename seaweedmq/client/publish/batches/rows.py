"""The one carrier of rows between ``send`` and their frames."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.client.publish.promise import Positions, Promise
from seaweedmq.codec.arrays import array_of

Slots = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one batch or table, in the order in which they are to be kept."""

    columns: pa.RecordBatch
    """Exactly those of ``payload_schema(flags, ...)``."""
    flags: int
    timestamp_us: int
    """Of every row if there is no ``_timestamp`` column."""
    positions: Positions
    promise: Promise
    slots: Slots | None = None
    """Of their keys; None until routing had to know them."""

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def slice(self, at: int, count: int) -> "Rows":
        """Rows ``[at, at + count)``, zero-copy."""
        if count == self.columns.num_rows:
            return self
        return replace(
            self,
            columns=self.columns.slice(at, count),
            positions=self.positions[at : at + count],
            slots=None if self.slots is None else self.slots[at : at + count],
        )

    def take(self, order: npt.NDArray[np.int64]) -> "Rows":
        """The rows at these places, copied."""
        positions = self.positions
        return replace(
            self,
            columns=self.columns.take(array_of(order, pa.int64())),
            positions=order + positions.start if isinstance(positions, range) else positions[order],
            slots=None if self.slots is None else self.slots[order],
        )
