"""Everything that goes wrong, by name. A fault strikes, lasts, and mends itself; ``restore`` mends whatever is left."""

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.logfile import decode_preamble
from seaweedmq.errors import SeaweedMQError
from tests.faults.arena import Arena, Fault
from tests.faults.changes import merge, move, split
from tests.faults.clocks import clock_step
from tests.faults.etcd_data import etcd_lost, etcd_quota, etcd_snapshot_restore
from tests.faults.machines.cluster import Cluster, Node
from tests.faults.recreate import recreate
from tests.faults.resources import few_descriptors
from tests.faults.storage import filler, storage_full, storage_read_only, storage_unmounted

BEYOND_LEASE_S = 1.5
"""How much longer than the lease something stays frozen or cut off."""
HANG_UPS = 6
REJOINING_S = 0.05
"""A broker that wakes up without its lease is back as somebody new within this time, or a little more."""


# --- killed processes -------------------------------------------------------------------------------------------------


async def _kill(arena: Arena, nodes: Sequence[Node], what: str, *, down_s: float) -> None:
    arena.say(f"SIGKILL of {what}: {', '.join(map(str, nodes))}")
    await asyncio.gather(*(arena.cluster.kill(node) for node in nodes))
    await asyncio.sleep(down_s)
    for node in nodes:
        await arena.cluster.start(node)


async def kill_primary(arena: Arena) -> None:
    """SIGKILL of a primary that does not lead."""
    what = "a primary that does not lead"
    await _kill(arena, [await arena.victim(what, 0, leader=False)], what, down_s=arena.rng.uniform(0, 2))


async def kill_follower(arena: Arena) -> None:
    """SIGKILL of a follower that does not lead."""
    what = "a follower that does not lead"
    await _kill(arena, [await arena.victim(what, 1, leader=False)], what, down_s=arena.rng.uniform(0, 2))


async def kill_leader(arena: Arena) -> None:
    """SIGKILL of the leader, a primary if possible."""
    what = "the leader, which is also a primary"
    node = await arena.some(0, leader=True)
    if node is None:
        arena.unfit.append(what)
        node = await arena.leading()
    await _kill(arena, [node], what, down_s=arena.rng.uniform(0, 2))


async def kill_coordinator(arena: Arena) -> None:
    """SIGKILL of the coordinator of the group of Kafka's clients."""
    what = "the coordinator of the group"
    node = await arena.cluster.coordinator(arena.kafka_group)
    if node is None:
        arena.unfit.append(what)
        node = arena.some_node()
    await _kill(arena, [node], what, down_s=arena.rng.uniform(0, 2))


async def freeze_coordinator(arena: Arena) -> None:
    """SIGSTOP of the coordinator of the group of Kafka's clients for longer than its lease."""
    what = "the coordinator of the group"
    node = await arena.cluster.coordinator(arena.kafka_group)
    if node is None:
        arena.unfit.append(what)
        node = arena.some_node()
    await _freeze(arena, node, what)


async def kill_all(arena: Arena) -> None:
    """SIGKILL of all brokers at once."""
    nodes = [node for node in arena.cluster.nodes if node.pid is not None]
    await _kill(arena, nodes, "all brokers", down_s=arena.rng.uniform(0, 1))


async def kill_all_but_one(arena: Arena) -> None:
    """SIGKILL of all brokers at once, but for one."""
    left = arena.some_node()
    nodes = [node for node in arena.cluster.nodes if node.pid is not None and node is not left]
    await _kill(arena, nodes, f"all brokers but {left}", down_s=arena.rng.uniform(0, 3))


async def torn_write(arena: Arena) -> None:
    """SIGKILL in the middle of a write: half a frame, or rubbish, at the end of the newest log files."""
    node = await arena.victim("a primary", 0)
    nodes = [n for n in arena.cluster.nodes if n.pid is not None] if arena.rng.random() < 0.3 else [node]
    writers = {broker for broker, at in (await arena.cluster.members()).items() if at in nodes}
    async with arena.cluster.storage_turn:
        arena.say(f"SIGKILL in the middle of a write: {', '.join(map(str, nodes))}")
        await asyncio.gather(*(arena.cluster.kill(n) for n in nodes))
        torn = await asyncio.to_thread(_tear, arena.cluster.storage, writers, arena.rng)
    arena.say(f"{torn} log files end in half a write")
    await asyncio.sleep(arena.rng.uniform(0, 1))
    for n in nodes:
        await arena.cluster.start(n)


def _tear(storage: Path, writers: set[str], rng: random.Random) -> int:
    """Nothing that was fsynced is touched: a write that was under way left a part behind its last one."""
    torn = 0
    newest: dict[Path, Path] = {}
    for path in sorted(storage.glob("topics/*/*/log/*/*.log")):
        if path.stem.split("-", 1)[1].split(".")[0] in writers:
            newest[path.parent] = path
    for path in newest.values():
        data = path.read_bytes()
        tail = rng.randbytes(rng.randint(1, 400))
        try:
            _, used = decode_preamble(data)
        except SeaweedMQError:
            continue  # killed before the preamble was whole; rubbish in its place is no torn write, but a ruined file
        try:
            frames = list(split_frames(data[used:]))
        except SeaweedMQError:
            frames = []  # killed in a write for real: what is appended makes it worse
        if frames and rng.random() < 0.7:
            last = bytes(frames[-1].header_bytes) + bytes(frames[-1].payload)
            tail = last[: rng.randint(1, len(last) - 1)]
        with path.open("ab") as log:
            log.write(tail)
        torn += 1
    return torn


# --- frozen processes -------------------------------------------------------------------------------------------------


async def _freeze(arena: Arena, node: Node, what: str) -> None:
    arena.say(f"SIGSTOP of {what}: {node}")
    arena.cluster.signal(node, signal.SIGSTOP)
    await asyncio.sleep(arena.cluster.lease_ttl_s + BEYOND_LEASE_S)
    arena.say(f"SIGCONT of {node}")
    arena.cluster.signal(node, signal.SIGCONT)


async def freeze_primary(arena: Arena) -> None:
    """SIGSTOP of a primary for longer than its lease."""
    what = "a primary that does not lead"
    await _freeze(arena, await arena.victim(what, 0, leader=False), what)


async def freeze_follower(arena: Arena) -> None:
    """SIGSTOP of a follower for longer than its lease."""
    what = "a follower that does not lead"
    await _freeze(arena, await arena.victim(what, 1, leader=False), what)


async def freeze_leader(arena: Arena) -> None:
    """SIGSTOP of the leader for longer than its lease."""
    await _freeze(arena, await arena.leading(), "the leader")


async def terminate_rejoining(arena: Arena) -> None:
    """SIGSTOP for longer than the lease, SIGCONT, and SIGTERM while the broker is coming back as somebody new."""
    node = await arena.victim("a primary", 0)
    process = node.process
    await _freeze(arena, node, "a primary")
    after_s = arena.rng.uniform(0, REJOINING_S)
    await asyncio.sleep(after_s)
    if node.process is process and node.pid is not None:  # or another fault has ended it meanwhile
        arena.say(f"SIGTERM of {node} {after_s * 1e3:.0f} ms later")
        await arena.terminate(node)
    await arena.cluster.start(node)


# --- network ----------------------------------------------------------------------------------------------------------


async def _hold(arena: Arena) -> None:
    await asyncio.sleep(arena.rng.uniform(0.5, arena.cluster.lease_ttl_s + BEYOND_LEASE_S))


async def cut_pair(arena: Arena) -> None:
    """No packets between two brokers; both reach etcd and clients."""
    await _cut_pair(arena, both_ways=True)


async def cut_pair_one_way(arena: Arena) -> None:
    """No packets from one broker to another, but those the other way."""
    await _cut_pair(arena, both_ways=False)


async def _cut_pair(arena: Arena, *, both_ways: bool) -> None:
    network = arena.cluster.network
    one = await arena.victim("a primary", 0)
    other = arena.rng.choice([node for node in arena.cluster.nodes if node is not one])
    if not both_ways and arena.rng.random() < 0.5:
        one, other = other, one
    arena.say(f"no packets from {one} to {other}" + (" and back" if both_ways else ""))
    await network.cut_pair(one.index, other.index)
    if both_ways:
        await network.cut_pair(other.index, one.index)
    await asyncio.sleep(arena.cluster.lease_ttl_s + BEYOND_LEASE_S)
    await network.heal()
    arena.say("packets arrive again")


async def cut_off(arena: Arena) -> None:
    """No other broker, nor any of Kafka's clients, reaches one of them, which still reaches etcd."""
    node = await arena.victim("a primary", 0)
    arena.say(f"nobody reaches {node}")
    await arena.cluster.network.cut_off(node.index)
    node.kafka.cut()
    await asyncio.sleep(arena.cluster.lease_ttl_s + BEYOND_LEASE_S)
    node.kafka.heal()
    await arena.cluster.network.heal()
    arena.say(f"{node} is reached again")


async def cut_kafka(arena: Arena) -> None:
    """A broker and Kafka's clients hear nothing of each other, or in one way only; for all others it is well."""
    node = await arena.victim("a primary", 0)
    there, back = arena.rng.choice(((True, True), (True, False), (False, True)))
    ways = "to and from" if there and back else "to" if there else "from"
    arena.say(f"nothing gets {ways} {node} for Kafka's clients")
    node.kafka.cut(there=there, back=back)
    await _hold(arena)
    node.kafka.heal()
    arena.say(f"{node} and Kafka's clients hear each other again")


async def hang_up_kafka(arena: Arena) -> None:
    """The connections of Kafka's clients end, again and again, with whatever is on its way."""
    for _ in range(HANG_UPS):
        ended = [node.kafka.hang_up() for node in arena.cluster.nodes if arena.rng.random() < 0.7]
        arena.say(f"{sum(ended)} connections of Kafka's clients end")
        await asyncio.sleep(arena.rng.uniform(0, 1))


async def cut_etcd(arena: Arena) -> None:
    """A primary does not reach etcd, nor hear from it."""
    await _cut_etcd(arena, await arena.victim("a primary that does not lead", 0, leader=False), there=True, back=True)


async def cut_etcd_there(arena: Arena) -> None:
    """What a broker sends to etcd does not arrive."""
    await _cut_etcd(arena, await arena.victim("a primary", 0), there=True, back=False)


async def cut_etcd_back(arena: Arena) -> None:
    """A broker's requests reach etcd, and the answers are lost."""
    await _cut_etcd(arena, await arena.victim("a primary", 0), there=False, back=True)


async def cut_etcd_leader(arena: Arena) -> None:
    """The leader and etcd are cut off from each other."""
    await _cut_etcd(arena, await arena.leading(), there=True, back=True)


async def cut_etcd_all(arena: Arena) -> None:
    """No broker reaches etcd until all their leases have ended; then all are back at once, as others."""
    nodes = [node for node in arena.cluster.nodes if node.pid is not None]
    await asyncio.gather(*(_cut_etcd(arena, node, there=True, back=True) for node in nodes))


async def _cut_etcd(arena: Arena, node: Node, *, there: bool, back: bool) -> None:
    ways = "to and from" if there and back else "to" if there else "from"
    arena.say(f"nothing gets {ways} etcd for {node}")
    node.etcd.cut(there=there, back=back)
    await asyncio.sleep(arena.cluster.lease_ttl_s + BEYOND_LEASE_S)
    node.etcd.heal()
    arena.say(f"{node} and etcd hear each other again")


# --- etcd -------------------------------------------------------------------------------------------------------------


async def kill_etcd(arena: Arena) -> None:
    """SIGKILL of etcd, and a restart on the same data."""
    async with arena.cluster.etcd_turn:
        arena.say("SIGKILL of etcd")
        await arena.cluster.etcd.kill()
        await _hold(arena)
        await arena.cluster.etcd.start()
        arena.say("etcd runs again")


async def freeze_etcd(arena: Arena) -> None:
    """SIGSTOP of etcd, and SIGCONT."""
    async with arena.cluster.etcd_turn:
        arena.say("SIGSTOP of etcd")
        arena.cluster.etcd.freeze()
        await _hold(arena)
        arena.cluster.etcd.thaw()
        arena.say("SIGCONT of etcd")


# --- readers ----------------------------------------------------------------------------------------------------------


async def freeze_member(arena: Arena) -> None:
    """SIGSTOP of a member for longer than its session."""
    group = arena.rng.choice(arena.groups)
    member = arena.rng.choice(group.members)
    arena.say(f"SIGSTOP of member {member.name}")
    await group.freeze(member, group.session_s + BEYOND_LEASE_S)
    arena.say(f"SIGCONT of member {member.name}")


async def kill_member(arena: Arena) -> None:
    """SIGKILL of a member of the group; after a while another takes its place."""
    group = arena.rng.choice(arena.groups)
    member = arena.rng.choice(group.members)
    arena.say(f"SIGKILL of member {member.name}")
    await group.kill(member)
    await asyncio.sleep(arena.rng.uniform(0, 1))
    await group.add()


# --- on purpose -------------------------------------------------------------------------------------------------------


async def rolling_restart(arena: Arena) -> None:
    """Every broker in turn: SIGTERM, wait for its end, start it again, wait until it serves."""
    for node in arena.cluster.nodes:
        if node.pid is None:
            continue
        arena.say(f"SIGTERM of {node}")
        await arena.terminate(node)
        await arena.cluster.start(node)
        await arena.cluster.until_ready()
    arena.say("every broker was restarted")


async def drain(arena: Arena) -> None:
    """All segments are moved away from a broker, which is then stopped and started again."""
    node = await arena.victim("a primary", 0)
    arena.say(f"drains {node}")
    async with await arena.cluster.connect() as client:
        await client.admin.drain(arena.cluster.network.advertise(node.index))
    for topic in arena.all_topics:
        if node in await arena.cluster.replicas(topic, 0) + await arena.cluster.replicas(topic, 1):
            arena.exits.append(f"{node} was drained and still has segments of {topic}")
    await arena.terminate(node)
    await arena.cluster.start(node)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        *(kill_primary, kill_follower, kill_leader, kill_coordinator, kill_all, kill_all_but_one, torn_write),
        *(freeze_primary, freeze_follower, freeze_leader, freeze_coordinator, terminate_rejoining),
        *(cut_pair, cut_pair_one_way, cut_off, cut_etcd, cut_etcd_there, cut_etcd_back, cut_etcd_leader),
        cut_etcd_all,
        *(cut_kafka, hang_up_kafka),
        *(kill_etcd, freeze_etcd, etcd_snapshot_restore, etcd_lost, etcd_quota),
        *(storage_full, storage_unmounted, storage_read_only, clock_step, few_descriptors),
        *(rolling_restart, drain),
        *(split, merge, move, recreate, kill_member, freeze_member),
    )
}
ALONE = (rolling_restart, drain, etcd_snapshot_restore, etcd_lost)
"""They wait for a well cluster, so nothing else may go wrong meanwhile."""
NEEDS_PAIRS = (cut_pair, cut_pair_one_way)
NEEDS_MEMBERS = (kill_member, freeze_member)
NEEDS_KAFKA = (cut_kafka, hang_up_kafka)
NEEDS_KAFKA_GROUP = (kill_coordinator, freeze_coordinator)
NEEDS_NATIVES = (split, merge)
NEEDS_LIMITED_STORAGE = (storage_full,)
NEEDS_MOUNT = (storage_unmounted, storage_read_only)
NEEDS_CLOCKS = (clock_step,)


async def restore(cluster: Cluster) -> None:
    """Mend everything: packets pass, processes run, the storage is there, the cluster is whole."""
    await cluster.network.heal()
    if cluster.mount is not None and not cluster.mount.is_mounted:
        await asyncio.to_thread(cluster.mount.mount)
    await asyncio.to_thread(filler(cluster).unlink, missing_ok=True)
    if cluster.etcd.pid is not None:
        cluster.etcd.thaw()
    await cluster.etcd.start()
    for node in cluster.nodes:
        node.etcd.heal()
        node.kafka.heal()
        cluster.signal(node, signal.SIGCONT)
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
