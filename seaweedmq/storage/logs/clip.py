"""The later part of a frame, as a frame."""

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import FLAG_TIMESTAMP, Frame, encode_header
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.model.ring import HISTOGRAM_BUCKETS


def clip_frame(frame: Frame, start_offset: int, topic_schema: pa.Schema | None) -> bytes:
    """The records from ``start_offset`` on, which lies inside of the frame. Slots keep their bounds, not their counts.

    Raises:
        Corrupt: the payload is not what the header says.
    """
    header = frame.header
    skipped = start_offset - header.base_offset
    batch = decode_frame(frame, topic_schema if header.schema_version else None).slice(skipped)
    payload = batch.serialize()
    lowest, highest = header.timestamp_min, header.timestamp_max
    if header.flags & FLAG_TIMESTAMP:
        bounds = pc.min_max(batch.column("_timestamp"))
        lowest, highest = bounds["min"].value, bounds["max"].value
    clipped = header._replace(
        record_count=batch.num_rows,
        payload_length=payload.size,
        payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=lowest,
        timestamp_max=highest,
        first_sequence=header.first_sequence + skipped,
        histogram=(0,) * HISTOGRAM_BUCKETS,
        base_offset=start_offset,
    )
    return b"".join((encode_header(clipped), payload))
