"""Offsets that groups commit."""

from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.groups import RANGE, joined, syncing

SUBSCRIBED = b"\0\0\0\0\0\1"
"""Beginning of a consumer's metadata: the version, and one topic follows."""


def offset(partition: int, at: int, metadata: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": at,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


async def simple(play: Play) -> None:
    one, group = await play.topic("one", 3), play.name("g")

    async def commit(note: str, *offsets: Any, version: int = 8, topic: str = one, **more: Any) -> None:
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": list(offsets)}],
        } | more
        await play.ask(note, API.OFFSET_COMMIT, version, **fields)

    async def fetch(note: str, topics: Any, version: int = 7, name: str = group) -> None:
        await play.ask(note, API.OFFSET_FETCH, version, group_id=name, topics=topics)

    async def fetch_many(note: str, *groups: tuple[str, Any], version: int = 9) -> None:
        asked = [{"group_id": name, "topics": topics} for name, topics in groups]
        await play.ask(note, API.OFFSET_FETCH, version, groups=asked, require_stable=True)

    two = [{"name": one, "partition_indexes": [0, 1]}]
    await fetch("before any", two)
    await fetch("all before any", None)
    for version in (2, 5, 6, 7, 8, 9):
        await commit(f"version {version}", offset(0, version, f"v{version}", 0), version=version)
    await commit("two", offset(1, 5), offset(2, 6, None))
    for version in (1, 3, 5, 7):
        await fetch(f"of version {version}", two, version)
    await fetch("all", None)
    await fetch("none", [])
    await fetch("of partitions that are not", [{"name": one, "partition_indexes": [7]}])
    await fetch("of a topic that is not", [{"name": play.name("no"), "partition_indexes": [0]}])
    await fetch("of a group that is not", two, name=play.name("no"))
    await fetch_many("of two groups", (group, two), (play.name("no"), two), version=8)
    await fetch_many("all of a group", (group, None))
    await fetch_many("none of a group", (group, []))
    await fetch_many("no group")
    await fetch_many("a group without a name", ("", two))
    member = [{"group_id": group, "member_id": "nobody", "member_epoch": 3, "topics": two}]
    await play.ask("as nobody", API.OFFSET_FETCH, 9, groups=member)
    await commit("a negative offset", offset(0, -5))
    await commit("offset -1", offset(0, -1))
    await commit("metadata as long as may be", offset(0, 1, "m" * 4096))
    await commit("longer metadata", offset(0, 2, "m" * 4097), offset(1, 3))
    await commit("metadata of accents", offset(0, 1, "é" * 4096))
    await commit("longer metadata of accents", offset(0, 2, "é" * 4097))
    await commit("metadata beyond 16 bits", offset(0, 1, "😀" * 2048))
    await commit("longer metadata beyond 16 bits", offset(0, 2, "😀" * 2049))
    await commit("a partition that is not", offset(9, 1), offset(0, 4))
    await commit("a topic that is not", offset(0, 1), topic=play.name("no"))
    await commit("a topic with a bad name", offset(0, 1), topic="a/b")
    await commit("as a member", offset(0, 1), member_id="nobody", generation_id_or_member_epoch=1)
    await commit("as a member of no generation", offset(0, 1), member_id="nobody")
    await commit("in a generation", offset(0, 1), generation_id_or_member_epoch=3)
    await commit(
        "as a member of nothing",
        offset(0, 1),
        group_id=play.name("no"),
        member_id="nobody",
        generation_id_or_member_epoch=1,
    )
    await commit(
        "as a member of nothing, version 9",
        offset(0, 1),
        version=9,
        group_id=play.name("no"),
        member_id="nobody",
        generation_id_or_member_epoch=1,
    )
    await commit("as an instance", offset(0, 1), group_instance_id="i")
    await commit("of nobody", offset(0, 1), group_id="")
    await commit("nothing", topics=[])
    await fetch("in the end", [{"name": one, "partition_indexes": [0, 1, 2]}])
    await play.ask("the group", API.DESCRIBE_GROUPS, 5, groups=[group])

    async def delete(note: str, *partitions: int, topic: str = one, name: str = group) -> None:
        asked = [{"name": topic, "partitions": [{"partition_index": p} for p in partitions]}]
        await play.ask(note, API.OFFSET_DELETE, 0, group_id=name, topics=asked)

    await delete("delete one", 0)
    await delete("delete it again", 0)
    await delete("delete of a partition that is not", 9)
    await delete("delete of a topic that is not", 0, topic=play.name("no"))
    await delete("delete of a group that is not", 0, name=play.name("no"))
    await delete("delete of no group", 0, name="")
    await fetch("what is left", None)
    await delete("delete the last", 1, 2)
    await play.ask("the group without offsets", API.DESCRIBE_GROUPS, 5, groups=[group])
    for long in ("g" * 300, "ü" * 130, "h" * 32_767):
        await commit(f"a group of {len(long)} {long[0]}", offset(0, 7), group_id=long)
        await fetch(f"of a group of {len(long)} {long[0]}", two, name=long)
    await commit("once more", offset(0, 1))
    await play.ask("delete the group", API.DELETE_GROUPS, 2, groups_names=[group])
    await fetch("of a deleted group", None)


async def members(play: Play) -> None:
    one, other, group = await play.topic("one", 2), await play.topic("other"), play.name("g")
    subscription = SUBSCRIBED + len(one).to_bytes(2, "big") + one.encode() + b"\0\0\0\0"
    said = await joined(play, "one", group, protocols=((RANGE[0], subscription),))
    member, generation = said.member_id, said.generation_id

    async def commit(note: str, who: str, at: int, version: int = 8, topic: str = one, **more: Any) -> None:
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": at,
            "member_id": who,
            "topics": [{"name": topic, "partitions": [offset(0, 7)]}],
        } | more
        await play.ask(note, API.OFFSET_COMMIT, version, **fields)

    await commit("before it synced", member, generation)
    await play.ask("syncs", API.SYNC_GROUP, 5, **syncing(group, member, generation, {member: b""}))
    await commit("commits", member, generation)
    await commit("commits of what it did not subscribe to", member, generation, topic=other)
    await commit("commits in an old generation", member, generation - 1)
    await commit("commits in a generation to come", member, generation + 1)
    await commit("commits in a generation to come, version 9", member, generation + 1, version=9)
    await commit("nobody commits", "nobody", generation)
    await commit("nobody commits, version 9", "nobody", generation, version=9)
    await commit("somebody without an id commits", "", -1)
    await commit("somebody without an id commits, in its generation", "", generation)
    await commit("an instance commits", member, generation, group_instance_id="i")
    topics = [{"name": t, "partitions": [{"partition_index": 0}]} for t in (one, other)]
    await play.ask("delete, subscribed and not", API.OFFSET_DELETE, 0, group_id=group, topics=topics)
    await play.ask("is left", API.OFFSET_FETCH, 7, group_id=group, topics=None)
    await play.ask("leaves", API.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member}])
    await commit("when it has left", member, generation)
    await commit("without members", "", -1)
    await play.ask("delete when it has left", API.OFFSET_DELETE, 0, group_id=group, topics=topics)


SCENES = {"commits": simple, "member-commits": members}
