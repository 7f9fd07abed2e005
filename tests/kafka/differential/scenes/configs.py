"""Configs: described, replaced, and changed one by one."""

from collections.abc import Callable
from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.play import Play

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(play: Play) -> None:
    one = await play.topic("one", retention_ms="1000", cleanup_policy="compact,delete")
    node = str(play.names.node_id)

    async def ask(note: str, kind: int, name: str, keys: Any = None, version: int = 4, **more: Any) -> None:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
        await play.ask(note, API.DESCRIBE_CONFIGS, version, resources=asked, **more)

    some = ["retention.ms", "cleanup.policy", "max.message.bytes", "message.timestamp.type"]
    for version in (1, 2, 3, 4):
        await ask(f"some of a topic, version {version}", TOPIC, one, some, version)
    await ask("with synonyms", TOPIC, one, ["retention.ms", "segment.bytes"], include_synonyms=True)
    await ask("all of a topic", TOPIC, one)
    await ask("none of a topic", TOPIC, one, [])
    await ask("an unknown key", TOPIC, one, ["no.such"])
    await ask("of a topic that is not", TOPIC, play.name("no"))
    await ask("of a bad name", TOPIC, "a/b")
    await ask("of an empty name", TOPIC, "")
    await ask("some of the broker", BROKER, node, ["log.retention.ms", "num.partitions", "message.max.bytes"])
    await ask("of a broker that is not", BROKER, "4711", ["num.partitions"])
    await ask("of a broker that is no number", BROKER, "one", ["num.partitions"])
    await ask("of all brokers", BROKER, "", ["num.partitions"])
    await ask("of no kind", 99, "x")
    await ask("of the unknown kind", 0, "x")


async def alter(play: Play) -> None:
    one = await play.topic("one", retention_ms="1000")

    async def replace(note: str, kind: int, name: str, *given: tuple[str, Any], validate: bool = False) -> None:
        configs = [{"name": key, "value": value} for key, value in given]
        asked = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        await play.ask(note, API.ALTER_CONFIGS, 2, resources=asked, validate_only=validate)

    async def change(note: str, *given: tuple[str, int, Any], name: str = one, validate: bool = False) -> None:
        configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in given]
        asked = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
        await play.ask(note, API.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=validate)

    async def seen(note: str, key: str, is_it: Callable[[str], bool]) -> None:
        asked = [{"resource_type": TOPIC, "resource_name": one, "configuration_keys": [key]}]
        await play.until(
            note,
            lambda said: is_it(said.results[0].configs[0].value),
            API.DESCRIBE_CONFIGS,
            4,
            resources=asked,
            include_synonyms=True,
        )

    await change("set", ("retention.ms", SET, "2000"), ("max.message.bytes", SET, "5000"))
    await seen("was set", "retention.ms", "2000".__eq__)
    await change("append", ("cleanup.policy", APPEND, "compact"))
    await seen("was appended", "cleanup.policy", "delete,compact".__eq__)
    await change("append what is in it", ("cleanup.policy", APPEND, "compact"))
    await change("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    await seen("was subtracted", "cleanup.policy", "compact".__eq__)
    await change("subtract the last", ("cleanup.policy", SUBTRACT, "compact"))
    await seen("nothing is left", "cleanup.policy", "".__eq__)
    await change("delete", ("retention.ms", DELETE, None))
    await seen("was deleted", "retention.ms", "2000".__ne__)
    await change("delete what is not set", ("segment.ms", DELETE, None))
    await change("append to a number", ("retention.ms", APPEND, "1"))
    await change("subtract from a number", ("retention.ms", SUBTRACT, "1"))
    await change("set to nothing", ("retention.ms", SET, None))
    await change("set to a word", ("retention.ms", SET, "soon"))
    await change("set to a bad list", ("cleanup.policy", SET, "burn"))
    await change("append a bad word", ("cleanup.policy", APPEND, "burn"))
    await change("an unknown name", ("no.such", SET, "1"))
    await change("delete an unknown name", ("no.such", DELETE, None))
    await change("an unknown operation", ("retention.ms", 9, "1"))
    await change("a name twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    await change("an empty name", ("", SET, "1"))
    await change("nothing")
    await change("of what is not", ("retention.ms", SET, "1"), name=play.name("no"))
    await change("of a bad name", ("retention.ms", SET, "1"), name="a/b")
    await change("only to check", ("retention.ms", SET, "77"), validate=True)
    await change("only to check a bad one", ("retention.ms", SET, "x"), validate=True)
    await change("more replicas in sync than there are", ("min.insync.replicas", SET, "2"), validate=True)
    await replace("replace", TOPIC, one, ("retention.ms", "3000"))
    await seen("was replaced", "retention.ms", "3000".__eq__)
    await seen("is as it was before", "max.message.bytes", "1048588".__eq__)
    await replace("replace by nothing", TOPIC, one)
    await seen("is nothing", "retention.ms", "3000".__ne__)
    await replace("replace by a bad one", TOPIC, one, ("retention.ms", "x"))
    await replace("replace by none", TOPIC, one, ("retention.ms", None))
    await replace("replace by an unknown one", TOPIC, one, ("no.such", "x"))
    await replace("replace of what is not", TOPIC, play.name("no"), ("retention.ms", "1"))
    await replace("replace only to check", TOPIC, one, ("retention.ms", "1"), validate=True)
    await replace("of no kind", 99, one, ("retention.ms", "1"))
    await replace("of a broker that is not", BROKER, "4711", ("num.partitions", "1"))
    await play.ask("what has configs, v0", API.LIST_CONFIG_RESOURCES, 0)
    await play.ask("what topics have configs", API.LIST_CONFIG_RESOURCES, 1, resource_types=[99])
    await play.ask("which brokers have configs", API.LIST_CONFIG_RESOURCES, 1, resource_types=[BROKER])


SCENES = {"describe-configs": describe, "alter-configs": alter}
