"""Records of an internal topic as frames: Kafka's record batches of a producer without identity."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import pyarrow as pa

from seaweedmq.codec.frame import FLAG_KEY, Frame, split_frames
from seaweedmq.codec.payload.batch import encode_frame

_s = count()

def frames_of(pairs: Sequence[tuple[bytes, bytes | None]], slot: int, at_us: int, bytes_max: int) -> Iterator[Frame]:
    n = 200
    for at in range(0, len(pairs), n):
        some = pairs[at : at + n]
        batch = pa.RecordBatch.from_arrays([pa.array([k for k, _ in some], pa.binary()), pa.array([v for _, v in some], pa.binary())], names=["_key", "_value"])
        data = encode_frame(batch, flags=FLAG_KEY, producer_id=7 + next(_s), producer_epoch=0, first_sequence=0, timestamp_min=at_us, timestamp_max=at_us, slot_min=slot, slot_max=slot, histogram=(0,) * 16)
        yield next(split_frames(data, verify=False))
