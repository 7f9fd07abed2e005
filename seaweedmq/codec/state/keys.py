"""Names of the etcd keys, each with one function that builds it and one that parses it.

| key | value | lease |
|---|---|---|
| ``/seaweedmq/cluster`` | ClusterIdentity | - |
| ``/seaweedmq/cluster-seen`` | ClusterIdentity; its modification revision is that of the storage's marker | - |
| ``/seaweedmq/leader`` | id of the leading broker | its own |
| ``/seaweedmq/brokers/<id>`` | BrokerInfo | its own |
| ``/seaweedmq/addresses/<host:port>`` | id of the broker that listens there | its own |
| ``/seaweedmq/addresses/kafka/<host:port>`` | id of the broker that Kafka clients dial there | its own |
| ``/seaweedmq/left/<id>`` | empty: the broker with this id acknowledges nothing from now on | one of an hour |
| ``/seaweedmq/topics/<namespace>/<name>`` | Topic | - |
| ``/seaweedmq/segments/<namespace>/<name>/<id, 10 digits>`` | Segment | - |
| ``/seaweedmq/low/<namespace>/<name>`` | LowWatermarks, once records were deleted manually | - |
| ``/seaweedmq/deletions/<namespace>/<name>`` | Deletion, until the files are removed | - |
| ``/seaweedmq-groups/state/<namespace>/<name>/<group>`` | GroupRecord | - |
| ``/seaweedmq-groups/offsets/<namespace>/<name>/<group>/<id, 10 digits>`` | committed offset | - |
| ``/seaweedmq-kafka/nodes`` | NodeTable | - |
| ``/seaweedmq-kafka/producer-ids`` | counter of ids | - |

Groups lie outside the first root, which every broker watches: commits are many, and only the leader reads them. The
values of Kafka gateways do as well: each gateway reads them when needed.
"""

from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import TopicName

ROOT = "/seaweedmq/"
CLUSTER = ROOT + "cluster"
CLUSTER_SEEN = CLUSTER + "-seen"
LEADER = ROOT + "leader"
BROKERS = ROOT + "brokers/"
ADDRESSES = ROOT + "addresses/"
KAFKA_ADDRESSES = ADDRESSES + "kafka/"
LEFT = ROOT + "left/"
TOPICS = ROOT + "topics/"
SEGMENTS = ROOT + "segments/"
LOW_WATERMARKS = ROOT + "low/"
DELETIONS = ROOT + "deletions/"
GROUPS_ROOT = "/seaweedmq-groups/"
GROUPS = GROUPS_ROOT + "state/"
OFFSETS = GROUPS_ROOT + "offsets/"
PROBE = "/seaweedmq-probe"
"""Key that is never written: a put under a condition that never holds shows whether etcd accepts puts."""
KAFKA_ROOT = "/seaweedmq-kafka/"
KAFKA_NODES = KAFKA_ROOT + "nodes"
KAFKA_PRODUCER_IDS = KAFKA_ROOT + "producer-ids"

SEGMENT_DIGITS = 10


def broker_key(broker_id: str) -> str:
    """Return the key of a broker's registration."""
    return BROKERS + broker_id


def address_key(address: str) -> str:
    """Return the key that one broker holds for its ``host:port``."""
    return ADDRESSES + address


def kafka_address_key(address: str) -> str:
    """Return the key that one broker holds for the ``host:port`` that Kafka clients dial."""
    return KAFKA_ADDRESSES + address


def left_key(broker_id: str) -> str:
    """Return the key that a broker leaves behind when it has ended in good order."""
    return LEFT + broker_id


def topic_key(name: TopicName) -> str:
    """Return the key of a topic."""
    return f"{TOPICS}{name.namespace}/{name.name}"


def segments_prefix(name: TopicName) -> str:
    """Return the prefix of a topic's segments. It ends with a slash, so that ``a/b`` is not a prefix of ``a/bc``."""
    return f"{SEGMENTS}{name.namespace}/{name.name}/"


def segment_key(name: TopicName, segment: int) -> str:
    """Return the key of a segment; the keys of a topic sort by segment id."""
    return f"{segments_prefix(name)}{segment:0{SEGMENT_DIGITS}d}"


def low_watermarks_key(name: TopicName) -> str:
    """Return the key of a topic's low watermarks, which manual deletions set."""
    return f"{LOW_WATERMARKS}{name.namespace}/{name.name}"


def deletion_key(name: TopicName) -> str:
    """Return the key of a deleted topic's remains."""
    return f"{DELETIONS}{name.namespace}/{name.name}"


def topic_groups_prefix(name: TopicName) -> str:
    """Return the prefix of the groups of a topic."""
    return f"{GROUPS}{name.namespace}/{name.name}/"


def topic_offsets_prefix(name: TopicName) -> str:
    """Return the prefix of the committed offsets of all groups of a topic."""
    return f"{OFFSETS}{name.namespace}/{name.name}/"


def group_key(name: TopicName, group: str) -> str:
    """Return the key of a group's state for one topic."""
    return topic_groups_prefix(name) + group


def offsets_prefix(name: TopicName, group: str) -> str:
    """Return the prefix of a group's committed offsets of a topic."""
    return f"{topic_offsets_prefix(name)}{group}/"


def offset_key(name: TopicName, group: str, segment: int) -> str:
    """Return the key of a group's committed offset of one segment."""
    return f"{offsets_prefix(name, group)}{segment:0{SEGMENT_DIGITS}d}"


def parse_broker_key(key: str) -> str:
    """Return the broker id of a broker key; raises Corrupt for any other key."""
    return _one_part(key, BROKERS, "broker")


def parse_left_key(key: str) -> str:
    """Return the broker id of a key of a broker that left; raises Corrupt for any other key."""
    return _one_part(key, LEFT, "left")


def parse_topic_key(key: str) -> TopicName:
    """Return the topic name of a topic key; raises Corrupt for any other key."""
    return _topic_name(key, *_parts(key, TOPICS, "topic", 2))


def parse_low_watermarks_key(key: str) -> TopicName:
    """Return the topic name of a key of low watermarks; raises Corrupt for any other key."""
    return _topic_name(key, *_parts(key, LOW_WATERMARKS, "low watermarks", 2))


def parse_deletion_key(key: str) -> TopicName:
    """Return the name of the deleted topic of a deletion key; raises Corrupt for any other key."""
    return _topic_name(key, *_parts(key, DELETIONS, "deletion", 2))


def parse_segment_key(key: str) -> SegmentId:
    """Return the topic name and segment id of a segment key; raises Corrupt for any other key."""
    namespace, name, digits = _parts(key, SEGMENTS, "segment", 3)
    number = _segment(key, digits, "segment")
    return SegmentId(_topic_name(key, namespace, name), number)


def parse_group_key(key: str) -> tuple[TopicName, str]:
    """Return the topic name and group of a group key; raises Corrupt for any other key."""
    namespace, name, group = _parts(key, GROUPS, "group", 3)
    return _topic_name(key, namespace, name), group


def parse_offset_key(key: str) -> tuple[TopicName, str, int]:
    """Return the topic name, group and segment id of an offset key; raises Corrupt for any other key."""
    namespace, name, group, digits = _parts(key, OFFSETS, "offset", 4)
    number = _segment(key, digits, "offset")
    return _topic_name(key, namespace, name), group, number


def _parts(key: str, prefix: str, kind: str, count: int) -> list[str]:
    """Return the parts of a key behind its prefix: those of a topic's name, and others, which are not empty."""
    parts = key.removeprefix(prefix).split("/")
    if not key.startswith(prefix) or len(parts) != count or not all(parts[2:]):
        raise _not(key, kind)
    return parts


def _one_part(key: str, prefix: str, kind: str) -> str:
    part = key.removeprefix(prefix)
    if not key.startswith(prefix) or not part or "/" in part:
        raise _not(key, kind)
    return part


def _segment(key: str, digits: str, kind: str) -> int:
    if len(digits) != SEGMENT_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise _not(key, kind)
    return int(digits)


def _topic_name(key: str, namespace: str, name: str) -> TopicName:
    try:
        return TopicName(namespace, name)
    except InvalidArgument as error:
        raise Corrupt(f"etcd key {key!r}: {error}") from error


def _not(key: str, kind: str) -> Corrupt:
    return Corrupt(
        f"etcd key {key!r} is not a {kind} key: it was not written by this version; delete it if it is foreign"
    )
