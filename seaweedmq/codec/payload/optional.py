"""Encodings whose libraries may not be installed; they are imported at the first frame of the encoding."""

from types import ModuleType

import pyarrow as pa

from seaweedmq.codec.frame import Frame, FrameHeader
from seaweedmq.errors import Unsupported
from seaweedmq.model.messages.frames import Frames


def validate_kafka(header: FrameHeader, payload: Frames, topic_schema: pa.Schema | None) -> None:
    """Validate a payload, see ``batch.Encoding``; raises Unsupported without the libraries."""
    _kafka().validate(header, payload, topic_schema)


def decode_kafka(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """Decode a payload, see ``batch.Encoding``; raises Unsupported without the libraries."""
    return _kafka().decode(frame, topic_schema)


def clip_kafka(frame: Frame, batch: pa.RecordBatch, skipped: int) -> bytes:
    """Return a frame without its first records, see ``batch.Encoding``; raises Unsupported without the libraries."""
    clipped: bytes = _kafka().clip(frame, batch, skipped)
    return clipped


def _kafka() -> ModuleType:
    try:
        from seaweedmq.codec.payload import kafka
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"a frame holds a record batch of a Kafka client, and {error.name} is not installed: pip install "
            '"seaweedmq[kafka]"'
        ) from error
    return kafka
