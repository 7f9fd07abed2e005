"""Conversion of ``producers-<segment>.json``: a sealed segment's producers, for recovery without its log files.

Lineage documents leave producers out, since they may be thousands and readers need none of them.
"""

from dataclasses import replace

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.segment import Segment


def producers_to_json(topic_uid: int, segment: Segment) -> bytes:
    """Return the document of a sealed segment."""
    return to_json(
        {
            "v": METADATA_VERSION,
            "topic_uid": topic_uid,
            "segment": segment.id,
            "end_offset": segment.end_offset,
            "sequences": [[s.producer_id, s.producer_epoch, s.next_sequence] for s in segment.sequences],
            "sequences_complete": segment.sequences_complete,
        }
    )


def with_producers(topic_uid: int, segment: Segment, content: bytes) -> Segment:
    """Return the segment with the producers of its document; unchanged if the document is of another segment.

    Raises Corrupt if the document is unreadable, and Unsupported if a newer version wrote it.
    """
    fields = JsonFields("producers", content)
    mine = topic_uid, segment.id, segment.end_offset
    if (fields.uint("topic_uid"), fields.uint("segment"), fields.optional_uint("end_offset")) != mine:
        return segment
    return replace(
        segment, sequences=fields.sequences("sequences"), sequences_complete=fields.flag("sequences_complete")
    )
