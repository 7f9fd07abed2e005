"""Groups with members that the script drives request by request."""

import asyncio
from collections.abc import Sequence
from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.play import Play

RANGE = ("range", b"\0\0\0\0\0\0\0\0\0\0")
"""Protocol with a subscription to no topic."""
ROUND = ("roundrobin", b"\0\0\0\0\0\0\0\0\0\0")


def joining(group: str, member: str = "", instance: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the fields of a JoinGroup. ``protocols``: pairs of name and metadata."""
    protocols: Sequence[tuple[str, bytes]] = more.pop("protocols", (RANGE,))
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": member,
        "group_instance_id": instance, "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
    } | more  # fmt: skip


def syncing(group: str, member: str, generation: int, shares: dict[str, bytes] | None = None, **more: Any) -> Any:
    """Return the fields of a SyncGroup. ``shares``: assignments by member, from the leader."""
    return {
        "group_id": group, "generation_id": generation, "member_id": member, "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": who, "assignment": share} for who, share in (shares or {}).items()],
    } | more  # fmt: skip


async def joined(play: Play, note: str, group: str, **more: Any) -> Any:
    """Join a new member: request an id, then join with it."""
    first = await play.ask(f"{note} asks for an id", API.JOIN_GROUP, 9, **joining(group, **more))
    return await play.ask(f"{note} joins", API.JOIN_GROUP, 9, **joining(group, first.member_id, **more))


async def waits(play: Play, group: str, members: int) -> None:
    """Wait until this many members are in an incomplete rebalance."""
    async with asyncio.timeout(20):
        while True:
            said = await play.quietly(API.DESCRIBE_GROUPS, 5, "looks", groups=[group])
            if said.groups[0].group_state == "PreparingRebalance" and len(said.groups[0].members) == members:
                return
            await asyncio.sleep(0.02)


async def one_member(play: Play) -> None:
    group = play.name("g")
    for version in (0, 1, 2, 3):
        alone = f"{group}-{version}"
        said = await play.ask(f"joins, version {version}", API.JOIN_GROUP, version, **joining(alone))
        await play.ask(
            f"syncs, version {version}",
            API.SYNC_GROUP,
            version,
            **syncing(alone, said.member_id, said.generation_id, {said.member_id: b"share"}),
        )
        if version < 3:
            await play.ask(
                f"leaves, version {version}", API.LEAVE_GROUP, version, group_id=alone, member_id=said.member_id
            )
    for version in (4, 5, 7, 9):
        await play.ask(f"needs an id, version {version}", API.JOIN_GROUP, version, **joining(f"{group}-id"))
    said = await joined(play, "one", group, protocols=(RANGE, ROUND))
    one, generation = said.member_id, said.generation_id

    async def beat(note: str, member: str = one, at: int = generation, version: int = 4, **more: Any) -> None:
        fields = {"group_id": group, "generation_id": at, "member_id": member} | more
        await play.ask(note, API.HEARTBEAT, version, **fields)

    async def describe(note: str, name: str = group, version: int = 5) -> None:
        await play.ask(note, API.DESCRIBE_GROUPS, version, groups=[name], include_authorized_operations=True)

    await describe("before it synced")
    await beat("beats before it synced")
    await play.ask("syncs as nobody", API.SYNC_GROUP, 5, **syncing(group, "nobody", generation))
    await play.ask("syncs in another generation", API.SYNC_GROUP, 5, **syncing(group, one, generation + 1))
    await play.ask(
        "syncs by another protocol", API.SYNC_GROUP, 5, **syncing(group, one, generation, protocol_name="roundrobin")
    )
    await play.ask(
        "syncs of another type", API.SYNC_GROUP, 5, **syncing(group, one, generation, protocol_type="connect")
    )
    await play.ask("syncs", API.SYNC_GROUP, 5, **syncing(group, one, generation, {one: b"share", "nobody": b"x"}))
    await play.ask("syncs again", API.SYNC_GROUP, 5, **syncing(group, one, generation, {one: b"other"}))
    await play.ask("syncs, no protocol said", API.SYNC_GROUP, 4, **_old(syncing(group, one, generation)))
    for version in (0, 3, 4):
        await beat(f"beats, version {version}", version=version)
    await beat("beats as nobody", "nobody")
    await beat("beats as no one", "")
    await beat("beats in an older generation", at=generation - 1)
    await beat("beats in a newer generation", at=generation + 1)
    await beat("beats with an instance", group_instance_id="i")
    await beat("beats elsewhere", group_id=play.name("no"))
    await beat("beats in no group", group_id="")
    for version in (0, 3, 4, 5, 6):
        await describe(f"is stable, version {version}", version=version)
    await play.ask("joins again", API.JOIN_GROUP, 9, **joining(group, one, protocols=(RANGE, ROUND)))
    await beat("beats in the old generation")
    await play.ask("another does not fit", API.JOIN_GROUP, 9, **joining(group, protocols=(("sticky", b""),)))
    await play.ask("another of another type", API.JOIN_GROUP, 9, **joining(group, protocol_type="connect"))
    await play.ask("another with no protocols", API.JOIN_GROUP, 9, **joining(group, protocols=()))
    await play.ask("another of no type", API.JOIN_GROUP, 9, **joining(group, protocol_type=""))
    await play.ask("an unknown one", API.JOIN_GROUP, 9, **joining(group, "nobody"))
    await play.ask("an unknown one of no group", API.JOIN_GROUP, 9, **joining(play.name("no"), "nobody"))
    for note, ms in (("short", 10), ("long", 86_400_000), ("negative", -1)):
        await play.ask(f"a {note} session", API.JOIN_GROUP, 9, **joining(group, session_timeout_ms=ms))
    await play.ask("no group", API.JOIN_GROUP, 9, **joining(""))
    await play.ask("no protocols, in a new group", API.JOIN_GROUP, 9, **joining(play.name("new"), protocols=()))
    await play.ask("no type, in a new group", API.JOIN_GROUP, 9, **joining(play.name("new"), protocol_type=""))
    await play.ask("delete while it is there", API.DELETE_GROUPS, 2, groups_names=[group])

    async def leave(note: str, *members: tuple[str, str | None], version: int = 5, name: str = group) -> None:
        leaving = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        await play.ask(note, API.LEAVE_GROUP, version, group_id=name, members=leaving)

    await leave("nobody leaves", ("nobody", None))
    await leave("an instance leaves that is not", ("", "instance"))
    await leave("none leaves")
    await leave("leaves a group that is not", (one, None), name=play.name("no"))
    await leave("leaves no group", (one, None), name="")
    await leave("one leaves, and nobody", (one, None), ("nobody", None))
    await describe("is empty")
    await beat("beats when it has left")
    await describe("is not", play.name("no"))
    await describe("is not, version 6", play.name("no"), version=6)
    await play.ask("syncs a group that is not", API.SYNC_GROUP, 5, **syncing(play.name("no"), one, 1))
    await play.ask("delete", API.DELETE_GROUPS, 2, groups_names=[group, play.name("no"), ""])
    await describe("is deleted")
    await play.ask("delete again", API.DELETE_GROUPS, 1, groups_names=[group])


async def two_members(play: Play) -> None:
    """Rebalances of two members, step by step."""
    group = play.name("g")
    first = await joined(play, "one", group, protocols=(RANGE, ROUND))
    one = first.member_id
    await play.ask("one syncs", API.SYNC_GROUP, 5, **syncing(group, one, first.generation_id, {one: b"all"}))
    asked = await play.ask("two asks for an id", API.JOIN_GROUP, 9, **joining(group, protocols=(ROUND, RANGE)))
    two = asked.member_id
    join_two = asyncio.create_task(
        play.ask("two joins", API.JOIN_GROUP, 9, "two", **joining(group, two, protocols=(ROUND, RANGE)))
    )
    await waits(play, group, 2)
    beating = {"group_id": group, "member_id": one, "generation_id": first.generation_id}
    await play.ask("one is told to join", API.HEARTBEAT, 4, **beating)
    await play.ask("one syncs meanwhile", API.SYNC_GROUP, 5, **syncing(group, one, first.generation_id))
    await play.ask("while they join", API.DESCRIBE_GROUPS, 5, groups=[group])
    again = await play.ask("one joins again", API.JOIN_GROUP, 9, **joining(group, one, protocols=(RANGE, ROUND)))
    second = await join_two
    generation = again.generation_id
    sync_two = asyncio.create_task(play.ask("two syncs", API.SYNC_GROUP, 5, "two", **syncing(group, two, generation)))
    await asyncio.sleep(0.1)
    await play.ask("two beats while it waits", API.HEARTBEAT, 4, **(beating | _at(two, generation)))
    await play.ask("while they sync", API.DESCRIBE_GROUPS, 5, groups=[group])
    await play.ask("one syncs both", API.SYNC_GROUP, 5, **syncing(group, one, generation, {one: b"1", two: b"2"}))
    await sync_two
    assert second.generation_id == generation
    await play.ask("both", API.DESCRIBE_GROUPS, 5, groups=[group])
    await play.ask("two joins as it was", API.JOIN_GROUP, 9, **joining(group, two, protocols=(ROUND, RANGE)))
    join_two = asyncio.create_task(
        play.ask("two joins with another", API.JOIN_GROUP, 9, "two", **joining(group, two, protocols=(RANGE,)))
    )
    await waits(play, group, 2)
    await play.ask("two leaves", API.LEAVE_GROUP, 3, group_id=group, members=[{"member_id": two}])
    await join_two
    alone = await play.ask("one is alone", API.JOIN_GROUP, 9, **joining(group, one, protocols=(RANGE, ROUND)))
    await play.ask("the leader leaves out itself", API.SYNC_GROUP, 5, **syncing(group, one, alone.generation_id))


async def static_members(play: Play) -> None:
    """Static members (KIP-345)."""
    group = play.name("g")
    said = await play.ask("in", API.JOIN_GROUP, 9, **joining(group, instance="i"))
    one, generation = said.member_id, said.generation_id
    of_it = {"group_instance_id": "i"}
    await play.ask("syncs", API.SYNC_GROUP, 5, **syncing(group, one, generation, {one: b"share"}, **of_it))
    await play.ask("described", API.DESCRIBE_GROUPS, 5, groups=[group])
    again = await play.ask("comes again", API.JOIN_GROUP, 9, **joining(group, instance="i"))
    new = again.member_id
    await play.ask("syncs with its new id", API.SYNC_GROUP, 5, **syncing(group, new, generation, **of_it))
    beating = {"group_id": group, "generation_id": generation} | of_it
    await play.ask("beats", API.HEARTBEAT, 4, **beating, member_id=new)
    await play.ask("the old one beats", API.HEARTBEAT, 4, **beating, member_id=one)
    await play.ask("the old one joins", API.JOIN_GROUP, 9, **joining(group, one, "i"))
    await play.ask("the old one syncs", API.SYNC_GROUP, 5, **syncing(group, one, generation, **of_it))
    await play.ask("an unknown instance beats", API.HEARTBEAT, 4, **(beating | _named("j")), member_id=new)
    await play.ask("an unknown instance with an id", API.JOIN_GROUP, 9, **joining(group, new, "j"))
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    await play.topic("t")
    committing = {"group_id": group, "generation_id_or_member_epoch": generation, "topics": topics} | of_it
    topics[0]["name"] = play.name("t")
    await play.ask("the old one commits", API.OFFSET_COMMIT, 8, **committing, member_id=one)
    await play.ask("commits", API.OFFSET_COMMIT, 8, **committing, member_id=new)
    old = {"member_id": one, "group_instance_id": "i"}
    await play.ask("the old one leaves", API.LEAVE_GROUP, 5, group_id=group, members=[old])
    await play.ask("comes with another protocol", API.JOIN_GROUP, 9, **joining(group, instance="i", protocols=(ROUND,)))
    by_name = {"member_id": "", "group_instance_id": "i"}
    await play.ask("is taken out by its name", API.LEAVE_GROUP, 5, group_id=group, members=[by_name])
    await play.ask("nobody is left", API.DESCRIBE_GROUPS, 5, groups=[group])


async def listing(play: Play) -> None:
    """ListGroups, with only the groups of this scene."""
    group = play.name("g")
    said = await joined(play, "one", group)
    await play.ask(
        "syncs", API.SYNC_GROUP, 5, **syncing(group, said.member_id, said.generation_id, {said.member_id: b""})
    )
    for note, version, fields in (
        ("states that there are none of", 5, {"states_filter": ["Dead"], "types_filter": []}),
        ("unknown states", 5, {"states_filter": ["Asleep"], "types_filter": []}),
        ("unknown types", 5, {"states_filter": [], "types_filter": ["odd"]}),
        ("of the other type", 5, {"states_filter": [], "types_filter": ["share"]}),
    ):
        await play.ask(note, API.LIST_GROUPS, version, **fields)
    for version, fields in (
        (0, {}),
        (3, {}),
        (4, {"states_filter": ["stable"]}),
        (5, {"states_filter": ["Stable"], "types_filter": ["Classic"]}),
    ):
        said = await play.quietly(API.LIST_GROUPS, version, **fields)
        mine = [g for g in said.groups if g.group_id == group]
        kind = [g.group_type for g in mine] if version >= 5 else []
        state = [g.group_state for g in mine] if version >= 4 else []
        play.answers[f"mine, version {version}"] = [[g.protocol_type for g in mine], state, kind, said.error_code]


def _old(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in {"protocol_type", "protocol_name"}}


def _at(member: str, generation: int) -> dict[str, Any]:
    return {"member_id": member, "generation_id": generation}


def _named(instance: str) -> dict[str, Any]:
    return {"group_instance_id": instance}


SCENES = {"one-member": one_member, "two-members": two_members, "static": static_members, "list-groups": listing}
