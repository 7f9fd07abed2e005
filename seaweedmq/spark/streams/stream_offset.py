"""Frontier of a stream in the format of Spark's checkpoint, and checks that it fits the topic.

The format is ``{"segments": {"<id>": offset, ...}, "uid": ..., "v": 1}``: the frontier (``core.lineage.frontier``) and
the topic's uid. Keys are sorted, because Spark compares the text.
"""

from collections.abc import Mapping
from typing import Any

from seaweedmq.core.lineage.frontier import Frontier, LineageGraph
from seaweedmq.errors import InvalidArgument, NotFound, OutOfRange, SeaweedMQError, Unsupported
from seaweedmq.model.topic import Topic
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import list_topics, read_topic

VERSION = 1
_REMEDY = "begin with a new checkpointLocation"


def offset_of(topic: Topic, frontier: Frontier) -> dict[str, Any]:
    """Return the offset that Spark writes to the checkpoint."""
    segments = {str(segment): frontier[segment] for segment in sorted(frontier)}
    return {"segments": dict(sorted(segments.items())), "uid": topic.uid, "v": VERSION}


def frontier_of(offset: Mapping[str, Any], topic: Topic, place: Place) -> dict[int, int]:
    """Return the frontier of an offset, the inverse of :func:`offset_of`.

    NotFound is raised if the checkpoint belongs to another topic, or to a deleted one of this name; InvalidArgument if
    it belongs to another source, Unsupported if a later version wrote it.
    """
    version, uid, segments = offset.get("v"), offset.get("uid"), offset.get("segments")
    if type(version) is int and version > VERSION:
        raise Unsupported(f"the checkpoint has offsets of version {version}, this build reads {VERSION}: upgrade it")
    if version != VERSION or type(uid) is not int or not isinstance(segments, dict):
        raise InvalidArgument(f"the checkpoint holds {str(offset)[:100]!r}, which SeaweedMQ did not write: {_REMEDY}")
    if uid != topic.uid:
        raise _of_another(uid, topic, place)
    frontier = {}
    for number, position in segments.items():
        if not (number.isascii() and number.isdigit()) or type(position) is not int or position < 0:
            raise InvalidArgument(f"the checkpoint holds {number!r}: {position!r}, which is not an offset: {_REMEDY}")
        frontier[int(number)] = position
    return frontier


def check_place(frontier: Frontier, topic: Topic, lineage: LineageGraph) -> None:
    """Raise OutOfRange if the topic has not reached the checkpoint, or never did."""
    for number, position in sorted(frontier.items()):
        segment = lineage.segments.get(number)
        if segment is None:
            newest = max(lineage.segments, default=-1)
            if number >= topic.next_segment and number > newest and number not in topic.pruned:
                raise OutOfRange(
                    f"the checkpoint is in segment {number} of {topic.name}, and the newest is {newest}: the "
                    f"storage was restored from an older copy, or is another one; {_REMEDY}"
                )
        elif segment.end_offset is not None and position > segment.end_offset:
            raise OutOfRange(
                f"the checkpoint is at offset {position} of {segment}, which ended at {segment.end_offset}: power loss "
                f"or an older copy of the storage removed records that were read; {_REMEDY}"
            )


def _of_another(uid: int, topic: Topic, place: Place) -> NotFound:
    for name in list_topics(place):
        try:
            other = read_topic(place, name)
        except SeaweedMQError:
            continue  # it is being deleted, or damaged: the name only improves the message
        if other.uid == uid:
            return NotFound(
                f"the checkpoint is of topic {name}, not of {topic.name}: give the checkpointLocation of this query, "
                "or a new one"
            )
    return NotFound(
        f"the checkpoint is of a topic that was deleted, perhaps {topic.name} itself, which was recreated: {_REMEDY}"
    )
