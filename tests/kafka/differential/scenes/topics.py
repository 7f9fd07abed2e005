"""Topics: created, rejected, described, given more partitions, deleted."""

from typing import Any

from seaweedmq.kafka.wire.messages import API, UUID
from tests.kafka.differential.play import Play


def new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "num_partitions": partitions, "replication_factor": replicas, "assignments": [], "configs": [],
    } | more  # fmt: skip


async def create(play: Play) -> None:
    async def ask(note: str, *topics: Any, version: int = 7, validate: bool = False) -> None:
        await play.ask(note, API.CREATE_TOPICS, version, topics=list(topics), timeout_ms=20_000, validate_only=validate)

    name = play.name
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "cleanup.policy", "value": "compact"}]
    await ask("a topic", new(name("a"), 3), version=4)
    await ask("with the broker's numbers", new(name("b"), -1, -1), version=4)
    await ask("with configs", new(name("c"), 2, configs=configs), version=4)
    await ask("that is there", new(name("a"), 3))
    await ask("another twice", new(name("twice"), 1), new(name("twice"), 2))
    await ask("one good, one bad", new(name("good")), new("bad/name"), version=4)
    for bad in ("", ".", "..", "a b", "x" * 250, "naïve"):
        await ask(f"named {bad[:8]!r} of {len(bad)}", new(bad))
    await ask("named as long as may be", new(name("y" * (249 - len(name("")))), 1), version=4)
    await ask("no partitions", new(name("none"), 0))
    await ask("-2 partitions", new(name("none"), -2))
    await ask("no replicas", new(name("none"), 1, 0))
    await ask("more replicas than brokers", new(name("none"), 1, 3))
    await ask("an unknown config", new(name("none"), configs=[{"name": "no.such", "value": "1"}]))
    for key, value in (
        ("retention.ms", "soon"), ("retention.ms", "-2"), ("retention.ms", None), ("cleanup.policy", "burn"),
        ("cleanup.policy", "compact,delete"), ("compression.type", "rar"), ("compression.type", "zstd"),
        ("max.message.bytes", "-1"), ("min.insync.replicas", "0"), ("min.insync.replicas", "2"),
        ("message.timestamp.type", "Sometime"), ("segment.bytes", "13"), ("segment.ms", "0"),
        ("unclean.leader.election.enable", "perhaps"), ("flush.messages", "0"), ("remote.storage.enable", "true"),
        ("remote.storage.enable", "false"), ("cleanup.policy", ""), ("max.message.bytes", "50000000"),
        ("max.message.bytes", "2147483647"), ("max.message.bytes", "2147483648"), ("segment.bytes", "1048575"),
        ("segment.bytes", "1048576"), ("compression.gzip.level", "0"), ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "-2"), ("compression.gzip.level", "10"), ("compression.lz4.level", "0"),
        ("compression.zstd.level", "-131073"), ("leader.replication.throttled.replicas", "x"),
        ("leader.replication.throttled.replicas", "*"), ("leader.replication.throttled.replicas", "*,0:1"),
        ("leader.replication.throttled.replicas", ""), ("follower.replication.throttled.replicas", "0:1,1:2"),
        ("follower.replication.throttled.replicas", "0:1,2"),
    ):  # fmt: skip
        await ask(
            f"{key}={value}", new(name("none"), configs=[{"name": key, "value": value}]), validate=True, version=4
        )
    twice = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    await ask("a config twice", new(name("none"), configs=twice), validate=True)
    await ask("only to check", new(name("checked"), 5), validate=True, version=4)
    await ask("only to check, at its newest", new(name("checked"), 5), validate=True, version=6)
    await ask("only to check what is there", new(name("a"), 3), validate=True)
    at_broker = {"num_partitions": -1, "replication_factor": -1}
    node = play.names.node_id

    def assigned(*brokers: list[int]) -> list[dict[str, Any]]:
        return [{"partition_index": i, "broker_ids": each} for i, each in enumerate(brokers)]

    await ask("assigned", new(name("assigned"), **at_broker, assignments=assigned([node], [node])), version=4)
    await ask("assigned, with numbers", new(name("none"), 2, 1, assignments=assigned([node], [node])))
    await ask("assigned to nobody", new(name("none"), **at_broker, assignments=assigned([])))
    await ask("assigned twice to one", new(name("none"), **at_broker, assignments=assigned([node, node])))
    await ask("assigned to one that is not there", new(name("none"), **at_broker, assignments=assigned([4711])))
    hole = [{"partition_index": 1, "broker_ids": [node]}]
    await ask("assigned with a hole", new(name("none"), **at_broker, assignments=hole))
    await ask("nothing")
    await ask("a name that collides", new(name("a.b_c")), version=4)
    await ask("with a name that collided", new(name("a_b.c")), version=4)


async def delete(play: Play) -> None:
    """DeleteTopics, by name and by id."""
    one, two = await play.topic("one"), await play.topic("two")
    await play.ask("by name", API.DELETE_TOPICS, 5, topic_names=[one, play.name("no")], timeout_ms=20_000)
    await play.until(
        "gone",
        lambda said: said.topics[0].error_code == 3,
        API.METADATA,
        9,
        topics=[{"name": one}],
        allow_auto_topic_creation=False,
    )
    await play.ask("again", API.DELETE_TOPICS, 5, topic_names=[one], timeout_ms=20_000)
    listed = await play.quietly(API.METADATA, 12, topics=[{"topic_id": None, "name": two}])
    identity = listed.topics[0].topic_id

    async def ask(note: str, *topics: Any) -> None:
        await play.ask(note, API.DELETE_TOPICS, 6, topics=list(topics), timeout_ms=20_000)

    await ask("both name and id", {"name": two, "topic_id": identity})
    await ask("neither", {"name": None, "topic_id": None})
    await ask("name, and id", {"name": two, "topic_id": None}, {"name": None, "topic_id": identity})
    await ask("an id of nothing", {"name": None, "topic_id": UUID(int=4711)})
    await ask("twice", {"name": two, "topic_id": None}, {"name": two, "topic_id": None})
    await ask("by id", {"name": None, "topic_id": identity})
    await ask("nothing")
    await ask("an internal name", {"name": "no/name", "topic_id": None})


async def metadata(play: Play) -> None:
    """Metadata and DescribeCluster, in their versions."""
    one = await play.topic("one", 2)
    bare = [{"name": one}]
    for version in (1, 4, 7, 8, 9, 10, 12, 13):
        topics = [{"topic_id": None, "name": one}] if version >= 10 else bare
        await play.ask(f"version {version}", API.METADATA, version, topics=topics, allow_auto_topic_creation=False)
    await play.ask("version 0", API.METADATA, 0, topics=bare)
    await play.ask("of no topic", API.METADATA, 9, topics=[])
    unknown = [{"name": play.name("unknown")}]
    await play.ask("unknown", API.METADATA, 9, topics=unknown, allow_auto_topic_creation=False)
    await play.ask("a bad name", API.METADATA, 9, topics=[{"name": "a/b"}], allow_auto_topic_creation=False)
    await play.ask("a bad name to be made", API.METADATA, 9, topics=[{"name": "a b"}], allow_auto_topic_creation=True)
    await play.ask("an empty name", API.METADATA, 9, topics=[{"name": ""}], allow_auto_topic_creation=False)
    await play.ask("one twice", API.METADATA, 9, topics=[*bare, *bare], allow_auto_topic_creation=False)
    auto = [{"name": play.name("auto")}]
    await play.until(
        "made by asking",
        lambda said: said.topics[0].error_code == 0,
        API.METADATA,
        9,
        topics=auto,
        allow_auto_topic_creation=True,
    )
    known = await play.quietly(API.METADATA, 12, topics=[{"topic_id": None, "name": one}])
    identity = known.topics[0].topic_id
    await play.ask("by id", API.METADATA, 12, topics=[{"topic_id": identity, "name": None}])
    await play.ask("by an id of nothing", API.METADATA, 12, topics=[{"topic_id": UUID(int=4711), "name": None}])
    await play.ask("by id and name", API.METADATA, 12, topics=[{"topic_id": identity, "name": one}])
    await play.ask("by id in version 10", API.METADATA, 10, topics=[{"topic_id": identity, "name": None}])
    await play.ask("neither", API.METADATA, 12, topics=[{"topic_id": None, "name": None}])
    may = {"include_topic_authorized_operations": True}
    await play.ask(
        "with operations of version 9",
        API.METADATA,
        9,
        topics=bare,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        **may,
    )
    await play.ask("with operations", API.METADATA, 12, topics=[{"topic_id": None, "name": one}], **may)
    for version in (0, 1, 2):
        await play.ask(
            f"the cluster in version {version}",
            API.DESCRIBE_CLUSTER,
            version,
            include_cluster_authorized_operations=True,
        )
    await play.ask("the controllers", API.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    await play.ask("endpoints of no type", API.DESCRIBE_CLUSTER, 1, endpoint_type=7)


async def pages(play: Play) -> None:
    one, two = await play.topic("one", 3), await play.topic("two", 2)

    async def ask(note: str, *names: str, limit: int = 2_000, cursor: Any = None) -> None:
        topics = [{"name": name} for name in names]
        await play.ask(
            note, API.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=limit, cursor=cursor
        )

    await ask("two topics", two, one)
    await ask("one that is not", one, play.name("no"))
    await ask("a bad name", "a/b")
    await ask("the same twice", one, one)
    await ask("two partitions", one, two, limit=2)
    await ask("three partitions", one, two, limit=3)
    await ask("four partitions", one, two, limit=4)
    await ask("no partitions", one, two, limit=0)
    await ask("from the second", one, two, cursor={"topic_name": one, "partition_index": 1})
    await ask("from the second topic", one, two, cursor={"topic_name": two, "partition_index": 0})
    await ask("from behind the last", one, two, cursor={"topic_name": two, "partition_index": 9})
    await ask("from a topic between", one, two, cursor={"topic_name": f"{one}-", "partition_index": 0})
    await ask("from before the first", one, cursor={"topic_name": one, "partition_index": -1})
    await play.ask(
        "of what is not there, at a cursor",
        API.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": play.name("no")}],
        response_partition_limit=5,
        cursor={"topic_name": play.name("no"), "partition_index": 0},
    )


async def partitions(play: Play) -> None:
    one = await play.topic("one", 2)

    async def ask(note: str, *topics: Any, validate: bool = False) -> None:
        asked = [{"name": name, "count": count, "assignments": given} for name, count, given in topics]
        await play.ask(note, API.CREATE_PARTITIONS, 3, topics=asked, timeout_ms=20_000, validate_only=validate)

    node = play.names.node_id
    await ask("fewer", (one, 1, None))
    await ask("as many", (one, 2, None))
    await ask("none", (one, 0, None))
    await ask("a negative number", (one, -1, None))
    await ask("of what is not", (play.name("no"), 4, None))
    await ask("of a bad name", ("a/b", 4, None))
    await ask("twice", (one, 3, None), (one, 4, None))
    await ask("only to check", (one, 4, None), validate=True)
    await ask("assigned to too few", (one, 4, [{"broker_ids": [node]}]))
    await ask("assigned to nobody", (one, 3, [{"broker_ids": []}]))
    await ask("assigned to one that is not", (one, 3, [{"broker_ids": [4711]}]))
    await ask("assigned", (one, 3, [{"broker_ids": [node]}]))
    await ask("more", (one, 5, None))
    await play.ready(one, 5)
    await play.ask("five", API.METADATA, 9, topics=[{"name": one}], allow_auto_topic_creation=False)


SCENES = {"create": create, "delete": delete, "metadata": metadata, "pages": pages, "partitions": partitions}
